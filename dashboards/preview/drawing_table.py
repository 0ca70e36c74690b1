"""Draws a table."""

from __future__ import annotations

from typing import Any

from .answers import Series
from .canvas import EDGE, FAINT, LABEL, SMALL, TEXT, Box, Canvas, width_of
from .fields import Field, field_of
from .tables import Row, rows_of

Json = dict[str, Any]
TABLE_ROW = 24


def table(canvas: Canvas, box: Box, panel: Json, series: list[Series]) -> None:
    rows = rows_of(panel, series)
    titles = [override["matcher"]["options"] for override in panel["fieldConfig"]["overrides"]]
    fields = {title: field_of(panel, column=title) for title in titles}
    widths = _column_widths(box.width, titles, fields)
    left = box.left
    for title, width in zip(titles, widths, strict=True):
        field = fields[title]
        numeric = _is_numeric(rows, title) and field.properties.get("custom.align") != "left"
        top = float(field.properties.get("max", max(_numbers(rows, title), default=1.0)))
        x, align = (left + width - 10, "right") if numeric else (left, "left")
        canvas.text(x, box.top + 8, title, LABEL, color="#6e9fff", width=width - 10, align=align, bold=True)
        for index, row in enumerate(rows):
            y = box.top + TABLE_ROW * (index + 1.2)
            if y + TABLE_ROW / 2 > box.top + box.height:
                canvas.text(
                    box.left, box.top + box.height - 2, f"{len(rows) - index} more", SMALL, color=FAINT
                )
                break
            if title in row:
                place = Box(left, y - TABLE_ROW / 2, width - 10, TABLE_ROW)
                _cell(canvas, place, field, row[title], numeric=numeric, top=top)
        left += width


def _cell(canvas: Canvas, box: Box, field: Field, value: float | str, *, numeric: bool, top: float) -> None:
    options: Json = field.properties.get("custom.cellOptions", {"type": "auto"})
    middle = box.top + box.height / 2
    text = field.text(value)
    if options["type"] == "gauge" and isinstance(value, float):
        long = box.width - width_of(text, LABEL) - 8
        share = value / (top or 1.0)
        canvas.rectangle(Box(box.left, middle - 7, long, 14), EDGE, 0.5)
        canvas.rectangle(Box(box.left, middle - 7, long * min(share, 1.0), 14), field.color(value))
    colored = options["type"] == "color-text"
    x, align = (box.left + box.width, "right") if numeric else (box.left, "left")
    canvas.text(
        x, middle, text, LABEL, color=field.color(value) if colored else TEXT, width=box.width, align=align
    )


def _numbers(rows: list[Row], title: str) -> list[float]:
    return [cell for row in rows if isinstance(cell := row.get(title), float)]


def _is_numeric(rows: list[Row], title: str) -> bool:
    cells = [row[title] for row in rows if title in row]
    return bool(cells) and all(isinstance(cell, float) for cell in cells)


def _column_widths(width: float, titles: list[str], fields: dict[str, Field]) -> list[float]:
    asked = [float(fields[title].properties.get("custom.width", 0)) for title in titles]
    free = asked.count(0.0)
    if free:
        rest = max((width - sum(asked)) / free, 60)
        asked = [wide or rest for wide in asked]
    scale = width / sum(asked)
    return [wide * min(scale, 1.0) if not free else wide for wide in asked]
