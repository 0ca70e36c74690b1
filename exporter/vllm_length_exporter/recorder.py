"""Records one server for a while: pages at an interval, the API's answers, and the log, each with its time."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from vllm_length_exporter.bell import Bell
from vllm_length_exporter.recording import Writer
from vllm_length_exporter.sources.http import FetchError, HttpSource
from vllm_length_exporter.sources.logs.lines import Batch, LogError, LogSource
from vllm_length_exporter.vllm.models import AnswerError, read_models, read_version
from vllm_length_exporter.vllm.redacted_values import without_secrets
from vllm_length_exporter.vllm.redaction import Redactor

ACCEPT_PAGE = "text/plain; version=0.0.4"
ACCEPT_JSON = "application/json"
LOG_INTERVAL = 0.1  # seconds between reads of the log: how exact the times of its lines are
FLUSH_INTERVAL = 1.0  # seconds of a recording that a crash may cost
POLLS_BETWEEN_API_TRIES = 6  # each try costs the server an access-log line
BEFORE_THE_FIRST_PAGE = -0.001  # seconds
_PROCESS_START = re.compile(r"^process_start_time_seconds (\S+)$", re.MULTILINE)


@dataclass(slots=True)
class Tally:
    """What was recorded. `complaints` holds each new reason why something was not, once."""

    pages: int = 0
    failed_pages: int = 0
    lines: int = 0
    complaints: list[str] = field(default_factory=list)


class Recorder:
    """Writes one server's recording until its time is over, it is told to stop, or the file cannot be written."""

    def __init__(
        self,
        http: HttpSource,
        writer: Writer,
        log: LogSource | None = None,
        *,
        interval: float = 1.0,
        keep_text: bool = False,
        complain: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._http, self._writer, self._log = http, writer, log
        self._interval = interval
        self._redactor = None if keep_text else Redactor()
        self._complain = complain
        self._stopping = False  # set in a signal handler, so without a lock
        self._wake = Bell()
        self._over = threading.Event()  # for the thread that reads the log
        self._fault: OSError | None = None  # of the file that is written
        self._begun = time.monotonic()
        self._incarnation: str | None = None
        self._asked = False
        self._polls_until_api = 0
        self.tally = Tally()

    def stop(self) -> None:
        """End `run` soon; safe in a signal handler."""
        self._stopping = True
        self._wake.ring()

    def run(self, seconds: float) -> None:
        """Record for so long at most, and close the file.

        Raises:
            OSError: the recording cannot be written; what was flushed stays.
        """
        follower = threading.Thread(target=self._follow, name="log", daemon=True)
        try:
            self._read_log(lambda: BEFORE_THE_FIRST_PAGE)  # the server's start, as far as the log goes back
            self._begun = time.monotonic()
            if self._log is not None:
                follower.start()
            self._poll_until(self._begun + seconds)
            self._over.set()
            if self._log is not None:
                follower.join()
                self._read_log(self._now)
        finally:
            self._over.set()
            self._writer.close()
        if self._fault is not None:
            raise self._fault

    def _now(self) -> float:
        return time.monotonic() - self._begun

    # --- pages and API

    def _poll_until(self, end: float) -> None:
        due, flushed = self._begun, self._begun
        while not self._stopping and due < end:
            if not self._wake.wait(max(due - time.monotonic(), 0.0)):
                self._poll()
            now = time.monotonic()
            if now - flushed >= FLUSH_INTERVAL:
                self._writer.flush()
                flushed = now
            due = max(due + self._interval, now)  # a poll that took long puts off the next
        if not self._stopping:
            self._wake.wait(max(end - time.monotonic(), 0.0))

    def _poll(self) -> None:
        at = self._now()
        try:
            text = self._http.get("/metrics", ACCEPT_PAGE).body.decode("utf-8", "replace")
        except FetchError as error:
            self._asked = False
            self.tally.failed_pages += 1
            self._writer.page(max(at, 0.0), None, str(error.kind))
            self._note(str(error))
            return
        self.tally.pages += 1
        self._writer.page(at, self._cleared(text))
        incarnation = found.group(1) if (found := _PROCESS_START.search(text)) else None
        if incarnation != self._incarnation:
            self._incarnation, self._asked, self._polls_until_api = incarnation, False, 0
        if not self._asked:
            self._ask()

    def _ask(self) -> None:
        if self._polls_until_api > 0:
            self._polls_until_api -= 1
            return
        self._polls_until_api = POLLS_BETWEEN_API_TRIES
        try:
            models = self._http.get("/v1/models", ACCEPT_JSON).body
            read_models(models)
            version = self._http.get("/version", ACCEPT_JSON).body
            read_version(version)
        except (FetchError, AnswerError) as error:
            self._note(str(error))
            return
        self._asked = True
        self._polls_until_api = 0
        self._writer.answer(self._now(), "models", self._cleared(models.decode("utf-8", "replace")))
        self._writer.answer(self._now(), "version", self._cleared(version.decode("utf-8", "replace")))

    def _cleared(self, text: str) -> str:
        return text if self._redactor is None else without_secrets(text)

    # --- log

    def _follow(self) -> None:
        try:
            while not self._over.wait(LOG_INTERVAL):
                self._read_log(self._now)
        except OSError as error:
            self._fault = error
            self.stop()

    def _read_log(self, now: Callable[[], float]) -> None:
        """All that the log has by now."""
        if self._log is None:
            return
        more = True
        while more:
            try:
                batch = self._log.read()
            except LogError as error:
                self._note(str(error))
                return
            self._write(batch, now())
            more = batch.more

    def _write(self, batch: Batch, at: float) -> None:
        if batch.restarted and self._redactor is not None:
            self._redactor.restarted()
        for line in batch.lines:
            self.tally.lines += 1
            for text in [line.text] if self._redactor is None else self._redactor.lines(line.text):
                self._writer.log(at, text)

    def _note(self, complaint: str) -> None:
        if complaint not in self.tally.complaints and len(self.tally.complaints) < 100:
            self.tally.complaints.append(complaint)
            self._complain(complaint)
