"""What the Kubernetes API tells of a pod's containers, as far as it is needed to read their logs."""

from __future__ import annotations

import msgspec

from vllm_length_exporter.sources.logs.ending import ending


class Terminated(msgspec.Struct):
    exit_code: int = msgspec.field(name="exitCode", default=0)
    reason: str = ""
    container: str = msgspec.field(name="containerID", default="")

    @property
    def ending(self) -> str:
        return ending(self.exit_code, out_of_memory=self.reason == "OOMKilled", reason=self.reason)


class Waiting(msgspec.Struct):
    reason: str = ""


class State(msgspec.Struct):
    running: dict[str, object] | None = None
    terminated: Terminated | None = None
    waiting: Waiting | None = None


class Container(msgspec.Struct):
    name: str
    container: str = msgspec.field(name="containerID", default="")
    state: State = msgspec.field(default_factory=State)
    last: State = msgspec.field(name="lastState", default_factory=State)

    @property
    def latest(self) -> Terminated | str | None:
        """The container that a log without `previous` is of: its id while it runs, else how it ended."""
        if self.state.running is not None:
            return self.container or None
        return self.state.terminated or self.last.terminated

    @property
    def before(self) -> Terminated | None:
        """The container before that one."""
        started = self.state.running is not None or self.state.terminated is not None
        return self.last.terminated if started else None


class Status(msgspec.Struct):
    containers: list[Container] = msgspec.field(name="containerStatuses", default_factory=list)
    initial: list[Container] = msgspec.field(name="initContainerStatuses", default_factory=list)


class Pod(msgspec.Struct):
    status: Status = msgspec.field(default_factory=Status)
