"""KV-cache capacity, blocks and headroom of each engine, by the rules of the design's section 5.

Facts (vLLM 0.2.7 to 0.33.0): `num_gpu_blocks` is a sum over the data-parallel engines; one block of each
engine is the null block from V1 on; usage divides by N blocks up to 0.10.1 and by N - 1 since; blocks x block
size is the capacity only where all layers share one group of full-attention blocks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from vllm_length_exporter.story import Story
from vllm_length_exporter.vllm.names import Quantity
from vllm_length_exporter.vllm.page import Page
from vllm_length_exporter.vllm.release import within

from .evidence import Evidence
from .limits import fraction, whole
from .values import Disagreement, EngineCapacity, Unknown, Value

# How far usage x blocks may lie from the whole number that it must be (binary fractions of a quotient).
WHOLE_WITHIN = 1e-3
# Labels of cache_config_info that are set only where a block holds something else than tokens.
MAMBA_LABELS = ("mamba_block_size", "mamba_page_size_padded")


@dataclass(frozen=True, slots=True)
class CapacityFound:
    engines: tuple[EngineCapacity, ...]
    unknown: tuple[Unknown, ...] = ()
    disagreements: tuple[Disagreement, ...] = ()


def capacity(evidence: Evidence, effective: int | None) -> CapacityFound:
    """The KV cache of each engine; `effective` is the limit in force, in tokens."""
    engines, unknown, gaps = [], [], []
    for engine in evidence.engines:
        found, missing, gap = _engine(evidence, engine, effective)
        engines.append(found)
        unknown += [item for item in missing if item not in unknown]
        gaps += [gap] if gap is not None else []
    if not evidence.engines:
        unknown.append(Unknown("kv_cache_capacity", "/metrics with vLLM's series, or the start in the log"))
    disagreements = (Disagreement("kv_cache_capacity", max(gaps)),) if gaps else ()
    return CapacityFound(tuple(engines), tuple(unknown), disagreements)


def _engine(
    evidence: Evidence, engine: str, effective: int | None
) -> tuple[EngineCapacity, list[Unknown], float | None]:
    labels = _labels(evidence.page, engine)
    story = evidence.story
    unknown: list[Unknown] = []

    total = _total_blocks(evidence, labels, engine)
    blocks = None if total is None else Value(total.value - _null_blocks(evidence), total.source)
    used, usage = _used(evidence, engine, total)
    block_size = _block_size(evidence, labels)
    tokens, gap = _tokens(evidence, labels, engine, total, block_size)
    concurrency = _concurrency(evidence, labels, engine, effective)
    memory, per_token = _memory(labels, story, engine, tokens)

    one_group = (
        total is not None
        and block_size is not None
        and _one_group(evidence, total.value, block_size.value, tokens, concurrency, effective)
    )
    free = None
    if blocks is not None and used is not None and block_size is not None:
        if one_group:
            free = Value((blocks.value - used.value) * block_size.value, "free usable blocks x block size")
        else:
            unknown.append(
                Unknown("kv_cache_free_tokens", "how many blocks a token costs in this hybrid model")
            )
    for quantity, value, missing in (
        ("kv_cache_capacity", tokens, _missing_for_tokens(story)),
        ("kv_cache_blocks", blocks, "num_gpu_blocks of this engine (the label is a sum over engines)"),
        ("kv_cache_used_blocks", used, "a usage that is a whole number of this engine's blocks"),
        ("full_length_concurrency", concurrency, "kv_cache_max_concurrency (0.24+) or the log's line"),
        ("kv_cache_memory", memory, "the log's KV cache memory, and the block count before an override"),
    ):
        if value is None and (quantity != "kv_cache_used_blocks" or evidence.page is not None):
            unknown.append(Unknown(quantity, missing))
    return (
        EngineCapacity(
            engine=engine,
            tokens=tokens,
            memory_bytes=memory,
            bytes_per_token=per_token,
            blocks=blocks,
            used_blocks=used,
            block_size=block_size,
            usage_ratio=usage,
            free_tokens=free,
            full_length_concurrency=concurrency,
            one_group=one_group,
        ),
        unknown,
        gap,
    )


def _labels(page: Page | None, engine: str) -> Mapping[str, str]:
    for sample in page.of(Quantity.CACHE_CONFIG) if page is not None else ():
        if sample.engine == engine:
            return sample.labels
    return {}


def is_v0(evidence: Evidence) -> bool:
    """Whether the V0 engine serves: its series have no `engine` label; V1's got it with 0.8.5."""
    if evidence.story.generation is not None:
        return evidence.story.generation == "V0"
    version = evidence.vllm_version
    if version is not None and within(version[0], "0.11.0"):
        return False
    samples = evidence.page.of(Quantity.RUNNING) if evidence.page is not None else ()
    return bool(samples) and all("engine" not in sample.labels for sample in samples)


