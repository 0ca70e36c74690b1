"""One GET with everything a poll must guard against: hanging, dripping, huge, cut and unwanted answers."""

from __future__ import annotations

import http.client
import logging
import os
import re
import socket
import ssl
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from urllib.parse import urlsplit

import requests
import requests.utils
import urllib3.exceptions

from vllm_length_exporter.sources.deadline import Deadline, DeadlineAdapter

logging.getLogger("urllib3").setLevel(logging.ERROR)  # what it warns of is in the FetchError

CHUNK = 65_536  # bytes a read
GZIP = 16 + zlib.MAX_WBITS
CREDENTIALS = re.compile(r"(?<=//)[^/?#]*@")


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


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where and how to ask.

    `timeout` in seconds and `max_bytes` (of the body as sent, and again as unpacked) hold for one GET as a
    whole. The token comes from a file or an environment variable, and is read anew at each request, so that
    it may be rotated. Proxies of the environment are used only when asked for: a server beside the exporter
    must not be asked for through one.

    Raises:
        ValueError: the URL cannot be one, or settings contradict each other; one line.
    """

    url: str = field(repr=False)
    token_file: Path | None = None
    token_variable: str | None = None
    ca_file: Path | None = None
    client_cert: Path | None = None
    client_key: Path | None = None
    timeout: float = 5.0
    max_bytes: int = 32 * 1024 * 1024
    proxy_from_environment: bool = False

    def __post_init__(self) -> None:
        try:
            parts = urlsplit(self.url)
            sound = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        except ValueError:
            sound = None
        if not sound or parts.query or parts.fragment or re.search(r"\s", self.url):
            raise ValueError(
                f"{masked(self.url)!r} is no address; expected http://host:port or https://host:port"
            )
        if self.token_file is not None and self.token_variable is not None:
            raise ValueError(
                "a bearer token comes from a file or from an environment variable, not from both"
            )
        if self.client_key is not None and self.client_cert is None:
            raise ValueError("a client key needs its client certificate")
        if not self.timeout > 0 or self.max_bytes <= 0:
            raise ValueError("timeout and max_bytes must be more than 0")

    def address(self, path: str) -> str:
        """The URL of a path such as "/metrics", without a trailing slash."""
        return self.url.rstrip("/") + path.rstrip("/")


@dataclass(frozen=True, slots=True)
class Fetched:
    """A complete answer, unpacked."""

    status: int
    body: bytes
    content_type: str
    seconds: float


class HttpSource:
    """Asks one endpoint over one connection that is kept open; for one thread at a time."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self._deadline = Deadline()
        # The adapter alone keeps the connection; a Session would read a redirect's body without bound,
        # and take proxies, .netrc and certificates from the environment.
        self._adapter = DeadlineAdapter(self._deadline)
        self._prepared: dict[tuple[str, str], requests.PreparedRequest] = {}

    def get(self, path: str, accept: str) -> Fetched:
        """The answer to a GET of `path`, or its failure.

        Raises:
            FetchError: there is no complete answer with status 200.
        """
        url = self.endpoint.address(path)
        begin = time.monotonic()
        self._deadline.start(self.endpoint.timeout)
        request = self._request(url, accept)
        try:
            response = self._sent(request)
        except (requests.RequestException, urllib3.exceptions.HTTPError, OSError) as error:
            raise self._failure(url, error) from None
        try:
            body = self._body(url, response)
        except (urllib3.exceptions.HTTPError, OSError, http.client.HTTPException) as error:
            response.close()
            raise self._failure(url, error) from None
        except FetchError:
            response.close()  # with what is still to come
            raise
        content_type = response.headers.get("Content-Type", "")
        return Fetched(response.status_code, body, content_type, time.monotonic() - begin)

    def close(self) -> None:
        """Close the connection."""
        self._adapter.close()

    def _request(self, url: str, accept: str) -> requests.PreparedRequest:
        request = self._prepared.get((url, accept))
        if request is None:
            headers = {"Accept": accept, "Accept-Encoding": "gzip", "User-Agent": "vllm-length-exporter"}
            request = requests.Request("GET", url, headers=headers).prepare()
            self._prepared[url, accept] = request
        token = _token(self.endpoint)
        if token is not None:
            request.headers["Authorization"] = f"Bearer {token}"
        return request

    def _sent(self, request: requests.PreparedRequest) -> requests.Response:
        try:
            return self._send(request)
        except requests.ConnectionError as error:
            # A server may close a kept connection just as it is used again: once more, on a new one.
            if self._deadline.connected or self._deadline.passed or not _closed(error):
                raise
            return self._send(request)

    def _send(self, request: requests.PreparedRequest) -> requests.Response:
        endpoint = self.endpoint
        left = self._deadline.left()
        proxies: dict[str, str] = {}
        if endpoint.proxy_from_environment:
            proxies = requests.utils.get_environ_proxies(request.url or "")
        cert: str | tuple[str, str] | None = None
        if endpoint.client_cert is not None:
            cert = str(endpoint.client_cert)
            if endpoint.client_key is not None:
                cert = (cert, str(endpoint.client_key))
        return self._adapter.send(
            request,
            stream=True,
            timeout=(left, left),
            verify=True if endpoint.ca_file is None else str(endpoint.ca_file),
            cert=cert,
            proxies=proxies,
        )

    def _body(self, url: str, response: requests.Response) -> bytes:
        status, shown = response.status_code, masked(url)
        if 300 <= status < 400:
            target = masked(response.headers.get("Location", "an unnamed place"))[:200]
            reason = (
                f"answers {status}, a redirect to {target!r}, and none is followed; give the final address"
            )
            raise FetchError(FetchFailure.REDIRECT, f"{shown}: {reason}", status)
        if status != 200:
            raise FetchError(FetchFailure.STATUS, f"{shown}: answers {status}{_hint(status)}", status)
        length = response.headers.get("Content-Length", "")
        limit = self.endpoint.max_bytes
        if length.isdecimal() and (len(length) > 18 or int(length) > limit):
            raise _too_large(shown, limit)
        packed = bytearray()
        for chunk in iter(lambda: response.raw.read(CHUNK, decode_content=False), b""):
            packed += chunk
            if len(packed) > limit:
                raise _too_large(shown, limit)
        if not packed and not length and "Transfer-Encoding" not in response.headers:
            raise FetchError(FetchFailure.CUT, f"{shown}: the connection ended before the body")
        encoding = response.headers.get("Content-Encoding", "identity").strip().lower()
        if encoding == "identity":
            return bytes(packed)
        if encoding not in ("gzip", "x-gzip"):
            raise FetchError(
                FetchFailure.PROTOCOL,
                f"{shown}: answers in the encoding {encoding[:40]!r}, only gzip was offered",
            )
        return _unpacked(bytes(packed), limit, shown)

    def _failure(self, url: str, error: Exception) -> FetchError:
        kind, reason = _diagnosis(error)
        if kind is FetchFailure.TIMEOUT or self._deadline.passed:
            kind, reason = FetchFailure.TIMEOUT, f"no complete answer within {self.endpoint.timeout:g} s"
        if kind is FetchFailure.TLS:
            files = (self.endpoint.ca_file, self.endpoint.client_cert, self.endpoint.client_key)
            used = ", ".join(str(file) for file in files if file is not None)
            reason = (
                f"{reason} (with {used})" if used else f"{reason} (with the public certificate authorities)"
            )
        return FetchError(kind, f"{masked(url)}: {reason}")


