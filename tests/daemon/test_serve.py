"""The program as a user runs it: start, reload, stop, bad use, and going on after it was killed."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from tests.deadline import wait_for
from tests.live.daemon import Daemon
from tests.recorded import log_lines, recording
from vllm_length_exporter.recording import Player
from vllm_length_exporter.standin import StandIn

PROGRAM = [sys.executable, "-m", "vllm_length_exporter"]
REFUSALS = 7  # in the log of the recorded 0.16.0 server under pressure


class Exporter(Daemon):
    """`serve`, polling often."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        often = ("--poll-interval", "500ms", "--window", "60s")
        super().__init__(folder / "exporter.log", *often, *arguments)

    def get(self, path: str) -> requests.Response:
        return requests.get(self.base_url + path, timeout=5)

    def wait_ready(self) -> None:
        self.wait_until(lambda: self.get("/-/ready").ok, seconds=20, what="ready")


@pytest.fixture
def standin(tmp_path: Path) -> Iterator[StandIn]:
    server = StandIn(Player(recording("0.32.0-pressure"), loop=True, start=20.0), log=tmp_path / "vllm.log")
    server.start()
    yield server
    server.stop()


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*PROGRAM, *arguments], capture_output=True, text=True, timeout=30, check=False)


def test_serve_from_flags_to_a_prompt_stop(standin: StandIn, tmp_path: Path) -> None:
    with Exporter(
        tmp_path, "--server", standin.url, "--log", str(tmp_path / "vllm.log"), "--name", "a"
    ) as exporter:
        exporter.wait_ready()
        page = exporter.scrape()
        assert page.get("vllm_length_max_model_len_tokens", server="a") == 8192
        assert page.get("vllm_length_kv_cache_capacity_tokens", server="a") == 10240
        assert page.get("vllm_length_server_state", server="a", state="up") == 1
        assert exporter.get("/-/healthy").ok
        (server,) = exporter.get("/api/v1/status").json()["servers"]
        assert server["limits"]["effective"] == {"value": 8192, "source": "models_api"}
        assert "8,192" in exporter.get("/").text or "8192" in exporter.get("/").text
        begun = time.monotonic()
        exporter.terminate()
        assert time.monotonic() - begun < 3
    assert "Traceback" not in exporter.output()


def test_a_reload_takes_a_good_configuration_and_keeps_the_old_one_on_a_bad(
    standin: StandIn, tmp_path: Path
) -> None:
    config = tmp_path / "exporter.yml"
    config.write_text(f"servers:\n  - {{name: a, url: {standin.url}}}\n")
    with Exporter(tmp_path, "--config", str(config)) as exporter:
        exporter.wait_ready()
        config.write_text(f"servers:\n  - {{name: a, url: {standin.url}, tiemout: 3s}}\n")
        exporter.signal(signal.SIGHUP)
        exporter.wait_until(
            lambda: exporter.scrape().get("vllm_length_exporter_config_last_reload_successful") == 0,
            seconds=10,
            what="the bad configuration is noticed",
        )
        assert exporter.scrape().get("vllm_length_max_model_len_tokens", server="a") == 8192
        (line,) = [line for line in exporter.output().splitlines() if "reload failed" in line]
        assert "exporter.yml:2: servers[0].tiemout" in line
        config.write_text(
            f"servers:\n  - {{name: a, url: {standin.url}}}\n  - {{name: b, url: {standin.url}}}\n"
        )
        exporter.signal(signal.SIGHUP)
        exporter.wait_until(
            lambda: exporter.scrape().get("vllm_length_max_model_len_tokens", server="b") == 8192,
            seconds=10,
            what="the second server is watched",
        )
        assert exporter.scrape().get("vllm_length_exporter_config_last_reload_successful") == 1
        config.write_text(f"servers:\n  - {{name: b, url: {standin.url}}}\n")
        exporter.signal(signal.SIGHUP)
        exporter.wait_until(
            lambda: exporter.scrape().get("vllm_length_source_up", server="a", source="metrics") is None,
            seconds=10,
            what="the first server is let go",
        )
        assert exporter.scrape().get("vllm_length_max_model_len_tokens", server="b") == 8192


def test_reload_over_http_needs_its_flag(standin: StandIn, tmp_path: Path) -> None:
    with Exporter(tmp_path, "--server", standin.url) as exporter:
        exporter.wait_ready()
        assert requests.post(exporter.base_url + "/-/reload", timeout=5).status_code == 403
    with Exporter(tmp_path, "--server", standin.url, "--web-enable-lifecycle") as exporter:
        exporter.wait_ready()
        assert requests.post(exporter.base_url + "/-/reload", timeout=5).status_code == 200


