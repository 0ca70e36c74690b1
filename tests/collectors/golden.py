"""The exporter's page at the end of each recording. `python -m tests.collectors.golden` writes the files anew."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from prometheus_client.exposition import generate_latest

from tests.recorded import NAMES, played
from vllm_length_exporter.collectors.registry import registry
from vllm_length_exporter.collectors.snapshot import ServerSnapshot, Snapshot, SourceStatus
from vllm_length_exporter.derive.view import Horizon, view

FOLDER = Path(__file__).parent / "golden"
EXPONENT = re.compile(r"(?<=e\+)0(?=\d\d)")  # prometheus_client wrote 1e+010 until 0.25


def page(name: str) -> str:
    """The text that Prometheus gets, as of the recording's last page."""
    at, state = list(played(name))[-1]
    up = state.page is not None
    sources = (
        SourceStatus("metrics", up, 1.7e9 if up else None, 0.005),
        SourceStatus("models", up, 1.7e9 if up else None, 0.005),
        SourceStatus("logs", True, 1.7e9, 0.001),
    )
    snapshot = Snapshot((ServerSnapshot(name, view(state, at, Horizon()), state.counts, sources),))
    text = generate_latest(registry(lambda: snapshot)).decode()
    text = re.sub(r"(vllm_length_exporter_build_info\{)[^}]*\}", r"\1}", text)
    return EXPONENT.sub("", text)


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for recorded in NAMES:
        (FOLDER / f"{recorded}.prom").write_text(page(recorded))
        sys.stdout.write(f"{recorded}\n")
