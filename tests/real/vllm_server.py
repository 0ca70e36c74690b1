"""A real vLLM server on the CPU with a tiny model of random weights, started and ended by a test."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import requests

from tests.process import Process, free_port

MODEL_NAME = "tiny"
# 80 blocks of 128 tokens, one of them the null block: 10,240 tokens as vLLM reports them
SMALL_CACHE = ("--num-gpu-blocks-override", "80", "--max-num-seqs", "16")
START_SECONDS = 480  # half a minute on an idle machine


class VllmServer(Process):
    """`with VllmServer(home, model, log, *SMALL_CACHE) as vllm:` returns at once; `wait_ready` waits until it serves.

    Keeps its port and its log over restarts, as under a supervisor.
    """

    def __init__(
        self,
        home: Path,
        model: Path,
        log: Path,
        *arguments: str,
        environment: Mapping[str, str] | None = None,
        port: int | None = None,
    ) -> None:
        self.port = port or free_port()
        self.base_url = f"http://127.0.0.1:{self.port}"
        self._serve = [str(home / "bin" / "python"), "-m", "vllm.entrypoints.cli.main", "serve", str(model)]
        super().__init__(
            self._command(arguments),
            log,
            environment={
                "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB
                "HF_HUB_OFFLINE": "1",
                "VLLM_NO_USAGE_STATS": "1",
                "DO_NOT_TRACK": "1",
                "PYTHONDONTWRITEBYTECODE": "",  # three processes import a million lines, one after another
                **(environment or {}),
            },
            stop_within=30,
        )

    def _command(self, arguments: tuple[str, ...]) -> list[str]:
        fixed = ["--served-model-name", MODEL_NAME, "--load-format", "dummy", "--enforce-eager"]
        fixed += ["--dtype", "float32"]  # bf16 dies of an illegal instruction on some processors
        fixed += ["--host", "127.0.0.1", "--port", str(self.port)]
        return [*self._serve, *fixed, *arguments]

    def wait_ready(self, seconds: float = START_SECONDS) -> None:
        self.wait_until(self.healthy, seconds=seconds, what="vLLM answers /health", every=0.2)

    def healthy(self) -> bool:
        try:
            return requests.get(f"{self.base_url}/health", timeout=2).ok
        except requests.RequestException:
            return False

    def version(self) -> str:
        """What it calls itself: 0.32.0."""
        return str(requests.get(f"{self.base_url}/version", timeout=10).json()["version"])

    def restart(self, *arguments: str) -> None:
        """End it (if it still runs) and start it on the same port and log, with other arguments."""
        if self.running:
            self.terminate()
        self.command = self._command(arguments)
        self.start()

    def page(self) -> str:
        """What vLLM's /metrics says now."""
        reply = requests.get(
            f"{self.base_url}/metrics", headers={"Accept": "text/plain; version=0.0.4"}, timeout=30
        )
        reply.raise_for_status()
        return reply.text
