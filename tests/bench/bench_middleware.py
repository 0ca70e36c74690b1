"""`python -m tests.bench.bench_middleware`: the middleware's cost against its budgets, as a table.

An application that answers at once is called with the middleware and without; the figures are the differences.
Processors differ, and a busy one is slow: what a real Prometheus spends on a page is measured in the same run, as for
the other budgets, and what `json.loads` needs for the request of 1 kB and its answer stands beside, from the same
rounds. Exits with 1 when a budget is not kept.
With `PROMETHEUS_MULTIPROC_DIR=FOLDER` before it, as where several API servers share a page, counts go to files; the
budgets are set without.
"""

from __future__ import annotations

import asyncio
import gc
import json
import statistics
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from tests.bench.bench_daemon import POLLS, prometheus
from tests.bench.figure import HEADER, Figure, Yardstick
from tests.bench.fleet import Fleet
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

ROUNDS, CALLS = 60, 100
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
    with tempfile.TemporaryDirectory() as name, Fleet(1) as fleet:
        pace = prometheus(fleet, Path(name), 1, 0.1, POLLS)
    for figure in [*requests(pace), *chunks(pace), memory()]:
        print(figure.row(), flush=True)
        kept = kept and figure.kept
    return 0 if kept else 1


def requests(pace: Yardstick) -> list[Figure]:
    """A request with an answer in one message, by the size of its body."""
    figures, costs = [], {}
    answer = served(700, 120, text="word " * 200)
    for size in KILOBYTES:
        costs[size], json_here = difference(prose(size), answer)
        budget = 20.0 if size <= 4 else None
        figures.append(timed(f"a request of {size} kB", costs[size], budget, json_here, pace))
    further = (costs[512] - costs[4]) / 508
    return [*figures, timed("  of it a further kB", further, 2, json_here, pace)]


def chunks(pace: Yardstick) -> list[Figure]:
    """A streamed chunk, of one answer and of two."""
    figures = []
    for answers in (1, 2):
        asked = request(messages=[], n=answers, max_tokens=200)
        sent = stream(*[delta()] * CHUNKS, *[delta(None, "stop")] * answers, final(700, CHUNKS), DONE)
        cost, json_here = difference(asked, sent, calls=4)
        what = "a streamed chunk" if answers == 1 else "  with two answers in the stream"
        figures.append(timed(what, cost / CHUNKS, 0.5 if answers == 1 else None, json_here, pace))
    return figures


def timed(what: str, cost: float, budget: float | None, json_here: float, pace: Yardstick) -> Figure:
    """A figure of time beside its budget, and as a multiple of what decoding takes."""
    note = f"{cost / json_here:.3g} x json.loads of 1 kB and its answer ({json_here:.1f} us)"
    return Figure(what, cost, "us", budget, pace, note)


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


def prose(size: int) -> list[Message]:
    """A request of so many kB."""
    return request(messages=[{"role": "user", "content": text(size * 1024 - 150)}], max_tokens=200)


def text(size: int) -> str:
    return (TEXT * (size // len(TEXT) + 1))[: size - 3 * size // len(TEXT)]  # escapes add the rest


def difference(
    asked: Sequence[Message], answer: Sequence[Message], calls: int = CALLS
) -> tuple[float, float]:
    """Microseconds that the middleware adds to a call, and those of `json.loads`.

    The rounds have all of them in turn. Counted is the third of the rounds in which that took least: others
    had the processor, or it was slow, in the rest.
    """
    decoded = prose(1)[0]["body"], served(700, 120, text="word " * 200)[1]["body"]
    bare = application(answer)
    wrapped = LengthAccounting(bare)
    rounds = []
    for _ in range(ROUNDS):
        without = asyncio.run(calls_median(bare, asked, calls))
        with_it = asyncio.run(calls_median(wrapped, asked, calls))
        rounds.append((decoding_median(*decoded), with_it - without))
    json_here, cost = map(statistics.median, zip(*sorted(rounds)[: ROUNDS // 3], strict=True))
    return cost, json_here


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


def decoding_median(*documents: bytes) -> float:
    """The median of several times, in microseconds."""
    took = []
    for _ in range(CALLS):
        begun = time.perf_counter()
        for document in documents:
            json.loads(document)
        took.append(time.perf_counter() - begun)
    return statistics.median(took) * 1e6


if __name__ == "__main__":
    sys.exit(main())
