"""The exporter as a user runs it: the command, in a process of its own."""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Self

import requests

from tests.exposition import Page
from tests.process import Process, free_port


class Daemon(Process):
    """`with Daemon(log, "--server", URL) as daemon:` is ready to be scraped."""

    def __init__(self, log: Path, *arguments: str) -> None:
        self.port = free_port()
        self.base_url = f"http://127.0.0.1:{self.port}"
        address = f"127.0.0.1:{self.port}"
        command = [sys.executable, "-m", "vllm_length_exporter", "serve", "--listen-address", address]
        super().__init__([*command, *arguments], log)

    def __enter__(self) -> Self:
        super().__enter__()
        self.wait_until(
            lambda: requests.get(f"{self.base_url}/-/healthy", timeout=5).ok,
            seconds=20,
            what="the daemon is healthy",
            ignoring=(requests.ConnectionError,),
        )
        return self

    def scrape(self) -> Page:
        return Page.scrape(f"{self.base_url}/metrics")


class Watcher:
    """Scrapes the daemon all the while, so that a test can say what was never, or always, published."""

    def __init__(self, daemon: Daemon, every: float) -> None:
        self._daemon, self._every = daemon, every
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watcher")
        self._seen: list[tuple[float, Page]] = []
        self._error: Exception | None = None

    def since(self, moment: float = 0.0) -> list[Page]:
        """The pages scraped after that reading of the monotonic clock."""
        if self._error:
            raise self._error
        return [page for at, page in self._seen if at >= moment]

    def _watch(self) -> None:
        while not self._stop.wait(self._every):
            begun = time.monotonic()
            try:
                self._seen.append((begun, self._daemon.scrape()))
            except (requests.RequestException, ValueError) as error:
                self._error = error
                return

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
