"""compose/pager.py: the stand-in at the end of the chain."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from tests.process import Process, free_port
from tests.tools.cache import PROJECT

ALERT = {
    "status": "firing",
    "labels": {"alertname": "VLLMLengthServerDown", "severity": "critical", "server": "a:8000"},
    "annotations": {
        "description": "a:8000: nothing answers.",
        "action": "Start it.",
        "runbook_url": "http://r/x.md",
    },
}


class Pager(Process):
    def __init__(self, log: Path) -> None:
        port = free_port()
        self.url = f"http://127.0.0.1:{port}/"
        super().__init__(
            [sys.executable, PROJECT / "compose" / "pager.py"], log, environment={"PAGER_PORT": str(port)}
        )


@pytest.fixture
def pager(tmp_path: Path) -> Iterator[Pager]:
    with Pager(tmp_path / "pager.log") as running:
        running.wait_until(
            lambda: requests.get(running.url, timeout=5).ok,
            seconds=10,
            what="the pager",
            ignoring=(requests.ConnectionError,),
        )
        yield running


def test_it_prints_a_line_an_alert(pager: Pager) -> None:
    quiet = {**ALERT, "status": "resolved", "labels": {**ALERT["labels"], "severity": "warning"}}  # type: ignore[dict-item]
    assert requests.post(pager.url, json={"alerts": [ALERT, quiet]}, timeout=5).status_code == 200
    assert pager.output().splitlines()[1:] == [
        "PAGE firing VLLMLengthServerDown: a:8000: nothing answers. First: Start it. http://r/x.md",
        "TICKET resolved VLLMLengthServerDown: a:8000: nothing answers. First: Start it. http://r/x.md",
    ]


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"alerts": [1]}', b'{"alerts": [{}]}', b"\xff" * 10])
def test_what_is_no_message_is_refused_and_it_goes_on(pager: Pager, body: bytes) -> None:
    assert requests.post(pager.url, data=body, timeout=5).status_code == 400
    assert "Traceback" not in pager.output()
    assert requests.get(pager.url, timeout=5).status_code == 200
