"""A request that was refused: what the client sets, and what the operator would have to."""

from __future__ import annotations

from vllm_length_exporter.remedies.remedy import Context, Fields, Remedy, count, whole


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
