"""Writes selectors of our series, with the user's own matchers in them, and the template text that shows a value."""

from __future__ import annotations

from dataclasses import dataclass

from vllm_length_exporter.collectors.findings import FINDING
from vllm_length_exporter.collectors.kv_cache import CAPACITY, CONCURRENCY, FREE
from vllm_length_exporter.collectors.metric import Metric
from vllm_length_exporter.collectors.startup import STATE
from vllm_length_exporter.derive.values import State

from .thresholds import Thresholds

ROOM = (CAPACITY, CONCURRENCY, FREE)


@dataclass(frozen=True, slots=True)
class Query:
    """`query(USAGE, 'engine="0"')` is `vllm_length_kv_cache_usage_ratio{engine="0", <the user's selector>}`."""

    thresholds: Thresholds

    def __call__(self, metric: Metric, *matchers: str) -> str:
        own = self.selector if metric.per_server else self.thresholds.exporter_selector
        inside = ", ".join(part for part in (*matchers, own) if part)
        return f"{metric.full_name}{{{inside}}}" if inside else metric.full_name

    @property
    def selector(self) -> str:
        """The user's selector, without the servers to ignore."""
        ignored = "|".join(_as_pattern(server) for server in self.thresholds.ignored_servers)
        without = f'server!~"{ignored}"' if ignored else ""
        return ", ".join(part for part in (self.thresholds.selector.strip().rstrip(","), without) if part)

    def recent(self, metric: Metric, *matchers: str, over: str = "") -> str:
        """The highest value of the last moments, so that a failed scrape does not end an alert."""
        return f"max_over_time({self(metric, *matchers)}[{over or self.thresholds.missed_scrapes}])"

    def lowest(self, metric: Metric, *matchers: str) -> str:
        """The lowest value of the last moments."""
        return f"min_over_time({self(metric, *matchers)}[{self.thresholds.missed_scrapes}])"

    def state(self, *states: State) -> str:
        """Each server that was in one of these states in the last moments."""
        return self.recent(STATE, 'state=~"' + "|".join(states) + '"') + " == 1"

    def finding(self, pattern: str, over: str = "") -> str:
        """Each server for which one of these findings held in the last moments; its severity is the exporter's own."""
        held = self.recent(FINDING, f'finding=~"{pattern}"', over=over)
        return f"max without (finding, severity) ({held}) == 1"

    def shown(
        self, metric: Metric, *labels: str, shape: str = "%.0f", scale: str = "", over: str = ""
    ) -> str:
        """Template text with the value of a series that shares `labels` with the alert, or the word "unknown"."""
        return asked(self._value(metric, labels, scale, over), "server", *labels, shape=shape)

    def shown_if(self, metric: Metric, text: str, shape: str) -> str:
        """Template text with the value of the server's series in place of the @, or nothing."""
        value = f'{{{{ . | first | value | printf "{shape}" }}}}'
        call = f"printf `{self._value(metric, (), '', '')}` $labels.server | query"
        return f"{{{{ with {call} }}}}{text.replace('@', value)}{{{{ end }}}}"

    def _value(self, metric: Metric, labels: tuple[str, ...], scale: str, over: str) -> str:
        same = ", ".join(f"{label}=%q" for label in ("server", *labels))
        # of several engines or workers the one with the least room is the one that counts
        pick = "min" if metric in ROOM else "max"
        return f"{pick}({self.recent(metric, same, over=over)}){scale}"

    @staticmethod
    def by_cause(expr: str) -> str:
        """The argument of a template's `range`: the causes of a query, which holds one %q for the server."""
        return f'printf `{expr}` $labels.server | query | sortByLabel "cause"'


def asked(expr: str, *labels: str, shape: str = "%.0f") -> str:
    """Template text with the first value of a query, which holds one %q for each label of the alert."""
    given = "".join(f" $labels.{label}" for label in labels)
    value = f'{{{{ . | first | value | printf "{shape}" }}}}'
    return f"{{{{ with printf `{expr}`{given} | query }}}}{value}{{{{ else }}}}unknown{{{{ end }}}}"


def _as_pattern(text: str) -> str:
    """Text as part of a regular expression within a PromQL string: each special character between [ ]."""
    return "".join(char if char.isalnum() or char in "_-:/ " else f"[{char}]" for char in text)
