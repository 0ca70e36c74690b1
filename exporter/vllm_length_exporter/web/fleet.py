"""All servers at a glance: one row each, the worst first, made of text so that five hundred of them are quick."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from vllm_length_exporter.derive.values import Finding, ServerView, Severity, Value

from . import words
from .watched import Watched


@dataclass(frozen=True, slots=True)
class Row:
    """One server. `figures` are limit, capacity, full-length requests that fit, usage, running, waiting."""

    server: str
    link: str
    state: str | None = None  # None: not tried yet
    findings: tuple[Finding, ...] = ()  # those that need somebody
    figures: tuple[str, ...] = ()
    model: str = words.DASH


def rows(watched: Sequence[Watched]) -> list[Row]:
    return [_row(one) for one in sorted(watched, key=_worst_first)]


def _worst_first(one: Watched) -> tuple[int, int, str]:
    if one.view is None:
        return (0, 0, one.server)
    gravest = max((words.GRAVITY[finding.severity] for finding in one.view.findings), default=0)
    return (-gravest, -words.TROUBLE[one.view.state], one.server)


def _row(one: Watched) -> Row:
    link = quote(one.server, safe="")
    if one.view is None:
        return Row(one.server, link)
    return Row(
        one.server,
        link,
        str(one.view.state),
        tuple(finding for finding in one.view.findings if finding.severity is not Severity.INFO),
        _figures(one.view),
        one.view.model_name or words.DASH,
    )


def _figures(view: ServerView) -> tuple[str, ...]:
    limit = view.limits.effective
    usage = [row.usage_ratio for row in view.capacity]
    return (
        words.DASH if limit is None else words.number(limit.value),
        _engines([row.tokens for row in view.capacity]),
        _engines([row.full_length_concurrency for row in view.capacity]),
        ", ".join(words.DASH if value is None else words.percent(value.value) for value in usage)
        or words.DASH,
        _sum([row.running for row in view.pressure]),
        _sum([row.waiting for row in view.pressure]),
    )


def _engines(values: Sequence[Value[Any] | None]) -> str:
    """One field of all engines; said once where they agree: `2 × 10,240`."""
    shown = [words.DASH if value is None else words.number(value.value) for value in values]
    if len(shown) > 1 and len(set(shown)) == 1 and shown[0] != words.DASH:
        return f"{len(shown)} × {shown[0]}"
    return ", ".join(shown) or words.DASH


def _sum(values: Sequence[Value[int] | None]) -> str:
    """Of all engines; a dash where one of them is not known."""
    known = [value.value for value in values if value is not None]
    return words.number(sum(known)) if known and len(known) == len(values) else words.DASH
