"""The ASGI class that vLLM is given."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from . import series
from .endpoints import ENDPOINTS
from .exchange import Exchange, Receive, Scope, Send
from .server import Server

App = Callable[[Scope, Receive, Send], Awaitable[None]]


class LengthAccounting:
    """Counts what it sees of requests and answers. Given to vLLM twice, the outer one does nothing."""

    def __init__(self, app: App) -> None:
        self.app = app
        self._server = Server()
        self._active = not _holds_one(app)
        series.INFO.labels(series.VERSION).set(1)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection of any kind."""
        exchange = self._exchange(scope, receive, send) if self._active else None
        if exchange is None:
            await self.app(scope, receive, send)
            return
        try:
            await self.app(scope, exchange.receive, exchange.send)
        except BaseException as error:
            exchange.end(error)
            raise
        if not exchange.settled:
            exchange.end(None)

    def _exchange(self, scope: Scope, receive: Receive, send: Send) -> Exchange | None:
        """The account of a request; None where there is no prompt in it."""
        try:
            server, kind = self._server, scope["type"]
            if kind == "lifespan" and not server.asked:
                server.learn(scope)
            if kind != "http" or scope["method"] != "POST":
                return None
            path: str = scope["path"]
            style = ENDPOINTS.get(path)
            if style is None:
                path = path.removeprefix(scope.get("root_path") or "")
                style = ENDPOINTS.get(path)
            if style is None:
                return None
            if not server.asked:
                server.learn(scope)
            return Exchange(server, path, style, scope, receive, send)
        except Exception as error:  # noqa: BLE001 - no client sees an error of ours
            series.hide(error)
            return None


def _holds_one(app: object) -> bool:
    """Whether there is a LengthAccounting inside of the application already."""
    while app is not None:
        if isinstance(app, LengthAccounting):
            return True
        app = getattr(app, "app", None)
    return False
