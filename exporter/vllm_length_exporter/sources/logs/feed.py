"""A log whose reading blocks: a thread of its own reads, and hands over by a bounded queue."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import deque

from vllm_length_exporter.sources.logs.lines import Batch, LogError

WAITING = 4 * 1024 * 1024  # bytes of lines that wait to be taken: with more, the thread stops reading
TAKEN = 256 * 1024  # bytes of lines that one `read` gives, or a little more
OVERHEAD = 100  # bytes that a line takes beside its characters
PATIENCE = 5.0  # seconds for the thread to end; it is no obstacle to the program's end
SHORTEST, LONGEST = 0.2, 10.0  # seconds between two tries to connect, doubled while nothing comes


class Feed(ABC):
    """Calls `follow` again and again in a thread, until it is closed. `read` takes what has come."""

    def __init__(self) -> None:
        self.stopping = threading.Event()
        self._batches: deque[tuple[int, Batch]] = deque()
        self._waiting = 0  # bytes
        self._room = threading.Condition()
        self._error: LogError | None = None
        self._came = False
        self._thread: threading.Thread | None = None

    @abstractmethod
    def follow(self) -> None:
        """Connect, and hand batches on until the connection ends; the next call goes on from there.

        Raises:
            LogError: there is nothing to connect to, or it refuses.
        """

    @abstractmethod
    def cancel(self) -> None:
        """Make a blocked `follow` end soon; called from another thread."""

    def read(self) -> Batch:
        """What has come, without waiting for more.

        Raises:
            LogError: nothing has come, as the source cannot be read at present; it is tried again by itself.
        """
        if self._thread is None and not self.stopping.is_set():
            self._thread = threading.Thread(target=self._work, name=type(self).__name__, daemon=True)
            self._thread.start()
        with self._room:
            if self._batches:
                batch = self._taken()
                self._room.notify_all()
                return batch
            if self._error is not None:
                raise self._error from None
            return Batch()

    def close(self) -> None:
        """End the thread, and wait for that, but not for a connection that is just being made."""
        self.stopping.set()
        self.cancel()
        with self._room:
            self._room.notify_all()
        if self._thread is not None:
            self._thread.join(PATIENCE)

    def hand_on(self, batch: Batch) -> None:
        """Put a batch into the queue; waits while that is full."""
        size = sum(len(line.text) for line in batch.lines) + OVERHEAD * len(batch.lines)
        with self._room:
            self._came, self._error = True, None
            self._room.wait_for(lambda: self._waiting < WAITING or self.stopping.is_set())
            self._batches.append((size, batch))
            self._waiting += size

    def connected(self) -> None:
        """The source can be read, even if it has nothing to say."""
        with self._room:
            self._came, self._error = True, None

    def _taken(self) -> Batch:
        """The first batches as one, up to a word on the process behind the log."""
        size, first = self._batches.popleft()
        lines, last = list(first.lines), first
        while self._batches and last.ended is None and size < TAKEN:
            if self._batches[0][1].restarted:
                break
            more, last = self._batches.popleft()
            size += more
            lines += last.lines
        self._waiting -= size
        return Batch(tuple(lines), last.position, True, first.restarted, last.ended)

    def _work(self) -> None:
        pause = SHORTEST
        try:
            while not self.stopping.is_set():
                self._came = False
                try:
                    self.follow()
                except LogError as error:
                    self._error = error
                pause = SHORTEST if self._came else min(2 * pause, LONGEST)
                self.stopping.wait(pause)
        finally:
            if not self.stopping.is_set():  # a mistake of ours: it is shown by the thread, and told here
                self._error = LogError(
                    f"{type(self).__name__}: the reading thread has died, see the log above"
                )
