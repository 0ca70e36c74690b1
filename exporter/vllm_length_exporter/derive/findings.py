"""Named problems that hold now (design section 8), each with advice that carries the server's own numbers.

A rule looks at what was derived and says nothing where a number it needs is withheld.
To add a finding: a rule here, a row in RULES, a runbook page, and an alert or a reason why there is none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from vllm_length_exporter.server import Moment, ServerState
from vllm_length_exporter.vllm.events import StartFailure
from vllm_length_exporter.vllm.release import within

from .evidence import Evidence
from .values import EngineCapacity, EnginePressure, Finding, ServerView, Severity, State

SATURATED = 0.95  # share of KV blocks in use
CRASH_LOOP_STARTS = 3
CRASH_LOOP_SECONDS = 900.0
ADMISSION_STALL_SECONDS = 60.0
DISAGREEMENT = 0.01
TRUNCATION_HIGH = 0.3  # share of finished answers that were cut
ENOUGH_FINISHED = 20
FAR_ABOVE = 4  # the limit is so many times what the longest request needed
GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class Case:
    """What a rule may look at."""

    view: ServerView
    sources: Evidence
    state: ServerState
    now: float

    @property
    def effective(self) -> int | None:
        limit = self.view.limits.effective
        return None if limit is None else limit.value

    def engines(self) -> Iterator[tuple[EngineCapacity, EnginePressure]]:
        by_engine = {p.engine: p for p in self.view.pressure}
        for capacity in self.view.capacity:
            if capacity.engine in by_engine:
                yield capacity, by_engine[capacity.engine]


@dataclass(frozen=True, slots=True)
class Said:
    """What a rule found: one sentence that states it, one that says what to do, and the numbers' source."""

    summary: str
    advice: str
    evidence: str


@dataclass(frozen=True, slots=True)
class Rule:
    id: str
    severity: Severity
    check: Callable[[Case], Said | None]


def findings(view: ServerView, sources: Evidence, state: ServerState, now: float) -> ServerView:
    """The view with every finding that holds, in the order of RULES."""
    case = Case(view, sources, state, now)
    found = tuple(
        Finding(rule.id, rule.severity, said.summary, said.advice, said.evidence)
        for rule in RULES
        if (said := rule.check(case)) is not None
    )
    return replace(view, findings=found)


def longest_servable(capacity: EngineCapacity, effective: int) -> int | None:
    """The longest request, in tokens, that the usable blocks of an engine can hold at all.

    None where more than the limit fits, or where it cannot be told how many blocks a token costs.
    """
    if capacity.blocks is None or capacity.block_size is None:
        return None
    if capacity.one_group:
        fits = capacity.blocks.value * capacity.block_size.value
        return fits if fits < effective else None
    return None


def _capacity_below_limit(case: Case) -> Said | None:
    if case.effective is None:
        return None
    for capacity in case.view.capacity:
        fits = longest_servable(capacity, case.effective)
        if fits is not None and capacity.blocks is not None:
            return Said(
                f"A request of the limit, {case.effective} tokens, can never be served: "
                f"the KV cache of engine {capacity.engine} holds {fits} tokens that a request can use.",
                f"Set --max-model-len {fits} or lower, or give the KV cache more memory; "
                f"until then a longer request waits for ever.",
                f"{capacity.blocks.value} usable blocks ({capacity.blocks.source})",
            )
    return None


def _admission_stall(case: Case) -> Said | None:
    for capacity, pressure in case.engines():
        if not (
            pressure.waiting and pressure.waiting.value and pressure.running and not pressure.running.value
        ):
            continue
        since = case.now
        for moment in reversed(case.state.history):
            if moment.running.get(capacity.engine) != 0 or not moment.waiting.get(capacity.engine):
                break
            since = moment.at
        held = case.now - since
        if held >= ADMISSION_STALL_SECONDS:
            limit = f" (limit {case.effective})" if case.effective is not None else ""
            free = f"{capacity.free_tokens.value} tokens are free" if capacity.free_tokens else "usage is low"
            return Said(
                f"Engine {capacity.engine}: {pressure.waiting.value} requests wait, none runs, for {held:.0f} s.",
                f"The first in the queue does not fit{limit} although {free}: "
                f"lower --max-model-len to what fits, or abort that request.",
                "num_requests_waiting, num_requests_running",
            )
    return None


