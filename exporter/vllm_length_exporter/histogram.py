"""Histograms of request lengths: cumulative buckets, their growth over time, and what a share stays within."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Histogram:
    """Cumulative counts up to each edge, in tokens; the last edge is infinity."""

    edges: tuple[float, ...]
    counts: tuple[int, ...]

    @property
    def total(self) -> int:
        return self.counts[-1] if self.counts else 0

    def since(self, earlier: Histogram) -> Histogram | None:
        """What was added since; None where the buckets differ or a count fell (another incarnation)."""
        if self.edges != earlier.edges:
            return None
        added = tuple(now - then for now, then in zip(self.counts, earlier.counts, strict=True))
        return None if any(count < 0 for count in added) else Histogram(self.edges, added)

    def at_most(self, share: float) -> float | None:
        """The smallest edge that at least this share of the samples stays within; infinity is the top bucket.

        None where there is no sample.
        """
        if not self.total:
            return None
        # A share of a whole number of samples: 0.95 of 20 is 19, whatever binary fractions make of it.
        needed = math.ceil(share * self.total - 1e-9)
        return next(edge for edge, count in zip(self.edges, self.counts, strict=True) if count >= needed)


def histogram(buckets: Iterable[tuple[float, float]]) -> Histogram | None:
    """The sum of several series of cumulative buckets, `(edge, count)`; None where they do not belong together."""
    sums: dict[float, float] = {}
    series: dict[float, int] = {}
    for edge, count in buckets:
        sums[edge] = sums.get(edge, 0.0) + count
        series[edge] = series.get(edge, 0) + 1
    edges = tuple(sorted(sums))
    if not edges or edges[-1] != math.inf or len(set(series.values())) != 1:
        return None
    counts = tuple(int(sums[edge]) for edge in edges)
    if any(later < earlier for earlier, later in itertools.pairwise(counts)):
        return None
    return Histogram(edges, counts)
