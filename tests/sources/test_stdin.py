from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deadline import wait_for
from vllm_length_exporter.sources.logs.lines import Batch, LogError
from vllm_length_exporter.sources.logs.stdin import StdinLog


@pytest.fixture
def pipe() -> Iterator[tuple[StdinLog, int]]:
    reading, writing = os.pipe()
    yield StdinLog(reading), writing
    for descriptor in (reading, writing):
        try:
            os.close(descriptor)
        except OSError:
            assert descriptor == writing  # the test closed its end


def test_lines_come_as_they_are_written_and_reading_never_waits(pipe: tuple[StdinLog, int]) -> None:
    source, writing = pipe
    begin = time.monotonic()
    assert source.read() == Batch()
    os.write(writing, b"one\ntw")
    assert [(line.text, line.counted) for line in source.read().lines] == [("one", True)]
    assert source.read() == Batch()
    os.write(writing, b"o\n")
    assert [line.text for line in source.read().lines] == ["two"]
    assert time.monotonic() - begin < 1


def test_the_end_is_said_once_and_then_an_error(pipe: tuple[StdinLog, int]) -> None:
    source, writing = pipe
    os.write(writing, b"one\nunfinished 12")
    os.close(writing)
    batch = source.read()
    assert ([line.text for line in batch.lines], batch.ended) == (["one", "unfinished 12"], "end of input")
    for _ in range(2):
        with pytest.raises(LogError, match="standard input has ended"):
            source.read()


def test_a_flood_comes_in_bounded_batches_and_whole(pipe: tuple[StdinLog, int]) -> None:
    source, writing = pipe
    expected = [f"line {number}" for number in range(200_000)]

    def write() -> None:
        with os.fdopen(writing, "wb") as file:
            file.write("\n".join(expected).encode() + b"\n")

    writer = threading.Thread(target=write)
    writer.start()
    found: list[str] = []

    def ended() -> bool:
        batch = source.read()
        assert sum(len(line.text) + 1 for line in batch.lines) <= 140_000
        found.extend(line.text for line in batch.lines)
        return batch.ended is not None

    wait_for(ended, seconds=20, what="the end of input", every=0)
    writer.join()
    assert found == expected


def test_a_descriptor_that_is_closed_is_an_error() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    os.close(writing)
    with pytest.raises(LogError, match="log -: Bad file descriptor"):
        StdinLog(reading).read()


def test_a_file_as_standard_input_is_read_to_its_end(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("one\ntwo\n")
    program = (
        "from vllm_length_exporter.sources.logs.stdin import StdinLog\n"
        "batch = StdinLog().read()\n"
        "print([line.text for line in batch.lines], batch.ended)"
    )
    with log.open() as stdin:
        answer = subprocess.run(
            [sys.executable, "-c", program], stdin=stdin, capture_output=True, text=True, check=True
        )
    assert answer.stdout == "['one', 'two'] end of input\n"
