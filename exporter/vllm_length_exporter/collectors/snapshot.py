"""What the daemon publishes: one immutable record a server, replaced as a whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from vllm_length_exporter.derive.values import ServerView
from vllm_length_exporter.server import Counts


@dataclass(frozen=True, slots=True)
class SourceStatus:
    """How one source of a server did. Times: `last_success` in Unix seconds, `duration` in seconds."""

    source: str  # metrics, models, logs, middleware
    up: bool
    last_success: float | None = None
    duration: float | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class ServerSnapshot:
    """Everything that is published of one server. `view` is None before anything was tried."""

    server: str
    view: ServerView | None = None
    counts: Counts = field(default_factory=Counts)
    sources: tuple[SourceStatus, ...] = ()


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All servers, in the order of the configuration, and what there is to say of the exporter itself."""

    servers: tuple[ServerSnapshot, ...] = ()
    config_reload_ok: bool = True
    config_reload_at: float | None = None  # Unix seconds of the last good (re)load
    job_errors: Mapping[str, int] = field(default_factory=dict)

    def views(self) -> tuple[ServerView, ...]:
        return tuple(server.view for server in self.servers if server.view is not None)
