"""One measured figure beside its budget."""

from __future__ import annotations

from dataclasses import dataclass

HEADER = f"{'what':<42} {'measured':>9} {'budget':>8}"


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure is within its budget as such, or as a ratio to a yardstick of the same run: processors differ."""

    what: str
    value: float
    unit: str
    budget: float | None = None
    yardstick: float | None = None  # what Prometheus used for the same
    most_yardsticks: float | None = None
    note: str = ""

    @property
    def ratio(self) -> float | None:
        return None if self.yardstick is None else self.value / self.yardstick

    @property
    def kept(self) -> bool:
        by_ratio = (
            self.ratio is not None and self.most_yardsticks is not None and self.ratio <= self.most_yardsticks
        )
        return self.budget is None or self.value <= self.budget or by_ratio

    def row(self) -> str:
        budget = "" if self.budget is None else f"{self.budget:.2f}"
        verdict = "" if self.budget is None else ("ok" if self.kept else "OVER")
        note = self.note
        if self.ratio is not None:
            most = "" if self.most_yardsticks is None else f" of {self.most_yardsticks:.1f}"
            note = f"{self.ratio:.1f}{most} x Prometheus' {self.yardstick:.2f} {self.unit}"
        return f"{self.what:<42} {self.value:>9.2f} {budget:>8} {self.unit:<3} {verdict:<5} {note}".rstrip()
