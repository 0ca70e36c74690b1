"""What panels are told: queries, colours, words, columns, units."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}

# Grafana's names of units.
TOKENS = "locale"  # 8,192 and not 8.19 K: lengths are compared digit by digit
COUNT = "locale"
RATIO = "percentunit"
BYTES = "bytes"
SECONDS = "s"
PER_SECOND = "suffix: /s"
REQUESTS_PER_SECOND = "reqps"
FACTOR = "suffix: ×"
TEXT = "string"

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Query:
    """One question to Prometheus; `legend` names its series, `dashed` draws them as a line to compare with."""

    expr: str
    legend: str = "__auto"
    unit: str | None = None  # where it differs from the panel's
    dashed: bool = False
    right: bool = False  # on an axis of its own


@dataclass(frozen=True, slots=True)
class Steps:
    """Colours from a value on: `Steps("green", (0.9, "orange"), (0.95, "red"))`."""

    base: str
    above: tuple[tuple[float, str], ...] = ()

    def as_json(self) -> list[Json]:
        return [
            {"color": self.base, "value": None},
            *({"color": color, "value": value} for value, color in self.above),
        ]


PLAIN = Steps("text")
BLUE = Steps("blue")
ZERO_IS_GOOD = Steps("green", ((1, "red"),))


@dataclass(frozen=True, slots=True)
class Word:
    """A value shown as a word in a colour."""

    text: str
    color: str


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table: `field` is a label's name, or `Value #A` of query A."""

    field: str
    title: str
    unit: str = TEXT
    steps: Steps = PLAIN
    words: Mapping[str, Word] | None = None
    coloured: bool = False
    bar: bool = False
    width: int | None = None
    link: tuple[str, str] | None = None  # title, URL
    decimals: int | None = None
    maximum: float | None = None
