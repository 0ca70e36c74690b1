"""`vllm-length-exporter rules`: what is committed is what it renders, and what a user changes shows where it should."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from tests.alerts import rendered
from tests.conftest import Tool
from tests.tools.cache import PROJECT
from vllm_length_exporter.cli import program

DASHBOARDS = PROJECT / "dashboards" / "generated"


def rules(*arguments: str | Path) -> Result:
    return CliRunner().invoke(program, ["rules", *map(str, arguments)])


def rendered_with(text: str, folder: Path) -> dict[str, Any]:
    """The rendered files, by path, of a user's file of thresholds."""
    (folder / "mine.yml").write_text(text, encoding="utf-8")
    done = rules("--thresholds", folder / "mine.yml", "--output", folder / "out")
    assert done.exit_code == 0, done.output
    return {
        str(path.relative_to(folder / "out")): list(yaml.safe_load_all(path.read_text(encoding="utf-8")))
        for path in (folder / "out").rglob("*.y*ml")
    }


def alerts(files: dict[str, Any]) -> list[dict[str, Any]]:
    return [rule for group in files["rules/alerts.yml"][0]["groups"] for rule in group["rules"]]


def accepted(tool: Tool, folder: Path) -> None:
    done = subprocess.run(
        [
            tool("promtool", suite="bookworm"), "check", "rules", "--lint=all", "--lint-fatal",
            *sorted((folder / "out" / "rules").glob("*.yml")),
        ],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_what_is_committed_is_what_is_rendered() -> None:
    thresholds = rendered.ALERTS / "thresholds.yml"
    done = rules(
        "--check", "--thresholds", thresholds, "--output", rendered.ALERTS, "--dashboards", DASHBOARDS
    )
    assert done.output == "", "run `make generate`"
    assert done.exit_code == 0


def test_a_drift_is_named_and_nothing_is_written(tmp_path: Path) -> None:
    assert rules("--output", tmp_path).exit_code == 0
    file = tmp_path / "rules" / "alerts.yml"
    file.write_text(file.read_text(encoding="utf-8").replace("for: 5m", "for: 6m", 1), encoding="utf-8")
    before = file.stat().st_mtime_ns
    done = rules("--check", "--output", tmp_path)
    assert (done.exit_code, done.output) == (1, f"differs: {file}\n")
    assert file.stat().st_mtime_ns == before
    done = rules("--check", "--output", tmp_path, "--format", "json")
    assert json.loads(done.output) == {"output": str(tmp_path), "differing": ["rules/alerts.yml"]}
    assert rules("--output", tmp_path).output == f"wrote: {file}\n"
    assert rules("--check", "--output", tmp_path).exit_code == 0


def test_a_changed_threshold_is_in_the_rule_and_in_kubernetes(tmp_path: Path, tool: Tool) -> None:
    files = rendered_with("kv_cache_saturated: {critical: {usage: 0.99, for: 3m}}", tmp_path)
    rule = next(rule for rule in alerts(files) if rule["alert"] == "VLLMLengthKVCacheSaturated")
    assert ">= 0.99" in rule["expr"]
    assert rule["for"] == "3m"
    groups = files["kubernetes/prometheus-rule.yaml"][0]["spec"]["groups"]
    assert rule in [rule for group in groups for rule in group["rules"]]
    accepted(tool, tmp_path)


def test_a_server_is_ignored_by_every_rule_that_has_servers(tmp_path: Path, tool: Tool) -> None:
    files = rendered_with("ignored_servers: ['canary:8000', 'a.b+c']", tmp_path)
    for rule in alerts(files):
        if (
            "vllm_length_" in rule["expr"]
            and "exporter_" not in rule["expr"]
            and "server:" not in rule["expr"]
        ):
            assert 'server!~"canary:8000|a[.]b[+]c"' in rule["expr"], rule["alert"]
    accepted(tool, tmp_path)


def test_a_selector_is_in_every_query_but_those_of_the_exporter(tmp_path: Path, tool: Tool) -> None:
    text = "selector: 'cluster=\"prod\"'\nexporter_selector: 'job=~\"length.*\"'\nlabels: {team: inference}\n"
    files = rendered_with(text, tmp_path)
    for rule in alerts(files):
        assert rule["labels"]["team"] == "inference"
        own = re.search(r"exporter_|(?<!\w)up\{", rule["expr"])
        if own:
            assert 'job=~"length.*"' in rule["expr"]
        elif "server:vllm_length" not in rule["expr"]:
            assert 'cluster="prod"' in rule["expr"], rule["alert"]
    accepted(tool, tmp_path)


def test_an_alert_can_be_left_out_by_name(tmp_path: Path) -> None:
    files = rendered_with("disabled_alerts: [VLLMLengthLogSilent]", tmp_path)
    names = {rule["alert"] for rule in alerts(files)}
    assert "VLLMLengthLogSilent" not in names
    assert len(names) == len({rule["alert"] for rule in rendered.alerts()}) - 1


@pytest.mark.parametrize("text", [
    "rejections_spike: {critical: [{burn_rate: 10, long: 45m, short: 3m}]}",
    "silent_clamping: {window: 7m}\ntruncation_high: {warning: {window: 2h30m}}",
    "missed_scrapes: 90s\nkeep_firing_for: 0s\nserver_down: {for: 0s}",
    "limit_below_workload: {window: 3d}",
])  # fmt: skip
def test_other_windows_bring_their_own_recording_rules(text: str, tmp_path: Path, tool: Tool) -> None:
    files = rendered_with(text, tmp_path)
    groups = [*files["rules/recording.yml"][0]["groups"], *files["rules/alerts.yml"][0]["groups"]]
    recorded = {rule["record"] for group in groups for rule in group["rules"] if "record" in rule}
    used = {
        word
        for group in groups
        for rule in group["rules"]
        for word in re.findall(r"\w+:vllm_length_\w+:\w+", rule["expr"])
    }
    assert used <= recorded
    accepted(tool, tmp_path)


@pytest.mark.parametrize(("arguments", "said"), [
    ((), "--output: which folder to render into?"),
    (("--thresholds", "none.yml", "--output", "out"), "none.yml: cannot be read: No such file or directory"),
    (("--output", "file"), "file"),
])  # fmt: skip
def test_bad_use_is_one_line_and_ends_with_2(
    arguments: tuple[str, ...], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    done = rules(*arguments)
    assert done.exit_code == 2
    assert said in done.output
    assert "Traceback" not in done.output


def test_an_alert_that_there_is_not_cannot_be_left_out(tmp_path: Path) -> None:
    (tmp_path / "mine.yml").write_text("disabled_alerts: [VLLMLengthServerDwon]", encoding="utf-8")
    done = rules("--thresholds", tmp_path / "mine.yml", "--output", tmp_path / "out")
    assert done.exit_code == 2
    assert done.output == (
        f"vllm-length-exporter: {tmp_path / 'mine.yml'}: disabled_alerts: there is no alert 'VLLMLengthServerDwon', "
        "did you mean 'VLLMLengthServerDown'?\n"
    )
    assert not (tmp_path / "out").exists()


def test_a_file_of_thresholds_to_begin_with() -> None:
    assert rules("--show-thresholds").output == (rendered.ALERTS / "thresholds.yml").read_text(
        encoding="utf-8"
    )
