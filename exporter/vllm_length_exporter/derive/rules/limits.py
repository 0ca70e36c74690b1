"""The limit against the window, and what reduced it."""

from __future__ import annotations

from vllm_length_exporter.derive.rules.case import Case, Said


def limit_below_window(case: Case) -> Said | None:
    limits = case.view.limits
    if limits.effective is None or limits.window is None or limits.effective.value >= limits.window.value:
        return None
    effective, window = limits.effective.value, limits.window.value
    why = {
        "explicit": f"because --max-model-len {effective} was given",
        "auto": "because more does not fit the KV cache (--max-model-len auto)",
    }.get(limits.mode or "", "by this server's settings")
    advice = _advise_longer(case, effective, window)
    draft = case.state.story.draft_limit
    if draft is not None and draft.taken == effective:
        why = "because the draft model of speculative decoding takes no more"
        advice = (
            f"A draft model with a window of {draft.before} or more, another method in --speculative-config, or "
            f"VLLM_USE_V2_MODEL_RUNNER=0 makes it {draft.before}."
        )
    return Said(
        f"The model was made for {window} tokens; this server takes {effective}, {why}.",
        advice,
        f"effective: {limits.effective.source}, window: {limits.window.source}",
    )


def _advise_longer(case: Case, effective: int, window: int) -> str:
    """How to get closer to the window, as far as the measured KV cache allows."""
    more = "give the KV cache more memory, or use --kv-cache-dtype fp8"
    tokens = [engine.tokens.value for engine in case.view.capacity if engine.tokens is not None]
    usable = [
        engine.blocks.value * engine.block_size.value
        for engine in case.view.capacity
        if engine.one_group and engine.blocks is not None and engine.block_size is not None
    ]
    fits = min(usable, default=None)
    if (
        case.view.limits.mode == "auto"
        or (fits is not None and fits <= effective)
        or (tokens and min(tokens) <= effective)
    ):
        return f"The KV cache holds no longer request: to serve one, {more}."
    if fits is not None and fits < window:
        return f"Up to --max-model-len {fits} fits this KV cache; for more, {more}."
    return (
        f"To serve longer requests raise --max-model-len up to {window}; "
        f"each full-length request then takes {window / effective:.3g} times the KV cache."
    )


def limit_beyond_window(case: Case) -> Said | None:
    limits = case.view.limits
    if limits.effective is None or limits.window is None or limits.effective.value <= limits.window.value:
        return None
    return Said(
        f"The limit of {limits.effective.value} tokens is beyond the {limits.window.value} "
        f"that the model's config derives.",
        f"Set --max-model-len {limits.window.value}, or make sure that the model copes "
        f"(VLLM_ALLOW_LONG_MAX_MODEL_LEN was set): answers degrade beyond the window.",
        f"effective: {limits.effective.source}, window: {limits.window.source}",
    )


def auto_fit_reduced(case: Case) -> Said | None:
    fit = case.sources.story.auto_fit
    if fit is None or fit.before is None or fit.before <= fit.fitted:
        return None
    return Said(
        f"vLLM reduced the limit from {fit.before} to {fit.fitted} tokens to fit the KV cache.",
        f"To get more than {fit.fitted}, give the KV cache more memory or use --kv-cache-dtype fp8.",
        "the log's auto-fit line",
    )


def batched_tokens_below_limit(case: Case) -> Said | None:
    batched, effective = case.view.limits.max_num_batched_tokens, case.effective
    chunked = case.sources.story.argument("enable_chunked_prefill")
    if batched is None or effective is None or chunked is not False or batched.value >= effective:
        return None
    return Said(
        f"Without chunked prefill a prompt beyond {batched.value} tokens cannot be scheduled; "
        f"the limit is {effective}.",
        f"Set --max-num-batched-tokens {effective}, or drop --no-enable-chunked-prefill.",
        f"max_num_batched_tokens ({batched.source})",
    )
