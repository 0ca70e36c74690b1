"""An HTTP server on loopback that misbehaves as told, one handler a connection."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

Behaviour = Callable[[socket.socket, "Faulty"], None]


@dataclass
class Faulty:
    """What the server saw. `stop` is set when the test ends, so that no handler outlives it."""

    port: int
    scheme: str = "http"
    requests: list[str] = field(default_factory=list)
    connections: int = 0
    stop: threading.Event = field(default_factory=threading.Event)

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}"


def read_request(connection: socket.socket, faulty: Faulty) -> bool:
    """Take one request; False when the client has gone."""
    text = b""
    while b"\r\n\r\n" not in text:
        data = connection.recv(65_536)
        if not data:
            return False
        text += data
    faulty.requests.append(text.decode("latin-1"))
    return True


def answer(body: bytes, status: str = "200 OK", headers: str = "Content-Type: text/plain") -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n{headers}\r\n\r\n".encode() + body


def always(data: bytes) -> Behaviour:
    """Answer every request of a connection with these bytes."""

    def behave(connection: socket.socket, faulty: Faulty) -> None:
        while read_request(connection, faulty):
            connection.sendall(data)

    return behave


def once(data: bytes) -> Behaviour:
    """Answer the first request with these bytes, and close."""

    def behave(connection: socket.socket, faulty: Faulty) -> None:
        if read_request(connection, faulty):
            connection.sendall(data)

    return behave


def drip(data: bytes, seconds: float = 0.02) -> Behaviour:
    """Send byte after byte, each well within any timeout of a single read."""

    def behave(connection: socket.socket, faulty: Faulty) -> None:
        if read_request(connection, faulty):
            for byte in data:
                connection.sendall(bytes([byte]))
                if faulty.stop.wait(seconds):
                    return

    return behave


def hang(connection: socket.socket, faulty: Faulty) -> None:
    """Accept, and say nothing."""
    faulty.stop.wait()


@contextmanager
def faulty_server(behaviour: Behaviour, tls: ssl.SSLContext | None = None) -> Iterator[Faulty]:
    listener = socket.create_server(("127.0.0.1", 0))
    faulty = Faulty(listener.getsockname()[1], "https" if tls else "http")
    threads: list[threading.Thread] = []
    connections: list[socket.socket] = []

    def handle(connection: socket.socket) -> None:
        with suppress(OSError), connection:
            wrapped = tls.wrap_socket(connection, server_side=True) if tls else connection
            connections.append(wrapped)
            with wrapped:
                behaviour(wrapped, faulty)

    def accept() -> None:
        while not faulty.stop.is_set():
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            faulty.connections += 1
            connections.append(connection)
            thread = threading.Thread(target=handle, args=(connection,))
            threads.append(thread)
            thread.start()

    acceptor = threading.Thread(target=accept)
    acceptor.start()
    try:
        yield faulty
    finally:
        faulty.stop.set()
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        for connection in connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        acceptor.join(10)
        for thread in threads:
            thread.join(10)
        assert not acceptor.is_alive()
        assert not any(thread.is_alive() for thread in threads)
