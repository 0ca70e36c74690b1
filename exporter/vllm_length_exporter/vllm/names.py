"""Every series of vLLM's metrics page that we read: its spellings, and since when and until when it exists.

Source: vLLM 0.2.7 to 0.33.0 (source read; live servers of 0.16, 0.26 and 0.32).
To add a name, add a row.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

# The prefix is "vllm:", which becomes "vllm_" where a client library escapes colons (OpenMetrics
# negotiation without UTF-8 names, Ray's wrapper), with "ray_" or "kserve_" put before it by those two.
PREFIXES = ("vllm:", "vllm_", "ray_vllm:", "ray_vllm_", "kserve_vllm:")


class Quantity(StrEnum):
    """What a series measures, whatever this version calls it."""

    CACHE_CONFIG = "cache_config"
    KV_USAGE = "kv_usage"
    RUNNING = "running"
    WAITING = "waiting"
    WAITING_BY_REASON = "waiting_by_reason"
    PREEMPTIONS = "preemptions"
    SLEEP_STATE = "sleep_state"
    PROMPT_TOKENS = "prompt_tokens"
    GENERATION_TOKENS = "generation_tokens"
    FINISHED = "finished"
    ITERATIONS = "iterations"
    PROMPT_BUCKET = "prompt_bucket"
    PROMPT_COUNT = "prompt_count"
    PROMPT_SUM = "prompt_sum"
    GENERATION_BUCKET = "generation_bucket"
    GENERATION_COUNT = "generation_count"
    GENERATION_SUM = "generation_sum"
    MAX_TOKENS_BUCKET = "max_tokens_bucket"
    MAX_TOKENS_COUNT = "max_tokens_count"
    HTTP_REQUESTS = "http_requests"
    PROCESS_START = "process_start"


@dataclass(frozen=True, slots=True)
class Name:
    """One exposed name: `first` and `last` are the versions of vLLM that have it, None is "still there"."""

    exposed: str
    quantity: Quantity
    first: str
    last: str | None = None
    prefixed: bool = True


# fmt: off
NAMES = (
    Name("cache_config_info", Quantity.CACHE_CONFIG, "0.5.5"),
    Name("kv_cache_usage_perc", Quantity.KV_USAGE, "0.9.2"),
    Name("gpu_cache_usage_perc", Quantity.KV_USAGE, "0.2.7", "0.11.2"),
    Name("num_requests_running", Quantity.RUNNING, "0.2.7"),
    Name("num_requests_waiting", Quantity.WAITING, "0.2.7"),
    Name("num_requests_waiting_by_reason", Quantity.WAITING_BY_REASON, "0.20.2"),
    Name("num_preemptions_total", Quantity.PREEMPTIONS, "0.4.3"),
    Name("engine_sleep_state", Quantity.SLEEP_STATE, "0.11.2"),
    Name("prompt_tokens_total", Quantity.PROMPT_TOKENS, "0.3.3"),
    Name("generation_tokens_total", Quantity.GENERATION_TOKENS, "0.3.3"),
    Name("request_success_total", Quantity.FINISHED, "0.4.3"),
    Name("iteration_tokens_total_count", Quantity.ITERATIONS, "0.6.6"),
    Name("request_prompt_tokens_bucket", Quantity.PROMPT_BUCKET, "0.4.3"),
    Name("request_prompt_tokens_count", Quantity.PROMPT_COUNT, "0.4.3"),
    Name("request_prompt_tokens_sum", Quantity.PROMPT_SUM, "0.4.3"),
    Name("request_generation_tokens_bucket", Quantity.GENERATION_BUCKET, "0.4.3"),
    Name("request_generation_tokens_count", Quantity.GENERATION_COUNT, "0.4.3"),
    Name("request_generation_tokens_sum", Quantity.GENERATION_SUM, "0.4.3"),
    Name("request_params_max_tokens_bucket", Quantity.MAX_TOKENS_BUCKET, "0.6.6"),
    Name("request_params_max_tokens_count", Quantity.MAX_TOKENS_COUNT, "0.6.6"),
    Name("http_requests_total", Quantity.HTTP_REQUESTS, "0.8.5", prefixed=False),
    Name("process_start_time_seconds", Quantity.PROCESS_START, "0.2.7", prefixed=False),
)
# fmt: on

# Series of our own middleware, which stand on vLLM's page when it is installed.
MIDDLEWARE_PREFIX = "vllm_length_middleware_"
MIDDLEWARE_REFUSED = MIDDLEWARE_PREFIX + "refused_total"
MIDDLEWARE_TRUNCATED = MIDDLEWARE_PREFIX + "truncated_total"
MIDDLEWARE_CLAMPED = MIDDLEWARE_PREFIX + "clamped_total"
MIDDLEWARE_TOTAL_BUCKET = MIDDLEWARE_PREFIX + "total_tokens_bucket"
MIDDLEWARE_ASKED_BUCKET = MIDDLEWARE_PREFIX + "asked_tokens_bucket"

# 0.9.2 to 0.10.2 show both usage gauges with the same value: the newer name is read first.
PREFERENCE = {name.exposed: order for order, name in enumerate(NAMES)}


def spellings() -> dict[str, Name]:
    """All names as they can stand on a page, with the row of the table each belongs to."""
    table = {}
    for name in NAMES:
        for prefix in PREFIXES if name.prefixed else ("",):
            table[prefix + name.exposed] = name
    return table
