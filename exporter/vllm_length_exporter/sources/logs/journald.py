"""The log of a systemd unit, by `journalctl`, over the unit's restarts."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from vllm_length_exporter.sources.logs.behind import Behind
from vllm_length_exporter.sources.logs.ending import SIGNALLED, ending
from vllm_length_exporter.sources.logs.feed import Feed
from vllm_length_exporter.sources.logs.lines import Batch, Line, LogError

CHUNK = 65_536
LONGEST = 4 * 1024 * 1024  # bytes of an entry; a longer one is no log line
MICROSECOND = 1_000  # in nanoseconds
FIELDS = (
    "MESSAGE", "MESSAGE_ID", "UNIT", "USER_UNIT", "EXIT_CODE", "EXIT_STATUS", "UNIT_RESULT", "_PID",
    "_SYSTEMD_UNIT", "_SYSTEMD_USER_UNIT", "_SYSTEMD_INVOCATION_ID",
)  # fmt: skip
# What systemd itself says of a unit, by the ids of its message catalogue (`journalctl --list-catalog`).
PROCESS_EXITED = "98e322203f7a4ed290d09fe03c09fe15"
OUT_OF_MEMORY = "fe6faa94e7774663a0da52717891d8ef"
UNIT_ENDED = frozenset(
    {
        "d9b373ed55a64feb8242e02dbe79a49c",  # failed
        "7ad2d189f7e94e70a38c781354912448",  # succeeded
        "9d1aaa27d60140bd96365438aad20286",  # stopped
    }
)


class _Entry(msgspec.Struct):
    """Of any field there may be several values, or bytes: only those that are text are looked at."""

    cursor: str = msgspec.field(name="__CURSOR")
    realtime: int = msgspec.field(name="__REALTIME_TIMESTAMP")  # microseconds of the epoch
    boot: str = msgspec.field(name="_BOOT_ID")
    message: Any = msgspec.field(name="MESSAGE", default=None)
    message_id: Any = msgspec.field(name="MESSAGE_ID", default=None)
    about: Any = msgspec.field(name="UNIT", default=None)
    about_user: Any = msgspec.field(name="USER_UNIT", default=None)
    exit_code: Any = msgspec.field(name="EXIT_CODE", default=None)
    exit_status: Any = msgspec.field(name="EXIT_STATUS", default=None)
    result: Any = msgspec.field(name="UNIT_RESULT", default=None)
    process: Any = msgspec.field(name="_PID", default=None)
    unit: Any = msgspec.field(name="_SYSTEMD_UNIT", default=None)
    user_unit: Any = msgspec.field(name="_SYSTEMD_USER_UNIT", default=None)
    invocation: Any = msgspec.field(name="_SYSTEMD_INVOCATION_ID", default=None)

    @property
    def nanoseconds(self) -> int:
        return self.realtime * MICROSECOND

    def texts(self) -> list[str]:
        """The message's lines; journald gives bytes that are no UTF-8 as numbers."""
        message = self.message
        if isinstance(message, list) and all(isinstance(byte, int) and 0 <= byte < 256 for byte in message):
            message = bytes(message).decode("utf-8", "replace")
        if not isinstance(message, str):
            return []
        return [line.removesuffix("\r") for line in message.split("\n")]


