"""Why a request got no usable answer, found below what requests and urllib3 wrap it in."""

from __future__ import annotations

import http.client
import socket
import ssl
from collections.abc import Iterator
from enum import StrEnum

import requests
import urllib3.exceptions


class FetchFailure(StrEnum):
    """Why there is no answer."""

    REFUSED = "refused"  # nothing listens there
    UNREACHABLE = "unreachable"  # no such host, or no way to it
    TIMEOUT = "timeout"  # not done at the deadline
    STATUS = "status"  # an answer other than 200
    TOO_LARGE = "too_large"
    TLS = "tls"
    REDIRECT = "redirect"
    CUT = "cut"  # the connection ended before the answer did
    PROTOCOL = "protocol"  # not HTTP, or an encoding that was not asked for
    CREDENTIALS = "credentials"  # the bearer token cannot be read


class FetchError(Exception):
    """A GET without a usable answer; the message is one line with the URL, and never a secret."""

    def __init__(self, kind: FetchFailure, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.kind = kind
        self.status = status


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error and all that it came from, however requests and urllib3 packed it."""
    seen: list[BaseException] = []
    waiting: list[object] = [error]
    while waiting:
        found = waiting.pop(0)
        if not isinstance(found, BaseException) or found in seen:
            continue
        seen.append(found)
        waiting += [*found.args, getattr(found, "reason", None), found.__cause__, found.__context__]
        yield found


def closed(error: Exception) -> bool:
    """Whether the other side closed the connection."""
    return any(isinstance(part, ConnectionError | http.client.RemoteDisconnected) for part in _chain(error))


def diagnosis(error: Exception) -> tuple[FetchFailure, str]:
    """What went wrong at the bottom, in the words for a user."""
    chain = list(_chain(error))

    def found(*kinds: type[BaseException]) -> BaseException | None:
        return next((part for part in chain if isinstance(part, kinds)), None)

    if found(TimeoutError):
        return FetchFailure.TIMEOUT, ""
    if found(ConnectionRefusedError):
        return FetchFailure.REFUSED, "connection refused: nothing listens there"
    if found(http.client.RemoteDisconnected):
        return FetchFailure.CUT, "the connection was closed without an answer"
    if found(ssl.SSLEOFError, ConnectionError, http.client.IncompleteRead, urllib3.exceptions.IncompleteRead):
        return FetchFailure.CUT, "the connection ended in the middle of the answer"
    if name := found(socket.gaierror):
        return FetchFailure.UNREACHABLE, f"host not found ({name.args[-1]})"
    if tls := found(ssl.SSLError):
        said = getattr(tls, "verify_message", "") or getattr(tls, "reason", "") or "handshake failed"
        return FetchFailure.TLS, f"TLS: {said}"
    bottom = [
        part
        for part in chain
        if isinstance(part, OSError) and not isinstance(part, requests.RequestException)
    ]
    if bottom and bottom[-1].errno is not None:
        return FetchFailure.UNREACHABLE, str(bottom[-1].strerror)
    if bottom:  # requests could not find a certificate file
        return FetchFailure.TLS, "TLS: a certificate file cannot be read"
    return FetchFailure.PROTOCOL, "the answer is not HTTP"
