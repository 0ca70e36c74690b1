"""A log of a server under load: refusals that are counted, storms of all else, rotation."""

from __future__ import annotations

import random
import threading
from pathlib import Path

from tests.recorded import log_lines

RECORDING = "0.16.0-pressure"
KEPT = 30  # rotated files


class ServerLog:
    """Appends to `path`; `refusals` is how many were begun, `complete` how many are whole in the file."""

    def __init__(self, path: Path, seed: int) -> None:
        self.path = path
        lines = log_lines(RECORDING)
        first = next(i for i, line in enumerate(lines) if "Error in preprocessing" in line)
        last = next(i for i, line in enumerate(lines) if "VLLMValidationError: " in line)
        self._refusal = lines[first : last + 1]
        self._access = [line for line in lines if '" 200 OK' in line][:8]
        self._random = random.Random(seed)
        self._lock = threading.Lock()
        self.refusals = self.complete = 0
        self._out = path.open("ab", buffering=0)
        start = next(i for i, line in enumerate(lines) if "POST" in line)
        self._write("".join(line + "\n" for line in lines[:start]).encode())

    def refuse(self, times: int = 1) -> None:
        """Refusals, written in pieces that end anywhere."""
        for _ in range(times):
            with self._lock:
                self.refusals += 1
                stamp = f"11-29 {self.refusals // 60 % 24:02}:{self.refusals % 60:02}:59"  # as time goes on
                data = "".join(
                    line.replace("11-29 14:56:59", stamp) + "\n" for line in self._refusal
                ).encode()
                while data:
                    size = self._random.randint(1, 4000)
                    self._write(data[:size])
                    data = data[size:]
                self.complete += 1

    def storm(self, lines: int) -> None:
        """Access lines, and what a client would write to be taken for vLLM."""
        forged = f"(APIServer pid=13655) INFO 11-29 14:57:00 [logger.py:1] prompt: {self._refusal[-1]!r}"
        with self._lock:
            for _ in range(lines // 1000):
                self._write(("\n".join([*self._access * 120, *[forged] * 40]) + "\n").encode())

    def rotate(self) -> None:
        """As logrotate with `create`: each earlier file moves up by one, and a new file begins."""
        with self._lock:
            for number in range(KEPT, 0, -1):
                earlier = self.path.with_name(f"{self.path.name}.{number}")
                if earlier.exists():
                    earlier.rename(self.path.with_name(f"{self.path.name}.{number + 1}"))
            self.path.with_name(f"{self.path.name}.{KEPT + 1}").unlink(missing_ok=True)
            self._out.close()
            self.path.rename(self.path.with_name(f"{self.path.name}.1"))
            self._out = self.path.open("ab", buffering=0)

    def hide(self, *, away: bool) -> None:
        """Put the file out of the way, as a lost mount does, or back; it is written to all the while."""
        hidden = self.path.with_name(f"hidden-{self.path.name}")
        with self._lock:
            if away:
                self.path.rename(hidden)
            else:
                hidden.rename(self.path)

    def close(self) -> None:
        self._out.close()

    def _write(self, data: bytes) -> None:
        self._out.write(data)
