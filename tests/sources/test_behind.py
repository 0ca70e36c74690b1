"""What stands behind a place in a journal, whatever the reader begins with."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_length_exporter.sources.logs import behind
from vllm_length_exporter.sources.logs.behind import Behind


@dataclass(frozen=True)
class Entry:
    cursor: str
    nanoseconds: int


def passed(*parts: list[Entry], end: bool = True) -> list[str]:
    """What is passed on behind the entry `c`, of time 5, when these come one part after another."""
    place = Behind[Entry]("c", 5)
    found = [entry for part in parts for entry in place.take(part)]
    return [entry.cursor for entry in [*found, *(place.rest() if end else [])]]


A, B, C, D, E = Entry("a", 4), Entry("b", 5), Entry("c", 5), Entry("d", 5), Entry("e", 6)


def test_the_place_comes_first_and_is_left_out() -> None:
    assert passed([C, D], [E], end=False) == ["d", "e"]


def test_entries_of_the_same_moment_before_it_were_read_already() -> None:
    assert passed([B], [C, D], end=False) == ["d"]
    assert passed([A, B, C], [E], end=False) == ["e"]


def test_where_the_place_is_gone_nothing_is_lost() -> None:
    assert passed([E], end=False) == ["e"]
    assert passed([D], [E], end=False) == ["d", "e"]
    assert passed([D], end=False) == []
    assert passed([D]) == ["d"]


def test_behind_the_place_a_clock_may_run_backwards() -> None:
    assert passed([C], [A], [E], [B], end=False) == ["a", "e", "b"]


def test_not_everything_is_held_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(behind, "MOST", 3)
    assert passed([A] * 4, end=False) == ["a"] * 4


@given(st.data(), st.lists(st.integers(0, 5)), st.lists(st.integers(0, 9)))
def test_in_whatever_parts_it_comes(data: st.DataObject, before: list[int], after: list[int]) -> None:
    entries = [
        *(Entry(f"before {index}", time) for index, time in enumerate(before)),
        C,
        *(Entry(f"after {index}", time) for index, time in enumerate(after)),
    ]
    cuts = sorted(data.draw(st.sets(st.integers(0, len(entries)))))
    parts = [entries[a:b] for a, b in zip([0, *cuts], [*cuts, len(entries)], strict=True)]
    assert passed(*parts) == [f"after {index}" for index in range(len(after))]
