"""From a server's log alone: what it holds is what the client and the server's own answers say is true."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from vllm_length_exporter.vllm.events import Event, EventName
from vllm_length_exporter.vllm.lines import LogParser, events
from vllm_length_exporter.vllm.release import within

RECORDINGS = Path(__file__).parents[1] / "recordings"
NAMES = sorted(path.name for path in RECORDINGS.iterdir())
GIB = 2**30
# What each start of the recorded machine sets: 1 GiB of KV cache, and blocks of 128 tokens.
CAPACITY = {"pressure": 10240, "api2": 10240, "dp2": 10240, "hybrid": 1_409_110, "fp8kv": 4_194_304}
CONCURRENCY = {"pressure": 1.25, "api2": 1.25, "dp2": 1.25, "hybrid": 43.0, "fp8kv": 512.0}
FAILURES = {
    "kvtoosmall": "kv_cache_too_small",
    "toobig": "limit_above_window",
    "nochunk": "batched_tokens_below_limit",
}


def truth(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((RECORDINGS / name / "truth.json").read_text(encoding="utf-8"))
    return found


def lines(name: str) -> list[str]:
    return (RECORDINGS / name / "server.log").read_text(encoding="utf-8").splitlines()


def told(name: str) -> list[Event]:
    return events(lines(name))


def of(found: list[Event], name: EventName) -> list[Event]:
    return [event for event in found if event.name is name]


def flag(known: dict[str, Any], name: str) -> str | None:
    args: list[str] = known["args"]
    return args[args.index(name) + 1] if name in args else None


@pytest.mark.parametrize("name", NAMES)
def test_start_is_told_as_it_was(name: str) -> None:
    known, found = truth(name), told(name)
    assert {event.text("version") for event in of(found, EventName.VERSION)} == {known["vllm_version"]}
    (arguments,) = of(found, EventName.ARGUMENTS)
    asked = flag(known, "--max-model-len")
    expected = None if asked is None else "auto" if asked in ("auto", "-1") else int(asked)
    assert arguments.fields.get("max_model_len") == expected
    assert bool(of(found, EventName.STARTED)) is known["started"]
    assert bool(of(found, EventName.START_FAILED)) is not known["started"]
    assert bool(of(found, EventName.SHUTDOWN)) is known["started"]


@pytest.mark.parametrize("name", [name for name in NAMES if truth(name)["started"]])
def test_limit_and_capacity(name: str) -> None:
    known, found = truth(name), told(name)
    scenario = name.partition("-")[2]
    served = known["models"]["data"][0]["max_model_len"]
    fits = of(found, EventName.AUTO_FIT)
    limits = {event.integer("max_model_len") for event in fits or of(found, EventName.MODEL_LENGTH)}
    if fits and within(known["vllm_version"], last="0.19"):
        assert served == 1_048_576  # /v1/models keeps the number from before the fit
        assert limits == {32_768}
    else:
        assert limits == {served}
    capacities = of(found, EventName.KV_CAPACITY)
    tokens = {value for event in capacities if (value := event.integer("capacity_tokens")) is not None}
    concurrency = {many for event in capacities if (many := event.number("full_length_concurrency"))}
    limit = limits.pop()
    assert limit is not None
    assert {event.integer("max_model_len") for event in capacities} - {None} == {limit}
    if scenario in CAPACITY:
        assert tokens == {CAPACITY[scenario]}
        assert concurrency == {CONCURRENCY[scenario]}
    else:
        (only,), (times,) = tokens, concurrency
        assert times == pytest.approx(only / limit, rel=0.005)


def test_engines_are_told_apart() -> None:
    found = of(told("0.32.0-dp2"), EventName.KV_CAPACITY)
    assert [(event.process.engine, event.integer("capacity_tokens")) for event in found] == [
        ("0", 10240),
        ("1", 10240),
    ]


def test_blocks_before_the_override() -> None:
    for name in ("0.16.0-pressure", "0.26.0-pressure", "0.32.0-pressure"):
        (event,) = of(told(name), EventName.BLOCKS_OVERRIDE)
        assert (event.integer("blocks_before"), event.integer("blocks_after")) == (8192, 80)


@pytest.mark.parametrize("name", [name for name in NAMES if truth(name)["started"] and "0.16" not in name])
def test_memory_of_the_cpu_backend(name: str) -> None:
    memory = {event.integer("available_bytes") for event in of(told(name), EventName.KV_MEMORY)}
    assert memory == {GIB}


@pytest.mark.parametrize("name", [name for name in NAMES if not truth(name)["started"]])
def test_failure_is_told_once_with_its_root_cause(name: str) -> None:
    known = truth(name)
    (event,) = of(told(name), EventName.START_FAILED)
    scenario = name.partition("-")[2]
    assert event.text("cause") == FAILURES[scenario]
    if scenario == "toobig":
        assert (event.integer("requested"), event.integer("window")) == (9000, 8192)
    elif scenario == "nochunk":
        assert (event.integer("max_num_batched_tokens"), event.integer("limit")) == (4096, 8192)
    else:
        assert event.integer("limit") == known["model_config"]["max_position_embeddings"]
        assert event.integer("needed_bytes") == 32 * GIB
        assert event.integer("available_bytes") == GIB
        fits = 32_640 if within(known["vllm_version"], "0.32") else 32_768
        assert event.integer("estimated_limit") == fits


@pytest.mark.parametrize("name", [name for name in NAMES if truth(name)["started"]])
def test_refusals_are_the_clients_errors(name: str) -> None:
    known, found = truth(name), told(name)
    refused, access = of(found, EventName.REFUSED), of(found, EventName.ACCESS)
    bad = [event for event in known["events"] if event.get("status") == 400]
    assert sum(event.integer("status") == 400 for event in access) == len(bad)
    if not within(known["vllm_version"], last="0.22"):
        assert refused == []  # since 0.23 the log holds the access lines only
        return
    logged = [event for event in bad if "temperature" not in event["error"]]  # that one is not about length
    assert len(refused) == len(logged)
    for event, answer in zip(refused, logged, strict=True):
        for value in (event.integer("limit"), event.integer("output_tokens")):
            assert value is not None
            assert str(value) in answer["error"]


def test_causes_are_what_the_client_sent() -> None:
    causes = Counter(event.text("cause") for event in of(told("0.16.0-explicit4096"), EventName.REFUSED))
    assert causes == {
        "prompt_plus_output_too_long": 2,
        "prompt_too_long": 2,
        "output_too_long": 2,
        "no_room_for_output": 1,
    }


def test_engines_that_end_in_a_shutdown_are_told_after_it() -> None:
    found = told("0.32.0-pressure")
    (asked,), (died,) = of(found, EventName.SHUTDOWN), of(found, EventName.ENGINE_DIED)
    assert found.index(asked) < found.index(died)


def test_a_failed_start_is_no_shutdown_and_no_crash() -> None:
    found = told("0.32.0-kvtoosmall")  # its executor writes "[shutdown]" and its worker "died unexpectedly"
    assert of(found, EventName.SHUTDOWN) == []
    assert of(found, EventName.ENGINE_DIED) == []


@pytest.mark.parametrize("name", NAMES)
def test_line_by_line_is_the_same_as_all_at_once(name: str) -> None:
    parser = LogParser()
    one_by_one = [event for line in lines(name) for event in parser.feed(line + "\n")]
    assert [*one_by_one, *parser.idle(), *parser.idle()] == told(name)


@pytest.mark.parametrize("name", NAMES)
def test_a_pause_after_every_line_changes_nothing_but_order(name: str) -> None:
    parser = LogParser()
    found: list[Event] = []
    for line in lines(name):
        found += [*parser.feed(line), *parser.idle()]
    names = [event.name for event in [*found, *parser.idle()] if event.name is not EventName.OTHER]
    assert Counter(names) == Counter(event.name for event in told(name) if event.name is not EventName.OTHER)
