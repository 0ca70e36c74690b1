"""What the planner cannot do, said in one line."""

from __future__ import annotations


class PlanError(ValueError):
    """The plan cannot be made: one line that says what is wrong, where, and what to do."""
