"""The status page of the real daemon: what it shows of a playing server, and that looking costs that server nothing."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import requests
from werkzeug.wrappers import Request, Response

from tests.deadline import wait_for
from tests.live.daemon import Daemon
from tests.recorded import recording
from vllm_length_exporter.recording import Player
from vllm_length_exporter.standin import StandIn

pytestmark = pytest.mark.slow

POLL = 0.5  # seconds
SPELL = 5.0  # seconds of counting
VIEWERS = 8


class Counting(StandIn):
    """A stand-in that counts what it is asked."""

    asked = 0

    def _response(self, request: Request) -> Response:
        self.asked += 1
        return super()._response(request)


@pytest.fixture
def standin(tmp_path: Path) -> Iterator[Counting]:
    server = Counting(Player(recording("0.32.0-pressure"), loop=True, start=8.0), log=tmp_path / "vllm.log")
    server.start()
    yield server
    server.stop()


@pytest.fixture
def daemon(standin: Counting, tmp_path: Path) -> Iterator[Daemon]:
    log = str(tmp_path / "vllm.log")
    arguments = ["--server", standin.url, "--log", log, "--name", "watched", "--poll-interval", f"{POLL:g}s"]
    with Daemon(tmp_path / "daemon.log", *arguments) as running:
        running.wait_until(
            lambda: requests.get(f"{running.base_url}/-/ready", timeout=5).ok, seconds=20, what="ready"
        )
        yield running


def test_it_shows_the_server_and_its_last_moments(daemon: Daemon) -> None:
    def curve() -> str | None:
        text = requests.get(daemon.base_url, timeout=5).text
        return text if "<polyline" in text and "preempting" in text else None

    text = wait_for(curve, seconds=60, what="a curve, and a finding", every=0.5)
    for shown in ("<h1>watched ", "0.32.0", "metrics read", "logs read", "10,240", "Length budget"):
        assert shown in text


def asked_meanwhile(standin: Counting) -> int:
    before, end = standin.asked, time.monotonic() + SPELL
    wait_for(lambda: time.monotonic() >= end, seconds=SPELL + 1, what="the spell is over")
    return standin.asked - before


def test_who_watches_costs_the_server_nothing(daemon: Daemon, standin: Counting) -> None:
    alone = asked_meanwhile(standin)
    done = threading.Event()

    def look() -> int:
        seen = 0
        while not done.is_set():
            for path in ("/", "/?server=watched&tokens=3000", "/api/v1/status"):
                assert requests.get(daemon.base_url + path, timeout=10).ok
                seen += 1
        return seen

    with ThreadPoolExecutor(VIEWERS) as pool:
        looks = [pool.submit(look) for _ in range(VIEWERS)]
        try:
            watched = asked_meanwhile(standin)
        finally:
            done.set()
    assert sum(one.result() for one in looks) > 100
    assert watched <= alone + 1  # a poll more or less falls into the spell
