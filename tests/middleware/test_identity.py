"""Nothing is held and nothing is changed: both sides see the very same messages, and memory stays flat."""

from __future__ import annotations

import copy
import gc
import random
import tracemalloc
from collections.abc import Iterator

from tests.middleware.scripted import (
    CHAT,
    COMPLETIONS,
    DISCONNECT,
    DONE,
    EMBEDDINGS,
    MESSAGES,
    RESPONSES,
    Message,
    Script,
    body,
    compact,
    counted,
    delta,
    error,
    final,
    named,
    of,
    play,
    served,
    start,
    stream,
)
from vllm_length_exporter.middleware import LengthAccounting

REQUESTS = 10_000
PATHS = (CHAT, COMPLETIONS, RESPONSES, MESSAGES, EMBEDDINGS, "/score", "/v1/models")


def scripts(seed: int, count: int) -> Iterator[Script]:
    """Requests and answers of every kind, whole and broken."""
    chance = random.Random(seed)
    for _ in range(count):
        yield Script(
            request=[*_request(chance), *([DISCONNECT] if chance.random() < 0.1 else [])],
            answer=_answer(chance),
            error=ValueError("max_tokens must be at least 1, got 0.") if chance.random() < 0.05 else None,
            reads=chance.choice([None, None, None, 0, 1]),
            reads_after=chance.choice([0, 0, 0, 1]),
            path=chance.choice(PATHS),
        )


def _request(chance: random.Random) -> list[Message]:
    fields = {"model": chance.choice(["tiny", "nope", 7]), "n": chance.choice([None, 1, 2, "x"])}
    fields |= {"max_tokens": chance.choice([None, 0, 20, 9000, "20", 2.5])}
    fields |= {"messages": [{"role": "user", "content": 'say "max_tokens": 5, ' * chance.randrange(20)}]}
    fields |= {"prompt": chance.choice(["x", ["x", "y"], [1, 2, 3]])}
    pairs = list(fields.items())
    chance.shuffle(pairs)
    data = compact(dict(pairs))
    if chance.random() < 0.1:
        data = data[: chance.randrange(len(data))]
    cut = sorted(chance.randrange(len(data) + 1) for _ in range(chance.choice([0, 0, 1, 3])))
    return body(*(data[i:j] for i, j in zip([0, *cut], [*cut, len(data)], strict=True)))


def _answer(chance: random.Random) -> list[Message]:
    prompt, output = chance.randrange(1, 9000), chance.randrange(0, 9000)
    reason = chance.choice(["stop", "length", "error"])
    kinds: list[list[Message]] = [
        served(prompt, output, *[reason] * chance.randrange(1, 3)),
        error("max_tokens must be at least 1, got 0."),
        error("The model does not exist.", 404),
        stream(*[delta()] * chance.randrange(30), delta(None, reason), final(prompt, output), DONE),
        stream(*[delta()] * chance.randrange(30), delta(None, reason), DONE),
        stream(named("message_start"), named("message_stop")),
        [start(200, "application/json", (b"content-encoding", b"gzip")), *served(1, 1)[1:]],
        [],
    ]
    answer = chance.choice(kinds)
    return answer[: chance.randrange(len(answer) + 1)] if chance.random() < 0.1 else answer


def test_ten_thousand_requests_pass_as_they_are() -> None:
    played = list(scripts(7, REQUESTS))
    as_made = copy.deepcopy([(script.request, script.answer) for script in played])
    with counted() as found:
        seen = play(*played)  # compares the objects on both sides
    assert [(script.request, script.answer) for script in played] == as_made
    assert of(found, "errors_total") == {}
    streamed = sum(len(one.sent) > 4 for one in seen)
    assert streamed > REQUESTS / 10
    asked = sum(script.path != "/v1/models" for script in played)
    assert sum(of(found, "requests_total").values()) == asked


def test_memory_stays_flat() -> None:
    play(*scripts(1, 200))  # every series is there from now on
    gc.collect()
    tracemalloc.start()
    try:
        play(*scripts(2, 200))
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        for seed in range(3, 6):
            play(*scripts(seed, 200))
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert grown < 50_000, f"600 requests left {grown} bytes"


def test_a_long_stream_is_not_kept() -> None:
    events = [delta("x" * 1000) for _ in range(5000)]  # 5.8 MB
    script = Script(body(b'{"n": 1}'), stream(*events, delta(None, "stop"), final(5, 5), DONE))
    assert peak(script, LengthAccounting) - peak(script, None) < 300_000


def peak(script: Script, middleware: type[LengthAccounting] | None) -> int:
    """Bytes at most while the script was played."""
    play(script, middleware=middleware)
    tracemalloc.start()
    try:
        play(script, middleware=middleware)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
