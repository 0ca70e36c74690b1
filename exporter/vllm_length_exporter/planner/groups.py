"""Groups of layers: those of one group share a block table, and all groups draw on one pool of equal blocks.

A block of the pool is as large as the largest group's pages together. Layers of one kind are split into groups
of the same number of layers, so that a token costs one block of the pool in each group that keeps it.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from vllm_length_exporter.planner.error import PlanError
from vllm_length_exporter.planner.layers import Reach
from vllm_length_exporter.planner.pages import Page
from vllm_length_exporter.planner.settings import Settings


@dataclass(frozen=True, slots=True)
class Group:
    """Layers that share a block table: they keep the same tokens, in blocks of the same number."""

    pages: tuple[Page, ...]

    @property
    def bytes(self) -> int:
        """Bytes of one block of this group."""
        return sum(page.bytes for page in self.pages)

    def blocks(self, length: int, settings: Settings) -> int:
        """Blocks that one request of `length` tokens holds at most."""
        return _blocks(self.pages[0], length, settings)

    def on(self, layers: range) -> Group:
        """The part of the group on one pipeline stage."""
        return Group(tuple(page for page in self.pages if page.layer in layers))


def _blocks(page: Page, length: int, settings: Settings) -> int:
    if page.reach is None:
        prefixes = settings.enable_prefix_caching and settings.rules.has("states_with_prefixes")
        return 2 if prefixes else 1
    size = page.block_size
    if page.reach is Reach.FULL:
        split = settings.decode_context_parallel_size if page.sharded else 1
        return -(-length // (split * size))
    assert page.span is not None
    if page.reach is Reach.CHUNKED:
        return -(-min(page.span + settings.tokens_in_flight, length) // size)
    # One more, because a window need not begin where a block does.
    return -(-min(page.span - 1 + settings.tokens_in_flight, length) // size) + 1


def groups(pages: Sequence[Page], settings: Settings) -> tuple[Group, ...]:
    """The groups that vLLM makes of a model's layers.

    Raises:
        PlanError: this version cannot serve such a mixture, or how it does is not known; one line.
    """
    pages = _kept_for_every_token(pages, settings)
    if _same_kind(pages):
        return (Group(tuple(pages)),)
    pages = _equal_pages(pages, settings)
    kinds: defaultdict[tuple[object, ...], list[Page]] = defaultdict(list)
    for page in pages:
        kinds[page.reach, page.block_size, page.token_bytes, page.state_bytes, page.span, page.bytes].append(
            page
        )
    fewest, most = min(map(len, kinds.values())), max(map(len, kinds.values()))
    size = most if most < fewest * settings.rules.group_ratio else fewest
    found: list[Group] = []
    for alike in kinds.values():
        count = math.ceil(len(alike) / size)
        found.extend(Group(tuple(alike[i::count])) for i in range(count))
    return tuple(found)


def _kept_for_every_token(pages: Sequence[Page], settings: Settings) -> Sequence[Page]:
    """Without the hybrid manager, windows beside full attention keep every token as well."""
    reaches = {page.reach for page in pages}
    off = settings.disable_hybrid_kv_cache_manager or not settings.rules.has("groups")
    off = off or (Reach.CHUNKED in reaches and settings.rules.has("chunked_as_full"))
    if not off or Reach.FULL not in reaches or len(reaches) == 1:
        return pages
    if None in reaches:
        raise PlanError(
            "layers with a fixed state beside attention need the hybrid KV cache manager (vLLM 0.9.1+)"
        )
    block_size = next(page.block_size for page in pages if page.reach is Reach.FULL)
    return [replace(page.as_full(), block_size=block_size) for page in pages]


def _same_kind(pages: Sequence[Page]) -> bool:
    """Whether all layers keep the same tokens in blocks of the same number: one group, whatever their widths."""
    kinds = {(page.reach, page.block_size, page.span) for page in pages}
    return len(kinds) == 1 and (pages[0].reach is not None or len({page.bytes for page in pages}) == 1)


def _equal_pages(pages: Sequence[Page], settings: Settings) -> list[Page]:
    """Pages of one size: smaller ones take more tokens, or are padded where that does not come out even."""
    largest = max(page.bytes for page in pages)
    if all(page.bytes == largest for page in pages):
        return list(pages)
    if not settings.rules.has("unequal_pages"):
        raise PlanError(
            f"vLLM {settings.version} cannot serve layers of different page sizes; it can from 0.12 on"
        )
    return [_grown(page, largest, settings) for page in pages]


def _grown(page: Page, largest: int, settings: Settings) -> Page:
    if page.bytes == largest:
        return page
    if page.reach is not None and largest % page.bytes == 0:
        return replace(page, block_size=page.block_size * (largest // page.bytes))
    if not settings.rules.has("padded_pages"):
        raise PlanError(f"vLLM {settings.version} cannot pad pages of different sizes; it can from 0.26 on")
    return replace(page, padded_bytes=largest)
