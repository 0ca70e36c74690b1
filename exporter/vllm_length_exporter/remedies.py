"""What to do about a message of vLLM's: the exact flag or field, and a value that its own numbers allow.

Every function takes the numbers of one message and returns advice in the order of what helps most.
Advice that the numbers contradict is left out: memory that is short for another reason is not won by
`--gpu-memory-utilization`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from vllm_length_exporter.vllm.events import FieldValue, RefusalCause, StartFailure
from vllm_length_exporter.vllm.release import within

GIB = 2**30
# The block sizes vLLM uses for plain attention: 16 on GPUs, 128 on CPUs and Gaudi.
LARGEST_BLOCK, SMALLEST_BLOCK = 128, 16
USUAL_UTILIZATION = 0.9  # vLLM's default until 0.19; 0.92 since
LARGEST_CARD = 288 * GIB

Fields = Mapping[str, FieldValue]


@dataclass(frozen=True, slots=True)
class Context:
    """What the rest of the text says of the server, where it says it."""

    version: str | None = None
    is_cpu: bool = False
    memory_is_fixed: bool = False  # --kv-cache-memory-bytes was given, and decides alone
    utilization: float | None = None  # --gpu-memory-utilization, where it was given
    kv_cache_dtype: str | None = None
    speculative: bool = False
    pipeline_parallel: bool = False
    lora: bool = False
    capacity_tokens: int | None = None
    available_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Remedy:
    """Who can change it ("client", "operator", "both" or "nobody"), what happened, and what to do."""

    who: str
    summary: str
    advice: tuple[str, ...]


def whole(fields: Fields, key: str) -> int | None:
    value = fields.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def count(number: int) -> str:
    return f"{number:,}"


def size(number: int) -> str:
    return f"{number / GIB:.2f} GiB"


def servable(estimate: int) -> int | None:
    """A limit below vLLM's estimate at which a full-length request is really served.

    Before 0.32 the estimate counts the null block, which no request can use: one block less. The block
    size is not in the message; the estimate is a multiple of it, which bounds it.
    """
    step = min(estimate & -estimate, LARGEST_BLOCK)
    if step < SMALLEST_BLOCK:
        step = LARGEST_BLOCK
    return estimate - step if estimate > step else None


# --- a start that failed


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


# --- a request that was refused


def prompt_too_long(fields: Fields, context: Context) -> Remedy:
    limit, output = whole(fields, "limit"), whole(fields, "output_tokens")
    exact, bound = whole(fields, "prompt_tokens"), whole(fields, "prompt_tokens_at_least")
    prompt = exact if exact is not None else bound
    if limit is None or prompt is None:
        return Remedy("client", "The prompt alone is longer than the limit.", (_SHORTER,))
    asked = output if output is not None and 0 < output < limit else None
    summary = (
        f"The prompt alone, {'' if exact is not None else 'at least '}{count(prompt)} tokens, is over the "
        f"limit of {count(limit)} on prompt and output together: no max_tokens helps."
    )
    room = limit - (asked or 1)
    advice = [
        f"Client: cut the prompt to at most {count(room)} tokens"
        + (
            f", which leaves the {count(asked)} asked for as output"
            if asked
            else ", which leaves one for output"
        )
        + "; POST /tokenize counts them."
    ]
    total = prompt + (output if output is not None and output > 0 else 1)
    unless = "" if exact is not None else " (more if the prompt is longer than its bound)"
    advice.append(f"Operator: or --max-model-len {total} or more{unless}, if window and KV cache allow it.")
    advice.append(_window_comes_from_config())
    if context.capacity_tokens is not None and context.capacity_tokens < total:
        advice.append(
            f"The KV cache of this server holds {count(context.capacity_tokens)} tokens, so the limit cannot "
            "be raised that far without more of it."
        )
    return Remedy("both", summary, tuple(advice))


def sum_too_long(fields: Fields, context: Context) -> Remedy:
    limit, output = whole(fields, "limit"), whole(fields, "output_tokens")
    exact, bound = whole(fields, "prompt_tokens"), whole(fields, "prompt_tokens_at_least")
    prompt = exact if exact is not None else bound
    if limit is None or output is None or prompt is None:
        return Remedy("both", "Prompt and max_tokens together are over the limit.", (_SHORTER,))
    least = "" if exact is not None else "at least "
    summary = (
        f"Prompt ({least}{count(prompt)}) plus max_tokens ({count(output)}) is "
        f"{least}{count(prompt + output)}, over the limit of {count(limit)} on both together."
    )
    advice: list[str] = []
    if exact is not None:
        advice.append(
            f"Client: set max_tokens to at most {limit - exact} (limit - prompt), or leave it out in chat."
        )
    else:
        advice.append(
            "Client: the prompt's true length is not in this message, only its bound: count it with POST "
            f"/tokenize and set max_tokens to {count(limit)} minus the count (at most {limit - prompt}), or "
            "leave it out in chat."
        )
    if output < limit:
        advice.append(f"Client: or cut the prompt to at most {count(limit - output)} tokens.")
    total = prompt + output
    unless = "" if exact is not None else " (more if the prompt is longer than its bound)"
    advice.append(f"Operator: or --max-model-len {total} or more{unless}, if window and KV cache allow it.")
    if context.capacity_tokens is not None and context.capacity_tokens > total:
        advice.append(
            f"The KV cache of this server holds {count(context.capacity_tokens)} tokens, so it would fit."
        )
    advice.append(
        "From 0.32 on vLLM does not refuse this: it cuts max_tokens to what is left, without a word."
    )
    return Remedy("both", summary, tuple(advice))


def output_too_long(fields: Fields, context: Context) -> Remedy:
    limit, output = whole(fields, "limit"), whole(fields, "output_tokens")
    prompt = whole(fields, "prompt_tokens")
    if limit is None or output is None:
        return Remedy("client", "max_tokens alone is over the limit.", (_SHORTER,))
    if prompt is not None and prompt >= limit:
        return no_room(fields, context)
    most = limit - prompt if prompt is not None else limit - 1
    less = "" if prompt is not None else " less the prompt"
    return Remedy(
        "both",
        f"max_tokens alone, {count(output)}, is over the limit of {count(limit)} on prompt and output together.",
        (
            f"Client: set max_tokens to at most {most}{less}, or leave it out in chat: vLLM then takes what is left.",
            f"Operator: --max-model-len above {output}, if window and KV cache allow it.",
        ),
    )


def no_room(fields: Fields, context: Context) -> Remedy:
    del context
    limit, output = whole(fields, "limit"), whole(fields, "output_tokens")
    if limit is None:
        over = -output if output is not None and output < 0 else None
        summary = (
            "Nothing is left of the limit for output: unless the request itself asked for it, vLLM computed "
        )
        summary += "max_tokens as limit - prompt"
        summary += f", and the prompt is {count(over)} tokens longer than the limit." if over else "."
        shorter = f"at least {count(over + 1)} tokens" if over else "at least one token"
        return Remedy(
            "both",
            summary,
            (f"Client: shorten the prompt by {shorter}.", "Operator: or raise --max-model-len."),
        )
    asked = output if output is not None and 0 < output < limit else 1
    return Remedy(
        "both",
        f"The prompt fills the limit of {count(limit)} tokens exactly: not one is left for output.",
        (
            (
                f"Client: cut the prompt to {count(limit - asked)} tokens or fewer; POST "
                "/tokenize counts them."
            ),
            f"Operator: or --max-model-len {limit + asked} or more, if window and KV cache allow it.",
        ),
    )


_SHORTER = "Client: shorten the prompt or ask for fewer output tokens (max_tokens)."


def _window_comes_from_config() -> str:
    return (
        "The limit is what vLLM derived from the config.json it loads, or --max-model-len: a window that was "
        "stretched elsewhere (YaRN in a trainer) counts only if rope scaling is in that config.json or in "
        "--hf-overrides."
    )


def other_refusal(fields: Fields, context: Context) -> Remedy:
    del context
    truncate, most = whole(fields, "truncate_prompt"), whole(fields, "input_tokens_at_most")
    output, minimum = whole(fields, "output_tokens"), whole(fields, "min_tokens")
    if truncate is not None and truncate < 1:
        return Remedy(
            "client", "truncate_prompt_tokens is no length.", ("Client: at least 1, or -1 for the limit.",)
        )
    if truncate is not None:
        top = most if most is not None else whole(fields, "limit")
        known = f" at most {top}" if top is not None else " below the limit"
        return Remedy(
            "client",
            "truncate_prompt_tokens keeps more tokens than a prompt may have.",
            (f"Client: set truncate_prompt_tokens to{known}, or to -1 for the limit (0.10.2+).",),
        )
    if minimum is not None:
        return Remedy("client", "min_tokens is above max_tokens.", (f"Client: min_tokens at most {output}.",))
    if output is not None and output < 1:
        return Remedy(
            "client",
            f"max_tokens came to {output}: either the request asks for it, or the prompt fills the limit and "
            "nothing is left.",
            (
                "Client: ask for at least 1, or leave max_tokens out.",
                (
                    "Client: if the request did not ask for that, its prompt is as long as the limit or "
                    "longer: shorten it."
                ),
            ),
        )
    return Remedy(
        "client", "vLLM refused the request for another reason than the length of prompt and output.", ()
    )


def v0_prompt(fields: Fields, context: Context) -> Remedy:
    """V0's scheduler drops the request and answers 200 with an empty text."""
    del context
    prompt, limit = whole(fields, "prompt_tokens"), whole(fields, "limit")
    if prompt is None or limit is None:
        return Remedy(
            "both",
            "The request needs more of the KV cache than there is: V0 answered it with finish reason length.",
            (
                "Client: shorten the prompt or ask for fewer output tokens.",
                "Operator: more memory for the KV cache, or a --max-model-len that it can hold.",
            ),
        )
    return Remedy(
        "both",
        f"The prompt of {count(prompt)} tokens is over {count(limit)}, which is the smaller of the limit "
        f"and of what one "
        "step may hold: V0 answered it with finish reason length.",
        (
            (
                f"Operator: if --max-model-len is above {count(limit)}: --max-num-batched-tokens {prompt} or more, or "
                "--enable-chunked-prefill."
            ),
            f"Client: or cut the prompt to at most {count(limit)} tokens.",
        ),
    )