def _kv_cache_saturated(case: Case) -> Said | None:
    for capacity, pressure in case.engines():
        if capacity.usage_ratio is None or capacity.usage_ratio.value < SATURATED:
            continue
        waiting = pressure.waiting.value if pressure.waiting else 0
        preempting = pressure.preemptions_per_second.value if pressure.preemptions_per_second else 0.0
        if waiting or preempting:
            return Said(
                f"Engine {capacity.engine}: {capacity.usage_ratio.value:.1%} of the KV blocks are in use, "
                f"{waiting} requests wait, {preempting:.2g} preemptions a second.",
                "Send fewer or shorter requests to this server, or give the KV cache more room: "
                "--gpu-memory-utilization up, --kv-cache-dtype fp8, more GPUs, or a lower --max-num-seqs.",
                "kv_cache_usage_perc",
            )
    return None


def _preempting(case: Case) -> Said | None:
    for pressure in case.view.pressure:
        rate = pressure.preemptions_per_second
        if rate is not None and rate.value > 0:
            return Said(
                f"Engine {pressure.engine} preempts {rate.value:.2g} requests a second and computes them again.",
                "Lower --max-num-seqs so that fewer requests share the KV cache, or give it more memory.",
                "num_preemptions_total",
            )
    return None


def _binding_max_num_seqs(case: Case) -> Said | None:
    limit = case.view.limits.max_num_seqs
    if limit is None:
        return None
    for capacity, pressure in case.engines():
        running = pressure.running.value if pressure.running else 0
        waiting = pressure.waiting.value if pressure.waiting else 0
        usage = capacity.usage_ratio.value if capacity.usage_ratio else None
        if waiting and running >= limit.value and usage is not None and usage < SATURATED:
            return Said(
                f"Engine {capacity.engine}: {waiting} requests wait because --max-num-seqs is {limit.value}; "
                f"only {usage:.1%} of the KV blocks are in use.",
                f"Raise --max-num-seqs above {limit.value}: the KV cache has room for more sequences.",
                f"max_num_seqs ({limit.source}), num_requests_running, kv_cache_usage_perc",
            )
    return None


def _grown(case: Case) -> tuple[Moment, Moment] | None:
    """The first and the last moment of the window, where there are two."""
    history = case.state.history
    return (history[0], history[-1]) if len(history) > 1 and case.sources.page is not None else None


def _length_rejections(case: Case) -> Said | None:
    moments = _grown(case)
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


def _silent_clamping(case: Case) -> Said | None:
    moments = _grown(case)
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


def _truncation_high(case: Case) -> Said | None:
    moments = _grown(case)
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


def _limit_far_above_workload(case: Case) -> Said | None:
    longest = next((row for row in case.view.recommended if row.coverage == 1.0), None)
    if longest is None or case.effective is None or longest.tokens * FAR_ABOVE > case.effective:
        return None
    return Said(
        f"The limit is {case.effective} tokens; no request of the last hour needed more than {longest.tokens}.",
        f"--max-model-len {longest.tokens} would have served all of them, "
        f"and would let a request's worst case be planned with {case.effective / longest.tokens:.1f} times less KV cache.",
        longest.source,
    )


def _limit_below_window(case: Case) -> Said | None:
    limits = case.view.limits
    if limits.effective is None or limits.window is None or limits.effective.value >= limits.window.value:
        return None
    effective, window = limits.effective.value, limits.window.value
    why = {
        "explicit": f"because --max-model-len {effective} was given",
        "auto": "because more does not fit the KV cache (--max-model-len auto)",
    }.get(limits.mode or "", "by this server's settings")
    return Said(
        f"The model was made for {window} tokens; this server takes {effective}, {why}.",
        f"To serve longer requests raise --max-model-len up to {window}; "
        f"each full-length request then takes {window / effective:.3g} times the KV cache.",
        f"effective: {limits.effective.source}, window: {limits.window.source}",
    )


