"""Asks a Prometheus what a panel asks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import requests

from dashboards.substitution import Substitution

Json = dict[str, Any]
TIMEOUT = 30
POINTS = 400  # of a curve: about a point for every other pixel


@dataclass(frozen=True, slots=True)
class Series:
    """One answer: a curve, or a single point where the query is an instant one. `query` is the letter of its query."""

    query: str
    name: str
    labels: dict[str, str]
    times: tuple[float, ...]
    values: tuple[float, ...]

    @property
    def last(self) -> float:
        return self.values[-1]


@dataclass(frozen=True, slots=True)
class Asker:
    """Asks for the time from `start` to `end` (Unix seconds), scraped every `scrape` seconds."""

    url: str
    start: float
    end: float
    scrape: float
    substitute: Substitution

    @property
    def step(self) -> float:
        return max(self.scrape, round((self.end - self.start) / POINTS))

    def panel(self, panel: Json) -> list[Series]:
        found = []
        for target in panel["targets"]:
            found += self._target(target)
        return found

    def points(self, expr: str) -> list[Series]:
        """A curve query without a legend, for annotations."""
        return self._target({"expr": expr, "refId": "Anno", "instant": False, "legendFormat": ""})

    def _target(self, target: Json) -> list[Series]:
        query = {"query": self.substitute(target["expr"])}
        if target["instant"]:
            rows = self._ask("query", {**query, "time": str(self.end)})
        else:
            times = {"start": str(self.start), "end": str(self.end), "step": str(self.step)}
            rows = self._ask("query_range", {**query, **times})
        found = []
        for row in rows:
            labels = row["metric"]
            points = row["values"] if "values" in row else [row["value"]]
            times_of, values = zip(*((float(at), float(value)) for at, value in points), strict=True)
            found.append(
                Series(target["refId"], _legend(target["legendFormat"], labels), labels, times_of, values)
            )
        return found

    def _ask(self, path: str, parameters: dict[str, str]) -> list[Json]:
        reply = requests.get(f"{self.url}/api/v1/{path}", params=parameters, timeout=TIMEOUT)
        reply.raise_for_status()
        rows: list[Json] = reply.json()["data"]["result"]
        return rows


def _legend(pattern: str, labels: dict[str, str]) -> str:
    if pattern == "__auto":
        return ", ".join(f"{key}={value}" for key, value in labels.items()) or "value"
    for label, value in labels.items():
        pattern = pattern.replace("{{" + label + "}}", value)
    return pattern
