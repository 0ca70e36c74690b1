"""The plan: what fits, both ways, what would change it, and the flags to set."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from vllm_length_exporter.planner import what_if
from vllm_length_exporter.planner.architecture import Architecture, architecture
from vllm_length_exporter.planner.budget import Budget, budget
from vllm_length_exporter.planner.capacity import Capacity, Planned
from vllm_length_exporter.planner.error import PlanError
from vllm_length_exporter.planner.flags import Flag, Wish, flags
from vllm_length_exporter.planner.measured import Server
from vllm_length_exporter.planner.pool import NULL_BLOCKS, Layout, Refusal, layout
from vllm_length_exporter.planner.problems import notes, problems
from vllm_length_exporter.planner.reading import ModelFiles
from vllm_length_exporter.planner.settings import Settings
from vllm_length_exporter.planner.weights import Span
from vllm_length_exporter.planner.what_if import WhatIf
from vllm_length_exporter.vllm.model_config import Derived, ModelConfigError, window

SHORTEST, CONCURRENCIES = 1024, (1, 2, 4, 8, 16, 32, 64, 128, 256)


@dataclass(frozen=True, slots=True)
class AtLength:
    """How many requests of a length fit at once; the memory that one needs, where layers are known."""

    length: int
    requests: Span
    needed_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class AtConcurrency:
    """The longest length of which so many requests fit at once."""

    requests: int
    longest: Span


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that is said of one model or server. What is not known is None, and why is among the notes."""

    subject: str
    settings: Settings
    limit: int
    limit_source: str
    window: Derived | None = None
    model: Architecture | None = None
    layout: Layout | None = None
    budget: Budget | None = None
    capacity: Capacity | None = None
    reported_tokens: Span | None = None  # the capacity that vLLM will print, an engine
    full_length_concurrency: tuple[float, float] | None = None  # likewise
    measured: Server | None = None
    refusal: Refusal | None = None
    at_lengths: tuple[AtLength, ...] = ()
    at_concurrencies: tuple[AtConcurrency, ...] = ()
    what_ifs: tuple[WhatIf, ...] = ()
    flags: tuple[Flag, ...] = ()
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def plan_model(
    files: ModelFiles,
    settings: Settings,
    *,
    subject: str = "the model",
    lengths: tuple[int, ...] = (),
    concurrencies: tuple[int, ...] = (),
    measured: Server | None = None,
) -> Plan:
    """The plan of a model from its files; a measured server's memory and limit count before estimates.

    Raises:
        PlanError: the files or the settings do not allow one; one line.
    """
    if measured is not None:
        settings = _as_measured(settings, measured)
    derived = _window(files, settings)
    model = architecture(files.config)
    most = derived.window if derived else settings.max_model_len
    if settings.max_model_len is None and derived is None:
        raise PlanError("the window is not known from config.json: give --max-model-len")
    assert most is not None
    limit, source = _limit(settings, derived, measured)
    most = max(most, limit)
    settings = replace(settings, max_model_len=limit)
    cut = layout(model, files.config, settings)
    if measured is not None and _names_no_memory(settings):
        held = (measured.capacity.usable_blocks + NULL_BLOCKS) * cut.block_bytes
        settings = replace(settings, kv_cache_memory_bytes=held)
        cut = replace(cut, settings=replace(cut.settings, kv_cache_memory_bytes=held))
    memory = budget(model, files, settings) or _of_override(cut)
    capacity, refusal, reported, concurrency = None, None, None, None
    if memory is not None:
        capacity = _planned(cut, memory)
        refusal = capacity.least.refusal(limit)
        if settings.auto_fit and refusal is not None:
            limit, source = capacity.least.auto_limit(limit), "auto-fit to the least memory"
            refusal = capacity.least.refusal(limit) if limit else refusal
        if limit:
            reported = Span(capacity.least.reported_tokens(limit), capacity.most.reported_tokens(limit))
            concurrency = (capacity.least.concurrency(limit), capacity.most.concurrency(limit))
    made = Plan(
        subject=subject,
        settings=settings,
        limit=limit,
        limit_source=source,
        window=derived,
        model=model,
        layout=cut,
        budget=memory,
        capacity=capacity,
        reported_tokens=reported,
        full_length_concurrency=concurrency,
        measured=measured,
        refusal=refusal,
        at_lengths=tuple(_at_lengths(capacity, cut, lengths, most)),
        at_concurrencies=tuple(_at_concurrencies(capacity, concurrencies, most)),
        what_ifs=_what_ifs(files, model, settings, limit, most) if capacity is not None and limit else (),
        problems=tuple(problems(files, settings, derived, limit, refusal, capacity)),
        notes=(*notes(settings, cut, memory, measured, reported), *_beyond(lengths, most)),
    )
    return (
        replace(made, flags=flags(settings, limit, derived, capacity, _wish(lengths, concurrencies)))
        if limit
        else made
    )


