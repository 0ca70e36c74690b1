"""Draws curves over time, with their thresholds, legend and annotations."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from .answers import Series
from .canvas import FAINT, GRID, SMALL, TEXT, Box, Canvas, width_of
from .fields import PALETTE, Field, field_of, shown
from .times import ticks

Json = dict[str, Any]
LEGEND_ROW = 15


def lines(
    canvas: Canvas,
    box: Box,
    panel: Json,
    series: list[Series],
    span: tuple[float, float],
    marks: Sequence[float],
) -> None:
    defaults = panel["fieldConfig"]["defaults"]
    legend = min(len(series), max(2, int(box.height * 0.4 / LEGEND_ROW)))
    stacked = defaults["custom"]["stacking"]["mode"] == "normal"
    axes = canvas.axes(box.inner(54, 4, 4, 24 + LEGEND_ROW * legend))
    axes.set_facecolor("none")
    colors = []
    below = dict.fromkeys((at for one in series for at in one.times), 0.0)
    for index, one in enumerate(series):
        field = field_of(panel, one)
        color = field.fixed_color or PALETTE[index % len(PALETTE)]
        colors.append(color)
        style = "--" if field.dashed else "-"
        if stacked:
            base = [below[at] for at in one.times]
            top = [low + value for low, value in zip(base, one.values, strict=True)]
            axes.fill_between(one.times, base, top, color=color, alpha=0.6, linewidth=0)
            below |= dict(zip(one.times, top, strict=True))
        elif defaults["custom"]["lineInterpolation"] == "stepAfter":
            axes.step(one.times, one.values, where="post", color=color, linewidth=1.4, linestyle=style)
        else:
            axes.plot(one.times, one.values, color=color, linewidth=1.4, linestyle=style)
    axes.set_ylim(bottom=defaults.get("min"), top=defaults.get("max"))
    if axes.get_ylim()[1] <= axes.get_ylim()[0] + 1e-12:
        axes.set_ylim(0, 1)
    _threshold_lines(axes, Field(defaults))
    for at in marks:
        axes.axvline(at, color="#6e9fff", linewidth=0.8, linestyle=":")
    _dress(axes, span, box.width, lambda value: shown(value, defaults["unit"], None))
    _legend(canvas, box, panel, series, colors, legend)


def _threshold_lines(axes: Axes, field: Field) -> None:
    style: Json = field.properties["custom"].get("thresholdsStyle", {"mode": "off"})
    if style["mode"] == "off":
        return
    bottom, top = axes.get_ylim()
    for value, color in field.steps():
        if math.isfinite(value) and bottom <= value <= top:
            axes.axhline(value, color=color, linewidth=0.9, linestyle=(0, (5, 4)))


def _dress(axes: Axes, span: tuple[float, float], pixels: float, text: Callable[[float], str]) -> None:
    axes.set_xlim(*span)
    for side in axes.spines.values():
        side.set_visible(False)
    axes.grid(color=GRID, linewidth=0.6)
    axes.tick_params(colors=FAINT, labelsize=SMALL * 0.72, length=0, pad=3)
    shown_ticks = ticks(span, pixels)
    axes.set_xticks([at for at, _, _ in shown_ticks])
    axes.set_xticklabels([text for _, text, _ in shown_ticks])
    for label, (_, _, align) in zip(axes.get_xticklabels(), shown_ticks, strict=True):
        label.set_horizontalalignment(align)
    axes.yaxis.set_major_locator(MaxNLocator(nbins=5, steps=[1, 2, 2.5, 5, 10]))
    axes.yaxis.set_major_formatter(lambda value, _: text(value))


def _legend(
    canvas: Canvas, box: Box, panel: Json, series: list[Series], colors: Sequence[str], rows: int
) -> None:
    top = box.top + box.height - LEGEND_ROW * rows + 4
    with_values = panel["options"]["legend"]["displayMode"] == "table"
    for index, (one, color) in enumerate(zip(series[:rows], colors, strict=False)):
        y = top + LEGEND_ROW * index
        canvas.rectangle(Box(box.left + 2, y - 2, 12, 3), color)
        field = field_of(panel, one)
        values = f"max {field.text(max(one.values))}   last {field.text(one.last)}" if with_values else ""
        wide = width_of(values, SMALL)
        canvas.text(box.left + 20, y, one.name, SMALL, color=TEXT, width=box.width - wide - 30)
        canvas.text(box.left + box.width - 2, y, values, SMALL, color=FAINT, align="right")
    if len(series) > rows:
        more = f"{len(series) - rows} more series"
        canvas.text(box.left + box.width - 2, box.top + 2, more, SMALL, color=FAINT, align="right")
