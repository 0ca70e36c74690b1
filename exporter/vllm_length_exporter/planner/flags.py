"""The flags to start vLLM with, consistent among themselves, each with its reason."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from vllm_length_exporter.planner.capacity import Capacity
from vllm_length_exporter.planner.settings import Settings
from vllm_length_exporter.vllm.model_config import Derived


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag of vLLM's, its value ("" for a switch) and why."""

    name: str
    value: str
    reason: str


@dataclass(frozen=True, slots=True)
class Wish:
    """What the flags shall serve: requests of this length, or so many at once; None is "not asked"."""

    length: int | None = None
    requests: int | None = None


def flags(
    settings: Settings, limit: int, derived: Derived | None, capacity: Capacity | None, wish: Wish
) -> tuple[Flag, ...]:
    """What to set so that every request within the limit can be served, and what was wished for at once."""
    return tuple(_flags(settings, limit if derived is None else min(limit, derived.window), capacity, wish))


def _flags(settings: Settings, limit: int, capacity: Capacity | None, wish: Wish) -> Iterator[Flag]:
    length, sequences = limit, settings.sequences
    if capacity is not None:
        chosen = _length(limit, capacity, wish)
        length = chosen[0] or limit
        if chosen[0]:
            yield Flag("--max-model-len", str(chosen[0]), chosen[1])
        sequences, reason = _sequences(settings, length, capacity, wish)
        yield Flag("--max-num-seqs", str(sequences), reason)
    tokens, reason = settings.batched_tokens, "tokens of one step"
    if not settings.enable_chunked_prefill:
        yield Flag("--no-enable-chunked-prefill", "", "as given")
        tokens, reason = max(tokens, length), "at least the limit, without chunked prefill"
    if tokens < sequences:
        tokens, reason = sequences, "at least --max-num-seqs"
    yield Flag("--max-num-batched-tokens", str(tokens), reason)
    for name, value, reason in _given(settings):
        yield Flag(name, value, reason)


def _length(limit: int, capacity: Capacity, wish: Wish) -> tuple[int, str]:
    """The limit to set; 0 where not even one token fits."""
    if wish.requests is not None and wish.length is None:
        fits = capacity.longest(wish.requests, limit).low
        if 0 < fits < limit:
            return fits, f"{wish.requests:,} requests at once can all be as long"
    fits = capacity.longest(1, limit).low
    if fits < limit:
        return fits, f"{limit:,} tokens do not fit; so many can be served"
    return limit, "one request of this length can be served"


def _sequences(settings: Settings, length: int, capacity: Capacity, wish: Wish) -> tuple[int, str]:
    """Sequences of one engine's step."""
    full = capacity.requests(length).low // capacity.engines
    if settings.max_num_seqs is None and wish.length is not None:
        fits = max(capacity.requests(wish.length).low // capacity.engines, 1)
        if fits < settings.sequences:
            return fits, f"so many requests of {wish.length:,} tokens fit on an engine: none is preempted"
    if settings.max_num_seqs is None and wish.requests is not None:
        return -(-wish.requests // capacity.engines), "so many at once were asked for"
    source = "default" if settings.max_num_seqs is None else "as given"
    if full >= settings.sequences:
        return settings.sequences, f"{source}; {full:,} requests of full length would fit on an engine"
    return (
        settings.sequences,
        f"{source}; {full:,} of full length fit on an engine, beyond that they wait or are preempted",
    )


def _given(settings: Settings) -> Iterator[tuple[str, str, str]]:
    for name, default in (("dtype", "auto"), ("kv_cache_dtype", "auto"), ("block_size", None)):
        value = getattr(settings, name)
        if value != default:
            yield f"--{name.replace('_', '-')}", str(value), "as given"
    for name in ("tensor", "pipeline", "data", "decode_context"):
        size = getattr(settings, f"{name}_parallel_size")
        if size != 1:
            yield f"--{name.replace('_', '-')}-parallel-size", str(size), "as given"
    if settings.kv_cache_memory_bytes is not None:
        yield "--kv-cache-memory-bytes", str(settings.kv_cache_memory_bytes), "on each device"
    elif settings.device_memory is not None:
        yield (
            "--gpu-memory-utilization",
            f"{settings.utilization:g}",
            "as given" if settings.gpu_memory_utilization else "default",
        )
    if settings.num_gpu_blocks_override is not None:
        yield "--num-gpu-blocks-override", str(settings.num_gpu_blocks_override), "as given"
    if settings.disable_hybrid_kv_cache_manager:
        yield "--disable-hybrid-kv-cache-manager", "", "as given"
