"""A server's pages, answers and log over time, in one file; and a stand-in vLLM that plays such a file.

The file is gzip-compressed JSON lines. The first is `{"kind": "recording", "format": 1, ...}`; then each row has
`t` (seconds since the first page; the start's log lines lie before 0) and a `kind`: `page` (`text`, or `error` where
none came), `models` and `version` (`body`), `log` (`line`). A file that was cut is read up to its last whole row.
"""

from __future__ import annotations

import bisect
import gzip
import json
import math
import threading
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

FORMAT = 1
T = TypeVar("T", bound=tuple[Any, ...])
_GROWING_TYPES = ("counter", "histogram")


class RecordingError(ValueError):
    """The file is no recording; the message is one line with its path."""


@dataclass(frozen=True, slots=True)
class Recording:
    """Times are seconds since the first page. `pages` holds None where the server gave none."""

    pages: tuple[tuple[float, str | None], ...]
    log: tuple[tuple[float, str], ...]
    models: str | None = None
    version: str | None = None
    later_answers: tuple[tuple[float, str, str], ...] = ()  # time, "models" or "version", what it became

    @property
    def seconds(self) -> float:
        return self.pages[-1][0] if self.pages else (self.log[-1][0] if self.log else 0.0)


def load(path: Path) -> Recording:
    """Read a recording.

    Raises:
        RecordingError: it cannot be read, or is no recording.
    """
    rows = list(_rows(path))
    if not rows or rows[0].get("kind") != "recording":
        raise RecordingError(f"{path}: not a recording (its first line should say so)")
    if rows[0].get("format") != FORMAT:
        raise RecordingError(f"{path}: recording format {rows[0].get('format')}, this program reads {FORMAT}")
    pages: list[tuple[float, str | None]] = []
    log: list[tuple[float, str]] = []
    answers: dict[str, str] = {}
    later: list[tuple[float, str, str]] = []
    for number, row in enumerate(rows[1:], 2):
        time, kind = row.get("t"), row.get("kind")
        if not isinstance(time, int | float) or isinstance(time, bool) or not math.isfinite(time):
            raise RecordingError(f"{path}: row {number}: expected a number under 't'")
        if kind == "page":
            text = row.get("text")
            pages.append((float(time), text if isinstance(text, str) else None))
        elif kind == "log":
            log.append((float(time), str(row.get("line", ""))))
        elif kind in ("models", "version"):
            body = str(row.get("body", ""))
            if body != answers.setdefault(kind, body) or any(row[1] == kind for row in later):
                later.append((float(time), kind, body))
    return Recording(
        tuple(_in_order(pages)),
        tuple(_in_order(log)),
        answers.get("models"),
        answers.get("version"),
        tuple(_in_order(later)),
    )


def _in_order(rows: list[T]) -> list[T]:
    return sorted(rows, key=lambda row: row[0])


def save(recording: Recording, path: Path) -> None:
    """Write a recording; equal recordings make equal files."""
    with path.open("wb") as raw, gzip.GzipFile("", "wb", 9, raw, mtime=0) as packed:
        for row in _as_rows(recording):
            packed.write(json.dumps(row, ensure_ascii=False).encode() + b"\n")


def _as_rows(recording: Recording) -> Iterator[dict[str, Any]]:
    yield {"kind": "recording", "format": FORMAT}
    start = min([0.0, *(t for t, _ in recording.log)])
    for kind, body in (("models", recording.models), ("version", recording.version)):
        if body is not None:
            yield {"t": start, "kind": kind, "body": body}
    rows: list[tuple[float, dict[str, Any]]] = [
        (t, {"t": t, "kind": "log", "line": line}) for t, line in recording.log
    ]
    rows += [(t, {"t": t, "kind": "page", "text": text}) for t, text in recording.pages]
    rows += [(t, {"t": t, "kind": kind, "body": body}) for t, kind, body in recording.later_answers]
    yield from (row for _, row in sorted(rows, key=lambda pair: pair[0]))


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    try:
        with gzip.open(path, "rb") as lines:
            for line in lines:
                row = json.loads(line)
                if isinstance(row, dict):
                    yield row
    except (EOFError, zlib.error):
        return  # the recorder was stopped: what it wrote until then counts
    except (ValueError, RecursionError):
        return  # a row cut in the middle is the last one
    except gzip.BadGzipFile as error:
        raise RecordingError(
            f"{path}: not a recording (it is not compressed as one, or is damaged)"
        ) from error
    except OSError as error:
        raise RecordingError(f"{path}: {error.strerror or error}") from error


