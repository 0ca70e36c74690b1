"""A log's file, held open: what it was stays readable when it is renamed or removed."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path

from vllm_length_exporter.sources.logs.lines import LogError


@dataclass(slots=True)
class OpenFile:
    """One open file of a log.

    `copied` says that it is a copy from before the log was truncated, so that its last line, when
    unfinished, goes on in the next file.
    """

    descriptor: int
    device: int
    inode: int
    copied: bool = False

    @classmethod
    def at(cls, path: Path) -> OpenFile:
        """Open a file for reading.

        Raises:
            LogError: it is missing, unreadable or no file.
        """
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            raise LogError(f"log {path}: no such file; it is read as soon as it appears") from None
        except PermissionError:
            raise LogError(
                f"log {path}: permission denied; the exporter must be allowed to read it"
            ) from None
        except OSError as error:
            raise LogError(f"log {path}: {error.strerror}") from None
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            os.close(descriptor)
            directory = stat.S_ISDIR(status.st_mode)
            advice = "a directory; name the file" if directory else "no regular file; pipe it to `--log -`"
            raise LogError(f"log {path}: this is {advice}")
        return cls(descriptor, status.st_dev, status.st_ino)

    def is_at(self, status: os.stat_result) -> bool:
        """Whether this file is the one with that status."""
        return (status.st_dev, status.st_ino) == (self.device, self.inode)

    def same_as(self, other: OpenFile) -> bool:
        """Whether both are one file."""
        return (self.device, self.inode) == (other.device, other.inode)

    def status(self) -> os.stat_result:
        """The status of the open file, whatever its path means by now."""
        return os.fstat(self.descriptor)

    def read(self, offset: int, size: int) -> bytes:
        """At most `size` bytes from `offset` on, none at the end."""
        return os.pread(self.descriptor, size, offset)

    def data_after(self, offset: int) -> int:
        """Where the next data stands behind a hole, or the file's end."""
        try:
            return os.lseek(self.descriptor, offset, os.SEEK_DATA)
        except OSError:  # none does
            return self.status().st_size

    def close(self) -> None:
        """Let go of the file."""
        os.close(self.descriptor)