def test_killed_and_started_again_it_counts_each_refusal_once(tmp_path: Path) -> None:
    log, state = tmp_path / "vllm.log", tmp_path / "state"
    state.mkdir()
    whole = log_lines("0.16.0-pressure")
    lines = whole[: next(i for i, line in enumerate(whole) if "Shutting down" in line)]
    log.write_text("\n".join(lines[:61]) + "\n")  # the start: read for state
    server = StandIn(Player(recording("0.16.0-pressure"), loop=True, start=40.0))
    server.start()

    def exporter() -> Exporter:
        return Exporter(
            tmp_path, "--server", server.url, "--log", str(log), "--name", "a", "--state-dir", str(state)
        )  # fmt: skip

    def refused(one: Exporter) -> float:
        rows = list(one.scrape().all("vllm_length_rejections_total", server="a"))
        return sum(row.value for row in rows) if rows else -1.0

    try:
        with exporter() as first:
            first.wait_ready()
            told = [i for i, line in enumerate(lines) if "VLLMValidationError: " in line]
            middle = told[1] - 5  # within the traceback of the second refusal
            with log.open("a") as out:
                out.write("\n".join(lines[61:middle]) + "\n")
            first.wait_until(lambda: refused(first) >= 1, seconds=10, what="the first refusal is counted")
            wait_for(lambda: (state / "resume.json").exists(), seconds=15, what="the position is saved")
            first.kill()
        with log.open("a") as out:  # while nobody looks
            out.write("\n".join(lines[middle:]) + "\n")
        with exporter() as second:
            second.wait_ready()
            second.wait_until(
                lambda: refused(second) >= REFUSALS, seconds=10, what="all refusals are counted"
            )
            time.sleep(1.0)  # a doubled one would come with the next reads
            assert refused(second) == REFUSALS
    finally:
        server.stop()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["serve"], "give either --server URL or --config FILE"),
        (["serve", "--server", "http://a:1", "--config", "x"], "give either --server URL or --config FILE"),
        (["serve", "--server", "ftp://a:1"], "--server"),
        (["serve", "--server", "http://a:1", "--poll-interval", "often"], "--poll-interval"),
        (["serve", "--server", "http://a:1", "--listen-address", "nowhere"], "--listen-address"),
        (["serve", "--server", "http://a:1", "--ca-file", "/nowhere"], "--ca-file"),
        (["serve", "--server", "https://a:1", "--ca-file", "/nowhere"], "/nowhere"),
        (["serve", "--server", "http://a:1", "--state-dir", "/nowhere"], "/nowhere"),
        (["serve", "--config", "/nowhere.yml"], "/nowhere.yml: cannot be read"),
        (["serve", "--config", "/dev/null"], "/dev/null: is empty"),
        (["replay", "nothing-of-the-kind"], "packaged recordings: failed-start, pressure"),
        (["serve", "--no-such-flag"], "No such option"),
    ],
)
def test_bad_use_is_one_line_and_exit_code_2(arguments: list[str], says: str) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_a_port_that_is_taken_is_one_line(standin: StandIn) -> None:
    taken = f"127.0.0.1:{standin.port}"
    done = run("serve", "--server", standin.url, "--listen-address", taken)
    assert done.returncode == 2
    assert taken in done.stderr
    assert done.stderr.count("\n") == 1


def test_check_config(tmp_path: Path) -> None:
    config = tmp_path / "exporter.yml"
    config.write_text("servers:\n  - url: http://vllm-a:8000\n")
    good = run("serve", "--config", str(config), "--check-config")
    assert (good.returncode, good.stdout) == (0, "the configuration is good: 1 server(s)\n")
    config.write_text("servers:\n  - url: http://vllm-a:8000\n  - url: http://vllm-a:8000\n")
    bad = run("serve", "--config", str(config), "--check-config")
    assert bad.returncode == 2
    assert bad.stderr.count("\n") == 1
    assert f"{config}:3" in bad.stderr


def test_flags_from_the_environment(
    standin: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLLM_LENGTH_SERVER", standin.url)
    monkeypatch.setenv("VLLM_LENGTH_NAME", "from-the-environment")
    with Exporter(tmp_path) as exporter:
        exporter.wait_ready()
        assert (
            exporter.scrape().get("vllm_length_max_model_len_tokens", server="from-the-environment") == 8192
        )


@pytest.mark.parametrize("command", ["", "serve", "doctor", "replay", "demo"])
def test_help_reads_well(command: str) -> None:
    done = run(*([command] if command else []), "--help")
    assert done.returncode == 0
    assert done.stdout.startswith("Usage: vllm-length-exporter")
    assert max(map(len, done.stdout.splitlines())) <= 100


def test_version() -> None:
    assert run("--version").stdout.startswith("vllm-length-exporter, version 0.")
