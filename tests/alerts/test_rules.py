"""The rules as Prometheus sees them: accepted without a complaint, tested, complete, and over our series alone."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.alerts import rendered
from tests.alerts.rendered import Kind
from tests.conftest import Tool
from tests.tools.binaries import SUITES
from tests.tools.cache import PROJECT
from vllm_length_exporter.collectors.registry import METRICS
from vllm_length_exporter.derive.findings import RULES
from vllm_length_exporter.mixin.catalogue import WITHOUT_ALERT, alerts_by_finding

ALERTS = rendered.alerts()
KINDS = sorted({rendered.kind(rule) for rule in ALERTS})
NAMES = sorted({rule["alert"] for rule in ALERTS})
# Design's list: a finding that is new needs an alert or a reason, and a runbook page.
FINDINGS = {
    "capacity_below_limit", "admission_stall", "kv_cache_saturated", "preempting", "binding_max_num_seqs",
    "length_rejections", "silent_clamping", "truncation_high", "limit_far_above_workload", "limit_below_window",
    "limit_beyond_window", "auto_fit_reduced", "batched_tokens_below_limit", "startup_kv_cache_too_small",
    "startup_no_kv_memory", "startup_limit_above_window", "startup_memory_busy", "crash_loop", "gauges_frozen",
    "sources_disagree", "rejections_unobservable", "log_stats_disabled", "capacity_lines_hidden", "startup_killed",
}  # fmt: skip


def promtool(tool: Tool, suite: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [tool("promtool", suite=suite), *arguments], capture_output=True, text=True, check=False, timeout=600
    )


@pytest.mark.parametrize("suite", SUITES)
def test_prometheus_accepts_the_rules_with_every_lint(tool: Tool, suite: str) -> None:
    done = promtool(tool, suite, "check", "rules", "--lint=all", "--lint-fatal", *rendered.RULE_FILES)
    assert done.returncode == 0, done.stdout + done.stderr
    found = sum(int(count) for count in re.findall(r"(\d+) rules found", done.stdout))
    assert found == len(ALERTS) + len(rendered.records())


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("suite", SUITES)
@pytest.mark.parametrize("file", rendered.TEST_FILES, ids=lambda path: path.stem)
def test_the_rules_pass_their_tests(tool: Tool, suite: str, file: Path) -> None:
    done = promtool(tool, suite, "test", "rules", file)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_rule_test_can_fail(tool: Tool, tmp_path: Path) -> None:
    """The same tests against thresholds that never hold."""
    folder = tmp_path / "tests"
    folder.mkdir()
    (tmp_path / "rules").mkdir()
    for path in rendered.RULE_FILES:
        broken = path.read_text(encoding="utf-8").replace("== 1", "== 7")
        (tmp_path / "rules" / path.name).write_text(broken, encoding="utf-8")
    text = (rendered.ALERTS / "tests" / "limits.yml").read_text(encoding="utf-8")
    (folder / "limits.yml").write_text(text, encoding="utf-8")
    assert promtool(tool, SUITES[-1], "test", "rules", folder / "limits.yml").returncode == 1


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: f"{kind.alert}-{kind.severity}")
def test_every_alert_has_a_time_when_it_fires_and_one_when_it_does_not(kind: Kind) -> None:
    both = [
        test["name"]
        for test in rendered.tests()
        if any(kind in now for now in rendered.firing(test))
        and any(kind not in now for now in rendered.firing(test))
    ]
    assert both, f"no test in which {kind} fires at one time and not at another"
    assert any(kind in rendered.told(test) for test in rendered.tests()), f"no test has the text of {kind}"


@pytest.mark.parametrize("word", ["missed-scrape", "restarted", "idle"])
def test_missed_scrapes_restarts_and_no_traffic_are_tested(word: str) -> None:
    """Each such server is in several tests; and each of these tests has several servers."""
    having = [
        test
        for test in rendered.tests()
        if any(f'server="{word}"' in row["series"] for row in test["input_series"])
    ]
    assert len(having) >= 4
    for test in having:
        servers = {
            found for row in test["input_series"] for found in re.findall(r'server="([^"]+)"', row["series"])
        }
        assert len(servers) > 1


def test_there_are_rules_and_tests_enough() -> None:
    print(
        f"{len(KINDS)} alerts by severity, {len(NAMES)} names, {len(rendered.records())} recording rules, "
        f"{len(rendered.tests())} tests with {rendered.cases()} cases"
    )
    assert len(KINDS) == len(ALERTS), "two alerts of one name have one severity"
    assert len(NAMES) >= 34
    assert rendered.cases() > 120


@pytest.mark.parametrize("name", NAMES)
def test_every_alert_has_a_runbook_page(name: str) -> None:
    text = (rendered.RUNBOOKS / f"{name}.md").read_text(encoding="utf-8")
    assert text.startswith(f"# {name}\n")
    for heading in ("## Confirm", "## Causes", "## Fix", "## Do not"):
        assert heading in text, f"{name}: no {heading}"
    assert len(text.splitlines()) < 60, f"{name}: too long to read at night"


def test_every_runbook_page_has_an_alert_or_a_finding() -> None:
    pages = {path.stem for path in rendered.RUNBOOKS.glob("*.md")} - {"README"}
    assert pages == set(NAMES) | set(WITHOUT_ALERT)


def test_every_finding_has_an_alert_or_a_reason_and_a_page() -> None:
    covered = alerts_by_finding()
    assert {rule.id for rule in RULES} <= FINDINGS
    assert set(covered) | set(WITHOUT_ALERT) == FINDINGS
    assert not set(covered) & set(WITHOUT_ALERT)
    for reason in WITHOUT_ALERT.values():
        assert len(reason) > 40, "a reason, not an excuse"


def test_the_index_of_the_runbooks_is_complete() -> None:
    index = (rendered.RUNBOOKS / "README.md").read_text(encoding="utf-8")
    for name in NAMES:
        (row,) = [line for line in index.splitlines() if line.startswith(f"| [{name}]({name}.md) |")]
        severities = {kind.severity for kind in KINDS if kind.alert == name}
        assert set(row.split("|")[2].replace(",", " ").split()) == severities


@pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: f"{rule['alert']}-{rule['labels']['severity']}")
def test_an_alert_says_what_an_operator_needs(rule: dict[str, Any]) -> None:
    notes = rule["annotations"]
    assert re.fullmatch(r"VLLMLength[A-Z][A-Za-z]+", rule["alert"])
    assert rule["labels"]["severity"] in ("critical", "warning", "info")
    assert re.fullmatch(r"[A-Z][^{}]*\.", notes["summary"]), (
        "the summary is the same for all alerts of a group"
    )
    assert notes["description"].endswith(".")
    assert re.fullmatch(r"[A-Z][^{}]*\.", notes["action"])
    assert notes["runbook_url"].endswith(f"/{rule['alert']}.md")
    board = re.search(r"/d/([a-z-]+)", notes["dashboard_url"])
    assert board is not None
    assert (PROJECT / "dashboards" / "generated" / f"{board[1]}.json").is_file()
    if "{{ $labels.server }}" in notes["description"]:
        assert notes["dashboard_url"].endswith("?var-server={{ $labels.server }}")


def series(text: str) -> Iterator[str]:
    yield from re.findall(r"(?<![:\w])vllm_length_\w+\b(?!\.)", text)


def test_rules_use_our_series_alone_and_each_exists() -> None:
    ours = {metric.full_name for metric in METRICS}
    recorded = {rule["record"] for rule in rendered.records()}
    for rule in [*ALERTS, *rendered.records()]:
        text = rule["expr"] + " ".join(rule.get("annotations", {}).values())
        assert set(series(text)) <= ours, rule
        assert "vllm:" not in text
        assert set(re.findall(r"\b(?:engine|server|model|fleet):\w+:\w+", rule["expr"])) <= recorded


@pytest.mark.parametrize("page", sorted(rendered.RUNBOOKS.glob("*.md")), ids=lambda page: page.stem)
def test_what_a_runbook_asks_for_exists(page: Path) -> None:
    names = {metric.full_name for metric in METRICS} | {rule["record"] for rule in rendered.records()}
    queries = "".join(re.findall(r"```promql\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL))
    asked = re.findall(r"(?<![\w:])(?:\w+:)?vllm_length_\w+(?::\w+)?", queries)
    assert set(asked) <= names
    assert asked or page.stem in ("README", "VLLMLengthExporterDown")


def test_labels_in_selectors_are_labels_of_the_series() -> None:
    labels = {metric.full_name: set(metric.label_names) for metric in METRICS}
    for rule in [*ALERTS, *rendered.records()]:
        text = rule["expr"] + " ".join(rule.get("annotations", {}).values())
        for name, selector in re.findall(r"(?<![:\w])(vllm_length_\w+)\{([^}]*)\}", text):
            used = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", selector))
            assert used <= labels[name] | {"job"}, (name, selector)


@pytest.mark.parametrize("rule", rendered.records(), ids=lambda rule: rule["record"])
def test_recorded_names_are_level_metric_operation(rule: dict[str, Any]) -> None:
    level, metric, operation = rule["record"].split(":")
    assert level in ("engine", "server", "model", "fleet")
    assert metric.startswith("vllm_length_")
    if "rate" in operation:
        assert not metric.endswith("_total")
    by_level = {
        "server": r"without \(|^server:|_rate|^\(?1 - ",
        "model": r"by \(model_name\)",
        "fleet": r"sum",
    }
    if level in by_level:
        assert re.search(by_level[level], rule["expr"])
