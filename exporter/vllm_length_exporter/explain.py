"""From a message of vLLM's to its cause and cure: an error, an answer's body, an excerpt of a log.

What is explained may come from anywhere, so it is looked for anywhere in the text; nothing of it reaches a
series.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from vllm_length_exporter.remedies import BY_MESSAGE, REMEDIES
from vllm_length_exporter.remedies.log import LOG_REMEDIES, version_notes
from vllm_length_exporter.remedies.remedy import Context, Fields, Remedy
from vllm_length_exporter.remedies.request import other_refusal
from vllm_length_exporter.remedies.start import other_failure
from vllm_length_exporter.terminal import lines
from vllm_length_exporter.vllm.events import Event, EventName, FieldValue
from vllm_length_exporter.vllm.lines import events as log_events
from vllm_length_exporter.vllm.messages import Kind
from vllm_length_exporter.vllm.refusals import refusal
from vllm_length_exporter.vllm.search import LONGEST, errors, log_words

NUMBERS: Mapping[str, tuple[str, ...]] = {
    # the contract's key <- the fields that it may come from, the best first
    "limit": ("limit", "max_model_len"),
    "prompt_tokens": ("prompt_tokens",),
    "prompt_tokens_at_least": ("prompt_tokens_at_least",),
    "output_tokens": ("output_tokens",),
    "total_tokens": ("total_tokens",),
    "capacity_tokens": ("capacity_tokens",),
    "needed_bytes": ("needed_bytes", "desired_bytes"),
    "available_bytes": ("available_bytes", "free_bytes"),
    "estimated_limit": ("estimated_limit",),
    "window": ("window", "max_model_len_before"),
    "requested": ("requested",),
    "full_length_concurrency": ("full_length_concurrency",),
    "preemptions": ("preemptions",),
}
# Of several things that an excerpt tells, the one that somebody asks about.
_ASKED_FIRST = (
    EventName.ENGINE_DIED,
    EventName.PREEMPTED,
    EventName.STATISTICS,
    EventName.WINDOW,
    EventName.DRAFT_LIMIT,
    EventName.AUTO_FIT,
    EventName.KV_CAPACITY,
    EventName.KV_BLOCKS,
    EventName.KV_MEMORY,
    EventName.CAPACITY_TRAP,
    EventName.BLOCKS_OVERRIDE,
    EventName.BLOCK_SIZE,
    EventName.MODEL_LENGTH,
    EventName.SCHEDULER_LIMITS,
    EventName.ACCESS,
    EventName.STARTED,
    EventName.SHUTDOWN,
    EventName.ENGINE_CONFIG,
    EventName.ARGUMENTS,
    EventName.VERSION,
    EventName.OTHER,
)
_SMALLEST = ("capacity_tokens", "full_length_concurrency", "available_bytes")
# One sentence is a warning and an error's beginning; alone it is taken for the error, which people ask about.
_WARNING_MARKS = ("WARNING", "Make sure the value is correct", "must be used with extreme caution")
_ERROR_MARKS = ("To allow overriding this maximum", "alueError", "Value error", "ERROR", "BadRequest")


@dataclass(frozen=True, slots=True)
class Explanation:
    """What a text means. `numbers` holds what stands in the text, in base units; nothing is filled in."""

    kind: str  # request_error, startup_error, log, unknown
    id: str | None = None  # of the catalogue
    cause: str | None = None
    numbers: Mapping[str, int | float] = field(default_factory=dict)
    advice: tuple[str, ...] = ()
    who: str = "nobody"  # who can change it: client, operator, both, nobody
    summary: str = "Nothing that vLLM says about length was recognised."
    versions: tuple[str, ...] = ()

    def as_json(self) -> dict[str, object]:
        """The contract's form; its keys are stable."""
        return {
            "kind": self.kind,
            "id": self.id,
            "cause": self.cause,
            "numbers": dict(self.numbers),
            "advice": list(self.advice),
        }


