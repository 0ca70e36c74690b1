"""Many vLLM servers that cost nothing: recorded pages over keep-alive HTTP, one port a server, one event loop."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from types import TracebackType
from typing import Self

from tests import recorded
from vllm_length_exporter.recording import Player

RECORDING = "0.32.0-pressure"
TURNS = 200  # pages until a server stands still


class Fleet:
    """`with Fleet(200) as fleet:` serves; each plays the recording, round and round, a second a request."""

    def __init__(self, size: int, recording: str = RECORDING) -> None:
        self._size = size
        player = Player(recorded.recording(recording), loop=True)
        self.pages = [page for turn in range(TURNS) if (page := player.page(turn))]
        truth = recorded.truth(recording)
        self._bodies = [_answer(page.encode(), "text/plain; version=0.0.4") for page in self.pages]
        self._answers = {
            "/v1/models": _answer(json.dumps(truth["models"]).encode(), "application/json"),
            "/version": _answer(json.dumps(truth["version"]).encode(), "application/json"),
        }
        self.addresses: list[str] = []
        self.served = 0  # pages, of all servers
        self._ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="fleet")

    def _run(self) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            self._loop.run_until_complete(self._serve())
        self._loop.run_until_complete(asyncio.sleep(0))  # let the connections' tasks end
        self._loop.close()

    async def _serve(self) -> None:
        servers = [await asyncio.start_server(self._connection, "127.0.0.1", 0) for _ in range(self._size)]
        self.addresses = ["127.0.0.1:{1}".format(*server.sockets[0].getsockname()) for server in servers]
        self._ready.set()
        try:
            await asyncio.Event().wait()
        finally:
            for server in servers:
                server.close()

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        turn = 0
        with (
            contextlib.closing(writer),
            contextlib.suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError),
        ):
            while True:
                path = (await reader.readuntil(b"\r\n\r\n")).split(b" ", 2)[1].decode()
                if path == "/metrics":
                    self.served += 1
                    turn += 1
                    writer.write(self._bodies[min(turn, len(self._bodies)) - 1])
                else:
                    writer.write(
                        self._answers.get(path, b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
                    )
                await writer.drain()

    def __enter__(self) -> Self:
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._cancel)
        self._thread.join()

    def _cancel(self) -> None:
        for task in asyncio.all_tasks(self._loop):
            task.cancel()


def _answer(body: bytes, content_type: str) -> bytes:
    head = f"HTTP/1.1 200 OK\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body
