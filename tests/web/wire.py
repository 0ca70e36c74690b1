"""Bytes to and from a port, for what no HTTP client would send."""

from __future__ import annotations

import contextlib
import socket

from vllm_length_exporter.web.listener import Listener


def connected(listener: Listener, timeout: float = 10.0) -> socket.socket:
    return socket.create_connection((listener.address.host, listener.address.port), timeout)


def rest(sock: socket.socket, *, after_our_end: bool = False) -> bytes:
    """All that still comes until the other side closes; `after_our_end`: once it was told that we send no more."""
    if after_our_end:
        with contextlib.suppress(OSError):  # it may have closed already
            sock.shutdown(socket.SHUT_WR)
    received = b""
    try:
        while data := sock.recv(65536):
            received += data
    except ConnectionResetError:
        pass
    return received


def exchange(listener: Listener, request: bytes) -> tuple[int, bytes]:
    """Status and the whole answer to a request; the connection is closed."""
    with connected(listener) as sock:
        sock.sendall(request)
        answer = rest(sock, after_our_end=True)
    return int(answer.split(b" ", 2)[1]), answer


def get(path: str, *headers: str) -> bytes:
    return "\r\n".join([f"GET {path} HTTP/1.1", "Host: x", "Connection: close", *headers, "", ""]).encode()
