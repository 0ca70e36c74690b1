"""A way to wake the main thread that is safe in a signal handler.

`threading.Event` is not: a handler runs in the main thread, between any two steps of it. Where that thread is just
within `Event.wait` or `clear` and holds its lock, `set` in the handler waits for that lock for ever.
"""

from __future__ import annotations

from contextlib import suppress
from queue import Empty, SimpleQueue


class Bell:
    """`ring` from any thread or signal handler; `wait` in one thread."""

    def __init__(self) -> None:
        self._rings: SimpleQueue[None] = SimpleQueue()  # its `put` may interrupt its `get`, by contract

    def ring(self) -> None:
        self._rings.put(None)

    def wait(self, seconds: float | None = None) -> bool:
        """Until it rings, or rang since the last `wait`, or the seconds are over; whether it rang."""
        try:
            self._rings.get(timeout=seconds)
        except Empty:
            return False
        with suppress(Empty):
            while True:
                self._rings.get_nowait()
        return True
