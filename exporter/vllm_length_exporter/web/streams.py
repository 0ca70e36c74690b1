"""cheroot's connections, silent about a client that hangs up before it has read its answer."""

from __future__ import annotations

import contextlib
import io
import socket
from collections.abc import Callable
from typing import Any

from cheroot.makefile import StreamReader, StreamWriter
from cheroot.server import HTTPConnection, HTTPServer


class Writer(StreamWriter):
    """What is left to be written when the client is gone is lost. Python 3.13 prints a traceback about that."""

    def close(self) -> None:
        with contextlib.suppress(OSError):
            super().close()


def make_file(sock: socket.socket, mode: str = "r", bufsize: int = io.DEFAULT_BUFFER_SIZE) -> Any:
    """A file over a socket, for reading or writing."""
    return (StreamReader if "r" in mode else Writer)(sock, mode, bufsize)


class QuietConnection(HTTPConnection):
    """A connection with such files, whatever else was asked for."""

    def __init__(
        self, server: HTTPServer, sock: socket.socket, makefile: Callable[..., Any] = make_file
    ) -> None:
        del makefile
        super().__init__(server, sock, make_file)
