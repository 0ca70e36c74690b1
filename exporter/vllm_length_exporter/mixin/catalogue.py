"""All rules, and which finding of the exporter has which alert, or why it has none."""

from __future__ import annotations

from collections.abc import Iterator

from . import limits, refusals, saturation, startup, watching
from .query import Query
from .records import records
from .rule import Alert, Group
from .thresholds import Thresholds
from .thresholds_file import read

SUBJECTS = {
    "vllm-length-saturation": saturation.alerts,
    "vllm-length-limits": limits.alerts,
    "vllm-length-refusals": refusals.alerts,
    "vllm-length-startup": startup.alerts,
    "vllm-length-watching": watching.alerts,
}

# Findings without an alert, and why. Each has a runbook page by its own name.
WITHOUT_ALERT = {
    "auto_fit_reduced": "the operator asked vLLM to choose the limit; LimitChanged tells when it chooses another",
    "limit_below_window": "a limit below the model's window is a decision, not a fault; "
    "LimitBelowWorkload tells when the workload needs more",
    "capacity_lines_hidden": "the log level hides the numbers for good, and the series that are withheld are named by "
    "vllm_length_unknown; nobody has to act at a certain time",
}


def alerts(thresholds: Thresholds) -> dict[str, tuple[Alert, ...]]:
    """The alerts of each group, without those that the user does not want.

    Raises:
        UnknownAlertError: `disabled_alerts` names one that there is not.
    """
    query = Query(thresholds)
    made = {name: tuple(subject(query)) for name, subject in SUBJECTS.items()}
    names = {alert.full_name for group in made.values() for alert in group}
    unknown = [name for name in thresholds.disabled_alerts if name not in names]
    if unknown:
        raise UnknownAlertError(unknown[0], names)
    return {
        name: tuple(alert for alert in group if alert.full_name not in thresholds.disabled_alerts)
        for name, group in made.items()
    }


class UnknownAlertError(ValueError):
    """There is no alert of this name."""

    def __init__(self, name: str, names: set[str]) -> None:
        super().__init__(name)
        self.name, self.names = name, names


def recording_groups(thresholds: Thresholds) -> tuple[Group, ...]:
    return records(Query(thresholds))


def alert_groups(thresholds: Thresholds) -> tuple[Group, ...]:
    return tuple(Group(name, group) for name, group in alerts(thresholds).items() if group)


def every_alert() -> Iterator[Alert]:
    """All alerts with the default thresholds."""
    for group in alerts(read()).values():
        yield from group


def alerts_by_finding() -> dict[str, tuple[str, ...]]:
    """The alerts' names for each finding that has any."""
    found: dict[str, dict[str, None]] = {}
    for alert in every_alert():
        for finding in alert.findings:
            found.setdefault(finding, {})[alert.full_name] = None
    return {finding: tuple(names) for finding, names in found.items()}
