"""Puts grafanalib's output into the shape of a current Grafana.

grafanalib 0.7 writes for Grafana 7 to 9 and stamps schema version 12. Grafana would migrate that, by thirty steps that
differ between its versions; a board of a current version is taken as it is. So every difference is mended here,
and `tests/dashboards` holds the result against Grafana's own published types.
"""

from __future__ import annotations

import json
from typing import Any

from grafanalib._gen import DashboardEncoder  # type: ignore[import-untyped]

SCHEMA_VERSION = 41  # Grafana 12's; 11 reads it, 13 migrates it by one step

Json = dict[str, Any]

_BOARD_LEFTOVERS = ("__inputs", "gnetId", "hideControls", "id", "rows", "sharedCrosshair", "style", "version")
_PANEL_LEFTOVERS = (
    "cacheTimeout", "editable", "error", "height", "hideTimeOverride", "minSpan", "span", "interval", "repeatDirection",
    "columns", "fontSize", "color", "mappings",
)  # fmt: skip
_DEFAULTS_LEFTOVERS = ("calcs", "title", "limit", "override", "values")
_OPTIONS_LEFTOVERS = ("fieldOptions",)
_TARGET_KEYS = ("datasource", "expr", "format", "instant", "legendFormat", "refId")


def modern(board: object) -> Json:
    """A grafanalib `Dashboard` as plain JSON of schema version 41."""
    plain: Json = json.loads(json.dumps(board, cls=DashboardEncoder))
    for key in _BOARD_LEFTOVERS:
        plain.pop(key, None)
    plain["schemaVersion"] = SCHEMA_VERSION
    plain["panels"] = [_panel(panel) for panel in plain["panels"]]
    plain["templating"] = {"list": [_variable(variable) for variable in plain["templating"]["list"]]}
    plain["timepicker"] = {}
    without_nulls: Json = _pruned(plain)
    return without_nulls


def _panel(panel: Json) -> Json:
    for key in _PANEL_LEFTOVERS:
        panel.pop(key, None)
    if panel["type"] == "row":
        return {key: panel[key] for key in ("id", "type", "title", "gridPos", "collapsed", "panels")}
    config = panel["fieldConfig"]
    for key in ("showThresholdLabels", "showThresholdMarkers"):
        config.pop(key, None)  # options of the gauge, which stand there too
    for key in _DEFAULTS_LEFTOVERS:
        config["defaults"].pop(key, None)
    custom = config["defaults"].get("custom", {})
    if custom.pop("displayMode", None) is not None:
        custom["cellOptions"] = {"type": "auto"}
    if custom.get("scaleDistribution", {}).get("type") == "linear":
        custom["scaleDistribution"] = {"type": "linear"}
    config.setdefault("overrides", [])
    for key in _OPTIONS_LEFTOVERS:
        panel["options"].pop(key, None)
    if panel["type"] == "bargauge":
        for key in ("showThresholdLabels", "showThresholdMarkers"):
            panel["options"].pop(key, None)
    panel["targets"] = [_target(target) for target in panel["targets"]]
    return panel


def _target(target: Json) -> Json:
    kept = {key: target[key] for key in _TARGET_KEYS}
    return {**kept, "range": not target["instant"], "editorMode": "code", "exemplar": False}


def _variable(variable: Json) -> Json:
    kept = {
        key: variable[key]
        for key in (
            "name",
            "label",
            "type",
            "hide",
            "refresh",
            "regex",
            "options",
            "multi",
            "includeAll",
            "allValue",
        )
    }
    chosen = variable["current"]["value"]
    kept["current"] = {"text": "All" if chosen == "$__all" else chosen, "value": chosen}
    kept["query"] = variable["query"]
    if variable["type"] == "query":
        kept["datasource"] = variable["datasource"]
        kept["query"] = {"query": variable["query"], "refId": "StandardVariableQuery", "qryType": 1}
        kept["sort"] = variable["sort"]
    return kept


def _pruned(value: Any, key: str = "") -> Any:
    """Without nulls, which mean "default" and which the types refuse; but the first step of thresholds is null."""
    if isinstance(value, dict):
        keep_null = "color" in value and "value" in value
        return {
            name: _pruned(item, name)
            for name, item in value.items()
            if item is not None or (keep_null and name == "value")
        }
    if isinstance(value, list):
        return [_pruned(item, key) for item in value]
    return value
