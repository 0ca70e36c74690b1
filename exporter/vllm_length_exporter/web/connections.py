"""cheroot's server and its connections, made safe against clients that are slow, silent or too many.

A connection that says nothing costs no thread; one that says it slowly loses its thread after some seconds, or
at once when others wait. The TLS handshake happens in a worker, so that a client that is slow in it stops no other.
"""

from __future__ import annotations

import io
import logging
import math
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from cheroot import errors
from cheroot.server import HTTPRequest
from cheroot.ssl import Adapter
from cheroot.wsgi import Server as WsgiServer

from vllm_length_exporter.web.streams import QuietConnection, make_file

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication

logger = logging.getLogger(__name__)

THREADS = 8
MAX_HEADER = 16 * 1024  # bytes of request line and headers
MAX_CONNECTIONS = 256  # open at once; beyond, the one that was silent longest is closed
KEEP_ALIVE = 75  # seconds that a silent connection is kept: more than a scrape interval
READING = 5.0  # seconds from the first byte of a request to its last header
READING_IN_A_HURRY = 0.5  # the same, while other requests wait for a thread
EXCHANGE = 15.0  # seconds from the first byte of a request to the last of the answer
TICK = 0.25  # seconds between two looks at the exchanges
LOOP_TICK = 0.1  # seconds at most until the accept loop sees that it shall stop
STOP = 0.3  # seconds that exchanges have to end when the server stops
ACCEPT_PAUSE = 1.0  # seconds to wait after the accept loop failed, so that it does not spin
ACCEPT_QUIET = 60.0  # seconds without such a failure before one is worth a line again
LOOP = "web"  # the name of the thread that runs the accept loop
USE_TLS = (
    b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Type: text/plain\r\nContent-Length: 28\r\n\r\n"
    b"this port speaks HTTPS only\n"
)


class Request(HTTPRequest):
    """A request that tells its connection when it has been read. One with a body is refused: none is needed,
    and a body that is announced and never sent would hold a thread.
    """

    def parse_request(self) -> None:
        super().parse_request()
        if self.ready and (self.chunked_read or int(self.inheaders.get(b"Content-Length", 0)) != 0):
            self.ready = False
            self.simple_response("413 Request Entity Too Large", "expected a request without body\n")
        self.conn.is_reading = False


class Connection(QuietConnection):
    """A connection with the time its exchange began, that does its own TLS handshake."""

    RequestHandlerClass = Request
    server: Server

    def __init__(self, server: Server, sock: socket.socket, makefile: Callable[..., Any] = make_file) -> None:
        super().__init__(server, sock, makefile)
        self.is_reading = True
        self.begun: float | None = None  # monotonic; None between two exchanges
        self._needs_handshake = isinstance(sock, ssl.SSLSocket)

    def communicate(self) -> bool:
        """One exchange, in a worker thread; whether the connection stays open."""
        self.is_reading, self.begun = True, time.monotonic()
        try:
            if self._needs_handshake:
                if not self._shake_hands():
                    return False
                self._needs_handshake = False
                if not self.socket.pending():
                    return True  # wait for the request without a thread
            return bool(super().communicate())  # type: ignore[no-untyped-call]
        except OSError as error:  # the client is gone, or was cut off, and could not even be told
            logger.debug("connection lost", extra={"client": self.remote_addr, "error": str(error)})
            return False
        finally:
            self.begun = None

    def abort(self) -> None:
        """End it from any thread: a worker that waits in it wakes up and closes it."""
        try:
            # Not the method of the TLS socket, which another thread may be in.
            socket.socket.shutdown(self.socket, socket.SHUT_RDWR)
        except OSError:
            return  # it is closed already

    def close(self) -> None:
        super().close()
        self.server.forget(self)

    def _shake_hands(self) -> bool:
        try:
            self.socket.do_handshake()
        except ssl.SSLError as error:
            logger.debug("TLS handshake failed", extra={"client": self.remote_addr, "error": str(error)})
            if error.reason == "HTTP_REQUEST":
                self._tell_to_use_tls()
            return False
        except OSError:
            return False
        return True

    def _tell_to_use_tls(self) -> None:
        try:
            socket.socket.sendall(self.socket, USE_TLS)  # past the TLS, which there is none of
        except OSError:
            return


