"""Mutated inputs of every kind: none crashes, none hangs, none tells what is not there.

FUZZ_SECONDS is for how long each kind is tried.
"""

from __future__ import annotations

import gzip
import json
import math
import os
import random
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fuzz.mutation import mutated
from tests.recorded import NAMES, log_lines, pages, recording, truth
from vllm_length_exporter.config import ConfigError
from vllm_length_exporter.config import load as load_config
from vllm_length_exporter.derive.view import Horizon, view
from vllm_length_exporter.recording import Player, RecordingError, save
from vllm_length_exporter.recording import load as load_recording
from vllm_length_exporter.server import ServerState, logged, polled
from vllm_length_exporter.vllm.events import EventName
from vllm_length_exporter.vllm.lines import LogParser, events
from vllm_length_exporter.vllm.models import AnswerError, read_models, read_version
from vllm_length_exporter.vllm.page import PageError, PageReader
from vllm_length_exporter.vllm.redaction import Redactor

SECONDS = float(os.environ.get("FUZZ_SECONDS", "2"))  # of each kind of input
LONGEST = 3.0  # seconds that one input may take on a busy machine
Judge = Callable[[bytes], None]
HORIZON = Horizon()


def fuzz(
    seeds: list[bytes], judge: Judge, capsys: pytest.CaptureFixture[str], what: str, seed: int = 1
) -> None:
    chance, end, count, slowest = random.Random(seed), time.monotonic() + SECONDS, 0, 0.0
    while time.monotonic() < end:
        data = mutated(chance.choice(seeds), chance)
        begun = time.monotonic()
        judge(data)
        slowest = max(slowest, time.monotonic() - begun)
        count += 1
    with capsys.disabled():
        print(f"\n{what}: {count} inputs, the slowest took {slowest * 1000:.0f} ms", end="")
    assert count > 20
    assert slowest < LONGEST


