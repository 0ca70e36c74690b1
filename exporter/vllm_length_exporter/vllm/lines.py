"""From the lines of one log stream to events: what vLLM said, once, and nothing that a client wrote.

A text counts only where vLLM itself begins to speak: at the start of a record's message, or as the exception
that a traceback ends with. A header that repeats is the same record going on, so the lines of a prompt that
was logged are never a start; and what belongs to a start counts only until the server is up.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from vllm_length_exporter.vllm.envelopes import JsonRecord, bare, pasted, peel
from vllm_length_exporter.vllm.events import Event, EventName, FieldValue, Process, StartFailure
from vllm_length_exporter.vllm.messages import Found, Index, Kind
from vllm_length_exporter.vllm.messages_errors import REQUEST_ERRORS, STARTUP_ERRORS
from vllm_length_exporter.vllm.messages_log import LOG
from vllm_length_exporter.vllm.records import Header, Line, Raised, Traceback, taken_apart
from vllm_length_exporter.vllm.refusals import refusal

HEADERS_KEPT = 64  # of one process, to know a record's later lines by
LONGEST_PIECES = 8 * 2**20  # characters of a line in pieces that are kept until its end comes
LONGEST_PROMPT = 10_000  # lines of a logged prompt that are passed over at most
FINISHED = '" 200 OK'  # the end of an access-log line that tells nothing of length

_LOG = Index(LOG)
_STARTUP = Index(STARTUP_ERRORS)
_REQUEST = Index(REQUEST_ERRORS)

_START = frozenset(
    {
        EventName.MODEL_LENGTH, EventName.SCHEDULER_LIMITS, EventName.KV_MEMORY, EventName.KV_BLOCKS,
        EventName.KV_CAPACITY, EventName.BLOCKS_OVERRIDE, EventName.AUTO_FIT, EventName.BLOCK_SIZE,
        EventName.CAPACITY_TRAP, EventName.WINDOW,
    }
)  # fmt: skip
_OPENERS = frozenset({EventName.VERSION, EventName.ARGUMENTS, EventName.ENGINE_CONFIG})
_UVICORN = frozenset({EventName.STARTED, EventName.ACCESS})
_UVICORN_IDS = frozenset(
    {"uvicorn_asgi_exception", "shutdown_uvicorn", "shutdown_complete", "shutdown_finished", "startup_complete",
     "uvicorn_access"}
)  # fmt: skip
# Exceptions that only pass on that another process failed.
_ECHOES = (
    "Engine core initialization failed", "WorkerProc initialization failed", "Engine process failed to start",
    "EngineCore encountered an issue", "Engine core process", "cancelled",
)  # fmt: skip
_REFUSING = frozenset({"ValueError", "VLLMValidationError", "QueueOverflowError", "MaxQueuedTokensError"})
_REFUSING_PATHS = (
    "/v1/", "/v2/", "/inference/", "/invocations", "/generate", "/score", "/rerank", "/pooling", "/classify",
    "/embed", "/generative_scoring",
)  # fmt: skip
_REQUEST_ENDS = (".",)


class Phase(StrEnum):
    """What the stream has shown of the server so far."""

    UNKNOWN = "unknown"
    STARTING = "starting"
    SERVING = "serving"
    FAILED = "failed"
    ENDED = "ended"


@dataclass(slots=True)
class _Record:
    """A record whose later lines are still to come."""

    first: str
    known: bool = False  # a row matched whose text is complete: the same header again is a new record
    head: bool = False  # its first line announces a traceback
    found: Found | None = None  # told at the record's end, unless its traceback tells more
    traceback: Traceback = field(default_factory=Traceback)
    stamp: str | None = None
    asgi: bool = False
    done: bool = False


@dataclass(slots=True)
class _Failing:
    """A start that fails, for a reason that no row of the catalogue names."""

    name: str
    process: Process
    stamp: str | None
    cause: StartFailure = StartFailure.OTHER
    final: bool = False  # the server's own process ended
    waited: bool = False


class LogParser:
    """Reads one log stream. Feed it lines in order; call `idle` when the stream pauses or ends."""

    def __init__(self) -> None:
        self._phase = Phase.UNKNOWN
        self._starting: set[Process] = set()
        self._lengths: set[Process] = set()  # who told its model's length in this start
        self._engines: set[Process] = set()
        self._speculative = False
        self._headers: dict[Process, OrderedDict[Header, _Record]] = {}
        self._open: dict[Process, _Record] = {}  # tracebacks without a header, by process
        self._failing: _Failing | None = None
        self._shutdown = self._died = False
        self._pieces: dict[str, str] = {}
        self._plain = False  # a record stood in a line of its own: the stream is no pasted string
        self._prompt = 0  # lines of a logged prompt still to be passed over
        self._answered: OrderedDict[str, None] = OrderedDict()  # refusals told at DEBUG, traceback to come
        self._quick: tuple[str, ...] = ()

    def feed(self, line: str) -> list[Event]:
        """The events that one physical line completes, in whatever envelope; its end is not needed."""
        if FINISHED in line and self._quick and line.startswith(self._quick):
            return []
        return self._line(line)

    def feed_many(self, lines: Iterable[str]) -> list[Event]:
        """The same for many lines, at the speed of one test a line for access logs of finished requests."""
        events: list[Event] = []
        for line in lines:
            # The prefix proves that uvicorn begins the line; it is learnt from the first such line.
            if FINISHED in line and line.startswith(self._quick or "\0"):
                continue
            events += self._line(line)
        return events

    def idle(self) -> list[Event]:
        """The stream pauses or ends: what was left open is complete."""
        events: list[Event] = []
        pieces, self._pieces = self._pieces, {}
        for text in pieces.values():
            events += self._text(text)
        for process, records in self._headers.items():
            for header, record in records.items():
                events += self._close(process, header, record)
        for process, record in self._open.items():
            events += self._close(process, None, record)
        self._open.clear()
        self._prompt = 0
        if self._failing is not None:
            if self._failing.final or self._failing.waited:
                events += self._failed_at_last()
            else:
                self._failing.waited = True
        return events

    # --- from a line to a record

    def _line(self, line: str) -> list[Event]:
        peeled = peel(line)
        if not peeled.whole or peeled.channel in self._pieces:
            text = self._pieces.pop(peeled.channel, "") + peeled.text
            if not peeled.whole and len(text) < LONGEST_PIECES:
                self._pieces[peeled.channel] = text
                return []
            return self._text(text)
        if peeled.record is not None:
            return self._json(peeled.record)
        if not self._plain and (lines := pasted(peeled.text)) is not None:
            return [event for text in lines for event in self._text(bare(text))]
        return self._text(peeled.text)

    def _text(self, text: str) -> list[Event]:
        if "\r\n" in text:
            return [event for part in text.split("\r\n") for event in self._text(part)]
        line = taken_apart(text)
        if self._prompt:
            self._prompt = 0 if _ends_request(text) else self._prompt - 1
            return []
        if line.header is None:
            return self._bare(line)
        self._plain = True
        if self._failing is not None:
            self._failing.waited = False
        if line.header.uvicorn:
            return self._uvicorn(line, line.header, text)
        return self._vllm(line, line.header)

    def _json(self, record: JsonRecord) -> list[Event]:
        self._plain = True
        logger = record.logger or ""
        header = Header(record.level or "INFO", record.stamp, record.location, logger.startswith("uvicorn"))
        process = Process(record.process, record.pid)
        first, _, rest = record.message.partition("\n")
        if header.uvicorn:
            events = self._uvicorn(Line(first, process, header), header, None)
        else:
            # Two records of one place and second are two here: their borders are certain.
            self._headers.setdefault(process, OrderedDict()).pop(header, None)
            events = self._vllm(Line(first, process, header), header)
        lines = rest.split("\n") if rest else []
        if record.traceback:
            lines += record.traceback.split("\n")
        for text in lines:
            line = Line(text.rstrip("\r"), process, None if header.uvicorn else header)
            events += self._bare(line) if header.uvicorn else self._vllm(line, header)
        return events

    def _vllm(self, line: Line, header: Header) -> list[Event]:
        records = self._headers.setdefault(line.process, OrderedDict())
        record = records.get(header)
        events: list[Event] = []
        if record is not None and record.head and line.text == record.first:
            events += self._close(line.process, header, record)  # the same call within the same second
        elif record is not None and not record.known:
            return self._continued(line, header, record)
        for other, left in list(records.items()):
            if left.found is not None and other != header:
                events += self._close(line.process, other, left)
        record = records[header] = _Record(line.text, stamp=header.stamp)
        records.move_to_end(header)
        if len(records) > HEADERS_KEPT:
            records.popitem(last=False)
        found = _LOG.find(line.text)
        if found is None and "''" in line.text:
            found = _LOG.find(line.text.replace("''", "'"))  # a log that was quoted for another language
        if found is None or found.message.id in _UVICORN_IDS:
            return events + self._begun_by_an_error(line, header, record)
        message = found.message
        if message.within is not None and message.within != "":
            return events  # only as a later line of its record
        record.known = not (message.client or message.head or message.within is not None)
        if message.id == "v0_memory_profile":
            record.known = False
        if message.id.startswith("received_request") and not _ends_request(line.text):
            self._prompt = LONGEST_PROMPT
        if message.head:
            record.head, record.found = True, found
            return events
        if message.id == "reject_log_debug":
            return events + self._debug_refusal(line, header, found)
        return events + self._told(found, line.process, header.stamp)

    def _continued(self, line: Line, header: Header, record: _Record) -> list[Event]:
        if record.done:
            return []
        if record.first == "" or record.first.startswith("Memory profiling takes "):
            found = _LOG.find(line.text)
            within = None if found is None else found.message.within
            if found is not None and within is not None and record.first.startswith(within):
                return self._told(found, line.process, header.stamp)
            return []
        raised = record.traceback.feed(line.text)
        if raised is None:
            return []
        return self._raised(raised, record, line.process, header.level)

    def _begun_by_an_error(self, line: Line, header: Header, record: _Record) -> list[Event]:
        """An ERROR record may begin with the exception: excerpts do, and 0.6.0-0.6.3 write its text alone."""
        if header.level not in ("ERROR", "CRITICAL"):
            return []
        raised = record.traceback.lone(line.text)
        if raised is None:
            raised = Raised("ValueError", line.text) if _REQUEST.find(line.text) else None
        elif not (_STARTUP.find(raised.text) or _REQUEST.find(raised.text)):
            record.traceback = Traceback()
            return []
        return [] if raised is None else self._raised(raised, record, line.process, header.level)

    def _uvicorn(self, line: Line, header: Header, text: str | None) -> list[Event]:
        found = _LOG.find(line.text)
        if found is None or (found.message.id not in _UVICORN_IDS):
            return []
        message = found.message
        if message.id == "uvicorn_asgi_exception":
            events = self._close_open(line.process)
            self._open[line.process] = _Record(line.text, found=found, asgi=True)
            return events
        if message.event is EventName.ACCESS:
            if text is not None and text.endswith(FINISHED):
                self._learn(text[: len(text) - len(line.text)])
            return self._access(found, line.process)
        return self._told(found, line.process, None)

    def _learn(self, prefix: str) -> None:
        if prefix not in self._quick and len(self._quick) < 16:
            self._quick = (*self._quick, prefix)

    def _access(self, found: Found, process: Process) -> list[Event]:
        status, path = found.fields.get("status"), str(found.fields.get("path", ""))
        if not isinstance(status, int) or status < 400 or found.fields.get("method") != "POST":
            return []
        if not path.startswith(_REFUSING_PATHS):
            return []
        return self._told(found, process, None)

    def _bare(self, line: Line) -> list[Event]:
        record = self._open.get(line.process)
        if record is None:
            record = _Record(line.text)
            raised = record.traceback.feed(line.text)
            if record.traceback.frames:
                self._open[line.process] = record
                return []
            if self._phase is not Phase.STARTING:
                return []
            # Nobody can send anything yet: an excerpt may leave the frames out.
            raised = raised or record.traceback.lone(line.text)
            return [] if raised is None else self._raised(raised, record, line.process, None)
        if record.done and not record.asgi and not record.traceback.frames:
            raised = record.traceback.feed(line.text)
        elif record.done:
            return []
        else:
            raised = record.traceback.feed(line.text)
        return [] if raised is None else self._raised(raised, record, line.process, None)

    # --- from a record to events

    def _close_open(self, process: Process) -> list[Event]:
        record = self._open.pop(process, None)
        return [] if record is None else self._close(process, None, record)

    def _close(self, process: Process, header: Header | None, record: _Record) -> list[Event]:
        found, record.found = record.found, None
        if found is None or record.done:
            return []
        return self._told(found, process, header.stamp if header else record.stamp)

    def _told(self, found: Found, process: Process, stamp: str | None) -> list[Event]:
        event = Event(found.message.event, found.message.id, found.fields, process, stamp)
        name = event.name
        if name in _OPENERS:
            return self._opened(event)
        if name in _START:
            return self._of_a_start(event)
        if name is EventName.STARTED:
            self._up(process)
            return [event]
        if name is EventName.SHUTDOWN:
            if self._phase is Phase.FAILED or self._shutdown:
                return []
            self._shutdown, self._phase, self._failing = True, Phase.ENDED, None
            return [event]
        if name is EventName.ENGINE_DIED:
            return self._engine_died(event)
        if name is EventName.REFUSED:
            return [replace(event, fields=refusal(event.message_id, event.fields))]
        return [event]

    def _opened(self, event: Event) -> list[Event]:
        process = event.process
        again = event.name is EventName.ENGINE_CONFIG and process in self._engines
        if self._phase in (Phase.SERVING, Phase.ENDED) or (
            self._phase is Phase.FAILED and (again or event.name is not EventName.ENGINE_CONFIG)
        ):
            events = self._failed_at_last()
            self._lengths.clear()
            self._engines.clear()
            self._starting.clear()
            self._speculative = self._shutdown = self._died = False
            self._phase = Phase.STARTING
        else:
            events = []
            if event.name is EventName.ARGUMENTS and process in self._starting and self._lengths:
                events = self._failed_at_last()
                self._lengths.clear()
                self._speculative = False
            if self._phase is Phase.UNKNOWN:
                self._phase = Phase.STARTING
        if event.name is EventName.ENGINE_CONFIG:
            self._engines.add(process)
        else:
            self._starting.add(process)
        self._speculative = self._speculative or bool(event.fields.get("speculative"))
        return [*events, event]

    def _of_a_start(self, event: Event) -> list[Event]:
        if self._phase is Phase.SERVING and not self._starting:
            return []
        if self._phase is Phase.UNKNOWN:
            self._phase = Phase.STARTING
        if event.name is EventName.MODEL_LENGTH:
            if event.process in self._lengths:
                return [replace(event, fields={**event.fields, "draft": True})]
            self._lengths.add(event.process)
        return [event]

    def _up(self, process: Process) -> None:
        self._phase, self._failing = Phase.SERVING, None
        if process in self._starting or len(self._starting) <= 1:
            self._starting.discard(process)
            if len(self._starting) <= 1 and process.pid is None:
                self._starting.clear()
        self._shutdown = self._died = False

    def _engine_died(self, event: Event) -> list[Event]:
        if self._phase is Phase.STARTING:
            self._fails("EngineDeadError", event.process, event.stamp)
            return []
        if self._phase is Phase.FAILED or self._died:
            return []
        self._died = True
        return [event]

    def _raised(self, raised: Raised, record: _Record, process: Process, level: str | None) -> list[Event]:
        """An exception, and what it means for where the server is."""
        if raised.name == "EngineDeadError":
            record.done = True
            return self._told(_ENGINE_DEAD, process, record.stamp)
        starting = self._phase in (Phase.STARTING, Phase.UNKNOWN)
        if starting and not record.asgi and (found := _STARTUP.find(raised.text)):
            return self._start_failed(found, record, process)
        answers = record.asgi or level is not None
        if answers and raised.name in _REFUSING and (found := _REQUEST.find(raised.text)):
            if record.done or record.traceback.count > 1:
                return []
            record.done, record.found = True, None
            if self._answered.pop(raised.text, "") is None:
                return []
            return self._told(found, process, record.stamp)
        if record.asgi or self._phase is not Phase.STARTING:
            return []
        fatal = level is None or record.first.endswith("failed to start.")
        if fatal and (record.traceback.in_vllm or raised.text.startswith(_ECHOES)):
            self._fails(
                raised.name, process, record.stamp, raised.text, ends=level is None and _is_server(process)
            )
        return []

    def _debug_refusal(self, line: Line, header: Header, found: Found) -> list[Event]:
        text = line.text.partition(": ")[2]
        refused = _REQUEST.find(text)
        if refused is None or line.text.split(" ")[3].rstrip(":") not in _REFUSING:
            return self._told(found, line.process, header.stamp)
        self._answered[text] = None
        if len(self._answered) > HEADERS_KEPT:
            self._answered.popitem(last=False)
        return self._told(refused, line.process, header.stamp)

    def _start_failed(self, found: Found, record: _Record, process: Process) -> list[Event]:
        record.done, record.found = True, None
        self._phase, self._failing = Phase.FAILED, None
        return [Event(EventName.START_FAILED, found.message.id, found.fields, process, record.stamp)]

    def _fails(
        self, name: str, process: Process, stamp: str | None, text: str = "", *, ends: bool = False
    ) -> None:
        """Something ended the start and no row names it: wait, the root cause may still be told."""
        echo = text.startswith(_ECHOES) or name == "EngineDeadError"
        if self._failing is None:
            self._failing = _Failing(name, process, stamp, final=ends)
        elif not echo and self._failing.name in ("RuntimeError", "Exception", "EngineDeadError"):
            self._failing = _Failing(name, process, stamp, final=self._failing.final or ends)
        else:
            self._failing.final = self._failing.final or ends

    def _failed_at_last(self) -> list[Event]:
        failing, self._failing = self._failing, None
        if failing is None or self._phase is not Phase.STARTING:
            return []
        self._phase = Phase.FAILED
        fields: Mapping[str, FieldValue] = {"cause": str(failing.cause), "exception": failing.name}
        return [Event(EventName.START_FAILED, "start_failed", fields, failing.process, failing.stamp)]


def events(lines: Iterable[str]) -> list[Event]:
    """The events of a whole log."""
    parser = LogParser()
    found = parser.feed_many(lines)
    return [*found, *parser.idle(), *parser.idle()]


def _ends_request(text: str) -> bool:
    """Whether a "Received request" record ends here: all of them end in the LoRA or the token ids."""
    tail = text.rstrip()[-600:]
    return tail.endswith(".") and any(
        part in tail for part in ("lora_request: ", "prompt_adapter_request: ", "token ids: ")
    )


def _is_server(process: Process) -> bool:
    return process.name is None or process.name.lower().startswith("apiserver")


_DEAD_ROW = next(row for row in LOG if row.id == "engine_fatal")
_ENGINE_DEAD = Found(replace(_DEAD_ROW, id="engine_dead_error"), {}, whole=True)
assert all(row.kind is not Kind.LOG for row in (*STARTUP_ERRORS, *REQUEST_ERRORS))
