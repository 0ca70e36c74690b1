"""How a panel shows a value: its unit, its words and its colour, with the overrides of the series applied."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from .answers import Series

Json = dict[str, Any]

# Names of colours as the boards use them.
COLORS = {
    "green": "#73bf69", "dark-red": "#a3293a", "red": "#f2495c", "orange": "#ff9830", "yellow": "#fade2a",
    "blue": "#5794f2", "purple": "#b877d9", "text": "#ccccdc",
}  # fmt: skip
PALETTE = (
    "#73bf69", "#5794f2", "#fade2a", "#ff9830", "#b877d9", "#8ab8ff", "#f2495c", "#96d98d", "#ffb357", "#ca95e5",
)  # fmt: skip
_BYTES = ("B", "KiB", "MiB", "GiB", "TiB")
_SECONDS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))


@dataclass(frozen=True, slots=True)
class Field:
    """The resolved field configuration of one series, or of one column."""

    properties: Json

    @property
    def unit(self) -> str:
        return str(self.properties.get("unit", "none"))

    @property
    def dashed(self) -> bool:
        style: Json = self.properties.get("custom.lineStyle", {})
        return style.get("fill") == "dash"

    @property
    def fixed_color(self) -> str | None:
        color: Json = self.properties.get("color", {})
        return COLORS[color["fixedColor"]] if color.get("mode") == "fixed" else None

    def steps(self) -> list[tuple[float, str]]:
        thresholds: Json = self.properties.get("thresholds", {"steps": []})
        return [
            (-math.inf if step["value"] is None else float(step["value"]), COLORS[step["color"]])
            for step in thresholds["steps"]
        ]

    def text(self, value: float | str) -> str:
        mapped = self._mapped(value)
        if mapped is not None:
            return str(mapped["text"])
        return value if isinstance(value, str) else shown(value, self.unit, self.properties.get("decimals"))

    def color(self, value: float | str) -> str:
        mapped = self._mapped(value)
        if mapped is not None:
            return COLORS[mapped["color"]]
        if isinstance(value, str):
            return COLORS["text"]
        colors = [color for above, color in self.steps() if value >= above]
        return colors[-1] if colors else COLORS["text"]

    def _mapped(self, value: float | str) -> Json | None:
        key = value if isinstance(value, str) else f"{value:g}"
        for mapping in self.properties.get("mappings", []):
            found: Json | None = mapping["options"].get(key)
            if found is not None:
                return found
        return None


def field_of(panel: Json, series: Series | None = None, column: str | None = None) -> Field:
    """The panel's defaults with those overrides that match the series, or the column's title."""
    config = panel["fieldConfig"]
    properties = dict(config["defaults"])
    for name, value in properties.pop("custom", {}).items():
        properties[f"custom.{name}"] = value
    for override in config["overrides"]:
        kind, option = override["matcher"]["id"], override["matcher"]["options"]
        names = {"byName": column if series is None else series.name, "byFrameRefID": series and series.query}
        if names[kind] == option:
            properties |= {item["id"]: item["value"] for item in override["properties"]}
    return Field(properties)


def shown(value: float, unit: str, decimals: int | None = None) -> str:
    """A value in a unit of Grafana's.

    Raises:
        KeyError: the unit is not one that the boards use.
    """
    if math.isnan(value):
        return "NaN"
    if unit.startswith("suffix:"):
        return f"{_number(value, decimals)}{unit.removeprefix('suffix:')}"
    if unit == "bytes":
        power = min(int(math.log(value, 1024)), len(_BYTES) - 1) if value >= 1 else 0
        return f"{_number(value / 1024**power, decimals)} {_BYTES[power]}"
    if unit == "s":
        size, name = next(((size, name) for size, name in _SECONDS if value >= size), (1.0, "s"))
        return f"{_number(value / size, decimals)} {name}"
    if unit == "percentunit":
        return f"{_number(value * 100, decimals)}%"
    suffix = {"locale": "", "none": "", "string": "", "reqps": " req/s"}[unit]
    return f"{_number(value, decimals)}{suffix}"


def _number(value: float, decimals: int | None) -> str:
    if decimals is None:
        size = abs(value)
        decimals = 0 if size >= 100 or value == int(value) else 1 if size >= 10 else 2 if size >= 0.1 else 3
        text = f"{value:,.{decimals}f}"
        return text.rstrip("0").rstrip(".") if "." in text else text
    return f"{value:,.{decimals}f}"
