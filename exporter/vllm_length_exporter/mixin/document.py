"""Rules as Prometheus reads them: plain mappings, and YAML with expressions on lines of their own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import yaml

from vllm_length_exporter.collectors.kv_cache import CAPACITY, CONCURRENCY
from vllm_length_exporter.collectors.limits import MAX_MODEL_LEN

from .query import Query
from .rule import Alert, Group, Record
from .thresholds import Thresholds, seconds

HEADER = "# Rendered by `vllm-length-exporter rules`. Edit alerts/thresholds.yml and run `make generate`.\n"


def groups(of: Iterable[Group], thresholds: Thresholds) -> dict[str, Any]:
    """The content of a rule file."""
    return {
        "groups": [
            {"name": group.name, "rules": [_rule(rule, thresholds) for rule in group.rules]} for group in of
        ]
    }


def _rule(rule: Record | Alert, thresholds: Thresholds) -> dict[str, Any]:
    if isinstance(rule, Record):
        return {"record": rule.name, "expr": rule.expr}
    held = {"for": rule.hold} if seconds(rule.hold) else {}
    keep = thresholds.keep_firing_for if rule.keep is None else rule.keep
    kept = {"keep_firing_for": keep} if seconds(keep) else {}
    return {
        "alert": rule.full_name,
        "expr": rule.expr,
        **held,
        **kept,
        "labels": {"severity": str(rule.severity), **thresholds.labels},
        "annotations": _annotations(rule, thresholds),
    }


def _annotations(alert: Alert, thresholds: Thresholds) -> dict[str, str]:
    query = Query(thresholds)
    context = " ".join(
        query.shown_if(metric, text, shape)
        for metric, text, shape in (
            (MAX_MODEL_LEN, "Limit @ tokens.", "%.0f"),
            (CAPACITY, "KV cache @ tokens an engine.", "%.0f"),
            (CONCURRENCY, "@ requests of the limit fit at once.", "%.3g"),
        )
    )
    board = f"{thresholds.links.grafana.rstrip('/')}/d/{alert.dashboard}"
    return {
        "summary": alert.summary,
        "description": alert.description,
        "action": alert.action,
        **({"context": context} if alert.per_server else {}),
        "runbook_url": f"{thresholds.links.runbooks.rstrip('/')}/{alert.full_name}.md",
        "dashboard_url": f"{board}?var-server={{{{ $labels.server }}}}" if alert.per_server else board,
    }


class _Dumper(yaml.SafeDumper):
    """Texts of several lines as blocks, so that a reader and a diff see them as they are."""

    def ignore_aliases(self, data: Any) -> bool:
        del data
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)


def to_yaml(*documents: Mapping[str, Any], header: str = HEADER) -> str:
    """One file of one or more documents."""
    texts = [
        yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=10_000)
        for document in documents
    ]
    return header + "---\n".join(texts)