def explain(text: str) -> Explanation:
    """What a message, an answer's body, a client's exception or a log excerpt means, and what to do."""
    told = log_events(text.splitlines())
    text = text[-LONGEST:]  # the words are looked for in the end of a long text, where a failure stands
    context = _context(text, told)
    found = errors(text)
    failure = next((event for event in told if event.name is EventName.START_FAILED), None)
    if failure is not None and failure.message_id != "start_failed":
        whole = found is not None and found.whole and found.message.id == failure.message_id
        return _startup(failure.message_id, failure.fields, told, context, whole=whole)
    if found is not None and found.message.id.startswith("user_len_gt_derived"):
        warned = any(mark in text for mark in _WARNING_MARKS)
        found = None if warned and not any(mark in text for mark in _ERROR_MARKS) else found
    if found is not None and found.message.kind is Kind.STARTUP_ERROR:
        return _startup(found.message.id, found.fields, told, context, whole=found.whole)
    if found is not None:
        return _refused(found.message.id, found.fields, told, context, whole=found.whole)
    if (refused := _asked(told, (EventName.REFUSED,))) is not None:
        return _refused(refused.message_id, refused.fields, told, context)
    if failure is not None:
        return _startup(failure.message_id, failure.fields, told, context)
    return _log(text, told, context)


def explain_text(explanation: Explanation) -> str:
    """The explanation for a reader at a terminal."""
    rows = [explanation.summary]
    if explanation.kind == "unknown":
        return lines(rows)
    rows += ["", f"kind     {explanation.kind}, cause {explanation.cause}, message {explanation.id}"]
    rows += [f"change   {_WHO[explanation.who]}"]
    if explanation.numbers:
        rows += ["", "In the text"]
        width = max(map(len, explanation.numbers))
        rows += [f"  {key:{width}}  {_shown(key, value)}" for key, value in explanation.numbers.items()]
    if explanation.advice:
        rows += ["", "What to do", *(f"  - {advice}" for advice in explanation.advice)]
    if explanation.versions:
        rows += ["", "Across versions", *(f"  - {note}" for note in explanation.versions)]
    return lines(rows)


_WHO = {
    "client": "the client that sends the request",
    "operator": "the operator of the server",
    "both": "the client, or the operator of the server",
    "nobody": "nothing has to change",
}


def _shown(key: str, value: int | float) -> str:
    if key.endswith("_bytes"):
        return f"{value:,} ({value / 2**30:.2f} GiB)"
    return f"{value:,}"


def _startup(
    id_: str, fields: Fields, told: Sequence[Event], context: Context, *, whole: bool = False
) -> Explanation:
    cause = str(fields.get("cause", "other"))
    remedy = REMEDIES.get(cause, other_failure)(fields, context)
    return _made("startup_error", id_, cause, {**_known(told), **fields}, remedy, whole=whole)


def _refused(
    id_: str, said: Fields, told: Sequence[Event], context: Context, *, whole: bool = False
) -> Explanation:
    fields = refusal(id_, said)
    cause = str(fields["cause"])
    remedy = (BY_MESSAGE.get(id_) or REMEDIES.get(cause, other_refusal))(fields, context)
    known = {key: value for key, value in _known(told).items() if key not in ("max_model_len", "requested")}
    fields = {**known, **fields}
    return _made("request_error", id_, cause, fields, remedy, whole=whole)


def _log(text: str, told: Sequence[Event], context: Context) -> Explanation:
    event = _asked(told, _ASKED_FIRST)
    if event is None:
        found = log_words(text)
        if found is None:
            return Explanation("unknown")
        if found.message.event is EventName.REFUSED:
            return _refused(found.message.id, found.fields, told, context, whole=found.whole)
        event = Event(found.message.event, found.message.id, found.fields)
    fields = {**_known(told), **event.fields}
    remedy, cause = LOG_REMEDIES.get(event.name, _nothing)(fields, context)
    return _made("log", event.message_id, cause, fields, remedy)


def _asked(told: Sequence[Event], names: Iterable[EventName]) -> Event | None:
    """The event that the excerpt is about; of statistics the fullest, else the last of its name."""
    by_name: dict[EventName, Event] = {}
    for event in told:
        before = by_name.get(event.name)
        if event.name is EventName.ENGINE_DIED and EventName.SHUTDOWN in by_name:
            continue  # engines that end in an asked-for shutdown are reported dead as well
        if event.name is EventName.STATISTICS and before is not None and _fuller(before, event):
            continue
        by_name[event.name] = event
    return next((by_name[name] for name in names if name in by_name), None)


