"""Where and how to ask, and the secrets that go with it."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from vllm_length_exporter.sources.failure import FetchError, FetchFailure

CREDENTIALS = re.compile(r"(?<=//)[^/?#]*@")


def masked(url: str) -> str:
    """The URL as it may be shown: without user name and password."""
    return CREDENTIALS.sub("***@", url)


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
    max_bytes: int = 8 * 1024 * 1024
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


def bearer_token(endpoint: Endpoint) -> str | None:
    """The token as it is now, if one is to be sent.

    Raises:
        FetchError: it cannot be read, or cannot be a token.
    """
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
