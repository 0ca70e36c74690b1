"""The pool of blocks: how many there are, what they hold, and how many requests of a length fit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from vllm_length_exporter.planner.architecture import Architecture
from vllm_length_exporter.planner.dtypes import stated_cache_dtype
from vllm_length_exporter.planner.fields import Config
from vllm_length_exporter.planner.groups import Group, groups
from vllm_length_exporter.planner.layers import Reach, State
from vllm_length_exporter.planner.pages import pages
from vllm_length_exporter.planner.parallelism import check_parallelism
from vllm_length_exporter.planner.settings import Settings

NULL_BLOCKS = 1  # of each engine's pool, one block is never given to a request


@dataclass(frozen=True, slots=True)
class Layout:
    """How one engine's KV cache is cut, whatever the memory. Bytes are of one device."""

    settings: Settings
    kv_cache_dtype: str
    groups: tuple[Group, ...]
    stage_block_bytes: tuple[int, ...]  # one block of the pool, on each pipeline stage

    @property
    def block_bytes(self) -> int:
        """One block of the pool on the stage that needs most."""
        return max(self.stage_block_bytes)

    @property
    def block_size(self) -> int:
        """Tokens of a block, as `vllm:cache_config_info` names them (the smallest of all groups)."""
        return min(page.block_size for group in self.groups for page in group.pages)

    def blocks(self, length: int) -> int:
        """Blocks that one request of `length` tokens may come to hold."""
        return sum(group.blocks(length, self.settings) for group in self.groups)

    def needed_bytes(self, length: int) -> int:
        """Memory that one request of `length` tokens needs on one device."""
        if self.settings.rules.has("checked_by_groups"):
            return self.blocks(length) * self.block_bytes
        return sum(
            group.blocks(length, self.settings) * page.bytes for group in self.groups for page in group.pages
        )

    @property
    def bytes_per_token(self) -> float:
        """What one more token costs on one device, beyond all windows; 0 where nothing keeps it."""
        split = self.settings.decode_context_parallel_size
        return sum(self._per_token(Reach.FULL)) / split

    @property
    def bytes_per_token_within_windows(self) -> float:
        """What one token costs on one device while it is within every window."""
        return (
            self.bytes_per_token + sum(self._per_token(Reach.SLIDING)) + sum(self._per_token(Reach.CHUNKED))
        )

    @property
    def state_bytes(self) -> int:
        """What one request costs on one device, whatever its length."""
        states = [group for group in self.groups if group.pages[0].reach is None]
        return self.block_bytes * sum(group.blocks(1, self.settings) for group in states)

    def _per_token(self, reach: Reach) -> list[float]:
        """A group costs a whole block of the pool, its padding included."""
        sizes = [group.pages[0].block_size for group in self.groups if group.pages[0].reach is reach]
        return [self.block_bytes / size for size in sizes]

    def size(self, memory: int) -> Pool:
        """The pool that `memory` bytes of each device make."""
        blocks = memory // self.block_bytes
        if self.settings.num_gpu_blocks_override is not None:
            blocks = self.settings.num_gpu_blocks_override
        return Pool(self, memory, max(blocks, 0))


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a server would not start: what its message names. Bytes are of one device."""

    needed_bytes: int
    available_bytes: int
    estimated_limit: int  # 0: the message names none


@dataclass(frozen=True, slots=True)
class Pool:
    """One engine's KV cache of a given size."""

    layout: Layout
    memory: int
    total_blocks: int  # the null block included, as vLLM counts

    @property
    def usable_blocks(self) -> int:
        return max(self.total_blocks - NULL_BLOCKS, 0)

    def concurrency(self, length: int) -> float:
        """Requests of `length` that fit by vLLM's own figure, which counts the null block."""
        return self.total_blocks / self.layout.blocks(length)

    def requests(self, length: int) -> int:
        """Whole requests of `length` that can really be served at once."""
        return self.usable_blocks // self.layout.blocks(length)

    def reported_tokens(self, limit: int) -> int:
        """The capacity that vLLM prints for a server whose limit is `limit`."""
        settings = self.layout.settings
        if settings.rules.has("size_by_concurrency"):
            return int(self.concurrency(limit) * limit)
        tokens = self.total_blocks // len(self.layout.groups) * self.layout.block_size
        return tokens * settings.decode_context_parallel_size

    def longest(self, requests: int, most: int) -> int:
        """The longest length, up to `most`, of which so many requests can be served at once; 0 for none."""
        return largest(most, lambda length: requests * self.layout.blocks(length) <= self.usable_blocks)

    def refusal(self, limit: int) -> Refusal | None:
        """What stops a server with this limit; None where it starts. The first stage that does not fit speaks."""
        layout, rules = self.layout, self.layout.settings.rules
        for block_bytes in layout.stage_block_bytes:
            available = self._checked(block_bytes)
            by_groups = rules.has("checked_by_groups")
            needed = layout.blocks(limit) * block_bytes if by_groups else layout.needed_bytes(limit)
            if available <= 0 or needed > available:
                return Refusal(needed, max(available, 0), self._fitting(limit, block_bytes, available))
        return None

    def auto_limit(self, asked: int) -> int:
        """The limit that --max-model-len auto takes where the window is `asked`; 0: it does not start."""
        return min(
            self._fitting(asked, block_bytes, self._checked(block_bytes))
            for block_bytes in self.layout.stage_block_bytes
        )

    def _checked(self, block_bytes: int) -> int:
        """The memory that this version holds the needed memory against."""
        settings = self.layout.settings
        memory = self.memory
        if settings.num_gpu_blocks_override is not None and settings.rules.has("override_is_checked"):
            memory = self.total_blocks * block_bytes
        return memory - (block_bytes if settings.rules.has("null_block_is_reserved") else 0)

    def _fitting(self, most: int, block_bytes: int, available: int) -> int:
        layout = self.layout
        if not layout.settings.rules.has("checked_by_groups"):
            return largest(most, lambda length: layout.needed_bytes(length) <= available)
        return largest(most, lambda length: layout.blocks(length) * block_bytes <= available)


def layout(model: Architecture, config: Config, settings: Settings) -> Layout:
    """How the KV cache of a model is cut under these settings.

    Raises:
        PlanError: settings and model do not go together, or how is not known; one line.
    """
    check_parallelism(model, settings)
    named = settings.kv_cache_dtype
    kv_cache_dtype = stated_cache_dtype(config) if named == "auto" else named
    if all(isinstance(cache, State) for cache in model.caches):
        settings = replace(settings, enable_prefix_caching=False)  # not there without attention
    made = groups(pages(model, settings, kv_cache_dtype), settings)
    stages = stages_of(len(model.layers), settings.pipeline_parallel_size)
    return Layout(
        settings,
        kv_cache_dtype,
        made,
        tuple(max(group.on(stage).bytes for group in made) for stage in stages),
    )


def stages_of(layers: int, count: int) -> list[range]:
    """The layers of each pipeline stage; what does not divide goes to the stages before the last."""
    sizes = [layers // count] * count
    for i in range(2, layers % count + 2):
        sizes[-i] += 1
    starts = [sum(sizes[:i]) for i in range(count)]
    return [range(start, start + size) for start, size in zip(starts, sizes, strict=True)]


def largest(most: int, fits: Callable[[int], bool]) -> int:
    """The largest number up to `most` that fits, where all smaller ones do; 0 for none."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        if fits(middle):
            low = middle
        else:
            high = middle - 1
    return low
