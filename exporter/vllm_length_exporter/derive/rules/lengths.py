"""Requests that are refused, clamped or cut, and a limit far from the workload."""

from __future__ import annotations

from collections.abc import Mapping

from vllm_length_exporter.derive.rules.case import Case, Said, grown

TRUNCATION_HIGH = 0.3  # share of finished answers that were cut
ENOUGH_FINISHED = 20
FAR_ABOVE = 4  # the limit is so many times what the longest request needed


def length_rejections(case: Case) -> Said | None:
    moments = grown(case)
    if moments is None or case.view.rejections_observable != "exact":
        return None
    first, last = moments
    added = {cause: int(n - first.refused.get(cause, 0)) for cause, n in last.refused.items()}
    added = {cause: n for cause, n in added.items() if n > 0}
    if not added:
        return None
    limit = (
        f"the limit is {case.effective} tokens" if case.effective is not None else "the limit is not known"
    )
    causes = ", ".join(f"{n} {cause}" for cause, n in sorted(added.items()))
    return Said(
        f"{sum(added.values())} requests were refused for length in the last {last.at - first.at:.0f} s "
        f"({causes}); {limit}.",
        _advise_refused(case, added),
        "the middleware" if case.sources.page and case.sources.page.middleware else "the server's log",
    )


def _advise_refused(case: Case, added: Mapping[str, int]) -> str:
    """Who can change what: the client its max_tokens or its prompt, the operator the limit and what it costs."""
    parts: list[str] = []
    if added.get("prompt_plus_output_too_long") or added.get("output_too_long"):
        left = f"{case.effective} - prompt tokens" if case.effective is not None else "what the prompt leaves"
        parts.append(f"clients should ask for max_tokens of at most {left}, or leave it out")
    if added.get("prompt_too_long") or added.get("no_room_for_output"):
        parts.append("clients should shorten their prompts")
    raised = _advise_raise(case)
    said = "; ".join([*parts, raised])
    return said[:1].upper() + said[1:]


def _advise_raise(case: Case) -> str:
    """What a larger limit would cost in requests that fit at once, from measured blocks."""
    effective, window = case.effective, case.view.limits.window
    if effective is None:
        return "or raise --max-model-len."
    if window is not None and window.value <= effective:
        return f"the limit is already the model's window ({window.value}): --max-model-len cannot help."
    target = min(2 * effective, window.value) if window is not None else 2 * effective
    for engine in case.view.capacity:
        if engine.one_group and engine.blocks is not None and engine.block_size is not None:
            now, then = (engine.blocks.value / -(-n // engine.block_size.value) for n in (effective, target))
            if then < 1:
                longest = engine.blocks.value * engine.block_size.value
                return f"--max-model-len beyond {longest} does not fit this KV cache."
            return f"or --max-model-len {target}: {then:.2f} full-length requests fit at once then, {now:.2f} now."
    return f"or raise --max-model-len (to {target}, say): fewer full-length requests fit at once then."


def silent_clamping(case: Case) -> Said | None:
    moments = grown(case)
    if moments is None or moments[1].clamped is None:
        return None
    added = moments[1].clamped - (moments[0].clamped or 0.0)
    if added <= 0:
        return None
    return Said(
        f"{added:.0f} requests asked for more output than fits in {case.effective or 'the limit'} tokens; "
        f"vLLM cut their budget without telling them.",
        "Clients should ask for max_tokens of at most the limit less their prompt and look at finish_reason; "
        + _advise_raise(case),
        "the middleware",
    )


def truncation_high(case: Case) -> Said | None:
    moments = grown(case)
    if moments is None:
        return None
    first, last = moments
    finished = last.finished - first.finished
    cut = sum(last.truncated.values()) - sum(first.truncated.values())
    if finished < ENOUGH_FINISHED or cut < TRUNCATION_HIGH * finished:
        return None
    return Said(
        f"{cut:.0f} of {finished:.0f} answers in the last {last.at - first.at:.0f} s were cut for length.",
        "Look whether clients set max_tokens too low, or the context is full (the middleware tells the two apart).",
        "request_success_total{finished_reason=length}",
    )


def limit_far_above_workload(case: Case) -> Said | None:
    longest = next((row for row in case.view.recommended if row.coverage == 1.0), None)
    if longest is None or case.effective is None or longest.tokens * FAR_ABOVE > case.effective:
        return None
    return Said(
        f"The limit is {case.effective} tokens; no request of the last hour needed more than {longest.tokens}.",
        f"--max-model-len {longest.tokens} would have served all of them, "
        f"and a request's worst case would take {case.effective / longest.tokens:.1f} times less KV cache.",
        longest.source,
    )
