"""What the log told of one start: the facts of a `Story`, folded event by event."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from vllm_length_exporter.vllm.events import FAILURE_FIELDS, Event, EventName


@dataclass(frozen=True, slots=True)
class AutoFit:
    """vLLM chose the limit itself (0.14+): `fitted` is in force, `before` what it started from."""

    fitted: int
    before: int | None = None
    available_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class DraftLimit:
    """vLLM reduced the limit to what the draft model of speculative decoding takes (0.33+)."""

    taken: int
    before: int


@dataclass(frozen=True, slots=True)
class Failure:
    """The root cause of a failed start, and the numbers in its text (FAILURE_FIELDS, base units)."""

    cause: str
    message_id: str
    numbers: Mapping[str, int | float] = field(default_factory=dict)

    def integer(self, key: str) -> int | None:
        value = self.numbers.get(key)
        return int(value) if value is not None else None


@dataclass(frozen=True, slots=True)
class Story:
    """One start of a server as its log tells it. What it did not tell is None.

    The mappings are by engine ("0" where vLLM names none); of several workers' figures the smallest is true.
    """

    version: str | None = None
    generation: str | None = None
    arguments: Mapping[str, object] | None = None
    model_length: int | None = None  # before auto-fit
    max_seq_len: int | None = None  # before auto-fit
    max_num_batched_tokens: int | None = None
    max_num_seqs: int | None = None
    context_parallel: bool | None = None
    speculative: bool = False
    kv_memory: Mapping[str, int] = field(default_factory=dict)
    capacity_tokens: Mapping[str, int] = field(default_factory=dict)
    concurrency: Mapping[str, float] = field(default_factory=dict)
    concurrency_length: int | None = None
    blocks: Mapping[str, int] = field(default_factory=dict)
    override: Mapping[str, tuple[int, int]] = field(default_factory=dict)  # before, after
    auto_fit: AutoFit | None = None
    draft_limit: DraftLimit | None = None
    block_size: int | None = None
    trap: str | None = None  # why blocks x block size is no capacity here
    window: int | None = None
    started: bool = False
    failure: Failure | None = None
    shutdown: bool = False
    died: bool = False

    @property
    def is_over(self) -> bool:
        return self.shutdown or self.died or self.failure is not None

    @property
    def is_untold(self) -> bool:
        """Nothing but a version was seen: the log begins in the middle, or the start just began."""
        return replace(self, version=None) == Story()

    def argument(self, name: str) -> object:
        """The operator's argument, or None where it was not given (or the log does not show them)."""
        return None if self.arguments is None else self.arguments.get(name)

    def argument_number(self, name: str) -> int | None:
        value = self.argument(name)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    @property
    def requested(self) -> int | str | None:
        """`--max-model-len` as given: tokens, "auto", or None where it was not given or is not told."""
        value = self.argument("max_model_len")
        return value if value == "auto" else self.argument_number("max_model_len")


def opens(story: Story, event: Event) -> bool:
    """Whether this event begins another start, and so ends the story told so far."""
    if event.name is EventName.ARGUMENTS:
        return not story.is_untold
    if event.name is EventName.VERSION:
        return story.is_over or story.started
    return event.name is EventName.ENGINE_CONFIG and story.is_over


def told(story: Story, event: Event) -> Story:
    """The story with one more event in it; events that say nothing of a start leave it as it is."""
    tell = _TELLERS.get(event.name)
    return story if tell is None else tell(story, event)


def _version(story: Story, event: Event) -> Story:
    return replace(story, version=event.text("version") or story.version)


def _arguments(story: Story, event: Event) -> Story:
    return replace(
        story,
        arguments=dict(event.fields),
        speculative=story.speculative or bool(event.fields.get("speculative")),
    )


def _model_length(story: Story, event: Event) -> Story:
    if event.fields.get("draft") or story.model_length is not None:
        return story  # a draft model's line comes after the server's own
    return replace(story, model_length=event.integer("max_model_len"))


def _draft_limit(story: Story, event: Event) -> Story:
    taken, before = event.integer("max_model_len"), event.integer("reduced_from")
    if taken is None or before is None:
        return story
    return replace(story, draft_limit=DraftLimit(taken, before))


