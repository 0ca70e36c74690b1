"""The daemon: polls and log reads on a schedule, one published snapshot, reload and prompt stop."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from pathlib import Path

import schedule
from prometheus_client import ProcessCollector
from prometheus_client.registry import CollectorRegistry

from vllm_length_exporter import resume
from vllm_length_exporter.bell import Bell
from vllm_length_exporter.collectors.registry import registry
from vllm_length_exporter.collectors.snapshot import Snapshot, SourceStatus
from vllm_length_exporter.derive.values import ServerView
from vllm_length_exporter.watch import Watch
from vllm_length_exporter.web.history import EVERY as HISTORY_INTERVAL
from vllm_length_exporter.web.history import History
from vllm_length_exporter.web.watched import Point, Reading, Watched

POLL_SLOTS = 20  # groups of servers that are polled together
POLL_SPREAD = 2.0  # seconds over which the groups of one round are spread
LOG_INTERVAL = 0.5  # seconds between reads of a log that had nothing more
LOG_INTERVAL_OF_MANY = 1.0
FEW_LOGS = 50
SAVE_INTERVAL = 5.0  # seconds between two writes of the resume file
CLOCK_STEP = 2.0  # seconds by which the wall clock may run away from the monotonic one
LOOP_PATIENCE = 1.0  # the longest sleep of the loop, in seconds
PROCESS = ProcessCollector(registry=None)

logger = logging.getLogger(__name__)


class Daemon:
    """Watches servers until it is told to stop.

    `make_watches` makes the watches of the configuration as it is now, keeping those of the present ones whose
    server has not changed; it raises ValueError with one line where the configuration is bad, and then the
    present ones stay (`reload`). `schedule` keeps the times; the
    work is done by a pool with room for every server, so that a slow one delays no other.
    """

    def __init__(
        self,
        make_watches: Callable[[list[Watch], dict[str, resume.Point]], list[Watch]],
        *,
        poll_interval: float = 5.0,
        state_dir: Path | None = None,
    ) -> None:
        self._make_watches = make_watches
        self._poll_interval = poll_interval
        self._state_dir = state_dir
        self._stopping = self._reload_asked = False  # set in signal handlers, so without a lock
        self._wake = Bell()
        self._reload_lock = threading.Lock()
        self._in_flight: set[tuple[str, int]] = set()
        self._in_flight_lock = threading.Lock()
        self._job_errors: dict[str, int] = {}
        self._save_failed = False
        self._save_lock = threading.Lock()
        self._scheduler = schedule.Scheduler()
        self._beat = time.monotonic()
        self._reload_ok, self._reload_at = True, time.time()
        self._history = History()
        self._watches = make_watches([], self._resume_points())
        self._pool = self._new_pool()

    # --- what is published

    def snapshot(self) -> Snapshot:
        return Snapshot(
            servers=tuple(watch.snapshot() for watch in self._watches),
            config_reload_ok=self._reload_ok,
            config_reload_at=self._reload_at,
            job_errors=dict(self._job_errors),
        )

    def registry(self) -> CollectorRegistry:
        """Our series, and what the exporter's process costs."""
        made = registry(self.snapshot)
        made.register(PROCESS)
        return made

    def statuses(self) -> tuple[ServerView, ...]:
        return self.snapshot().views()

    def watched(self) -> tuple[Watched, ...]:
        """For the status page: every configured server, with its sources."""
        now = time.time()
        return tuple(
            Watched(server.server, server.view, tuple(_reading(source, now) for source in server.sources))
            for server in self.snapshot().servers
        )

    def history(self, server: str) -> Mapping[str, tuple[Point, ...]]:
        """The last half hour of a server's engines."""
        return self._history.of(server)

    def ready(self) -> bool:
        """Every source of every server was tried."""
        return all(watch.is_tried for watch in self._watches)

    def healthy(self) -> str | None:
        """None, or one line that says what is wrong with the daemon itself."""
        silent = time.monotonic() - self._beat
        if silent > 10 * LOOP_PATIENCE + self._poll_interval:
            return f"the scheduling loop has not run for {silent:.0f} s"
        return None

    # --- running

    def run(self) -> None:
        """Poll and read until `stop`; then save the resume point and close every source."""
        self._plan()
        wall_ahead = time.time() - time.monotonic()
        while not self._stopping:
            self._beat = time.monotonic()
            if abs(time.time() - time.monotonic() - wall_ahead) > CLOCK_STEP:
                # `schedule` goes by the wall clock: after a step its jobs would come too late or all at once.
                wall_ahead = time.time() - time.monotonic()
                logger.warning("clock stepped", extra={"planned": "anew"})
                self._plan()
            if self._reload_asked:
                self._reload_asked = False
                self.reload()
            self._scheduler.run_pending()
            idle = self._scheduler.idle_seconds
            self._wake.wait(min(max(idle if idle is not None else LOOP_PATIENCE, 0.005), LOOP_PATIENCE))
        self._pool.shutdown(wait=True, cancel_futures=True)
        self._save()
        for watch in self._watches:
            watch.close()

    def stop(self) -> None:
        """End `run` promptly; safe in a signal handler."""
        self._stopping = True
        self._wake.ring()

    def ask_reload(self) -> None:
        """Reload at the loop's next turn; safe in a signal handler."""
        self._reload_asked = True
        self._wake.ring()

    def reload(self) -> str | None:
        """Take the configuration as it is now; on a fault keep the old one and return its one line."""
        with self._reload_lock:
            try:
                fresh = self._make_watches(self._watches, self._points())
            except ValueError as error:
                self._reload_ok = False
                logger.error("reload failed", extra={"error": str(error), "kept": "old configuration"})
                return str(error)
            old, self._watches = self._watches, fresh
            old_pool, self._pool = self._pool, self._new_pool(fresh)
            old_pool.shutdown(wait=False, cancel_futures=True)
            self._plan()
            for watch in old:
                if watch not in fresh:
                    watch.close()
            self._reload_ok, self._reload_at = True, time.time()
            logger.info("configuration loaded", extra={"servers": len(fresh)})
            return None

    def _new_pool(self, watches: Iterable[Watch] | None = None) -> ThreadPoolExecutor:
        # Threads are made when all others are busy: a pool of fast servers stays small.
        count = len(list(watches if watches is not None else self._watches))
        return ThreadPoolExecutor(max_workers=2 * count + 2, thread_name_prefix="source")

    def _plan(self) -> None:
        """Polls are spread over the first part of the interval; each job asks the servers of its slot.

        `schedule` looks at all of its jobs whenever it wakes, so there are few, however many servers.
        """
        self._scheduler.clear()
        slots = min(len(self._watches), POLL_SLOTS)
        spread = min(self._poll_interval, POLL_SPREAD) / max(slots, 1)
        for slot in range(slots):
            polled = self._watches[slot::slots]
            self._every(self._poll_interval, partial(self._submit_all, "poll", polled), slot * spread)
        with_log = [watch for watch in self._watches if watch.has_log]
        if with_log:
            often = LOG_INTERVAL if len(with_log) <= FEW_LOGS else LOG_INTERVAL_OF_MANY
            self._every(often, partial(self._submit_all, "log", with_log), 0.0)
        self._every(HISTORY_INTERVAL, self._remember, HISTORY_INTERVAL)
        if self._state_dir is not None:
            self._every(SAVE_INTERVAL, partial(self._start, ("save", 0), self._save), SAVE_INTERVAL)

    def _remember(self) -> None:
        self._history.record(self.statuses(), time.monotonic())

    def _every(self, seconds: float, job: Callable[[], None], delay: float) -> None:
        planned = self._scheduler.every(seconds).seconds.do(job)  # type: ignore[arg-type]  # takes fractions
        if planned.next_run is not None:
            planned.next_run += timedelta(seconds=delay - seconds)

    def _submit_all(self, kind: str, watches: list[Watch]) -> None:
        for watch in watches:
            self._submit(kind, watch)

    def _submit(self, kind: str, watch: Watch) -> None:
        self._start((kind, id(watch)), partial(self._guarded, kind, watch))

    def _start(self, key: tuple[str, int], work: Callable[[], None]) -> None:
        """In the pool: a disk or a server that is slow must not hold up the schedule."""
        with self._in_flight_lock:
            if key in self._in_flight:
                return  # the last one is not done: a slow server is asked again when it is
            self._in_flight.add(key)
        try:
            job = self._pool.submit(work)
        except RuntimeError:  # the pool is being closed
            self._landed(key)
        else:
            # A reload cancels what has not begun, and the watch goes on: it must be asked again.
            job.add_done_callback(lambda _: self._landed(key))

    def _landed(self, key: tuple[str, int]) -> None:
        with self._in_flight_lock:
            self._in_flight.discard(key)

    def _guarded(self, kind: str, watch: Watch) -> None:
        try:
            if kind == "poll":
                watch.poll()
            else:
                while watch.read_log() and not self._stopping:
                    pass
        except Exception:  # the loop's edge: a fault of our own must not end the watching
            self._job_errors[kind] = self._job_errors.get(kind, 0) + 1
            logger.exception("job failed", extra={"job": kind, "server": watch.name})

    # --- resume

    def _resume_points(self) -> dict[str, resume.Point]:
        return {} if self._state_dir is None else resume.load(self._state_dir)

    def _points(self) -> dict[str, resume.Point]:
        return {watch.name: resume.Point(*watch.resume_point()) for watch in self._watches}

    def _save(self) -> None:
        if self._state_dir is None:
            return
        try:
            with self._save_lock:
                resume.save(self._state_dir, self._points())
        except resume.ResumeError as error:
            if not self._save_failed:
                logger.error("resume point not saved", extra={"error": str(error)})
            self._save_failed = True
        except Exception:  # as of any job: a fault of our own must not end the watching
            self._job_errors["save"] = self._job_errors.get("save", 0) + 1
            logger.exception("job failed", extra={"job": "save"})
        else:
            self._save_failed = False


def _reading(source: SourceStatus, now: float) -> Reading:
    age = None if source.last_success is None else max(now - source.last_success, 0.0)
    return Reading(source.source, source.up, age, source.error)
