"""Panels: the one place that knows grafanalib. What it gets wrong is put right afterwards, in `modern`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from string import ascii_uppercase
from typing import Any, Literal

from grafanalib import core  # type: ignore[import-untyped]

DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}

# Grafana's names of units.
TOKENS = "locale"  # 8,192 and not 8.19 K: lengths are compared digit by digit
COUNT = "locale"
RATIO = "percentunit"
BYTES = "bytes"
SECONDS = "s"
PER_SECOND = "cps"
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


def stat(
    title: str,
    description: str,
    *queries: Query,
    no_value: str,
    unit: str = COUNT,
    steps: Steps = PLAIN,
    words: Mapping[str, Word] | None = None,
    decimals: int | None = None,
    spark: bool = False,
    text_mode: Literal["auto", "value", "value_and_name", "name"] = "auto",
) -> Any:
    return core.Stat(
        title=title,
        description=description,
        dataSource=DATASOURCE,
        targets=_targets(queries, instant=not spark),
        format=unit,
        decimals=decimals,
        noValue=no_value,
        thresholds=steps.as_json(),
        color={"mode": "thresholds"},
        mappings=_mappings(words),
        reduceCalc="lastNotNull",
        graphMode="area" if spark else "none",
        colorMode="value",
        textMode=text_mode,
        overrides=_query_overrides(queries),
        extraJson={
            "options": {"showPercentChange": False, "wideLayout": True, "percentChangeColorMode": "standard"}
        },
    )


def gauge(
    title: str, description: str, *queries: Query, no_value: str, steps: Steps, unit: str = RATIO
) -> Any:
    return core.GaugePanel(
        title=title,
        description=description,
        dataSource=DATASOURCE,
        targets=_targets(queries, instant=True),
        thresholds=steps.as_json(),
        format=unit,
        decimals=1,
        min=0,
        max=1,
        extraJson={
            "fieldConfig": {"defaults": {"noValue": no_value, "color": {"mode": "thresholds"}}},
            "options": {
                "reduceOptions": REDUCE,
                "orientation": "auto",
                "showThresholdLabels": False,
                "showThresholdMarkers": True,
                "minVizHeight": 75,
                "minVizWidth": 75,
                "sizing": "auto",
            },
        },
    )


def bars(
    title: str,
    description: str,
    *queries: Query,
    no_value: str,
    unit: str = TOKENS,
    steps: Steps = BLUE,
    decimals: int | None = None,
) -> Any:
    """Horizontal bars on one scale that begins at 0."""
    return core.BarGauge(
        title=title,
        description=description,
        dataSource=DATASOURCE,
        targets=_targets(queries, instant=True),
        extraJson={
            "fieldConfig": {
                "defaults": {
                    "unit": unit,
                    "min": 0,
                    "decimals": decimals,
                    "noValue": no_value,
                    "color": {"mode": "thresholds"},
                    "thresholds": {"mode": "absolute", "steps": steps.as_json()},
                    "mappings": [],
                },
                "overrides": [],
            },
            "options": {
                "displayMode": "basic",
                "orientation": "horizontal",
                "namePlacement": "auto",
                "reduceOptions": REDUCE,
                "showUnfilled": True,
                "sizing": "auto",
                "minVizHeight": 16,
                "minVizWidth": 8,
                "maxVizHeight": 300,
                "valueMode": "color",
                "legend": {"showLegend": False, "displayMode": "list", "placement": "bottom", "calcs": []},
            },
        },
    )


def lines(
    title: str,
    description: str,
    *queries: Query,
    no_value: str,
    unit: str = COUNT,
    maximum: int | None = None,
    steps: Steps | None = None,
    stacked: bool = False,
    stepped: bool = False,
    as_bars: bool = False,
    log: bool = False,
    decimals: int | None = None,
    colors: Mapping[str, str] | None = None,
) -> Any:
    """Curves over time. `steps` draws thresholds as dashed lines, `colors` fixes those of series by legend."""
    overrides = _query_overrides(queries)
    overrides += [_override("byName", name, color=_fixed(color)) for name, color in (colors or {}).items()]
    legend = {
        "showLegend": True,
        "displayMode": "table" if not stacked else "list",
        "calcs": ["max", "lastNotNull"] if not stacked else [],
    }
    return core.TimeSeries(
        title=title,
        description=description,
        dataSource=DATASOURCE,
        targets=_targets(queries, instant=False),
        unit=unit,
        valueMin=None if log else 0,
        valueMax=maximum,
        valueDecimals=decimals,
        maxDataPoints=None,
        drawStyle="bars" if as_bars else "line",
        lineInterpolation="stepAfter" if stepped else "linear",
        fillOpacity=60 if stacked or as_bars else 8,
        showPoints="never",
        stacking={"mode": "normal" if stacked else "none", "group": "A"},
        scaleDistributionType="log" if log else "linear",
        thresholds=(steps or PLAIN).as_json(),
        thresholdsStyleMode="dashed" if steps else "off",
        tooltipMode="multi",
        tooltipSort="desc",
        overrides=overrides,
        extraJson={
            "fieldConfig": {"defaults": {"noValue": no_value}},
            "options": {"legend": {**legend, "placement": "bottom"}},
        },
    )


def timeline(
    title: str,
    description: str,
    *queries: Query,
    no_value: str,
    words: Mapping[str, Word],
    link: tuple[str, str] | None = None,
) -> Any:
    return core.StateTimeline(
        title=title,
        description=description,
        dataSource=DATASOURCE,
        targets=_targets(queries, instant=False),
        mappings=_mappings(words),
        thresholds=PLAIN.as_json(),
        maxDataPoints=None,
        showValue="auto",
        extraJson={
            "fieldConfig": {"defaults": {"noValue": no_value, "unit": TEXT, "links": _links(link)}},
            "options": {
                "legend": {"showLegend": False, "calcs": []},
                "tooltip": {"sort": "none"},
                "perPage": 20,
            },
        },
    )


def table(
    title: str,
    description: str,
    *queries: Query,
    no_value: str,
    columns: Sequence[Column],
    sort: tuple[str, bool] | None = None,  # title of a column, descending
    before: Sequence[Json] = (),
) -> Any:
    """Rows joined on their shared labels. `before` are transformations ahead of choosing and naming the columns."""
    chosen = [
        {"id": "merge", "options": {}},
        *before,
        {"id": "filterFieldsByName", "options": {"include": {"names": [column.field for column in columns]}}},
        {
            "id": "organize",
            "options": {
                "excludeByName": {},
                "indexByName": {column.field: index for index, column in enumerate(columns)},
                "renameByName": {column.field: column.title for column in columns},
            },
        },
    ]
    return core.Table(
        title=title,
        description=description,
        dataSource=DATASOURCE,
        targets=_targets(queries, instant=True, shape="table"),
        transformations=chosen,
        thresholds=PLAIN.as_json(),
        maxDataPoints=None,
        overrides=[_column_override(column) for column in columns],
        extraJson={
            "fieldConfig": {"defaults": {"noValue": no_value, "color": {"mode": "thresholds"}}},
            "options": {
                "cellHeight": "sm",
                "sortBy": [{"displayName": sort[0], "desc": sort[1]}] if sort else [],
            },
        },
    )


def row(title: str) -> Any:
    return core.RowPanel(title=title)


REDUCE = {"calcs": ["lastNotNull"], "fields": "", "values": False}


def _targets(
    queries: Sequence[Query], *, instant: bool, shape: Literal["time_series", "table"] = "time_series"
) -> list[Any]:
    return [
        core.Target(
            expr=query.expr,
            legendFormat=query.legend,
            refId=letter,
            instant=instant,
            format=shape,
            intervalFactor=1,
            datasource=DATASOURCE,
        )
        for letter, query in zip(ascii_uppercase, queries, strict=False)
    ]


def _mappings(words: Mapping[str, Word] | None) -> list[Json]:
    if not words:
        return []
    options = {
        value: {"text": word.text, "color": word.color, "index": index}
        for index, (value, word) in enumerate(words.items())
    }
    return [{"type": "value", "options": options}]


def _query_overrides(queries: Sequence[Query]) -> list[Json]:
    overrides = []
    for letter, query in zip(ascii_uppercase, queries, strict=False):
        properties: Json = {}
        if query.unit is not None:
            properties["unit"] = query.unit
        if query.dashed:
            properties["custom.lineStyle"] = {"fill": "dash", "dash": [8, 6]}
            properties["custom.fillOpacity"] = 0
            properties["color"] = _fixed("text")
        if query.right:
            properties["custom.axisPlacement"] = "right"
        if properties:
            overrides.append(_override("byFrameRefID", letter, **properties))
    return overrides


def _column_override(column: Column) -> Json:
    properties: Json = {
        "unit": column.unit,
        "thresholds": {"mode": "absolute", "steps": column.steps.as_json()},
    }
    if column.words:
        properties["mappings"] = _mappings(column.words)
    if column.bar:
        properties["custom.cellOptions"] = {"type": "gauge", "mode": "basic", "valueDisplayMode": "text"}
        properties["min"] = 0
    elif column.coloured:
        properties["custom.cellOptions"] = {"type": "color-text"}
    if column.width is not None:
        properties["custom.width"] = column.width
    if column.link is not None:
        properties["links"] = _links(column.link)
    if column.decimals is not None:
        properties["decimals"] = column.decimals
    if column.maximum is not None:
        properties["max"] = column.maximum
    return _override("byName", column.title, **properties)


def _override(matcher: str, option: str, **properties: Any) -> Json:
    return {
        "matcher": {"id": matcher, "options": option},
        "properties": [{"id": name, "value": value} for name, value in properties.items()],
    }


def _links(link: tuple[str, str] | None) -> list[Json]:
    return [{"title": link[0], "url": link[1]}] if link else []


def _fixed(color: str) -> Json:
    return {"mode": "fixed", "fixedColor": color}
