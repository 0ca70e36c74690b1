"""Values that a person writes as text: durations, addresses of servers, paths."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
PART = re.compile(r"(\d+(?:\.\d+)?)(ms|[smhdw])", re.ASCII)
DURATION = re.compile(rf"(?:{PART.pattern})+", re.ASCII)
NUMBER = re.compile(r"\d+(?:\.\d+)?", re.ASCII)
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


class Duration(float):
    """A time span in seconds, more than 0 and at most a year."""

    @classmethod
    def parse(cls, given: object) -> Self:
        """`5s`, `1h30m`, `500ms`, or a number of seconds.

        Raises:
            ValueError: it is no such span.
        """
        seconds = math.nan
        if isinstance(given, int | float) and not isinstance(given, bool):
            seconds = float(given) if abs(given) < 1e12 else math.inf
        elif isinstance(given, str) and NUMBER.fullmatch(given):
            seconds = float(given)
        elif isinstance(given, str) and DURATION.fullmatch(given):
            seconds = sum(float(number) * SECONDS[unit] for number, unit in PART.findall(given))
        if not 0 < seconds <= 366 * SECONDS["d"]:
            raise ValueError(f"expected a duration such as 5s, 1m or 1h, got {shown(given)}")
        return cls(seconds)


class Url(str):
    """The address of a vLLM server: http or https, without a trailing slash, query or credentials."""

    __slots__ = ()

    @classmethod
    def parse(cls, given: object) -> Self:
        """`http://vllm-a:8000`, or with the path that a gateway serves it under.

        Raises:
            ValueError: it is no such address; the message does not repeat credentials.
        """
        wanted = "expected http://HOST:PORT or https://HOST:PORT"
        if not isinstance(given, str):
            raise ValueError(f"{wanted}, got {shown(given)}")  # noqa: TRY004  # one kind of error for all mistakes
        try:
            parts = urlsplit(given)
            port, host = parts.port, parts.hostname
        except ValueError as error:
            raise ValueError(f"{wanted}: {error}") from error
        if "@" in parts.netloc or (not parts.netloc and "@" in given):
            raise ValueError(f"{wanted} without user and password; give a token with bearer_token_file")
        if parts.query or parts.fragment or "?" in given or "#" in given:
            raise ValueError(f"{wanted} without ? and #")
        if parts.scheme not in ("http", "https") or not host or port == 0:
            raise ValueError(f"{wanted}, got {shown(given)}")
        if re.search(r"\s|\\", given) or CONTROL.search(given):
            raise ValueError(f"{wanted} without spaces, got {shown(given)}")
        path = parts.path.rstrip("/")
        if path.endswith(("/metrics", "/v1")):
            raise ValueError(f"{wanted} without {path[path.rindex('/') :]}, got {shown(given)}")
        return cls(f"{parts.scheme}://{parts.netloc.lower()}{path}")

    @property
    def host_port(self) -> str:
        """`vllm-a:8000`; the scheme's own port where none is given."""
        parts = urlsplit(self)
        host = parts.hostname or ""
        port = parts.port or (443 if parts.scheme == "https" else 80)
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def file_path(given: object, folder: Path) -> Path:
    """A path, relative to `folder`.

    Raises:
        ValueError: it is none.
    """
    if isinstance(given, Path):
        return folder / given
    if not isinstance(given, str) or not given or CONTROL.search(given):
        raise ValueError(f"expected a path, got {shown(given)}")
    return folder / given


def shown(given: object) -> str:
    """A value as an error repeats it: short, on one line."""
    text = "nothing" if given is None else repr(given)
    return text if len(text) <= 60 else text[:57] + "…"
