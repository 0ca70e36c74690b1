"""Where to go on after the exporter's own restart: log positions and log counters, in one file.

Both are of the same moment and replaced together, so that a line is counted once whatever ends the process.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import msgspec

from vllm_length_exporter.server import Counts

FILE_NAME = "resume.json"
FORMAT = 1


class ResumeError(Exception):
    """The state cannot be read or written; the message is one line with the path."""


@dataclass(frozen=True, slots=True)
class Point:
    """One server's log position (opaque, as its source gave it) and counters."""

    position: dict[str, object] | None
    counts: Counts


class _Saved(msgspec.Struct):
    format: int
    servers: dict[str, Point]


def load(folder: Path) -> dict[str, Point]:
    """The points by server name; empty where nothing was saved yet.

    Raises:
        ResumeError: the file is there and cannot be used.
    """
    path = folder / FILE_NAME
    try:
        saved = msgspec.json.decode(path.read_bytes(), type=_Saved)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise ResumeError(f"{path}: cannot be read: {error.strerror}") from error
    except msgspec.DecodeError as error:
        raise ResumeError(f"{path}: is no resume file ({error}); move it away to begin anew") from error
    if saved.format != FORMAT:
        raise ResumeError(
            f"{path}: format {saved.format}, this program reads {FORMAT}; move it away to begin anew"
        )
    return saved.servers


def save(folder: Path, points: dict[str, Point]) -> None:
    """Replace the file as a whole.

    Raises:
        ResumeError: it cannot be written (no space, no permission).
    """
    path, fresh = folder / FILE_NAME, folder / (FILE_NAME + ".new")
    try:
        with fresh.open("wb") as out:
            out.write(msgspec.json.encode(_Saved(FORMAT, points)))
            out.flush()
            os.fsync(out.fileno())
        fresh.replace(path)
    except OSError as error:
        raise ResumeError(f"{path}: cannot be written: {error.strerror}") from error
