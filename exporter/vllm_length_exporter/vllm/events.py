"""What a vLLM log can tell about length, as events: the one language between `vllm` and `server`.

A record of the log becomes at most one `Event`. Its `name` says what happened, its `message_id` which row
of the catalogue matched, its `fields` hold the numbers in base units (tokens, bytes, ratios, blocks).
A field that the text does not hold is absent; nothing is ever filled in.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

FieldValue = int | float | str | bool | None


class EventName(StrEnum):
    """What happened. The comment names the fields that the event may carry."""

    # --- a start, in the order of the log
    VERSION = "version"  # version: an API server or an engine names its version
    ARGUMENTS = "arguments"  # the non-default arguments, see ARGUMENT_FIELDS; opens a start
    # max_model_len: "Using max model len", before auto-fit; `draft` where it is a draft model's
    MODEL_LENGTH = "model_length"
    # max_model_len: what the draft model takes, to which the limit is `reduced_from` that of the server's own
    DRAFT_LIMIT = "draft_limit"
    # version, generation ("V0", "V1"), max_seq_len, *_parallel_size, kv_cache_dtype, speculative, model
    ENGINE_CONFIG = "engine_config"
    SCHEDULER_LIMITS = "scheduler_limits"  # max_num_batched_tokens, max_num_seqs (either)
    # available_bytes: set aside for the KV cache by one worker (absent where it is rounded to zero);
    # fixed_by_argument where --kv-cache-memory-bytes decided it
    KV_MEMORY = "kv_memory"
    KV_BLOCKS = "kv_blocks"  # num_gpu_blocks; num_gpu_blocks_total is the sum of all data-parallel engines
    KV_CAPACITY = "kv_capacity"  # capacity_tokens and/or full_length_concurrency with max_model_len; device
    BLOCKS_OVERRIDE = "blocks_override"  # blocks_before, blocks_after
    # max_model_len (fitted); max_model_len_before, available_bytes where it was reduced
    AUTO_FIT = "auto_fit"
    BLOCK_SIZE = "block_size"  # block_size: forced by a backend or by a mamba page (`hybrid`)
    # blocks x block size is no capacity here (padding, hybrid, context parallel)
    CAPACITY_TRAP = "capacity_trap"
    # window: what the model's config derives, where the log says so; requested, window_key; `assumed`, not
    # window, where the config names no length
    WINDOW = "window"
    STARTED = "started"  # the server's own "startup complete"
    # cause (see StartFailure), the numbers of FAILURE_FIELDS; `exception` where no row names the cause
    START_FAILED = "start_failed"
    # --- the end, each once in a life
    SHUTDOWN = "shutdown"  # asked for (`asked`, `signal`), or the server's own word that it ends
    ENGINE_DIED = "engine_died"  # an engine or a worker died while it served
    # --- while it serves
    STATISTICS = (
        "statistics"  # running, waiting, kv_cache_usage_ratio, engine; of several: num_engines, mean_...
    )
    # cause (see RefusalCause), limit, prompt_tokens or prompt_tokens_at_least, output_tokens, total_tokens,
    # prompt_characters, prompt_characters_at_most
    REFUSED = "refused"
    ACCESS = "access"  # method, path, status: an access-log line of a client error (4xx or 5xx)
    PREEMPTED = "preempted"  # preemptions: V0's cumulative count
    OTHER = "other"  # recognised, and of no consequence to a number


class StartFailure(StrEnum):
    """Why a start failed, in the words of the contract (`vllm_length_startup_failures_total{cause}`)."""

    KV_CACHE_TOO_SMALL = "kv_cache_too_small"
    NO_KV_MEMORY = "no_kv_memory"
    LIMIT_ABOVE_WINDOW = "limit_above_window"
    MEMORY_BUSY = "memory_busy"
    BATCHED_TOKENS_BELOW_LIMIT = "batched_tokens_below_limit"
    AUTO_FIT_IMPOSSIBLE = "auto_fit_impossible"
    OUT_OF_MEMORY = "out_of_memory"
    CONFIGURATION = "configuration"
    KILLED = "killed"
    OTHER = "other"


class RefusalCause(StrEnum):
    """Why a request was refused, as far as it can be proven (`vllm_length_rejections_total{cause}`)."""

    PROMPT_TOO_LONG = "prompt_too_long"
    PROMPT_PLUS_OUTPUT_TOO_LONG = "prompt_plus_output_too_long"
    OUTPUT_TOO_LONG = "output_too_long"
    NO_ROOM_FOR_OUTPUT = "no_room_for_output"
    OTHER = "other"


ARGUMENT_FIELDS = (  # vLLM's own names; max_model_len is an int or "auto"
    "max_model_len", "max_num_batched_tokens", "max_num_seqs", "num_gpu_blocks_override", "block_size",
    "kv_cache_dtype", "kv_cache_memory_bytes", "gpu_memory_utilization", "enable_chunked_prefill",
    "data_parallel_size", "tensor_parallel_size", "pipeline_parallel_size", "decode_context_parallel_size",
    "prefill_context_parallel_size", "api_server_count", "disable_log_stats", "model", "served_model_name",
    "enable_prefix_caching", "middleware", "speculative",
)  # fmt: skip
FAILURE_FIELDS = (
    "limit", "needed_bytes", "available_bytes", "estimated_limit", "capacity_tokens", "window", "requested",
    "max_num_batched_tokens", "max_num_seqs", "free_bytes", "total_bytes", "desired_bytes", "window_key",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Process:
    """Who wrote the record, from its prefix: `(EngineCore_DP0 pid=13668)`; both parts may be missing."""

    name: str | None = None
    pid: int | None = None

    @property
    def engine(self) -> str | None:
        """The engine's rank as the metrics page labels it ("0", "1"), where the name holds one."""
        name = self.name or ""
        if "_DP" in name:
            digits = name.split("_DP", 1)[1].split("_", 1)[0]
            return digits if digits.isdigit() else None
        if name.startswith("EngineCore_") and name.removeprefix("EngineCore_").isdigit():
            return name.removeprefix("EngineCore_")
        return None


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that the log said."""

    name: EventName
    message_id: str
    fields: Mapping[str, FieldValue] = field(default_factory=lambda: MappingProxyType({}))
    process: Process = Process()
    stamp: str | None = None  # the record's own time as printed; it has no year and no zone

    def integer(self, key: str) -> int | None:
        """The field as a whole number, or None where it is absent or something else."""
        value = self.fields.get(key)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def number(self, key: str) -> float | None:
        """The field as a number, or None where it is absent or something else."""
        value = self.fields.get(key)
        return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None

    def text(self, key: str) -> str | None:
        """The field as text, or None where it is absent or something else."""
        value = self.fields.get(key)
        return value if isinstance(value, str) else None
