"""Whether a budget is kept is told by the figure alone."""

from __future__ import annotations

import pytest

from tests.bench.figure import Figure, Yardstick

SLOW = Yardstick("Prometheus", here=1.44, there=0.72)  # half as fast as where the budgets were set
FAST = Yardstick("Prometheus", here=0.36, there=0.72)
SLOW_RATE = Yardstick("mtail", here=188_000, there=376_000)


@pytest.mark.parametrize(
    ("figure", "verdict"),
    [
        (Figure("a poll", 9.0, "ms"), ""),
        (Figure("a poll", 3.9, "ms", 4), "ok"),
        (Figure("a poll", 4.1, "ms", 4), "OVER"),
        (Figure("a poll", 7.9, "ms", 4, SLOW), "ok here"),
        (Figure("a poll", 8.1, "ms", 4, SLOW), "OVER"),
        (Figure("a poll", 3.9, "ms", 4, FAST), "ok"),
        (Figure("lines", 1_000_000, "lines/s", 1_000_000, SLOW_RATE, at_least=True), "ok"),
        (Figure("lines", 501_000, "lines/s", 1_000_000, SLOW_RATE, at_least=True), "ok here"),
        (Figure("lines", 499_000, "lines/s", 1_000_000, SLOW_RATE, at_least=True), "OVER"),
    ],
)
def test_a_verdict_goes_with_the_yardstick(figure: Figure, verdict: str) -> None:
    assert figure.verdict == verdict
    assert figure.kept == (verdict != "OVER")
    assert figure.row().split()[-1] == (verdict.split() or ["ms"])[-1]


def test_both_budgets_are_printed() -> None:
    row = Figure("a poll", 5.0, "ms", 4, SLOW, "2.2 x").row().split()
    assert row == ["a", "poll", "5.00", "4.00", "8.00", "ms", "ok", "here", "2.2", "x"]
