"""A picture in pixels, y downwards: boxes, text that fits its box, and axes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.patches import FancyBboxPatch, Rectangle, Wedge
from matplotlib.textpath import TextToPath

DPI = 100
BACKGROUND, PANEL, EDGE, GRID, TEXT, FAINT = "#111217", "#181b1f", "#2c3035", "#2c3035", "#d8d9e0", "#8e8f98"
TITLE, LABEL, SMALL = 13, 11, 10  # pixels
_MEASURE = TextToPath()


@dataclass(frozen=True, slots=True)
class Box:
    left: float
    top: float
    width: float
    height: float

    def inner(self, left: float, top: float, right: float, bottom: float) -> Box:
        return Box(self.left + left, self.top + top, self.width - left - right, self.height - top - bottom)


class Canvas:
    """`Canvas(1600, 900)`; sizes of text are pixels too."""

    def __init__(self, width: int, height: int) -> None:
        self._width, self._height = width, height
        self._figure = Figure(figsize=(width / DPI, height / DPI), dpi=DPI, facecolor=BACKGROUND)
        self._axes = self._figure.add_axes((0, 0, 1, 1))
        self._axes.set_xlim(0, width)
        self._axes.set_ylim(height, 0)
        self._axes.axis("off")

    def panel(self, box: Box) -> None:
        self._axes.add_patch(
            FancyBboxPatch(
                (box.left + 2, box.top + 2),
                box.width - 4,
                box.height - 4,
                boxstyle="round,pad=0,rounding_size=3",
                facecolor=PANEL,
                edgecolor=EDGE,
                linewidth=0.8,
            )
        )

    def rectangle(self, box: Box, color: str, alpha: float = 1.0) -> None:
        self._axes.add_patch(
            Rectangle((box.left, box.top), box.width, box.height, facecolor=color, alpha=alpha, linewidth=0)
        )

    def arc(
        self, x: float, y: float, radius: float, begin: float, end: float, color: str, thick: float
    ) -> None:
        """Part of a ring above a horizontal line: 0 is its left end, 1 its right."""
        # y points down, so angles turn the other way
        self._axes.add_patch(
            Wedge(
                (x, y), radius, 180 + 180 * begin, 180 + 180 * end, width=thick, facecolor=color, linewidth=0
            )
        )

    def text(
        self,
        x: float,
        y: float,
        text: str,
        size: float,
        *,
        color: str = TEXT,
        width: float | None = None,
        align: str = "left",
        bold: bool = False,
    ) -> None:
        """One line, its middle at `y`; cut with an ellipsis where it is wider than `width`."""
        shown = text if width is None else fitting(text, size, width, bold=bold)
        self._axes.text(
            x,
            y,
            shown,
            fontsize=size * 72 / DPI,
            color=color,
            ha=align,
            va="center",
            fontweight="bold" if bold else "normal",
            parse_math=False,
        )

    def paragraph(self, box: Box, text: str, size: float, color: str = FAINT) -> None:
        """Words in the middle of a box, over as many lines as they need."""
        lines, line = [], ""
        for word in text.split():
            longer = f"{line} {word}".strip()
            if line and width_of(longer, size) > box.width:
                lines.append(line)
                longer = word
            line = longer
        lines.append(line)
        middle = box.top + box.height / 2 - (len(lines) - 1) * size * 0.7
        for index, words in enumerate(lines):
            y = middle + index * size * 1.4
            self.text(box.left + box.width / 2, y, words, size, color=color, align="center")

    def axes(self, box: Box) -> Axes:
        return self._figure.add_axes(
            (
                box.left / self._width,
                1 - (box.top + box.height) / self._height,
                box.width / self._width,
                box.height / self._height,
            )
        )

    def save(self, path: Path) -> None:
        self._figure.savefig(path, dpi=DPI, facecolor=BACKGROUND, metadata={"Software": None})


def width_of(text: str, size: float, *, bold: bool = False) -> float:
    """Pixels that a line of text takes."""
    if not text:
        return 0.0
    font = FontProperties(size=size, weight="bold" if bold else "normal")
    width, _, _ = _MEASURE.get_text_width_height_descent(text, font, ismath=False)
    return float(width)


def fitting(text: str, size: float, width: float, *, bold: bool = False) -> str:
    if width_of(text, size, bold=bold) <= width:
        return text
    cut = text
    while cut and width_of(cut + "…", size, bold=bold) > width:
        cut = cut[:-1]
    return cut + "…"
