"""A start that failed: what its numbers allow, and never memory that they show is not there."""

from __future__ import annotations

from vllm_length_exporter.remedies.remedy import GIB, Context, Fields, Remedy, count, size, whole
from vllm_length_exporter.vllm.release import within

# The block sizes vLLM uses for plain attention: 16 on GPUs, 128 on CPUs and Gaudi.
LARGEST_BLOCK, SMALLEST_BLOCK = 128, 16
USUAL_UTILIZATION = 0.9  # vLLM's default until 0.19; 0.92 since
LARGEST_CARD = 288 * GIB


def servable(estimate: int) -> int | None:
    """A limit below vLLM's estimate at which a full-length request is really served.

    Before 0.32 the estimate counts the null block, which no request can use: one block less. The block
    size is not in the message; the estimate is a multiple of it, which bounds it.
    """
    step = min(estimate & -estimate, LARGEST_BLOCK)
    if step < SMALLEST_BLOCK:
        step = LARGEST_BLOCK
    return estimate - step if estimate > step else None


def cache_too_small(fields: Fields, context: Context) -> Remedy:
    limit, capacity = whole(fields, "limit"), whole(fields, "capacity_tokens")
    needed, available = whole(fields, "needed_bytes"), whole(fields, "available_bytes")
    estimate = whole(fields, "estimated_limit")
    advice: list[str] = []
    if capacity is not None:
        summary = (
            f"One request of {count(limit or 0)} tokens does not fit: the KV cache holds {count(capacity)}."
        )
        advice.append(f"Operator: start with --max-model-len {capacity}: that much fits as it is.")
        advice.append(
            "Operator: without chunked prefill the profiling run is as long as --max-num-batched-tokens, "
            "which follows the limit: --enable-chunked-prefill, or a smaller --max-num-batched-tokens, "
            "leaves more."
        )
        advice.append(_more_memory(None, context))
        return Remedy("operator", summary, _kept(advice))
    ratio = None
    memory = ""
    if needed and available:
        ratio = needed / available
        memory = f": it takes {size(needed)} of KV cache and {size(available)} are there"
    summary = f"One request of {count(limit or 0)} tokens does not fit{memory}."
    if estimate is not None and estimate > 0:
        value = estimate if within(context.version, "0.32") else servable(estimate)
        if value == estimate:
            advice.append(f"Operator: start with --max-model-len {value}, the longest that fits as it is.")
        elif value is not None:
            advice.append(
                f"Operator: start with --max-model-len {value}. vLLM names {count(estimate)}; before 0.32 "
                "that counts a block that no request can use, so one block less is what is really served."
            )
    elif limit and needed and available and available > 0:
        about = limit * available // needed
        value = about // 1024 * 1024 or None
        if value is not None:
            advice.append(
                f"Operator: try --max-model-len {value}. No estimate is printed; by proportion about "
                f"{count(about)} tokens fit if every layer has full attention, and with sliding-window or "
                "linear-attention layers only trying tells."
            )
    if _is_float_cache(context) and ratio is not None and ratio <= 2 and available and available > 0:
        advice.append(
            f"Operator: --kv-cache-dtype fp8 halves what a token takes: {size((needed or 0) // 2)} would fit."
        )
    advice.append(_more_memory((needed - available) if needed and available else None, context))
    if context.speculative:
        advice.append(
            "Operator: the draft model's cache comes out of the same memory: without it more is left."
        )
    if context.lora:
        advice.append(
            "Operator: LoRA slots take memory first: fewer --max-loras or a smaller --max-lora-rank."
        )
    if context.pipeline_parallel:
        advice.append(
            "Operator: the need is that of all layers, the memory that of the smallest stage: newer releases "
            "compare stage by stage; until then the estimate is the safe value."
        )
    advice.append(
        "Operator: a smaller --max-num-batched-tokens or --max-num-seqs shrinks the activation peak, and "
        "what it frees becomes KV cache."
    )
    return Remedy("operator", summary, _kept(advice))


