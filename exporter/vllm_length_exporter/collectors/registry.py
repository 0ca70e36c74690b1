"""All our series as one prometheus_client collector, made fresh from one snapshot at every scrape."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prometheus_client.metrics_core import Metric as PrometheusMetric
from prometheus_client.registry import Collector, CollectorRegistry

from . import findings, kv_cache, limits, rejections, requests, sources, startup, workload
from .metric import Metric
from .snapshot import Snapshot

SUBJECTS = (limits, kv_cache, requests, rejections, workload, startup, findings, sources)
METRICS: tuple[Metric, ...] = tuple(metric for subject in SUBJECTS for metric in subject.METRICS)


class SnapshotCollector(Collector):
    """Yields the families of the snapshot that `current` returns; those without a sample are left out."""

    def __init__(self, current: Callable[[], Snapshot]) -> None:
        self._current = current

    def describe(self) -> Iterable[PrometheusMetric]:
        return []

    def collect(self) -> Iterable[PrometheusMetric]:
        snapshot = self._current()
        for subject in SUBJECTS:
            for family in subject.families(snapshot):
                if family.rows.samples:
                    yield family.rows


def registry(current: Callable[[], Snapshot]) -> CollectorRegistry:
    """A registry with our series of whatever `current` returns at the time of a scrape."""
    made = CollectorRegistry(auto_describe=False)
    made.register(SnapshotCollector(current))
    return made