def _limit_beyond_window(case: Case) -> Said | None:
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


def _auto_fit_reduced(case: Case) -> Said | None:
    fit = case.sources.story.auto_fit
    if fit is None or fit.before is None or fit.before <= fit.fitted:
        return None
    return Said(
        f"vLLM reduced the limit from {fit.before} to {fit.fitted} tokens to fit the KV cache.",
        f"To get more than {fit.fitted}, give the KV cache more memory or use --kv-cache-dtype fp8.",
        "the log's auto-fit line",
    )


def _batched_tokens_below_limit(case: Case) -> Said | None:
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


def _startup(cause: StartFailure, advice: Callable[[Case], str]) -> Callable[[Case], Said | None]:
    def check(case: Case) -> Said | None:
        failure = case.state.story.failure
        if failure is None or failure.cause != cause:
            return None
        numbers = "".join(_told(failure.integer(key), text) for key, text in _FAILURE_TEXTS)
        return Said(f"The server did not start: {_CAUSES[cause]}{numbers}.", advice(case), "the startup log")

    return check


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


def _advise_memory(case: Case) -> str:
    fits = servable_estimate(case)
    shorter = f"Set --max-model-len {fits}" if fits is not None else "Set a lower --max-model-len"
    return f"{shorter}, or give the KV cache more memory (--gpu-memory-utilization, --kv-cache-dtype fp8, more GPUs)."


def _advise_window(case: Case) -> str:
    failure = case.state.story.failure
    window = failure.integer("window") if failure is not None else None
    return f"Set --max-model-len {window} or lower." if window is not None else "Set a lower --max-model-len."


def _advise_batched(case: Case) -> str:
    failure = case.state.story.failure
    limit = failure.integer("limit") if failure is not None else None
    to = f" {limit}" if limit is not None else " to at least the limit"
    return f"Set --max-num-batched-tokens{to}, or drop --no-enable-chunked-prefill."


def _advise_no_memory(_case: Case) -> str:
    return (
        "The weights and activations fill the share that vLLM may use: raise --gpu-memory-utilization, "
        "spread the model over more GPUs (--tensor-parallel-size), or use smaller weights."
    )


def _advise_busy(_case: Case) -> str:
    return (
        "End the other process on this device (an earlier vLLM may still be going down), "
        "or lower --gpu-memory-utilization to what is free."
    )


def _startup_killed(case: Case) -> Said | None:
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


def _crash_loop(case: Case) -> Said | None:
    recent = [t for t in case.state.start_times if t > case.now - CRASH_LOOP_SECONDS]
    if len(recent) < CRASH_LOOP_STARTS:
        return None
    return Said(
        f"The server was started {len(recent)} times in the last {CRASH_LOOP_SECONDS / 60:.0f} minutes.",
        "Look at the cause of the last failed start; a supervisor starts it again and again.",
        "starts seen in the log, or a new start time of the process",
    )


def _gauges_frozen(case: Case) -> Said | None:
    if case.view.state is not State.STALLED or case.sources.page is None or case.state.progress_at is None:
        return None
    return Said(
        f"Requests are in the engine, and none of its counters has moved for "
        f"{case.now - case.state.progress_at:.0f} s.",
        "The engine hangs, or its statistics no longer reach the API server: look at its log, then restart it.",
        "vLLM's token and preemption counters",
    )


def _sources_disagree(case: Case) -> Said | None:
    apart = [d for d in case.view.disagreements if d.ratio > DISAGREEMENT]
    if not apart:
        return None
    what = ", ".join(f"{d.quantity} by {d.ratio:.1%}" for d in apart)
    return Said(
        f"Sources that should agree do not: {what}.",
        "Check that the log given with --log is this server's, and that it is its newest start.",
        "the sources of the values",
    )