def _is_float_cache(context: Context) -> bool:
    return not (context.kv_cache_dtype or "auto").startswith(("fp8", "nvfp4", "int8"))


def _more_memory(missing: int | None, context: Context) -> str:
    """How to make the cache larger, as far as the numbers leave it open."""
    if context.memory_is_fixed:
        return (
            "Operator: --kv-cache-memory-bytes fixes the cache: raise that value, --gpu-memory-utilization "
            "is ignored."
        )
    if context.is_cpu:
        return (
            "Operator: on the CPU backend raise VLLM_CPU_KVCACHE_SPACE (GiB) or --kv-cache-memory-bytes, if "
            "the machine has the memory."
        )
    if missing is None:
        return "Operator: raise --gpu-memory-utilization if the card has memory that nothing else uses."
    utilization = context.utilization or USUAL_UTILIZATION
    card = missing / max(1 - utilization, 0.001)  # so large must it be for the unused share to do
    if card > LARGEST_CARD:
        return (
            f"Operator: {size(missing)} more is needed, more than --gpu-memory-utilization can win on any "
            "card: more GPUs (--tensor-parallel-size) or smaller weights."
        )
    return (
        f"Operator: or make room for {size(missing)} more. --gpu-memory-utilization wins at most what it "
        f"leaves: from {utilization:g} on that takes a card of {card / GIB:.0f} GiB or more that nothing "
        "else uses (it is ignored where --kv-cache-memory-bytes is set; on CPU it is "
        "VLLM_CPU_KVCACHE_SPACE)."
    )


def no_memory(fields: Fields, context: Context) -> Remedy:
    available = whole(fields, "available_bytes")
    if available is None:
        available = context.available_bytes
    lacks = available is not None and available < 0
    over = (
        f"exceed the memory that vLLM may use by {size(-available)}"
        if available is not None and lacks
        else ""
    )
    summary = f"Weights and activations {over or 'fill the memory that vLLM may use'}: none is left for the KV cache."
    advice = [
        "Operator: smaller or quantised weights, or more GPUs (--tensor-parallel-size, --pipeline-parallel-size).",
        "Operator: a smaller --max-num-batched-tokens or --max-num-seqs shrinks the activation peak.",
        "The length is not to blame: a smaller --max-model-len leaves the weights as they are.",
    ]
    if context.is_cpu:
        advice.insert(0, "Operator: on the CPU backend set VLLM_CPU_KVCACHE_SPACE to the GiB it may use.")
        least = fields.get("least_utilization")
        if isinstance(least, int | float):
            advice.insert(
                1, f"Operator: or --gpu-memory-utilization above {least:g}, the share that is taken already."
            )
    elif not lacks:
        advice.insert(1, _more_memory(None, context))
    return Remedy("operator", summary, tuple(advice))


