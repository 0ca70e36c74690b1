"""A recording played with faults, over real HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import requests

from tests.deadline import wait_for
from tests.recorded import recording
from vllm_length_exporter.recording import Player
from vllm_length_exporter.sources.http import Endpoint, FetchError, FetchFailure, HttpSource
from vllm_length_exporter.standin import Faults, StandIn
from vllm_length_exporter.vllm.page import read_page


@contextmanager
def playing(*faults: str) -> Iterator[StandIn]:
    standin = StandIn(Player(recording("0.32.0-pressure"), loop=True), faults=Faults.parse(faults))
    standin.start()
    try:
        yield standin
    finally:
        standin.stop()


def test_dropped_answers_end_in_the_middle() -> None:
    with playing("drop=1") as standin:
        source = HttpSource(Endpoint(standin.url, timeout=5))
        with pytest.raises(FetchError) as failed:
            source.get("/metrics", "text/plain")
        source.close()
    assert failed.value.kind is FetchFailure.CUT


def test_delayed_answers_come_late() -> None:
    with playing("delay=2s") as standin:
        source = HttpSource(Endpoint(standin.url, timeout=0.3))
        with pytest.raises(FetchError) as failed:
            source.get("/metrics", "text/plain")
        source.close()
    assert failed.value.kind is FetchFailure.TIMEOUT


def test_restarts_show_in_the_time_of_the_start() -> None:
    with playing("restart=200ms") as standin:

        def start() -> float | None:
            return read_page(requests.get(f"{standin.url}/metrics", timeout=5).content).process_start

        first = start()
        assert first is not None
        later = wait_for(lambda: (now := start()) and now > first and now, seconds=10, what="another process")
    assert (later - first) % 60 == pytest.approx(0, abs=0.01)


@pytest.mark.parametrize("text", ["drop=2", "drop=x", "delay=", "restart=-1s", "explode=1", "", "drop"])
def test_what_is_no_fault(text: str) -> None:
    with pytest.raises(ValueError, match=r"^expected .*got "):
        Faults.parse([text])
