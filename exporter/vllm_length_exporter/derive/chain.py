"""Why the limit is what it is: from the model's window to what is enforced, each step with its source."""

from __future__ import annotations

from collections.abc import Iterator

from .evidence import Evidence
from .values import EngineCapacity, Limits, Step, Value


def chain(
    evidence: Evidence, limits: Limits, engines: tuple[EngineCapacity, ...], window_rule: str | None = None
) -> tuple[Step, ...]:
    """The steps that are known, in the order in which vLLM takes them; empty where the limit is not known.

    `window_rule` says how a config.json that the user named gives its window: the key and the RoPE rule.
    """
    if limits.effective is None:
        return ()
    return tuple(_steps(evidence, limits, limits.effective, engines, window_rule))


def _steps(
    evidence: Evidence,
    limits: Limits,
    effective: Value[int],
    engines: tuple[EngineCapacity, ...],
    window_rule: str | None,
) -> Iterator[Step]:
    story = evidence.story
    if limits.window is not None:
        of_config = limits.window.source == "model_config" and window_rule is not None
        rule = window_rule if of_config and window_rule is not None else "what the model's config derives"
        yield Step("window", limits.window.value, limits.window.source, rule)
    if limits.requested is not None:
        given = f"--max-model-len {limits.requested.value}"
        yield Step("requested", limits.requested.value, limits.requested.source, given)
    elif limits.mode == "default":
        yield Step("requested", None, "engine_log", "--max-model-len was not given: the window is taken")
    if story.draft_limit is not None:
        lowered = f"reduced from {story.draft_limit.before}: the draft model takes no more"
        yield Step("draft", story.draft_limit.taken, "engine_log", lowered)
    if story.auto_fit is not None:
        before = story.auto_fit.before
        reduced = (
            f"reduced from {before} to fit the KV cache"
            if before is not None
            else "fits the KV cache as it is"
        )
        yield Step("auto_fit", story.auto_fit.fitted, "auto_fit_log", reduced)
    smallest = min(
        (engine for engine in engines if engine.tokens is not None),
        key=lambda engine: engine.tokens.value if engine.tokens is not None else 0,
        default=None,
    )
    if smallest is not None and smallest.tokens is not None:
        fits = smallest.full_length_concurrency
        times = f", {fits.value:.2f} requests of the limit at once" if fits is not None else ""
        yield Step("capacity", smallest.tokens.value, smallest.tokens.source, f"the KV cache's tokens{times}")
    yield Step("effective", effective.value, effective.source, "enforced now, on prompt + output")
