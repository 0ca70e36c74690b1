"""Where to listen: HOST:PORT as a user writes it."""

from __future__ import annotations

from ipaddress import IPv6Address
from typing import Self

ALL_INTERFACES = "0.0.0.0"  # noqa: S104  # an exporter is there to be scraped from elsewhere


class Address(str):
    """`HOST:PORT`, an IPv6 host in brackets; port 0 is any free one."""

    __slots__ = ()

    @classmethod
    def parse(cls, given: object) -> Self:
        """`0.0.0.0:9832`, `[::1]:9832`, `localhost:0`; `:9832` is all IPv4 interfaces.

        Raises:
            ValueError: it is no address; the message says what is expected.
        """
        wanted = f"expected HOST:PORT such as 0.0.0.0:9832 or [::]:9832, got {given!r}"
        if not isinstance(given, str):
            raise ValueError(wanted)  # noqa: TRY004  # one kind of error for all mistakes
        host, colon, port = given.rpartition(":")
        if not colon or not (port.isascii() and port.isdigit()) or len(port) > 5 or int(port) > 65535:
            raise ValueError(wanted)
        if host.startswith("[") and host.endswith("]"):
            try:
                IPv6Address(host[1:-1])
            except ValueError:
                raise ValueError(wanted) from None
        elif any(character in "[]:/@" or character.isspace() for character in host):
            raise ValueError(wanted)
        return cls(f"{host or ALL_INTERFACES}:{int(port)}")

    @classmethod
    def of(cls, host: str, port: int) -> Self:
        """The address of a socket, as `getsockname` gives it."""
        return cls(f"[{host}]:{port}" if ":" in host else f"{host}:{port}")

    @property
    def host(self) -> str:
        """Without brackets."""
        return self.rpartition(":")[0].removeprefix("[").removesuffix("]")

    @property
    def port(self) -> int:
        return int(self.rpartition(":")[2])