def _engine_config(story: Story, event: Event) -> Story:
    sizes = [event.integer(f"{kind}_context_parallel_size") for kind in ("decode", "prefill")]
    parallel = any(size is not None and size > 1 for size in sizes)
    return replace(
        story,
        version=event.text("version") or story.version,
        generation=event.text("generation") or story.generation,
        max_seq_len=story.max_seq_len if story.max_seq_len is not None else event.integer("max_seq_len"),
        context_parallel=parallel or bool(story.context_parallel),
        speculative=story.speculative or bool(event.fields.get("speculative")),
    )


def _scheduler_limits(story: Story, event: Event) -> Story:
    return replace(
        story,
        max_num_batched_tokens=event.integer("max_num_batched_tokens") or story.max_num_batched_tokens,
        max_num_seqs=event.integer("max_num_seqs") or story.max_num_seqs,
    )


def _engine(event: Event) -> str:
    return event.text("engine") or event.process.engine or "0"


def _smallest(known: Mapping[str, int], event: Event, key: str) -> Mapping[str, int]:
    value, engine = event.integer(key), _engine(event)
    if value is None or (engine in known and known[engine] <= value):
        return known
    return {**known, engine: value}


def _kv_memory(story: Story, event: Event) -> Story:
    return replace(story, kv_memory=_smallest(story.kv_memory, event, "available_bytes"))


def _kv_blocks(story: Story, event: Event) -> Story:
    return replace(story, blocks=_smallest(story.blocks, event, "num_gpu_blocks"))


def _kv_capacity(story: Story, event: Event) -> Story:
    story = replace(story, capacity_tokens=_smallest(story.capacity_tokens, event, "capacity_tokens"))
    concurrency, engine = event.number("full_length_concurrency"), _engine(event)
    if concurrency is None or story.concurrency.get(engine, concurrency) < concurrency:
        return story
    return replace(
        story,
        concurrency={**story.concurrency, engine: concurrency},
        concurrency_length=event.integer("max_model_len") or story.concurrency_length,
    )


def _override(story: Story, event: Event) -> Story:
    before, after = event.integer("blocks_before"), event.integer("blocks_after")
    if before is None or after is None:
        return story
    return replace(story, override={**story.override, _engine(event): (before, after)})


def _auto_fit(story: Story, event: Event) -> Story:
    fitted = event.integer("max_model_len")
    if fitted is None or (story.auto_fit is not None and story.auto_fit.fitted <= fitted):
        return story  # of several engines' figures the smallest is in force
    return replace(
        story,
        auto_fit=AutoFit(fitted, event.integer("max_model_len_before"), event.integer("available_bytes")),
    )


def _block_size(story: Story, event: Event) -> Story:
    return replace(story, block_size=event.integer("block_size") or story.block_size)


def _trap(story: Story, event: Event) -> Story:
    return replace(story, trap=story.trap or event.message_id)


def _window(story: Story, event: Event) -> Story:
    return replace(story, window=event.integer("window") or story.window)


def _started(story: Story, _event: Event) -> Story:
    return replace(story, started=True)


def _failed(story: Story, event: Event) -> Story:
    if story.started or story.failure is not None:
        return story  # the first cause is the root; what follows is its echo
    numbers = {
        key: value
        for key in FAILURE_FIELDS
        if isinstance(value := event.fields.get(key), int | float) and not isinstance(value, bool)
    }
    return replace(story, failure=Failure(event.text("cause") or "other", event.message_id, numbers))


def _shutdown(story: Story, _event: Event) -> Story:
    return replace(story, shutdown=True)


def _died(story: Story, _event: Event) -> Story:
    # Engines that end in an asked-for shutdown are reported dead as well: that is no crash.
    return story if story.shutdown or not story.started else replace(story, died=True)


_TELLERS = {
    EventName.VERSION: _version,
    EventName.ARGUMENTS: _arguments,
    EventName.MODEL_LENGTH: _model_length,
    EventName.DRAFT_LIMIT: _draft_limit,
    EventName.ENGINE_CONFIG: _engine_config,
    EventName.SCHEDULER_LIMITS: _scheduler_limits,
    EventName.KV_MEMORY: _kv_memory,
    EventName.KV_BLOCKS: _kv_blocks,
    EventName.KV_CAPACITY: _kv_capacity,
    EventName.BLOCKS_OVERRIDE: _override,
    EventName.AUTO_FIT: _auto_fit,
    EventName.BLOCK_SIZE: _block_size,
    EventName.CAPACITY_TRAP: _trap,
    EventName.WINDOW: _window,
    EventName.STARTED: _started,
    EventName.START_FAILED: _failed,
    EventName.SHUTDOWN: _shutdown,
    EventName.ENGINE_DIED: _died,
}
