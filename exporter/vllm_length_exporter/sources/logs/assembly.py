"""Bytes, as they come, into lines."""

from __future__ import annotations

LIMIT = 65_536  # a longer line is cut here: it is no message, and must not fill the memory


class Assembler:
    """Holds the line whose end has not come yet, and no more of it than the limit."""

    def __init__(self) -> None:
        self._held = bytearray()

    def feed(self, data: bytes) -> list[str]:
        """The lines that these bytes complete. Only a line feed ends one: a form feed or U+2028 may be
        part of what a client sent. Bytes that are no UTF-8 become U+FFFD.
        """
        end = data.rfind(b"\n")
        if end < 0:
            self._hold(data)
            return []
        block = data[:end]
        if self._held:
            first, feed, rest = block.partition(b"\n")
            self._hold(first)
            block = bytes(self._held) + feed + rest
            self._held.clear()
        self._hold(data[end + 1 :])
        return _lines(block)

    def finish(self, *, sure: bool) -> list[str]:
        """The unfinished line, if there is one, as no more of it will come.

        Unless it is `sure` to have been written whole, one that ends in a digit is withheld: half a number
        is a wrong number.
        """
        block = bytes(self._held)
        self._held.clear()
        if not block or (not sure and block.rstrip(b".,")[-1:].isdigit()):
            return []
        return _lines(block)

    @property
    def holds(self) -> bool:
        """Whether a line has begun and not ended."""
        return bool(self._held)

    def _hold(self, data: bytes) -> None:
        room = LIMIT + 1 - len(self._held)
        if room > 0:
            self._held += _without_hole(data)[:room]


def _without_hole(data: bytes) -> bytes:
    """A writer that goes on behind the end of a truncated file leaves a hole before what it writes."""
    return data.replace(b"\0", b"") if b"\0" in data else data


def _lines(block: bytes) -> list[str]:
    lines = _without_hole(block).decode("utf-8", "replace").split("\n")
    if b"\r" in block:
        lines = [line.removesuffix("\r") for line in lines]
    if len(block) > LIMIT and max(map(len, lines)) > LIMIT:
        lines = [_cut(line) for line in lines]
    return lines


def _cut(line: str) -> str:
    """The line's beginning, without a number that the cut may have gone through."""
    return line if len(line) <= LIMIT else line[:LIMIT].rstrip("0123456789.,")