class TlsAdapter(Adapter):
    """Wraps accepted sockets in the context that is in force when they arrive."""

    def __init__(self, context: Callable[[], ssl.SSLContext | None]) -> None:
        self._current = context

    def bind(self, sock: socket.socket) -> socket.socket:
        return sock

    def wrap(self, sock: socket.socket) -> tuple[socket.socket, dict[str, str]]:
        context = self._current()
        assert context is not None  # TLS goes on or off with a restart only
        try:
            wrapped = context.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
        except OSError as error:
            raise errors.FatalSSLAlert(*error.args) from error
        return wrapped, self.get_environ()

    def get_environ(self) -> dict[str, str]:
        return {"wsgi.url_scheme": "https", "HTTPS": "on"}

    def makefile(self, sock: socket.socket, mode: str = "r", bufsize: int = io.DEFAULT_BUFFER_SIZE) -> Any:
        return make_file(sock, mode, bufsize)


class Server(WsgiServer):
    """cheroot's WSGI server with the limits above."""

    ConnectionClass = Connection
    max_request_header_size = MAX_HEADER
    keep_alive_conn_limit = MAX_CONNECTIONS // 2
    expiration_interval = LOOP_TICK

    def __init__(
        self, host: str, port: int, application: WSGIApplication, adapter: TlsAdapter | None = None
    ) -> None:
        super().__init__(
            (host, port),
            application,
            numthreads=THREADS,
            server_name="vllm-length-exporter",
            request_queue_size=128,
            timeout=KEEP_ALIVE,
            shutdown_timeout=STOP,  # type: ignore[arg-type]  # it takes fractions
        )
        self.ssl_adapter = adapter
        self.bind_error: OSError | None = None
        self._open: dict[Connection, None] = {}
        self._open_lock = threading.Lock()
        self._stopping = threading.Event()
        self._accept_failed = -math.inf  # monotonic time of the last failure

    def bind(self, family: int, type: int, proto: int = 0) -> socket.socket:  # noqa: A002  # cheroot's name
        """Remember why it failed: cheroot passes on only a text."""
        try:
            bound: socket.socket = super().bind(family, type, proto)
        except OSError as error:
            self.bind_error = error
            raise
        return bound

    def serve(self) -> None:
        watcher = threading.Thread(target=self._watch, name="web-watch", daemon=True)
        watcher.start()
        try:
            super().serve()
        finally:
            self._stopping.set()
            watcher.join()

    def stop(self) -> None:
        # What is under way may end; what does not end in time is cut, for workers are waited for.
        cut = threading.Timer(STOP, self._abort_all)
        cut.daemon = True
        cut.start()
        super().stop()
        cut.cancel()

    def process_conn(self, conn: Connection) -> None:
        """Called with a connection that is new, or that has something to read."""
        if conn.last_used is None:
            self._admit(conn)
        else:
            super().process_conn(conn)

    def forget(self, conn: Connection) -> None:
        """The connection is closed."""
        with self._open_lock:
            self._open.pop(conn, None)

    def error_log(self, msg: str = "", level: int = logging.INFO, traceback: bool = False) -> None:
        """What cheroot has to say: faults of ours are errors, of clients nothing to write about."""
        if not traceback or level < logging.ERROR:
            logger.debug(msg)
        elif threading.current_thread().name == LOOP:
            now = time.monotonic()
            if now - self._accept_failed > ACCEPT_QUIET:
                logger.error("cannot accept connections", extra={"error": str(sys.exc_info()[1])})
            self._accept_failed = now
            # cheroot looks at no other connection while it cannot accept, so that none would ever be closed.
            self._stopping.wait(ACCEPT_PAUSE)
            self._connections._expire(time.time() - ACCEPT_PAUSE / 2)  # type: ignore[attr-defined]
        else:
            logger.error(msg, exc_info=True)

    def _admit(self, conn: Connection) -> None:
        with self._open_lock:
            self._open[conn] = None
            surplus = len(self._open) - MAX_CONNECTIONS
            silent = [other for other in self._open if other.begun is None and other is not conn]
        if surplus > 0:
            for other in sorted(silent, key=_last_used)[:surplus]:
                other.abort()
        self._connections.put(conn)  # type: ignore[attr-defined]  # waits there until it says something

    def _watch(self) -> None:
        while not self._stopping.wait(TICK):
            now = time.monotonic()
            reading = READING_IN_A_HURRY if self.requests.qsize > 0 else READING
            for conn in self._connections_open():
                begun = conn.begun
                if begun is not None and now - begun > (reading if conn.is_reading else EXCHANGE):
                    logger.debug("exchange took too long", extra={"client": conn.remote_addr})
                    conn.abort()

    def _abort_all(self) -> None:
        for conn in self._connections_open():
            conn.abort()

    def _connections_open(self) -> tuple[Connection, ...]:
        with self._open_lock:
            return tuple(self._open)


def _last_used(conn: Connection) -> float:
    used: float = conn.last_used or 0.0
    return used
