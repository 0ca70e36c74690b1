"""Where the reading of a log's file stood, kept over a restart of the exporter."""

from __future__ import annotations

from typing import Any

import msgspec

from vllm_length_exporter.sources.logs.mark import TELLING, Mark
from vllm_length_exporter.sources.logs.opened import OpenFile


class Position(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Lines that end at or before `offset` have been counted; `seen` bytes were read, known by `digest`."""

    path: str
    device: int
    inode: int
    offset: int
    seen: int
    digest: str
    copied: bool = False  # the file is a copy from before the log was truncated

    @classmethod
    def understood(cls, kept: dict[str, object] | None, path: str) -> Position | None:
        """The position as it was kept; None where there is none for this path."""
        try:
            position = msgspec.convert(kept, cls)
        except msgspec.ValidationError:
            return None
        sound = position.path == path and 0 <= position.offset <= position.seen
        return position if sound else None

    def kept(self) -> dict[str, Any]:
        """The position as it can be written as JSON."""
        return msgspec.structs.asdict(self)

    def same_file(self, file: OpenFile) -> bool:
        """Whether it is the very file, by number and by content."""
        return self.numbers(file) and self._same_text(file)

    def numbers(self, file: OpenFile) -> bool:
        """Whether it is the file with these numbers, which may be another one's by now."""
        return (file.device, file.inode) == (self.device, self.inode)

    def same_copy(self, file: OpenFile) -> bool:
        """Whether the file holds the same text: a copy, or the file itself under another device number."""
        return self.seen >= TELLING and self._same_text(file)

    def _same_text(self, file: OpenFile) -> bool:
        return Mark.at(file, self.seen).digest() == self.digest
