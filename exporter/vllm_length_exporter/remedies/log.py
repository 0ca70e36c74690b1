"""What a line of vLLM's log means for length, and what changed across its versions."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from vllm_length_exporter.remedies.remedy import Context, Fields, Remedy, count, size, whole
from vllm_length_exporter.vllm.catalogue import row
from vllm_length_exporter.vllm.events import EventName

FULL, CROWDED = 0.9, 0.5  # shares of the KV cache in use


def capacity(fields: Fields, context: Context) -> tuple[Remedy, str]:
    del context
    tokens, limit = whole(fields, "capacity_tokens"), whole(fields, "max_model_len")
    concurrency = fields.get("full_length_concurrency")
    many = isinstance(concurrency, int | float)
    summary = (
        f"The KV cache holds {count(tokens)} tokens."
        if tokens is not None
        else "How much the KV cache holds."
    )
    if many and limit is not None:
        summary += f" {concurrency:g} requests of {count(limit)} tokens fit at once; shorter ones more."
    advice = [
        (
            "The capacity is what is left of the device's memory after weights and the activation peak; it "
            "is no setting. It moves with --gpu-memory-utilization, --kv-cache-dtype, --tensor-parallel-size "
            "and --max-num-batched-tokens."
        ),
        "Tensor-parallel ranks share one capacity: each stores its part of the heads, so their lines are not added up.",
    ]
    if tokens is not None and limit is not None and isinstance(concurrency, int | float):
        uneven = abs(tokens / limit - concurrency) > 0.1 * concurrency
        if uneven:
            advice.append(
                "Capacity / limit is not the concurrency here: layers with a window or with a fixed state "
                "take less than a full-attention token. The concurrency is the figure to trust."
            )
    if many:
        advice.append("--max-num-seqs is the other cap on requests at once.")
    if isinstance(concurrency, int | float) and concurrency < 1:
        return Remedy(
            "operator", summary + " A full-length request does not fit.", tuple(advice)
        ), "capacity_below_limit"
    return Remedy("operator", summary, tuple(advice)), "none"


def memory(fields: Fields, context: Context) -> tuple[Remedy, str]:
    available = whole(fields, "available_bytes")
    if available is None:
        return Remedy(
            "operator", "The memory for the KV cache is printed as zero after rounding.", ()
        ), "none"
    if available < 0:
        text = f"Weights and activations exceed the memory that vLLM may use by {size(-available)}."
        return Remedy(
            "operator", text, ("Operator: smaller or quantised weights, or more GPUs.",)
        ), "no_kv_memory"
    advice = [
        "It is one worker's: with tensor parallelism every GPU has as much, and the tokens are not added up."
    ]
    if context.memory_is_fixed or fields.get("fixed_by_argument"):
        advice.append("It was fixed with --kv-cache-memory-bytes: --gpu-memory-utilization changes nothing.")
    return Remedy("operator", f"{size(available)} are set aside for the KV cache.", tuple(advice)), "none"


def statistics(fields: Fields, context: Context) -> tuple[Remedy, str]:
    del context
    running, waiting = whole(fields, "running") or 0, whole(fields, "waiting") or 0
    usage = fields.get("kv_cache_usage_ratio")
    share = usage if isinstance(usage, int | float) else None
    if share is None:
        return Remedy("operator", "Requests running and waiting.", ()), "none"
    summary = f"{running} running, {waiting} waiting, {share:.1%} of the KV cache in use."
    if share >= FULL:
        return (
            Remedy(
                "operator",
                summary + " The KV cache is what holds requests back.",
                (
                    (
                        "Operator: lower --max-model-len or --max-num-seqs, use --kv-cache-dtype fp8, or "
                        "give it more memory or GPUs; long outputs fill a small cache with few requests."
                    ),
                    "V1 logs no preemption: vllm:num_preemptions_total counts them.",
                ),
            ),
            "kv_cache_saturated",
        )
    if waiting and share < CROWDED:
        return (
            Remedy(
                "operator",
                summary + " Requests wait although the KV cache is far from full: memory is not the cause.",
                (
                    (
                        "Operator: look at --max-num-seqs, at --max-num-batched-tokens (long prompts are "
                        "computed first) and at --max-loras; more memory for the cache will not help."
                    ),
                ),
            ),
            "binding_max_num_seqs" if running and waiting else "none",
        )
    return Remedy("nobody", summary, ()), "none"


def preempted(fields: Fields, context: Context) -> tuple[Remedy, str]:
    del context
    times = whole(fields, "preemptions")
    told = (
        f" ({count(times)} times since its start; the line comes every 50th time)"
        if times is not None
        else ""
    )
    recompute = "RECOMPUTE" in str(fields.get("mode", "RECOMPUTE"))
    how = "computed again later, so the CPU's cache stays empty" if recompute else "swapped to CPU memory"
    return (
        Remedy(
            "operator",
            f"The KV cache ran full and a running request was put back{told}: it is {how}.",
            (
                (
                    "Operator: more memory for the KV cache, or fewer requests at once: --max-num-seqs, "
                    "--max-num-batched-tokens."
                ),
            ),
        ),
        "preempting",
    )


def window(fields: Fields, context: Context) -> tuple[Remedy, str]:
    del context
    requested, derived = whole(fields, "requested"), whole(fields, "window")
    if requested is None or derived is None:
        assumed = whole(fields, "assumed")
        named = f": {count(assumed)} is assumed" if assumed is not None else ""
        return Remedy("operator", f"The model's config names no length{named}.", ()), "none"
    return (
        Remedy(
            "operator",
            f"A warning, no failure: the limit of {count(requested)} is above the {count(derived)} that the "
            "model's config derives, and VLLM_ALLOW_LONG_MAX_MODEL_LEN=1 let it pass.",
            (
                (
                    f"Operator: answers beyond {count(derived)} tokens may be worthless unless rope scaling "
                    f"is set in config.json or --hf-overrides; --max-model-len {derived} is safe."
                ),
            ),
        ),
        "limit_beyond_window",
    )


def auto_fit(fields: Fields, context: Context) -> tuple[Remedy, str]:
    del context
    fitted, before = whole(fields, "max_model_len"), whole(fields, "max_model_len_before")
    if before is None or fitted is None:
        return Remedy("nobody", f"The limit is {count(fitted or 0)}: the whole window fits.", ()), "none"
    return (
        Remedy(
            "operator",
            f"vLLM chose the limit itself: {count(fitted)} instead of {count(before)}, which is what the KV "
            "cache holds.",
            (
                "Operator: more memory for the KV cache raises it; --max-model-len with a number fixes it.",
                (
                    "In 0.14-0.19 /v1/models and error texts go on naming the number before; the line in the "
                    "log is the truth."
                ),
            ),
        ),
        "auto_fit_reduced",
    )


def draft_limit(fields: Fields, context: Context) -> tuple[Remedy, str]:
    del context
    taken, before = whole(fields, "max_model_len"), whole(fields, "reduced_from")
    if taken is None or before is None:
        return Remedy("operator", "The draft model takes shorter requests than the server's own.", ()), "none"
    return (
        Remedy(
            "operator",
            f"The limit is {count(taken)} instead of {count(before)}: the draft model of speculative decoding takes "
            "no more, and vLLM reduces the limit to that.",
            (
                (
                    f"Operator: a draft model with a window of {count(before)} or more, or another method in "
                    f"--speculative-config (n-grams have no window), keeps the limit at {count(before)}."
                ),
                (
                    "Operator: or VLLM_USE_V2_MODEL_RUNNER=0: the V1 model runner serves longer requests without "
                    "speculation."
                ),
            ),
        ),
        "none",
    )


def died(fields: Fields, context: Context) -> tuple[Remedy, str]:
    del fields, context
    return (
        Remedy(
            "operator",
            "An engine process ended while the server was up.",
            (
                (
                    "Operator: the reason is the first traceback before this line; without one look at the "
                    "container's end (137 is OOM-killed). After a SIGTERM this is no crash."
                ),
            ),
        ),
        "engine_died",
    )


def trap(fields: Fields, context: Context) -> tuple[Remedy, str]:
    del fields, context
    advice = ("Trust the `KV cache size` line, or kv_cache_size_tokens (0.24+).",)
    return Remedy("nobody", "Blocks x block size is not the capacity of this server.", advice), "none"


def block_size(fields: Fields, context: Context) -> tuple[Remedy, str]:
    del context
    size_of_block = count(whole(fields, "block_size") or 0)
    advice = (
        "Metrics label block_size is the smallest of all layers' (0.18+) and may differ: --block-size was not ignored.",
        "Blocks x block size is no capacity where layers differ: trust the `KV cache size` line.",
    )
    return Remedy("nobody", f"Attention layers keep {size_of_block} tokens in a block.", advice), "none"


def model_length(fields: Fields, context: Context) -> tuple[Remedy, str]:
    del context
    limit = count(whole(fields, "max_model_len") or 0)
    advice = ("With --max-model-len auto a later line may lower it; a draft model prints a line of its own.",)
    return Remedy("operator", f"The limit on prompt and output together is {limit}.", advice), "none"


_Explain = Callable[[Fields, Context], tuple[Remedy, str]]
LOG_REMEDIES: Mapping[EventName, _Explain] = {
    EventName.KV_CAPACITY: capacity,
    EventName.KV_BLOCKS: capacity,
    EventName.KV_MEMORY: memory,
    EventName.STATISTICS: statistics,
    EventName.PREEMPTED: preempted,
    EventName.WINDOW: window,
    EventName.DRAFT_LIMIT: draft_limit,
    EventName.AUTO_FIT: auto_fit,
    EventName.ENGINE_DIED: died,
    EventName.CAPACITY_TRAP: trap,
    EventName.BLOCK_SIZE: block_size,
    EventName.MODEL_LENGTH: model_length,
}

_SILENT = (
    "Since 0.32 prompt + max_tokens over the limit is no longer refused: max_tokens is cut to what is left, "
    "without a word. A prompt over the limit is still refused."
)
_COUNTED = (
    "0.18-0.22: the client gets 400, http_requests_total counts a 5xx, and the log holds a traceback. Since "
    "0.23 the log holds only the access line."
)
_CUT = (
    "Since 0.16 a text is cut before it is counted, so its count is a bound; 0.18 marks it with 'at least'."
)
_NOTES: Mapping[str, tuple[str, ...]] = {
    "kv_cache_too_small": (
        "Spelt 'models's' until 0.21, 'model's' since 0.22; the estimate came with 0.8.5; 0.7 writes GB and means GiB.",
        "Until 0.31 the estimate counts the null block; 0.32 does not.",
    ),
    "no_kv_memory": ("Since 0.22 the text names the CPU backend, which obeys the same flag.",),
    "limit_above_window": (
        (
            "Since 0.30 a YaRN factor is no longer applied to max_position_embeddings, so a YaRN model's "
            "window can fall on upgrade."
        ),
        "Since 0.13 pydantic wraps the error; derived lengths may print as 8192.0.",
    ),
    "prompt_too_long": (_CUT, _COUNTED),
    "prompt_plus_output_too_long": (_SILENT, _COUNTED),
    "output_too_long": (_COUNTED,),
    "no_room_for_output": (_COUNTED,),
}


def version_notes(message_id: str | None, cause: str) -> tuple[str, ...]:
    """What is different in other releases, and in which the wording of a row was seen."""
    found = None if message_id is None else row(message_id)
    seen: tuple[str, ...] = ()
    if found is not None:
        releases = found.first if found.first == found.last else f"{found.first} to {found.last}"
        seen = (f"This wording was seen in {releases}.",)
    if message_id is not None and message_id.startswith("kv_too_small_v0"):
        return (
            *seen,
            "V0 (to 0.10.2) compares tokens; V1 compares memory, and names an estimate since 0.8.5.",
        )
    return (*seen, *_NOTES.get(cause, ()))
