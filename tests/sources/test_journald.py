from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.sources import endless_journalctl
from tests.sources.collected import Collected
from tests.sources.journal import OUT_OF_MEMORY, SECOND, STARTED, Journal, now
from tests.tools.cache import TOOLS
from vllm_length_exporter.sources.logs import feed
from vllm_length_exporter.sources.logs.journald import JournaldLog

OLD = 1_700_000_000 * SECOND  # before any exporter's start


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "SHORTEST", 0.01)
    monkeypatch.setattr(feed, "LONGEST", 0.2)


@pytest.fixture
def journal(tool: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Journal]:
    root = TOOLS / "bookworm"
    remote = tool("systemd-journal-remote", suite="bookworm")
    libraries = [
        str(path) for path in (*root.glob("usr/lib/*-linux-gnu/systemd"), *root.glob("usr/lib/*-linux-gnu"))
    ]
    environment = {**os.environ, "LD_LIBRARY_PATH": ":".join(libraries)}
    if shutil.which("journalctl") is None:
        monkeypatch.setenv("PATH", f"{tool('journalctl', suite='bookworm').parent}:{os.environ['PATH']}")
        monkeypatch.setenv("LD_LIBRARY_PATH", environment["LD_LIBRARY_PATH"])
    made = Journal(tmp_path / "journal", remote, environment)
    yield made
    made.rotate()


@contextmanager
def following(
    journal: Journal, position: dict[str, Any] | None = None, unit: str = "vllm"
) -> Iterator[Collected]:
    source = JournaldLog(unit, position, directory=journal.directory)
    try:
        yield Collected(source)
    finally:
        begin = time.monotonic()
        source.close()
        assert time.monotonic() - begin < 2


def test_old_lines_do_not_count_and_new_ones_do(journal: Journal) -> None:
    journal.line(OLD, "one", "two")
    with following(journal) as found:
        found.until_told("one", "two")
        journal.line(now(), "three")
        journal.line(now(), "of another", unit="other.service")
        journal.line(now(), "four")
        found.until_told("one", "two", "three", "four")
        assert found.counted == ["three", "four"]


def test_an_empty_journal_is_one_line_and_is_tried_again(journal: Journal) -> None:
    with following(journal) as found:
        found.until(lambda: found.errors)
        assert found.errors[0].startswith("journal of vllm.service: journalctl ended: ")
        assert "\n" not in found.errors[0]
        journal.line(now(), "one")
        found.until_told("one")


def test_messages_of_several_lines_of_bytes_and_of_great_length(journal: Journal) -> None:
    journal.line(OLD, "first\nsecond\r\n third", b"a\xff\xfeb", "x" * 20_000, "\x1b[36mcolour\x1b[0m")
    with following(journal) as found:
        found.until_told("first", "second", " third", "a\ufffd\ufffdb", "x" * 20_000, "\x1b[36mcolour\x1b[0m")


def test_only_the_unit_s_own_processes_are_believed(journal: Journal) -> None:
    """`UNIT=` is written by whoever wants to; `_SYSTEMD_UNIT` and `_PID` are journald's."""
    journal.line(OLD, "one")
    journal.line(OLD, "a lie", unit="evil.service", UNIT="vllm.service")
    journal.manager(OLD, "vllm.service: Main process exited", "98e322203f7a4ed290d09fe03c09fe15", pid="666",
                    EXIT_CODE="killed", EXIT_STATUS="9", _SYSTEMD_UNIT="evil.service")  # fmt: skip
    journal.manager(
        OLD, "failed", "d9b373ed55a64feb8242e02dbe79a49c", pid="666", _SYSTEMD_UNIT="evil.service"
    )
    journal.line(OLD, "two")
    with following(journal) as found:
        found.until_told("one", "two")


@pytest.mark.parametrize(
    ("code", "status", "result", "said"),
    [
        ("exited", "1", "exit-code", "exit code 1"),
        ("exited", "0", "success", "exit code 0"),
        ("killed", "9", "signal", "SIGKILL (137)"),
        ("killed", "9", "oom-kill", "OOMKilled (137)"),
        ("dumped", "6", "core-dump", "SIGABRT (134)"),
    ],
)
def test_the_end_is_told_after_the_last_line_and_before_the_next_start(
    code: str, status: str, result: str, said: str, journal: Journal
) -> None:
    journal.line(OLD, "one")
    journal.die(OLD + 1, code, status, result)
    journal.manager(OLD + 2, "Started vllm.service", STARTED)
    journal.invocation = "2" * 32
    journal.line(OLD + 3, "two")
    with following(journal) as found:
        found.until_told("one", f"<ended: {said}>", "<restarted>", "two")


def test_a_child_that_was_killed_for_memory_is_the_reason(journal: Journal) -> None:
    journal.line(OLD, "one")
    journal.manager(OLD + 1, "A process of this unit has been killed by the OOM killer.", OUT_OF_MEMORY)
    journal.die(OLD + 2, "exited", "1")
    with following(journal) as found:
        found.until_told("one", "<ended: OOMKilled (1)>")


