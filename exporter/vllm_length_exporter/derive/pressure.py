"""What holds requests back: running, waiting, preemptions and their rate, answers cut for length."""

from __future__ import annotations

from vllm_length_exporter.moments import Moment
from vllm_length_exporter.server import ServerState
from vllm_length_exporter.vllm.names import Quantity
from vllm_length_exporter.vllm.page import Page

from .evidence import Evidence
from .values import EnginePressure, Value


def pressure(evidence: Evidence, state: ServerState, window: float) -> tuple[EnginePressure, ...]:
    """Each engine's queue and preemptions; the rate is over the last `window` seconds."""
    page = evidence.page
    if page is None:
        return ()
    running, waiting = page.by_engine(Quantity.RUNNING), page.by_engine(Quantity.WAITING)
    held = page.by_engine(Quantity.WAITING_BY_REASON, reason="capacity")
    preempted = page.by_engine(Quantity.PREEMPTIONS)
    cut = page.by_engine(Quantity.FINISHED, finished_reason="length")
    ended = finished(page)
    return tuple(
        EnginePressure(
            engine=engine,
            running=_count(running, engine),
            waiting=_count(waiting, engine),
            waiting_for_capacity=_count(held, engine),
            preemptions_total=_count(preempted, engine),
            preemptions_per_second=rate(state.history, engine, window),
            truncations_total=_count(cut, engine),
            finished_total=_count(ended, engine),
        )
        for engine in page.engines
    )


def finished(page: Page) -> dict[str, float]:
    """Requests that each engine finished, over all reasons; an engine that shows one reason twice decides nothing."""
    rows: dict[str, dict[str, float]] = {}
    twice: set[str] = set()
    for sample in page.of(Quantity.FINISHED):
        reasons = rows.setdefault(sample.engine, {})
        reason = sample.labels.get("finished_reason", "")
        if reason in reasons:
            twice.add(sample.engine)
        reasons[reason] = sample.value
    return {engine: sum(reasons.values()) for engine, reasons in rows.items() if engine not in twice}


def rate(history: tuple[Moment, ...], engine: str, window: float) -> Value[float] | None:
    """Preemptions a second over the window, or over what of it was seen; None before a second page."""
    seen = [(moment.at, moment.preemptions[engine]) for moment in history if engine in moment.preemptions]
    if len(seen) < 2:
        return None
    last_at, last = seen[-1]
    start = last_at - window
    # Of the moments before the window only the newest counts: the window begins there.
    first_at, first = next((row for row in reversed(seen[:-1]) if row[0] <= start), seen[0])
    if last_at <= first_at:
        return None
    return Value(max(last - first, 0.0) / (last_at - first_at), "metrics")


def _count(values: dict[str, float], engine: str) -> Value[int] | None:
    value = values.get(engine)
    return None if value is None or value != int(value) else Value(int(value), "metrics")
