"""Two servers that write to one log: what is told is the newer one's, or nobody's."""

from __future__ import annotations

from itertools import chain, zip_longest

import pytest

from vllm_length_exporter.vllm.events import Event, EventName
from vllm_length_exporter.vllm.lines import events

STAMP = "INFO 11-29 14:35:05"


def server(pid: int, model: str, limit: int, tokens: str, *, up: bool = True) -> list[str]:
    api, engine = f"(APIServer pid={pid})", f"(EngineCore pid={pid + 1})"
    config = f"model='{model}', speculative_config=None, max_seq_len={limit}, kv_cache_dtype=auto"
    lines = [
        f"{api} {STAMP} [utils.py:1] non-default args: {{'model': '{model}', 'max_model_len': {limit}}}",
        f"{api} {STAMP} [model.py:1] Using max model len {limit}",
        f"{engine} {STAMP} [core.py:1] Initializing a V1 LLM engine (v0.20.2) with config: {config}",
        f"{engine} {STAMP} [gpu_worker.py:1] Available KV cache memory: {limit / 1000} GiB",
        f"{engine} {STAMP} [kv_cache_utils.py:1] GPU KV cache size: {tokens} tokens",
        f"{engine} {STAMP} [kv_cache_utils.py:2] Maximum concurrency for {limit} tokens per request: 2.50x",
        f"{api} INFO:     Application startup complete.",
        f'{api} INFO:     10.0.0.5:1 - "POST /v1/completions HTTP/1.1" 400 Bad Request',
    ]
    return lines if up else lines[:-2]


def in_turn(one: list[str], other: list[str]) -> list[str]:
    return [line for line in chain.from_iterable(zip_longest(one, other)) if line is not None]


def of_the_last_start(found: list[Event]) -> list[Event]:
    last = max(index for index, event in enumerate(found) if event.name is EventName.ARGUMENTS)
    return found[last:]


def test_servers_of_two_models_line_by_line_in_turn() -> None:
    found = events(in_turn(server(1, "one", 4096, "10,240"), server(11, "other", 8192, "20,480")))
    newest = of_the_last_start(found)
    assert {event.process.pid for event in newest} == {11, 12}
    names = [event.name for event in newest]
    assert EventName.STARTED in names
    assert names.count(EventName.ACCESS) == 1
    assert [event.integer("capacity_tokens") for event in newest if event.integer("capacity_tokens")] == [
        20_480
    ]
    assert {event.integer("max_model_len") for event in newest} - {None} == {8192}


def test_engines_of_one_model_are_nobodys() -> None:
    found = events(in_turn(server(1, "m", 4096, "10,240"), server(11, "m", 8192, "20,480")))
    newest = of_the_last_start(found)
    assert [event for event in newest if event.integer("capacity_tokens")] == []
    assert {event.integer("max_model_len") for event in newest} - {None} == {8192}


def test_second_server_beside_one_that_serves() -> None:
    one, other = server(1, "one", 4096, "10,240"), server(11, "other", 8192, "20,480")
    going_on = [
        '(APIServer pid=1) INFO:     10.0.0.5:1 - "POST /v1/completions HTTP/1.1" 400 Bad Request'
    ] * 3
    found = events([*one, *other[:2], *going_on, *other[2:]])
    newest = of_the_last_start(found)
    assert {event.process.pid for event in newest} == {11, 12}
    assert [event.integer("capacity_tokens") for event in newest if event.integer("capacity_tokens")] == [
        20_480
    ]


@pytest.mark.parametrize("model", ["one", "other"])
@pytest.mark.parametrize("shutdown", [True, False])
def test_restart_is_one_server(model: str, shutdown: bool) -> None:
    end = ["(APIServer pid=1) INFO:     Shutting down"] if shutdown else []
    late = ["(APIServer pid=1) INFO:     Finished server process [1]"] if shutdown else []
    again = server(11, model, 8192, "20,480")
    newest = of_the_last_start(
        events([*server(1, "one", 4096, "10,240"), *end, *again[:1], *late, *again[1:]])
    )
    assert [event.integer("capacity_tokens") for event in newest if event.integer("capacity_tokens")] == [
        20_480
    ]
    assert EventName.STARTED in [event.name for event in newest]
    assert EventName.SHUTDOWN not in [event.name for event in newest]


def test_crash_loop_is_one_server() -> None:
    failed = "(EngineCore pid={0}) ValueError: No available memory for the cache blocks. Try increasing `x`"
    lines = [
        line
        for pid in (1, 11, 21)
        for line in (*server(pid, "m", 8192, "1", up=False), failed.format(pid + 1))
    ]
    assert [event.name for event in events(lines)].count(EventName.START_FAILED) == 3
