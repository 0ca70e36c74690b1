"""Keeps two servers apart that write to one log: the one that opened its start last is told of.

Servers are known by the process that prints their arguments. An engine belongs to the server whose model it
names; where that does not decide, and a former server goes on writing, an engine's words are nobody's.
"""

from __future__ import annotations

from vllm_length_exporter.vllm.events import Event, EventName, Process

FORMER_KEPT = 64


class Servers:
    """Tells for each event whether it may be another server's than the newest."""

    def __init__(self) -> None:
        self._newest: Process | None = None
        self._former: dict[Process, bool] = {}  # whether it may still run
        self._models: dict[Process, str] = {}
        self._own: set[Process] = set()  # engines of the newest
        self._others: set[Process] = set()  # engines of a former one
        self._ended = False
        self._shared = False  # a former server was seen to go on

    def ended(self) -> None:
        """The newest server said, or was said, to be over."""
        self._ended = True

    def is_anothers(self, event: Event) -> bool:
        """Whether the event is another server's than the newest, or cannot be known not to be."""
        process = event.process
        if self._former and process in self._former:
            # A server that is being stopped may still write; one that goes on serving shares the log.
            self._shared = self._shared or (
                self._former[process] and event.name not in (EventName.SHUTDOWN, EventName.OTHER)
            )
            return True
        if event.name in (EventName.ARGUMENTS, EventName.VERSION):
            self._opens(event)
            return False
        if event.name is EventName.ENGINE_CONFIG:
            self._belongs(event)
        if self._others and process in self._others:
            return True
        return self._shared and process != self._newest and process not in self._own

    def _opens(self, event: Event) -> None:
        process = event.process
        if process.pid is None:
            return  # 0.2-0.10.0 name no process: their servers cannot be kept apart
        if self._newest is not None and process != self._newest and process.name == self._newest.name:
            self._former[self._newest] = not self._ended
            if len(self._former) > FORMER_KEPT:
                self._models.pop(oldest := next(iter(self._former)), None)
                del self._former[oldest]
            self._own, self._others, self._shared = set(), set(), False
        self._newest, self._ended = process, False
        if (model := event.text("model")) is not None:
            self._models[process] = model

    def _belongs(self, event: Event) -> None:
        model, running = event.text("model"), [former for former, runs in self._former.items() if runs]
        if model is None or self._newest is None:
            return
        anothers = any(self._models.get(former) == model for former in running)
        own = self._models.get(self._newest) == model
        if own and not anothers:
            self._own.add(event.process)
        elif anothers and not own:
            self._others.add(event.process)
            self._shared = True
