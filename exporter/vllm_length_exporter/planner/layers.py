"""What one layer of a model keeps for a request: keys and values, a latent vector, or a fixed state."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias


class Reach(StrEnum):
    """Which earlier tokens a layer attends to, hence how long it keeps them."""

    FULL = "full"
    SLIDING = "sliding window"
    CHUNKED = "chunked"


@dataclass(frozen=True, slots=True)
class Attention:
    """Attention with heads: full, grouped-query or multi-query. Dimensions are numbers a head."""

    kv_heads: int
    key_dim: int
    value_dim: int
    reach: Reach = Reach.FULL
    span: int | None = None  # tokens of the window or chunk

    def vectors(self, tensor_parallel: int) -> int:
        """KV heads on one device; they are replicated where there are fewer than devices."""
        return max(1, self.kv_heads // tensor_parallel)


@dataclass(frozen=True, slots=True)
class Latent:
    """Multi-head latent attention: one vector a token, the same on every device of a tensor-parallel group."""

    width: int  # kv_lora_rank + qk_rope_head_dim
    index_bytes: int = 0  # a sparse-attention indexer's own cache, a token


@dataclass(frozen=True, slots=True)
class State:
    """A fixed state a request: Mamba, linear attention, short convolution.

    The convolution keeps `conv_length` columns of `conv_width` numbers; the recurrence keeps `head_numbers` for
    each of `heads`. `group_numbers` is what one of `groups` adds to the convolution's width (Mamba 2).
    """

    conv_width: int
    conv_length: int
    heads: int = 0
    head_numbers: int = 0
    groups: int = 0
    group_numbers: int = 0
    recurrent_dtype: str | None = None  # None: as the model computes

    def numbers(self, tensor_parallel: int) -> tuple[int, int]:
        """Numbers of the convolution and of the recurrence on one device."""
        groups = self.groups
        if groups % tensor_parallel:
            groups = tensor_parallel  # a device needs the whole group that one of its heads belongs to
        width = self.conv_width + groups * self.group_numbers
        return (
            width // tensor_parallel * self.conv_length,
            self.heads // tensor_parallel * self.head_numbers,
        )


Cache: TypeAlias = Attention | Latent | State


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer and what it keeps: nothing (an MLP, a layer that shares another's cache), one cache or two."""

    caches: tuple[Cache, ...] = ()
