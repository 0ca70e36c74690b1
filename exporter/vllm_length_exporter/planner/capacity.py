"""How many requests of a length fit: from theory (a pool, or two where memory has a range) or from measured numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from vllm_length_exporter.planner.pool import Pool, largest
from vllm_length_exporter.planner.weights import Span


class Capacity(Protocol):
    """What one engine can hold. `engines` of them are alike."""

    @property
    def engines(self) -> int: ...

    def requests(self, length: int) -> Span:
        """Requests of `length` tokens that all engines can serve at once."""

    def longest(self, requests: int, most: int) -> Span:
        """The longest length, up to `most`, of which so many can be served at once; 0 for none."""


@dataclass(frozen=True, slots=True)
class Planned:
    """From a model's layers: the pool at the least and at the most memory."""

    least: Pool
    most: Pool
    engines: int = 1

    def requests(self, length: int) -> Span:
        return Span(self.least.requests(length) * self.engines, self.most.requests(length) * self.engines)

    def longest(self, requests: int, most: int) -> Span:
        each = -(-requests // self.engines)
        return Span(self.least.longest(each, most), self.most.longest(each, most))


@dataclass(frozen=True, slots=True)
class Measured:
    """From what a server reports. `one_group` is: each token costs one block for `block_size` tokens.

    Where layers are of several kinds, a request's blocks at the server's own limit are known and no others.
    Blocks grow with length and never faster than in proportion: that bounds the rest.
    """

    usable_blocks: int
    blocks_at_limit: int
    limit: int
    block_size: int | None = None
    one_group: bool = False
    engines: int = 1

    def requests(self, length: int) -> Span:
        low, high = self._blocks(length)
        return Span(self.usable_blocks // high * self.engines, self.usable_blocks // low * self.engines)

    def longest(self, requests: int, most: int) -> Span:
        each = -(-requests // self.engines)
        return Span(
            largest(most, lambda length: each * self._blocks(length)[1] <= self.usable_blocks),
            largest(most, lambda length: each * self._blocks(length)[0] <= self.usable_blocks),
        )

    def _blocks(self, length: int) -> tuple[int, int]:
        """At least and at most so many blocks for a request of `length`."""
        if self.one_group and self.block_size is not None:
            exact = -(-length // self.block_size)
            return exact, exact
        in_proportion = -(-self.blocks_at_limit * length // self.limit)
        if length <= self.limit:
            return max(in_proportion, 1), self.blocks_at_limit
        return self.blocks_at_limit, in_proportion
