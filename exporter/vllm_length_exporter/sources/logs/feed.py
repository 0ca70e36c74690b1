"""A log whose reading blocks: a thread of its own reads, and hands over by a bounded queue."""

from __future__ import annotations

import queue
import threading
import time
from abc import ABC, abstractmethod

from vllm_length_exporter.sources.logs.lines import Batch, LogError

QUEUE = 32  # batches of at most a chunk of 64 KiB: when they are not taken, the thread stops reading
PATIENCE = 5.0  # seconds for the thread to end; it is no obstacle to the program's end
SHORTEST, LONGEST = 0.2, 10.0  # seconds between two tries to connect, doubled while nothing comes


class Feed(ABC):
    """Calls `follow` again and again in a thread, until it is closed. `read` takes what has come."""

    def __init__(self) -> None:
        self.stopping = threading.Event()
        self._batches: queue.Queue[Batch] = queue.Queue(QUEUE)
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
        """The next batch that has come, without waiting.

        Raises:
            LogError: nothing has come, as the source cannot be read at present; it is tried again by itself.
        """
        if self._thread is None and not self.stopping.is_set():
            self._thread = threading.Thread(target=self._work, name=type(self).__name__, daemon=True)
            self._thread.start()
        try:
            batch = self._batches.get_nowait()
        except queue.Empty:
            if self._error is not None:
                raise self._error from None
            return Batch()
        return Batch(batch.lines, batch.position, not self._batches.empty(), batch.restarted, batch.ended)

    def close(self) -> None:
        """End the thread, and wait for that, but not for a connection that is just being made."""
        self.stopping.set()
        self.cancel()
        end = time.monotonic() + PATIENCE
        while self._thread is not None and self._thread.is_alive() and time.monotonic() < end:
            while not self._batches.empty():  # room for a thread that waits to hand something over
                self._batches.get_nowait()
            self._thread.join(0.05)

    def hand_on(self, batch: Batch) -> None:
        """Put a batch into the queue; waits while that is full."""
        self._came, self._error = True, None
        while not self.stopping.is_set():
            try:
                return self._batches.put(batch, timeout=1.0)
            except queue.Full:
                continue
        return None

    def connected(self) -> None:
        """The source can be read, even if it has nothing to say."""
        self._came, self._error = True, None

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
