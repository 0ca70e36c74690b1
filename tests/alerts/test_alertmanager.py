"""Alertmanager's configuration: accepted, routed by severity, quiet about what another alert explains, and in words."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.alerts import rendered
from tests.alerts.servers import Alertmanager, receiving
from tests.alerts.test_rendering import rendered_with
from tests.conftest import Tool
from tests.deadline import wait_for
from vllm_length_exporter.mixin.alertmanager import SECRET_FILES, SECRETS
from vllm_length_exporter.mixin.thresholds import INTEGRATIONS

COMMITTED = rendered.ALERTS / "alertmanager" / "alertmanager.yml"
SUITES = ("trixie", "forky")  # those that have amtool
EVERYBODY = (
    "notify: {critical: [pagerduty, slack, email, webhook], warning: [slack, email], info: [email]}\n"
    "slack: {channel: '#llm'}\nemail: {to: a@example.com, from: b@example.com}\n"
)


def amtool(tool: Tool, suite: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [tool("amtool", suite=suite), *arguments], capture_output=True, text=True, check=False, timeout=60
    )


@pytest.mark.parametrize("suite", SUITES)
def test_alertmanager_accepts_what_is_committed(tool: Tool, suite: str) -> None:
    done = amtool(tool, suite, "check-config", COMMITTED)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("suite", SUITES)
def test_alertmanager_accepts_every_receiver(tool: Tool, suite: str, tmp_path: Path) -> None:
    files = rendered_with(EVERYBODY, tmp_path)
    done = amtool(tool, suite, "check-config", tmp_path / "out" / "alertmanager" / "alertmanager.yml")
    assert done.returncode == 0, done.stdout + done.stderr
    (configuration,) = files["alertmanager/alertmanager.yml"]
    page = next(receiver for receiver in configuration["receivers"] if receiver["name"] == "page")
    assert set(page) == {"name", *(f"{name}_configs" for name in INTEGRATIONS)}


def test_secrets_come_from_files_and_stand_nowhere(tmp_path: Path) -> None:
    rendered_with(EVERYBODY, tmp_path)
    text = (tmp_path / "out" / "alertmanager" / "alertmanager.yml").read_text(encoding="utf-8")
    for file in SECRET_FILES.values():
        assert f"_file: {SECRETS}/{file}" in text
    for key in ("routing_key:", "api_url:", "auth_password:", " url:"):
        assert key not in text


ROUTES = {
    ("VLLMLengthServerDown", "critical"): "page",
    ("VLLMLengthKVCacheSaturated", "critical"): "page",
    ("VLLMLengthKVCacheSaturated", "warning"): "ticket",
    ("VLLMLengthRejectionsUnobservable", "info"): "nobody",
    ("SomebodyElses", "critical"): "nobody",
}


@pytest.mark.parametrize("suite", SUITES)
@pytest.mark.parametrize(("alert", "severity"), ROUTES)
def test_routes_by_severity(tool: Tool, suite: str, alert: str, severity: str) -> None:
    done = amtool(
        tool, suite, "config", "routes", "test", f"--config.file={COMMITTED}",
        f"--verify.receivers={ROUTES[alert, severity]}", f"alertname={alert}", f"severity={severity}", "server=a:8000",
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_of_ours_has_a_route() -> None:
    configuration = yaml.safe_load(COMMITTED.read_text(encoding="utf-8"))
    for rule in rendered.alerts():
        labels = {"alertname": rule["alert"], **rule["labels"]}
        taken = [
            route["receiver"]
            for route in configuration["route"]["routes"]
            if all(re.fullmatch(value, labels[name]) for name, value in map(_matcher, route["matchers"]))
        ]
        assert len(taken) == 1, labels


def _matcher(text: str) -> tuple[str, str]:
    name, value = re.split("=~?", text, maxsplit=1)
    return name, value.strip('"')


def test_a_note_goes_where_the_user_says(tool: Tool, tmp_path: Path) -> None:
    rendered_with(EVERYBODY, tmp_path)
    done = amtool(
        tool, "forky", "config", "routes", "test",
        f"--config.file={tmp_path / 'out' / 'alertmanager' / 'alertmanager.yml'}", "--verify.receivers=note",
        "alertname=VLLMLengthLogSilent", "severity=info",
    )  # fmt: skip
    assert done.returncode == 0, done.stdout


def alert(name: str, severity: str, **labels: str) -> dict[str, Any]:
    return {
        "labels": {"alertname": f"VLLMLength{name}", "severity": severity, **labels},
        "annotations": {"summary": name},
    }


A = {"server": "a:8000", "job": "vllm-length-exporter", "instance": "x:9832"}
B = {"server": "b:8000", "job": "vllm-length-exporter", "instance": "y:9832"}
EXPORTER = {"job": A["job"], "instance": A["instance"]}
ENGINE = {"model_name": "tiny", "engine": "0"}
LAST_SERVER = "last:1"
LAST = [alert("KVCacheSaturated", severity, server=LAST_SERVER) for severity in ("critical", "warning")]
# What fires together, and which of it stays quiet.
EXPLAINED = {
    "the page says what the ticket says": (
        [alert("KVCacheSaturated", "critical", **A, **ENGINE), alert("KVCacheSaturated", "warning", **A, **ENGINE),
         alert("KVCacheSaturated", "warning", **B, **ENGINE)],
        {("KVCacheSaturated", "warning", "a:8000")},
    ),
    "a failed start explains that the server is down and starts again": (
        [alert("StartupKVCacheTooSmall", "critical", **A), alert("CrashLoop", "critical", **A),
         alert("ServerDown", "critical", **A), alert("LogLost", "warning", **A), alert("ServerDown", "critical", **B)],
        {("CrashLoop", "critical", "a:8000"), ("ServerDown", "critical", "a:8000"), ("LogLost", "warning", "a:8000")},
    ),
    "a server that is down explains its sources and its old numbers": (
        [alert("ServerDown", "critical", **A), alert("SourceDown", "warning", **A, source="models"),
         alert("KVCacheSaturated", "critical", **A, **ENGINE), alert("SourceDown", "warning", **B, source="models")],
        {("SourceDown", "warning", "a:8000"), ("KVCacheSaturated", "critical", "a:8000")},
    ),
    "with the exporter lost, what it saw last is not told": (
        [alert("ExporterDown", "critical", **EXPORTER), alert("KVCacheSaturated", "critical", **A, **ENGINE),
         alert("ServerDown", "critical", **A), alert("ExporterAbsent", "critical", job=A["job"]),
         alert("ServerDown", "critical", **B)],
        {("KVCacheSaturated", "critical", "a:8000"), ("ServerDown", "critical", "a:8000"),
         ("ExporterAbsent", "critical", "")},
    ),
    "two exporters that are lost are told both": (
        [alert("ExporterDown", "critical", **EXPORTER),
         alert("ExporterDown", "critical", job=B["job"], instance=B["instance"])],
        set(),
    ),
    "an engine that hangs shows old numbers": (
        [alert("GaugesFrozen", "critical", **A), alert("AdmissionStall", "critical", **A, **ENGINE),
         alert("PreemptionStorm", "critical", **A, **ENGINE), alert("RejectionsSpike", "critical", **A)],
        {("AdmissionStall", "critical", "a:8000"), ("PreemptionStorm", "critical", "a:8000")},
    ),
    "a stalled queue explains itself": (
        [alert("AdmissionStall", "critical", **A, **ENGINE), alert("KVCacheSaturated", "critical", **A, **ENGINE),
         alert("KVCacheSaturated", "critical", **A, model_name="tiny", engine="1")],
        {("KVCacheSaturated", "critical", "a:8000")},
    ),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("case", EXPLAINED)
def test_what_explains_another_alert_keeps_it_quiet(case: str, tool: Tool, tmp_path: Path) -> None:
    fired, expected = EXPLAINED[case]
    manager = Alertmanager(
        tool,
        tmp_path,
        yaml.safe_load(COMMITTED.read_text(encoding="utf-8")),
        {"webhook_url": "http://127.0.0.1:1/"},
    )
    with manager.process:
        manager.wait()
        manager.ask("/api/v2/alerts", fired)
        manager.ask("/api/v2/alerts", LAST)

        def all_decided() -> list[dict[str, Any]] | None:
            """Alertmanager inhibits in the order of arrival: once it quiets the last alert, it knows all others."""
            seen: list[dict[str, Any]] = manager.ask("/api/v2/alerts")
            last = [one for one in seen if one["labels"].get("server") == LAST_SERVER]
            if len(seen) < len(fired) + len(LAST) or not any(one["status"]["inhibitedBy"] for one in last):
                return None
            return [one for one in seen if one not in last]

        seen = manager.process.wait_until(all_decided, seconds=30, what="all alerts were processed")
    quiet = [
        (
            one["labels"]["alertname"].removeprefix("VLLMLength"),
            one["labels"]["severity"],
            one["labels"].get("server", ""),
        )
        for one in seen
        if one["status"]["inhibitedBy"]
    ]
    assert set(quiet) == expected
    assert len(quiet) == len(expected)


@pytest.mark.slow
def test_messages_hold_limit_capacity_and_the_first_thing_to_do(tool: Tool, tmp_path: Path) -> None:
    """What Slack would get, from the real Alertmanager, with an alert as the rules write it."""
    (configuration,) = rendered_with("notify: {critical: [slack], warning: [], info: []}", tmp_path)[
        "alertmanager/alertmanager.yml"
    ]
    told = next(
        found
        for test in rendered.tests()
        for case in test.get("alert_rule_test", [])
        for found in case["exp_alerts"]
        if case["alertname"] == "VLLMLengthKVCacheSaturated" and found["exp_labels"]["severity"] == "critical"
    )
    with receiving() as receiver:
        manager = Alertmanager(tool, tmp_path, configuration, {"slack_api_url": receiver.url})
        with manager.process:
            manager.wait()
            labels = {"alertname": "VLLMLengthKVCacheSaturated", **told["exp_labels"]}
            manager.ask("/api/v2/alerts", [{"labels": labels, "annotations": told["exp_annotations"]}])
            (message, *_) = wait_for(lambda: receiver.messages, seconds=30, what="a message arrives")
    (attachment,) = message["attachments"]
    notes = told["exp_annotations"]
    assert attachment["color"] == "danger"
    assert (
        attachment["title"]
        == f"[FIRING 1] VLLMLengthKVCacheSaturated on {labels['server']}: {notes['summary']}"
    )
    assert attachment["title_link"] == notes["dashboard_url"]
    text = attachment["text"]
    assert (
        "Limit 8192 tokens. KV cache 10240 tokens an engine. 1.25 requests of the limit fit at once." in text
    )
    assert notes["description"] in text
    assert f"First: {notes['action']}" in text
    assert f"Runbook: {notes['runbook_url']}" in text
