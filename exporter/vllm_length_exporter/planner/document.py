"""The plan as plain objects for JSON. Keys are stable; what is not known is absent or null, never 0."""

from __future__ import annotations

from typing import Any

import msgspec

from vllm_length_exporter.planner.cost import Cost, Offer
from vllm_length_exporter.planner.plan import Plan
from vllm_length_exporter.planner.weights import Span


def as_json(plan: Plan, cost: Cost | None = None) -> str:
    """The plan as one indented JSON object."""
    return msgspec.json.format(msgspec.json.encode(as_object(plan, cost)), indent=2).decode()


def as_object(plan: Plan, cost: Cost | None = None) -> dict[str, Any]:
    """A number with a range is `{"low", "high"}`, also where both are the same."""
    memory_known = plan.capacity is not None
    return {
        "subject": plan.subject,
        "vllm_version": str(plan.settings.version),
        "model": _model(plan),
        "limit": {"value": plan.limit, "source": plan.limit_source} if plan.limit else None,
        "window": _window(plan),
        "kv_cache": _kv_cache(plan),
        "memory": _memory(plan),
        "capacity": {
            "tokens": _span(plan.reported_tokens),
            "full_length_concurrency": None
            if plan.full_length_concurrency is None
            else {"low": plan.full_length_concurrency[0], "high": plan.full_length_concurrency[1]},
            "engines": None if plan.capacity is None else plan.capacity.engines,
        },
        "starts": None if not memory_known or plan.measured is not None else plan.refusal is None,
        "at_lengths": [
            {
                "tokens": row.length,
                "requests": _span(row.requests) if memory_known else None,
                "needed_bytes": row.needed_bytes,
            }
            for row in plan.at_lengths
        ],
        "at_concurrencies": [
            {"requests": row.requests, "tokens": _span(row.longest)} for row in plan.at_concurrencies
        ],
        "what_ifs": [
            {"change": row.change, "requests": _span(row.requests), "longest": _span(row.longest)}
            for row in plan.what_ifs
        ],
        "flags": [{"flag": flag.name, "value": flag.value, "reason": flag.reason} for flag in plan.flags],
        "problems": list(plan.problems),
        "notes": list(plan.notes),
        "cost": None if cost is None else _cost(cost),
    }


def _span(span: Span | None) -> dict[str, int] | None:
    return None if span is None else {"low": span.low, "high": span.high}


def _model(plan: Plan) -> dict[str, Any] | None:
    if plan.model is None:
        return None
    return {
        "type": plan.model.model_type,
        "attention": plan.model.attention,
        "layers": len(plan.model.layers),
    }


def _window(plan: Plan) -> dict[str, Any] | None:
    if plan.window is None:
        return None
    return {
        "tokens": plan.window.window,
        "default_limit": plan.window.default_limit,
        "key": plan.window.key,
        "rope_type": plan.window.rope_type,
        "rope_rule": plan.window.rope_rule,
    }


def _kv_cache(plan: Plan) -> dict[str, Any] | None:
    if plan.layout is not None:
        return {
            "source": "config.json",
            "dtype": plan.layout.kv_cache_dtype,
            "bytes_per_token": plan.layout.bytes_per_token,
            "bytes_per_token_within_windows": plan.layout.bytes_per_token_within_windows,
            "bytes_per_request": plan.layout.state_bytes,
            "block_size": plan.layout.block_size,
            "block_bytes": plan.layout.block_bytes,
            "groups": len(plan.layout.groups),
        }
    if plan.measured is not None:
        return {"source": "measured", "bytes_per_token": plan.measured.bytes_per_token}
    return None


def _memory(plan: Plan) -> dict[str, Any] | None:
    if plan.budget is None:
        measured = plan.measured.memory_bytes if plan.measured is not None else None
        return (
            None
            if measured is None
            else {"source": "measured", "kv_cache_bytes": {"low": measured, "high": measured}}
        )
    return {
        "source": plan.budget.source,
        "kv_cache_bytes": _span(plan.budget.kv_cache),
        "taken_before": [
            {"name": part.name, "bytes": _span(part.bytes), "source": part.source}
            for part in plan.budget.parts
        ],
    }


def _cost(cost: Cost) -> dict[str, Any]:
    return {
        "currency": cost.currency,
        "workload": msgspec.to_builtins(cost.workload),
        "recomputed_tokens": _span(cost.recomputed_tokens),
        "offers": [_offer(offer) for offer in cost.offers],
        "break_even": [{"api": name, "share_of_this_workload": share} for name, share in cost.break_even],
    }


def _offer(offer: Offer) -> dict[str, Any]:
    each = offer.per_million
    return {
        "name": offer.name,
        "total": offer.total,
        "per_million_tokens": {
            "input": each.input,
            "cached_input": each.cached_input,
            "output": each.output,
            "all": each.all,
        },
        "waste": {
            "recomputation": {"low": offer.waste.recomputation[0], "high": offer.waste.recomputation[1]},
            "truncation": offer.waste.truncation,
            "refusals": 0.0,
        },
    }
