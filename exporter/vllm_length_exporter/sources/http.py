"""One GET with everything a poll must guard against: hanging, dripping, huge, cut and unwanted answers."""

from __future__ import annotations

import http.client
import logging
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

import requests
import requests.utils
import urllib3.exceptions

from vllm_length_exporter.sources.deadline import Deadline, DeadlineAdapter
from vllm_length_exporter.sources.endpoint import Endpoint, bearer_token, masked
from vllm_length_exporter.sources.failure import FetchError, FetchFailure, closed, diagnosis

__all__ = ["Endpoint", "FetchError", "FetchFailure", "Fetched", "HttpSource", "masked"]

logging.getLogger("urllib3").setLevel(logging.ERROR)  # what it warns of is in the FetchError

CHUNK = 65_536  # bytes a read
BROKEN = (requests.RequestException, urllib3.exceptions.HTTPError, OSError, http.client.HTTPException)
GZIP = 16 + zlib.MAX_WBITS


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
        if (url, accept) not in self._prepared:
            self._prepared[url, accept] = _prepared(url, accept, "gzip")
        response = self._answer(url, self._prepared[url, accept])
        try:
            body = self._body(url, response)
        except BROKEN as error:
            response.close()
            raise self._failure(url, error) from None
        except FetchError:
            response.close()  # with what is still to come
            raise
        content_type = response.headers.get("Content-Type", "")
        return Fetched(response.status_code, body, content_type, time.monotonic() - begin)

    def stream(self, path: str, accept: str, idle: float) -> Iterator[bytes]:
        """The body of an answer that may never end, piece by piece as it comes.

        Raises:
            FetchError: the answer is not 200, nothing came for `idle` seconds, or the connection broke.
        """
        url = self.endpoint.address(path)
        response = self._answer(url, _prepared(url, accept, "identity"))
        try:
            _expect_ok(masked(url), response)
            while True:
                self._deadline.start(idle)
                data = response.raw.read1(CHUNK, decode_content=False)
                if not data:
                    return
                yield data
        except BROKEN as error:
            raise self._failure(url, error) from None
        finally:
            response.close()

    def cancel(self) -> None:
        """End a stream that another thread reads, and refuse any further request."""
        self._deadline.cancel()

    def close(self) -> None:
        """Close the connection."""
        self._adapter.close()

    def _answer(self, url: str, request: requests.PreparedRequest) -> requests.Response:
        """Status and headers, within the endpoint's time, which goes on for the body."""
        self._deadline.start(self.endpoint.timeout)
        token = bearer_token(self.endpoint)
        if token is not None:
            request.headers["Authorization"] = f"Bearer {token}"
        try:
            return self._sent(request)
        except BROKEN as error:
            raise self._failure(url, error) from None

    def _sent(self, request: requests.PreparedRequest) -> requests.Response:
        try:
            return self._send(request)
        except requests.ConnectionError as error:
            # A server may close a kept connection just as it is used again: once more, on a new one.
            if self._deadline.connected or self._deadline.passed or not closed(error):
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
        shown = masked(url)
        _expect_ok(shown, response)
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
        kind, reason = diagnosis(error)
        if kind is FetchFailure.TIMEOUT or self._deadline.passed:
            kind, reason = FetchFailure.TIMEOUT, f"no complete answer within {self.endpoint.timeout:g} s"
        if kind is FetchFailure.TLS:
            files = (self.endpoint.ca_file, self.endpoint.client_cert, self.endpoint.client_key)
            used = ", ".join(str(file) for file in files if file is not None)
            reason = (
                f"{reason} (with {used})" if used else f"{reason} (with the public certificate authorities)"
            )
        return FetchError(kind, f"{masked(url)}: {reason}")


def _prepared(url: str, accept: str, encoding: str) -> requests.PreparedRequest:
    headers = {"Accept": accept, "Accept-Encoding": encoding, "User-Agent": "vllm-length-exporter"}
    return requests.Request("GET", url, headers=headers).prepare()


def _expect_ok(shown: str, response: requests.Response) -> None:
    status = response.status_code
    if 300 <= status < 400:
        target = masked(response.headers.get("Location", "an unnamed place"))[:200]
        reason = f"answers {status}, a redirect to {target!r}, and none is followed; give the final address"
        raise FetchError(FetchFailure.REDIRECT, f"{shown}: {reason}", status)
    if status != 200:
        raise FetchError(FetchFailure.STATUS, f"{shown}: answers {status}{_hint(status)}", status)


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
