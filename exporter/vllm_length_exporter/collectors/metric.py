"""How a series is declared: a constant beside the code that fills it, and families built from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

PREFIX = "vllm_length_"


@dataclass(frozen=True, slots=True)
class Metric:
    """One series of ours. `name` is without the prefix, `labels` without `server`, which all have but build_info."""

    name: str
    help: str
    labels: tuple[str, ...] = ()
    kind: Literal["gauge", "counter"] = "gauge"
    per_server: bool = True

    @property
    def full_name(self) -> str:
        return PREFIX + self.name

    @property
    def label_names(self) -> tuple[str, ...]:
        return ("server", *self.labels) if self.per_server else self.labels

    def family(self) -> Family:
        make = GaugeMetricFamily if self.kind == "gauge" else CounterMetricFamily
        return Family(self, make(self.full_name, self.help, labels=self.label_names))


@dataclass(frozen=True, slots=True)
class Family:
    """A metric with the samples of one scrape."""

    metric: Metric
    rows: GaugeMetricFamily | CounterMetricFamily

    def add(self, value: float, *labels: str) -> None:
        """Add one sample; `labels` are the values in the order of the metric's label names."""
        if len(labels) != len(self.metric.label_names):
            raise ValueError(
                f"{self.metric.name}: {len(self.metric.label_names)} labels expected, got {labels}"
            )
        self.rows.add_metric(labels, value)
