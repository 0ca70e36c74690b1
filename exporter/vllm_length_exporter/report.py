"""`doctor`'s answer, as JSON (keys are stable, design section 6) and as text for a person at a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from vllm_length_exporter.derive.values import (
    EngineCapacity,
    EnginePressure,
    Finding,
    Limits,
    ServerView,
    Severity,
    Startup,
    Value,
)
from vllm_length_exporter.terminal import lines

GIB = 1 << 30
LIMIT_KEYS = ("effective", "requested", "window", "max_num_batched_tokens", "max_num_seqs")
CAPACITY_KEYS = (
    "tokens", "memory_bytes", "bytes_per_token", "blocks", "used_blocks", "block_size", "usage_ratio",
    "free_tokens", "full_length_concurrency",
)  # fmt: skip
PRESSURE_KEYS = ("running", "waiting", "waiting_for_capacity", "preemptions_total")
STARTUP_KEYS = ("needed_bytes", "available_bytes", "capacity_tokens", "estimated_limit")


def as_json(views: Iterable[ServerView]) -> bytes:
    """`{"servers": [...]}`, indented; see `as_object`."""
    return msgspec.json.format(
        msgspec.json.encode({"servers": [as_object(view) for view in views]}), indent=2
    )


def as_object(view: ServerView) -> dict[str, Any]:
    """One server as plain objects. Every number is `{"value", "source"}`; a withheld one is absent."""
    return {
        "server": view.server,
        "model_name": view.model_name,
        "vllm_version": view.vllm_version.value if view.vllm_version is not None else None,
        "state": str(view.state),
        "limits": {
            **_numbers(view.limits, LIMIT_KEYS),
            **({"mode": view.limits.mode} if view.limits.mode else {}),
        },
        "why": [
            {"step": step.name, "value": step.value, "source": step.source, "note": step.note}
            for step in view.why
        ],
        "capacity": [{"engine": row.engine, **_numbers(row, CAPACITY_KEYS)} for row in view.capacity],
        "pressure": [{"engine": row.engine, **_numbers(row, PRESSURE_KEYS)} for row in view.pressure],
        "rejections": [
            {"cause": row.cause, "evidence": row.evidence, "count": row.count} for row in view.rejections
        ],
        "rejections_observable": view.rejections_observable,
        "client_errors": (
            None
            if view.client_errors is None
            else {"evidence": view.client_errors[0], "count": view.client_errors[1]}
        ),
        "startup": {
            "outcome": view.startup.outcome,
            **({"cause": str(view.startup.cause)} if view.startup.cause else {}),
            **_numbers(view.startup, STARTUP_KEYS),
        },
        "findings": [_finding(finding) for finding in view.findings],
        "unknown": [{"quantity": item.quantity, "missing": item.missing} for item in view.unknown],
    }


def worst(views: Iterable[ServerView]) -> Severity | None:
    """The gravest finding of all servers, for `--fail-on`."""
    order = list(Severity)
    found = [finding.severity for view in views for finding in view.findings]
    return max(found, key=order.index, default=None)


def as_text(views: Sequence[ServerView]) -> str:
    """What a person reads: the length budget, the KV cache, what holds requests back, and what to do."""
    return "\n".join(lines(_text(view)) for view in views)


def _pair(value: Value[Any] | None) -> dict[str, Any] | None:
    return None if value is None else {"value": value.value, "source": value.source}


def _numbers(
    row: Limits | EngineCapacity | EnginePressure | Startup, keys: tuple[str, ...]
) -> dict[str, Any]:
    return {key: _pair(value) for key in keys if (value := getattr(row, key)) is not None}


def _finding(finding: Finding) -> dict[str, str]:
    return {
        "id": finding.id,
        "severity": str(finding.severity),
        "summary": finding.summary,
        "advice": finding.advice,
        "evidence": finding.evidence,
    }


def _text(view: ServerView) -> Iterator[str]:
    version = f", vLLM {view.vllm_version.value}" if view.vllm_version else ""
    model = f", model {view.model_name}" if view.model_name else ""
    yield f"{view.server}: {view.state}{version}{model}"
    yield from _section("Length", _limit_rows(view))
    if view.why and view.limits.effective is not None:
        yield f"  Why the limit is {view.limits.effective.value:,}"
        for step in view.why:
            value = "-" if step.value is None else _shown(step.name, step.value)
            yield f"    {step.name:<10} {value:>12}  {step.note} ({step.source})"
    for row in view.capacity:
        yield from _section(f"KV cache, engine {row.engine}", _rows(row, CAPACITY_KEYS))
    for pressure in view.pressure:
        yield from _section(f"Requests, engine {pressure.engine}", _rows(pressure, PRESSURE_KEYS))
    refused = [(row.cause, f"{row.count}", row.evidence) for row in view.rejections if row.count]
    yield from _section(f"Refused for length ({view.rejections_observable})", refused)
    if view.startup.outcome == "failed":
        cause = (("cause", str(view.startup.cause or "unknown"), ""),)
        yield from _section("Failed start", [*cause, *_rows(view.startup, STARTUP_KEYS)])
    for finding in view.findings:
        yield ""
        yield f"  [{finding.severity}] {finding.id}: {finding.summary}"
        yield f"    {finding.advice}"
    yield from _section("Not known", [(item.quantity, "-", f"needs {item.missing}") for item in view.unknown])


def _limit_rows(view: ServerView) -> list[tuple[str, str, str]]:
    """From the model to what is in force: the answer to "why is my limit N"."""
    limits = view.limits
    rows = []
    for name, value in (
        ("window (the model)", limits.window),
        ("requested (--max-model-len)", limits.requested),
        ("effective (enforced now)", limits.effective),
        ("at least (histogram)", limits.floor if limits.effective is None else None),
        ("max_num_batched_tokens", limits.max_num_batched_tokens),
        ("max_num_seqs", limits.max_num_seqs),
    ):
        if value is not None:
            rows.append((name, _shown(name, value.value), value.source))
        elif name.startswith("requested") and limits.mode == "default":
            rows.append((name, "not given", "engine_log"))
    return rows


def _rows(row: Any, keys: tuple[str, ...]) -> list[tuple[str, str, str]]:
    return [
        (key, _shown(key, value.value), value.source)
        for key in keys
        if (value := getattr(row, key)) is not None
    ]


def _section(title: str, rows: Sequence[tuple[str, str, str]]) -> Iterator[str]:
    if not rows:
        return
    wide = max(len(name) for name, _, _ in rows)
    yield f"  {title}"
    for name, value, source in rows:
        yield f"    {name:<{wide}}  {value:>16}  {source}".rstrip()


def _shown(name: str, value: object) -> str:
    if isinstance(value, str):
        return value
    if name.endswith("_bytes") and isinstance(value, int):
        return f"{value / GIB:.2f} GiB"
    if name == "usage_ratio" and isinstance(value, float):
        return f"{value:.1%}"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.2f}"
