"""The length budget: window, requested, effective limit, and the scheduler's limits (design section 5)."""

from __future__ import annotations

import math
from dataclasses import dataclass

from vllm_length_exporter.vllm import model_config
from vllm_length_exporter.vllm.model_config import Config
from vllm_length_exporter.vllm.names import Quantity
from vllm_length_exporter.vllm.page import Page
from vllm_length_exporter.vllm.release import parsed, within

from .evidence import Evidence
from .values import Disagreement, Limits, Unknown, Value

# Versions whose API server keeps the length from before an auto-fit in /v1/models and in its error texts.
AUTO_FIT_UNKNOWN_TO_API = ("0.14.0", "0.19.99")


@dataclass(frozen=True, slots=True)
class LimitsFound:
    """The limits, with what is withheld and how well the sources agree."""

    limits: Limits
    unknown: tuple[Unknown, ...] = ()
    disagreements: tuple[Disagreement, ...] = ()
    window_rule: str | None = None  # how a config.json gave the window: the key, and the RoPE rule


def limits(evidence: Evidence, config: Config | None = None) -> LimitsFound:
    """Everything that limits a request's length; `config` is the model's config.json, if the user named it."""
    candidates = _candidates(evidence)
    effective = candidates[0] if candidates else None
    unknown = []
    if effective is None:
        unknown.append(Unknown("max_model_len", _missing_for_limit(evidence)))
    requested, mode = _requested(evidence)
    if evidence.story.arguments is None:
        unknown.append(Unknown("max_model_len_requested", "the start in the log (non-default args)"))
    found_window, window_rule = _window(evidence), None
    if found_window is None and config is not None:
        found_window, window_rule = _window_of(config, evidence)
    if found_window is None:
        unknown.append(
            Unknown("model_window", "the log of a start without --max-model-len, or --model-config")
        )
    batched, seqs = _scheduler(evidence)
    if batched is None:
        unknown.append(
            Unknown(
                "max_num_batched_tokens", "--max-num-batched-tokens or the chunked-prefill line in the log"
            )
        )
    if seqs is None:
        unknown.append(Unknown("max_num_seqs", "--max-num-seqs in the log's non-default args"))
    return LimitsFound(
        Limits(
            effective=effective,
            mode=mode,
            requested=requested,
            window=found_window,
            floor=_floor(evidence.page) if evidence.page is not None else None,
            max_num_batched_tokens=batched,
            max_num_seqs=seqs,
        ),
        tuple(unknown),
        _agreement(candidates),
        window_rule,
    )


def implied_limit(tokens: int, concurrency: float, blocks: int) -> int | None:
    """The limit L that vLLM divided by: tokens = int(concurrency x L); None where several fit (0.24+).

    The concurrency is `blocks` (of one engine, or of all) over the whole blocks of a request: where it is not, it was
    rounded on its way, and a limit from it would be one that nobody set.
    """
    if tokens <= 0 or blocks <= 0 or not math.isfinite(concurrency) or concurrency <= 0:
        return None
    of_a_request = blocks / concurrency
    if not math.isclose(of_a_request, round(of_a_request), rel_tol=1e-9):
        return None
    # The printed concurrency is a rounded binary fraction: allow for its last digit on both sides.
    low = math.ceil(tokens / concurrency * (1 - 1e-12) - 1e-9)
    high = math.ceil((tokens + 1) / concurrency * (1 - 1e-12) - 1e-9) - 1
    return low if low == high else None


def _candidates(evidence: Evidence) -> list[Value[int]]:
    """The sources that name the limit, best first."""
    story = evidence.story
    found = []
    api = _from_api(evidence)
    if story.auto_fit is not None:
        version = evidence.vllm_version
        api_is_late = within(version[0] if version else None, *AUTO_FIT_UNKNOWN_TO_API)
        fitted = Value(story.auto_fit.fitted, "auto_fit_log")
        if api_is_late is not False and (api is None or api.value != fitted.value):
            api = None  # it names the length from before the fit, or may do so
        if api is not None:
            found.append(api)
        found.append(fitted)
    elif api is not None:
        found.append(api)
    if (implied := _from_cache_config(evidence.page)) is not None:
        found.append(implied)
    if story.auto_fit is None:
        told = story.concurrency_length or story.max_seq_len or story.model_length
        if told is not None and not _auto_fit_may_follow(evidence):
            found.append(Value(told, "engine_log"))
    return found


