"""A whole board as one picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .answers import Asker
from .canvas import FAINT, Box, Canvas
from .drawing import draw
from .times import beginnings

Json = dict[str, Any]
COLUMN, ROW = 68, 38  # pixels of a unit of Grafana's grid, its gap included
HEADER = 64
NOTE = "Preview drawn by dashboards.preview from Prometheus; not Grafana"


def picture(board: Json, asker: Asker, path: Path) -> list[str]:
    """Draw the board into a PNG; the titles of the panels without data are returned."""
    bottom = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in board["panels"])
    canvas = Canvas(24 * COLUMN + 16, HEADER + bottom * ROW + 16)
    chosen = (
        "   ".join(f"{name}: {value}" for name, value in asker.substitute.chosen.items()) or "all servers"
    )
    canvas.text(14, 22, board["title"], 20, bold=True)
    canvas.text(14, 46, chosen, 13, color=FAINT)
    canvas.text(24 * COLUMN + 2, 22, NOTE, 13, color=FAINT, align="right")
    marks = [
        at
        for annotation in board["annotations"]["list"]
        for series in asker.points(annotation["target"]["expr"])
        for at in beginnings(series.times, asker.step)
    ]
    empty = []
    for panel in board["panels"]:
        place = panel["gridPos"]
        box = Box(8 + place["x"] * COLUMN, HEADER + place["y"] * ROW, place["w"] * COLUMN, place["h"] * ROW)
        if panel["type"] == "row":
            canvas.text(box.left + 6, box.top + 20, panel["title"], 14, bold=True)
            continue
        series = asker.panel(panel)
        if not series:
            empty.append(panel["title"])
        draw(canvas, box, panel, series, (asker.start, asker.end), marks)
    canvas.save(path)
    return empty