def test_pages(capsys: pytest.CaptureFixture[str]) -> None:
    seeds = [shown[len(shown) // 2][1].encode() for name in NAMES[::3] if (shown := pages(name))]

    def judge(data: bytes) -> None:
        try:
            page = PageReader().read(data)
        except PageError as error:
            _in_one_line(error)
            return
        state = polled(ServerState("s"), page, 1.0)
        _sound(state)

    fuzz(seeds, judge, capsys, "pages")


NUMBERS = ("NaN", "+Inf", "-Inf", "-5", "1e308", "1e300", "0.5", "9" * 400, "x", "\x00")


def test_every_number_of_a_page_may_be_any(capsys: pytest.CaptureFixture[str]) -> None:
    shown = pages("0.32.0-pressure")
    text, good = shown[20][1], PageReader().read(shown[19][1].encode())
    names = sorted({line.split("{")[0] for line in text.splitlines() if line.startswith("vllm:")})
    places = [rf"(?m)^({name}(?:\{{[^}}]*\}})?) .*$" for name in (*names, "process_start_time_seconds")]
    places += [rf"(?m)^({name.removesuffix('_bucket')}_bucket\{{.*le=\")[^\"]*(?=\")" for name in names]
    info = next(line for line in text.splitlines() if line.startswith("vllm:cache_config_info"))
    places += [
        rf"(?m)^(vllm:cache_config_info.*[{{,]{label}=\")[^\"]*(?=\")"
        for label in re.findall(r'(\w+)="', info)
    ]
    count = 0
    for place in places:
        for number in NUMBERS:
            gap = " " if place.endswith("$") else ""
            changed = re.sub(place, lambda found, number=number, gap=gap: f"{found[1]}{gap}{number}", text)  # type: ignore[misc]
            if changed == text:
                continue
            page = PageReader().read(changed.encode())
            _sound(polled(polled(ServerState("s"), good, 1.0), page, 1.5))
            _sound(polled(ServerState("s"), page, 1.0))
            count += 1
    with capsys.disabled():
        print(f"\nnumbers of a page: {count} inputs", end="")
    assert count > 500


def _in_one_line(error: Exception) -> None:
    assert str(error)
    assert "\n" not in str(error)


def _sound(state: ServerState) -> None:
    """Whatever is derived is a number that can be."""
    seen = view(state, 2.0, HORIZON)
    if seen is None:
        return
    for engine in seen.capacity:
        for value in (engine.tokens, engine.used_blocks, engine.free_tokens, engine.usage_ratio):
            if value is not None:
                number = float(value.value)
                assert math.isfinite(number)
                assert number >= 0


def test_logs(capsys: pytest.CaptureFixture[str]) -> None:
    seeds = ["\n".join(log_lines(name)[:120]).encode() for name in NAMES[::3]]

    def judge(data: bytes) -> None:
        lines = data.decode("utf-8", "replace").split("\n")
        parser, state, told = LogParser(), ServerState("s"), []
        for line in lines:
            told += parser.feed(line)
        told += [*parser.idle(), *parser.idle()]
        for event in told:
            state = logged(state, event, 1.0)
            for key, value in event.fields.items():
                if key.endswith(("_tokens", "_bytes", "limit", "max_model_len", "blocks")) and isinstance(
                    value, float
                ):
                    assert math.isfinite(value)
        _sound(state)
        assert sum(event.name is EventName.STARTED for event in told) <= data.count(b"startup complete")

    fuzz(seeds, judge, capsys, "logs")


def test_redacted_logs(capsys: pytest.CaptureFixture[str]) -> None:
    seeds = ["\n".join(log_lines(name)[:120]).encode() for name in NAMES[::3]]
    kinds = {EventName.KV_CAPACITY, EventName.REFUSED, EventName.START_FAILED, EventName.MODEL_LENGTH}

    def judge(data: bytes) -> None:
        redactor = Redactor()
        lines = data.decode("utf-8", "replace").split("\n")
        made = [text for line in lines for text in redactor.lines(line)]
        before = [event.message_id for event in events(lines) if event.name in kinds]
        after = [event.message_id for event in events(made) if event.name in kinds]
        assert len(after) <= len(before)  # redaction may hide what was mutated, and adds nothing

    fuzz(seeds, judge, capsys, "redacted logs")


def test_api_answers(capsys: pytest.CaptureFixture[str]) -> None:
    known = [truth(name) for name in NAMES if truth(name).get("models")]
    seeds = [json.dumps(row[key]).encode() for row in known for key in ("models", "version")]

    def judge(data: bytes) -> None:
        for read in (read_models, read_version):
            try:
                found = read(data)
            except AnswerError as error:
                _in_one_line(error)
                continue
            if isinstance(found, tuple):
                assert all(card.max_model_len is None or card.max_model_len > 0 for card in found)

    fuzz(seeds, judge, capsys, "API answers")


def test_configurations(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = Path(__file__).parents[1] / "config"
    seeds = [path.read_bytes() for path in sorted(folder.glob("*.yml"))]
    path = tmp_path / "x.yml"

    def judge(data: bytes) -> None:
        path.write_bytes(data)
        try:
            config = load_config(path)
        except ConfigError as error:
            _in_one_line(error)
            return
        assert config.servers
        assert math.isfinite(config.poll_interval)

    fuzz(seeds, judge, capsys, "configurations")


def test_recordings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = tmp_path / "whole.gz"
    save(recording("0.16.0-kvauto"), whole)
    packed = whole.read_bytes()
    rows = b"\n".join(gzip.decompress(packed).split(b"\n")[:40])
    path = tmp_path / "x.gz"

    def judge(data: bytes) -> None:
        # What is not packed is packed first, so that the rows are reached as well as the envelope.
        path.write_bytes(data if data[:2] == b"\x1f\x8b" else gzip.compress(data, 1))
        try:
            made = load_recording(path)
        except RecordingError as error:
            _in_one_line(error)
            return
        player = Player(made, loop=True)
        for elapsed in (0.0, 0.5, 7.0, 1e6):
            player.page(elapsed)
            player.lines(0.0, elapsed)
            player.answer("models", elapsed)

    fuzz([packed, rows, rows], judge, capsys, "recordings")