def plan_server(
    server: Server, settings: Settings, *, lengths: tuple[int, ...] = (), concurrencies: tuple[int, ...] = ()
) -> Plan:
    """The plan of a measured server whose model's files are not at hand."""
    limit, source = server.limit, "measured"
    if settings.max_model_len is not None:
        limit, source = settings.max_model_len, "--max-model-len"
    most = max(server.window or 0, server.limit, limit)
    capacity = server.capacity
    settings = replace(
        settings,
        max_model_len=limit,
        max_num_seqs=settings.max_num_seqs or server.max_num_seqs,
        max_num_batched_tokens=settings.max_num_batched_tokens or server.max_num_batched_tokens,
    )
    remarks = []
    if not capacity.one_group:
        remarks.append(
            "the server's layers are of several kinds: at other lengths than its limit there are bounds only;"
            " name the model's folder for exact numbers"
        )
    return Plan(
        subject=server.name,
        settings=settings,
        limit=limit,
        limit_source=source,
        capacity=capacity,
        reported_tokens=None
        if server.reported_tokens is None
        else Span(server.reported_tokens, server.reported_tokens),
        measured=server,
        at_lengths=tuple(_at_lengths(capacity, None, lengths, most)),
        at_concurrencies=tuple(_at_concurrencies(capacity, concurrencies, most)),
        what_ifs=tuple(what_if.measured(capacity, server.memory_bytes, limit, most)),
        flags=tuple(_known_flags(settings, limit, capacity, _wish(lengths, concurrencies))),
        notes=(*remarks, *_beyond(lengths, most)),
    )


def _beyond(lengths: tuple[int, ...], most: int) -> Iterator[str]:
    """Lengths that vLLM refuses at any limit the model allows: memory alone does not make them possible."""
    for length in lengths:
        if length > most:
            yield f"requests of {length:,} tokens are refused: the longest that this model serves is {most:,}"


def _names_no_memory(settings: Settings) -> bool:
    named = (settings.kv_cache_memory_bytes, settings.device_memory, settings.num_gpu_blocks_override)
    return all(memory is None for memory in named)


def _wish(lengths: tuple[int, ...], concurrencies: tuple[int, ...]) -> Wish:
    return Wish(max(lengths, default=None), max(concurrencies, default=None))


def _known_flags(settings: Settings, limit: int, capacity: Capacity, wish: Wish) -> Iterator[Flag]:
    """The flags less those whose present value the server did not tell: a default of ours may be wrong there."""
    untold = set()
    if settings.max_num_seqs is None and wish == Wish():
        untold.add("--max-num-seqs")
    if settings.max_num_batched_tokens is None:
        untold.add("--max-num-batched-tokens")
    yield from (flag for flag in flags(settings, limit, None, capacity, wish) if flag.name not in untold)


def _as_measured(settings: Settings, server: Server) -> Settings:
    return replace(
        settings,
        kv_cache_memory_bytes=settings.kv_cache_memory_bytes or server.memory_bytes,
        max_model_len=settings.max_model_len or server.limit,
        max_num_seqs=settings.max_num_seqs or server.max_num_seqs,
        max_num_batched_tokens=settings.max_num_batched_tokens or server.max_num_batched_tokens,
        data_parallel_size=max(settings.data_parallel_size, server.capacity.engines),
    )


def _window(files: ModelFiles, settings: Settings) -> Derived | None:
    try:
        return window(
            files.config,
            settings.version,
            sentence_transformers=files.sentence_transformers,
            tokenizer=files.tokenizer,
        )
    except ModelConfigError as error:
        raise PlanError(str(error)) from None


def _limit(settings: Settings, derived: Derived | None, measured: Server | None) -> tuple[int, str]:
    if settings.max_model_len is not None:
        given = measured is None or settings.max_model_len != measured.limit
        return settings.max_model_len, "--max-model-len" if given else "measured"
    assert derived is not None
    key = derived.key or "vLLM's default"
    return derived.default_limit, f"config.json: {key}"


def _of_override(cut: Layout) -> Budget | None:
    blocks = cut.settings.num_gpu_blocks_override
    if blocks is None:
        return None
    memory = blocks * cut.block_bytes
    return Budget(Span(memory, memory), "num_gpu_blocks_override")


def _planned(cut: Layout, memory: Budget) -> Planned:
    engines = cut.settings.data_parallel_size
    return Planned(cut.size(memory.kv_cache.low), cut.size(memory.kv_cache.high), engines)


def _what_ifs(
    files: ModelFiles, model: Architecture, settings: Settings, limit: int, most: int
) -> tuple[WhatIf, ...]:
    def make(changed: Settings) -> Capacity:
        cut = layout(model, files.config, changed)
        memory = budget(model, files, changed) or _of_override(cut)
        assert memory is not None
        return _planned(cut, memory)

    return tuple(what_if.planned(settings, limit, most, make))


def _at_lengths(
    capacity: Capacity | None, cut: Layout | None, asked: tuple[int, ...], most: int
) -> Iterator[AtLength]:
    lengths = list(asked)
    if not lengths:
        lengths = [SHORTEST << i for i in range(40) if SHORTEST << i < most]
        lengths.append(most)
    for length in lengths:
        requests = Span(0, 0) if capacity is None else capacity.requests(length)
        yield AtLength(length, requests, None if cut is None else cut.needed_bytes(length))


def _at_concurrencies(
    capacity: Capacity | None, asked: tuple[int, ...], most: int
) -> Iterator[AtConcurrency]:
    if capacity is None:
        return
    for requests in asked or CONCURRENCIES:
        longest = capacity.longest(requests, most)
        if longest.high or asked:
            yield AtConcurrency(requests, longest)