def above_window(fields: Fields, context: Context) -> Remedy:
    requested, window = whole(fields, "requested"), whole(fields, "window")
    key = fields.get("window_key") or "max_position_embeddings"
    if requested is None or window is None:
        return Remedy("operator", "The limit that was asked for is above what the model's config allows.", ())
    factor = -(-requested // window)
    summary = (
        f"--max-model-len {requested} is above the {count(window)} tokens that vLLM derives from the model's "
        f"config.json ({key})."
    )
    return Remedy(
        "operator",
        summary,
        (
            f"Operator: start with --max-model-len {window}, or leave the flag out: {count(window)} is then the limit.",
            (
                "Operator: what counts is the config.json that vLLM loads, not the model card: if the card "
                f"promises more, its rope scaling (YaRN, factor {factor}) has to be in config.json or in "
                "--hf-overrides; then --max-model-len may go up to what that derives."
            ),
            (
                "Operator: VLLM_ALLOW_LONG_MAX_MODEL_LEN=1 turns the error into a warning; beyond the window "
                "answers get worse, and with absolute positions the server fails."
            ),
        ),
    )


def memory_busy(fields: Fields, context: Context) -> Remedy:
    del context
    free, total = whole(fields, "free_bytes"), whole(fields, "total_bytes")
    desired = whole(fields, "desired_bytes")
    if free is None or total is None or total <= 0:
        return Remedy(
            "operator",
            "Less memory is free than vLLM was told to use.",
            (
                "Operator: stop what else uses the device (nvidia-smi shows it), or lower --gpu-memory-utilization.",
            ),
        )
    wants = f", and vLLM was told to use {size(desired)}" if desired is not None else ""
    summary = (
        f"Only {size(free)} of {size(total)} are free{wants}: something else holds {size(total - free)}."
    )
    advice = ["Operator: stop what holds it: nvidia-smi names it, and it is often a vLLM that did not end."]
    share = int(free / total * 100) / 100
    if share >= 0.3:
        advice.append(f"Operator: or start with --gpu-memory-utilization {share:.2f}: so much is free now.")
    advice.append(
        "Restarting alone does not help, and a higher --gpu-memory-utilization asks for still more."
    )
    return Remedy("operator", summary, tuple(advice))


def batched_tokens(fields: Fields, context: Context) -> Remedy:
    del context
    batched, limit = whole(fields, "max_num_batched_tokens"), whole(fields, "limit")
    if batched is None or limit is None:
        return Remedy("operator", "A step holds fewer tokens than the longest request.", ())
    return Remedy(
        "operator",
        f"Without chunked prefill a prompt is computed in one step, and a step holds {count(batched)} "
        f"tokens, fewer than the limit of {count(limit)}.",
        (
            "Operator: --enable-chunked-prefill computes long prompts over several steps.",
            f"Operator: or --max-num-batched-tokens {limit}.",
            f"Operator: or --max-model-len {batched}.",
        ),
    )


def auto_fit_impossible(fields: Fields, context: Context) -> Remedy:
    remedy = no_memory(fields, context)
    return Remedy(
        "operator", "Not even one token's cache fits beside the weights. " + remedy.summary, remedy.advice
    )


def out_of_memory(fields: Fields, context: Context) -> Remedy:
    del fields, context
    return Remedy(
        "operator",
        "The device ran out of memory outside the KV cache: weights, graph capture or a warm-up asked for more.",
        (
            (
                "Operator: lower --gpu-memory-utilization (by 0.05): it leaves more beside the KV cache. "
                "Raising it makes this worse."
            ),
            (
                "Operator: or --enforce-eager (no graphs), a smaller --max-num-seqs or "
                "--max-num-batched-tokens, fewer LoRA slots."
            ),
        ),
    )


def configuration(fields: Fields, context: Context) -> Remedy:
    del context
    seqs, batched = whole(fields, "max_num_seqs"), whole(fields, "max_num_batched_tokens")
    threshold, limit = whole(fields, "threshold"), whole(fields, "limit")
    item = whole(fields, "max_tokens_per_mm_item")
    advice: list[str] = []
    if item is not None and batched is not None:
        advice.append(
            f"Operator: --max-num-batched-tokens {item} or more: one media item needs so many at once."
        )
    elif seqs is not None and batched is not None:
        advice.append(
            f"Operator: --max-num-batched-tokens {seqs} or more, or --max-num-seqs {batched} or fewer."
        )
    elif seqs is not None:
        advice.append(f"Operator: --max-num-active-seqs {seqs} or fewer.")
    elif threshold is not None and limit is not None:
        advice.append(f"Operator: --long-prefill-token-threshold {limit} or fewer.")
    else:
        advice.append("Operator: correct the flag that the message names.")
    return Remedy("operator", "vLLM refuses its own configuration.", tuple(advice))


def other_failure(fields: Fields, context: Context) -> Remedy:
    del context
    name = fields.get("exception")
    named = f" ({name})" if isinstance(name, str) else ""
    return Remedy(
        "operator",
        f"The start failed for a reason that is not about length or memory{named}.",
        ("Operator: read the first traceback of the start; tuning lengths or memory will not help.",),
    )


def _kept(advice: list[str]) -> tuple[str, ...]:
    return tuple(text for text in advice if text)
