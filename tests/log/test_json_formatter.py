"""The log of a real vLLM 0.32.0 with `--logging-config.formatter json`, under requests that imitate it."""

from __future__ import annotations

from pathlib import Path

from vllm_length_exporter.vllm.events import EventName
from vllm_length_exporter.vllm.lines import LogParser, events

LOG = Path(__file__).with_name("json_formatter_0.32.0.log")


def test_its_start_its_requests_and_its_end() -> None:
    found = [event for event in events(LOG.read_text(encoding="utf-8").splitlines()) if event.name != "other"]
    assert [event.name for event in found] == [
        EventName.VERSION,
        EventName.ARGUMENTS,
        EventName.MODEL_LENGTH,
        EventName.ENGINE_CONFIG,
        EventName.KV_MEMORY,
        EventName.KV_CAPACITY,
        EventName.STARTED,
        EventName.ACCESS,
        EventName.ACCESS,
        EventName.SHUTDOWN,
    ]
    assert found[0].text("version") == "0.32.0"
    assert [event.process.name for event in found[:6]] == ["APIServer"] * 3 + [
        "EngineCore",
        "Worker",
        "EngineCore",
    ]
    assert found[4].integer("available_bytes") == 2**30
    assert found[5].integer("capacity_tokens") == 1_048_576
    assert [event.integer("status") for event in found[7:9]] == [404, 400]


def test_its_finished_requests_are_passed_over_unread() -> None:
    parser = LogParser()
    lines = [line for line in LOG.read_text(encoding="utf-8").splitlines() if '\\" 200"' in line]
    assert lines
    assert [event for line in lines for event in parser.feed(line)] == []
