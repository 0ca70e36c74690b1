"""The same event from every message, however it was printed and shipped."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.log.envelopes import SHIPPINGS, STYLES, Lines, Shipping, Style
from tests.log.examples import EXAMPLES, Example
from vllm_length_exporter.vllm.events import Event, EventName, FieldValue, Process
from vllm_length_exporter.vllm.lines import LogParser, events

Told = tuple[EventName, str, Mapping[str, FieldValue]]
# A record in pieces and a pasted log are read as what they hold; what holds them must hold lines, not records.
OUTERMOST = ("one_json_string", "a_json_string_a_line", "one_python_string")
WRAPPING_JSON = ("json_of_vllm", "json_of_a_config", "json_of_elastic", "json_of_loguru")


def told(lines: Lines) -> list[Told]:
    return [(event.name, event.message_id, dict(event.fields)) for event in events(lines)]


PLAIN = {example.id: told(example.lines()) for example in EXAMPLES}


@pytest.mark.parametrize("shipping", SHIPPINGS.values(), ids=SHIPPINGS)
def test_every_message_in_every_shipping(shipping: Shipping) -> None:
    for example in EXAMPLES:
        assert told(shipping(example.lines())) == PLAIN[example.id], example.id


@pytest.mark.parametrize("style", STYLES.values(), ids=STYLES)
def test_every_message_in_every_style(style: Style) -> None:
    for example in EXAMPLES:
        assert told(style(example)) == PLAIN[example.id], example.id


@settings(max_examples=400, deadline=None)
@given(
    example=st.sampled_from(EXAMPLES),
    style=st.sampled_from(sorted(STYLES)),
    shippings=st.lists(st.sampled_from(sorted(set(SHIPPINGS) - set(OUTERMOST))), max_size=2, unique=True),
    outermost=st.sampled_from(("plain", *OUTERMOST)),
)
def test_envelopes_in_envelopes(example: Example, style: str, shippings: list[str], outermost: str) -> None:
    if style in WRAPPING_JSON and (outermost != "plain" or "quotes_doubled" in shippings):
        return  # JSON within a pasted string: nobody ships that
    if "quotes_doubled" in shippings:
        shippings = ["quotes_doubled"]  # it doubles the marks of an envelope too
        outermost = "plain"
    lines = STYLES[style](example)
    for name in (*shippings, outermost):
        lines = SHIPPINGS[name](lines)
    assert told(lines) == PLAIN[example.id]


@pytest.mark.parametrize(
    ("prefix", "process"),
    [
        ("(APIServer pid=1) ", Process("APIServer", 1)),
        ("(ApiServer_1 pid=12360) ", Process("ApiServer_1", 12360)),
        ("(EngineCore_0 pid=7) ", Process("EngineCore_0", 7)),
        ("(EngineCore_DP1 pid=7) ", Process("EngineCore_DP1", 7)),
        ("(VllmWorker rank=3 pid=3252) ", Process("VllmWorker rank=3", 3252)),
        ("(VllmWorkerProcess pid=9) ", Process("VllmWorkerProcess", 9)),
        ("(Worker_DP0_PP0_TP1_EP0 pid=5) ", Process("Worker_DP0_PP0_TP1_EP0", 5)),
        ("(RayWorkerWrapper pid=2, ip=10.0.0.2) ", Process("RayWorkerWrapper", 2)),
        ("(EngineCore_DP1 pid=7) (RayWorkerWrapper pid=2) ", Process("EngineCore_DP1", 7)),
        ("(pid=77) ", Process(None, 77)),
        ("", Process()),
    ],
)
def test_who_wrote_it(prefix: str, process: Process) -> None:
    line = f"{prefix}INFO 11-29 14:35:05 [gpu_worker.py:9] Available KV cache memory: 12.79 GiB"
    (event,) = LogParser().feed(line)
    assert event.process == process
    assert event.stamp == "11-29 14:35:05"


def test_what_ray_says_once_for_several() -> None:
    line = "(RayWorkerWrapper pid=2) INFO 11-29 14:35:05 [w.py:9] Available KV cache memory: 2.00 GiB"
    line += " [repeated 3x across cluster] (Ray deduplicates logs by default.)"
    (event,) = LogParser().feed(line)
    assert event.integer("available_bytes") == 2 * 2**30


def test_pieces_of_two_streams_do_not_mix() -> None:
    parser = LogParser()
    time = "2026-11-29T14:35:05.1Z"
    lines = [
        f"{time} stdout P INFO 11-29 14:35:05 [kv_cache_utils.py:1] GPU KV cache ",
        f"{time} stderr P INFO 11-29 14:35:05 [gpu_worker.py:9] Available KV ",
        f"{time} stdout F size: 4,096 tokens",
        f"{time} stderr F cache memory: 1.00 GiB",
    ]
    found = [event for line in lines for event in parser.feed(line)]
    assert [event.name for event in found] == [EventName.KV_CAPACITY, EventName.KV_MEMORY]


def test_a_piece_whose_end_never_comes_is_read_at_the_pause() -> None:
    parser = LogParser()
    line = "2026-11-29T14:35:05.1Z stdout P INFO 11-29 14:35:05 [k.py:1] GPU KV cache size: 4,096 tokens"
    assert parser.feed(line) == []
    found: list[Event] = parser.idle()
    assert [event.integer("capacity_tokens") for event in found] == [4096]
