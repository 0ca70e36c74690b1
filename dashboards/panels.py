"""Panels: with `board`, the one place that knows grafanalib. What it gets wrong is mended in `modern`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from string import ascii_uppercase
from typing import Any, Literal

from grafanalib import core  # type: ignore[import-untyped]

from .overrides import column_override, fixed, links, mappings, override, query_overrides
from .parts import BLUE, COUNT, DATASOURCE, PLAIN, RATIO, TEXT, TOKENS, Column, Json, Query, Steps, Word


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
        mappings=mappings(words),
        reduceCalc="lastNotNull",
        graphMode="area" if spark else "none",
        colorMode="value",
        textMode=text_mode,
        overrides=query_overrides(queries),
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
    decimals: int | None = None,
    colors: Mapping[str, str] | None = None,
) -> Any:
    """Curves over time. `steps` draws thresholds as dashed lines, `colors` fixes those of series by legend."""
    overrides = query_overrides(queries)
    overrides += [override("byName", name, color=fixed(color)) for name, color in (colors or {}).items()]
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
        valueMin=0,
        valueMax=maximum,
        valueDecimals=decimals,
        maxDataPoints=None,
        drawStyle="bars" if as_bars else "line",
        lineInterpolation="stepAfter" if stepped else "linear",
        fillOpacity=60 if stacked or as_bars else 8,
        showPoints="never",
        stacking={"mode": "normal" if stacked else "none", "group": "A"},
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
        mappings=mappings(words),
        thresholds=PLAIN.as_json(),
        maxDataPoints=None,
        showValue="auto",
        extraJson={
            "fieldConfig": {"defaults": {"noValue": no_value, "unit": TEXT, "links": links(link)}},
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
        unit="none",
        thresholds=PLAIN.as_json(),
        maxDataPoints=None,
        overrides=[column_override(column) for column in columns],
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
