"""What the remedies share: what is known of the server, and how numbers are put in words."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from vllm_length_exporter.vllm.events import FieldValue

GIB = 2**30

Fields = Mapping[str, FieldValue]


@dataclass(frozen=True, slots=True)
class Context:
    """What the rest of the text says of the server, where it says it."""

    version: str | None = None
    is_cpu: bool = False
    memory_is_fixed: bool = False  # --kv-cache-memory-bytes was given, and decides alone
    utilization: float | None = None  # --gpu-memory-utilization, where it was given
    kv_cache_dtype: str | None = None
    speculative: bool = False
    pipeline_parallel: bool = False
    lora: bool = False
    capacity_tokens: int | None = None
    available_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Remedy:
    """Who can change it ("client", "operator", "both" or "nobody"), what happened, and what to do."""

    who: str
    summary: str
    advice: tuple[str, ...]


def whole(fields: Fields, key: str) -> int | None:
    value = fields.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def count(number: int) -> str:
    return f"{number:,}"


def size(number: int) -> str:
    return f"{number / GIB:.2f} GiB"


Advise = Callable[[Fields, Context], Remedy]
