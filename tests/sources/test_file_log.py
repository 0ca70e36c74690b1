from __future__ import annotations

import json
import os
import resource
import shutil
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from vllm_length_exporter.sources.logs.assembly import LIMIT
from vllm_length_exporter.sources.logs.file import CHUNK, FileLog
from vllm_length_exporter.sources.logs.lines import Batch, LogError

STAMP = "INFO 11-29 16:00:00 [a_module_with_a_name.py:1] a line that is long enough to be known again: "


def text(*numbers: int) -> str:
    return "".join(f"{STAMP}{number}.\n" for number in numbers)


def append(log: Path, what: str | bytes) -> None:
    with log.open("ab") as file:
        file.write(what.encode() if isinstance(what, str) else what)


def drain(source: FileLog) -> list[Batch]:
    """All batches until the source has no more at once."""
    batches = [source.read()]
    while batches[-1].more:
        batches.append(source.read())
    return batches


def texts(batches: list[Batch]) -> list[str]:
    return [line.text for batch in batches for line in batch.lines]


def numbers(batches: list[Batch]) -> list[str]:
    """The numbers at the lines' ends, with a `-` before those that do not count."""
    lines = [line for batch in batches for line in batch.lines]
    return [("" if line.counted else "-") + line.text.removeprefix(STAMP).rstrip(".") for line in lines]


def last_position(batches: list[Batch]) -> dict[str, object] | None:
    """The position as the next run of the exporter finds it."""
    return json.loads(json.dumps(batches[-1].position))  # type: ignore[no-any-return]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "server.log"


@pytest.fixture(autouse=True)
def _no_file_is_left_open() -> Iterator[None]:
    def open_files() -> list[str]:
        files = (entry.readlink() for entry in Path("/proc/self/fd").iterdir() if entry.is_symlink())
        return [str(file) for file in files if "server.log" in file.name]

    yield
    assert open_files() == []


def test_old_lines_do_not_count_and_new_ones_do(log: Path) -> None:
    append(log, text(1, 2))
    source = FileLog(log)
    append(log, text(3))
    assert numbers(drain(source)) == ["-1", "-2", "3"]
    append(log, text(4))
    assert numbers(drain(source)) == ["4"]
    assert source.read().lines == ()
    source.close()


def test_a_line_that_was_half_written_at_the_start_counts(log: Path) -> None:
    append(log, text(1) + STAMP)
    source = FileLog(log)
    assert numbers(drain(source)) == ["-1"]
    append(log, "2.\n")
    assert numbers(drain(source)) == ["2"]
    source.close()


def test_a_file_that_appears_later_counts_from_its_beginning(log: Path) -> None:
    source = FileLog(log)
    for _ in range(2):
        with pytest.raises(LogError, match=r"server\.log: no such file; it is read as soon as it appears"):
            source.read()
    append(log, text(1))
    assert numbers(drain(source)) == ["1"]
    source.close()


def test_an_old_file_that_is_moved_into_place_does_not_count(log: Path) -> None:
    source = FileLog(log)
    old = log.with_name("old")
    append(old, text(1))
    os.utime(old, (1_700_000_000, 1_700_000_000))
    old.rename(log)
    assert numbers(drain(source)) == ["-1"]
    append(log, text(2))
    assert numbers(drain(source)) == ["2"]
    source.close()


def test_a_half_written_line_is_held_until_its_end(log: Path) -> None:
    log.touch()
    source = FileLog(log)
    append(log, STAMP + "1")
    for _ in range(3):
        assert drain(source)[-1].lines == ()
    append(log, "0\n" + STAMP)
    assert numbers(drain(source)) == ["10"]
    append(log, "2\n")
    assert numbers(drain(source)) == ["2"]
    source.close()


def test_a_file_that_is_not_followed_gives_its_unfinished_last_line(log: Path) -> None:
    append(log, text(1) + STAMP + "22")
    source = FileLog(log, follow=False)
    assert numbers(drain(source)) == ["-1", "-22"]
    assert drain(source)[-1].lines == ()
    source.close()


# --- rotation


def rename(log: Path) -> None:
    for number in range(8, 0, -1):
        older = log.with_name(f"{log.name}.{number}")
        if older.exists():
            older.rename(log.with_name(f"{log.name}.{number + 1}"))
    log.rename(log.with_name(f"{log.name}.1"))


def copy_and_truncate(log: Path) -> None:
    for number in range(8, 0, -1):
        older = log.with_name(f"{log.name}.{number}")
        if older.exists():
            older.rename(log.with_name(f"{log.name}.{number + 1}"))
    shutil.copyfile(log, log.with_name(f"{log.name}.1"))
    os.truncate(log, 0)


