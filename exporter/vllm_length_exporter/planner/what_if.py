"""What another setting would change: the same plan, made once more."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from vllm_length_exporter.planner.capacity import Capacity, Measured
from vllm_length_exporter.planner.error import PlanError
from vllm_length_exporter.planner.settings import GIB, Settings
from vllm_length_exporter.planner.weights import Span

Make = Callable[[Settings], Capacity]


@dataclass(frozen=True, slots=True)
class WhatIf:
    """One change: requests of the limit's length, and the longest single request, before and after."""

    change: str
    requests: Span
    longest: Span


def planned(settings: Settings, limit: int, most: int, make: Make) -> Iterator[WhatIf]:
    """What other flags change, where the model's layers are known."""
    for change, changed in _changes(settings):
        try:
            capacity = make(changed)
        except PlanError:
            continue  # the model cannot be served so
        yield WhatIf(change, capacity.requests(limit), capacity.longest(1, most))
    capacity = make(settings)
    for name, other in (("half of the limit", limit // 2), ("twice the limit", 2 * limit)):
        if 1 <= other <= most:
            yield WhatIf(f"{name}: {other:,}", capacity.requests(other), capacity.longest(1, other))


def measured(capacity: Measured, memory_bytes: int | None, limit: int, most: int) -> Iterator[WhatIf]:
    """What more memory, or another limit, changes on a server that was measured."""
    if memory_bytes is not None:
        for more in (0.1, 0.5, 1.0):
            blocks = int((capacity.usable_blocks + 1) * (1 + more)) - 1
            changed = replace(capacity, usable_blocks=blocks)
            gib = memory_bytes * more / GIB
            yield WhatIf(
                f"{gib:+.2f} GiB for the KV cache", changed.requests(limit), changed.longest(1, most)
            )
    for name, other in (("half of the limit", limit // 2), ("twice the limit", 2 * limit)):
        if 1 <= other <= most:
            yield WhatIf(f"{name}: {other:,}", capacity.requests(other), capacity.longest(1, other))


def _changes(settings: Settings) -> Iterator[tuple[str, Settings]]:
    free = settings.num_gpu_blocks_override is None  # an override is so many blocks, whatever they take
    if settings.kv_cache_dtype == "auto" and free:
        yield "--kv-cache-dtype fp8", replace(settings, kv_cache_dtype="fp8")
    if settings.kv_cache_memory_bytes is not None and free:
        for gib in (1, 8):
            more = replace(settings, kv_cache_memory_bytes=settings.kv_cache_memory_bytes + gib * GIB)
            yield f"{gib:+d} GiB for the KV cache", more
    elif settings.device_memory is not None and free:
        higher = round(settings.utilization + 0.02, 4)
        if higher <= 1:
            yield f"--gpu-memory-utilization {higher:g}", replace(settings, gpu_memory_utilization=higher)
    if free:
        twice = replace(settings, tensor_parallel_size=2 * settings.tensor_parallel_size)
        yield f"--tensor-parallel-size {twice.tensor_parallel_size}", twice
    yield (
        f"--data-parallel-size {2 * settings.data_parallel_size}",
        replace(settings, data_parallel_size=2 * settings.data_parallel_size),
    )
