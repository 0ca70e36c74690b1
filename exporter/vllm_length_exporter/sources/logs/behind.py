"""What stands behind a place in a journal, whose reader may begin earlier than it was told to.

`journalctl --cursor` looks for the place in each file: by number in the file that has it, by time in the others. Of
entries of one microsecond it may then show some that stand before the place.
"""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar

MOST = 100_000  # entries that are held back


class Placed(Protocol):
    """An entry, as far as its place goes."""

    @property
    def cursor(self) -> str: ...

    @property
    def nanoseconds(self) -> int: ...


EntryT = TypeVar("EntryT", bound=Placed)


class Behind(Generic[EntryT]):
    """Passes on the entries behind a place. Until it is seen, entries that are no newer are held back.

    Where the place is gone, something newer comes first, or nothing more: what was held back is then passed on.
    """

    def __init__(self, cursor: str, nanoseconds: int) -> None:
        self._cursor, self._nanoseconds = cursor, nanoseconds
        self._held: list[EntryT] = []
        self._passed = False

    def take(self, entries: list[EntryT]) -> list[EntryT]:
        """Those of the entries, and of those held back, that stand behind the place."""
        if self._passed:
            return entries
        self._held += entries
        for index, entry in enumerate(self._held):
            if entry.cursor == self._cursor:
                return self._pass(index + 1)
        newer = any(entry.nanoseconds > self._nanoseconds for entry in entries)
        return self._pass(0) if newer or len(self._held) > MOST else []

    def rest(self) -> list[EntryT]:
        """What is still held back when no more can come."""
        return self._pass(0)

    def _pass(self, first: int) -> list[EntryT]:
        passed, self._held, self._passed = self._held[first:], [], True
        return passed