class _Position(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    unit: str
    cursor: str
    boot: str
    realtime: int  # of the entry at the cursor, in nanoseconds
    origin: int


class JournaldLog(Feed):
    """Follows a unit's entries of this boot from the first on, and counts those since the exporter's start.

    With a position, the entries up to it are read for state, and those behind its cursor count. Only lines
    of the unit's own processes are taken: the fields that say so are journald's, not the writer's.
    """

    def __init__(
        self,
        unit: str,
        position: dict[str, object] | None = None,
        *,
        user: bool = False,
        directory: Path | None = None,
    ) -> None:
        super().__init__()
        self._unit = unit if re.search(r"\.[a-z]+$", unit) else f"{unit}.service"
        self._user = user
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None
        kept = _understood(position, self._unit)
        self._kept = kept  # until what stands before it is read
        self._position = kept
        self._origin = kept.origin if kept else time.time_ns()
        self._invocation: str | None = None
        self._exit: tuple[str, int] | None = None  # of the main process: "exited" or "killed", and the number
        self._out_of_memory = False

    def cancel(self) -> None:
        """End journalctl."""
        process = self._process
        if process is not None:
            with suppress(ProcessLookupError):
                process.terminate()

    def follow(self) -> None:
        """Read the entries before the position once, then those behind it, until journalctl ends."""
        if self._kept is not None:
            with suppress(LogError):  # that boot's journal is gone, and with it the state
                self._run(f"--boot={self._kept.boot}", until=self._kept)
            self._kept = None
        if self._position is not None:  # of any boot; a follower looks at the present one only
            self._run(f"--cursor={self._position.cursor}", behind=self._position)
        if self._position is None:
            self._run("--follow", "--no-tail", "--boot")
        else:
            self._run("--follow", "--no-tail", f"--cursor={self._position.cursor}", behind=self._position)

    # --- journalctl

    def _run(self, *options: str, until: _Position | None = None, behind: _Position | None = None) -> None:
        """All entries, those up to a position, or those behind one.

        `--after-cursor` would be shorter, but leaves out an entry where that at the cursor is gone.
        """
        program = shutil.which("journalctl")
        if program is None:
            raise LogError(
                f"journal of {self._unit}: journalctl is not installed here; it is part of systemd"
            )
        command = [program, "--output=json", "--all", "--no-pager", f"--output-fields={','.join(FIELDS)}"]
        command += [f"--user-unit={self._unit}" if self._user else f"--unit={self._unit}", *options]
        if self._directory is not None:
            command.append(f"--directory={self._directory}")
        process = subprocess.Popen(  # noqa: S603  no shell, and a unit's name is one argument
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        self._process = process
        place = None if behind is None else Behind[_Entry](behind.cursor, behind.realtime)
        ended = False
        try:
            ended = self._take_all(process, until, place)
        finally:
            self._process = None
            if not ended:
                process.kill()
            _, said = process.communicate()
        if ended and process.returncode and not self.stopping.is_set():
            reason = (
                said.decode("utf-8", "replace").strip().split("\n")[-1] or f"exit code {process.returncode}"
            )
            raise LogError(f"journal of {self._unit}: journalctl ended: {reason[:300]}")
        if ended and place is not None and not self.stopping.is_set():
            self._hand_on(place.rest(), counted=True)

    def _take_all(
        self, process: subprocess.Popen[bytes], until: _Position | None, place: Behind[_Entry] | None
    ) -> bool:
        """The entries; False where the last that is wanted was reached before journalctl ended."""
        if self.stopping.is_set():
            return False
        for entries in _entries(process):
            self.connected()
            if until is None:
                self._hand_on(entries if place is None else place.take(entries), counted=True)
                continue
            before = [entry for entry in entries if entry.nanoseconds <= until.realtime]
            ends = [index for index, entry in enumerate(before) if entry.cursor == until.cursor]
            self._hand_on(before[: ends[0] + 1] if ends else before, counted=False)
            if ends or len(before) < len(entries):
                return False
        return True

    # --- entries

    def _hand_on(self, entries: list[_Entry], *, counted: bool) -> None:
        lines: list[Line] = []
        for entry in entries:
            if entry.user_unit == self._unit if self._user else entry.unit == self._unit:
                if entry.invocation != self._invocation:
                    lines = self._flushed(lines)
                    self._tell_end(None)
                    if self._invocation is not None:
                        self.hand_on(Batch((), self._kept_position(), restarted=True))
                    self._invocation, self._out_of_memory = entry.invocation, False
                counts = counted and entry.nanoseconds >= self._origin
                lines += [Line(text, counts) for text in entry.texts()]
            elif self._is_the_manager(entry):
                lines = self._flushed(lines)
                self._note_ending(entry)
            if counted:
                self._position = _Position(
                    self._unit, entry.cursor, entry.boot, entry.nanoseconds, self._origin
                )
        self._flushed(lines)

    def _flushed(self, lines: list[Line]) -> list[Line]:
        if lines:
            self.hand_on(Batch(tuple(lines), self._kept_position()))
        return []

    def _is_the_manager(self, entry: _Entry) -> bool:
        """Whether it is systemd's own word about the unit, and nobody else's."""
        if self._user:
            return entry.about_user == self._unit and str(entry.unit).startswith("user@")
        return (entry.about, entry.process) == (self._unit, "1")

    def _note_ending(self, entry: _Entry) -> None:
        if entry.message_id == OUT_OF_MEMORY:
            self._out_of_memory = True
        elif entry.message_id == PROCESS_EXITED and "ain process" in str(entry.message):
            with suppress(ValueError):
                self._exit = (str(entry.exit_code), int(str(entry.exit_status)))
        elif entry.message_id in UNIT_ENDED:
            self._tell_end(entry)

    def _tell_end(self, entry: _Entry | None) -> None:
        if self._exit is None:
            return
        kind, number = self._exit
        self._exit = None
        out_of_memory = self._out_of_memory or (entry is not None and entry.result == "oom-kill")
        code = number if kind == "exited" else SIGNALLED + number
        how = ending(code, out_of_memory=out_of_memory)
        self.hand_on(Batch((), self._kept_position(), ended=how))

    def _kept_position(self) -> dict[str, object] | None:
        if self._position is None:
            return None
        found: dict[str, object] = msgspec.to_builtins(self._position)
        return found


def _entries(process: subprocess.Popen[bytes]) -> Iterator[list[_Entry]]:
    """The entries as they come; what is none is left out."""
    decoder = msgspec.json.Decoder(_Entry, strict=False)
    assert process.stdout is not None
    held, skipping = b"", False
    while data := os.read(process.stdout.fileno(), CHUNK):
        *records, held = (held + data).split(b"\n")
        if skipping and records:
            records, skipping = records[1:], False
        if len(held) > LONGEST or skipping:
            held, skipping = b"", True
        entries = []
        for record in records:
            with suppress(msgspec.DecodeError):
                entries.append(decoder.decode(record))
        yield entries


def _understood(position: dict[str, object] | None, unit: str) -> _Position | None:
    try:
        kept = msgspec.convert(position, _Position)
    except msgspec.ValidationError:
        return None
    return kept if kept.unit == unit else None
