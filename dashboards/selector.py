"""Selectors of our own series: a metric's constant in, PromQL out, with the board's variables and the user's matchers.

Writing a query through here is what makes a name that nobody exports impossible.
"""

from __future__ import annotations

from dataclasses import dataclass

from vllm_length_exporter.collectors.metric import Metric
from vllm_length_exporter.mixin.thresholds import Thresholds


@dataclass(frozen=True, slots=True)
class Selector:
    """`select(AT_MOST, part="total")` is the series of the servers, models and engines that the board has chosen."""

    thresholds: Thresholds
    variables: tuple[str, ...]  # the board's, named as the labels that they choose, from the outside in

    def __call__(self, metric: Metric, *matchers: str, **equal: str) -> str:
        if not metric.per_server:
            return self.of_exporter(metric.full_name, *matchers)
        unknown = equal.keys() - set(metric.label_names)
        if unknown:
            raise ValueError(f"{metric.full_name} has no label {', '.join(sorted(unknown))}")
        fixed = [f'{label}="{value}"' for label, value in equal.items()]
        chosen = [f'{label}=~"${label}"' for label in self.variables if label in metric.label_names]
        return _series(metric.full_name, *fixed, *matchers, *chosen, self._own)

    def of_exporter(self, name: str, *matchers: str) -> str:
        """A series of the exporter's process or scrape: not of a server, so by the exporter's job."""
        return _series(name, *matchers, self.thresholds.exporter_selector, self._own)

    def labelled(self, name: str, *matchers: str) -> str:
        """A series that Prometheus itself makes and that carries the server's label (ALERTS)."""
        return _series(name, *matchers, 'server=~"$server"', self._own)

    def before(self, variable: str) -> Selector:
        """The selector of a variable's own query: chosen by the variables left of it alone."""
        return Selector(self.thresholds, self.variables[: self.variables.index(variable)])

    @property
    def _own(self) -> str:
        return self.thresholds.selector.strip().rstrip(",")


def _series(name: str, *matchers: str) -> str:
    inside = ", ".join(matcher for matcher in matchers if matcher)
    return f"{name}{{{inside}}}" if inside else name
