"""Waiting for a condition, never for a time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class DeadlineError(AssertionError):
    """The condition did not come true in time."""


def wait_for(
    condition: Callable[[], T | None],
    *,
    seconds: float,
    what: str,
    every: float = 0.05,
    ignoring: tuple[type[Exception], ...] = (),
) -> T:
    """The first true value that `condition` returns, asked every `every` seconds.

    Exceptions in `ignoring` mean "not yet"; the last one is named when time runs out.

    Raises:
        DeadlineError: `seconds` passed; its text is `what` and the last value or exception seen.
    """
    end = time.monotonic() + seconds
    while True:
        try:
            seen: object = condition()
        except ignoring as error:
            seen = error
        if seen and not isinstance(seen, Exception):
            return seen  # type: ignore[return-value]  # it is what `condition` returned
        if time.monotonic() >= end:
            raise DeadlineError(f"not within {seconds:g} s: {what} (last seen: {seen!r})")
        time.sleep(every)