_Advise = Callable[[Fields, Context], Remedy]
REMEDIES: Mapping[str, _Advise] = {
    StartFailure.KV_CACHE_TOO_SMALL: cache_too_small,
    StartFailure.NO_KV_MEMORY: no_memory,
    StartFailure.LIMIT_ABOVE_WINDOW: above_window,
    StartFailure.MEMORY_BUSY: memory_busy,
    StartFailure.BATCHED_TOKENS_BELOW_LIMIT: batched_tokens,
    StartFailure.AUTO_FIT_IMPOSSIBLE: auto_fit_impossible,
    StartFailure.OUT_OF_MEMORY: out_of_memory,
    StartFailure.CONFIGURATION: configuration,
    RefusalCause.PROMPT_TOO_LONG: prompt_too_long,
    RefusalCause.PROMPT_PLUS_OUTPUT_TOO_LONG: sum_too_long,
    RefusalCause.OUTPUT_TOO_LONG: output_too_long,
    RefusalCause.NO_ROOM_FOR_OUTPUT: no_room,
}
# Messages whose cause alone does not say what to do.
BY_MESSAGE: Mapping[str, _Advise] = {
    "v0_prompt_too_long_1": v0_prompt,
    "v0_prompt_too_long_2": v0_prompt,
    "v0_prompt_too_long_3": v0_prompt,
    "v0_fail_no_blocks": v0_prompt,
}


def _kept(advice: list[str]) -> tuple[str, ...]:
    return tuple(text for text in advice if text)
