"""The workload against the limit: what lengths the requests had, which limit would do, and what binds.

A share of requests stays within a bucket's edge, so every figure is "at most". The top bucket has no edge: there
it is the limit itself, which no request of vLLM can exceed. Without the middleware the total of one request is
only bounded: of the requests within the two halves' edges, all are within the sum of these edges.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass

from vllm_length_exporter.histogram import Histogram
from vllm_length_exporter.moments import Lengths, Moment
from vllm_length_exporter.server import ServerState
from vllm_length_exporter.vllm.release import within

from .evidence import Evidence
from .values import (
    AtMost,
    Binding,
    ConcurrencyAt,
    EngineCapacity,
    Limits,
    Recommendation,
    Unknown,
)

SHARES = (0.5, 0.9, 0.95, 0.99, 1.0)
COVERAGES = (0.9, 0.95, 0.99, 1.0)
ENOUGH_REQUESTS = 20
SATURATED = 0.95  # share of KV blocks in use from which the next request may not fit
# From this version on an output budget that does not fit is cut, not refused.
CLAMPS_SINCE = "0.32.0"
WHAT_IF_TOKENS = tuple(1 << power for power in range(10, 21))  # 1,024 to 1,048,576


@dataclass(frozen=True, slots=True)
class WorkloadFound:
    at_most: tuple[AtMost, ...] = ()
    recommended: tuple[Recommendation, ...] = ()
    unknown: tuple[Unknown, ...] = ()


def workload(sources: Evidence, state: ServerState, effective: int | None) -> WorkloadFound:
    """Quantiles of the finished requests of the workload window, and the limit that would have served them."""
    if sources.page is None:
        return WorkloadFound()
    parts = windowed(state.lengths)
    version = sources.vllm_version
    clamps = within(version[0] if version else None, CLAMPS_SINCE)
    at_most: list[AtMost] = []
    for part in ("prompt", "generation"):
        for share in SHARES:
            edge = _edge(parts.get(part), share, effective)
            at_most += [AtMost(part, share, edge, "metrics")] if edge is not None else []
    for share in SHARES:
        total = total_at_most(parts, share, effective)
        at_most += [AtMost("total", share, *total)] if total is not None else []
    recommended = []
    for coverage in COVERAGES:
        needed = recommended_limit(parts, coverage, effective, clamps=clamps)
        recommended += [Recommendation(coverage, *needed)] if needed is not None else []
    unknown: tuple[Unknown, ...] = ()
    if not recommended:
        unknown = (
            Unknown(
                "recommended_max_model_len", f"{ENOUGH_REQUESTS} finished requests in the workload window"
            ),
        )
    return WorkloadFound(tuple(at_most), tuple(recommended), unknown)


def windowed(lengths: tuple[Lengths, ...]) -> Mapping[str, Histogram]:
    """What was added to each histogram over the kept snapshots; since the server's start if they cover all of it."""
    if not lengths:
        return {}
    first, last = lengths[0], lengths[-1]
    if len(lengths) == 1:
        return {}
    then = first.parts
    added = {part: now.since(then[part]) for part, now in last.parts.items() if part in then}
    return {part: rows for part, rows in added.items() if rows is not None}


def total_at_most(
    parts: Mapping[str, Histogram], share: float, effective: int | None
) -> tuple[int, str] | None:
    """Tokens that the share's prompt + output stay within: from the middleware, else a bound from both parts."""
    measured = _edge(parts.get("total"), share, effective)
    if measured is not None:
        return measured, "middleware"
    bound = _sum_bound(parts, "generation", share, effective)
    return None if bound is None else (bound, "prompt edge + generation edge")


def recommended_limit(
    parts: Mapping[str, Histogram], coverage: float, effective: int | None, *, clamps: bool | None
) -> tuple[int, str] | None:
    """The smallest limit that would have served this share of the finished requests, and what it is made from.

    Up to 0.31 a request is refused for what it asks for (prompt + max_tokens), whatever it would have generated.
    """
    if clamps:
        return total_at_most(parts, coverage, effective)
    measured = _edge(parts.get("asked"), coverage, effective)
    if measured is not None:
        return measured, "middleware"
    bound = _sum_bound(parts, "max_tokens", coverage, effective)
    return None if bound is None else (bound, "prompt edge + max_tokens edge")


