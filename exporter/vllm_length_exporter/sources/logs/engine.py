"""What the Docker Engine's API tells of a container: its state, its events, and its log's messages."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import msgspec
import urllib3

from vllm_length_exporter.sources.logs.assembly import Assembler
from vllm_length_exporter.sources.logs.lines import LogError

CHUNK = 65_536  # bytes a read
HEADER = struct.Struct(">BxxxL")  # which stream, and how many bytes follow
STDOUT = 1
LARGEST = 16 * 1024 * 1024  # bytes of a message; Docker splits them far below


class State(msgspec.Struct, rename="pascal"):
    running: bool = False
    restarting: bool = False  # between two runs, though "running"
    out_of_memory: bool = msgspec.field(name="OOMKilled", default=False)
    exit_code: int = 0
    started_at: str = ""

    @property
    def runs(self) -> bool:
        return self.running and not self.restarting


class Config(msgspec.Struct, rename="pascal"):
    tty: bool = False


class Container(msgspec.Struct, rename="pascal"):
    id: str
    state: State
    config: Config


class Actor(msgspec.Struct, rename="pascal"):
    attributes: dict[str, str] = {}


class Event(msgspec.Struct):
    action: str = msgspec.field(name="Action", default="")
    actor: Actor = msgspec.field(name="Actor", default_factory=Actor)
    time: int = msgspec.field(name="timeNano", default=0)


def framed_messages(raw: urllib3.BaseHTTPResponse) -> Iterator[list[tuple[int, bytes]]]:
    """The messages of a log without a terminal, as many as came; each begins with its stamp.

    One that Docker split, as it was longer than 16 kB, has no line feed at its end and goes on in the next
    of its stream.
    """
    held = b""
    for data in iter(lambda: raw.read1(CHUNK), b""):
        held += data
        messages, at = [], 0
        while at + HEADER.size <= len(held):
            stream, size = HEADER.unpack_from(held, at)
            if size > LARGEST:
                raise LogError(f"log of a container: no message has {size} bytes; Docker's answer is garbled")
            end = at + HEADER.size + size
            if end > len(held):
                break
            messages.append((stream, held[at + HEADER.size : end]))
            at = end
        held = held[at:]
        yield messages


def terminal_messages(raw: urllib3.BaseHTTPResponse) -> Iterator[list[tuple[int, bytes]]]:
    """The same for a log with a terminal, which is a single stream of lines."""
    assembler = Assembler()
    for data in iter(lambda: raw.read1(CHUNK), b""):
        yield [(STDOUT, line.encode() + b"\n") for line in assembler.feed(data)]
