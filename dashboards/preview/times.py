"""Moments under an axis."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Literal

WIDE = 330  # pixels from which five moments fit
Align = Literal["left", "center", "right"]


def ticks(span: tuple[float, float], pixels: float) -> list[tuple[float, str, Align]]:
    """Evenly spaced moments: the time, its text, and how the text stands to its place."""
    parts = 4 if pixels >= WIDE else 2
    shape = "%H:%M" if span[1] - span[0] >= 600 else "%H:%M:%S"
    made: list[tuple[float, str, Align]] = []
    for part in range(parts + 1):
        at = span[0] + (span[1] - span[0]) * part / parts
        align: Align = "left" if part == 0 else "right" if part == parts else "center"
        made.append((at, datetime.fromtimestamp(at, UTC).strftime(shape), align))
    return made


def beginnings(times: tuple[float, ...], step: float) -> list[float]:
    """The first of each run of neighbouring moments: one mark for what several points tell."""
    return [at for index, at in enumerate(times) if index == 0 or at - times[index - 1] > 1.5 * step]
