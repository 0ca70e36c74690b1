"""What the status page is made from: one record a server, answered from memory."""

from __future__ import annotations

from dataclasses import dataclass

from vllm_length_exporter.derive.values import ServerView


@dataclass(frozen=True, slots=True)
class Reading:
    """How one source of a server does. `age` is the seconds since its last good read, None if there was none."""

    source: str  # metrics, models, logs, middleware
    up: bool
    age: float | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Point:
    """One engine at one moment (seconds of the monotonic clock); what was not known then is None."""

    at: float
    usage: float | None  # share of KV-cache blocks in use
    preemptions: float | None  # the engine's count so far


@dataclass(frozen=True, slots=True)
class Watched:
    """One configured server. `view` is None before anything was tried."""

    server: str
    view: ServerView | None = None
    readings: tuple[Reading, ...] = ()
