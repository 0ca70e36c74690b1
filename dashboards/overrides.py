"""Field configuration of single series and columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from string import ascii_uppercase
from typing import Any

from .parts import Column, Json, Query, Word


def mappings(words: Mapping[str, Word] | None) -> list[Json]:
    if not words:
        return []
    options = {
        value: {"text": word.text, "color": word.color, "index": index}
        for index, (value, word) in enumerate(words.items())
    }
    return [{"type": "value", "options": options}]


def query_overrides(queries: Sequence[Query]) -> list[Json]:
    overrides = []
    for letter, query in zip(ascii_uppercase, queries, strict=False):
        properties: Json = {}
        if query.unit is not None:
            properties["unit"] = query.unit
        if query.dashed:
            properties["custom.lineStyle"] = {"fill": "dash", "dash": [8, 6]}
            properties["custom.fillOpacity"] = 0
            properties["color"] = fixed("text")
        if query.right:
            properties["custom.axisPlacement"] = "right"
        if properties:
            overrides.append(override("byFrameRefID", letter, **properties))
    return overrides


def column_override(column: Column) -> Json:
    properties: Json = {
        "unit": column.unit,
        "thresholds": {"mode": "absolute", "steps": column.steps.as_json()},
    }
    if column.words:
        properties["mappings"] = mappings(column.words)
        properties["custom.align"] = "left"  # words, though their values be numbers
    if column.bar:
        properties["custom.cellOptions"] = {"type": "gauge", "mode": "basic", "valueDisplayMode": "text"}
        properties["min"] = 0
        properties["fieldMinMax"] = True  # else the scale is that of the largest number in any column
    elif column.coloured:
        properties["custom.cellOptions"] = {"type": "color-text"}
    if column.width is not None:
        properties["custom.width"] = column.width
    if column.link is not None:
        properties["links"] = links(column.link)
    if column.decimals is not None:
        properties["decimals"] = column.decimals
    if column.maximum is not None:
        properties["max"] = column.maximum
    return override("byName", column.title, **properties)


def override(matcher: str, option: str, **properties: Any) -> Json:
    return {
        "matcher": {"id": matcher, "options": option},
        "properties": [{"id": name, "value": value} for name, value in properties.items()],
    }


def links(link: tuple[str, str] | None) -> list[Json]:
    return [{"title": link[0], "url": link[1]}] if link else []


def fixed(color: str) -> Json:
    return {"mode": "fixed", "fixedColor": color}