class Writer:
    """Writes a recording row by row to a new file; what was flushed can be read, whatever happens then.

    Raises:
        OSError: the file is there already, or cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self._raw = path.open("xb")
        self._packed = gzip.GzipFile("", "wb", 6, self._raw, mtime=0)
        self._lock = threading.Lock()  # pages and the log come from two threads
        self._closed = False
        self._write({"kind": "recording", "format": FORMAT})
        self.flush()

    def page(self, time: float, text: str | None, error: str | None = None) -> None:
        row = {"text": text} if text is not None else {"error": error or "no page"}
        self._write({"t": round(time, 3), "kind": "page", **row})

    def answer(self, time: float, kind: Literal["models", "version"], body: str) -> None:
        self._write({"t": round(time, 3), "kind": kind, "body": body})

    def log(self, time: float, line: str) -> None:
        self._write({"t": round(time, 3), "kind": "log", "line": line})

    def flush(self) -> None:
        with self._lock:
            if not self._closed:
                self._packed.flush()
                self._raw.flush()

    def close(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._closed = True
            try:
                self._packed.close()
            finally:
                self._raw.close()

    def _write(self, row: dict[str, Any]) -> None:
        data = json.dumps(row, ensure_ascii=False).encode("utf-8", "replace") + b"\n"
        with self._lock:
            if not self._closed:
                self._packed.write(data)


class Player:
    """Plays a recording: what the server showed at a moment, with counters carried on over loops."""

    def __init__(self, recording: Recording, *, loop: bool = False, start: float = 0.0) -> None:
        self._recording = recording
        self._loop = loop and recording.seconds > 0
        self._start = start
        self._times = [t for t, _ in recording.pages]
        self._growth = _growth(recording) if self._loop else {}

    @property
    def recording(self) -> Recording:
        return self._recording

    def position(self, elapsed: float) -> tuple[int, float]:
        """The loop's number and the place in the recording, `elapsed` seconds into the play."""
        place = self._start + elapsed
        if not self._loop:
            return 0, place
        return divmod_seconds(place, self._recording.seconds)

    def page(self, elapsed: float) -> str | None:
        """The page that the server showed then, or None where it gave none."""
        loops, place = self.position(elapsed)
        index = bisect.bisect_right(self._times, place) - 1
        if index < 0:
            return None
        text = self._recording.pages[index][1]
        return text if text is None or not loops else _carried(text, self._growth, loops)

    def answer(self, kind: str, elapsed: float) -> str | None:
        """What the server's API said then; `kind` is "models" or "version"."""
        recorded = self._recording
        said = recorded.models if kind == "models" else recorded.version
        _, place = self.position(elapsed)
        for time, later, body in recorded.later_answers:
            if later == kind and time <= place:
                said = body
        return said

    def is_over(self, elapsed: float) -> bool:
        """Whether a play without a loop has come to its end: the server is gone then."""
        return not self._loop and self._start + elapsed > self._recording.seconds

    def lines(self, since: float, until: float) -> list[str]:
        """The log lines written in `since < elapsed <= until`; each line once, whatever the loop."""
        _, end = self.position(until)
        loops_before, begin = self.position(since)
        loops, _ = self.position(until)
        if loops > loops_before:
            if loops_before > 0:
                return []  # the second time round the log has nothing new to tell
            end = self._recording.seconds
        elif loops > 0:
            return []
        last = self._recording.seconds if self._loop else float("inf")
        return [line for t, line in self._recording.log if begin < t <= min(end, last)]

    def opening(self) -> list[str]:
        """The lines of the server's start, and all else up to where the play begins."""
        return [line for t, line in self._recording.log if t <= self._start]


def divmod_seconds(place: float, length: float) -> tuple[int, float]:
    loops = int(place // length)
    return loops, place - loops * length


def _growth(recording: Recording) -> dict[str, float]:
    """By how much each counter grew from the first page to the last."""
    shown = [text for _, text in recording.pages if text is not None]
    if len(shown) < 2:
        return {}
    first, last = dict(_counters(shown[0])), dict(_counters(shown[-1]))
    return {series: value - first.get(series, 0.0) for series, value in last.items()}


def _counters(text: str) -> Iterator[tuple[str, float]]:
    kind = ""
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            kind = line.rsplit(" ", 1)[1]
        elif kind in _GROWING_TYPES and not line.startswith("#"):
            series, _, value = line.rpartition(" ")
            if (number := _number(value)) is not None:
                yield series, number


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:  # a page that was damaged, or is none
        return None
    return number if math.isfinite(number) else None


def _carried(text: str, growth: dict[str, float], loops: int) -> str:
    lines, kind = [], ""
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            kind = line.rsplit(" ", 1)[1]
        elif kind in _GROWING_TYPES and not line.startswith("#"):
            series, _, value = line.rpartition(" ")
            if (number := _number(value)) is not None:
                line = f"{series} {number + loops * growth.get(series, 0.0)}"
        lines.append(line)
    return "\n".join(lines) + "\n"
