"""What a rule may look at, and what it says."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from vllm_length_exporter.derive.evidence import Evidence
from vllm_length_exporter.derive.values import EngineCapacity, EnginePressure, ServerView
from vllm_length_exporter.moments import Moment
from vllm_length_exporter.server import ServerState


@dataclass(frozen=True, slots=True)
class Case:
    """What a rule may look at."""

    view: ServerView
    sources: Evidence
    state: ServerState
    now: float

    @property
    def effective(self) -> int | None:
        limit = self.view.limits.effective
        return None if limit is None else limit.value

    def engines(self) -> Iterator[tuple[EngineCapacity, EnginePressure]]:
        by_engine = {p.engine: p for p in self.view.pressure}
        for capacity in self.view.capacity:
            if capacity.engine in by_engine:
                yield capacity, by_engine[capacity.engine]


@dataclass(frozen=True, slots=True)
class Said:
    """What a rule found: one sentence that states it, one that says what to do, and the numbers' source."""

    summary: str
    advice: str
    evidence: str


def grown(case: Case) -> tuple[Moment, Moment] | None:
    """The first and the last moment of the window, where there are two."""
    history = case.state.history
    return (history[0], history[-1]) if len(history) > 1 and case.sources.page is not None else None
