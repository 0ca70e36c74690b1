"""A stand-in for the Docker Engine: the part of its API that gives a container's state, log and events."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from tests.sources.stamped_log import SECOND, Handler, Message, StampedLog, stamp

HEADER = struct.Struct(">BxxxL")


@dataclass
class Container:
    id: str
    log: StampedLog = field(default_factory=StampedLog)
    tty: bool = False
    running: bool = True
    restarting: bool = False
    exit_code: int = 0
    out_of_memory: bool = False
    started: int = 0  # nanoseconds

    def start(self, at: int) -> None:
        self.running, self.started, self.out_of_memory, self.exit_code = True, at, False, 0
        self.log.finished = False

    def end(self, code: int, *, out_of_memory: bool = False) -> None:
        self.running, self.exit_code, self.out_of_memory = False, code, out_of_memory
        self.log.finish()


@dataclass
class Engine:
    containers: dict[str, Container] = field(default_factory=dict)
    events: list[dict[str, Any]] = field(default_factory=list)
    failure: tuple[int, str] | None = None  # status and message of every log request

    def die(self, container: Container, at: int, code: int, *, out_of_memory: bool = False) -> None:
        """What the daemon remembers of an end, even after a new start."""
        for action in ["oom"] * out_of_memory + ["die"]:
            actor = {"ID": container.id, "Attributes": {"exitCode": str(code)} if action == "die" else {}}
            self.events.append({"Type": "container", "Action": action, "Actor": actor, "timeNano": at})

    def answer(self, handler: Handler) -> None:
        url = urlsplit(handler.path)
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        parts = unquote(url.path).strip("/").split("/")
        if parts[0].startswith("v1."):
            parts = parts[1:]
        if parts == ["version"]:
            handler.whole(200, json.dumps({"ApiVersion": "1.47", "MinAPIVersion": "1.24"}).encode())
        elif parts == ["events"]:
            since, until = int(query["since"]) * SECOND, int(query["until"]) * SECOND
            filters = json.loads(query["filters"])
            found = [
                event
                for event in self.events
                if since <= event["timeNano"] <= until
                and event["Actor"]["ID"] in filters["container"]
                and event["Action"] in filters["event"]
            ]
            handler.pieces(json.dumps(event).encode() + b"\n" for event in found)
        else:
            self.answer_container(handler, parts, query)

    def answer_container(self, handler: Handler, parts: list[str], query: dict[str, str]) -> None:
        _, name, what = parts
        found = [
            container for key, container in self.containers.items() if key == name or container.id == name
        ]
        if not found:
            message = {"message": f"No such container: {name}"}
            handler.whole(404, json.dumps(message).encode())
        elif what == "json":
            handler.whole(200, json.dumps(inspection(found[0])).encode())
        elif self.failure is not None:
            handler.whole(self.failure[0], json.dumps({"message": self.failure[1]}).encode())
        else:
            handler.pieces(log_pieces(found[0], query, handler))


def inspection(container: Container) -> dict[str, Any]:
    state = {
        "Running": container.running,
        "Restarting": container.restarting,
        "OOMKilled": container.out_of_memory,
        "ExitCode": container.exit_code,
        "StartedAt": stamp(container.started).decode(),
    }
    return {"Id": container.id, "State": state, "Config": {"Tty": container.tty}, "Name": "/x"}


def log_pieces(container: Container, query: dict[str, str], handler: Handler) -> Iterator[bytes]:
    assert (query["stdout"], query["stderr"], query["timestamps"]) == ("1", "1", "1")
    since = int(query.get("since", "0")) * SECOND
    follow = query["follow"] == "1"
    encode = raw if container.tty else frame
    for messages in container.log.since(since, follow=follow, stop=handler.served.stop):
        yield b"".join(map(encode, messages))


def frame(message: Message) -> bytes:
    text = stamp(message.nanoseconds) + b" " + message.text
    return HEADER.pack(message.stream, len(text)) + text


def raw(message: Message) -> bytes:
    return stamp(message.nanoseconds) + b" " + message.text.replace(b"\n", b"\r\n")
