"""From the lines of one log stream to events: what vLLM said, once, and nothing that a client wrote.

A text counts only where vLLM itself begins to speak: at the start of a record's message, or as the exception
that a traceback ends with. A header that repeats is the same record going on, so the lines of a prompt that
was logged are never a start.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import replace

from vllm_length_exporter.vllm.envelopes import (
    IS_FINISHED,
    IS_FINISHED_JSON,
    JsonRecord,
    peel,
)
from vllm_length_exporter.vllm.events import Event, EventName, Process, StartFailure
from vllm_length_exporter.vllm.lifecycle import ECHOES, Lifecycle, Phase
from vllm_length_exporter.vllm.messages import Found, Index
from vllm_length_exporter.vllm.messages_errors import REQUEST_ERRORS, STARTUP_ERRORS, USAGE_ERROR
from vllm_length_exporter.vllm.messages_log import LOG, UVICORN
from vllm_length_exporter.vllm.pasted import escaped, pasted, undoubled
from vllm_length_exporter.vllm.records import Header, Line, Raised, Traceback, taken_apart
from vllm_length_exporter.vllm.refusals import REFUSING_PATHS
from vllm_length_exporter.vllm.writers import Record, Writer

FINISHED = '" 200'  # in the access-log line of a finished request, which tells nothing of length
FINISHED_TEXT = '" 200 OK'  # the same where it is no JSON
ACCESS = "INFO:     "  # how uvicorn begins an access line
QUICK_PREFIXES = 16
HEADERS_KEPT = 64  # of one process, to know a record's later lines by
PROCESSES_KEPT = 256
RUNTIMES = 2  # container runtimes round one another
LONGEST_PIECES = 8 * 2**20  # characters of a line in pieces that are kept until its end comes
LONGEST_PROMPT = 10_000  # lines of a logged prompt that are passed over at most

_LOG, _UVICORN = Index(LOG), Index(UVICORN)
_STARTUP, _REQUEST = Index(STARTUP_ERRORS), Index(REQUEST_ERRORS)
_REFUSING = frozenset({"ValueError", "VLLMValidationError", "QueueOverflowError", "MaxQueuedTokensError"})
_DEBUG_REFUSAL = re.compile(r"create_error_response called with (?P<name>\w+): (?P<text>.*)", re.DOTALL)
_USAGE = re.compile(r"(?:vllm(?: serve)?|api_server\.py): error: ")
_REQUEST_END = re.compile(r"(?:lora_request|prompt_adapter_request|token ids|token_ids): [^\n]*\.\s*$")
_ENGINE_DEAD = Found(
    replace(next(row for row in LOG if row.id == "engine_fatal"), id="engine_dead_error"), {}, whole=True
)


class LogParser:
    """Reads one log stream. Feed it lines in order; call `idle` when the stream pauses or ends."""

    def __init__(self) -> None:
        self._life = Lifecycle()
        self._writers: OrderedDict[tuple[str | None, int | None], Writer] = OrderedDict()
        self._pieces: dict[str, str] = {}
        self._plain = False  # a record stood in a line of its own: the stream is no pasted string
        self._prompt = 0  # lines of a logged prompt still to be passed over
        self._answered: OrderedDict[str, None] = OrderedDict()  # refused at DEBUG; a traceback may follow
        self._quick: tuple[str, ...] = ()  # what stands before uvicorn's access lines in this stream

    @property
    def phase(self) -> Phase:
        """Where the server is; it serves, whatever else was said, once something shows that clients can send."""
        early = self._life.phase in (Phase.UNKNOWN, Phase.STARTING)
        return Phase.SERVING if early and not self._life.may_be_starting else self._life.phase

    def feed(self, line: str) -> list[Event]:
        """The events that one physical line completes, in whatever envelope; its end is not needed."""
        # The prefix proves that uvicorn begins the line; it is learnt from the first such line.
        if FINISHED in line and self._is_finished(line):
            return []
        return self._line(line)

    def feed_many(self, lines: Iterable[str]) -> list[Event]:
        """The same for many lines, faster."""
        events: list[Event] = []
        for line in lines:
            if FINISHED in line and (
                (FINISHED_TEXT in line and line.startswith(self._quick)) or self._is_finished(line)
            ):
                continue
            events += self._line(line)
        return events

    def _is_finished(self, line: str) -> bool:
        if FINISHED_TEXT in line and line.startswith(self._quick):
            return True
        if IS_FINISHED(line) is None and IS_FINISHED_JSON(line) is None:
            return False
        self._life.answered()
        if line.startswith(("(", "INFO")) and len(self._quick) < QUICK_PREFIXES:
            self._quick = (*self._quick, line[: line.index(ACCESS) + len(ACCESS)])
        return True

    def idle(self) -> list[Event]:
        """The stream pauses or ends: what was left open is complete."""
        events: list[Event] = []
        pieces, self._pieces = self._pieces, {}
        for text in pieces.values():
            events += self._line(text, RUNTIMES)
        for writer in self._writers.values():
            events += self._finish(writer.process, writer)
        self._prompt = 0
        return events + self._life.idle()

    def end(self) -> list[Event]:
        """The stream ended for good, as a file does that nobody writes to: nothing is waited for."""
        return [*self.idle(), *self.idle()]

    # --- from a line to a record

    def _line(self, line: str, depth: int = 0) -> list[Event]:
        peeled = peel(line)
        if peeled.channel:
            channel = f"{peeled.channel}{depth}"
            text = self._pieces.pop(channel, "") + peeled.text
            if not peeled.whole and len(text) < LONGEST_PIECES:
                self._pieces[channel] = text
                return []
            return self._line(text, depth + 1) if depth < RUNTIMES else []
        if peeled.record is not None:
            return self._json(peeled.record)
        if not self._plain and (lines := pasted(peeled.text) or escaped(peeled.text)):
            self._plain = True  # what is in a pasted string is no pasted string
            events = [event for text in lines for event in self._line(text)]
            self._plain = False
            return events
        return self._text(peeled.text)

    def _text(self, text: str) -> list[Event]:
        if "\n" in text:
            return [event for part in text.split("\n") for event in self._text(part.rstrip("\r"))]
        if self._prompt:
            self._prompt = 0 if _REQUEST_END.search(text[-600:]) else self._prompt - 1
            return []
        if "''" in text or '""' in text:
            text = undoubled(text)
        line = taken_apart(text)
        if line.header is None:
            return self._printed(line)
        if line.header.uvicorn:
            return self._uvicorn(line)
        self._plain = True
        return self._vllm(line, line.header)

    def _json(self, json: JsonRecord) -> list[Event]:
        self._plain = True
        uvicorn = (json.logger or "").startswith("uvicorn")
        header = Header(json.level or "INFO", json.stamp, json.location, uvicorn)
        first, *rest = json.message.split("\n")
        rest += (json.traceback or "").split("\n")
        line = Line(first, Process(json.process, json.pid), header)
        writer = self._writer(line.process)
        if uvicorn:
            events = self._uvicorn(line)
            record = writer.printed
        else:
            writer.records.pop(header, None)  # the borders are certain, also within one second
            events = self._vllm(line, header)
            record = writer.records.get(header)
        if record is not None:
            for text in rest:
                events += self._continued(line._replace(text=text.rstrip("\r")), record)
        return events

    def _writer(self, process: Process) -> Writer:
        key = process.name, process.pid
        writer = self._writers.get(key)
        if writer is None:
            writer = self._writers[key] = Writer(process)
            if len(self._writers) > PROCESSES_KEPT:
                self._writers.popitem(last=False)
        return writer

    def _vllm(self, line: Line, header: Header) -> list[Event]:
        writer = self._writer(line.process)
        record = writer.records.get(header)
        if record is not None and not record.known:
            again = record.head is not None and line.text == record.first  # the same call, the same second
            if not again:
                return self._continued(line, record)
        events = self._finish_announced(line.process, writer)
        loose = header.location is None
        record = writer.records[header] = Record(line.text, header.level, header.stamp, loose=loose)
        writer.records.move_to_end(header)
        if len(writer.records) > HEADERS_KEPT:
            writer.records.popitem(last=False)
        found = _LOG.find(line.text)
        if found is None:
            return events + self._begins_with_an_error(line, record)
        return events + self._begins(found, line, record, writer)

    def _begins(self, found: Found, line: Line, record: Record, writer: Writer) -> list[Event]:
        row = found.message
        record.known = not (row.client or row.head or row.continued or row.within is not None)
        if row.continued:
            writer.announced = record
        if row.within:
            return []  # it counts as a later line of its record only
        if row.head:
            record.head, writer.announced = found, record
            return []
        if row.id.startswith("received_request") and not _REQUEST_END.search(line.text[-600:]):
            self._prompt = LONGEST_PROMPT
        if row.id == "reject_log_debug" and (refused := self._debug_refusal(line.text)) is not None:
            found = refused
        return self._life.told(found, line.process, record.stamp)

    def _continued(self, line: Line, record: Record) -> list[Event]:
        """A later line of a record: a traceback's, or of the few records whose later lines have rows."""
        if record.done:
            return []
        if record.head is None and (not record.first or record.first.startswith("Memory profiling takes ")):
            found = _LOG.find(line.text)
            within = None if found is None else found.message.within
            if found is None or within is None or not record.first.startswith(within):
                return []
            return self._life.told(found, line.process, record.stamp)
        if record.head is None and not (self._life.may_be_starting and record.level in ("ERROR", "CRITICAL")):
            return []  # the later lines of any other record may be a client's
        raised = record.traceback.feed(line.text)
        if raised is None and record.ends_a_start and not record.traceback.frames:
            raised = record.traceback.lone(line.text)  # an excerpt without the frames
        return [] if raised is None else self._raised(raised, record, line.process)

    def _begins_with_an_error(self, line: Line, record: Record) -> list[Event]:
        """An ERROR record may begin with the exception or its text: V0's engine, 0.6.0-0.6.3, and excerpts."""
        if record.level not in ("ERROR", "CRITICAL"):
            return []
        raised = Traceback().lone(line.text)
        for candidate in (raised, Raised("ValueError", line.text)):
            if candidate is None:
                continue
            if candidate.name == "EngineDeadError" or any(
                index.find(candidate.text) for index in (_STARTUP, _REQUEST)
            ):
                return self._raised(candidate, record, line.process)
        return []

    def _uvicorn(self, line: Line) -> list[Event]:
        found = _UVICORN.find(line.text)
        if found is None:
            return []
        if found.message.event is EventName.ACCESS:
            self._life.answered()
            return self._life.told(found, line.process, None) if _may_be_a_refusal(found) else []
        if not found.message.head:
            return self._life.told(found, line.process, None)
        writer = self._writer(line.process)
        events = self._finish_printed(line.process, writer)
        writer.printed = Record(line.text, head=found, asgi=True)
        return events

    def _printed(self, line: Line) -> list[Event]:
        """A line without a header: of uvicorn's or the interpreter's traceback, or of no interest."""
        writer = self._writers.get((line.process.name, line.process.pid))
        record = None if writer is None else writer.printed
        if record is None and writer is not None and writer.announced is not None and writer.announced.loose:
            return self._continued(line, writer.announced)
        if record is None:
            if not self._life.may_be_starting:
                return []
            record = Record(line.text)
            raised = record.traceback.feed(line.text)
            if record.traceback.frames:
                self._writer(line.process).printed = record
            elif raised is None:
                # Nobody can send anything yet, so an excerpt may leave the frames out.
                raised = record.traceback.lone(line.text)
                told = line.process.pid is not None or self._life.phase is Phase.STARTING
                if raised is not None and not (told and _tells_of_a_start(raised.text)):
                    raised = None
            if _USAGE.match(line.text):
                return self._life.start_failed(USAGE_ERROR, line.process, None)
        elif record.asgi and record.done:
            return []
        else:
            raised = record.traceback.feed(line.text)
        return [] if raised is None else self._raised(raised, record, line.process)

    # --- from a record to events

    def _finish(self, process: Process, writer: Writer) -> list[Event]:
        return self._finish_announced(process, writer) + self._finish_printed(process, writer)

    def _finish_announced(self, process: Process, writer: Writer) -> list[Event]:
        record, writer.announced = writer.announced, None
        return [] if record is None else self._unanswered(process, record)

    def _finish_printed(self, process: Process, writer: Writer) -> list[Event]:
        record, writer.printed = writer.printed, None
        return [] if record is None else self._unanswered(process, record)

    def _unanswered(self, process: Process, record: Record) -> list[Event]:
        """A record whose traceback told nothing of length is what its first line says."""
        if record.head is None or record.done:
            return []
        return self._life.told(record.head, process, record.stamp)

    def _raised(self, raised: Raised, record: Record, process: Process) -> list[Event]:
        """An exception, and what it means for where the server is."""
        if raised.name == "EngineDeadError":
            record.done = True
            return self._life.told(_ENGINE_DEAD, process, record.stamp)
        if not record.asgi and self._life.may_be_starting and (found := _STARTUP.find(raised.text)):
            record.done = True
            return self._life.start_failed(found, process, record.stamp)
        # Only the root of a chain: the rest of a message can hold what looks like another traceback.
        if record.level or record.asgi:
            root = not record.done and record.traceback.count <= 1
            if root and raised.name in _REFUSING and (found := _REQUEST.find(raised.text)):
                record.done = True
                if raised.text in self._answered:
                    del self._answered[raised.text]
                    return []
                return self._life.told(found, process, record.stamp)
        printed = record.level is None and (record.traceback.in_vllm or raised.text.startswith(ECHOES))
        if not record.asgi and (printed or record.ends_a_start):
            cause = StartFailure.CONFIGURATION if raised.is_invalid else StartFailure.OTHER
            final = record.level is None and (process.name or "apiserver").lower().startswith("apiserver")
            self._life.failing(raised.name, raised.text, process, record.stamp, final=final, cause=cause)
        return []

    def _debug_refusal(self, text: str) -> Found | None:
        match = _DEBUG_REFUSAL.fullmatch(text)
        if match is None or match.group("name") not in _REFUSING:
            return None
        found = _REQUEST.find(match.group("text"))
        if found is not None:
            self._answered[match.group("text")] = None
            if len(self._answered) > HEADERS_KEPT:
                self._answered.popitem(last=False)
        return found


def events(lines: Iterable[str]) -> list[Event]:
    """The events of a whole log."""
    parser = LogParser()
    found = parser.feed_many(lines)
    return [*found, *parser.end()]


def _tells_of_a_start(text: str) -> bool:
    return text.startswith(ECHOES) or _STARTUP.find(text) is not None


def _may_be_a_refusal(found: Found) -> bool:
    status = found.fields.get("status")
    if not isinstance(status, int) or status < 400 or found.fields.get("method") != "POST":
        return False
    return str(found.fields.get("path", "")).startswith(REFUSING_PATHS)
