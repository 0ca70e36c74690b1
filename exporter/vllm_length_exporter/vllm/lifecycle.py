"""Where the server behind a log is in its life, and so which of vLLM's words may be believed.

What belongs to a start counts until the server is up; a reason for a failed start counts before that, and
once; an end counts once. A start whose reason no row of the catalogue names is told late: the root cause
may still come from another process.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from vllm_length_exporter.vllm.events import Event, EventName, FieldValue, Process, StartFailure
from vllm_length_exporter.vllm.messages import Found
from vllm_length_exporter.vllm.refusals import refusal
from vllm_length_exporter.vllm.servers import Servers

_OF_A_START = frozenset(
    {
        EventName.MODEL_LENGTH,
        EventName.DRAFT_LIMIT,
        EventName.SCHEDULER_LIMITS,
        EventName.KV_MEMORY,
        EventName.KV_BLOCKS,
        EventName.KV_CAPACITY,
        EventName.BLOCKS_OVERRIDE,
        EventName.AUTO_FIT,
        EventName.BLOCK_SIZE,
        EventName.CAPACITY_TRAP,
        EventName.WINDOW,
    }
)
_OPENERS = frozenset({EventName.VERSION, EventName.ARGUMENTS, EventName.ENGINE_CONFIG})
_WHILE_SERVING = frozenset({EventName.STATISTICS, EventName.ACCESS, EventName.REFUSED, EventName.PREEMPTED})
# Exceptions that only pass on that another process failed; never a root cause.
ECHOES = (
    "Engine core initialization failed",
    "WorkerProc initialization failed",
    "Engine process failed to start",
    "EngineCore encountered an issue",
    "Engine core process",
)
_ECHOING = frozenset(
    {"EngineDeadError", "RuntimeError", "Exception", "BrokenPipeError", "ConnectionResetError"}
)


class Phase(StrEnum):
    """What the log has shown of the server so far."""

    UNKNOWN = "unknown"  # the log may begin anywhere
    STARTING = "starting"
    SERVING = "serving"
    FAILED = "failed"
    ENDED = "ended"


@dataclass(slots=True)
class _Failing:
    """A start that fails for a reason that no row names."""

    exception: str
    cause: StartFailure
    process: Process
    stamp: str | None
    is_echo: bool
    final: bool  # the server's own process ended: nothing more will come
    waited: bool = False


class Lifecycle:
    """Turns what was said into events, as far as the server's phase lets it be true."""

    def __init__(self) -> None:
        self.phase = Phase.UNKNOWN
        self._starting: set[Process] = set()  # servers that opened a start and are not up yet
        self._lengths: set[Process] = set()  # who told the length of a model in this start
        self._engines: set[Process] = set()
        self._failing: _Failing | None = None
        self._servers = Servers()
        self._shutdown = self._died = self._served = False

    @property
    def may_be_starting(self) -> bool:
        """Whether nobody can have sent a request yet, as far as the log shows."""
        return self.phase in (Phase.STARTING, Phase.UNKNOWN) and not self._served

    def told(self, found: Found, process: Process, stamp: str | None) -> list[Event]:
        """A row of the catalogue was said by `process`."""
        event = Event(found.message.event, found.message.id, found.fields, process, stamp)
        name = event.name
        if self._servers.is_anothers(event):
            return []
        if self._failing is not None:
            self._failing.waited = False
        if name in _OPENERS:
            return self._opened(event)
        if name in _OF_A_START:
            return self._of_a_start(event)
        if name in _WHILE_SERVING or found.message.client:
            self._served = True
        match name:
            case EventName.STARTED:
                self._up(process)
            case EventName.SHUTDOWN:
                if self._shutdown or self.phase is Phase.FAILED:
                    return []
                self._shutdown, self.phase, self._failing = True, Phase.ENDED, None
                self._servers.ended()
            case EventName.ENGINE_DIED:
                return self._engine_died(event)
            case EventName.REFUSED:
                return [replace(event, fields=refusal(event.message_id, event.fields))]
        return [event]

    def answered(self) -> None:
        """A request was answered, so clients can send."""
        self._served = True

    def start_failed(self, found: Found, process: Process, stamp: str | None) -> list[Event]:
        """A row that names why a start failed: the root cause, since it comes first."""
        if not self.may_be_starting:
            return []
        event = Event(EventName.START_FAILED, found.message.id, found.fields, process, stamp)
        if self._servers.is_anothers(event):
            return []
        self.phase, self._failing = Phase.FAILED, None
        self._servers.ended()
        return [event]

    def failing(
        self, exception: str, text: str, process: Process, stamp: str | None,
        *, final: bool = False, cause: StartFailure = StartFailure.OTHER,
    ) -> None:  # fmt: skip
        """Something ended the start and no row names it. The first that is no echo is taken for the root."""
        if self.phase is not Phase.STARTING or self._served:
            return
        echo = exception in _ECHOING and (not text or text.startswith(ECHOES))
        before = self._failing
        if before is None or (before.is_echo and not echo):
            final = final or (before is not None and before.final)
            self._failing = _Failing(exception, cause, process, stamp, echo, final)
        else:
            before.final = before.final or final

    def idle(self) -> list[Event]:
        """The stream pauses. What the server's own end settled is told now, the rest after one more pause."""
        if self._failing is None:
            return []
        if self._failing.final or self._failing.waited:
            return self._failed_at_last()
        self._failing.waited = True
        return []

    def _failed_at_last(self) -> list[Event]:
        failing, self._failing = self._failing, None
        if failing is None or self.phase is not Phase.STARTING:
            return []
        self.phase = Phase.FAILED
        self._servers.ended()
        fields: Mapping[str, FieldValue] = {"cause": str(failing.cause), "exception": failing.exception}
        return [Event(EventName.START_FAILED, "start_failed", fields, failing.process, failing.stamp)]

    def _opened(self, event: Event) -> list[Event]:
        engine = event.name is EventName.ENGINE_CONFIG
        # Engines of one start fail at their own pace: only one that begins again begins a start.
        again = event.process in (self._engines if engine else self._starting)
        over = self.phase in (Phase.SERVING, Phase.ENDED, Phase.FAILED)
        events: list[Event] = []
        if (over and not (engine and not again and self.phase is Phase.FAILED)) or (
            self.phase is Phase.STARTING and again and self._lengths and event.name is not EventName.VERSION
        ):
            events = self._failed_at_last()
            # Another server may still be starting: two servers can write to one log.
            others = self._starting - {event.process} if self.phase is Phase.SERVING else set()
            self._lengths, self._engines, self._starting = set(), set(), others
            self._shutdown = self._died = self._served = False
            self.phase = Phase.STARTING
        elif self.phase is Phase.UNKNOWN:
            self.phase = Phase.STARTING
        elif self.phase is Phase.STARTING and not engine and not again and self._failing is not None:
            events = self._failed_at_last()  # another process begins: the one that failed is gone
            self.phase = Phase.STARTING
        if engine:
            self._engines.add(event.process)
        else:
            self._starting.add(event.process)
        return [*events, event]

    def _of_a_start(self, event: Event) -> list[Event]:
        if self.phase is Phase.SERVING and not self._starting:
            return []
        if self.phase is Phase.UNKNOWN:
            self.phase = Phase.STARTING
        if event.name is not EventName.MODEL_LENGTH:
            return [event]
        if event.process in self._lengths:  # the draft model's, which is told after the server's own
            return [replace(event, fields={**event.fields, "draft": True})]
        self._lengths.add(event.process)
        return [event]

    def _up(self, process: Process) -> None:
        self.phase, self._failing = Phase.SERVING, None
        self._shutdown = self._died = False
        if process in self._starting:
            self._starting.discard(process)
        elif len(self._starting) <= 1:  # uvicorn's lines name no process before 0.10.1 and since 0.31
            self._starting.clear()

    def _engine_died(self, event: Event) -> list[Event]:
        if self.phase is Phase.STARTING and not self._served:
            self.failing("EngineDeadError", "", event.process, event.stamp)
            return []
        if self.phase is Phase.FAILED or self._died:
            return []
        self._died = True
        self._servers.ended()
        return [event]
