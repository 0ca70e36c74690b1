"""Puts everything that is derived of one server together: `ServerState -> ServerView`."""

from __future__ import annotations

from dataclasses import dataclass

from vllm_length_exporter.server import ServerState
from vllm_length_exporter.vllm.model_config import Config

from .capacity import capacity, is_v0
from .chain import chain
from .evidence import Evidence, evidence, server_state
from .findings import findings
from .limits import limits
from .pressure import pressure
from .rejections import clamped_requests, rejections, truncations_by_cause
from .startup import startup
from .values import ServerView, State, Value
from .workload import binding, concurrency_table, workload


@dataclass(frozen=True, slots=True)
class Horizon:
    """How far back to look, in seconds: `stale_after` drops a source, `window` is that of rates and shares."""

    stale_after: float = 15.0
    window: float = 300.0
    workload_window: float = 3600.0


def view(
    state: ServerState, now: float, horizon: Horizon, model_config: Config | None = None
) -> ServerView | None:
    """All that can be said of a server at `now`, or None before anything was tried.

    `model_config` is the model's config.json, if the user named it.
    """
    condition = server_state(state, now, horizon.stale_after)
    if condition is None:
        return None
    return assemble(state, evidence(state, now, horizon.stale_after), condition, horizon, now, model_config)


def assemble(
    state: ServerState,
    sources: Evidence,
    condition: State,
    horizon: Horizon,
    now: float,
    model_config: Config | None = None,
) -> ServerView:
    """The view from sources that the caller vouches for (files that belong together, or a live server's)."""
    found_limits = limits(sources, model_config)
    effective = found_limits.limits.effective
    found_capacity = capacity(sources, effective.value if effective is not None else None)
    found_rejections = rejections(sources, state)
    found_workload = workload(sources, state, effective.value if effective is not None else None)
    version = sources.vllm_version
    is_there = (
        sources != Evidence()
    )  # of a process that is gone nothing is withheld: there is nothing to know
    without = ServerView(
        server=state.name,
        state=condition,
        model_name=sources.model_name,
        vllm_version=None if version is None else Value(*version),
        engine_generation=_generation(sources),
        limits=found_limits.limits,
        why=chain(sources, found_limits.limits, found_capacity.engines, found_limits.window_rule),
        capacity=found_capacity.engines,
        pressure=pressure(sources, state, horizon.window),
        rejections=found_rejections.rejections,
        rejections_observable=found_rejections.level if is_there else None,
        client_errors=found_rejections.client_errors,
        truncations_by_cause=truncations_by_cause(sources),
        clamped_requests=clamped_requests(sources),
        at_most=found_workload.at_most,
        recommended=found_workload.recommended,
        concurrency_at=concurrency_table(found_capacity.engines, found_limits.limits),
        binding=(
            binding(state.history, found_capacity.engines, found_limits.limits, horizon.window)
            if sources.page is not None
            else ()
        ),
        startup=startup(state),
        unknown=(
            (
                *found_limits.unknown,
                *found_capacity.unknown,
                *found_rejections.unknown,
                *found_workload.unknown,
            )
            if is_there
            else ()
        ),
        disagreements=(*found_limits.disagreements, *found_capacity.disagreements),
    )
    return findings(without, sources, state, now)


def _generation(sources: Evidence) -> str | None:
    if sources.page is None and sources.story.generation is None:
        return None
    return "V0" if is_v0(sources) else "V1"
