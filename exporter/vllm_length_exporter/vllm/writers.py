"""What a process has written and not finished: its records, and the tracebacks that go on."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

from vllm_length_exporter.vllm.events import Process
from vllm_length_exporter.vllm.messages import Found
from vllm_length_exporter.vllm.records import Header, Traceback


@dataclass(slots=True)
class Record:
    """A record whose later lines may still come."""

    first: str
    level: str | None = None  # None for what was printed without a header
    stamp: str | None = None
    known: bool = False  # a row matched whose text is complete: the same header again is a new record
    head: Found | None = None  # the row that announces a traceback
    asgi: bool = False
    loose: bool = False  # its formatter puts no header on later lines
    done: bool = False  # it has told what it had to tell
    _traceback: Traceback | None = None

    @property
    def traceback(self) -> Traceback:
        """What was read of the record's traceback; most records have none."""
        if self._traceback is None:
            self._traceback = Traceback()
        return self._traceback

    @property
    def ends_a_start(self) -> bool:
        """VLLM itself says that what follows is why a process did not start."""
        return self.head is not None and self.first.endswith("failed to start.")


@dataclass(slots=True)
class Writer:
    """What one process has written and not finished."""

    process: Process
    records: OrderedDict[Header, Record] = field(default_factory=OrderedDict)
    announced: Record | None = None  # the newest record with a head
    printed: Record | None = None  # a traceback without a header: the interpreter's or uvicorn's
