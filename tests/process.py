"""Programs that tests start: each in a process group of its own, its output in a file, always ended."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from tests.deadline import DeadlineError, wait_for

T = TypeVar("T")


def free_port() -> int:
    """A TCP port of 127.0.0.1 that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


class Process:
    """One program. `with Process(...)` starts it and ends it, with all of its children, when the block ends."""

    def __init__(
        self,
        command: Sequence[str | Path],
        log: Path,
        *,
        environment: Mapping[str, str] | None = None,
        folder: Path | None = None,
        stop_within: float = 10,
    ) -> None:
        self.command = [str(part) for part in command]
        self.log = log
        self._environment = {**os.environ, **(environment or {})}
        self._folder = folder
        self._stop_within = stop_within
        self._popen: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the program; what it says is appended to the log, as a supervisor would."""
        if self.running:
            raise RuntimeError(f"already running: {self.command[0]}")
        with self.log.open("ab") as output:
            self._popen = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=self._environment,
                cwd=self._folder,
                start_new_session=True,
            )

    @property
    def running(self) -> bool:
        return self._popen is not None and self._popen.poll() is None

    @property
    def pid(self) -> int:
        if self._popen is None:
            raise RuntimeError(f"not started: {self.command[0]}")
        return self._popen.pid

    def output(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def wait_until(
        self,
        condition: Callable[[], T | None],
        *,
        seconds: float,
        what: str,
        every: float = 0.05,
        ignoring: tuple[type[Exception], ...] = (),
    ) -> T:
        """`deadline.wait_for`, given up at once when the program ends; the end of its output is in the error.

        Raises:
            DeadlineError: time ran out, or the program is gone.
        """

        def alive_and_condition() -> T | None:
            if not self.running:
                raise DeadlineError(f"{self.command[0]} ended with {self.exit_code()} while waiting: {what}")
            return condition()

        try:
            return wait_for(alive_and_condition, seconds=seconds, what=what, every=every, ignoring=ignoring)
        except DeadlineError as error:
            error.add_note("\n".join(["its last output:", *self.output().splitlines()[-40:]]))
            raise

    def signal(self, number: signal.Signals) -> None:
        """To the program alone; its children hear of it from the program."""
        os.kill(self.pid, number)

    def exit_code(self, seconds: float = 10) -> int:
        """Wait for the program to end by itself."""
        if self._popen is None:
            raise RuntimeError(f"not started: {self.command[0]}")
        return self._popen.wait(seconds)

    def terminate(self) -> int:
        """Ask the program to stop (SIGTERM) and wait; the group is killed when it does not. Returns the exit code."""
        if self.running:
            self.signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.exit_code(self._stop_within)
        return self.kill()

    def kill(self) -> int:
        """SIGKILL the whole group, children that outlived the program too. Returns the program's exit code."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        return self.exit_code()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._popen is not None:
            self.terminate()
