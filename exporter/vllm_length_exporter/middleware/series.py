"""The series of the middleware, in prometheus_client's default registry: vLLM's own page."""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Callable

from prometheus_client import Counter, Gauge, Histogram

VERSION = "0.1.0"

Add = Callable[[float], None]

logger = logging.getLogger(__name__)

# Powers of two and the halves between: limits are mostly powers of two, so that a limit is an edge.
BUCKETS = tuple(32 * 2**octave * half for octave in range(16) for half in (2, 3))

REQUESTS = Counter(
    "vllm_length_middleware_requests_total",
    "Requests to endpoints that take a prompt, by how they ended.",
    ["model", "endpoint", "outcome"],
)
REFUSED = Counter(
    "vllm_length_middleware_refused_total",
    "Requests refused for their length, by the cause that the numbers prove.",
    ["model", "endpoint", "cause"],
)
TRUNCATED = Counter(
    "vllm_length_middleware_truncated_total",
    "Answers that ended for length: the context was full, or the requested number was reached.",
    ["model", "cause"],
)
CLAMPED = Counter(
    "vllm_length_middleware_clamped_total",
    "Requests served with less output budget than they asked for: prompt + max_tokens exceeds the limit.",
    ["model"],
)
UNACCOUNTED_TOTAL = Counter(
    "vllm_length_middleware_unaccounted_total", "What the middleware could not read or decide.", ["reason"]
)
PROMPT = Histogram(
    "vllm_length_middleware_prompt_tokens", "Prompt tokens of answered requests.", ["model"], buckets=BUCKETS
)
REQUESTED_OUTPUT = Histogram(
    "vllm_length_middleware_requested_output_tokens",
    "Output tokens that answered requests asked for, where they sent a number.",
    ["model"],
    buckets=BUCKETS,
)
TOTAL = Histogram(
    "vllm_length_middleware_total_tokens",
    "Prompt + completion tokens of answered requests.",
    ["model"],
    buckets=BUCKETS,
)
ASKED = Histogram(
    "vllm_length_middleware_asked_tokens",
    "Prompt + requested output tokens of answered requests; prompt + completion where none were requested.",
    ["model"],
    buckets=BUCKETS,
)
REFUSED_ASKED = Histogram(
    "vllm_length_middleware_refused_asked_tokens",
    "Prompt + requested output tokens of refused requests, where both are known exactly.",
    ["model"],
    buckets=BUCKETS,
)
# Several API servers share one page: "max" makes one series of theirs.
LIMIT = Gauge(
    "vllm_length_middleware_limit_tokens",
    "The limit on prompt + output that the middleware compares with.",
    ["source"],
    multiprocess_mode="max",
)
INFO = Gauge("vllm_length_middleware_info", "1, with its version.", ["version"], multiprocess_mode="max")
ERRORS = Counter(
    "vllm_length_middleware_errors_total", "Errors of the middleware itself, hidden from clients."
)

CAUSES = ("prompt_too_long", "prompt_plus_output_too_long", "output_too_long", "no_room_for_output", "other")
TRUNCATION_CAUSES = ("context_full", "max_tokens", "unknown")
UNACCOUNTED = {
    "request_too_large": "the request's body is beyond the part that is kept: what it asked for is unknown",
    "request_malformed": "the request's body is no JSON object",
    "answer_unread": "the answer is compressed, too large, or in a form that is not known",
    "stream_without_usage": "the stream carried no usage, and vLLM kept none",
    "stream_cut": "the stream ended before its end marker",
    "several_prompts": "usage adds several prompts up: the length of none is known",
    "several_answers": "usage adds several answers up: the length of none is known",
    "several_turns": "usage adds the turns of built-in tools up",
    "limit_unknown": "the request asked for an output, or its answer ended for length, and the limit is unknown",
    "over_limit": "prompt + completion exceeds the limit: the numbers do not belong together",
}


class ModelSeries:
    """The series of one model. Looking a child up by its labels costs as much as counting does."""

    __slots__ = ("_asked", "_output", "_prompt", "_total", "_truncated", "clamped", "refused_asked")

    def __init__(self, model: str) -> None:
        self._prompt = _observing(PROMPT.labels(model))
        self._output = _observing(REQUESTED_OUTPUT.labels(model))
        self._total = _observing(TOTAL.labels(model))
        self._asked = _observing(ASKED.labels(model))
        self.refused_asked = REFUSED_ASKED.labels(model).observe
        self.clamped = CLAMPED.labels(model).inc
        self._truncated = {cause: TRUNCATED.labels(model, cause).inc for cause in TRUNCATION_CAUSES}

    def served(self, prompt: int, output: int | None, total: int | None, asked: int | None) -> None:
        """The lengths of an answered request, as far as they are known; `output` is what it asked for."""
        self._prompt(prompt)
        if output is not None:
            self._output(output)
        if total is not None:
            self._total(total)
        if asked is not None:
            self._asked(asked)

    def truncated(self, cause: str, answers: int) -> None:
        """So many answers ended for length."""
        self._truncated[cause](answers)


def _observing(histogram: Histogram) -> Add:
    """The histogram's `observe`, with the bucket found by bisection: four are written for each request."""
    try:
        bounds, buckets, total = histogram._upper_bounds, histogram._buckets, histogram._sum
    except AttributeError:  # another prometheus_client, with other insides
        return histogram.observe
    increments, add = [bucket.inc for bucket in buckets], total.inc

    def observe(length: float) -> None:
        increments[bisect_left(bounds, length)](1)
        add(length)

    return observe


def _adding(counter: Counter) -> Add:
    """The counter's `inc`, without the checks that take longer than it does."""
    value = getattr(counter, "_value", None)
    return counter.inc if value is None else value.inc


_models: dict[str, ModelSeries] = {}
_requests: dict[tuple[str, str, str], Add] = {}
_unaccounted = {reason: UNACCOUNTED_TOTAL.labels(reason).inc for reason in UNACCOUNTED}
_said = False


def of(model: str) -> ModelSeries:
    """The series of a model; there are as many as served names."""
    found = _models.get(model)
    if found is None:
        found = _models[model] = ModelSeries(model)
    return found


def request(model: str, endpoint: str, outcome: str) -> None:
    """A request ended so."""
    key = (model, endpoint, outcome)
    found = _requests.get(key)
    if found is None:
        found = _requests[key] = _adding(REQUESTS.labels(*key))
    found(1)


def refused(model: str, endpoint: str, cause: str) -> None:
    """A request was refused for its length."""
    REFUSED.labels(model, endpoint, cause).inc()


def unaccounted(reason: str) -> None:
    """Something could not be read or decided."""
    _unaccounted[reason]()


def hide(error: Exception) -> None:
    """Count an error of ours, and tell the first one in the log."""
    global _said
    ERRORS.inc()
    if not _said:
        _said = True
        logger.error(
            "length accounting failed, and goes on: %r; more of them are only counted, in %s",
            error,
            "vllm_length_middleware_errors_total",
        )
