"""Whatever a writer, a rotator and restarts of the exporter do: every line once, and in order."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from io import FileIO
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from vllm_length_exporter.sources.logs import file as module
from vllm_length_exporter.sources.logs.file import FileLog
from vllm_length_exporter.sources.logs.lines import LogError
from vllm_length_exporter.sources.logs.mark import TELLING

REST = "[a_module_with_a_name.py:1] a line that is long enough to be known again, whoever holds it."
assert len(REST) > TELLING


class Rotations(RuleBasedStateMachine):
    """A log's life. `written` are the complete lines since the start, `counted` what the exporter counted."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp())
        self.log = self.directory / "server.log"
        self.patch = pytest.MonkeyPatch()
        self.written: list[str] = []
        self.counted: list[str] = []
        self.number = 0
        self.part = ""
        self.away = False  # renamed, and not opened anew yet

    @initialize(
        old=st.integers(0, 3),
        chunk=st.sampled_from([30, 100, 250, 100_000]),
        part=st.booleans(),
        renames=st.booleans(),
    )
    def begin(self, old: int, chunk: int, part: bool, renames: bool) -> None:
        self.renames = renames  # a log is rotated in one way or in the other
        self.patch.setattr(module, "CHUNK", chunk)
        self.writer = self.opened()
        self.write(old)
        self.written.clear()
        if part:
            self.write_part(10)
        self.source = FileLog(self.log)
        self.position: dict[str, Any] = {}
        self.read_once()

    def opened(self) -> FileIO:
        return self.log.open("ab", buffering=0)

    def line(self) -> str:
        return f"INFO 11-29 16:00:{self.number:06d} {REST}"

    @rule(lines=st.integers(1, 4))
    def write(self, lines: int) -> None:
        for _ in range(lines):
            self.writer.write((self.line().removeprefix(self.part) + "\n").encode())
            self.written.append(self.line())
            self.part = ""
            self.number += 1

    @rule(length=st.integers(1, 60))
    def write_part(self, length: int) -> None:
        more = self.line()[len(self.part) : len(self.part) + length]
        self.writer.write(more.encode())
        self.part += more

    def make_room(self) -> None:
        numbers = [int(file.suffix[1:]) for file in self.directory.glob("server.log.*")]
        for number in sorted(numbers, reverse=True):
            (self.directory / f"server.log.{number}").rename(self.directory / f"server.log.{number + 1}")

    @precondition(lambda self: self.renames and not self.away)
    @rule()
    def rename(self) -> None:
        self.make_room()
        self.log.rename(self.directory / "server.log.1")
        self.away = True

    @precondition(lambda self: self.away and not self.part)
    @rule()
    def reopen(self) -> None:
        self.writer.close()
        self.writer = self.opened()
        self.away = False

    def copy_can_be_known(self) -> bool:
        """A copy is known by the text that was read of its original, so some must have been."""
        status = self.log.stat()
        kept = self.position["inode"] == status.st_ino and self.position["seen"] < TELLING
        file, mark = self.source._file, self.source._mark
        live = file is not None and file.inode == status.st_ino and mark.seen < TELLING
        return not (kept or live) or status.st_size == 0

    @precondition(lambda self: not self.renames and self.copy_can_be_known())
    @rule()
    def copy_and_truncate(self) -> None:
        self.make_room()
        shutil.copyfile(self.log, self.directory / "server.log.1")
        os.truncate(self.log, 0)

    def read_once(self) -> bool:
        try:
            batch = self.source.read()
        except LogError:
            assert self.away
            return False
        assert not batch.restarted
        self.counted += [line.text for line in batch.lines if line.counted]
        self.position = json.loads(json.dumps(batch.position))
        return batch.more

    @rule(times=st.integers(1, 5))
    def read(self, times: int) -> None:
        for _ in range(times):
            self.read_once()

    @rule()
    def drain(self) -> None:
        for _ in range(5_000):
            if not self.read_once():
                break
        else:
            pytest.fail("there is always more")
        if not self.away:
            assert self.counted == self.written

    @rule()
    def restart(self) -> None:
        self.source.close()
        self.source = FileLog(self.log, self.position)

    @invariant()
    def nothing_is_lost_doubled_or_out_of_order(self) -> None:
        assert self.counted == self.written[: len(self.counted)]

    def teardown(self) -> None:
        try:
            if self.part:
                self.write(1)
            if self.away:
                self.reopen()
            self.write(1)
            self.drain()
        finally:
            self.source.close()
            self.writer.close()
            self.patch.undo()
            shutil.rmtree(self.directory)


TestRotations = Rotations.TestCase
TestRotations.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
