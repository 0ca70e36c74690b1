"""Geometry of the drawings: numbers in, coordinates of an SVG out. Presentation attributes only, no style."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .history import EVERY, SPAN
from .watched import Point

WIDTH, HEIGHT = 600, 90  # of a curve, in units of its viewBox
PIECES = 90  # bars of preemptions over the half hour: one for each 20 s
GAP = 4 * EVERY  # seconds without a sample, from which a curve is broken


@dataclass(frozen=True, slots=True)
class Bar:
    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class Curve:
    """One engine over the last half hour. `lines` are `points` attributes, one for each unbroken part."""

    engine: str
    lines: tuple[str, ...]
    areas: tuple[str, ...]
    bars: tuple[Bar, ...]
    usage_highest: float | None
    preemptions: int | None  # in the half hour
    busiest: float  # preemptions of the fullest piece


def share_of(value: float, top: float) -> float:
    """The length of a bar in percent, never so short that it cannot be seen."""
    return 0.0 if value <= 0 or top <= 0 else max(100 * value / top, 0.4)


def curve(engine: str, points: Sequence[Point], now: float) -> Curve:
    """The drawing of an engine's samples up to `now`."""
    begin = now - SPAN
    known = [(point.at, point.usage) for point in points if point.usage is not None]
    parts: list[list[tuple[float, float]]] = []
    for at, usage in known:
        if not parts or at - parts[-1][-1][0] > GAP:
            parts.append([])
        parts[-1].append((at, usage))
    bars, total, busiest = _preemptions(points, begin)
    values = [usage for _, usage in known]
    return Curve(
        engine,
        lines=tuple(" ".join(_place(at, usage, begin) for at, usage in part) for part in parts),
        areas=tuple(_area(part, begin) for part in parts),
        bars=bars,
        usage_highest=max(values, default=None),
        preemptions=total,
        busiest=busiest,
    )


def _place(at: float, usage: float, begin: float) -> str:
    return f"{_x(at, begin):.1f},{HEIGHT * (1 - min(max(usage, 0.0), 1.0)):.1f}"


def _area(part: Sequence[tuple[float, float]], begin: float) -> str:
    first, last = _x(part[0][0], begin), _x(part[-1][0], begin)
    inner = " ".join(_place(at, usage, begin) for at, usage in part)
    return f"{first:.1f},{HEIGHT} {inner} {last:.1f},{HEIGHT}"


def _x(at: float, begin: float) -> float:
    return min(max((at - begin) / SPAN, 0.0), 1.0) * WIDTH


def _preemptions(points: Sequence[Point], begin: float) -> tuple[tuple[Bar, ...], int | None, float]:
    """Bars of the preemptions added in each piece of time. A count that fell began anew: all of it was added."""
    pieces = [0.0] * PIECES
    before: float | None = None
    seen = False
    for point in points:
        if point.preemptions is None:
            continue
        if before is not None:
            seen = True
            added = point.preemptions - before if point.preemptions >= before else point.preemptions
            pieces[min(int(max(point.at - begin, 0.0) / SPAN * PIECES), PIECES - 1)] += added
        before = point.preemptions
    highest = max(pieces)
    bars = tuple(_bar(index, count / highest) for index, count in enumerate(pieces) if count > 0)
    return bars, int(sum(pieces)) if seen else None, highest


def _bar(index: int, share: float) -> Bar:
    wide = WIDTH / PIECES
    return Bar(
        round(index * wide, 1), round(HEIGHT * (1 - share), 1), round(wide - 1, 1), round(HEIGHT * share, 1)
    )
