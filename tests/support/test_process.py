"""The tests' own footing: a program is watched, ended with its children, and a wait names what it saw."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from tests.deadline import DeadlineError, wait_for
from tests.process import Process

CHILD = "import os, time; print(os.getpid(), flush=True); time.sleep(60)"
PARENT = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {CHILD!r}])"


def alive(pid: int) -> bool:
    """A zombie, whose parent has not asked for it yet, is dead."""
    status = Path(f"/proc/{pid}/status")
    return status.exists() and "\nState:\tZ" not in status.read_text()


def test_wait_returns_the_first_true_value() -> None:
    values = iter([0, None, 7])
    assert wait_for(lambda: next(values), seconds=5, what="a value", every=0) == 7


def test_wait_names_the_condition_and_what_it_saw_last() -> None:
    with pytest.raises(DeadlineError, match=r"not within 0 s: three engines \(last seen: 0\)"):
        wait_for(lambda: 0, seconds=0, what="three engines")


def test_wait_ignores_only_what_it_was_told_to() -> None:
    with pytest.raises(DeadlineError, match="last seen: ConnectionRefusedError"):
        wait_for(_refuse, seconds=0, what="an answer", ignoring=(ConnectionRefusedError,))
    with pytest.raises(ConnectionRefusedError):
        wait_for(_refuse, seconds=0, what="an answer")


def _refuse() -> bool:
    raise ConnectionRefusedError


@pytest.mark.parametrize("end", ["terminate", "kill", "block"])
def test_children_end_with_the_program(tmp_path: Path, end: str) -> None:
    with Process([sys.executable, "-c", PARENT], tmp_path / "log") as process:
        child = int(process.wait_until(process.output, seconds=10, what="the child's pid"))
        assert alive(child)
        if end == "terminate":
            assert process.terminate() == -signal.SIGTERM
        elif end == "kill":
            assert process.kill() == -signal.SIGKILL
    wait_for(lambda: not alive(child), seconds=5, what="the child is gone")
    assert not process.running


def test_a_wait_ends_with_the_program_and_shows_its_last_words(tmp_path: Path) -> None:
    words = "import sys; print('no room'); sys.exit(3)"
    expected = pytest.raises(DeadlineError, match="ended with 3 while waiting: it serves")
    with Process([sys.executable, "-c", words], tmp_path / "log") as process, expected as caught:
        process.wait_until(lambda: False, seconds=10, what="it serves")
    assert "no room" in caught.value.__notes__[0]


def test_the_log_goes_on_over_a_restart(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "import os; print(os.environ['WORD'])"]
    process = Process(command, tmp_path / "log", environment={"WORD": "again"})
    for _ in range(2):
        process.start()
        assert process.exit_code() == 0
    assert process.output() == "again\nagain\n"
    assert "WORD" not in os.environ
