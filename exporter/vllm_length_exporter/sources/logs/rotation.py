"""The files that a log was rotated into, as logrotate, kubelet and the Docker daemon name them."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

from vllm_length_exporter.sources.logs.lines import LogError
from vllm_length_exporter.sources.logs.opened import OpenFile

SUFFIX = re.compile(r"[.-](\d[\d\-T_:.]*)")
TRIES = 5  # to find the files at rest
PACKED = re.compile(r"[.-]\d[\d\-T_:.]*\.(gz|bz2|xz|zst|lz4)")


class MovingError(LogError):
    """The files are being renamed just now, so which is which is not to be known; the next read tries again."""


def earlier_file(log: Path, wanted: Callable[[OpenFile], bool]) -> OpenFile | None:
    """The newest of the log's earlier files that is wanted, opened. Raises MovingError."""

    def search(paths: list[Path]) -> OpenFile | None:
        for path in paths:
            try:
                file = OpenFile.at(path)
            except LogError:  # removed or compressed meanwhile
                continue
            if wanted(file):
                return file
            file.close()
        return None

    return _at_rest(log, search)


def file_after(log: Path, file: OpenFile) -> OpenFile | None:
    """The earlier file that was written next after this one, which is an earlier file itself. Raises MovingError."""

    def search(paths: list[Path]) -> OpenFile | None:
        after: OpenFile | None = None
        for path in paths:
            try:
                other = OpenFile.at(path)
            except LogError:
                continue
            if other.same_as(file):
                other.close()
                return after
            if after is not None:
                after.close()
            after = other
        if after is not None:
            after.close()
        return None

    return _at_rest(log, search)


def _at_rest(log: Path, search: Callable[[list[Path]], OpenFile | None]) -> OpenFile | None:
    """What `search` finds among the earlier files, newest first, if none got another name meanwhile.

    A rotation renames one file after the other: a search in between would pass over some of them.
    """
    for _ in range(TRIES):
        before = _rotated(log)
        found = search([path for path, _ in reversed(before)])
        if _rotated(log) == before:
            return found
        if found is not None:
            found.close()
    raise MovingError(f"log {log}: its earlier files are being renamed; they are read once that is done")


def packed_at(log: Path, modified: float) -> bool:
    """Whether an earlier file was compressed that was last written at `modified`: packers keep that time."""
    for file, _, _ in _siblings(log, PACKED):
        try:
            if int(file.stat().st_mtime) == int(modified):
                return True
        except OSError:  # removed meanwhile
            continue
    return False


def _rotated(log: Path) -> list[tuple[Path, int]]:
    """The earlier files with their inodes, oldest first: `.1` is newer than `.2`, and dates sort as text."""
    found = _siblings(log, SUFFIX)
    if all(len(match[1]) <= 4 and match[1].isdecimal() for _, _, match in found):
        found.sort(key=lambda item: -int(item[2][1]))
    else:
        found.sort(key=lambda item: item[2][1])
    return [(file, inode) for file, inode, _ in found]


def _siblings(log: Path, suffix: re.Pattern[str]) -> list[tuple[Path, int, re.Match[str]]]:
    real = Path(os.path.realpath(log))
    try:
        with os.scandir(real.parent) as entries:
            files = [
                (Path(entry.path), entry.inode()) for entry in entries if entry.name.startswith(real.name)
            ]
    except OSError:  # a directory that may be passed through but not listed
        return []
    matches = ((file, inode, suffix.fullmatch(file.name.removeprefix(real.name))) for file, inode in files)
    return [(file, inode, match) for file, inode, match in matches if match is not None]
