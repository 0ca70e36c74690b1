"""The web configuration at work: read again when a file changes, and held against every request."""

from __future__ import annotations

import hashlib
import logging
import os
import ssl
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from werkzeug.datastructures import Authorization
from werkzeug.wrappers import Response

from vllm_length_exporter.settings.mistake import ConfigError

from . import web_config
from .web_config import WebConfig

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

logger = logging.getLogger(__name__)

BCRYPT_BYTES = 72  # of a password, all that the algorithm looks at
REMEMBERED = 64  # passwords that were right: bcrypt takes 50 ms, too much for each scrape
AT_ONCE = 2  # hashes in work: a flood of wrong passwords must not take all of the processor
PATIENCE = 1.0  # seconds that a request waits for its turn

Stamp = tuple[tuple[int, int, int] | None, ...]


class Guard:
    """The web configuration of a file as it is now; a change that cannot be used leaves the old one in force.

    Raises:
        ConfigError: the file cannot be used at the start.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._watched: tuple[Path, ...] = (path,)
        self._stamp: Stamp = ()
        self._config, self._context = self._load()

    @property
    def has_tls(self) -> bool:
        return self._context is not None

    def config(self) -> WebConfig:
        """What is in force for a new request."""
        self._refresh()
        return self._config

    def context(self) -> ssl.SSLContext | None:
        """What is in force for a new connection."""
        self._refresh()
        return self._context

    def _refresh(self) -> None:
        if _stamp(self._watched) == self._stamp:
            return
        with self._lock:
            if _stamp(self._watched) == self._stamp:
                return
            try:
                self._config, self._context = self._load_again()
            except ConfigError as error:
                logger.error(
                    "web configuration not loaded", extra={"error": str(error), "kept": "the old one"}
                )
            else:
                logger.info("web configuration loaded", extra={"path": str(self._path)})

    def _load_again(self) -> tuple[WebConfig, ssl.SSLContext | None]:
        config, context = self._load()
        if (context is None) != (self._context is None):
            raise ConfigError(f"{self._path}: tls_server_config: TLS goes on or off with a restart only")
        return config, context

    def _load(self) -> tuple[WebConfig, ssl.SSLContext | None]:
        # Stamps are taken before a file is read: what changes in between is seen the next time.
        self._stamp = _stamp(self._watched)
        config = web_config.read(self._path)
        tls = config.tls_server_config
        files = tls.files() if tls is not None else ()
        self._watched, self._stamp = (self._path, *files), (self._stamp[0], *_stamp(files))
        return config, None if tls is None else web_config.tls_context(tls, self._path)


class GuardedApplication:
    """A WSGI application behind users and with the headers of a `Guard`, on all paths."""

    def __init__(self, application: WSGIApplication, guard: Guard) -> None:
        self._application = application
        self._guard = guard
        self._passwords = Passwords()

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        config = self._guard.config()
        headers = config.http_server_config.headers.given()

        def start(status: str, sent: list[tuple[str, str]], *error: Any) -> Callable[[bytes], object]:
            given = {name.lower() for name in headers}
            kept = [(name, value) for name, value in sent if name.lower() not in given]
            return start_response(status, [*kept, *headers.items()], *error)

        refusal = self._refusal(config.basic_auth_users, environ)
        return (refusal or self._application)(environ, start if headers else start_response)

    def _refusal(self, users: dict[str, str], environ: WSGIEnvironment) -> Response | None:
        if not users:
            return None
        sent = Authorization.from_header(environ.get("HTTP_AUTHORIZATION"))
        if sent is None or sent.type != "basic" or sent.username is None or sent.password is None:
            return _refused("sign in with a user name and password", 401)
        right = self._passwords.is_right(users, sent.username, sent.password)
        if right is None:
            return _refused("too many sign-ins at once; try again", 429)
        return None if right else _refused("wrong user name or password", 401)


class Passwords:
    """Checks passwords; one that was right is remembered, keyed so that its hash's removal ends that."""

    def __init__(self) -> None:
        self._secret = os.urandom(32)
        self._right: dict[bytes, None] = {}
        self._turns = threading.BoundedSemaphore(AT_ONCE)

    def is_right(self, users: dict[str, str], user: str, password: str) -> bool | None:
        """Whether the user's password is this; None where too many are asking at once.

        A user who does not exist costs as much time as one who does.
        """
        import bcrypt  # only who has users needs it

        stored = users.get(user)
        # No password has this hash, and it costs the same as that of a user.
        held = stored or next(iter(users.values()))[:7] + "." * 53
        digest = hashlib.blake2b("\0".join((user, held, password)).encode(), key=self._secret).digest()
        if digest in self._right:
            return True
        if not self._turns.acquire(timeout=PATIENCE):
            return None
        try:
            right = bcrypt.checkpw(password.encode()[:BCRYPT_BYTES], held.encode()) and stored is not None
        finally:
            self._turns.release()
        if right:
            if len(self._right) >= REMEMBERED:
                self._right.clear()
            self._right[digest] = None
        return right


def _refused(text: str, status: int) -> Response:
    response = Response(text + "\n", status, content_type="text/plain; charset=utf-8")
    response.headers["Cache-Control"] = "no-store"
    response.headers["X-Content-Type-Options"] = "nosniff"
    if status == 401:
        response.headers["WWW-Authenticate"] = 'Basic realm="vllm-length-exporter", charset="UTF-8"'
    else:
        response.headers["Retry-After"] = "1"
    return response


def _stamp(files: Iterable[Path]) -> Stamp:
    """What changes when a file is written, or a mounted secret is replaced."""
    return tuple(_file_stamp(file) for file in files)


def _file_stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino, found.st_size