def test_the_renamed_file_is_read_to_its_end_before_the_new_one(log: Path) -> None:
    append(log, text(1))
    source = FileLog(log)
    drain(source)
    rename(log)
    old = log.with_name("server.log.1")
    append(old, text(2))
    assert numbers(drain(source)) == ["2"]
    log.touch()
    append(old, text(3))  # the writer still has the old file
    assert numbers(drain(source)) == ["3"]
    append(old, text(4))
    append(log, text(5))
    batches = drain(source)
    assert numbers(batches) == ["4", "5"]
    assert not any(batch.restarted for batch in batches)
    source.close()


def test_two_renames_between_reads_lose_nothing(log: Path) -> None:
    append(log, text(1))
    source = FileLog(log)
    drain(source)
    for number in (2, 3):
        append(log, text(number))
        rename(log)
    append(log, text(4))
    assert numbers(drain(source)) == ["2", "3", "4"]
    source.close()


def test_files_with_dates_are_read_in_their_order(log: Path) -> None:
    append(log, text(1))
    source = FileLog(log)
    drain(source)
    for number, date in ((2, "20261129-235959"), (3, "20261130-000001")):
        append(log, text(number))
        log.rename(log.with_name(f"server.log.{date}"))
    append(log, text(4))
    append(log.with_name("server.log.bak"), text(7))
    append(log.with_name("server.log.20261130-000002.gz"), text(8))
    assert numbers(drain(source)) == ["2", "3", "4"]
    source.close()


def test_copy_and_truncate_is_read_on_in_the_copy(log: Path) -> None:
    append(log, text(1))
    source = FileLog(log)
    drain(source)
    append(log, text(2))
    copy_and_truncate(log)
    append(log, text(3))
    batches = drain(source)
    assert numbers(batches) == ["2", "3"]
    assert not any(batch.restarted for batch in batches)
    source.close()


def test_a_truncated_file_that_grew_beyond_the_old_size_is_noticed(log: Path) -> None:
    append(log, text(1))
    source = FileLog(log)
    drain(source)
    copy_and_truncate(log)
    append(log, text(2, 3, 4))
    assert numbers(drain(source)) == ["2", "3", "4"]
    source.close()


def test_a_line_over_a_copy_and_truncate_is_one_line(log: Path) -> None:
    append(log, text(1) + STAMP + "2")
    source = FileLog(log)
    drain(source)
    copy_and_truncate(log)
    append(log, "0.\n" + text(3))
    assert numbers(drain(source)) == ["20", "3"]
    source.close()


def test_a_rotation_before_the_first_read_is_noticed(log: Path) -> None:
    append(log, text(1))
    source = FileLog(log)
    copy_and_truncate(log)
    append(log, text(2, 3))
    assert numbers(drain(source)) == ["-1", "2", "3"]
    source.close()


def test_a_writer_that_goes_on_at_its_old_offset_leaves_a_hole_and_no_line_of_it(log: Path) -> None:
    with log.open("wb", buffering=0) as writer:  # not in append mode
        writer.write(text(1).encode())
        source = FileLog(log)
        drain(source)
        writer.write(text(2).encode())
        copy_and_truncate(log)
        writer.write(text(3).encode())
        assert numbers(drain(source)) == ["2", "3"]
    source.close()


def test_a_truncated_file_without_a_copy_begins_anew(log: Path) -> None:
    append(log, text(1, 2))
    source = FileLog(log)
    drain(source)
    log.write_text(text(3))
    batches = drain(source)
    assert numbers(batches) == ["3"]
    assert [batch.restarted for batch in batches if batch.lines] == [True]
    assert not drain(source)[-1].restarted
    source.close()


def test_a_removed_file_is_an_error_until_it_is_back(log: Path) -> None:
    append(log, text(1))
    source = FileLog(log)
    drain(source)
    append(log, text(2))
    log.unlink()
    assert numbers(drain(source)) == ["2"]
    with pytest.raises(LogError, match="was removed"):
        source.read()
    append(log, text(3))
    batches = drain(source)
    assert (numbers(batches), batches[-1].restarted) == (["3"], True)
    source.close()


