"""Alertmanager's configuration: who is told of what, and what explains what."""

from __future__ import annotations

from typing import Any

from .rule import NAME
from .thresholds import Integration, Thresholds

SECRETS = "/etc/alertmanager/secrets"
# Each integration reads its address or key from one file, so that none stands in a configuration.
SECRET_FILES: dict[Integration, str] = {
    "webhook": "webhook_url",
    "pagerduty": "pagerduty_routing_key",
    "slack": "slack_api_url",
    "email": "smtp_password",
}
TEMPLATES = "/etc/alertmanager/templates/*.tmpl"
# What makes an alert the same trouble as another one of its server.
SAME = ["alertname", "server", "model_name", "engine"]
NOT_SERVING = f"{NAME}(ServerDown|CrashLoop|ServerUnresponsive|Startup.*)"


def configuration(thresholds: Thresholds) -> dict[str, Any]:
    """The file `alertmanager.yml`."""
    return {
        "templates": [TEMPLATES],
        "route": _route(thresholds),
        "inhibit_rules": _inhibitions(),
        "receivers": [
            {"name": "nobody"},
            _receiver("page", thresholds.notify.critical, thresholds),
            _receiver("ticket", thresholds.notify.warning, thresholds),
            _receiver("note", thresholds.notify.info, thresholds),
        ],
    }


def _route(thresholds: Thresholds) -> dict[str, Any]:
    ours = f'alertname=~"{NAME}.*"'

    def child(severity: str, receiver: str, **settings: str) -> dict[str, Any]:
        return {"receiver": receiver, "matchers": [ours, f'severity="{severity}"'], **settings}

    return {
        # alerts of others that share this Alertmanager: give them routes of their own
        "receiver": "nobody",
        "group_by": ["alertname", "server", "severity"],
        "group_wait": "30s",
        "group_interval": "5m",
        "repeat_interval": "12h",
        "routes": [
            child("critical", "page", group_wait="10s", repeat_interval="1h"),
            child("warning", "ticket"),
            child("info", "note" if thresholds.notify.info else "nobody", repeat_interval="1d"),
        ],
    }


def _inhibitions() -> list[dict[str, Any]]:
    def rule(source: str, target: list[str], equal: list[str]) -> dict[str, Any]:
        return {"source_matchers": [source], "target_matchers": target, "equal": equal}

    ours = f'alertname=~"{NAME}.*"'
    return [
        # the page says what the ticket says
        rule('severity="critical"', [ours, 'severity=~"warning|info"'], SAME),
        rule('severity="warning"', [ours, 'severity="info"'], SAME),
        # with the exporter lost, what still fires of its servers is what it saw last
        rule(
            f'alertname="{NAME}ExporterDown"', [ours, f'alertname!="{NAME}ExporterDown"'], ["job", "instance"]
        ),
        rule(f'alertname="{NAME}ExporterDown"', [f'alertname="{NAME}ExporterAbsent"'], []),
        # a server that does not serve explains everything else about it
        rule(f'alertname=~"{NOT_SERVING}"', [ours, 'severity=~"warning|info"'], ["server"]),
        rule(
            f'alertname=~"{NOT_SERVING}"',
            [
                f'alertname=~"{NAME}(KVCacheSaturated|PreemptionStorm|AdmissionStall|RejectionsSpike|GaugesFrozen)"'
            ],
            ["server"],
        ),
        # a failed start has a cause, and that it starts again or is down is no news
        rule(
            f'alertname=~"{NAME}Startup.*"',
            [f'alertname=~"{NAME}(ServerDown|CrashLoop|ServerUnresponsive)"'],
            ["server"],
        ),
        rule(f'alertname="{NAME}CrashLoop"', [f'alertname="{NAME}ServerDown"'], ["server"]),
        # an engine that hangs shows old numbers
        rule(
            f'alertname="{NAME}GaugesFrozen"',
            [
                f'alertname=~"{NAME}(KVCacheSaturated|KVCacheFilling|PreemptionStorm|AdmissionStall|MaxNumSeqsBinding)"'
            ],
            ["server"],
        ),
        # a queue that does not move fills up
        rule(
            f'alertname="{NAME}AdmissionStall"',
            [f'alertname=~"{NAME}(KVCacheSaturated|MaxNumSeqsBinding|CapacityBelowLimit)"'],
            ["server", "model_name", "engine"],
        ),
    ]


def _receiver(name: str, integrations: tuple[Integration, ...], thresholds: Thresholds) -> dict[str, Any]:
    receiver: dict[str, Any] = {"name": name}
    for integration in dict.fromkeys(integrations):
        receiver[f"{integration}_configs"] = [_integration(integration, thresholds)]
    return receiver


def _integration(integration: Integration, thresholds: Thresholds) -> dict[str, Any]:
    secret = f"{SECRETS}/{SECRET_FILES[integration]}"
    if integration == "webhook":
        return {"send_resolved": True, "url_file": secret, "max_alerts": 50}
    if integration == "pagerduty":
        return {
            "send_resolved": True,
            "routing_key_file": secret,
            "severity": '{{ template "vllm_length.severity" . }}',
            "description": '{{ template "vllm_length.title" . }}',
            "client": "vllm-length-exporter",
            "client_url": '{{ template "vllm_length.dashboard" . }}',
            "details": {
                "what": '{{ template "vllm_length.text" . }}',
                "runbook": '{{ template "vllm_length.runbook" . }}',
            },
        }
    if integration == "slack":
        return {
            "send_resolved": True,
            "api_url_file": secret,
            "channel": thresholds.slack.channel,
            "color": '{{ template "vllm_length.color" . }}',
            "title": '{{ template "vllm_length.title" . }}',
            "title_link": '{{ template "vllm_length.dashboard" . }}',
            "text": '{{ template "vllm_length.text" . }}',
        }
    return {
        "send_resolved": True,
        "to": thresholds.email.to,
        "from": thresholds.email.sender,
        "smarthost": thresholds.email.smarthost,
        "auth_username": thresholds.email.username,
        "auth_password_file": secret,
        "headers": {"Subject": '{{ template "vllm_length.title" . }}'},
        "html": "",
        "text": '{{ template "vllm_length.text" . }}',
    }
