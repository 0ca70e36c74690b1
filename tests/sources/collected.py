"""What came out of a log source that reads in a thread."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.deadline import DeadlineError, wait_for
from vllm_length_exporter.sources.logs.lines import LogError, LogSource


@dataclass
class Collected:
    """Lines, and between them `<ended: …>` and `<restarted>`; `counted` has those lines alone that count."""

    source: LogSource
    told: list[str] = field(default_factory=list)
    counted: list[str] = field(default_factory=list)
    position: dict[str, Any] | None = None
    errors: list[str] = field(default_factory=list)

    def take(self) -> bool:
        """Read once; whether there is more at once."""
        try:
            batch = self.source.read()
        except LogError as error:
            if str(error) not in self.errors:
                self.errors.append(str(error))
            return False
        if batch.restarted:
            self.told.append("<restarted>")
        self.told += [line.text for line in batch.lines]
        self.counted += [line.text for line in batch.lines if line.counted]
        if batch.ended is not None:
            self.told.append(f"<ended: {batch.ended}>")
        if batch.position is not None:
            self.position = batch.position
        return batch.more

    def until(
        self, condition: Callable[[], object], what: str = "the expected lines", seconds: float = 20
    ) -> None:
        def met() -> bool:
            while self.take():
                pass
            return bool(condition())

        try:
            wait_for(met, seconds=seconds, what=what, every=0.01)
        except DeadlineError as error:
            error.add_note(f"told at last {self.told[-5:]}, errors {self.errors}")
            raise

    def until_told(self, *expected: str) -> None:
        """Wait until exactly this was told."""
        self.until(lambda: len(self.told) >= len(expected))
        assert self.told == list(expected)

    def kept(self) -> dict[str, Any]:
        """The position as the next run finds it."""
        found: dict[str, Any] = json.loads(json.dumps(self.position))
        return found
