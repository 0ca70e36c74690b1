"""What every board promises, read from the committed JSON."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml
from grafanalib import formatunits  # type: ignore[import-untyped]

from dashboards.__main__ import OUTPUT, generated, main
from dashboards.parts import DATASOURCE
from dashboards.substitution import Substitution
from dashboards.thresholds import FILE
from tests.dashboards.boards import ALL_ANNOTATIONS, ALL_PANELS, ALL_QUERIES, Asked, Json, boards
from vllm_length_exporter.collectors.registry import METRICS
from vllm_length_exporter.mixin import thresholds_file
from vllm_length_exporter.mixin.catalogue import every_alert
from vllm_length_exporter.mixin.rule import Dashboard

OURS = {metric.full_name: set(metric.label_names) for metric in METRICS}
# Series that Prometheus or its client library makes, with the labels that it gives them.
PROMETHEUS = {
    "up": {"job", "instance"},
    "scrape_duration_seconds": {"job", "instance"},
    "scrape_samples_scraped": {"job", "instance"},
    "process_cpu_seconds_total": {"job", "instance"},
    "process_resident_memory_bytes": {"job", "instance"},
    "ALERTS": {"alertname", "alertstate", "severity", "server"},
}
TARGET_LABELS = {"job", "instance"}  # on every series, given by the scrape
EVERY = [*ALL_QUERIES, *ALL_ANNOTATIONS]
OVER_TIME = ("timeseries", "state-timeline")


def parsed(asked: Asked) -> promql_parser.Expr:
    return promql_parser.parse(Substitution()(asked.expr))


def nodes(asked: Asked) -> list[promql_parser.Expr]:
    found: list[promql_parser.Expr] = []
    promql_parser.walk(parsed(asked), found.append)
    return found


def test_the_committed_boards_are_as_generated(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--check"]) == 0, capsys.readouterr().err


def test_a_board_that_was_edited_by_hand_is_noticed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--output", str(tmp_path)]) == 0
    assert main(["--output", str(tmp_path), "--check"]) == 0
    edited = tmp_path / "vllm-length-fleet.json"
    edited.write_text(edited.read_text().replace("Waiting", "Queued"))
    assert main(["--output", str(tmp_path), "--check"]) == 1
    assert f"{edited} is not as generated" in capsys.readouterr().err


def test_bad_thresholds_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "thresholds.yml"
    file.write_text("kv_cache_saturated: {warning: {usage: 2}}\n")
    assert main(["--thresholds", str(file), "--output", str(tmp_path)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "kv_cache_saturated.warning.usage" in line


def test_there_is_a_board_for_every_alert() -> None:
    assert set(boards()) == {str(board) for board in Dashboard}
    assert {str(alert.dashboard) for alert in every_alert()} <= set(boards())


@pytest.mark.parametrize("asked", EVERY, ids=str)
def test_a_query_parses_and_names_series_that_exist(asked: Asked) -> None:
    known = OURS | PROMETHEUS
    selectors = [node for node in nodes(asked) if isinstance(node, promql_parser.VectorSelector)]
    assert selectors
    available: set[str] = set()
    for selector in selectors:
        assert selector.name in known, f"{selector.name} is exported by nobody"
        labels = known[selector.name] | TARGET_LABELS
        used = {matcher.name for matcher in selector.matchers.matchers}
        assert used <= labels, f"{selector.name} has no label {used - labels}"
        available |= labels
    made = set(re.findall(r'label_replace\(.*?, "(\w+)", "\$1"', asked.expr))
    for node in nodes(asked):
        if isinstance(node, promql_parser.AggregateExpr) and node.modifier is not None:
            assert set(node.modifier.labels) <= available | made


@pytest.mark.parametrize("asked", ALL_QUERIES, ids=str)
def test_a_rate_takes_the_interval_that_grafana_works_out(asked: Asked) -> None:
    for function, window in re.findall(
        r"\b(rate|irate|increase|changes|resets)\([^\[]*\[([^\]]*)\]", asked.expr
    ):
        assert window in ("$__rate_interval", "$__range"), f"{function} over {window}"
    for metric in METRICS:
        if metric.kind == "counter" and metric.full_name in asked.expr and "rate" in asked.expr:
            assert re.search(rf"\b(rate|increase)\({metric.full_name}", asked.expr), (
                "a counter without a rate"
            )


@pytest.mark.parametrize("asked", ALL_QUERIES, ids=str)
def test_a_query_follows_the_boards_variables(asked: Asked) -> None:
    variables = {variable["name"] for variable in boards()[asked.board]["templating"]["list"]}
    assert set(re.findall(r"\$([a-z]\w*)", asked.expr)) <= variables
    for name in set(re.findall(r"vllm_length_\w+", asked.expr)):
        if "server" in OURS[name]:
            assert f"{name}{{" in asked.expr
            assert 'server=~"$server"' in asked.expr


@pytest.mark.parametrize(
    ("uid", "panel"), ALL_PANELS, ids=lambda value: value if isinstance(value, str) else value["title"]
)
def test_a_panel_explains_itself(uid: str, panel: Json) -> None:
    del uid
    assert len(panel["description"]) > 30
    assert panel["description"].endswith((".", "?"))
    defaults = panel["fieldConfig"]["defaults"]
    assert len(defaults["noValue"]) > 10, "no data is not explained"
    assert panel["datasource"] == DATASOURCE
    assert all(target["datasource"] == DATASOURCE for target in panel["targets"])
    assert [target["instant"] for target in panel["targets"]] == [
        not target["range"] for target in panel["targets"]
    ]
    if panel["type"] in OVER_TIME:
        assert not any(target["instant"] for target in panel["targets"])
        assert all(target["legendFormat"] not in ("", "__auto") for target in panel["targets"])
    if panel["type"] != "table":
        known = {
            value for name, value in vars(formatunits).items() if name.isupper() and isinstance(value, str)
        }
        unit = defaults["unit"]
        assert unit in known | {"string"} or unit.startswith("suffix:"), unit
        assert unit != "percentunit" or defaults.get("min", 0) == 0
    if panel["type"] == "table":
        titles = [override["matcher"]["options"] for override in panel["fieldConfig"]["overrides"]]
        renamed = panel["transformations"][-1]["options"]["renameByName"].values()
        assert titles == list(renamed)


@pytest.mark.parametrize("uid", boards())
def test_the_grid_has_no_overlap_and_no_gap(uid: str) -> None:
    taken: dict[tuple[int, int], str] = {}
    for panel in boards()[uid]["panels"]:
        place = panel["gridPos"]
        assert 0 <= place["x"] < place["x"] + place["w"] <= 24
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert (x, y) not in taken, f"{panel['title']} lies on {taken[x, y]}"
                taken[x, y] = panel["title"]
    assert len(taken) == 24 * (max(y for _, y in taken) + 1)
    identities = [panel["id"] for panel in boards()[uid]["panels"]]
    assert len(set(identities)) == len(identities)


@pytest.mark.parametrize("uid", boards())
def test_variables_are_chained_and_links_keep_them(uid: str) -> None:
    board = boards()[uid]
    variables = board["templating"]["list"]
    assert variables[0]["type"] == "datasource"
    seen: list[str] = []
    for variable in variables[1:]:
        query = variable["query"]["query"]
        assert query.startswith("label_values(vllm_length_")
        assert query.endswith(f", {variable['name']})")
        assert all(f'{name}=~"${name}"' in query for name in seen), f"{query} is not chained"
        assert variable["datasource"] == DATASOURCE
        assert not variable["includeAll"] or variable["allValue"] == ".*", "a failed server has no model"
        seen.append(variable["name"])
    siblings = [link for link in board["links"] if link["type"] == "dashboards"]
    assert [link["tags"] for link in siblings] == [["vllm-length"]]
    assert all(link["includeVars"] and link["keepTime"] for link in siblings)
    assert "vllm-length" in board["tags"]


def test_links_between_panels_and_boards_lead_to_a_board_with_time_and_source_kept() -> None:
    text = "".join(path.read_text() for path in OUTPUT.glob("*.json"))
    urls = set(re.findall(r'"url": "(/d/[^"]*)"', text))
    assert urls
    for url in urls:
        uid, _, query = url.removeprefix("/d/").partition("?")
        assert uid in boards()
        assert "${__url_time_range}" in query
        assert "${datasource:queryparam}" in query
        assert "var-server=" in query


def _numbers(value: Any) -> list[float]:
    """All numbers of the thresholds' steps in a part of a board."""
    if isinstance(value, dict):
        own = [step["value"] for step in value.get("steps", []) if step["value"] is not None]
        return own + [number for item in value.values() for number in _numbers(item)]
    return [number for item in value for number in _numbers(item)] if isinstance(value, list) else []


