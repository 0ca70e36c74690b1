"""Several API servers share one page: their counts add up, and nothing of a process stands alone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from prometheus_client import CollectorRegistry
from prometheus_client.multiprocess import MultiProcessCollector

WORKER = """
from tests.middleware.scripted import Script, chat, error, play, served
refusal = "The engine prompt length 9000 exceeds the max_model_len 8192. Please reduce prompt."
play(*[Script(chat(max_tokens=3000), served(6000, 100))] * {served}, *[Script(chat(), error(refusal))] * {refused})
"""


def test_the_counts_of_two_processes_add_up(tmp_path: Path) -> None:
    environment = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(tmp_path)}
    for served, refused in ((3, 1), (4, 2)):
        code = WORKER.format(served=served, refused=refused)
        subprocess.run([sys.executable, "-c", code], env=environment, check=True, timeout=60)
    registry = CollectorRegistry()
    MultiProcessCollector(registry, str(tmp_path))  # type: ignore[no-untyped-call]
    found = {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in registry.collect()
        for sample in family.samples
    }
    prefix, model = "vllm_length_middleware", ("model", "tiny")
    endpoint = ("endpoint", "/v1/chat/completions")
    assert found[f"{prefix}_requests_total", (endpoint, model, ("outcome", "served"))] == 7
    assert found[f"{prefix}_refused_total", (("cause", "prompt_too_long"), endpoint, model)] == 3
    assert found[f"{prefix}_refused_total", (("cause", "other"), endpoint, model)] == 0
    assert found[f"{prefix}_clamped_total", (model,)] == 7
    assert found[f"{prefix}_total_tokens_count", (model,)] == 7
    assert found[f"{prefix}_total_tokens_bucket", (("le", "6144.0"), model)] == 7
    assert found[f"{prefix}_total_tokens_bucket", (("le", "4096.0"), model)] == 0
    assert found[f"{prefix}_limit_tokens", (("source", "app_state"),)] == 8192
    assert not any("pid" in dict(labels) for _, labels in found)
