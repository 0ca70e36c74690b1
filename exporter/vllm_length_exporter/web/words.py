"""Numbers and codes as a person reads them."""

from __future__ import annotations

from vllm_length_exporter.derive.values import Severity, State

DASH = "–"
GIB = 1 << 30

# Where a number comes from, after "from".
SOURCES = {
    "models_api": "the server's /v1/models",
    "metrics": "the metrics page",
    "cache_config": "the metrics page (cache_config_info)",
    "startup_log": "the start in the log",
    "engine_log": "the arguments in the log",
    "auto_fit_log": "the auto-fit line in the log",
    "model_config": "the model's config.json",
    "block_product": "blocks × block size",
    "histogram_bound": "the top bucket of a histogram",
    "middleware": "the middleware in vLLM",
}
CAUSES = {
    "prompt_too_long": ("Prompt too long", "Shorten the prompt, or raise the limit."),
    "prompt_plus_output_too_long": (
        "Prompt and output together too long",
        "Ask for less output: what the prompt leaves of the limit.",
    ),
    "output_too_long": ("Output alone too long", "Ask for less output than the limit."),
    "no_room_for_output": ("No room for output", "The prompt fills the limit: shorten it."),
    "other": ("Other, or not provable", "Look at the body of such an answer."),
}
EVIDENCE = {
    "middleware": "counted by the middleware",
    "server_log": "counted in the server's log",
    "access_log": "the access log's client errors",
    "http_counters": "the HTTP counters' client errors",
}
LIMITS = {
    "kv_cache": "the KV cache",
    "max_num_seqs": "max_num_seqs",
    "max_num_batched_tokens": "max_num_batched_tokens",
    "nothing": "nothing",
}
FAILURES = {
    "kv_cache_too_small": "the KV cache is too small for one request of the limit",
    "no_kv_memory": "no memory is left for the KV cache",
    "limit_above_window": "the limit is above the model's window",
    "memory_busy": "the memory is in use by something else",
    "batched_tokens_below_limit": "max_num_batched_tokens is below the limit",
    "auto_fit_impossible": "no limit fits into the memory",
    "out_of_memory": "the memory ran out",
    "configuration": "a setting is wrong",
    "killed": "the process was killed",
    "other": "for a reason that is not about length",
}
TRUNCATIONS = {
    "context_full": "The limit was reached",
    "max_tokens": "The client's max_tokens was reached",
    "unknown": "Either",
}
MODES = {"default": "not given", "explicit": "given", "auto": "auto"}
GRAVITY = {None: 0, Severity.INFO: 1, Severity.WARNING: 2, Severity.CRITICAL: 3}
TROUBLE = {
    State.FAILED: 3,
    State.DOWN: 3,
    State.STALLED: 2,
    State.STARTING: 1,
    State.SLEEPING: 0,
    State.UP: 0,
}


def source(code: str) -> str:
    return SOURCES.get(code, code)


def number(value: float) -> str:
    """`8,192`; `1.25`."""
    return f"{value:,}" if isinstance(value, int) else f"{value:,.2f}"


def gib(value: float) -> str:
    return f"{value / GIB:,.2f} GiB"


def byte_size(value: float) -> str:
    """Bytes in the unit that keeps the number short."""
    for size, name in ((GIB, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if value >= size:
            return f"{value / size:,.2f} {name}"
    return f"{value:,.0f} B"


def percent(value: float) -> str:
    return f"{value:.1%}"


def ago(seconds: float | None) -> str:
    if seconds is None:
        return "never"
    if seconds < 90:
        return f"{seconds:.0f} s ago"
    return f"{seconds / 60:.0f} min ago" if seconds < 5400 else f"{seconds / 3600:.1f} h ago"