@pytest.mark.parametrize(
    ("edit", "value"),
    [
        ({"kv_cache_saturated": {"critical": {"usage": 0.876}}}, 0.876),
        ({"preemption_storm": {"critical": {"per_second": 12.34}}}, 12.34),
        ({"limit_far_above_workload": {"factor": 7.5}}, 7.5),
        ({"max_num_seqs_binding": {"share": 0.437}}, 0.437),
        ({"sources_disagree": {"gap": 0.0314}}, 0.0314),
        ({"truncation_high": {"info": {"share": 0.777}}}, 0.777),
    ],
    ids=lambda value: "" if isinstance(value, float) else next(iter(value)),
)
def test_thresholds_change_alerts_and_boards_alike(
    tmp_path: Path, edit: dict[str, Any], value: float
) -> None:
    # `warning` may not lie above the edited `critical`
    edit = {
        **edit,
        **(
            {"kv_cache_saturated": {"critical": {"usage": value}, "warning": {"usage": 0.8}}}
            if "kv_cache_saturated" in edit
            else {}
        ),
    }
    file = tmp_path / "thresholds.yml"
    file.write_text(yaml.safe_dump(edit))
    changed = generated(thresholds_file.read(file))
    assert not any(value in _numbers(board) for board in boards().values())
    assert any(value in _numbers(board) for board in changed.values())


def test_the_users_selector_is_in_every_query(tmp_path: Path) -> None:
    file = tmp_path / "thresholds.yml"
    file.write_text('selector: cluster="prod"\n')
    for board in generated(thresholds_file.read(file)).values():
        for panel in board["panels"]:
            for target in panel.get("targets", []):
                names = re.findall(
                    r"\b(?:vllm_length_\w+|up|scrape_\w+|process_\w+)\{([^}]*)\}", target["expr"]
                )
                assert names
                assert all('cluster="prod"' in inside for inside in names), target["expr"]


def test_the_thresholds_are_the_alerts_own() -> None:
    assert FILE.read_text() == thresholds_file.DEFAULTS.read_text()


def test_the_documentation_names_every_board_and_shows_pictures_that_there_are() -> None:
    text = (FILE.parent.parent / "docs" / "dashboards.md").read_text()
    assert all(f"`{uid}`" in text for uid in boards())
    pictures = re.findall(r"\]\((pictures/[^)]+)\)", text)
    assert pictures
    for picture in pictures:
        assert (FILE.parent.parent / "docs" / picture).is_file(), picture
