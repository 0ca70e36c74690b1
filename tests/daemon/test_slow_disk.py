"""A disk that does not answer holds up the state file, and nothing else."""

from __future__ import annotations

import os
import time
from pathlib import Path

from tests.live.daemon import Daemon
from tests.recorded import recording
from vllm_length_exporter.recording import Player
from vllm_length_exporter.standin import StandIn

SAVED_EVERY = 5.0  # seconds


def test_polls_go_on_while_the_state_cannot_be_written(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    blocked = state / "resume.json.new"
    os.mkfifo(blocked)  # whoever opens it to write waits until somebody reads
    standin = StandIn(Player(recording("0.32.0-pressure"), loop=True))
    standin.start()
    arguments = ("--server", standin.url, "--poll-interval", "200ms", "--state-dir", str(state))
    try:
        with Daemon(tmp_path / "exporter.log", *arguments) as exporter:
            begun = time.time()

            def last_read() -> float | None:
                at = exporter.scrape().get(
                    "vllm_length_source_last_success_timestamp_seconds", source="metrics"
                )
                return at if at is not None and at > begun + 2 * SAVED_EVERY else None

            exporter.wait_until(last_read, seconds=4 * SAVED_EVERY, what="polls go on past two times to save")
            reader = os.open(blocked, os.O_RDONLY | os.O_NONBLOCK)  # the disk is back
            try:
                assert exporter.terminate() == 0
            finally:
                os.close(reader)
    finally:
        standin.stop()
