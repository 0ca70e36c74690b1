"""The boards against the types that each Grafana publishes."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable

import pytest
from grafanalib import core  # type: ignore[import-untyped]
from grafanalib._gen import DashboardEncoder  # type: ignore[import-untyped]

from tests.conftest import missing
from tests.dashboards.boards import Json, boards, panels
from tests.dashboards.grafana_types import VERSIONS, Types, TypesError, types

# the first time npm fetches 44 MB and the compiler runs three times
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module", params=VERSIONS)
def grafana(request: pytest.FixtureRequest) -> Types:
    try:
        return types(request.param)
    except TypesError as error:
        missing("Grafana's types", str(error))


@pytest.mark.parametrize("uid", boards())
def test_a_board_is_what_grafana_takes(grafana: Types, uid: str) -> None:
    assert grafana.faults(boards()[uid]) == []


def _first(board: Json, kind: str) -> Json:
    return next(panel for panel in panels(board) if panel["type"] == kind)


def _text_as_step(board: Json) -> None:
    _first(board, "stat")["fieldConfig"]["defaults"]["thresholds"]["steps"][0]["value"] = "null"


def _text_as_datasource(board: Json) -> None:
    _first(board, "timeseries")["datasource"] = "Prometheus"


def _unknown_option(board: Json) -> None:
    _first(board, "timeseries")["options"]["fieldOptions"] = {}


def _unknown_mode(board: Json) -> None:
    _first(board, "stat")["options"]["graphMode"] = "bars"


def _unknown_panel(board: Json) -> None:
    _first(board, "stat")["type"] = "singlestat"


def _leftover(board: Json) -> None:
    board["rows"] = []


def _unknown_target_key(board: Json) -> None:
    _first(board, "table")["targets"][0]["intervalFactor"] = 2


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (_text_as_step, "steps.0.value"),
        (_text_as_datasource, "datasource"),
        (_unknown_option, "fieldOptions"),
        (_unknown_mode, "graphMode"),
        (_unknown_panel, "singlestat"),
        (_leftover, "rows"),
        (_unknown_target_key, "intervalFactor"),
    ],
)
def test_a_fault_is_found(grafana: Types, spoil: Callable[[Json], None], told: str) -> None:
    board = copy.deepcopy(boards()["vllm-length-fleet"])
    spoil(board)
    assert any(told in fault for fault in grafana.faults(board))


def test_what_grafanalib_writes_by_itself_is_refused(grafana: Types) -> None:
    panel = core.GaugePanel(
        title="KV cache", targets=[core.Target(expr="up")], gridPos=core.GridPos(4, 4, 0, 0)
    )
    raw = json.loads(json.dumps(core.Dashboard(title="raw", panels=[panel]), cls=DashboardEncoder))
    assert len(grafana.faults(raw)) > 5
