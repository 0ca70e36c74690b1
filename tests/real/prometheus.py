"""A real Prometheus, started and ended by a test."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import requests

from tests.process import Process, free_port


class Prometheus(Process):
    """`with Prometheus(tool("prometheus"), folder, config) as prometheus:` is ready to be asked."""

    def __init__(self, program: Path, folder: Path, config: Mapping[str, object], *arguments: str) -> None:
        self.base_url = f"http://127.0.0.1:{free_port()}"
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / "prometheus.json"
        file.write_text(json.dumps(config))  # YAML holds JSON
        command = [str(program), f"--config.file={file}", f"--storage.tsdb.path={folder / 'data'}"]
        command.append(f"--web.listen-address={self.base_url.removeprefix('http://')}")
        super().__init__([*command, *arguments], folder / "prometheus.log")

    def __enter__(self) -> Prometheus:
        super().__enter__()
        self.wait_until(
            lambda: requests.get(f"{self.base_url}/-/ready", timeout=5).ok,
            seconds=30,
            what="Prometheus is ready",
            ignoring=(requests.ConnectionError,),
        )
        return self

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The instant vector of an expression now: `{"metric": {...}, "value": [time, "text"]}` each."""
        reply = requests.get(f"{self.base_url}/api/v1/query", params={"query": expression}, timeout=10)
        reply.raise_for_status()
        result: list[dict[str, Any]] = reply.json()["data"]["result"]
        return result


def scrape_config(interval: str, jobs: Mapping[str, Sequence[str]]) -> dict[str, object]:
    """A configuration that scrapes each job's `host:port` targets every `interval`, and evaluates as often."""
    return {
        "global": {"scrape_interval": interval, "scrape_timeout": interval, "evaluation_interval": interval},
        "scrape_configs": [
            {"job_name": job, "static_configs": [{"targets": list(targets)}]} for job, targets in jobs.items()
        ],
    }
