"""A stand-in for the Kubernetes API server and a kubelet: a pod's status, and its containers' logs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.sources.stamped_log import SECOND, Handler, Message, StampedLog, stamp

POD = "/api/v1/namespaces/models/pods/vllm-0"


@dataclass
class Run:
    """One container of the name; the kubelet keeps the log of the present one and of the one before."""

    id: str
    log: StampedLog = field(default_factory=StampedLog)
    terminated: tuple[int, str] | None = None  # exit code and reason
    complaint: bytes = b""  # what the kubelet writes where it cannot read on, without a stamp

    def end(self, code: int, reason: str) -> None:
        self.terminated = (code, reason)
        self.log.finish()

    def state(self) -> dict[str, Any]:
        if self.terminated is None:
            return {"running": {"startedAt": "2026-11-29T16:00:00Z"}}
        code, reason = self.terminated
        return {"terminated": {"exitCode": code, "reason": reason, "containerID": self.id}}


@dataclass
class Cluster:
    """`runs` are what the kubelet knows; `shown` is how many of them the API shows, None for all."""

    runs: list[Run] = field(default_factory=list)
    shown: int | None = None
    waiting: str = ""
    others: tuple[str, ...] = ()
    token: str = "token"
    forbidden: bool = False

    def run(self, name: str) -> Run:
        self.runs.append(Run(f"containerd://{name}"))
        self.waiting = ""
        return self.runs[-1]

    def answer(self, handler: Handler) -> None:
        url = urlsplit(handler.path)
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        if handler.headers["Authorization"] != f"Bearer {self.token}":
            handler.whole(401, b"{}")
        elif self.forbidden:
            handler.whole(403, b"{}")
        elif url.path == POD:
            handler.whole(200, json.dumps(self.pod()).encode())
        elif url.path == f"{POD}/log":
            self.answer_log(handler, query)
        else:
            handler.whole(404, b"{}")

    def pod(self) -> dict[str, Any]:
        runs = self.runs[: self.shown]
        status: dict[str, Any] = {"name": "vllm", "restartCount": max(len(runs) - 1, 0)}
        if runs:
            status["containerID"] = runs[-1].id
        if self.waiting:
            status["state"] = {"waiting": {"reason": self.waiting}}
            status["lastState"] = runs[-1].state() if runs else {}
        else:
            status["state"] = runs[-1].state()
            status["lastState"] = runs[-2].state() if len(runs) > 1 else {}
        others = [{"name": other, "state": {}, "lastState": {}} for other in self.others]
        return {"kind": "Pod", "status": {"phase": "Running", "containerStatuses": [status, *others]}}

    def answer_log(self, handler: Handler, query: dict[str, str]) -> None:
        assert (query["container"], query["timestamps"]) == ("vllm", "true")
        previous = query.get("previous") == "true"
        if len(self.runs) < 1 + previous:
            handler.whole(400, b'{"message": "previous terminated container not found"}')
            return
        handler.pieces(log_pieces(self.runs[-2 if previous else -1], query, handler))


def log_pieces(run: Run, query: dict[str, str], handler: Handler) -> Iterator[bytes]:
    since = 0
    if "sinceTime" in query:
        moment = datetime.strptime(query["sinceTime"], "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
        since = int(moment.timestamp()) * SECOND
    left = int(query.get("limitBytes", 1 << 60))
    follow = query.get("follow") == "true"
    for messages in run.log.since(since, follow=follow, stop=handler.served.stop):
        data = b"".join(map(line, messages))[:left]
        left -= len(data)
        yield data
        if not left:
            return
    yield run.complaint


def line(message: Message) -> bytes:
    return stamp(message.nanoseconds) + b" " + message.text
