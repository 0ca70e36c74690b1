"""A stand-in vLLM that plays a recording: the same paths, and the log in a file, at the recording's own pace."""

from __future__ import annotations

import errno
import math
import random
import re
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cheroot.wsgi import Server
from werkzeug.exceptions import HTTPException, MethodNotAllowed, NotFound, ServiceUnavailable
from werkzeug.wrappers import Request, Response

from vllm_length_exporter.recording import Player
from vllm_length_exporter.settings.values import Duration
from vllm_length_exporter.web.streams import QuietConnection

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

PAGE_TYPE = "text/plain; version=0.0.4; charset=utf-8"
ANSWERS = {"/v1/models": "models", "/version": "version"}
_PROCESS_START = re.compile(r"(?m)^(process_start_time_seconds )(\d[\d.e+]*)$")
LOG_STEP = 0.1  # seconds between two writes to the log


@dataclass(frozen=True, slots=True)
class Faults:
    """What goes wrong: `drop` is the share of answers that end in the middle, the others are seconds.

    `restart` is how often another process begins, as its start time tells; its counters go on.
    """

    drop: float = 0.0
    delay: float = 0.0
    restart: float = math.inf

    @classmethod
    def parse(cls, given: Iterable[str]) -> Faults:
        """From `drop=0.2`, `delay=2s`, `restart=30s`.

        Raises:
            ValueError: one is none of these; one line.
        """
        found: dict[str, float] = {}
        for text in given:
            name, _, value = text.partition("=")
            if name == "drop":
                try:
                    found[name] = float(value)
                except ValueError:
                    found[name] = math.nan
                if not 0 <= found[name] <= 1:
                    raise ValueError(f"expected drop=SHARE between 0 and 1, got {text[:40]!r}")
            elif name in ("delay", "restart"):
                found[name] = Duration.parse(value)
            else:
                raise ValueError(
                    f"expected drop=SHARE, delay=DURATION or restart=DURATION, got {text[:40]!r}"
                )
        return cls(**found)


def _text(lines: Iterable[str]) -> bytes:
    return "".join(line + "\n" for line in lines).encode()


class _Server(Server):
    ConnectionClass = QuietConnection


class StandIn:
    """Serves `player` on `host:port` (port 0: any) and appends its log to `log`.

    A recording of a start that failed has no page: then nothing listens, as with the real server.
    """

    def __init__(
        self,
        player: Player,
        host: str = "127.0.0.1",
        port: int = 0,
        log: Path | None = None,
        speed: float = 1.0,
        faults: Faults | None = None,
    ) -> None:
        self.player = player
        self._faults = faults or Faults()
        self._log = log
        self._speed = speed
        self._stop = threading.Event()
        self._begun = time.monotonic()
        self._threads: list[threading.Thread] = []
        self._server: Server | None = None
        self.host, self.port = host, port
        if player.recording.pages:
            self._server = _Server(
                (host, port),
                self._answer,
                numthreads=2,
                request_queue_size=64,
                timeout=30,
                shutdown_timeout=1,
            )
            self._server.prepare()
            self.port = self._server.bind_addr[1]

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"

    def start(self) -> None:
        self._begun = time.monotonic()
        jobs = [self._write_log] if self._log is not None else []
        if self._server is not None:
            jobs.append(self._server.serve)
        self._threads = [threading.Thread(target=job, name="stand-in", daemon=True) for job in jobs]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._server is not None:
            self._server.stop()
        for thread in self._threads:
            thread.join(5)

    def elapsed(self) -> float:
        """Seconds of the recording that have been played."""
        return (time.monotonic() - self._begun) * self._speed

    def _write_log(self) -> None:
        if self._log is None:
            return
        # unbuffered, so that a writer beside this one never finds half a line
        with self._log.open("ab", buffering=0) as out:
            out.write(_text(self.player.opening()))
            since = 0.0
            while not self._stop.wait(LOG_STEP):
                until = self.elapsed()
                out.write(_text(self.player.lines(since, until)))
                since = until

    def _answer(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        request = Request(environ)
        try:
            if self._faults.delay:
                self._stop.wait(self._faults.delay)
            whole = self._response(request)
            dropped = random.random() < self._faults.drop  # noqa: S311 - no secret
            response: Response | HTTPException = _cut(whole) if dropped else whole
        except HTTPException as error:
            response = error
        return response(environ, start_response)

    def _response(self, request: Request) -> Response:
        if request.method not in ("GET", "HEAD"):
            raise MethodNotAllowed(["GET", "HEAD"])
        elapsed = self.elapsed()
        if request.path == "/metrics":
            page = self.player.page(elapsed)
            if page is None or self.player.is_over(elapsed):
                raise ServiceUnavailable("the recording has no page here")
            return Response(self._restarted(page), content_type=PAGE_TYPE)
        if request.path == "/health":
            return Response("")
        kind = ANSWERS.get(request.path)
        body = None if kind is None else self.player.answer(kind, elapsed)
        if body is None:
            raise NotFound
        return Response(body, content_type="application/json")

    def _restarted(self, page: str) -> str:
        """The page of the process that runs now."""
        restarts = int((time.monotonic() - self._begun) / self._faults.restart)
        if not restarts:
            return page
        return _PROCESS_START.sub(lambda found: f"{found[1]}{float(found[2]) + 60.0 * restarts}", page)


def _cut(response: Response) -> Response:
    """The first half of an answer, after which the connection breaks."""
    body = response.get_data()

    def half() -> Iterator[bytes]:
        yield body[: len(body) // 2]
        raise ConnectionResetError(
            errno.ECONNRESET, "dropped"
        )  # the server takes it for the client's, and closes

    cut = Response(half(), response.status, response.headers)
    cut.headers["Content-Length"] = str(len(body) or 1)
    return cut
