"""A real vLLM is recorded while the daemon watches it; the recording, played at 20 times, tells a daemon the same."""

from __future__ import annotations

import gzip
import signal
import sys
from pathlib import Path

import pytest

from tests.deadline import wait_for
from tests.exposition import Page
from tests.live.daemon import Daemon
from tests.process import Process, free_port
from tests.real.client import Client
from tests.real.vllm_server import SMALL_CACHE, VllmServer
from vllm_length_exporter.recording import Player, load
from vllm_length_exporter.standin import StandIn

SPEED = 20.0
SERVER = "tiny-server"
PROMPT = "Zebra stripes confuse the harbour master"
# What is of time, or of the exporter and its sources, and not of the server.
OF_TIME = ("source_", "exporter_", "preemptions_per_second", "limit_binding_ratio", "finding", "unknown")


def told(page: Page) -> dict[tuple[str, ...], float]:
    """The series that say something of the server, by name and labels."""
    return {
        (row.name, *sorted(f"{name}={value}" for name, value in row.labels.items())): row.value
        for row in page.samples
        if row.name.startswith("vllm_length_")
        and not row.name.removeprefix("vllm_length_").startswith(OF_TIME)
        and not row.name.endswith("_created")
    }


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_recorded_server_tells_the_same_at_twenty_times_its_pace(
    vllm_home: Path, tiny_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "recording.jsonl.gz"
    vllm = VllmServer(vllm_home, tiny_model, tmp_path / "vllm.log", *SMALL_CACHE)
    watch = ("--server", vllm.base_url, "--name", SERVER, "--log", str(vllm.log), "--poll-interval", "1s")
    record = [sys.executable, "-m", "vllm_length_exporter", "record", str(output)]
    record += ["--server", vllm.base_url, "--log", str(vllm.log), "--interval", "500ms", "--duration", "15m"]
    with (
        Daemon(tmp_path / "live.log", *watch) as daemon,
        Process(record, tmp_path / "record.log") as recorder,
        vllm,
    ):
        vllm.wait_ready()
        client = Client(vllm.base_url)
        client.chat(PROMPT, max_tokens=5)
        client.complete(client.tokens(50), max_tokens=20, ignore_eos=True)
        client.complete(client.tokens(9000), max_tokens=10)
        client.complete(client.tokens(6000), max_tokens=4000)
        client.crowd(12, 700, 500)
        before: dict[tuple[str, ...], float] = {}

        def at_rest() -> bool:
            """Two scrapes in a row, seconds apart, say the same: the last refusal and page were read."""
            nonlocal before
            earlier, before = before, told(daemon.scrape())
            return bool(before) and earlier == {**before, **_growing(earlier)}

        wait_for(at_rest, seconds=60, every=4, what="the live daemon is at rest")
        live = {key: value for key, value in before.items() if not _of_reading(key)}
        recorder.signal(signal.SIGTERM)
        assert recorder.exit_code() == 0, recorder.output()
    text = gzip.decompress(output.read_bytes()).decode()
    assert PROMPT not in text
    made = load(output)
    port = free_port()
    again = ("--server", f"http://127.0.0.1:{port}", "--name", SERVER, "--log", str(tmp_path / "played.log"))
    with Daemon(tmp_path / "played-daemon.log", *again, "--poll-interval", "100ms") as daemon:
        standin = StandIn(Player(made), port=port, log=tmp_path / "played.log", speed=SPEED)
        standin.start()
        closest: dict[tuple[str, ...], float] = {}

        def the_same() -> bool:
            nonlocal closest
            now = {key: value for key, value in told(daemon.scrape()).items() if not _of_reading(key)}
            if len(now.items() & live.items()) >= len(closest.items() & live.items()):
                closest = now
            return now == live

        try:
            wait_for(
                the_same,
                seconds=made.seconds / SPEED + 30,
                every=0.02,
                what="the played daemon says the same",
            )
        except AssertionError:
            missing = sorted(live.items() - closest.items()), sorted(closest.items() - live.items())
            pytest.fail(f"live only: {missing[0]}\nplayed only: {missing[1]}")
        finally:
            standin.stop()
    with capsys.disabled():
        print(
            f"\n{len(live)} series equal after {made.seconds:.0f} s in {made.seconds / SPEED:.0f} s: "
            f"{len(made.pages)} pages, {len(made.log)} log lines, {output.stat().st_size} bytes"
        )
    assert len(live) > 40


def _of_reading(key: tuple[str, ...]) -> bool:
    """How much was read: each page asked for leaves a line in the log, and the recorder asks as well."""
    return key[0] == "vllm_length_log_lines_total"


def _growing(seen: dict[tuple[str, ...], float]) -> dict[tuple[str, ...], float]:
    return {key: value for key, value in seen.items() if _of_reading(key)}
