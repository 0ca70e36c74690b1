"""Half an hour of each engine, in few bytes: packed numbers, a sample every five seconds."""

from __future__ import annotations

import math
import threading
from array import array
from collections.abc import Iterable, Mapping

from vllm_length_exporter.derive.values import ServerView, Value

from .watched import Point

SPAN = 1800.0  # seconds
EVERY = 5.0  # seconds
_WIDTH = 3  # numbers of a sample: time, usage, preemptions
_MOST = int(SPAN / EVERY) * _WIDTH


class History:
    """The last half hour of every engine. A server that is no longer watched is forgotten."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._samples: dict[str, dict[str, array[float]]] = {}

    def record(self, views: Iterable[ServerView], at: float) -> None:
        """Add a sample of each engine at `at`, seconds of a clock that never goes back."""
        with self._lock:
            kept: dict[str, dict[str, array[float]]] = {}
            for view in views:
                engines = self._samples.get(view.server, {})
                for engine, usage, preemptions in _engines(view):
                    engines.setdefault(engine, array("d")).extend((at, usage, preemptions))
                kept[view.server] = {
                    engine: recent for engine, samples in engines.items() if (recent := _recent(samples, at))
                }
            self._samples = kept

    def of(self, server: str) -> Mapping[str, tuple[Point, ...]]:
        """The samples of a server's engines, oldest first; empty for one that is not known."""
        with self._lock:
            engines = {engine: samples[:] for engine, samples in self._samples.get(server, {}).items()}
        return {engine: _points(samples) for engine, samples in sorted(engines.items())}


def _engines(view: ServerView) -> Iterable[tuple[str, float, float]]:
    usage = {row.engine: _number(row.usage_ratio) for row in view.capacity}
    preemptions = {row.engine: _number(row.preemptions_total) for row in view.pressure}
    for engine in usage.keys() | preemptions.keys():
        pair = usage.get(engine, math.nan), preemptions.get(engine, math.nan)
        if not all(map(math.isnan, pair)):
            yield engine, *pair


def _number(value: Value[int] | Value[float] | None) -> float:
    return math.nan if value is None else float(value.value)


def _recent(samples: array[float], at: float) -> array[float]:
    begin = max(0, len(samples) - _MOST)
    while begin < len(samples) and samples[begin] < at - SPAN:
        begin += _WIDTH
    return samples[begin:] if begin else samples


def _points(samples: array[float]) -> tuple[Point, ...]:
    return tuple(
        Point(samples[index], _known(samples[index + 1]), _known(samples[index + 2]))
        for index in range(0, len(samples), _WIDTH)
    )


def _known(number: float) -> float | None:
    return None if math.isnan(number) else number