def _sum_bound(parts: Mapping[str, Histogram], other: str, share: float, effective: int | None) -> int | None:
    # Requests outside either edge are at most the sum of both rests: each part must cover half of the rest more.
    each = 1 - (1 - share) / 2
    prompt, output = (_edge(parts.get(part), each, effective) for part in ("prompt", other))
    if prompt is None or output is None:
        return None
    return prompt + output if effective is None else min(prompt + output, effective)


def _edge(rows: Histogram | None, share: float, effective: int | None) -> int | None:
    """The edge as whole tokens, no further than the limit; None with too few requests, or no end to the top bucket."""
    if rows is None or rows.total < ENOUGH_REQUESTS:
        return None
    edge = rows.at_most(share)
    if edge is None or math.isinf(edge):
        return effective
    return int(edge) if effective is None else min(int(edge), effective)


def concurrency_table(engines: tuple[EngineCapacity, ...], limits: Limits) -> tuple[ConcurrencyAt, ...]:
    """How many requests of each length would fit at once, from the measured blocks of each engine.

    Only where every token costs one block for each block size: a hybrid's cost at another length is not known.
    """
    top = max((value.value for value in (limits.window, limits.effective) if value is not None), default=0)
    lengths = sorted({*(length for length in WHAT_IF_TOKENS if length <= top), *([top] if top else [])})
    if limits.effective is not None:
        lengths = sorted({*lengths, limits.effective.value})
    return tuple(
        ConcurrencyAt(engine.engine, length, engine.blocks.value / -(-length // engine.block_size.value))
        for engine in engines
        if engine.one_group and engine.blocks is not None and engine.block_size is not None
        for length in lengths
    )


def binding(
    history: tuple[Moment, ...], engines: tuple[EngineCapacity, ...], limits: Limits, window: float
) -> tuple[Binding, ...]:
    """The share of the window's time in which each limit held requests back.

    Withheld where requests waited and it cannot be told for what (no max_num_seqs in the log).
    """
    found: list[Binding] = []
    seqs = limits.max_num_seqs.value if limits.max_num_seqs is not None else None
    for engine in (row.engine for row in engines):
        shares = _engine_binding(history, engine, seqs, window)
        found += [Binding(engine, limit, share) for limit, share in shares.items()]
    return tuple(found)


BINDING_LIMITS = ("kv_cache", "max_num_seqs", "max_num_batched_tokens", "nothing")


def _engine_binding(
    history: tuple[Moment, ...], engine: str, seqs: int | None, window: float
) -> dict[str, float]:
    seconds = dict.fromkeys(BINDING_LIMITS, 0.0)
    start = history[-1].at - window if history else 0.0
    for before, now in itertools.pairwise(history):
        lasted = now.at - max(before.at, start)
        if lasted <= 0:
            continue
        what = bound_by(before, now, engine, seqs)
        if what is None:
            return {}
        seconds[what] += lasted
    whole = sum(seconds.values())
    return {limit: lasted / whole for limit, lasted in seconds.items()} if whole > 0 else {}


def bound_by(before: Moment, now: Moment, engine: str, seqs: int | None) -> str | None:
    """What held requests of one engine back between two pages; None where it cannot be told."""
    told = now.of(engine)
    if any(map(math.isnan, (told.waiting, told.running, told.usage))):
        return None
    preempted = now.preemptions.get(engine, 0.0) > before.preemptions.get(engine, 0.0)
    if preempted or (told.waiting and told.usage >= SATURATED):
        return "kv_cache"
    if not told.waiting:
        return "nothing"
    if seqs is None:
        return None
    return "max_num_seqs" if told.running >= seqs else "max_num_batched_tokens"
