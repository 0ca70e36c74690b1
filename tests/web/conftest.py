"""Listeners on loopback, stopped at the end of a test, and certificates."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trustme

from tests.web.published import application
from vllm_length_exporter.web.application import Application
from vllm_length_exporter.web.listener import Listener

Listen = Callable[..., Listener]


@pytest.fixture
def listen() -> Iterator[Listen]:
    """`listen()` or `listen(application, web_config_file=path)` serves on a free port."""
    running: list[Listener] = []

    def start(served: Application | None = None, web_config_file: Path | None = None) -> Listener:
        listener = Listener(served or application(), "127.0.0.1:0", web_config_file)
        running.append(listener)
        listener.start()
        return listener

    yield start
    for listener in running:
        listener.stop()


@pytest.fixture(scope="session")
def ca() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="session")
def ca_file(ca: trustme.CA, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("ca") / "ca.pem"
    ca.cert_pem.write_to_path(str(path))
    return path
