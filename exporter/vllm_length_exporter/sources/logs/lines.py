"""The shape in which every log source hands lines on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import msgspec


# A million are made a second at best: a dataclass would take longer for that than the whole reading.
class Line(msgspec.Struct, frozen=True, gc=False):
    """One line of a log, without its end.

    `counted` is False for a line from before the exporter's start or resume point:
    it sets state and is no event of now (a refusal of yesterday is no spike today).
    """

    text: str
    counted: bool = True


@dataclass(frozen=True, slots=True)
class Batch:
    """What a source read in one go. `position` is opaque to all but the source, and JSON-ready."""

    lines: tuple[Line, ...] = ()
    position: dict[str, object] | None = None
    more: bool = False  # there is more to read at once
    restarted: bool = False  # the log begins anew: a new container, a truncated or replaced file
    ended: str | None = None  # why the process behind the log ended, if known: "OOMKilled (137)"


class LogError(Exception):
    """A log cannot be read; the message is one line: what is wrong, where, what to do."""


class LogSource(Protocol):
    """A log that can be read bit by bit without blocking.

    Raises LogError from `read`; a later `read` tries again, so a file may appear late.
    """

    def read(self) -> Batch: ...

    def close(self) -> None: ...
