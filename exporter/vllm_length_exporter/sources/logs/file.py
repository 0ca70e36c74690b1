"""A log in a file that grows, is rotated by rename or copy-and-truncate, or is replaced."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from itertools import repeat
from pathlib import Path

from vllm_length_exporter.sources.logs.assembly import Assembler
from vllm_length_exporter.sources.logs.lines import Batch, Line, LogError
from vllm_length_exporter.sources.logs.mark import TELLING, Mark
from vllm_length_exporter.sources.logs.opened import OpenFile
from vllm_length_exporter.sources.logs.position import Position
from vllm_length_exporter.sources.logs.rotation import MovingError, earlier_file, file_after, packed_at

CHUNK = 65_536  # bytes a read: a log of 10 GB is read in 160,000 short steps, and none of it is kept


class FileLog:
    """Follows the file at a path: bounded work and memory for each read, no event lost or counted twice.

    The file is read from its beginning, for state. Its lines count when they ended after this object was
    made, or behind `position`, which is a batch's position from an earlier run. Where the log was rotated
    meanwhile, its earlier file is found beside it by content and read first, unless it was compressed.

    A line without its end is held until the rest comes, however long that takes: a writer with a buffer
    stops in the middle of a number. It is handed on when its file is finished by rotation, truncation or
    removal (not if it ends in a digit then), and at the end of the file when that is not followed.
    """

    def __init__(
        self, path: str | Path, position: dict[str, object] | None = None, *, follow: bool = True
    ) -> None:
        self.path = Path(path)
        self._follow = follow
        self._position = Position.understood(position, str(path))
        self._found = None if self._position else _status(self.path)
        self._started = time.time() - 1  # file systems' clocks are coarse
        self._file: OpenFile | None = None
        self._restarted = False
        self._closed = False
        self._lock = threading.Lock()  # a reload may close the source while a thread reads it
        self._reset()
        with suppress(LogError, OSError):  # the first read says so, if it is still so
            self._file = self._begin()

    def read(self) -> Batch:
        """The next lines, at most a chunk of them.

        Raises:
            LogError: the file is missing, no file, or cannot be read; the next read tries again.
        """
        with self._lock:
            if self._closed:
                return Batch()
            try:
                if self._file is None:
                    self._file = self._begin()
                return self._read(self._file)
            except (
                OSError
            ) as error:  # a failing disk, a stale handle: on from the position, with a new handle
                self._let_go()
                raise LogError(f"log {self.path}: {error.strerror}") from None

    def close(self) -> None:
        """Let go of the file; nothing more is read."""
        with self._lock:
            self._closed = True
            self._let_go()

    def _let_go(self) -> None:
        if self._file is not None:
            self._file.close()
        self._file = None

    def _reset(self) -> None:
        self._assembler = Assembler()
        self._mark = Mark()  # how far the file in hand was read
        self._boundary = Mark()  # lines of it that end behind here count
        self._aligned = 0  # where its first line begins that was not handed on
        self._joining = False  # the held line began in a copy, and ends in the file in hand

    # --- opening

    def _begin(self) -> OpenFile:
        """The file to read first, from its beginning."""
        file = OpenFile.at(self.path)
        self._reset()
        self._real = os.path.realpath(self.path)
        position = self._position
        if position is None:
            self._boundary = self._old_part(file)
        elif position.same_file(file):
            self._boundary = Mark.at(file, position.offset)
        elif moved := earlier_file(self.path, position.same_file):
            file = self._resumed(file, moved, position)
            file.copied = position.copied
        elif position.same_copy(file):
            self._boundary = Mark.at(file, position.offset)
        elif copy := earlier_file(self.path, position.same_copy):
            file = self._resumed(file, copy, position)
            file.copied = True
        else:
            self._restarted = True
        self._note(file)
        return file

    def _resumed(self, file: OpenFile, earlier: OpenFile, position: Position) -> OpenFile:
        file.close()
        self._boundary = Mark.at(earlier, position.offset)
        return earlier

    def _old_part(self, file: OpenFile) -> Mark:
        """Up to where the file was written before the exporter's start."""
        found, self._found = self._found, None  # its number may be given to another file later
        status = file.status()
        if found is not None and file.is_at(found) and found.st_size <= status.st_size:
            return Mark.at(file, found.st_size)
        return Mark.at(file, status.st_size) if status.st_mtime < self._started else Mark()

    # --- reading

    def _read(self, file: OpenFile) -> Batch:
        target = _status(self.path)  # before the reading: a writer leaves the old file, then fills the new
        seen = self._mark.seen
        size = min(CHUNK, self._boundary.seen - seen) if seen < self._boundary.seen else CHUNK
        data = file.read(seen, size)
        if not self._known.within(file):
            return self._truncated(file)
        moved = self._follow and (target is None or not file.is_at(target))
        if data:
            return self._batch(
                self._taken(file, data), more=len(data) == size or (moved and target is not None)
            )
        if moved and (successor := self._successor(file, target)):
            return self._finished(file, successor)
        if not self._follow:
            return self._batch(self._unfinished(file, sure=True))
        if target is None and not file.status().st_nlink:
            if not self._assembler.holds:
                raise LogError(f"log {self.path}: the file was removed; a new one is read once it appears")
            return self._batch(self._unfinished(file))
        return self._batch(())

    @property
    def _known(self) -> Mark:
        """The furthest place of the file in hand whose content is known."""
        return self._boundary if self._mark.seen < self._boundary.seen else self._mark

    def _taken(self, file: OpenFile, data: bytes) -> Iterable[Line]:
        seen = self._mark.seen
        if not data[0] and not data.strip(b"\0"):  # a hole, perhaps of many gigabytes
            self._mark = Mark.at(file, max(file.data_after(seen), seen + len(data)))
            if not self._assembler.holds:
                self._aligned = self._mark.seen
            self._note(file)
            return ()
        texts = self._assembler.feed(data)
        self._mark = self._mark.after(data)
        if texts:
            self._aligned = seen + data.rindex(b"\n") + 1
            self._joining = False
        self._note(file)
        return map(Line, texts, repeat(seen >= self._boundary.seen))

    def _unfinished(self, file: OpenFile, *, sure: bool = False) -> list[Line]:
        counted = self._mark.seen > self._boundary.seen or not self._boundary.seen
        lines = [Line(text, counted) for text in self._assembler.finish(sure=sure)]
        self._aligned = self._mark.seen
        self._note(file)
        return lines

    # --- from one file to the next

    def _successor(self, file: OpenFile, target: os.stat_result | None) -> OpenFile | None:
        """The file that was written after the one in hand."""
        try:
            following = file_after(self.path, file)
        except MovingError:
            return None
        if following is not None:
            following.copied = file.copied
            return following
        if target is None or not target.st_size:  # the writer has not left the file in hand
            return None
        successor = OpenFile.at(self.path)
        if successor.is_at(target):
            return successor
        successor.close()  # rotated once more meanwhile: the next read finds what lies between
        return None

    def _finished(self, file: OpenFile, successor: OpenFile) -> Batch:
        """The file in hand has ended, and another one follows."""
        self._file = successor
        if self._mark.seen >= TELLING and self._mark.within(successor):  # an editor wrote it anew
            file.close()
            self._note(successor)
            return self._batch((), more=True)
        lines: list[Line] = []
        self._joining = file.copied and self._assembler.holds
        if not self._joining:
            lines = self._unfinished(file)
        status, real = file.status(), os.path.realpath(self.path)
        file.close()
        replaced = not status.st_nlink and not packed_at(self.path, status.st_mtime)
        self._restarted = replaced or real != self._real
        self._real = real
        self._mark, self._boundary, self._aligned = Mark(), Mark(), 0
        if self._restarted:
            self._boundary = self._old_part(successor)
        self._note(successor)
        return self._batch(lines, more=True, old=True)

    def _truncated(self, file: OpenFile) -> Batch:
        """What was read is no longer there: its rest is in a copy, or lost."""
        known = self._known
        copy: OpenFile | None = None
        if known.seen >= TELLING:
            copy = earlier_file(self.path, lambda other: not other.same_as(file) and known.within(other))
        if copy is not None:
            file.close()
            self._file = copy
            copy.copied = True
            self._note(copy)
            return self._batch((), more=True, old=True)
        lines = self._unfinished(file)
        self._reset()
        self._restarted = True
        self._note(file)
        return self._batch(lines, more=True, old=True)

    # --- handing on

    def _note(self, file: OpenFile) -> None:
        """Keep the position, but not in the middle of a line that began in another file."""
        if not self._joining:
            known = self._known
            self._position = Position(
                str(self.path),
                file.device,
                file.inode,
                max(self._aligned, self._boundary.seen),
                known.seen,
                known.digest(),
                file.copied,
            )

    def _batch(self, lines: Iterable[Line], *, more: bool = False, old: bool = False) -> Batch:
        """The lines as a batch; `old` ones still belong to the log before it began anew."""
        restarted = self._restarted and not old
        self._restarted &= old
        position = None if self._position is None else self._position.kept()
        return Batch(tuple(lines), position, more, restarted)


def _status(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except OSError:
        return None
