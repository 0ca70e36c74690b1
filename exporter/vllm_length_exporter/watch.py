"""One server under watch: its sources, its state, and what was last published of it."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from itertools import groupby

from vllm_length_exporter.collectors.snapshot import ServerSnapshot, SourceStatus
from vllm_length_exporter.derive.view import Horizon, view
from vllm_length_exporter.server import (
    Counts,
    PollFailure,
    ServerState,
    answered_models,
    answered_version,
    logged,
    poll_failed,
    polled,
    process_ended,
    read_lines,
)
from vllm_length_exporter.sources.http import Endpoint, FetchError, FetchFailure, HttpSource
from vllm_length_exporter.sources.logs.lines import Batch, Line, LogError, LogSource
from vllm_length_exporter.vllm.events import Event
from vllm_length_exporter.vllm.lines import LogParser
from vllm_length_exporter.vllm.model_config import Config
from vllm_length_exporter.vllm.models import AnswerError, read_models, read_version
from vllm_length_exporter.vllm.page import PageError, PageReader

ACCEPT_PAGE = (
    "text/plain; version=0.0.4"  # else an OpenMetrics client library escapes the colons of the names
)
ACCEPT_JSON = "application/json"
# After an API answer that failed, how many polls to wait: each try costs the server an access-log line.
POLLS_BETWEEN_API_TRIES = 6
# A record that nothing was added to for so long is complete: a writer with a buffer pauses within one.
QUIET_SECONDS = 2.0

_FAILURES = {
    FetchFailure.REFUSED: PollFailure.REFUSED,
    FetchFailure.TIMEOUT: PollFailure.SILENT,
    FetchFailure.UNREACHABLE: PollFailure.UNREACHABLE,
}

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Pace:
    """How often and how far: seconds."""

    poll_interval: float = 5.0
    models_interval: float = 300.0
    horizon: Horizon = field(default_factory=Horizon)


@dataclass(slots=True)
class _Source:
    """What is known of one source. A change of `error` is logged, once."""

    name: str
    last_success: float | None = None  # Unix seconds
    last_success_monotonic: float | None = None
    duration: float | None = None
    error: str | None = None
    tried: bool = False


class Watch:
    """Polls one server and reads its log; every method may run in any thread.

    `publish` happens under the lock as a whole, so a reader never sees half of an update.
    """

    def __init__(
        self,
        name: str,
        endpoint: Endpoint,
        log: LogSource | None = None,
        pace: Pace | None = None,
        *,
        key: object = None,
        model_config: Config | None = None,
        counts: Counts | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.name = name
        self.key = key  # what it was made from: a reload keeps the watch of a server that has not changed
        self._http = HttpSource(endpoint)
        self._log = log
        self._pace = pace or Pace()
        self._model_config = model_config
        self._monotonic, self._wall = monotonic, wall
        self._lock = threading.Lock()
        self._reader = PageReader()
        self._parser = LogParser()
        self._state = ServerState(name, counts=counts or Counts())
        self._sources = {"metrics": _Source("metrics"), "models": _Source("models")}
        if log is not None:
            self._sources["logs"] = _Source("logs")
        self._lines_at = monotonic()
        self._position: dict[str, object] | None = None
        self._polls_until_api = 0
        self._has_middleware = False
        self._published = ServerSnapshot(name, counts=self._state.counts)
        self._good_until = math.inf

    def snapshot(self) -> ServerSnapshot:
        """What was published last: one immutable record.

        It is made anew, without what has become too old, where that happened since: the next poll may be a while
        off or slow, and a machine may have slept.
        """
        if self._monotonic() > self._good_until:
            self._publish()
        return self._published

    def resume_point(self) -> tuple[dict[str, object] | None, Counts]:
        """The log's position and our counters at one moment, for the state file."""
        with self._lock:
            return self._position, self._state.counts

    @property
    def has_log(self) -> bool:
        return self._log is not None

    @property
    def is_tried(self) -> bool:
        """Whether every source was asked at least once, and what it said is published."""
        shown = {source.source for source in self._published.sources}
        return "metrics" in shown and (self._log is None or "logs" in shown)

    def close(self) -> None:
        self._http.close()
        if self._log is not None:
            self._log.close()

    # --- metrics page and API

    def poll(self) -> None:
        """Read the page, and the API's answers when they are due; then publish."""
        begun = self._monotonic()
        try:
            page = self._reader.read(self._http.get("/metrics", ACCEPT_PAGE).body)
        except FetchError as error:
            self._poll_failed(_FAILURES.get(error.kind, PollFailure.BROKEN), str(error))
            return
        except PageError as error:
            self._poll_failed(PollFailure.BROKEN, f"{self._http.endpoint.address('/metrics')}: {error}")
            return
        now = self._monotonic()
        with self._lock:
            after_a_gap = self._state.failures_in_a_row > 0
            horizon = self._pace.horizon
            self._state = polled(
                self._state, page, now, window=horizon.window, workload_window=horizon.workload_window
            )
            self._has_middleware = bool(page.middleware)
            due = self._api_is_due(now, after_a_gap)
            self._good("metrics", now - begun)
        if due:
            self._ask_api()
        self._publish()

    def _poll_failed(self, failure: PollFailure, message: str) -> None:
        with self._lock:
            self._state = poll_failed(self._state, failure, self._monotonic())
            self._bad("metrics", message)
        self._publish()

    def _api_is_due(self, now: float, after_a_gap: bool) -> bool:
        state = self._state
        if state.cards_at is not None and not after_a_gap:
            return now - state.cards_at >= self._pace.models_interval
        if self._polls_until_api > 0 and not after_a_gap:
            self._polls_until_api -= 1
            return False
        return True

    def _ask_api(self) -> None:
        begun = self._monotonic()
        incarnation = self._state.incarnation
        try:
            cards = read_models(self._http.get("/v1/models", ACCEPT_JSON).body)
            version = read_version(self._http.get("/version", ACCEPT_JSON).body)
        except (FetchError, AnswerError) as error:
            with self._lock:
                self._polls_until_api = POLLS_BETWEEN_API_TRIES
                self._bad("models", str(error))
            return
        now = self._monotonic()
        with self._lock:
            if self._state.incarnation == incarnation:  # else the answer may be the old process's
                self._state = answered_version(answered_models(self._state, cards, now), version)
            self._good("models", now - begun)

    # --- log

    def read_log(self) -> bool:
        """Read what the log has; True when there is more to read at once."""
        if self._log is None:
            return False
        begun = self._monotonic()
        try:
            batch = self._log.read()
        except LogError as error:
            with self._lock:
                changed = self._bad("logs", str(error))
            if changed:
                self._publish()
            return False
        with self._lock:
            told = self._fold(batch, self._monotonic())
            changed = self._good("logs", self._monotonic() - begun)
        if told or changed or batch.ended is not None:
            self._publish()
        return batch.more

    def _fold(self, batch: Batch, now: float) -> bool:
        """Fold one batch into the state; whether it told anything."""
        state = self._state
        events: list[tuple[Event, bool]] = []
        if batch.restarted:
            events += [(event, True) for event in self._parser.idle()]
        for counted, lines in _runs(batch.lines):
            events += [(event, counted) for event in self._parser.feed_many([line.text for line in lines])]
        if batch.lines:
            self._lines_at = now
        elif now - self._lines_at >= QUIET_SECONDS:
            events += [(event, True) for event in self._parser.idle()]
        if batch.lines:
            state = read_lines(state, sum(line.counted for line in batch.lines), now)
        for event, counted in events:
            state = logged(state, event, now, counted=counted)
        if batch.ended is not None:
            state = process_ended(state, batch.ended, now)
        self._state = state
        self._position = batch.position if batch.position is not None else self._position
        return bool(events)

    # --- publishing

    def _good(self, source: str, duration: float) -> bool:
        row = self._sources[source]
        changed = row.error is not None or not row.tried
        if row.error is not None:
            logger.info("source recovered", extra={"server": self.name, "source": source})
        row.last_success, row.last_success_monotonic = self._wall(), self._monotonic()
        row.duration, row.error, row.tried = duration, None, True
        return changed

    def _bad(self, source: str, message: str) -> bool:
        row = self._sources[source]
        changed = row.error is None
        if changed:
            logger.warning("source failed", extra={"server": self.name, "source": source, "error": message})
        row.error, row.tried = message, True
        return changed

    def _publish(self) -> None:
        with self._lock:
            now, stale_after = self._monotonic(), self._pace.horizon.stale_after
            reads = (self._state.page_at, *(row.last_success_monotonic for row in self._sources.values()))
            ends = (read + stale_after for read in reads if read is not None)
            self._good_until = min((end for end in ends if end >= now), default=math.inf)
            self._published = ServerSnapshot(
                server=self.name,
                view=view(self._state, now, self._pace.horizon, self._model_config),
                counts=self._state.counts,
                sources=tuple(self._status(row, now) for row in self._shown_sources()),
            )

    def _shown_sources(self) -> Iterable[_Source]:
        yield from (row for row in self._sources.values() if row.tried)
        if self._has_middleware:
            yield replace(self._sources["metrics"], name="middleware")

    def _status(self, row: _Source, now: float) -> SourceStatus:
        recent = row.last_success_monotonic
        if row.name != "logs" and self._state.is_gone:
            up = False  # nobody is left to answer
        elif row.name == "models":
            up = row.error is None  # asked rarely: its last answer counts until a try fails
        else:
            up = recent is not None and now - recent <= self._pace.horizon.stale_after
        return SourceStatus(row.name, up, row.last_success, row.duration, row.error)


def _runs(lines: Iterable[Line]) -> Iterable[tuple[bool, list[Line]]]:
    """The lines in runs that are counted or not."""
    for counted, run in groupby(lines, key=lambda line: line.counted):
        yield counted, list(run)