def _rejections_unobservable(case: Case) -> Said | None:
    if case.view.rejections_observable == "exact" or case.sources.page is None:
        return None
    bound = " beyond an upper bound" if case.view.rejections_observable == "upper_bound" else ""
    return Said(
        f"Requests refused for length cannot be counted here{bound}: vLLM counts none, and this version logs none.",
        "Add the middleware: --middleware vllm_length_exporter.middleware.LengthAccounting.",
        "vLLM's version, its log and its page",
    )


def _log_stats_disabled(case: Case) -> Said | None:
    page = case.sources.page
    if page is None or page.has_statistics:
        return None
    return Said(
        "vLLM's page holds no series of the engine: usage, queue and preemptions cannot be seen.",
        "Start vLLM without --disable-log-stats.",
        "/metrics",
    )


def _capacity_lines_hidden(case: Case) -> Said | None:
    story = case.sources.story
    hidden = (
        story.started and story.arguments is None and story.max_seq_len is None and not story.capacity_tokens
    )
    if not hidden or any(capacity.tokens is not None for capacity in case.view.capacity):
        return None
    return Said(
        "The log tells of a start, but not its limits and capacity: its level hides them.",
        "Start vLLM with VLLM_LOGGING_LEVEL=INFO (the default), or use vLLM 0.24 or newer.",
        "the log",
    )


# fmt: off
RULES = (
    Rule("startup_kv_cache_too_small", Severity.CRITICAL, _startup(StartFailure.KV_CACHE_TOO_SMALL, _advise_memory)),
    Rule("startup_no_kv_memory", Severity.CRITICAL, _startup(StartFailure.NO_KV_MEMORY, _advise_no_memory)),
    Rule("startup_limit_above_window", Severity.CRITICAL, _startup(StartFailure.LIMIT_ABOVE_WINDOW, _advise_window)),
    Rule("startup_memory_busy", Severity.CRITICAL, _startup(StartFailure.MEMORY_BUSY, _advise_busy)),
    Rule("startup_no_kv_memory", Severity.CRITICAL, _startup(StartFailure.AUTO_FIT_IMPOSSIBLE, _advise_no_memory)),
    Rule(
        "batched_tokens_below_limit",
        Severity.CRITICAL,
        _startup(StartFailure.BATCHED_TOKENS_BELOW_LIMIT, _advise_batched),
    ),
    Rule("startup_killed", Severity.CRITICAL, _startup_killed),
    Rule("crash_loop", Severity.CRITICAL, _crash_loop),
    Rule("capacity_below_limit", Severity.CRITICAL, _capacity_below_limit),
    Rule("admission_stall", Severity.CRITICAL, _admission_stall),
    Rule("gauges_frozen", Severity.CRITICAL, _gauges_frozen),
    Rule("kv_cache_saturated", Severity.WARNING, _kv_cache_saturated),
    Rule("preempting", Severity.WARNING, _preempting),
    Rule("length_rejections", Severity.WARNING, _length_rejections),
    Rule("silent_clamping", Severity.WARNING, _silent_clamping),
    Rule("truncation_high", Severity.INFO, _truncation_high),
    Rule("binding_max_num_seqs", Severity.WARNING, _binding_max_num_seqs),
    Rule("batched_tokens_below_limit", Severity.WARNING, _batched_tokens_below_limit),
    Rule("limit_beyond_window", Severity.WARNING, _limit_beyond_window),
    Rule("sources_disagree", Severity.WARNING, _sources_disagree),
    Rule("limit_far_above_workload", Severity.INFO, _limit_far_above_workload),
    Rule("auto_fit_reduced", Severity.INFO, _auto_fit_reduced),
    Rule("limit_below_window", Severity.INFO, _limit_below_window),
    Rule("rejections_unobservable", Severity.INFO, _rejections_unobservable),
    Rule("log_stats_disabled", Severity.WARNING, _log_stats_disabled),
    Rule("capacity_lines_hidden", Severity.INFO, _capacity_lines_hidden),
)
# fmt: on
