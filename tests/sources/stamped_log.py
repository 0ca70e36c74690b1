"""What Docker and a kubelet keep of a container's output, and an HTTP server that gives it away bit by bit."""

from __future__ import annotations

import socket
import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

SECOND = 1_000_000_000


@lru_cache
def stamp(nanoseconds: int) -> bytes:
    moment = datetime.fromtimestamp(nanoseconds // SECOND, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{nanoseconds % SECOND:09d}Z".encode()


@dataclass(frozen=True)
class Message:
    nanoseconds: int
    text: bytes
    stream: int = 1


@dataclass
class StampedLog:
    """Messages in the order of their writing; `finished` when no more will come."""

    messages: list[Message] = field(default_factory=list)
    finished: bool = False
    changed: threading.Condition = field(default_factory=threading.Condition)

    def write(self, nanoseconds: int, *texts: str, stream: int = 1) -> None:
        with self.changed:
            self.messages += [Message(nanoseconds, text.encode(), stream) for text in texts]
            self.changed.notify_all()

    def finish(self) -> None:
        with self.changed:
            self.finished = True
            self.changed.notify_all()

    def since(self, nanoseconds: int, *, follow: bool, stop: threading.Event) -> Iterator[list[Message]]:
        """Messages that are not older, as Docker and the kubelet filter them: one by one, in order."""
        at = 0
        while True:
            with self.changed:
                new, at = self.messages[at : at + 1000], min(at + 1000, len(self.messages))
                if not new:
                    if self.finished or not follow or stop.is_set():
                        return
                    self.changed.wait(0.02)
                    continue
            yield [message for message in new if message.nanoseconds >= nanoseconds]


@dataclass
class Server:
    """A running stand-in. Each of `cuts` is the number of bytes after which one log stream breaks."""

    stop: threading.Event = field(default_factory=threading.Event)
    requests: list[str] = field(default_factory=list)
    cuts: list[int] = field(default_factory=list)
    port: int = 0


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    served: Server
    answer: Callable[[Handler], None]

    def do_GET(self) -> None:
        self.served.requests.append(self.path)
        with suppress(ConnectionError):
            type(self).answer(self)

    def whole(self, status: int, body: bytes, content_type: str = "application/json") -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def pieces(self, pieces: Iterator[bytes]) -> None:
        """A body in chunks, cut where the test says so."""
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        left = self.served.cuts.pop(0) if self.served.cuts else None
        for piece in pieces:
            data = piece
            if not data:
                continue
            if left is not None and len(data) > left:
                self.wfile.write(b"%x\r\n" % len(data) + data[:left])
                self.wfile.flush()
                self.connection.shutdown(socket.SHUT_RDWR)
                self.close_connection = True
                return
            if left is not None:
                left -= len(data)
            self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))
            self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")

    def address_string(self) -> str:
        return "client"

    def log_message(self, *arguments: Any) -> None:
        pass


class _UnixServer(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = False
    block_on_close = True


class _TcpServer(ThreadingHTTPServer):
    daemon_threads = False
    block_on_close = True


@contextmanager
def serve(answer: Callable[[Handler], None], at: Path | None = None) -> Iterator[Server]:
    """Serve on a unix socket, or on a port of loopback."""
    served = Server()
    connections: list[socket.socket] = []

    class Bound(Handler):
        def setup(self) -> None:
            connections.append(self.request)
            super().setup()

    Bound.served, Bound.answer = served, answer
    server: socketserver.BaseServer
    if at is None:
        server = _TcpServer(("127.0.0.1", 0), Bound)
        served.port = server.server_port
    else:
        server = _UnixServer(str(at), Bound)
    thread = threading.Thread(target=lambda: server.serve_forever(0.02))
    thread.start()
    try:
        yield served
    finally:
        served.stop.set()
        server.shutdown()
        for connection in connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        server.server_close()
        thread.join(10)