def test_an_end_without_systemd_s_last_word_is_told_at_the_next_start(journal: Journal) -> None:
    journal.line(OLD, "one")
    words = "vllm.service: Main process exited, code=killed, status=15/TERM"
    journal.manager(OLD, words, "98e322203f7a4ed290d09fe03c09fe15", EXIT_CODE="killed", EXIT_STATUS="15")
    journal.invocation = "2" * 32
    journal.line(OLD + 1, "two")
    with following(journal) as found:
        found.until_told("one", "<ended: SIGTERM (143)>", "<restarted>", "two")


def test_journalctl_may_die_and_files_may_be_rotated_and_each_line_comes_once(journal: Journal) -> None:
    expected: list[str] = []
    at = now()
    with following(journal) as found:
        source = found.source
        assert isinstance(source, JournaldLog)
        for turn in range(4):
            lines = [f"line {turn} {number}" for number in range(50)]
            at += SECOND
            journal.line(at, *lines[:25])
            if turn % 2:
                journal.rotate()
            expected += lines
            journal.line(at + 1, *lines[25:])
            found.until(lambda: len(found.told) >= len(expected) - 20)  # noqa: B023  called in this turn
            if source._process is not None:
                source._process.kill()
        found.until(lambda: len(found.told) >= len(expected))
        journal.line(at + 2, "last")
        found.until(lambda: found.told[-1:] == ["last"])
    assert found.told == [*expected, "last"]
    assert found.counted == found.told


def test_after_a_restart_of_the_exporter_each_line_counts_once(journal: Journal) -> None:
    journal.line(OLD, "old")
    at, position = now(), None
    expected: list[str] = []
    counted: list[str] = []
    for turn in range(4):
        lines = [f"line {turn} {number}" for number in range(3)]  # all of one moment
        journal.line(at, *lines)
        if turn == 2:
            journal.rotate()
        expected += lines
        with following(journal, position) as found:
            found.until(lambda: len(found.told) >= len(expected) + 1)  # noqa: B023  called in this turn
        assert found.told == ["old", *expected]  # for state, from the boot's beginning
        counted += found.counted
        position = found.kept()
    assert counted == expected
    assert "line" not in str(position)


def test_the_last_words_before_a_reboot_count(journal: Journal) -> None:
    at = now()
    journal.line(at, "one")
    with following(journal) as found:
        found.until_told("one")
        position = found.kept()
    journal.line(at + 1, "last words")
    journal.rotate()
    journal.boot, journal.invocation = "b" * 32, "2" * 32
    journal.line(at + SECOND, "two")
    journal.rotate()
    with following(journal, position) as found:
        found.until_told("one", "last words", "<restarted>", "two")
        assert found.counted == ["last words", "two"]
        journal.line(at + 2 * SECOND, "three")
        found.until_told("one", "last words", "<restarted>", "two", "three")


def test_a_first_look_is_at_the_present_boot_alone(journal: Journal) -> None:
    journal.line(OLD, "of the boot before")
    journal.boot = "b" * 32
    journal.line(OLD + SECOND, "one")
    with following(journal) as found:
        found.until_told("one")


def test_a_journal_that_was_thrown_away_is_gone_on_with(journal: Journal) -> None:
    at = now()
    journal.line(at, "one")
    with following(journal) as found:
        found.until_told("one")
        position = found.kept()
    journal.rotate()
    for file in journal.directory.iterdir():
        file.unlink()
    journal.boot = "b" * 32
    journal.line(at + SECOND, "two", "three")
    with following(journal, position) as found:
        found.until_told("two", "three")
        assert found.counted == ["two", "three"]


def test_a_position_of_another_unit_is_ignored(journal: Journal) -> None:
    journal.line(OLD, "one")
    with following(journal) as found:
        found.until_told("one")
        position = found.kept()
    journal.line(now(), "two", unit="other.service")
    with following(journal, position, unit="other") as found:
        found.until_told("two")


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_backlog_of_a_million_lines_comes_once_over_deaths_of_journalctl(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "journalctl"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} {endless_journalctl.__file__} "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    source = JournaldLog("vllm")
    found = Collected(source)
    try:
        for part in (100_000, 400_000):
            found.until(lambda: len(found.told) >= part, seconds=100)  # noqa: B023  called in this turn
            assert source._process is not None
            source._process.kill()
        found.until(lambda: len(found.told) >= 1_000_000, seconds=200)
    finally:
        source.close()
    assert found.told == [str(number) for number in range(1_000_000)]


def test_without_journalctl_it_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    source = JournaldLog("vllm")
    found = Collected(source)
    try:
        found.until(lambda: found.errors)
    finally:
        source.close()
    assert found.errors == [
        "journal of vllm.service: journalctl is not installed here; it is part of systemd"
    ]
