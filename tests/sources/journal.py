"""A real journal of a test's own, written by systemd-journal-remote and read by journalctl."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

UNIT = "vllm.service"
SECOND = 1_000_000  # microseconds, as the journal counts
EXITED = "98e322203f7a4ed290d09fe03c09fe15"
OUT_OF_MEMORY = "fe6faa94e7774663a0da52717891d8ef"
FAILED = "d9b373ed55a64feb8242e02dbe79a49c"
STARTED = "39f53479d3a045ac8e11786248231fbf"


def now() -> int:
    return time.time_ns() // 1000 + SECOND


class Journal:
    """Entries go to one file after another of a directory. Each has a boot, a unit and its invocation."""

    def __init__(self, directory: Path, remote: Path, environment: dict[str, str]) -> None:
        self.directory = directory
        directory.mkdir()
        self._remote, self._environment = remote, environment
        self._files = 0
        self._written = 0
        self.boot = "a" * 32
        self.invocation = "1" * 32
        self._process: subprocess.Popen[bytes] | None = None

    def line(self, at: int, *messages: str | bytes, unit: str = UNIT, **fields: str) -> None:
        """One entry of a process of the unit for each message."""
        own = {"_SYSTEMD_UNIT": unit, "_SYSTEMD_INVOCATION_ID": self.invocation, "_PID": "77", **fields}
        self.write(self.entry(at, message, own) for message in messages)

    def manager(self, at: int, message: str, message_id: str, pid: str = "1", **fields: str) -> None:
        """What systemd itself says of the unit."""
        own = {
            "_SYSTEMD_UNIT": "init.scope",
            "_PID": pid,
            "_UID": "0",
            "UNIT": UNIT,
            "MESSAGE_ID": message_id,
        }
        self.write([self.entry(at, message, {**own, **fields})])

    def die(self, at: int, code: str, status: str, result: str = "exit-code") -> None:
        words = f"{UNIT}: Main process exited, code={code}, status={status}"
        self.manager(at, words, EXITED, EXIT_CODE=code, EXIT_STATUS=status, COMMAND="ExecStart")
        self.manager(at, f"{UNIT}: Failed with result '{result}'.", FAILED, UNIT_RESULT=result)

    def entry(self, at: int, message: str | bytes, fields: dict[str, str]) -> bytes:
        """In the journal's export format."""
        self._written += 1
        head = {
            "__REALTIME_TIMESTAMP": str(at),
            "__MONOTONIC_TIMESTAMP": str(self._written),
            "_BOOT_ID": self.boot,
        }
        lines = b"".join(f"{name}={value}\n".encode() for name, value in {**head, **fields}.items())
        data = message.encode() if isinstance(message, str) else message
        return lines + b"MESSAGE\n" + len(data).to_bytes(8, "little") + data + b"\n\n"

    def write(self, entries: Iterator[bytes] | list[bytes]) -> None:
        pipe = self._pipe()
        for entry in entries:
            pipe.write(entry)
        pipe.flush()

    def rotate(self) -> None:
        """End the present file; later entries go to another one."""
        if self._process is not None:
            _, said = self._process.communicate(timeout=60)
            assert self._process.returncode == 0, said.decode()
        self._process = None

    def _pipe(self) -> IO[bytes]:
        if self._process is None:
            self._files += 1
            file = self.directory / f"test-{self._files}.journal"
            self._process = subprocess.Popen(
                [str(self._remote), f"--output={file}", "--split-mode=none", "-"],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                env=self._environment,
            )
        assert self._process.stdin is not None
        return self._process.stdin
