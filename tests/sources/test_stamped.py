from __future__ import annotations

import json

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import given

from vllm_length_exporter.sources.logs.stamped import NANOSECONDS, OtherLogError, Place, Reading, Stamps

START = 1_800_000_000 * NANOSECONDS
# Stamps go on, stand still, or fall back by less than a second, as two writers of one log are out of step.
STEPS = st.lists(
    st.sampled_from([0, 0, 1, 400_000_000, 999_999_999, NANOSECONDS, 7 * NANOSECONDS, -1, -999_999_999]),
    max_size=40,
)


def log_of(steps: list[int]) -> list[tuple[int, str]]:
    newest, log = START, []
    for step in steps:
        newest = max(newest, newest + step)
        log.append((newest + min(step, 0), "the same"))
    return log


def since(log: list[tuple[int, str]], second: int | None) -> list[tuple[int, str]]:
    return log if second is None else [line for line in log if line[0] >= second * NANOSECONDS]


@given(steps=STEPS, parts=st.lists(st.integers(0, 40), max_size=5))
def test_each_line_is_read_once_however_often_the_connection_breaks(
    steps: list[int], parts: list[int]
) -> None:
    log = log_of(steps)
    reading, read = Reading(origin=START - NANOSECONDS), 0
    for written, cut in [*((part, part + 3) for part in sorted(parts)), (len(log), 1000)]:
        answer = since(log[:written], reading.reconnected())
        read += sum(reading.take(*line) is not None for line in answer[:cut])
    assert read == len(log)


@given(steps=STEPS, parts=st.lists(st.integers(0, 40), max_size=5))
def test_each_line_counts_once_however_often_the_exporter_is_restarted(
    steps: list[int], parts: list[int]
) -> None:
    log = log_of(steps)
    place: Place | None = None
    counted = 0
    for written in [*sorted(parts), len(log)]:
        kept = json.loads(msgspec.json.encode(place))
        reading = Reading(START - NANOSECONDS, msgspec.convert(kept, Place | None))
        counted += sum(bool(reading.take(*line)) for line in log[:written])
        place = reading.place
    assert counted == len(log)


def test_lines_from_before_the_origin_do_not_count() -> None:
    reading = Reading(origin=START)
    assert [reading.take(START + step, "x") for step in (-1, 0, 1)] == [False, True, True]


def test_of_a_log_that_lost_its_older_lines_the_newer_ones_are_new() -> None:
    reading = Reading(origin=0)
    for step in range(5):
        reading.take(START + step, str(step))
    reading.reconnected()
    assert [reading.take(START + step, str(step)) for step in (3, 4, 5)] == [None, None, True]
    reading.reconnected(strict=True)
    with pytest.raises(OtherLogError):
        reading.take(START + 4, "4")


def test_stamps_of_every_zone_and_length() -> None:
    stamps = Stamps()
    assert stamps.split("2026-11-29T17:00:00.5+01:00 a b") == (1795968000_500000000, "a b")
    assert stamps.split("2026-11-29T16:00:00.000000001Z x") == (1795968000_000000001, "x")
    assert stamps.split("2026-11-29T16:00:00Z ") == (1795968000_000000000, "")
    for other in ("2026-13-29T16:00:00Z x", "failed to watch the file: no space left", ""):
        assert stamps.split(other) is None
