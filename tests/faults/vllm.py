"""Stand-in vLLM servers whose every page tells which it is, and that misbehave as told.

All numbers of a page are made from the process's number and the page's own, so whatever is published can be
traced to the page it came from: a mixture of two pages, or of two processes, shows.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from enum import StrEnum
from types import TracebackType
from typing import Self

from tests import recorded

PAGES_OF_A_PROCESS = 100_000
LIMIT, LIMIT_STEP = 4096, 128  # tokens: of the first process, and by how much each next one's is larger
BLOCKS, BLOCK_SIZE = 80, 128
VERSIONS = ("0.32.0", "0.31.0", "0.30.0")
REMEMBERED = 400  # pages
LAG = 0.5  # seconds: half of what the exporter waits for an answer


class Mode(StrEnum):
    OK = "ok"
    REFUSE = "refuse"  # nothing listens
    HANG = "hang"  # accepts, and says nothing
    DRIP = "drip"  # a byte at a time
    ERROR = "error"  # 500
    GARBAGE = "garbage"  # a page that is none
    CUT = "cut"  # ends in the middle of the page
    HUGE = "huge"  # a body without end
    SLOW = "slow"  # good pages, just within the time


@dataclass
class Vllm:
    """One server. `process` counts its starts; what a page shows follows from it and from `page`."""

    name: str
    restarts: bool = True
    mode: Mode = Mode.OK
    since: float = field(default_factory=time.monotonic)  # of the mode or process
    process: int = 0
    page: int = 0
    port: int = 0
    pages: deque[tuple[float, int, int]] = field(default_factory=lambda: deque(maxlen=REMEMBERED))

    @property
    def limit(self) -> int:
        return self.limit_of(self.process)

    def limit_of(self, process: int) -> int:
        return LIMIT + LIMIT_STEP * process if self.restarts else 8192

    def capacity_of(self, process: int) -> int:
        return (BLOCKS + process) * BLOCK_SIZE

    def running(self, process: int, page: int) -> int:
        return process * PAGES_OF_A_PROCESS + page


class Servers:
    """`with Servers([...]) as servers:` serves all of them from one thread."""

    def __init__(self, servers: list[Vllm]) -> None:
        self.servers = servers
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="vllm")
        self._ready = threading.Event()
        self._listening: dict[str, asyncio.Server] = {}
        self._writers: dict[str, set[asyncio.StreamWriter]] = {server.name: set() for server in servers}
        self._begun = time.time()
        text = recorded.pages("0.32.0-pressure")[20][1]
        self._template = text
        self.lagged_at = 0.0  # monotonic: when these servers themselves last had no processor to answer with

    # --- from the test's thread

    def behave(self, server: Vllm, mode: Mode) -> None:
        self._call(self._behave(server, mode))

    def restart(self, server: Vllm) -> None:
        """A new process: another limit, capacity, version; counters from 0. Connections break."""
        self._call(self._restart(server))

    def _call(self, what: object) -> None:
        asyncio.run_coroutine_threadsafe(what, self._loop).result(20)  # type: ignore[arg-type]

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(20)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._cancel)
        self._thread.join()

    # --- in the loop

    def _run(self) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            self._loop.run_until_complete(self._serve())
        self._loop.run_until_complete(asyncio.sleep(0.05))
        self._loop.close()

    def _cancel(self) -> None:
        for task in asyncio.all_tasks(self._loop):
            task.cancel()

    async def _serve(self) -> None:
        for server in self.servers:
            await self._listen(server)
        self._ready.set()
        try:
            await self._watch_lag()
        finally:
            for listening in self._listening.values():
                listening.close()

    async def _watch_lag(self) -> None:
        while True:
            begun = time.monotonic()
            await asyncio.sleep(0.1)
            if time.monotonic() - begun > LAG:
                self.lagged_at = time.monotonic()

    async def _listen(self, server: Vllm) -> None:
        listening = await asyncio.start_server(
            lambda reader, writer: self._connection(server, reader, writer), "127.0.0.1", server.port
        )
        server.port = listening.sockets[0].getsockname()[1]
        self._listening[server.name] = listening

    async def _behave(self, server: Vllm, mode: Mode) -> None:
        if server.mode is Mode.REFUSE and mode is not Mode.REFUSE:
            await self._listen(server)
        if mode is Mode.REFUSE and server.mode is not Mode.REFUSE:
            self._listening.pop(server.name).close()
            self._break(server)
        if mode is Mode.OK:
            self._break(server)  # whoever still hangs or drips
        server.mode, server.since = mode, time.monotonic()

    async def _restart(self, server: Vllm) -> None:
        server.process, server.page, server.since = server.process + 1, 0, time.monotonic()
        self._break(server)

    def _break(self, server: Vllm) -> None:
        for writer in self._writers[server.name]:
            writer.transport.abort()

    async def _connection(
        self, server: Vllm, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._writers[server.name].add(writer)
        try:
            with contextlib.suppress(asyncio.IncompleteReadError, OSError, asyncio.CancelledError):
                while True:
                    path = (await reader.readuntil(b"\r\n\r\n")).split(b" ", 2)[1].decode()
                    await self._answer(server, path, writer)
                    await writer.drain()
        finally:
            self._writers[server.name].discard(writer)
            writer.close()

    async def _answer(self, server: Vllm, path: str, writer: asyncio.StreamWriter) -> None:
        match server.mode:
            case Mode.HANG:
                await asyncio.sleep(60)
            case Mode.ERROR:
                writer.write(b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n")
                return
            case Mode.GARBAGE:
                writer.write(
                    _http(b'vllm:num_requests_running{engine="0" 7\n\xff\x00}{\n' * 50, "text/plain")
                )
                return
            case Mode.HUGE:
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n")
                while True:
                    writer.write(b"# nothing\n" * 10_000)
                    await writer.drain()
            case Mode.SLOW:
                await asyncio.sleep(0.4)
        body = self._body(server, path)
        if server.mode is Mode.DRIP:
            for byte in body:
                writer.write(bytes([byte]))
                await writer.drain()
                await asyncio.sleep(0.02)
        elif server.mode is Mode.CUT:
            writer.write(body[: len(body) // 2])
            await writer.drain()
            writer.transport.abort()
        else:
            writer.write(body)

    def _body(self, server: Vllm, path: str) -> bytes:
        version = VERSIONS[server.process % len(VERSIONS)]
        if path == "/version":
            return _http(json.dumps({"version": version}).encode(), "application/json")
        if path == "/v1/models":
            card = {"id": "tiny", "object": "model", "max_model_len": server.limit, "parent": None}
            return _http(json.dumps({"object": "list", "data": [card]}).encode(), "application/json")
        if path != "/metrics":
            return b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"
        server.page += 1
        server.pages.append((time.monotonic(), server.process, server.page))
        return _http(self._page(server).encode(), "text/plain; version=0.0.4")

    def _page(self, server: Vllm) -> str:
        process, page = server.process, server.page
        capacity = server.capacity_of(process)
        text = _with(self._template, "vllm:num_requests_running", server.running(process, page))
        text = _with(text, "vllm:num_preemptions_total", page)
        text = re.sub(
            r"(?m)^process_start_time_seconds .*",
            f"process_start_time_seconds {self._begun + 10 * process}",
            text,
        )
        text = text.replace('num_gpu_blocks="80"', f'num_gpu_blocks="{BLOCKS + process}"')
        text = text.replace('num_gpu_blocks_override="80"', f'num_gpu_blocks_override="{BLOCKS + process}"')
        text = text.replace('kv_cache_size_tokens="10240"', f'kv_cache_size_tokens="{capacity}"')
        many = f'kv_cache_max_concurrency="{capacity / server.limit}"'
        return text.replace('kv_cache_max_concurrency="1.25"', many)


def _with(text: str, name: str, value: int) -> str:
    return re.sub(rf"(?m)^({name}\{{[^}}]*\}}) .*", rf"\g<1> {value}.0", text)


def _http(body: bytes, content_type: str) -> bytes:
    head = f"HTTP/1.1 200 OK\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body
