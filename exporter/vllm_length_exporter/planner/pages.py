"""From layers to pages: the bytes that one block of one layer takes on one device."""

from __future__ import annotations

from dataclasses import dataclass, replace

from vllm_length_exporter.planner.architecture import Architecture
from vllm_length_exporter.planner.dtypes import CacheFormat, cache_format, model_bytes
from vllm_length_exporter.planner.error import PlanError
from vllm_length_exporter.planner.layers import Attention, Cache, Latent, Reach, State
from vllm_length_exporter.planner.settings import Device, Settings

BLOCK_TOKENS = {Device.GPU: 16, Device.CPU: 128}
LATENT_BLOCK_TOKENS = {Device.GPU: 64, Device.CPU: 16}  # by the kernels: 32, 64 or 128 on GPUs
KERNEL_TOKENS = {Device.GPU: 16, Device.CPU: 32}  # attention kernels take multiples of this
STATE_ALIGNMENT_WITH_LATENT = 128


@dataclass(frozen=True, slots=True)
class Page:
    """One block of one cache of one layer. `token_bytes` is 0 for a state; `span` None is: every token."""

    layer: int
    reach: Reach | None  # None for a state
    block_size: int
    token_bytes: int
    span: int | None = None
    state_bytes: int = 0
    padded_bytes: int | None = None
    sharded: bool = True  # whether decode context parallel splits its tokens

    @property
    def bytes(self) -> int:
        plain = self.state_bytes or self.token_bytes * self.block_size
        return plain if self.padded_bytes is None else self.padded_bytes

    def as_full(self) -> Page:
        """The same page, kept for every token."""
        return replace(self, reach=Reach.FULL, span=None) if self.reach else self


def pages(model: Architecture, settings: Settings, kv_cache_dtype: str) -> tuple[Page, ...]:
    """The pages of all layers of one engine, as they are before groups are made.

    Raises:
        PlanError: the settings do not suit the model; one line.
    """
    stored = cache_format(kv_cache_dtype, settings.dtype)
    sized = [
        (i, cache, *_bytes(cache, settings, stored))
        for i, layer in enumerate(model.layers)
        for cache in layer.caches
    ]
    if not all(tokens or states for _, _, tokens, states in sized):
        raise PlanError("config.json: its numbers make a layer that keeps nothing: heads of size 0")
    token_bytes = [tokens for _, cache, tokens, _ in sized if isinstance(cache, Attention | Latent)]
    state_bytes = max((states for _, _, _, states in sized), default=0)
    latent = any(isinstance(cache, Latent) for cache in model.caches)
    block_size = _block_size(settings, latent)
    padded = None
    if state_bytes and token_bytes and settings.rules.has("state_blocks"):
        block_size = _block_size_for_states(settings, block_size, latent, max(token_bytes), state_bytes)
        padded = block_size * max(token_bytes)
    return tuple(
        _page(layer, cache, tokens, states, block_size, padded, settings)
        for layer, cache, tokens, states in sized
    )


def token_bytes(cache: Cache, settings: Settings, stored: CacheFormat) -> int:
    """Bytes of one token of one layer on one device; 0 for a state."""
    return _bytes(cache, settings, stored)[0]


def _bytes(cache: Cache, settings: Settings, stored: CacheFormat) -> tuple[int, int]:
    """Bytes a token, and bytes a request."""
    if isinstance(cache, Attention):
        if not stored.heads:
            raise PlanError(f"--kv-cache-dtype {settings.kv_cache_dtype} is for latent attention only")
        one = stored.vector(cache.key_dim) + stored.vector(cache.value_dim)
        return cache.vectors(settings.tensor_parallel_size) * one, 0
    if isinstance(cache, Latent):
        if not stored.latent:
            raise PlanError(f"--kv-cache-dtype {settings.kv_cache_dtype}: not known for latent attention")
        entry = stored.latent_bytes if stored.latent_bytes is not None else stored.vector(cache.width)
        return entry + cache.index_bytes, 0
    conv, recurrent = cache.numbers(settings.tensor_parallel_size)
    plain = model_bytes(settings.dtype)
    return 0, conv * plain + recurrent * _recurrent_bytes(cache, settings)


def _recurrent_bytes(cache: State, settings: Settings) -> int:
    if settings.device is Device.CPU:
        return 4  # reset to float32 on processors with AVX-512 for bfloat16
    return model_bytes(cache.recurrent_dtype or settings.dtype)


def _block_size(settings: Settings, latent: bool) -> int:
    if latent and settings.device is Device.CPU:
        return LATENT_BLOCK_TOKENS[settings.device]  # whatever was asked
    if settings.block_size is not None:
        return settings.block_size
    return LATENT_BLOCK_TOKENS[settings.device] if latent else BLOCK_TOKENS[settings.device]


def _block_size_for_states(settings: Settings, block_size: int, latent: bool, token: int, states: int) -> int:
    """The smallest block, in steps that the kernels take, whose attention page holds a state."""
    step = max(KERNEL_TOKENS[settings.device], block_size, STATE_ALIGNMENT_WITH_LATENT if latent else 0)
    return max(block_size, step * -(-states // (step * token)))


def _page(
    layer: int,
    cache: Cache,
    tokens: int,
    states: int,
    block_size: int,
    padded: int | None,
    settings: Settings,
) -> Page:
    if isinstance(cache, State):
        return Page(layer, None, block_size, 0, state_bytes=states, padded_bytes=padded, sharded=False)
    reach = cache.reach if isinstance(cache, Attention) else Reach.FULL
    span = cache.span if isinstance(cache, Attention) else None
    if reach is Reach.SLIDING and settings.rules.has("own_window_blocks"):
        kernel = KERNEL_TOKENS[settings.device]
        block_size = max(kernel, block_size // kernel * kernel)
    return Page(layer, reach, block_size, tokens, span)