def _auto_fit_may_follow(evidence: Evidence) -> bool:
    """With --max-model-len auto the early lines print the length before the fit: only a later line counts."""
    return evidence.story.requested == "auto" and evidence.story.concurrency_length is None


def _from_api(evidence: Evidence) -> Value[int] | None:
    lengths = {card.max_model_len for card in evidence.cards or ()}
    if len(lengths) != 1:  # none, or base models that differ: nothing says which one serves
        return None
    length = lengths.pop()
    return None if length is None else Value(length, "models_api")


def _from_cache_config(page: Page | None) -> Value[int] | None:
    lengths = set()
    for sample in page.of(Quantity.CACHE_CONFIG) if page is not None else ():
        tokens = whole(sample.labels.get("kv_cache_size_tokens"))
        concurrency = fraction(sample.labels.get("kv_cache_max_concurrency"))
        blocks = whole(sample.labels.get("num_gpu_blocks"))
        if tokens is not None and concurrency is not None and blocks is not None:
            lengths.add(implied_limit(tokens, concurrency, blocks))
    length = lengths.pop() if len(lengths) == 1 else None
    return None if length is None else Value(length, "cache_config")


def _requested(evidence: Evidence) -> tuple[Value[int | str] | None, str | None]:
    story = evidence.story
    if story.arguments is None:
        return None, "auto" if story.auto_fit is not None else None
    requested = story.requested
    if requested is None:
        return None, "default"
    return Value(requested, "engine_log"), "auto" if requested == "auto" else "explicit"


def _window(evidence: Evidence) -> Value[int] | None:
    """What the model's config derives, where the log says so: the engine takes it unless a number is set."""
    story = evidence.story
    if story.window is not None:
        return Value(story.window, "engine_log")
    if story.failure is not None and (derived := story.failure.integer("window")) is not None:
        return Value(derived, "engine_log")
    if story.auto_fit is not None and story.auto_fit.before is not None:
        return Value(story.auto_fit.before, "auto_fit_log")
    if story.arguments is None or isinstance(story.requested, int):
        return None
    derived = story.model_length if story.model_length is not None else story.max_seq_len
    return None if derived is None else Value(derived, "engine_log")


def _window_of(config: Config, evidence: Evidence) -> tuple[Value[int] | None, str | None]:
    """The window that this version derives from a config.json, and by which key and RoPE rule."""
    version = evidence.vllm_version
    try:
        derived = model_config.window(config, parsed(version[0] if version else None))
    except (
        model_config.ModelConfigError
    ):  # told where the file was read; a rule of this version alone may fail
        return None, None
    if derived is None:
        return None, None
    rule = derived.key or "no length key: vLLM's fallback"
    if derived.rope_type is not None:
        factor = f" x {derived.rope_factor:g}" if derived.rope_factor is not None else ""
        rule += f", RoPE {derived.rope_type}{factor} ({derived.rope_rule})"
    return Value(derived.window, "model_config"), rule


def _scheduler(evidence: Evidence) -> tuple[Value[int] | None, Value[int] | None]:
    story = evidence.story
    batched = story.argument_number("max_num_batched_tokens") or story.max_num_batched_tokens
    seqs = story.argument_number("max_num_seqs") or story.max_num_seqs
    return (
        None if batched is None else Value(batched, "engine_log"),
        None if seqs is None else Value(seqs, "engine_log"),
    )


def _floor(page: Page) -> Value[int] | None:
    """The top finite bucket of the prompt histogram: the largest 1-2-5 step up to the limit (0.6.6+)."""
    edges = [fraction(sample.labels.get("le")) for sample in page.of(Quantity.PROMPT_BUCKET)]
    finite = [edge for edge in edges if edge is not None]
    return Value(int(max(finite)), "histogram_bound") if finite else None


def _missing_for_limit(evidence: Evidence) -> str:
    if evidence.cards:
        return "one limit in /v1/models (its base models differ, or show none), or the start in the log"
    return "/v1/models, or the start in the log"


def _agreement(candidates: list[Value[int]]) -> tuple[Disagreement, ...]:
    if len(candidates) < 2:
        return ()
    values = [candidate.value for candidate in candidates]
    return (Disagreement("max_model_len", (max(values) - min(values)) / max(values)),)


def whole(text: str | None) -> int | None:
    """A label's value as a whole number ("10240", "10240.0"), or None: labels hold Python's own texts."""
    value = fraction(text)
    return int(value) if value is not None and value == int(value) else None


def fraction(text: str | None) -> float | None:
    """A label's value as a finite number, or None ("None", "auto", "+Inf")."""
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if math.isfinite(value) else None
