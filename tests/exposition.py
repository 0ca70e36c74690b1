"""A scraped page, read the way a test asks: one series, by name and labels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import requests
from prometheus_client.parser import text_string_to_metric_families

TEXT = {"Accept": "text/plain; version=0.0.4"}
TIMEOUT = 30  # seconds


@dataclass(frozen=True, slots=True)
class Sample:
    name: str
    labels: dict[str, str]
    value: float


class Page:
    """The samples of one page of `/metrics`."""

    def __init__(self, text: str) -> None:
        self.samples = [
            Sample(sample.name, sample.labels, float(sample.value))
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        ]

    @classmethod
    def scrape(cls, url: str) -> Page:
        reply = requests.get(url, headers=TEXT, timeout=TIMEOUT)
        reply.raise_for_status()
        return cls(reply.text)

    def all(self, name: str, **labels: str) -> Iterator[Sample]:
        """The samples of that name that carry these labels among theirs."""
        for sample in self.samples:
            if sample.name == name and labels.items() <= sample.labels.items():
                yield sample

    def get(self, name: str, **labels: str) -> float | None:
        """The one value, or None where there is none.

        Raises:
            AssertionError: there are several.
        """
        found = list(self.all(name, **labels))
        assert len(found) <= 1, f"several {name} with {labels}: {found}"
        return found[0].value if found else None

    def value(self, name: str, **labels: str) -> float:
        """The one value.

        Raises:
            AssertionError: there is none, or several.
        """
        value = self.get(name, **labels)
        assert value is not None, f"no {name} with {labels}"
        return value
