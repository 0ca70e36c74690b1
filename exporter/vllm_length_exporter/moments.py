"""What pages said of one server over its windows, in few bytes: packed numbers, and what stays the same once.

An hour of a server is some hundred pages, and there may be hundreds of servers.
"""

from __future__ import annotations

import itertools
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from vllm_length_exporter.histogram import Histogram, histogram
from vllm_length_exporter.vllm import accounts
from vllm_length_exporter.vllm.names import MIDDLEWARE_ASKED_BUCKET, MIDDLEWARE_TOTAL_BUCKET, Quantity
from vllm_length_exporter.vllm.page import Page

LENGTHS_EVERY_SECONDS = 60.0  # one snapshot of the length histograms a minute is kept
MIDDLEWARE_LENGTHS = {  # part -> our middleware's histogram on vLLM's page
    "total": MIDDLEWARE_TOTAL_BUCKET,
    "asked": MIDDLEWARE_ASKED_BUCKET,
}
LENGTH_PARTS = {  # part -> vLLM's own histogram
    "prompt": Quantity.PROMPT_BUCKET,
    "generation": Quantity.GENERATION_BUCKET,
    "max_tokens": Quantity.MAX_TOKENS_BUCKET,
}


class EngineNumbers(NamedTuple):
    """What one page said of one engine. NaN, which no page has, is what it did not say."""

    running: float = math.nan
    waiting: float = math.nan
    usage: float = math.nan
    truncated: float = math.nan


_NUMBERS = struct.Struct(f"{len(EngineNumbers._fields)}d")
_UNTOLD = EngineNumbers()


@dataclass(frozen=True, slots=True)
class Moment:
    """What one page said of the engines, kept for the window. Made by `moment`, read by `of` or by engine."""

    at: float
    preemptions: Mapping[str, float]
    engines: tuple[str, ...]
    packed: bytes = field(repr=False)  # the `EngineNumbers` of each engine
    finished: float = 0.0  # of all engines, whatever the reason
    refused: Mapping[str, float] = field(default_factory=dict)  # by cause, by the best evidence
    clamped: float | None = None

    def of(self, engine: str) -> EngineNumbers:
        if engine not in self.engines:
            return _UNTOLD
        return EngineNumbers._make(
            _NUMBERS.unpack_from(self.packed, _NUMBERS.size * self.engines.index(engine))
        )

    @property
    def running(self) -> Mapping[str, float]:
        return self._told("running")

    @property
    def waiting(self) -> Mapping[str, float]:
        return self._told("waiting")

    @property
    def truncated(self) -> Mapping[str, float]:
        return self._told("truncated")

    def _told(self, name: str) -> dict[str, float]:
        """One number by engine; an engine of which it was not told is left out."""
        numbers: dict[str, float] = {engine: getattr(self.of(engine), name) for engine in self.engines}
        return {engine: number for engine, number in numbers.items() if not math.isnan(number)}


def moment(
    at: float,
    rows: Mapping[str, Mapping[str, float]],
    preemptions: Mapping[str, float],
    *,
    finished: float = 0.0,
    refused: Mapping[str, float] | None = None,
    clamped: float | None = None,
    before: Moment | None = None,
) -> Moment:
    """A moment of `rows`: name of a field of `EngineNumbers` -> engine -> number. It shares with the one `before`."""
    engines = tuple(dict.fromkeys(engine for row in rows.values() for engine in row))
    numbers = (
        EngineNumbers(**{name: row[engine] for name, row in rows.items() if engine in row})
        for engine in engines
    )
    refused = refused or {}
    if before is not None:
        engines, refused = _same(before.engines, engines), _same(before.refused, refused)
        preemptions = _same(before.preemptions, preemptions)
    packed = b"".join(_NUMBERS.pack(*row) for row in numbers)
    return Moment(at, preemptions, engines, packed, finished, refused, clamped)


def moment_of(page: Page, refusals: Mapping[str, int], at: float, before: Moment | None) -> Moment:
    """What this page said; `refusals` by cause are the log's, where the page has none of the middleware."""
    accounted = accounts.refused(page)
    return moment(
        at,
        {
            "running": page.by_engine(Quantity.RUNNING),
            "waiting": page.by_engine(Quantity.WAITING),
            "usage": page.by_engine(Quantity.KV_USAGE),
            "truncated": page.by_engine(Quantity.FINISHED, finished_reason="length"),
        },
        page.by_engine(Quantity.PREEMPTIONS),
        finished=sum(sample.value for sample in page.of(Quantity.FINISHED)),
        refused=refusals if accounted is None else accounted,
        clamped=accounts.clamped(page),
        before=before,
    )


@dataclass(frozen=True, slots=True)
class Lengths:
    """The length histograms of one page (see LENGTH_PARTS), all engines together. Made by `lengths`."""

    at: float
    edges: tuple[tuple[str, tuple[float, ...]], ...]  # of each part
    packed: bytes = field(repr=False)  # the counts of all parts: whole numbers as vLLM shows them, as doubles

    @property
    def parts(self) -> Mapping[str, Histogram]:
        counts = iter(struct.unpack(f"{len(self.packed) // 8}d", self.packed))
        return {
            part: Histogram(edges, tuple(map(int, itertools.islice(counts, len(edges)))))
            for part, edges in self.edges
        }


def lengths(at: float, parts: Mapping[str, Histogram], before: Lengths | None = None) -> Lengths:
    """The histograms of one moment, by part; it shares with the one `before`."""
    edges = tuple((part, rows.edges) for part, rows in parts.items())
    counts = [count for rows in parts.values() for count in rows.counts]
    packed = struct.pack(f"{len(counts)}d", *counts)
    if before is not None:
        edges, packed = _same(before.edges, edges), _same(before.packed, packed)
    return Lengths(at, edges, packed)


def with_lengths(kept: tuple[Lengths, ...], page: Page, at: float, start: float) -> tuple[Lengths, ...]:
    """The kept snapshots and the newest, which is replaced at each poll until its minute is over."""
    newest = lengths(at, read_lengths(page), kept[-1] if kept else None)
    if len(kept) > 1 and at - kept[-2].at < LENGTHS_EVERY_SECONDS:
        kept = kept[:-1]
    return (*since(kept, start), newest)


def read_lengths(page: Page) -> dict[str, Histogram]:
    """The length histograms that a page shows, by part."""
    rows = {part: page.of(quantity) for part, quantity in LENGTH_PARTS.items()}
    rows |= {part: page.middleware.get(name, ()) for part, name in MIDDLEWARE_LENGTHS.items()}
    found = {}
    for part, samples in rows.items():
        made = histogram(
            (edge, sample.value) for sample in samples if (edge := _edge(sample.labels.get("le"))) is not None
        )
        if made is not None:
            found[part] = made
    return found


def _edge(text: str | None) -> float | None:
    """A bucket's edge; None for one that is no number, which no vLLM writes."""
    try:
        edge = float(text or "")
    except ValueError:
        return None
    return None if math.isnan(edge) else edge


TimedT = TypeVar("TimedT", Moment, Lengths)
SharedT = TypeVar("SharedT")


def since(history: tuple[TimedT, ...], start: float) -> tuple[TimedT, ...]:
    """The moments from `start` on, and one from before, so that a rate over the whole window has a beginning."""
    for index, kept in enumerate(history):
        if kept.at >= start:
            return history[max(index - 1, 0) :]
    return history[-1:]


def _same(before: SharedT, now: SharedT) -> SharedT:
    return before if before == now else now
