"""What the exporter answers over HTTP: a WSGI application on what the daemon publishes.

Configured servers only: nothing in a request chooses whom to ask, and no request asks a vLLM server anything.
"""

from __future__ import annotations

import gzip
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from prometheus_client import disable_created_metrics
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector, CollectorRegistry
from werkzeug.exceptions import Forbidden, HTTPException, MethodNotAllowed, NotFound
from werkzeug.routing import Map, Rule
from werkzeug.wrappers import Request, Response

from vllm_length_exporter.derive.values import ServerView

from .static import StaticFiles
from .watched import Point, Watched

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

# Nothing from elsewhere, nothing inline; the page may not be framed, and its form leads back to it.
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}
PLAIN = "text/plain; charset=utf-8"
SMALLEST_TO_GZIP = 1400  # bytes: below, a packet is a packet
GZIP_LEVEL = 3  # a page of series shrinks to a tenth; level 9 takes four times as long for little more
EXCHANGES_OF_OURS = ("same-origin", "none")  # Sec-Fetch-Site of what no other site's page has sent


class Published(Protocol):
    """What there is to serve; every method answers from memory, in any thread."""

    def registry(self) -> CollectorRegistry | Collector:
        """The series."""
        ...

    def statuses(self) -> Sequence[ServerView]:
        """All servers that were tried."""
        ...

    def watched(self) -> Sequence[Watched]:
        """Every configured server, tried or not, with its sources."""
        ...

    def history(self, server: str) -> Mapping[str, tuple[Point, ...]]:
        """The last half hour of a server's engines."""
        ...

    def ready(self) -> bool:
        """Whether every server was tried at least once."""
        ...

    def healthy(self) -> str | None:
        """None, or one line that says what is wrong with the exporter."""
        ...

    def reload(self) -> str | None:
        """Read the configuration anew: None, or one line that says why the old one stays."""
        ...


class Application:
    """The WSGI application. `status_json` makes the body of /api/v1/status; `lifecycle` allows /-/reload."""

    def __init__(
        self, published: Published, *, status_json: Callable[[], bytes], lifecycle: bool = False
    ) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self._published = published
        self._status_json = status_json
        self._lifecycle = lifecycle
        self._static = StaticFiles()
        answers: dict[str, tuple[str, Callable[..., Response]]] = {
            "/": ("GET", self._page),
            "/metrics": ("GET", self._metrics),
            "/api/v1/status": ("GET", self._status),
            "/-/healthy": ("GET", self._healthy),
            "/-/ready": ("GET", self._ready),
            "/-/reload": ("POST", self._reload),
            "/static/<name>": ("GET", self._static_file),
        }
        self._answers = {path: answer for path, (_, answer) in answers.items()}
        # A path is asked for as it is written here: no redirect to another spelling.
        rules = [Rule(path, methods=[method], endpoint=path) for path, (method, _) in answers.items()]
        self._routes = Map(rules, merge_slashes=False, redirect_defaults=False).bind("exporter")

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        request = Request(environ)
        try:
            endpoint, arguments = self._routes.match(request.path, request.method)
            response = self._answers[endpoint](request, **arguments)
        except HTTPException as error:
            response = _refusal(error)
        for name, value in HEADERS.items():
            response.headers.setdefault(name, value)
        return response(environ, start_response)

    def _page(self, request: Request) -> Response:
        from .page import (  # the template engine is loaded when somebody looks
            UnknownServerError,
            missing_page,
            page,
        )

        watched, server = self._published.watched(), request.args.get("server")
        try:
            text, status = (
                page(
                    watched,
                    self._published.history,
                    ready=self._published.ready(),
                    now=time.monotonic(),
                    server=server,
                    tokens=request.args.get("tokens"),
                ),
                200,
            )
        except UnknownServerError:
            text, status = missing_page(server or ""), 404
        response = _fresh(text, "text/html; charset=utf-8")
        response.status_code = status
        response.headers["Vary"] = "Accept-Encoding"
        return _compressed(request, response)

    def _metrics(self, request: Request) -> Response:
        accept = request.headers.get("Accept", "")
        registry = self._published.registry()
        try:
            encode, content_type = choose_encoder(accept)
        except TypeError:  # a version that is no version
            encode, content_type = choose_encoder("")
        response = _fresh(encode(registry), content_type)
        response.headers["Vary"] = "Accept, Accept-Encoding"
        return _compressed(request, response)

    def _status(self, request: Request) -> Response:
        response = _fresh(self._status_json(), "application/json")
        response.headers["Vary"] = "Accept-Encoding"
        return _compressed(request, response)

    def _healthy(self, request: Request) -> Response:
        del request
        fault = self._published.healthy()
        return _line("healthy") if fault is None else _line(f"not healthy: {fault}", 503)

    def _ready(self, request: Request) -> Response:
        del request
        if self._published.ready():
            return _line("ready")
        return _line("not ready: not every server has been tried yet", 503)

    def _reload(self, request: Request) -> Response:
        if not self._lifecycle:
            raise Forbidden("reload over HTTP is off; start with --web-enable-lifecycle, or send SIGHUP")
        if request.headers.get("Sec-Fetch-Site", "none") not in EXCHANGES_OF_OURS:
            raise Forbidden("reload is not for the pages of another site")
        fault = self._published.reload()
        return _line("reloaded") if fault is None else _line(f"kept the old configuration: {fault}", 500)

    def _static_file(self, request: Request, name: str) -> Response:
        file = self._static.get(name)
        if file is None:
            raise NotFound
        response = Response(file.body, content_type=file.content_type)
        response.set_etag(file.etag)
        response.headers["Cache-Control"] = "no-cache"
        return response.make_conditional(request)


def _fresh(body: str | bytes, content_type: str) -> Response:
    return Response(body, content_type=content_type, headers={"Cache-Control": "no-store"})


def _line(text: str, status: int = 200) -> Response:
    response = _fresh(" ".join(text.split()) + "\n", PLAIN)
    response.status_code = status
    return response


def _refusal(error: HTTPException) -> Response:
    """An error of werkzeug's as one line; only what we said ourselves is repeated."""
    if isinstance(error, NotFound):
        return _line("not found; there are /, /metrics, /api/v1/status, /-/healthy and /-/ready", 404)
    if isinstance(error, MethodNotAllowed):
        allowed = ", ".join(sorted(error.valid_methods or ()))
        response = _line(f"method not allowed; expected {allowed}", 405)
        response.headers["Allow"] = allowed
        return response
    return _line(error.description or error.name, error.code or 500)


def _compressed(request: Request, response: Response) -> Response:
    body = response.get_data()
    if len(body) >= SMALLEST_TO_GZIP and request.accept_encodings["gzip"] > 0:
        response.set_data(gzip.compress(body, GZIP_LEVEL, mtime=0))
        response.headers["Content-Encoding"] = "gzip"
    return response
