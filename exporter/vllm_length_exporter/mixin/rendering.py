"""Everything that is rendered from the thresholds: a text for each file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from . import kubernetes
from .alertmanager import configuration
from .catalogue import alert_groups, recording_groups
from .document import groups, to_yaml
from .thresholds import Thresholds

MESSAGES = Path(__file__).with_name("vllm-length.tmpl")


def files(thresholds: Thresholds, boards: Mapping[str, str]) -> dict[str, str]:
    """Text by path, relative to the output folder. `boards` are dashboards for Kubernetes: file name -> JSON.

    Raises:
        UnknownAlertError: the thresholds disable an alert that there is not.
    """
    recording, alerting = recording_groups(thresholds), alert_groups(thresholds)
    made = {
        "rules/recording.yml": to_yaml(groups(recording, thresholds)),
        "rules/alerts.yml": to_yaml(groups(alerting, thresholds)),
        "alertmanager/alertmanager.yml": to_yaml(configuration(thresholds)),
        f"alertmanager/templates/{MESSAGES.name}": MESSAGES.read_text(encoding="utf-8"),
        "kubernetes/prometheus-rule.yaml": to_yaml(
            kubernetes.prometheus_rule((*recording, *alerting), thresholds)
        ),
        "kubernetes/pod-monitor.yaml": to_yaml(kubernetes.pod_monitor()),
        "kubernetes/sidecar.yaml": to_yaml(*kubernetes.sidecar()),
    }
    if boards:
        made["kubernetes/dashboards.yaml"] = to_yaml(*kubernetes.dashboards(boards))
    return made
