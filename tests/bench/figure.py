"""One measured figure beside its budget, which goes with the processor where a yardstick was measured too.

A budget of time was set on one machine. What a known program needs for a known task there and here, in the same
run, tells how much faster or slower this machine is: the budget is moved by that, and both are printed.
"""

from __future__ import annotations

from dataclasses import dataclass

HEADER = f"{'what':<42} {'measured':>9} {'budget':>8} {'here':>8}"


@dataclass(frozen=True, slots=True)
class Yardstick:
    """What a program that is not ours used or did, in one unit: here, in this run, and where the budgets were set."""

    name: str
    here: float
    there: float

    @property
    def pace(self) -> float:
        """What a figure of the machine of the budgets is multiplied by to be one of this machine."""
        return self.here / self.there


@dataclass(frozen=True, slots=True)
class Figure:
    """Kept is a budget as it stands, or as moved to this machine. Without a yardstick (memory) there is one only."""

    what: str
    value: float
    unit: str
    budget: float | None = None
    yardstick: Yardstick | None = None
    note: str = ""
    at_least: bool = False  # a rate: more is better
    digits: int = 2

    @property
    def budget_here(self) -> float | None:
        if self.budget is None or self.yardstick is None:
            return None
        return self.budget * self.yardstick.pace

    @property
    def kept(self) -> bool:
        return self.budget is None or self._within(self.budget) or self._within(self.budget_here)

    @property
    def verdict(self) -> str:
        """`ok` as the budget stands, `ok here` only by what the yardstick makes of it, or `OVER`."""
        if self.budget is None:
            return ""
        if self._within(self.budget):
            return "ok"
        return "ok here" if self.kept else "OVER"

    def row(self) -> str:
        numbers = (
            f"{self._shown(self.value):>9} {self._shown(self.budget):>8} {self._shown(self.budget_here):>8}"
        )
        return f"{self.what:<42} {numbers} {self.unit:<7} {self.verdict:<7} {self.note}".rstrip()

    def _within(self, budget: float | None) -> bool:
        if budget is None:
            return False
        return self.value >= budget if self.at_least else self.value <= budget

    def _shown(self, number: float | None) -> str:
        return "" if number is None else f"{number:,.{self.digits}f}"
