"""What is written into prometheus_client by a shorter way is what its own way writes."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.samples import Sample

from vllm_length_exporter.middleware import series

EDGES = [edge + step for edge in (32, *series.BUCKETS) for step in (-1, 0, 1)]
LENGTHS = [-5, 0, 1, *EDGES, 10**12]


def histogram(buckets: tuple[float, ...] = series.BUCKETS) -> Histogram:
    return Histogram("lengths", "Lengths.", ["model"], buckets=buckets, registry=CollectorRegistry())


def counter() -> Counter:
    return Counter("requests", "Requests.", ["model"], registry=CollectorRegistry())


def samples(of: Counter | Histogram) -> list[Sample]:
    return [sample for family in of.collect() for sample in family.samples if "_created" not in sample.name]


@pytest.mark.parametrize("length", LENGTHS)
def test_bisection_finds_the_bucket_that_observe_finds(length: int) -> None:
    ours, theirs = histogram(), histogram()
    series._observing(ours.labels("tiny"))(length)
    theirs.labels("tiny").observe(length)
    assert samples(ours) == samples(theirs)


def test_a_histogram_with_other_insides_observes_by_itself() -> None:
    class Other(Histogram):
        @property
        def _sum(self) -> object:
            raise AttributeError("_sum")

        @_sum.setter
        def _sum(self, value: object) -> None:
            pass

        def observe(self, amount: float, exemplar: dict[str, str] | None = None) -> None:
            seen.append(amount)

    seen: list[float] = []
    other = Other("lengths", "Lengths.", buckets=series.BUCKETS, registry=None)
    series._observing(other)(700)
    assert seen == [700]


def test_adding_counts_as_inc_does() -> None:
    ours, theirs = counter(), counter()
    for number in (1, 3):
        series._adding(ours.labels("tiny"))(number)
        theirs.labels("tiny").inc(number)
    assert samples(ours) == samples(theirs)


def test_a_counter_with_other_insides_counts_by_itself() -> None:
    class Other(Counter):
        @property
        def _value(self) -> object:
            raise AttributeError("_value")

        @_value.setter
        def _value(self, value: object) -> None:
            pass

        def inc(self, amount: float = 1, exemplar: dict[str, str] | None = None) -> None:
            seen.append(amount)

    seen: list[float] = []
    series._adding(Other("requests", "Requests.", registry=None))(2)
    assert seen == [2]
