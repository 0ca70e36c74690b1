"""`python -m tests.bench.bench_middleware`: the middleware's cost against its budgets, as a table.

An application that answers at once is called with the middleware and without; the figures are the differences.
Processors differ, and a busy one is slow: beside the budget stands what decoding the same request and answer with
`json.loads` costs in the same run. Exits with 1 when a budget is not kept and the yardstick does not excuse it.
"""

from __future__ import annotations

import asyncio
import gc
import json
import statistics
import sys
import time
import tracemalloc
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from tests.bench.figure import HEADER, Figure
from tests.middleware.scripted import (
    CHAT,
    DONE,
    Message,
    delta,
    final,
    request,
    served,
    stream,
    vllm,
)
from vllm_length_exporter.middleware import LengthAccounting

ROUNDS, CALLS = 30, 100
CHUNKS = 1000
KILOBYTES = (1, 4, 64, 512)
TEXT = (
    "The quick brown fox jumps over the lazy dog, and the dog, who has seen many foxes, does not mind in the least. "
    'Asked why, it said "habit" and\nslept on. '
)
Asgi = Callable[[Any, Any, Any], Awaitable[None]]


def main() -> int:
    print(HEADER)
    kept = True
    for figure in [*requests(), *chunks(), memory()]:
        print(figure.row(), flush=True)
        kept = kept and figure.kept
    return 0 if kept else 1


def requests() -> list[Figure]:
    """A request with an answer in one message, by the size of its body."""
    figures, costs = [], {}
    answer = served(700, 120, text="word " * 200)
    for size in KILOBYTES:
        asked = request(messages=[{"role": "user", "content": text(size * 1024 - 150)}], max_tokens=200)
        body = asked[0]["body"]
        costs[size] = difference(asked, answer)
        decoding = sum(microseconds(partial(json.loads, data)) for data in (body, answer[1]["body"]))
        budget = 20.0 if size <= 4 else None
        note = f"{costs[size] / decoding:.1f} x json.loads of request and answer ({decoding:.1f} us)"
        figures.append(Figure(f"a request of {size} kB", costs[size], "us", budget, note=note))
    further = (costs[512] - costs[4]) / 508
    return [*figures, Figure("  of it a further kB", further, "us", 2)]


def chunks() -> list[Figure]:
    """A streamed chunk, of one answer and of two."""
    figures = []
    for answers in (1, 2):
        asked = request(messages=[], n=answers, max_tokens=200)
        sent = stream(*[delta()] * CHUNKS, *[delta(None, "stop")] * answers, final(700, CHUNKS), DONE)
        cost = difference(asked, sent, calls=4) / CHUNKS
        what = "a streamed chunk" if answers == 1 else "  with two answers in the stream"
        figures.append(Figure(what, cost, "us", 0.5 if answers == 1 else None))
    return figures


def memory() -> Figure:
    """What is left after 10,000 requests."""
    asked, answer = (
        request(messages=[], max_tokens=200),
        stream(delta(), delta(None, "stop"), final(5, 5), DONE),
    )
    wrapped = LengthAccounting(application(answer))
    asyncio.run(calls(wrapped, asked, 100))
    tracemalloc.start()
    asyncio.run(calls(wrapped, asked, 100))
    gc.collect()
    before = tracemalloc.get_traced_memory()[0]
    asyncio.run(calls(wrapped, asked, 10_000))
    gc.collect()
    left = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    return Figure("memory left by 10,000 requests", left / 1e3, "kB", 20)


def text(size: int) -> str:
    return (TEXT * (size // len(TEXT) + 1))[: size - 3 * size // len(TEXT)]  # escapes add the rest


def difference(asked: Sequence[Message], answer: Sequence[Message], calls: int = CALLS) -> float:
    """Microseconds that the middleware adds to a call: the least median of several rounds, with and without in turn."""
    bare = application(answer)
    wrapped = LengthAccounting(bare)
    with_it, without = [], []
    for _ in range(ROUNDS):
        without.append(asyncio.run(calls_median(bare, asked, calls)))
        with_it.append(asyncio.run(calls_median(wrapped, asked, calls)))
    return min(with_it) - min(without)


def application(answer: Sequence[Message]) -> Asgi:
    async def answering(scope: Any, receive: Any, send: Any) -> None:
        while (await receive()).get("more_body"):
            pass
        for message in answer:
            await send(message)

    return answering


async def calls_median(app: Asgi, asked: Sequence[Message], count: int) -> float:
    return statistics.median(await calls(app, asked, count)) * 1e6


async def calls(app: Asgi, asked: Sequence[Message], count: int) -> list[float]:
    """Seconds of each of so many calls."""
    state = vllm()

    async def receive() -> Message:
        return asked[0]

    async def send(message: Message) -> None:
        pass

    took = []
    for _ in range(count):
        scope = {"type": "http", "method": "POST", "path": CHAT, "headers": [], "app": state}
        begun = time.perf_counter()
        await app(scope, receive, send)
        took.append(time.perf_counter() - begun)
    return took


def microseconds(work: Callable[[], object]) -> float:
    """The least median of several rounds."""

    def once() -> float:
        begun = time.perf_counter()
        work()
        return time.perf_counter() - begun

    return min(statistics.median(once() for _ in range(CALLS)) for _ in range(ROUNDS)) * 1e6


if __name__ == "__main__":
    sys.exit(main())
