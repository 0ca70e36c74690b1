"""What docs/alerting.md tells a new user to do, done as it stands there."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from tests.alerts.servers import Alertmanager, receiving
from tests.alerts.test_rendering import alerts, rendered_with
from tests.conftest import Tool
from tests.deadline import wait_for
from tests.tools.cache import PROJECT
from vllm_length_exporter.cli import program
from vllm_length_exporter.mixin.alertmanager import SECRET_FILES

PAGE = (PROJECT / "docs" / "alerting.md").read_text(encoding="utf-8")
DOWN: dict[str, Any] = {
    "labels": {"alertname": "VLLMLengthServerDown", "severity": "critical", "server": "a:8000"},
    "annotations": {"summary": "The server is gone."},
}


def commands(word: str) -> list[str]:
    """The lines of the page's blocks that begin so."""
    return [
        line
        for block in re.findall(r"```\n(.*?)```", PAGE, re.DOTALL)
        for line in block.splitlines()
        if line.startswith(word)
    ]


def test_rules_without_a_checkout_and_a_changed_threshold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yml").write_text("server_down: {for: 2m}\n", encoding="utf-8")
    first, second = commands("vllm-length-exporter rules")
    for command in (first, second):
        assert CliRunner().invoke(program, shlex.split(command)[1:]).exit_code == 0
    text = (tmp_path / "alerts" / "rules" / "alerts.yml").read_text(encoding="utf-8")
    down = next(
        rule
        for group in yaml.safe_load(text)["groups"]
        for rule in group["rules"]
        if rule["alert"] == "VLLMLengthServerDown"
    )
    assert down["for"] == "2m"
    assert commands("make generate")


@pytest.mark.slow
def test_a_server_is_silenced_by_the_command_of_the_page(tool: Tool, tmp_path: Path) -> None:
    (configuration,) = rendered_with("", tmp_path)["alertmanager/alertmanager.yml"]
    with receiving() as receiver:
        manager = Alertmanager(tool, tmp_path, configuration, {"webhook_url": receiver.url})
        with manager.process:
            manager.wait()
            (command,) = commands("amtool silence add")
            _, *arguments = shlex.split(command.replace("http://127.0.0.1:9093", manager.url))
            subprocess.run([tool("amtool"), *arguments], check=True, capture_output=True)
            other = {**DOWN, "labels": {**DOWN["labels"], "server": "b:8000"}}
            manager.ask("/api/v2/alerts", [DOWN, other])
            wait_for(lambda: receiver.alerts, seconds=30, what="a page arrives")
            told = {one["labels"]["server"] for one in receiver.alerts}
            state = {one["labels"]["server"]: one["status"]["state"] for one in manager.ask("/api/v2/alerts")}
    assert told == {"b:8000"}
    assert state == {"a:8000": "suppressed", "b:8000": "active"}


def test_a_server_is_ignored_for_good(tmp_path: Path) -> None:
    (line,) = re.findall(r"`(ignored_servers: [^`]+)`", PAGE)
    (off,) = re.findall(r"`(disabled_alerts: [^`]+)`", PAGE)
    files = rendered_with(f"{line}\n{off}\n", tmp_path)
    assert any('server!~"a:8000"' in rule["expr"] for rule in alerts(files))
    assert "VLLMLengthLogSilent" not in {rule["alert"] for rule in alerts(files)}


@pytest.mark.slow
def test_a_receiver_is_added_by_a_name_and_a_file(tool: Tool, tmp_path: Path) -> None:
    """Slack beside the webhook, as the page says; both get the page."""
    (configuration,) = rendered_with("notify: {critical: [webhook, slack]}\n", tmp_path)[
        "alertmanager/alertmanager.yml"
    ]
    with receiving() as hook, receiving() as slack:
        secrets = {"webhook_url": hook.url, "slack_api_url": slack.url}
        manager = Alertmanager(tool, tmp_path, configuration, secrets)
        with manager.process:
            manager.wait()
            manager.ask("/api/v2/alerts", [DOWN])
            wait_for(lambda: hook.messages and slack.messages, seconds=30, what="both are told")
    assert slack.messages[0]["channel"] == "#llm-alerts"


def test_the_table_of_receivers_is_right() -> None:
    table = dict(re.findall(r"^\| `(\w+)` \| `(\w+)` \|", PAGE, re.MULTILINE))
    assert table == SECRET_FILES
