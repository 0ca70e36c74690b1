"""Lines that carry a time stamp, of a log that can only be asked for what came since a second.

Docker and Kubernetes give each line its stamp, and give back, in the log's order, the lines that are not
older than a second asked for. So a place in the log is a second and how many of the lines since then were
read: that holds for equal stamps, and for stamps that are a little out of order.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from datetime import datetime

import msgspec

STAMPED = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d) ?")
NANOSECONDS = 1_000_000_000
MARGIN = 1  # second by which stamps may be out of order


class Place(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The place in a log: of the lines since `second` (of the epoch), `count` were read.

    `first` is the digest of the first of those, and `last` the newest stamp, in nanoseconds, for a log whose
    older lines are gone.
    """

    second: int
    count: int
    first: str
    last: int


class Stamps:
    """Reads the stamps at the beginning of lines."""

    def __init__(self) -> None:
        self._seconds: dict[tuple[str, str], int] = {}

    def split(self, line: str) -> tuple[int, str] | None:
        """The stamp in nanoseconds of the epoch, and the line without it; None where it has none."""
        match = STAMPED.match(line)
        if match is None:
            return None
        text, fraction, zone = match.groups()
        second = self._seconds.get((text, zone))
        if second is None:
            try:
                second = int(datetime.fromisoformat(text + zone).timestamp())
            except ValueError:
                return None
            if len(self._seconds) > 100:
                self._seconds.clear()
            self._seconds[text, zone] = second
        return second * NANOSECONDS + int((fraction or "").ljust(9, "0")), line[match.end() :]


@dataclass(slots=True)
class _Second:
    count: int
    order: int  # when its first line was read
    first: str


class OtherLogError(Exception):
    """The log does not hold the lines that were read of it: it is another one's, or was rotated."""


class Reading:
    """The reading of one log: which lines are new, which count, and how far it has come.

    `resume` is the place of an earlier run: the log is read from its beginning all the same, for state.
    Lines stamped before `origin` (nanoseconds) never count.
    """

    def __init__(self, origin: int, resume: Place | None = None) -> None:
        self._origin = origin
        self._resume = resume
        self._counted = _Gate(resume)
        self._unread = _Gate(None)
        self._seconds: dict[int, _Second] = {}
        self._newest = -1
        self._last = 0
        self._read = 0
        self.beginning: str | None = None  # the first line's digest

    def take(self, stamp: int, line: str | bytes) -> bool | None:
        """Whether the line counts; None where it was read before.

        Raises:
            OtherLogError: only where `reconnected` asked for it.
        """
        if not self._unread.passes(stamp, line):
            return None
        self._note(stamp, line)
        return self._counted.passes(stamp, line) and stamp >= self._origin

    def reconnected(self, *, strict: bool = False) -> int | None:
        """The second to ask for, as the log is read once more; None for its beginning.

        Where the log no longer holds the lines that were read, the newer ones are taken, unless `strict`.
        """
        place = self._reached()
        self._unread = _Gate(place, strict=strict)
        return None if place is None else place.second

    @property
    def place(self) -> Place | None:
        """Where to go on after a restart of the exporter."""
        return self._reached() if self._counted.is_open else self._resume

    def _reached(self) -> Place | None:
        if not self._seconds:
            return None
        first = min(self._seconds.values(), key=lambda second: second.order)
        count = sum(second.count for second in self._seconds.values())
        return Place(self._newest - MARGIN, count, first.first, self._last)

    def _note(self, stamp: int, line: str | bytes) -> None:
        second = stamp // NANOSECONDS
        if not self._read:
            self.beginning = digest(stamp, line)
        self._read += 1
        self._last = max(self._last, stamp)
        found = self._seconds.get(second)
        if found is not None:
            found.count += 1
        elif second >= self._newest - MARGIN:
            self._seconds[second] = _Second(1, self._read, digest(stamp, line))
            if second > self._newest:
                self._newest = second
                self._seconds = {key: kept for key, kept in self._seconds.items() if key >= second - MARGIN}


class _Gate:
    """Lets the lines behind a place pass."""

    def __init__(self, place: Place | None, *, strict: bool = False) -> None:
        self._place = place
        self._strict = strict
        self._left = 0 if place is None else place.count
        self._by_stamp = False
        self.is_open = place is None

    def passes(self, stamp: int, line: str | bytes) -> bool:
        if self.is_open or self._place is None:
            return True
        if stamp < self._place.second * NANOSECONDS:
            return False
        if self._left == self._place.count and not self._by_stamp:
            self._by_stamp = digest(stamp, line) != self._place.first
            if self._by_stamp and self._strict:
                raise OtherLogError
        if self._by_stamp:  # the log no longer has the lines that were counted
            self.is_open = stamp > self._place.last
            return self.is_open
        self._left -= 1
        self.is_open = self._left <= 0
        return False


def digest(stamp: int, line: str | bytes) -> str:
    """What to keep of a line to know it by: nothing of its text."""
    text = line.encode() if isinstance(line, str) else line
    return hashlib.sha256(b"%d " % stamp + text).hexdigest()[:16]
