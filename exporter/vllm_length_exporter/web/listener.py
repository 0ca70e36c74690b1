"""The listening socket: cheroot, guarded against slow, huge and endless clients, with TLS where it is wanted."""

from __future__ import annotations

import logging
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from .address import Address
from .connections import LOOP, Server, TlsAdapter

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication

logger = logging.getLogger(__name__)


class ListenError(Exception):
    """The address cannot be listened on; the message is one line."""


class Listener:
    """Serves a WSGI application on `address`, with the TLS, users and headers of `web_config_file`.

    The socket is bound here, so that a taken port is known before anything else starts; `start` answers.

    Raises:
        ListenError: the address cannot be listened on.
        ConfigError: the web configuration cannot be used.
    """

    def __init__(
        self, application: WSGIApplication, address: Address | str, web_config_file: Path | None = None
    ) -> None:
        wanted = Address.parse(address)
        adapter = None
        if web_config_file is not None:
            from .guard import Guard, GuardedApplication  # a start without such a file needs no YAML

            guard = Guard(web_config_file)
            application = GuardedApplication(application, guard)
            adapter = TlsAdapter(guard.context) if guard.has_tls else None
        self._server = Server(wanted.host, wanted.port, application, adapter)
        # With it cheroot would take whatever file is number 3 for its socket, and not ask for the address.
        os.environ.pop("LISTEN_PID", None)
        try:
            self._server.prepare()
        except OSError as error:
            cause = self._server.bind_error or error
            raise ListenError(
                f"--listen-address {wanted}: cannot listen: {cause.strerror or cause}"
            ) from error
        self.address = Address.of(*self._server.bind_addr[:2])
        self.url = f"{'https' if adapter is not None else 'http'}://{self.address}"
        self._thread = threading.Thread(target=self._server.serve, name=LOOP, daemon=True)

    def start(self) -> None:
        """Answer requests, in threads of the listener's own."""
        self._thread.start()

    def stop(self) -> None:
        """Answer no more, within a second; also where `start` was never called."""
        self._server.stop()
        if self._thread.ident is not None:
            self._thread.join()
