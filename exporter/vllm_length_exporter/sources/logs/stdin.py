"""A log that comes through a pipe: standard input, or any other descriptor."""

from __future__ import annotations

import os
import select

from vllm_length_exporter.sources.logs.assembly import Assembler
from vllm_length_exporter.sources.logs.lines import Batch, Line, LogError

CHUNK = 65_536  # bytes a read


class StdinLog:
    """Reads what has come, and never waits for more.

    Every line counts: it comes after the exporter's start. There is no position, as a pipe is read once.
    The descriptor stays as it is: non-blocking mode would be shared with the terminal and the writer.
    """

    def __init__(self, descriptor: int = 0) -> None:
        self._descriptor = descriptor
        self._assembler = Assembler()
        self._ended = False

    def read(self) -> Batch:
        """The lines that have come, at most a chunk; at the end of input, once, a batch that says so.

        Raises:
            LogError: the input ended earlier, or cannot be read.
        """
        if self._ended:
            raise LogError("log -: standard input has ended; start the exporter anew to read another log")
        lines: list[Line] = []
        size = 0
        try:
            while size < CHUNK and self._ready():
                data = os.read(self._descriptor, CHUNK - size)
                if not data:
                    self._ended = True
                    lines += map(Line, self._assembler.finish(sure=True))
                    return Batch(tuple(lines), ended="end of input")
                size += len(data)
                lines += map(Line, self._assembler.feed(data))
        except OSError as error:
            raise LogError(f"log -: {error.strerror}") from None
        return Batch(tuple(lines), more=size >= CHUNK)

    def close(self) -> None:
        """Leave the descriptor to its owner."""
        self._ended = True

    def _ready(self) -> bool:
        poll = select.poll()
        poll.register(self._descriptor, select.POLLIN)
        return bool(poll.poll(0))