def _fuller(one: Event, other: Event) -> bool:
    def key(event: Event) -> tuple[float, float]:
        return event.number("kv_cache_usage_ratio") or 0.0, event.number("waiting") or 0.0

    return key(one) > key(other)


def _nothing(fields: Fields, context: Context) -> tuple[Remedy, str]:
    del fields, context
    return Remedy("nobody", "A line of vLLM's that is of no consequence to length.", ()), "none"


def _known(told: Iterable[Event]) -> dict[str, FieldValue]:
    """The numbers of a whole excerpt: of several engines' figures the smallest, of limits the fitted one."""
    known: dict[str, FieldValue] = {}
    rank = 0
    for event in told:
        if event.name is EventName.ARGUMENTS and event.integer("max_model_len") is not None:
            known["requested"] = event.integer("max_model_len")
        if event.name is EventName.WINDOW:
            known |= {key: event.fields[key] for key in ("window", "requested") if key in event.fields}
        for key in _SMALLEST:
            value, before = event.number(key), known.get(key)
            if value is not None and not (isinstance(before, int | float) and before <= value):
                known[key] = event.fields[key]
        if (preemptions := event.integer("preemptions")) is not None:
            known["preemptions"] = preemptions
        limit, better = event.integer("max_model_len"), _LIMIT_RANK.get(event.name, 0)
        if limit is not None and better > rank and not event.fields.get("draft"):
            known["max_model_len"], rank = limit, better
            if (before_fit := event.integer("max_model_len_before")) is not None:
                known["window"] = before_fit
    return known


_LIMIT_RANK = {
    EventName.MODEL_LENGTH: 1, EventName.DRAFT_LIMIT: 2, EventName.KV_CAPACITY: 3, EventName.AUTO_FIT: 4
}  # fmt: skip


def _context(text: str, told: Sequence[Event]) -> Context:
    arguments: dict[str, FieldValue] = {}
    for event in told:
        if event.name in (EventName.ARGUMENTS, EventName.ENGINE_CONFIG):
            arguments |= event.fields
    known = _known(told)
    ids = {event.message_id for event in told}
    version = next((event.text("version") for event in told if event.text("version")), None)
    capacity, available = known.get("capacity_tokens"), known.get("available_bytes")
    utilization = arguments.get("gpu_memory_utilization")
    stages = arguments.get("pipeline_parallel_size")
    return Context(
        version=version,
        is_cpu=bool(ids & {"cpu_kv_memory_set", "cpu_kv_memory_auto"}) or "VLLM_CPU_KVCACHE_SPACE" in text,
        memory_is_fixed="kv_cache_memory_bytes" in arguments or "reserved_kv_memory" in ids,
        utilization=utilization if isinstance(utilization, float) else None,
        kv_cache_dtype=str(arguments["kv_cache_dtype"]) if "kv_cache_dtype" in arguments else None,
        speculative=bool(arguments.get("speculative")),
        pipeline_parallel=isinstance(stages, int) and stages > 1,
        lora="enable_lora" in text or "LoRA" in text,
        capacity_tokens=capacity if isinstance(capacity, int) else None,
        available_bytes=available if isinstance(available, int) else None,
    )


def _made(
    kind: str, id_: str, cause: str, fields: Fields, remedy: Remedy, *, whole: bool = False
) -> Explanation:
    numbers: dict[str, int | float] = {}
    for key, names in NUMBERS.items():
        for name in names:
            value = fields.get(name)
            if isinstance(value, int | float) and not isinstance(value, bool):
                numbers[key] = value
                break
    return Explanation(
        kind=kind,
        id=id_,
        cause=cause,
        numbers=numbers,
        advice=remedy.advice,
        who=remedy.who,
        summary=remedy.summary,
        versions=version_notes(id_ if whole else None, cause),
    )
