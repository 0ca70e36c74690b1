"""How the newest start went, with the numbers of a failure in base units."""

from __future__ import annotations

from vllm_length_exporter.server import ServerState
from vllm_length_exporter.vllm.events import StartFailure

from .values import Startup, Value

_LOG = "startup_log"


def startup(state: ServerState) -> Startup:
    """The account of the newest start; that of a failed one stays until the next start."""
    failure = state.story.failure
    if failure is not None:
        return Startup(
            outcome="failed",
            cause=failure.cause,
            needed_bytes=_number(failure.integer("needed_bytes")),
            available_bytes=_number(failure.integer("available_bytes")),
            capacity_tokens=_number(failure.integer("capacity_tokens")),
            estimated_limit=_number(failure.integer("estimated_limit")),
        )
    if state.story.started or state.first_page_at is not None:
        return Startup(outcome="started")
    if state.ended_reason is not None:
        return Startup(outcome="failed", cause=StartFailure.KILLED)
    return Startup()


def _number(value: int | None) -> Value[int] | None:
    return None if value is None else Value(value, _LOG)
