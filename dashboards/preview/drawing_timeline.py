"""Draws states over time."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from .answers import Series
from .canvas import FAINT, LABEL, SMALL, Box, Canvas, fitting, width_of
from .fields import field_of
from .times import ticks

Json = dict[str, Any]


def timeline(
    canvas: Canvas,
    box: Box,
    panel: Json,
    series: list[Series],
    span: tuple[float, float],
    marks: Sequence[float],
) -> None:
    del marks
    names = min(max(width_of(one.name, LABEL) for one in series) + 12, box.width * 0.3)
    area = box.inner(names, 2, 2, 20)
    each = area.height / len(series)
    scale = area.width / (span[1] - span[0])
    for index, one in enumerate(series):
        field = field_of(panel, one)
        y = area.top + each * index
        canvas.text(box.left, y + each / 2, one.name, LABEL, width=names - 8)
        for begin, end, value in _runs(one, span[1]):
            left = area.left + (begin - span[0]) * scale
            wide = (min(end, span[1]) - begin) * scale
            canvas.rectangle(Box(left, y + each * 0.1, wide, each * 0.8), field.color(value), 0.75)
            text = field.text(value)
            if width_of(text, SMALL) + 8 < wide:
                canvas.text(left + 5, y + each / 2, fitting(text, SMALL, wide), SMALL, color="#0b0c0e")
    for at, text, align in ticks(span, area.width):
        x = area.left + (at - span[0]) * scale
        canvas.text(x, box.top + box.height - 6, text, SMALL, color=FAINT, align=align)


def _runs(series: Series, end: float) -> list[tuple[float, float, float]]:
    """Times over which the value stays the same."""
    runs: list[tuple[float, float, float]] = []
    step = min((b - a for a, b in pairwise(series.times)), default=end - series.times[0])
    for at, value in zip(series.times, series.values, strict=True):
        if runs and runs[-1][2] == value and at - runs[-1][1] < step / 2:
            runs[-1] = (runs[-1][0], at + step, value)
        else:
            runs.append((at, at + step, value))
    return runs