def _null_blocks(evidence: Evidence) -> int:
    return 0 if is_v0(evidence) else 1


def _total_blocks(evidence: Evidence, labels: Mapping[str, str], engine: str) -> Value[int] | None:
    """All blocks of one engine, the null block included."""
    count = whole(labels.get("num_gpu_blocks"))
    engines = len(evidence.page.of(Quantity.CACHE_CONFIG)) if evidence.page is not None else 0
    if count is not None and engines and count % engines == 0 and count > 0:
        return Value(count // engines, "cache_config")
    story = evidence.story
    if engine in story.override:
        return Value(story.override[engine][1], "startup_log")
    if engine in story.blocks:
        return Value(story.blocks[engine], "startup_log")
    return None


def _used(
    evidence: Evidence, engine: str, total: Value[int] | None
) -> tuple[Value[int] | None, Value[float] | None]:
    """Used blocks as the whole number they must be, and the usage vLLM shows."""
    shown = evidence.page.by_engine(Quantity.KV_USAGE).get(engine) if evidence.page is not None else None
    if shown is None or shown > 1.0 + 1e-9:
        return None, None
    usage = Value(shown, "metrics")
    if total is None:
        return None, usage
    fits = {round(shown * parts) for parts in _denominators(evidence, total.value) if _whole(shown * parts)}
    if len(fits) != 1:
        return None, usage
    used = fits.pop()
    return (Value(used, "usage x blocks") if used < total.value else None), usage


def _denominators(evidence: Evidence, total: int) -> tuple[int, ...]:
    """What usage was divided by. Where the version is not known, both are tried and must agree."""
    if is_v0(evidence):
        return (total,)
    version = evidence.vllm_version
    newer = within(version[0] if version else None, "0.10.2")
    if newer is None:
        return (total, total - 1)
    return (total - 1,) if newer else (total,)


def _whole(value: float) -> bool:
    return abs(value - round(value)) <= WHOLE_WITHIN


def _block_size(evidence: Evidence, labels: Mapping[str, str]) -> Value[int] | None:
    version = evidence.vllm_version
    # Until 0.23 the label is the frontend's own setting: a size forced by the engine is only in the log.
    late = within(version[0] if version else None, None, "0.22.99")
    if late is not False and evidence.story.block_size is not None:
        return Value(evidence.story.block_size, "startup_log")
    size = whole(labels.get("block_size"))
    if size is not None and size > 0:
        return Value(size, "cache_config")
    size = evidence.story.block_size or evidence.story.argument_number("block_size")
    return None if size is None else Value(size, "startup_log")


def _tokens(
    evidence: Evidence,
    labels: Mapping[str, str],
    engine: str,
    total: Value[int] | None,
    block_size: Value[int] | None,
) -> tuple[Value[int] | None, float | None]:
    """The capacity as vLLM reports it, and how far its two reports lie apart."""
    shown = whole(labels.get("kv_cache_size_tokens"))
    logged = evidence.story.capacity_tokens.get(engine)
    if logged is None and len(evidence.engines) == 1 and len(evidence.story.capacity_tokens) == 1:
        logged = next(iter(evidence.story.capacity_tokens.values()))
    gap = abs(shown - logged) / max(shown, logged) if shown and logged else None
    if shown is not None and shown > 0:
        return Value(shown, "cache_config"), gap
    if logged is not None:
        return Value(logged, "startup_log"), None
    if total is not None and block_size is not None and _product_is_capacity(evidence, labels):
        return Value(total.value * block_size.value, "block_product"), None
    return None, None


def _product_is_capacity(evidence: Evidence, labels: Mapping[str, str]) -> bool:
    """Whether blocks x block size is what vLLM itself calls the capacity (always, up to 0.9.0)."""
    version = evidence.vllm_version
    if version is not None and within(version[0], None, "0.9.0"):
        return True
    story = evidence.story
    plain = labels.get("sliding_window", "None") == "None" and all(
        labels.get(label, "None") == "None" for label in MAMBA_LABELS
    )
    # Context parallelism and hybrid groups show in the log alone: without its engine line nothing is proven.
    return plain and story.context_parallel is False and story.trap is None and story.max_seq_len is not None


def _concurrency(
    evidence: Evidence, labels: Mapping[str, str], engine: str, effective: int | None
) -> Value[float] | None:
    shown = fraction(labels.get("kv_cache_max_concurrency"))
    if shown is not None and shown > 0:
        return Value(shown, "cache_config")
    story = evidence.story
    logged = story.concurrency.get(engine)
    if logged is None and len(evidence.engines) == 1 and len(story.concurrency) == 1:
        logged = next(iter(story.concurrency.values()))
    if logged is None or effective is None or story.concurrency_length != effective:
        return None
    return Value(logged, "startup_log")


def _memory(
    labels: Mapping[str, str], story: Story, engine: str, tokens: Value[int] | None
) -> tuple[Value[int] | None, Value[float] | None]:
    """Memory set aside by one worker, and what a token costs of it."""
    shown = whole(labels.get("kv_cache_memory_bytes")) or whole(labels.get("cpu_kvcache_space_bytes"))
    logged = story.kv_memory.get(engine)
    if logged is None and len(story.kv_memory) == 1:
        logged = next(iter(story.kv_memory.values()))
    if shown is not None and shown > 0:
        memory = Value(shown, "cache_config")
    elif logged is not None:
        memory = Value(logged, "startup_log")
    else:
        return None, None
    overridden = labels.get("num_gpu_blocks_override", "None") != "None" or (
        story.argument_number("num_gpu_blocks_override") is not None
    )
    before_after = story.override.get(engine)
    if overridden and before_after is None:
        return None, None  # these bytes belong to a block count that is not in force
    if tokens is None:
        return memory, None
    before, after = before_after or (1, 1)
    return memory, Value(memory.value * after / before / tokens.value, f"memory / tokens ({memory.source})")


def _one_group(
    evidence: Evidence,
    total: int,
    block_size: int,
    tokens: Value[int] | None,
    concurrency: Value[float] | None,
    effective: int | None,
) -> bool:
    """Whether every token costs exactly one block for each `block_size`: proven by what vLLM reports."""
    if tokens is not None and tokens.source == "block_product":
        return True
    if concurrency is not None and effective is not None:
        a_request = -(-effective // block_size)
        expected = total / a_request
        # The log prints two digits.
        near = 5e-3 if concurrency.source == "startup_log" else 1e-9 * expected
        return abs(concurrency.value - expected) <= near + 1e-9
    return tokens is not None and tokens.value == total * block_size and evidence.story.trap is None


def _missing_for_tokens(story: Story) -> str:
    if story.trap is not None:
        return f"the log's capacity line (blocks x block size is wrong here: {story.trap})"
    return "kv_cache_size_tokens (0.24+) or the log's capacity line"