def test_an_earlier_file_that_was_compressed_is_a_rotation(log: Path) -> None:
    append(log, text(1))
    source = FileLog(log)
    drain(source)
    packed = log.with_name("server.log.1.gz")
    packed.write_bytes(b"packed")
    os.utime(packed, (log.stat().st_mtime, log.stat().st_mtime))
    log.unlink()
    append(log, text(2))
    batches = drain(source)
    assert (numbers(batches), [batch.restarted for batch in batches]) == (["2"], [False] * len(batches))
    source.close()


def test_a_file_that_an_editor_wrote_anew_goes_on(log: Path) -> None:
    append(log, text(1))
    source = FileLog(log)
    drain(source)
    other = log.with_name("tmp")
    other.write_bytes(log.read_bytes())
    other.rename(log)
    append(log, text(2))
    assert numbers(drain(source)) == ["2"]
    source.close()


def test_a_link_to_another_container_s_file_begins_anew(log: Path) -> None:
    first, second = log.with_name("0.log"), log.with_name("1.log")
    append(first, text(1))
    log.symlink_to(first)
    source = FileLog(log)
    drain(source)
    append(first, text(2))
    append(second, text(3))
    log.unlink()
    log.symlink_to(second)
    batches = drain(source)
    assert numbers(batches) == ["2", "3"]
    assert [batch.restarted for batch in batches if batch.lines] == [False, True]
    source.close()


def test_the_unfinished_line_of_a_finished_file_comes_unless_it_may_be_half_a_number(log: Path) -> None:
    for unfinished, given in (("ended", ["ended"]), ("81", []), ("10,", []), ("complete.", ["complete"])):
        log.unlink(missing_ok=True)
        append(log, text(1) + STAMP + unfinished)
        source = FileLog(log)
        drain(source)
        rename(log)
        append(log, text(2))
        assert [number.lstrip("-") for number in numbers(drain(source))] == [*given, "2"]
        source.close()


# --- resuming


def resumed(log: Path, position: dict[str, object] | None) -> list[str]:
    source = FileLog(log, position)
    found = numbers(drain(source))
    source.close()
    return found


def first_run(log: Path) -> dict[str, object] | None:
    append(log, text(1))
    source = FileLog(log)
    append(log, text(2))
    position = last_position(drain(source))
    source.close()
    return position


def test_after_a_restart_lines_count_from_the_position_on(log: Path) -> None:
    position = first_run(log)
    append(log, text(3))
    assert resumed(log, position) == ["-1", "-2", "3"]
    assert str(log) in json.dumps(position)
    assert "a line that is long" not in json.dumps(position)


def test_a_position_from_before_the_end_of_the_old_part_doubles_nothing(log: Path) -> None:
    append(log, text(*range(10_000)))
    source = FileLog(log)
    first = source.read()
    assert first.more
    source.close()
    append(log, text(10_000))
    found = resumed(log, first.position)
    assert found == [f"-{number}" for number in range(10_000)] + ["10000"]


def test_the_held_line_counts_after_a_restart(log: Path) -> None:
    append(log, text(1))
    source = FileLog(log)
    append(log, STAMP + "2")
    position = last_position(drain(source))
    source.close()
    append(log, "0.\n")
    assert resumed(log, position) == ["-1", "20"]


@pytest.mark.parametrize("rotate", [rename, copy_and_truncate])
def test_a_rotation_while_the_exporter_was_down_loses_nothing(log: Path, rotate: object) -> None:
    assert callable(rotate)
    position = first_run(log)
    append(log, text(3))
    rotate(log)
    append(log, text(4))
    rotate(log)
    append(log, text(5))
    assert resumed(log, position) == ["-1", "-2", "3", "4", "5"]


def test_a_line_over_a_copy_and_truncate_while_the_exporter_was_down(log: Path) -> None:
    position = first_run(log)
    append(log, STAMP + "3")
    copy_and_truncate(log)
    append(log, "0.\n")
    assert resumed(log, position) == ["-1", "-2", "30"]


def test_a_log_that_was_replaced_while_the_exporter_was_down_counts_whole(log: Path) -> None:
    position = first_run(log)
    log.write_text(text(5, 6, 7, 8))
    source = FileLog(log, position)
    batches = drain(source)
    assert (numbers(batches), batches[0].restarted) == (["5", "6", "7", "8"], True)
    source.close()


def test_a_file_with_another_number_and_the_same_text_is_the_same(log: Path) -> None:
    position = first_run(log)
    assert position is not None
    append(log, text(3))
    assert resumed(log, {**position, "inode": 1, "device": 1}) == ["-1", "-2", "3"]


