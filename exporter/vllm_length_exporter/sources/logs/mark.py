"""A place in a file that is known again by what stands before it, whatever the file is called by then."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from vllm_length_exporter.sources.logs.opened import OpenFile

SAMPLE = 256  # bytes looked at, at the file's beginning and right before the place
TELLING = 64  # with fewer before the place, another file may begin alike


@dataclass(frozen=True, slots=True)
class Mark:
    """A place `seen` bytes into a file, with what was read at the beginning and right before it.

    A file that only grows keeps both; one that was truncated and written anew has other time stamps there.
    """

    seen: int = 0
    head: bytes = b""
    tail: bytes = b""

    @classmethod
    def at(cls, file: OpenFile, seen: int) -> Mark:
        """The mark for a place in an open file."""
        size = min(SAMPLE, seen)
        return cls(seen, file.read(0, size), file.read(seen - size, size))

    def after(self, data: bytes) -> Mark:
        """The mark behind these bytes, which stand at this one."""
        head = self.head if len(self.head) == SAMPLE else (self.head + data)[:SAMPLE]
        return Mark(self.seen + len(data), head, (self.tail + data[-SAMPLE:])[-SAMPLE:])

    def within(self, file: OpenFile) -> bool:
        """Whether the file is still, or again, the one that was marked, or a copy of it."""
        return Mark.at(file, self.seen) == self

    def digest(self) -> str:
        """What to keep of the mark in a file of ours: nothing of the log's text."""
        return hashlib.sha256(self.head + self.tail).hexdigest()[:32]