def masked(url: str) -> str:
    """The URL as it may be shown: without user name and password."""
    return CREDENTIALS.sub("***@", url)


def _token(endpoint: Endpoint) -> str | None:
    if endpoint.token_file is not None:
        where = f"token file {endpoint.token_file}"
        try:
            token = endpoint.token_file.read_text(encoding="utf-8").strip()
        except OSError as error:
            raise FetchError(
                FetchFailure.CREDENTIALS, f"{masked(endpoint.url)}: {where}: {error.strerror}"
            ) from None
        except UnicodeDecodeError:
            token = ""
    elif endpoint.token_variable is not None:
        where = f"environment variable {endpoint.token_variable}"
        token = os.environ.get(endpoint.token_variable, "").strip()
    else:
        return None
    if not re.fullmatch(r"[!-~]+", token):
        reason = f"{where} holds no bearer token; expected one line of visible ASCII characters"
        raise FetchError(FetchFailure.CREDENTIALS, f"{masked(endpoint.url)}: {reason}")
    return token


def _hint(status: int) -> str:
    if status in (401, 403):
        return "; check the bearer token"
    if status == 404:
        return "; nothing is served at this path"
    return ""


def _too_large(shown: str, limit: int) -> FetchError:
    return FetchError(FetchFailure.TOO_LARGE, f"{shown}: the answer is larger than {limit} bytes")


def _unpacked(packed: bytes, limit: int, shown: str) -> bytes:
    """The gzip body, never more than `limit` bytes of it in memory."""
    body = b""
    try:
        while packed:  # a gzip body may have several members
            unpacker = zlib.decompressobj(GZIP)
            body += unpacker.decompress(packed, limit + 1 - len(body))
            if len(body) > limit:
                raise _too_large(shown, limit)
            if not unpacker.eof:
                raise FetchError(FetchFailure.CUT, f"{shown}: the gzip body ends too early")
            packed = unpacker.unused_data
    except zlib.error:
        raise FetchError(FetchFailure.PROTOCOL, f"{shown}: the body is not the gzip it says it is") from None
    return body


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


def _closed(error: Exception) -> bool:
    return any(isinstance(part, ConnectionError | http.client.RemoteDisconnected) for part in _chain(error))


def _diagnosis(error: Exception) -> tuple[FetchFailure, str]:
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
