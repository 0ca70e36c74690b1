"""A real Prometheus of each generation reads the daemon's page, names and values whole."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from tests.bench.fleet import Fleet
from tests.conftest import Tool
from tests.live.daemon import Daemon
from tests.real.prometheus import Prometheus, scrape_config
from tests.tools.binaries import SUITES

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    folder = tmp_path_factory.mktemp("daemon")
    with Fleet(1) as fleet:
        arguments = ["--server", f"http://{fleet.addresses[0]}", "--name", "recorded", "--poll-interval", "1"]
        with Daemon(folder / "daemon.log", *arguments) as daemon:
            daemon.wait_until(
                lambda: daemon.scrape().get("vllm_length_max_model_len_tokens"),
                seconds=10,
                what="the first poll",
            )
            yield daemon


@pytest.mark.parametrize("suite", SUITES)
def test_prometheus_reads_what_was_published(tool: Tool, tmp_path: Path, daemon: Daemon, suite: str) -> None:
    config = scrape_config("1s", {"exporter": [f"127.0.0.1:{daemon.port}"]})
    with Prometheus(tool("prometheus", suite), tmp_path, config) as prometheus:
        prometheus.wait_until(lambda: prometheus.query("up == 1"), seconds=20, what="a scrape")
        stored = prometheus.query('{__name__=~"vllm_length_.+"}')
    published = {sample.name for sample in daemon.scrape().samples if sample.name.startswith("vllm_length_")}
    assert {series["metric"]["__name__"] for series in stored} >= published
    (limit,) = [
        series for series in stored if series["metric"]["__name__"] == "vllm_length_max_model_len_tokens"
    ]
    assert limit["value"][1] == "8192"
    assert limit["metric"]["server"] == "recorded"
    assert limit["metric"]["model_name"] == "tiny"


@pytest.mark.parametrize("suite", SUITES)
def test_promtool_finds_nothing_to_mend(tool: Tool, daemon: Daemon, suite: str) -> None:
    page = requests.get(
        f"{daemon.base_url}/metrics", headers={"Accept": "text/plain; version=0.0.4"}, timeout=10
    )
    checked = subprocess.run(
        [tool("promtool", suite), "check", "metrics"], input=page.content, capture_output=True, check=False
    )
    assert (checked.returncode, checked.stdout.decode() + checked.stderr.decode()) == (0, "")