def test_a_few_bytes_are_not_enough_to_know_another_file_by(log: Path) -> None:
    log.touch()
    source = FileLog(log)
    append(log, "INFO\n")
    position = last_position(drain(source))
    source.close()
    assert position is not None
    append(log, "more\n")
    assert resumed(log, position) == ["-INFO", "more"]
    assert resumed(log, {**position, "inode": 1}) == ["INFO", "more"]


@pytest.mark.parametrize(
    "change",
    [{"path": "/other"}, {"offset": "x"}, {"offset": -1}, {"offset": 10**9}, {"more": 1}, {"digest": None}],
)
def test_a_position_that_is_none_of_this_path_s_is_ignored(log: Path, change: dict[str, object]) -> None:
    position = first_run(log)
    assert position is not None
    assert resumed(log, {**position, **change}) == ["-1", "-2"]


# --- bad input


def test_what_is_no_file_is_one_line_of_error(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    for path, words in (
        (tmp_path, "a directory; name the file"),
        (fifo, "no regular file; pipe it to `--log -`"),
    ):
        source = FileLog(path)
        with pytest.raises(LogError, match=words) as caught:
            source.read()
        assert str(path) in str(caught.value)


def test_an_unreadable_file_is_one_line_of_error_until_it_can_be_read(log: Path) -> None:
    append(log, text(1))
    log.chmod(0)
    user = os.geteuid()
    if user == 0:  # nothing is forbidden to root
        os.seteuid(65534)
    try:
        source = FileLog(log)
        with pytest.raises(LogError, match=r"server\.log: permission denied; the exporter must be allowed"):
            source.read()
    finally:
        os.seteuid(user)
    log.chmod(0o600)
    append(log, text(2))
    assert numbers(drain(source))[-1] == "2"
    source.close()


def test_invalid_utf8_and_odd_line_ends(log: Path) -> None:
    log.touch()
    source = FileLog(log)
    append(
        log, b"a\xff\xfeb\n" + "p\u2028q\x0cr\x85s\u0085\x1c\n".encode() + b"crlf\r\nbar\rbar\n\n\0\0nul\0\n"
    )
    assert texts(drain(source)) == [
        "a\ufffd\ufffdb", "p\u2028q\x0cr\x85s\u0085\x1c", "crlf", "bar\rbar", "", "nul",
    ]  # fmt: skip
    source.close()


def test_utf8_over_the_edge_of_a_read_is_whole(log: Path) -> None:
    log.touch()
    source = FileLog(log)
    line = "€" * (LIMIT // 4) + "\n"
    append(log, line * 12)
    assert texts(drain(source)) == [line[:-1]] * 12
    source.close()


def test_a_line_of_5_mb_is_cut_and_the_next_one_is_whole(log: Path) -> None:
    log.touch()
    source = FileLog(log)
    append(log, text(1) + "x " * 2_500_000 + "\n" + text(2) + "1" * 100_000 + "\n" + text(3))
    lines = texts(drain(source))
    assert [len(line) for line in lines] == [len(STAMP) + 2, LIMIT, len(STAMP) + 2, 0, len(STAMP) + 2]
    assert lines[1] == "x " * (LIMIT // 2)
    source.close()


def test_memory_stays_flat_whatever_the_log_holds(log: Path) -> None:
    append(log, b"x" * 30_000_000 + b"\n" + b"\n" * 2_000_000 + b"y" * 10_000_000)
    tracemalloc.start()
    try:
        source = FileLog(log)
        while source.read().more:
            pass
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    source.close()
    assert peak < 30_000_000


def test_a_log_of_10_gb_is_read_in_short_steps(log: Path) -> None:
    with log.open("wb") as file:
        for begin in range(0, 10 * 1024**3, 1024**3):
            file.seek(begin)
            file.write(text(begin // 1024**3).encode())
        file.seek(10 * 1024**3)
        file.write(b"\n" + text(10).encode())
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    source = FileLog(log)
    batches: list[Batch] = []
    slowest = 0.0
    while not batches or batches[-1].more:
        begin_read = time.monotonic()
        batches.append(source.read())
        slowest = max(slowest, time.monotonic() - begin_read)
    assert numbers(batches) == [f"-{number}" for number in range(10)] + ["-", "-10"]
    assert slowest < 1
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20_000  # kB
    append(log, text(11))
    assert numbers(drain(source)) == ["11"]
    source.close()


def test_reads_are_bounded(log: Path) -> None:
    append(log, text(*range(20_000)))
    source = FileLog(log)
    batch = source.read()
    assert batch.more
    assert sum(len(line.text) + 1 for line in batch.lines) <= CHUNK
    source.close()
