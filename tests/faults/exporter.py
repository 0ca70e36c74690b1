"""The exporter under faults: over kills and restarts on one port, with its cost from /proc."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

import requests

from tests.deadline import wait_for
from tests.exposition import Page
from tests.live.daemon import Daemon
from tests.process import Process


@dataclass(frozen=True, slots=True)
class Cost:
    """What the process holds; `memory` in kB."""

    memory: int
    descriptors: int
    threads: int


class Exporter(Daemon):
    """`Daemon` that may be killed and started again. `started` is the monotonic time of the last start."""

    def __init__(self, folder: Path, config: Path) -> None:
        super().__init__(folder / "exporter.log", "--config", str(config))
        self.started = 0.0
        self.starts = 0
        self._session = requests.Session()

    def begin(self) -> None:
        Process.start(self)
        self.starts += 1
        self.wait_until(
            lambda: requests.get(f"{self.base_url}/-/healthy", timeout=5).ok,
            seconds=30, what="the exporter is healthy", ignoring=(requests.ConnectionError,),
        )  # fmt: skip
        self.started = time.monotonic()

    def scrape(self) -> Page:
        reply = self._session.get(
            f"{self.base_url}/metrics", headers={"Accept": "text/plain; version=0.0.4"}, timeout=20
        )
        reply.raise_for_status()
        return Page(reply.text)

    def freeze(self) -> None:
        """Returns once it stands still."""
        self.signal(signal.SIGSTOP)
        status = Path(f"/proc/{self.pid}/stat")
        wait_for(
            lambda: status.read_text().rpartition(")")[2].split()[0] == "T",
            seconds=10,
            what="it stands still",
        )

    def thaw(self) -> None:
        self.signal(signal.SIGCONT)

    def cost(self) -> Cost:
        folder = Path(f"/proc/{self.pid}")
        rows = dict(line.split(":", 1) for line in (folder / "status").read_text().splitlines())
        return Cost(int(rows["VmRSS"].split()[0]), len(os.listdir(folder / "fd")), int(rows["Threads"]))  # noqa: PTH208
