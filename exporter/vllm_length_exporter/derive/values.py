"""Values with evidence: what the collectors, the report and the page are made from.

Every number is a `Value` that says where it came from. One that the inputs do not determine is None
in its place and an `Unknown` in the list, naming what is missing. Never 0, never -1, never a guess.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Value(Generic[T]):
    """A number and its evidence, for example `Value(8192, "models_api")`."""

    value: T
    source: str


@dataclass(frozen=True, slots=True)
class Unknown:
    """A number that is withheld: `quantity` is its series less the prefix, `missing` what would decide it."""

    quantity: str
    missing: str


class State(StrEnum):
    """What the server does now (`vllm_length_server_state`)."""

    STARTING = "starting"
    UP = "up"
    SLEEPING = "sleeping"
    STALLED = "stalled"
    FAILED = "failed"
    DOWN = "down"


class Severity(StrEnum):
    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"


@dataclass(frozen=True, slots=True)
class Limits:
    """The length budget of one server, in tokens."""

    effective: Value[int] | None = None
    mode: str | None = None  # default, explicit, auto
    requested: Value[int | str] | None = None  # a number, or "auto"
    window: Value[int] | None = None
    floor: Value[int] | None = None  # a lower bound of the limit, from a histogram's top bucket
    max_num_batched_tokens: Value[int] | None = None
    max_num_seqs: Value[int] | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """One step from the model's window to the limit in force; `value` in tokens, "auto", or None."""

    name: str  # window, requested, draft, auto_fit, capacity, effective
    value: int | str | None
    source: str
    note: str


@dataclass(frozen=True, slots=True)
class EngineCapacity:
    """The KV cache of one engine."""

    engine: str
    tokens: Value[int] | None = None  # as vLLM reports it, null block included
    memory_bytes: Value[int] | None = None
    bytes_per_token: Value[float] | None = None
    blocks: Value[int] | None = None  # usable: without the null block
    used_blocks: Value[int] | None = None
    block_size: Value[int] | None = None
    usage_ratio: Value[float] | None = None
    free_tokens: Value[int] | None = None
    full_length_concurrency: Value[float] | None = None
    one_group: bool = False  # proven: every token costs one block for each block size


@dataclass(frozen=True, slots=True)
class EnginePressure:
    """What holds the requests of one engine back."""

    engine: str
    running: Value[int] | None = None
    waiting: Value[int] | None = None
    waiting_for_capacity: Value[int] | None = None
    preemptions_total: Value[int] | None = None
    preemptions_per_second: Value[float] | None = None
    truncations_total: Value[int] | None = None
    finished_total: Value[int] | None = None  # for whatever reason: what shares of requests are shares of


@dataclass(frozen=True, slots=True)
class Rejections:
    """Requests refused for one provable cause, by one kind of evidence."""

    cause: str
    evidence: str
    count: int


@dataclass(frozen=True, slots=True)
class Startup:
    """How the newest start went."""

    outcome: str = "unknown"  # started, failed, unknown
    cause: str | None = None
    needed_bytes: Value[int] | None = None
    available_bytes: Value[int] | None = None
    capacity_tokens: Value[int] | None = None
    estimated_limit: Value[int] | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """A named problem that holds now (design section 8), with advice that carries the server's numbers."""

    id: str
    severity: Severity
    summary: str
    advice: str
    evidence: str


@dataclass(frozen=True, slots=True)
class Disagreement:
    """Sources that should agree and do not: `ratio` is the largest relative gap, 0 when they agree."""

    quantity: str
    ratio: float


@dataclass(frozen=True, slots=True)
class AtMost:
    """The bucket edge, in tokens, that a share of the finished requests stays within."""

    part: str  # prompt, generation, total
    share: float
    tokens: int
    source: str


@dataclass(frozen=True, slots=True)
class Recommendation:
    """The smallest limit, in tokens, that would have served this share of the finished requests."""

    coverage: float
    tokens: int
    source: str


@dataclass(frozen=True, slots=True)
class ConcurrencyAt:
    """How many requests of `tokens` would fit at once in one engine's usable blocks."""

    engine: str
    tokens: int
    requests: float


@dataclass(frozen=True, slots=True)
class Binding:
    """The share of the window in which `limit` held requests of an engine back; "nothing" is one of them."""

    engine: str
    limit: str
    ratio: float


@dataclass(frozen=True, slots=True)
class ServerView:
    """Everything that is known of one server at one moment."""

    server: str
    state: State
    model_name: str | None = None
    vllm_version: Value[str] | None = None
    engine_generation: str | None = None
    limits: Limits = Limits()
    why: tuple[Step, ...] = ()  # from the window to the effective limit
    capacity: tuple[EngineCapacity, ...] = ()
    pressure: tuple[EnginePressure, ...] = ()
    rejections: tuple[Rejections, ...] = ()
    rejections_observable: str | None = None  # exact, upper_bound, none; None while there is no server
    client_errors: tuple[str, int] | None = None  # (evidence, count): a bound where nothing is exact
    truncations_by_cause: tuple[tuple[str, int], ...] = ()  # from the middleware
    clamped_requests: int | None = None  # from the middleware
    at_most: tuple[AtMost, ...] = ()
    recommended: tuple[Recommendation, ...] = ()
    concurrency_at: tuple[ConcurrencyAt, ...] = ()
    binding: tuple[Binding, ...] = ()
    startup: Startup = Startup()
    findings: tuple[Finding, ...] = ()
    unknown: tuple[Unknown, ...] = ()
    disagreements: tuple[Disagreement, ...] = ()
