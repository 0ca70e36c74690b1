"""Draws each type of panel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

from .answers import Series
from .canvas import EDGE, FAINT, LABEL, TITLE, Box, Canvas, width_of
from .drawing_curves import lines
from .drawing_table import table
from .drawing_timeline import timeline
from .fields import field_of

Json = dict[str, Any]


def draw(
    canvas: Canvas,
    box: Box,
    panel: Json,
    series: list[Series],
    span: tuple[float, float],
    marks: Sequence[float],
) -> None:
    """One panel in its box; `span` is the time shown, `marks` are annotations.

    Raises:
        KeyError: the panel is of a type that boards do not use.
    """
    canvas.panel(box)
    canvas.text(box.left + 10, box.top + 15, panel["title"], TITLE, width=box.width - 20, bold=True)
    inside = box.inner(10, 28, 10, 8)
    if not series:
        canvas.paragraph(inside, panel["fieldConfig"]["defaults"]["noValue"], 12)
        return
    if panel["type"] in _OVER_TIME:
        _OVER_TIME[panel["type"]](canvas, inside, panel, series, span, marks)
    else:
        _AT_ONCE[panel["type"]](canvas, inside, panel, series)


def _stat(canvas: Canvas, box: Box, panel: Json, series: list[Series]) -> None:
    mode = panel["options"]["textMode"]
    named = mode in ("name", "value_and_name") or (mode == "auto" and len(series) > 1)
    each = box.width / len(series)
    for index, one in enumerate(series):
        field = field_of(panel, one)
        cell = Box(box.left + index * each, box.top, each, box.height)
        if panel["options"]["graphMode"] == "area" and len(one.values) > 1:
            _spark(canvas, cell, one, field.color(one.last))
        text = one.name if mode == "name" else field.text(one.last)
        size = 30.0
        while size > 10 and width_of(text, size, bold=True) > cell.width - 8:
            size -= 1
        middle = cell.top + cell.height * (0.38 if named and mode != "name" else 0.45)
        canvas.text(
            cell.left + cell.width / 2,
            middle,
            text,
            size,
            color=field.color(one.last),
            align="center",
            bold=True,
        )
        if named and mode != "name":
            canvas.text(
                cell.left + cell.width / 2, cell.top + cell.height * 0.78, one.name, LABEL, color=FAINT, align="center",
                width=cell.width - 6,
            )  # fmt: skip


def _spark(canvas: Canvas, box: Box, series: Series, color: str) -> None:
    axes = canvas.axes(Box(box.left, box.top + box.height * 0.62, box.width, box.height * 0.38))
    axes.fill_between(series.times, series.values, color=color, alpha=0.15, linewidth=0)
    axes.plot(series.times, series.values, color=color, linewidth=1)
    axes.set_ylim(bottom=0)
    axes.axis("off")


def _gauge(canvas: Canvas, box: Box, panel: Json, series: list[Series]) -> None:
    field = field_of(panel, series[0])
    value = series[0].last
    radius = min(box.width / 2 - 10, box.height - 14)
    x, y = box.left + box.width / 2, box.top + box.height - 6
    canvas.arc(x, y, radius, 0, 1, EDGE, radius * 0.25)
    canvas.arc(x, y, radius, 0, min(max(value, 0.0), 1.0), field.color(value), radius * 0.25)
    steps = [*field.steps(), (1.0, "")]
    for (begin, color), (end, _) in pairwise(steps):
        canvas.arc(x, y, radius + 5, max(begin, 0.0), min(end, 1.0), color, 3)
    canvas.text(
        x,
        y - radius * 0.18,
        field.text(value),
        radius * 0.3,
        color=field.color(value),
        align="center",
        bold=True,
    )


def _bars(canvas: Canvas, box: Box, panel: Json, series: list[Series]) -> None:
    fields = [field_of(panel, one) for one in series]
    top = max((one.last for one in series), default=0.0) or 1.0
    names = min(max(width_of(one.name, LABEL) for one in series) + 10, box.width * 0.4)
    values = (
        max(width_of(field.text(one.last), LABEL) for field, one in zip(fields, series, strict=True)) + 10
    )
    each = box.height / len(series)
    thick = min(each * 0.7, 30)
    for index, (one, field) in enumerate(zip(series, fields, strict=True)):
        middle = box.top + each * (index + 0.5)
        long = box.width - names - values
        canvas.text(box.left, middle, one.name, LABEL, width=names - 6)
        canvas.rectangle(Box(box.left + names, middle - thick / 2, long, thick), EDGE, 0.5)
        canvas.rectangle(
            Box(box.left + names, middle - thick / 2, long * one.last / top, thick), field.color(one.last)
        )
        canvas.text(box.left + box.width, middle, field.text(one.last), LABEL, align="right")


_AT_ONCE: dict[str, Callable[[Canvas, Box, Json, list[Series]], None]] = {
    "stat": _stat,
    "gauge": _gauge,
    "bargauge": _bars,
    "table": table,
}
_OVER_TIME: dict[
    str, Callable[[Canvas, Box, Json, list[Series], tuple[float, float], Sequence[float]], None]
] = {"timeseries": lines, "state-timeline": timeline}
