"""The plan as a person reads it at a terminal."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from vllm_length_exporter.planner.cost import Cost
from vllm_length_exporter.planner.plan import Plan
from vllm_length_exporter.planner.settings import GIB
from vllm_length_exporter.planner.weights import Span
from vllm_length_exporter.terminal import lines

Row = tuple[str, ...]


def as_text(plan: Plan, cost: Cost | None = None) -> str:
    """Facts first, then tables, then what to set."""
    return lines(_text(plan, cost))


def _text(plan: Plan, cost: Cost | None) -> Iterator[str]:
    version = f"as vLLM {plan.settings.version} counts"
    yield f"{plan.subject}: {plan.model.attention + ', ' if plan.model else ''}{version}"
    for problem in plan.problems:
        yield f"  ! {problem}"
    yield from _section("KV cache", list(_facts(plan)))
    if plan.budget is not None and plan.budget.parts:
        parts = [(part.name, _gib(part.bytes), part.source) for part in plan.budget.parts]
        yield from _section("Taken before the KV cache, on each device", parts)
    yield from _table("Requests at once, by length", _length_rows(plan))
    longest = [(f"{row.requests:,}", _count(row.longest)) for row in plan.at_concurrencies]
    yield from _table(
        "Longest length, by requests at once", [("requests", "tokens"), *longest] if longest else []
    )
    changes = [(row.change, _count(row.requests), _count(row.longest)) for row in plan.what_ifs]
    title = f"What would change ({_at_limit(plan)})"
    yield from _table(title, [("", "requests", "longest"), *changes] if changes else [], left=1)
    if plan.flags:
        yield from _section(
            "Flags", [(f"{flag.name} {flag.value}".strip(), "", flag.reason) for flag in plan.flags]
        )
        line = " ".join(
            part for flag in plan.flags for part in (flag.name, shlex.quote(flag.value) if flag.value else "")
        )
        yield f"  vllm serve MODEL {' '.join(line.split())}"
    if cost is not None:
        yield from _cost(cost)
    if plan.notes:
        yield ""
        yield from (f"  Note: {note}" for note in plan.notes)


def _facts(plan: Plan) -> Iterator[Row]:
    if plan.window is not None:
        scaled = f", RoPE {plan.window.rope_type}" if plan.window.rope_type else ""
        yield "window", f"{plan.window.window:,}", f"config.json: {plan.window.key or 'no key'}{scaled}"
    yield "limit", f"{plan.limit:,}" if plan.limit else "none fits", plan.limit_source
    cut = plan.layout
    if cut is not None:
        if cut.bytes_per_token:
            yield "a token costs", f"{cut.bytes_per_token:,.0f} B", "on each device, beyond all windows"
        if cut.bytes_per_token_within_windows != cut.bytes_per_token:
            yield "", f"{cut.bytes_per_token_within_windows:,.0f} B", "while it is within every window"
        if cut.state_bytes:
            yield "a request costs", f"{cut.state_bytes / 2**20:,.1f} MiB", "whatever its length"
        groups = f", {len(cut.groups)} groups" if len(cut.groups) > 1 else ""
        yield "a block", f"{cut.block_size:,} tokens", f"{cut.block_bytes:,} B on each device{groups}"
    elif plan.measured is not None and plan.measured.bytes_per_token:
        yield "a token costs", f"{plan.measured.bytes_per_token:,.0f} B", "measured"
    if plan.budget is not None:
        yield "memory", _gib(plan.budget.kv_cache), f"on each device: {plan.budget.source}"
    elif plan.measured is not None and plan.measured.memory_bytes is not None:
        yield "memory", f"{plan.measured.memory_bytes / GIB:.2f} GiB", "measured"
    if plan.reported_tokens is not None:
        source = "measured" if plan.layout is None else "as vLLM will print it"
        yield "capacity", f"{_count(plan.reported_tokens)} tokens", source
    if plan.full_length_concurrency is not None:
        low, high = plan.full_length_concurrency
        shown = f"{low:.2f}x" if low == high else f"{low:.2f}x to {high:.2f}x"
        yield "full-length concurrency", shown, "likewise: it counts the block that no request gets"
    if plan.capacity is not None and plan.capacity.engines > 1:
        yield "engines", f"{plan.capacity.engines}", "the tables are of all of them together"


def _length_rows(plan: Plan) -> list[Row]:
    if not plan.at_lengths:
        return []
    with_memory = any(row.needed_bytes is not None for row in plan.at_lengths)
    rows: list[Row] = [("tokens", "requests", *(("one needs",) if with_memory else ()))]
    for row in plan.at_lengths:
        requests = _count(row.requests) if plan.capacity is not None else "?"
        needed = "" if row.needed_bytes is None else _size(row.needed_bytes)
        rows.append((f"{row.length:,}", requests, *((needed,) if with_memory else ())))
    return rows


def _cost(cost: Cost) -> Iterator[str]:
    work = cost.workload
    yield ""
    yield (
        f"Cost in {cost.currency}: {work.requests:,} requests in {work.hours:,.1f} h, {work.input_tokens:,} input"
        f" tokens ({work.cached_input_tokens:,} cached), {work.output_tokens:,} output tokens"
    )
    rows: list[Row] = [("", "total", "input/M", "cached/M", "output/M", "all/M", "recomputed", "cut answers")]
    for offer in cost.offers:
        each, (low, high) = offer.per_million, offer.waste.recomputation
        prices = [_money(price) for price in (each.input, each.cached_input, each.output, each.all)]
        recomputed = _money(low) if low == high else f"up to {_money(high)}"
        rows.append((offer.name, _money(offer.total), *prices, recomputed, _money(offer.waste.truncation)))
    yield from _columns(rows, left=1)
    if work.refused_requests:
        yield f"  {work.refused_requests:,} requests were refused for length: no device time, and no answer"
    for name, share in cost.break_even:
        verdict = "cheaper" if share < 1 else "dearer"
        yield (
            f"  At this volume our own devices are {verdict} than {name};"
            f" both cost the same at {share:.2f} of this volume"
        )


def _section(title: str, rows: Sequence[Row]) -> Iterator[str]:
    if rows:
        yield ""
        yield title
        name = max(len(row[0]) for row in rows)
        value = max(len(row[1]) for row in rows)
        for row in rows:
            yield f"  {row[0]:<{name}}  {row[1]:>{value}}  {row[2]}".rstrip()


def _table(title: str, rows: Sequence[Row], left: int = 0) -> Iterator[str]:
    if rows:
        yield ""
        yield title
        yield from _columns(rows, left)


def _columns(rows: Sequence[Row], left: int = 0) -> Iterator[str]:
    """The first `left` columns begin at the left, all others end at the right."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        cells = (
            f"{cell:<{width}}" if i < left else f"{cell:>{width}}"
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        yield f"  {'  '.join(cells)}".rstrip()


def _at_limit(plan: Plan) -> str:
    return f"requests of {plan.limit:,} tokens, longest single request"


def _count(span: Span) -> str:
    return f"{span.low:,}" if span.exact else f"{span.low:,} to {span.high:,}"


def _gib(span: Span) -> str:
    low = f"{span.low / GIB:.2f}"
    return f"{low} GiB" if span.exact else f"{low} to {span.high / GIB:.2f} GiB"


def _size(value: int) -> str:
    return f"{value / GIB:,.2f} GiB" if value >= GIB // 10 else f"{value / 2**20:,.1f} MiB"


def _money(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.2f}" if value >= 1 or value == 0 else f"{value:.4f}"
