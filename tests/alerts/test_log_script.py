"""vLLM's log in a file that outlives it: exit codes, signals and last words, with a stand-in for the command `vllm`."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.deadline import wait_for
from tests.process import Process
from vllm_length_exporter.mixin.kubernetes import LOG_SCRIPT

CRASH = 'for i in $(seq 3000); do echo "line $i"; done; echo "ValueError: the last words" >&2; exit 42'
SERVE = "trap 'echo \"down in order\"; exit 7' TERM\necho serving\nwhile :; do sleep 0.05; done"
LEAVES_A_WORKER = "sleep 60 &\necho gone; exit 3"
ARGUMENTS = 'echo "$# $*"; exit 0'


def script(folder: Path, vllm: str, *arguments: str, **environment: str) -> Process:
    """The script with `vllm` on PATH being what is given."""
    program = folder / "bin" / "vllm"
    program.parent.mkdir(exist_ok=True)
    program.write_text(f"#!/usr/bin/env bash\n{vllm}\n", encoding="utf-8")
    program.chmod(0o755)
    path = f"{program.parent}:{os.environ['PATH']}"
    return Process(
        ["bash", LOG_SCRIPT, *arguments],
        folder / "console.log",
        environment={"PATH": path, "LOG_FILE": str(folder / "vllm.log"), **environment},
    )


def test_a_crash_keeps_its_code_and_its_last_words(tmp_path: Path) -> None:
    with script(tmp_path, CRASH) as running:
        assert running.exit_code(30) == 42
    log = (tmp_path / "vllm.log").read_text(encoding="utf-8")
    assert len(log.splitlines()) == 3001
    assert log.endswith("ValueError: the last words\n")
    assert running.output() == log, "the container's own output is the same"


def test_a_signal_reaches_vllm_and_its_code_is_the_containers(tmp_path: Path) -> None:
    with script(tmp_path, SERVE) as running:
        log = tmp_path / "vllm.log"
        running.wait_until(
            lambda: log.exists() and "serving" in log.read_text(), seconds=10, what="vLLM serves"
        )
        running.signal(signal.SIGTERM)
        assert running.exit_code(10) == 7
    assert log.read_text(encoding="utf-8") == "serving\ndown in order\n"


def test_a_killed_vllm_is_137(tmp_path: Path) -> None:
    with script(tmp_path, "echo begun; kill -KILL $$") as running:
        assert running.exit_code(10) == 128 + signal.SIGKILL
    assert (tmp_path / "vllm.log").read_text(encoding="utf-8").startswith("begun\n")


def test_a_worker_that_is_left_behind_does_not_keep_the_container(tmp_path: Path) -> None:
    with script(tmp_path, LEAVES_A_WORKER) as running:
        assert running.exit_code(10) == 3


def test_arguments_are_handed_on_as_they_are(tmp_path: Path) -> None:
    with script(tmp_path, ARGUMENTS, "a model", "--hf-overrides", '{"a": 1}') as running:
        assert running.exit_code(10) == 0
    assert running.output() == '4 serve a model --hf-overrides {"a": 1}\n'


def test_one_start_follows_another_and_a_large_log_is_put_aside(tmp_path: Path) -> None:
    for _ in range(2):
        with script(tmp_path, "echo start") as running:
            running.exit_code(10)
    assert (tmp_path / "vllm.log").read_text(encoding="utf-8") == "start\nstart\n"
    with script(tmp_path, "echo start", LOG_MAX_BYTES="10") as running:
        running.exit_code(10)
    assert (tmp_path / "vllm.log").read_text(encoding="utf-8") == "start\n"
    assert (tmp_path / "vllm.log.1").read_text(encoding="utf-8") == "start\nstart\n"


def test_without_a_file_to_write_to_it_does_not_start(tmp_path: Path) -> None:
    with script(tmp_path, ARGUMENTS, LOG_FILE="") as running:
        assert running.exit_code(10) != 0
    assert "set LOG_FILE" in running.output()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_other_signals_end_vllm_in_order_too(number: signal.Signals, tmp_path: Path) -> None:
    with script(tmp_path, SERVE) as running:
        log = tmp_path / "vllm.log"
        wait_for(lambda: log.exists() and "serving" in log.read_text(), seconds=10, what="vLLM serves")
        running.signal(number)
        assert running.exit_code(10) == 7
