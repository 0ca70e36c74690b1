"""How vLLM's accounting of the KV cache changed, as data: the first version of each way of counting.

Read from the releases 0.8.5 to 0.33.0; where a change falls between two of them, the later one is named.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from packaging.version import Version

NEWEST = Version("0.33.0")
OLDEST = Version("0.8.5")

SINCE: Mapping[str, str] = {
    "groups": "0.9.1",  # layers of different kinds get groups of their own; before, all keep every token
    "chunked_as_full": "0.10.0",  # a model with chunked attention keeps every token
    "state_blocks": "0.10.0",  # the block grows until a page of attention holds a state
    "unequal_pages": "0.12.0",  # layers of different page sizes are made to fit
    "group_ratio_1_25": "0.12.0",  # kinds that differ by less than a quarter share the larger group size
    "checked_by_groups": "0.14.0",  # the needed memory counts the padding of groups
    "group_ratio_1_5": "0.18.0",
    "utilization_0_92": "0.20.0",
    "graphs_in_utilization": "0.20.0",  # before, graphs are captured in what utilization leaves free
    "size_by_concurrency": "0.20.1",  # the size printed is concurrency x limit
    "override_is_checked": "0.20.1",  # the needed memory is held against --num-gpu-blocks-override
    "states_with_prefixes": "0.26.0",  # prefix caching is on for hybrid models, with two states a request
    "batches_in_flight": "0.26.0",  # a sliding window holds the tokens of all batches in flight
    "padded_pages": "0.26.0",  # a page that does not divide the largest is padded to it
    "batch_by_160_gib": "0.28.0",  # devices of 160 GiB and more batch 16,384 tokens
    "overlap_of_stages": "0.29.0",  # async scheduling adds a batch in flight to those of pipeline stages
    "null_block_is_reserved": "0.29.0",  # the needed memory is held against the usable blocks
    "own_window_blocks": "0.32.0",  # sliding layers choose their block by the kernel
}


_SINCE = {name: Version(text).release for name, text in SINCE.items()}


@dataclass(frozen=True, slots=True)
class Rules:
    """What one version of vLLM does. A build or a candidate counts as the release that it leads to."""

    version: Version

    def has(self, name: str) -> bool:
        """Whether this version counts in that way."""
        return self._release >= _SINCE[name]

    @property
    def _release(self) -> tuple[int, int, int]:
        return self.version.major, self.version.minor, self.version.micro

    @property
    def group_ratio(self) -> float:
        """Kinds of layers whose numbers differ by less than this share one group size."""
        if self.has("group_ratio_1_5"):
            return 1.5
        return 1.25 if self.has("group_ratio_1_25") else 1.0

    @property
    def memory_utilization(self) -> float:
        """The default of --gpu-memory-utilization."""
        return 0.92 if self.has("utilization_0_92") else 0.9
