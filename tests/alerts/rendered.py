"""The committed rules and their promtool tests, as the tests of this folder read them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tests.tools.cache import PROJECT

ALERTS = PROJECT / "alerts"
RULE_FILES = sorted((ALERTS / "rules").glob("*.yml"))
TEST_FILES = sorted((ALERTS / "tests").glob("*.yml"))
RUNBOOKS = ALERTS / "runbooks"
NIGHT = ALERTS / "tests" / "night.yml"
# What the tests ask at a moment: everything that fires, each with its severity.
FIRING = 'count by (alertname, severity, server) (ALERTS{alertstate="firing"})'


@dataclass(frozen=True, order=True, slots=True)
class Kind:
    """An alert of one severity: what has thresholds of its own."""

    alert: str
    severity: str


@cache
def document(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def groups() -> Iterator[dict[str, Any]]:
    for path in RULE_FILES:
        yield from document(path)["groups"]


def alerts() -> list[dict[str, Any]]:
    return [rule for group in groups() for rule in group["rules"] if "alert" in rule]


def records() -> list[dict[str, Any]]:
    return [rule for group in groups() for rule in group["rules"] if "record" in rule]


def kind(rule: dict[str, Any]) -> Kind:
    return Kind(rule["alert"], rule["labels"]["severity"])


def tests() -> list[dict[str, Any]]:
    return [test for path in TEST_FILES for test in document(path)["tests"]]


def firing(test: dict[str, Any]) -> list[set[Kind]]:
    """What fires at each moment that a test asks for everything that fires."""
    return [
        {
            Kind(labels["alertname"], labels["severity"])
            for labels in map(_labels, case.get("exp_samples") or [])
        }
        for case in test.get("promql_expr_test", [])
        if case["expr"] == FIRING
    ]


def told(test: dict[str, Any]) -> set[Kind]:
    """The alerts whose texts a test has word for word."""
    return {
        Kind(case["alertname"], alert["exp_labels"]["severity"])
        for case in test.get("alert_rule_test", [])
        for alert in case["exp_alerts"]
    }


def cases() -> int:
    return sum(
        len(test.get("promql_expr_test", [])) + len(test.get("alert_rule_test", [])) for test in tests()
    )


def _labels(sample: dict[str, Any]) -> dict[str, str]:
    return dict(re.findall(r'(\w+)="([^"]*)"', sample["labels"]))
