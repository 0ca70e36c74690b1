"""Starts that failed, by their root cause."""

from __future__ import annotations

from collections.abc import Callable

from vllm_length_exporter.derive.rules.case import Case, Said
from vllm_length_exporter.vllm.events import StartFailure
from vllm_length_exporter.vllm.release import within

CRASH_LOOP_STARTS = 3
CRASH_LOOP_SECONDS = 900.0
GIB = 1 << 30
_CAUSES = {
    StartFailure.KV_CACHE_TOO_SMALL: "the KV cache cannot hold one request of the limit",
    StartFailure.NO_KV_MEMORY: "no memory is left for the KV cache",
    StartFailure.LIMIT_ABOVE_WINDOW: "--max-model-len is above what the model's config derives",
    StartFailure.AUTO_FIT_IMPOSSIBLE: "the KV cache cannot hold a single token",
    StartFailure.MEMORY_BUSY: "the device's memory is in use by something else",
    StartFailure.BATCHED_TOKENS_BELOW_LIMIT: "--max-num-batched-tokens is below the limit, without chunked prefill",
}
_FAILURE_TEXTS = (
    ("limit", "limit {} tokens"),
    ("requested", "asked for {} tokens"),
    ("window", "window {} tokens"),
    ("max_num_batched_tokens", "max_num_batched_tokens {}"),
    ("capacity_tokens", "capacity {} tokens"),
    ("needed_bytes", "{:.2f} GiB needed"),
    ("available_bytes", "{:.2f} GiB available"),
    ("free_bytes", "{:.2f} GiB free"),
)


def failed(cause: StartFailure, advice: Callable[[Case], str]) -> Callable[[Case], Said | None]:
    def check(case: Case) -> Said | None:
        failure = case.state.story.failure
        if failure is None or failure.cause != cause:
            return None
        numbers = "".join(_told(failure.integer(key), text) for key, text in _FAILURE_TEXTS)
        return Said(f"The server did not start: {_CAUSES[cause]}{numbers}.", advice(case), "the startup log")

    return check


def _told(value: int | None, text: str) -> str:
    if value is None:
        return ""
    return "; " + text.format(value / GIB if "GiB" in text else value)


def servable_estimate(case: Case) -> int | None:
    """The length to ask for after a start failed: vLLM's estimate, less the null block that it counts before 0.32."""
    failure = case.state.story.failure
    estimate = failure.integer("estimated_limit") if failure is not None else None
    if estimate is None:
        return None
    version = case.state.story.version or case.state.version
    if within(version, "0.32.0"):
        return estimate
    block = case.state.story.block_size or case.state.story.argument_number("block_size") or 128
    return estimate - block if estimate > block else None


def advise_memory(case: Case) -> str:
    fits = servable_estimate(case)
    shorter = f"Set --max-model-len {fits}" if fits is not None else "Set a lower --max-model-len"
    return f"{shorter}, or give the KV cache more memory (--gpu-memory-utilization, --kv-cache-dtype fp8, more GPUs)."


def advise_window(case: Case) -> str:
    failure = case.state.story.failure
    window = failure.integer("window") if failure is not None else None
    return f"Set --max-model-len {window} or lower." if window is not None else "Set a lower --max-model-len."


def advise_batched(case: Case) -> str:
    failure = case.state.story.failure
    limit = failure.integer("limit") if failure is not None else None
    to = f" {limit}" if limit is not None else " to at least the limit"
    return f"Set --max-num-batched-tokens{to}, or drop --no-enable-chunked-prefill."


def advise_no_memory(_case: Case) -> str:
    return (
        "The weights and activations fill the share that vLLM may use: raise --gpu-memory-utilization, "
        "spread the model over more GPUs (--tensor-parallel-size), or use smaller weights."
    )


def advise_busy(_case: Case) -> str:
    return (
        "End the other process on this device (an earlier vLLM may still be going down), "
        "or lower --gpu-memory-utilization to what is free."
    )


def startup_killed(case: Case) -> Said | None:
    killed = case.state.story.failure is not None and case.state.story.failure.cause == StartFailure.KILLED
    if (case.state.ended_reason is None or case.state.first_page_at is not None) and not killed:
        return None
    reason = case.state.ended_reason or "a signal"
    return Said(
        f"The server was killed while it started: {reason}; its log tells nothing.",
        "Give the container more memory (weights pass through host memory while they load), "
        "or look for who sent the signal.",
        "the container's status",
    )


def crash_loop(case: Case) -> Said | None:
    recent = [t for t in case.state.start_times if t > case.now - CRASH_LOOP_SECONDS]
    if len(recent) < CRASH_LOOP_STARTS:
        return None
    return Said(
        f"The server was started {len(recent)} times in the last {CRASH_LOOP_SECONDS / 60:.0f} minutes.",
        "Look at the cause of the last failed start; a supervisor starts it again and again.",
        "starts seen in the log, or a new start time of the process",
    )
