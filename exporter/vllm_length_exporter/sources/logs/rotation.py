"""The files that a log was rotated into, as logrotate, kubelet and the Docker daemon name them."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

from vllm_length_exporter.sources.logs.lines import LogError
from vllm_length_exporter.sources.logs.opened import OpenFile

SUFFIX = re.compile(r"[.-](\d[\d\-T_:.]*)")
PACKED = re.compile(r"[.-]\d[\d\-T_:.]*\.(gz|bz2|xz|zst|lz4)")


def earlier_file(log: Path, wanted: Callable[[OpenFile], bool]) -> OpenFile | None:
    """The newest of the log's earlier files that is wanted, opened."""
    for path in reversed(_rotated(log)):
        try:
            file = OpenFile.at(path)
        except LogError:  # removed or compressed meanwhile
            continue
        if wanted(file):
            return file
        file.close()
    return None


def file_after(log: Path, file: OpenFile) -> OpenFile | None:
    """The earlier file that was written next after this one, which is an earlier file itself."""
    after: OpenFile | None = None
    for path in reversed(_rotated(log)):
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


def packed_at(log: Path, modified: float) -> bool:
    """Whether an earlier file was compressed that was last written at `modified`: packers keep that time."""
    for file, _ in _siblings(log, PACKED):
        try:
            if int(file.stat().st_mtime) == int(modified):
                return True
        except OSError:  # removed meanwhile
            continue
    return False


def _rotated(log: Path) -> list[Path]:
    """Oldest first: `.1` is newer than `.2`, and dates sort as text."""
    found = _siblings(log, SUFFIX)
    if all(len(match[1]) <= 4 and match[1].isdecimal() for _, match in found):
        found.sort(key=lambda item: -int(item[1][1]))
    else:
        found.sort(key=lambda item: item[1][1])
    return [file for file, _ in found]


def _siblings(log: Path, suffix: re.Pattern[str]) -> list[tuple[Path, re.Match[str]]]:
    real = Path(os.path.realpath(log))
    try:
        files = [file for file in real.parent.iterdir() if file.name.startswith(real.name)]
    except OSError:  # a directory that may be passed through but not listed
        return []
    matches = ((file, suffix.fullmatch(file.name.removeprefix(real.name))) for file in files)
    return [(file, match) for file, match in matches if match is not None]
