"""Connections on which everything together, from connecting to the last byte, ends at one moment.

The timeouts of requests and urllib3 hold for one read each, so a server that sends a byte now and then
could keep a poll for ever. Here the socket's timeout is what is left of the whole, set before every read.
"""

from __future__ import annotations

import socket
import ssl
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any, ClassVar

import requests.adapters
import urllib3
import urllib3.connection
from urllib3.util.ssl_ import create_urllib3_context


class Deadline:
    """A moment on the monotonic clock that all connections of one source share; one request at a time."""

    def __init__(self) -> None:
        self.at = 0.0
        self.connected = False  # the request in hand opened a new connection
        self._socket: Callable[[], socket.socket | None] = lambda: None  # a weak reference
        self._cancelled = False

    def start(self, seconds: float) -> None:
        """Begin a request that may take so long."""
        self.at = time.monotonic() + seconds
        self.connected = False

    @property
    def passed(self) -> bool:
        """Whether the time is up."""
        return time.monotonic() >= self.at

    def left(self) -> float:
        """Seconds that are left, more than 0.

        Raises:
            TimeoutError: none are.
        """
        left = self.at - time.monotonic()
        if left <= 0 or self._cancelled:
            raise TimeoutError("the deadline has passed")
        return left

    def watch(self, sock: socket.socket) -> None:
        """The connection that `cancel` must end."""
        self._socket = weakref.ref(sock)

    def cancel(self) -> None:
        """End the request in hand, and all later ones, from another thread."""
        self._cancelled = True
        sock = self._socket()
        if sock is not None:
            with suppress(OSError):  # it is closed already
                socket.socket.shutdown(sock, socket.SHUT_RDWR)


class _PlainSocket(socket.socket):
    deadline: Deadline

    def recv_into(self, *arguments: Any) -> int:
        self.settimeout(self.deadline.left())
        return super().recv_into(*arguments)


class _TlsSocket(ssl.SSLSocket):
    deadline: Deadline | None = None  # set after the handshake, which is one call with a timeout of its own

    def read(self, len: int = 1024, buffer: Any = None) -> Any:  # noqa: A002  the name it overrides
        if self.deadline is not None:
            self.settimeout(self.deadline.left())
        return super().read(len, buffer)


class _PlainConnection(urllib3.connection.HTTPConnection):
    deadline: ClassVar[Deadline]

    def _new_conn(self) -> socket.socket:
        return _connect(self, self.deadline)


class _TlsConnection(urllib3.connection.HTTPSConnection):
    deadline: ClassVar[Deadline]

    def _new_conn(self) -> socket.socket:
        return _connect(self, self.deadline)

    def connect(self) -> None:
        super().connect()
        if isinstance(self.sock, _TlsSocket):
            self.sock.deadline = self.deadline
            self.deadline.watch(self.sock)


def _connect(connection: urllib3.connection.HTTPConnection, deadline: Deadline) -> socket.socket:
    """The first of the host's addresses that answers; each may take its share of what is left."""
    deadline.connected = True
    try:
        addresses = socket.getaddrinfo(connection.host, connection.port, type=socket.SOCK_STREAM)
    except UnicodeError:
        raise socket.gaierror(socket.EAI_NONAME, "not a host name") from None
    error: OSError = OSError(f"{connection.host} has no address")
    for position, (family, kind, protocol, _, address) in enumerate(addresses):
        sock = _PlainSocket(family, kind, protocol)
        sock.deadline = deadline
        deadline.watch(sock)
        try:
            sock.settimeout(deadline.left() / (len(addresses) - position))
            sock.connect(address)
            sock.settimeout(deadline.left())
            for option in connection.socket_options or ():
                sock.setsockopt(*option)
        except OSError as failure:
            sock.close()
            error = failure
        else:
            return sock
    raise error


class DeadlineAdapter(requests.adapters.HTTPAdapter):
    """requests' own adapter, its connections under one deadline."""

    def __init__(self, deadline: Deadline) -> None:
        self._pools = {
            "http": _pool(urllib3.HTTPConnectionPool, _PlainConnection, deadline),
            "https": _pool(urllib3.HTTPSConnectionPool, _TlsConnection, deadline),
        }
        super().__init__(pool_connections=1, pool_maxsize=1)

    def init_poolmanager(self, *arguments: Any, **options: Any) -> None:
        """As the parent does, with our sockets."""
        context = create_urllib3_context()
        context.sslsocket_class = _TlsSocket
        super().init_poolmanager(*arguments, ssl_context=context, **options)
        self.poolmanager.pool_classes_by_scheme = self._pools

    def proxy_manager_for(self, *arguments: Any, **options: Any) -> urllib3.ProxyManager:
        """As the parent does, with our sockets."""
        manager: urllib3.ProxyManager = super().proxy_manager_for(*arguments, **options)
        manager.pool_classes_by_scheme = self._pools
        return manager

    def close(self) -> None:
        """Close the connections now."""
        close_connections(self)
        super().close()


def close_connections(adapter: requests.adapters.HTTPAdapter) -> None:
    """Close an adapter's connections, which its own `close` leaves to the garbage collector."""
    for manager in (adapter.poolmanager, *adapter.proxy_manager.values()):
        for key in manager.pools.keys():  # noqa: SIM118  no iteration over the container itself
            manager.pools[key].close()


def _pool(pool: type, connection: type, deadline: Deadline) -> type:
    bound = type(connection.__name__, (connection,), {"deadline": deadline})
    return type(pool.__name__, (pool,), {"ConnectionCls": bound})
