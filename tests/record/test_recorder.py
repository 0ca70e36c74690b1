"""`record` as a user runs it, against a stand-in; what it writes is played, and read after a crash."""

from __future__ import annotations

import gzip
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import recorded
from tests.deadline import wait_for
from tests.process import Process, free_port
from vllm_length_exporter.recording import Player, Recording, RecordingError, Writer, load, save
from vllm_length_exporter.standin import StandIn
from vllm_length_exporter.vllm.lines import events

SECRET = "hf_Zq7vTkw93LmXcR5bYp"
PROMPT = "the merger with Initech"
CLIENT = [
    (
        f"(APIServer pid=1) INFO 11-29 14:35:05 [logger.py:39] Received request cmpl-1: prompt: '{PROMPT}', "
        "params: SamplingParams(n=1), prompt_token_ids: None, lora_request: None."
    ),
    f"(APIServer pid=1) INFO 11-29 14:35:06 [x.py:1] headers: {{'authorization': 'Bearer {SECRET}'}}",
    f'INFO:     10.1.2.3:1 - "POST /v1/completions?key={SECRET} HTTP/1.1" 200 OK',
]


@pytest.fixture
def played(tmp_path: Path) -> Iterator[StandIn]:
    standin = StandIn(
        Player(recorded.recording("0.32.0-pressure"), loop=True), log=tmp_path / "server.log", speed=3.0
    )
    standin.start()
    yield standin
    standin.stop()


def recording_of(output: Path, *arguments: str, log: Path) -> Process:
    return Process([sys.executable, "-m", "vllm_length_exporter", "record", str(output), *arguments], log)


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "vllm_length_exporter", "record", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_what_is_recorded_tells_the_same_and_holds_no_prompt(played: StandIn, tmp_path: Path) -> None:
    log, output = tmp_path / "server.log", tmp_path / "out.jsonl.gz"
    wait_for(lambda: log.exists() and log.stat().st_size, seconds=10, what="the log is begun")
    with log.open("a") as out:
        out.writelines(line + "\n" for line in CLIENT)
    arguments = ("--server", played.url, "--log", str(log), "--interval", "100ms", "--duration", "4s")
    done = run(str(output), *arguments)
    assert done.returncode == 0, done.stderr
    assert "(redacted)" in done.stdout
    text = gzip.decompress(output.read_bytes()).decode()
    for planted in (PROMPT, SECRET, "Zq7vTkw93", "Initech", "10.1.2.3"):
        assert planted not in text
    made = load(output)
    lines = [line for _, line in made.log]
    assert events(lines) == events(log.read_text().splitlines()[: len(lines)])
    shown = [page for _, page in made.pages if page is not None]
    known = [page for _, page in recorded.pages("0.32.0-pressure")]
    assert len(shown) >= 3
    assert set(shown) <= set(known)
    assert sorted(shown, key=known.index) == shown
    assert made.pages[0][0] == pytest.approx(0.0, abs=0.5)
    assert made.log[0][0] < 0
    assert json.loads(made.models or "")["data"][0]["max_model_len"] == 8192
    assert json.loads(made.version or "")["version"] == "0.32.0"
    assert run(str(output), *arguments).returncode == 2  # it is there already


def test_text_is_kept_where_that_is_asked_for(played: StandIn, tmp_path: Path) -> None:
    log, output = tmp_path / "own.log", tmp_path / "out.jsonl.gz"
    log.write_text("".join(line + "\n" for line in CLIENT))
    done = run(str(output), "--server", played.url, "--log", str(log), "--duration", "300ms", "--keep-text")
    assert done.returncode == 0, done.stderr
    assert [line for _, line in load(output).log] == CLIENT


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_ended_at_any_time_it_is_readable(played: StandIn, tmp_path: Path, number: signal.Signals) -> None:
    output = tmp_path / "out.jsonl.gz"
    arguments = ("--server", played.url, "--log", str(tmp_path / "server.log"), "--interval", "100ms")
    with recording_of(output, *arguments, log=tmp_path / "record.log") as process:
        process.wait_until(
            lambda: output.exists() and len(load(output).pages) >= 3, seconds=20, what="pages were flushed",
            ignoring=(RecordingError,),
        )  # fmt: skip
        process.signal(number)
        code = process.exit_code()
    assert code == (-signal.SIGKILL if number is signal.SIGKILL else 0)
    assert "Traceback" not in process.output()
    made = load(output)
    assert len(made.pages) >= 3
    assert made.log
    assert made.models is not None


def test_a_server_that_is_away_and_one_that_never_was(tmp_path: Path) -> None:
    output = tmp_path / "out.jsonl.gz"
    away = f"http://127.0.0.1:{free_port()}"
    done = run(str(output), "--server", away, "--duration", "500ms", "--interval", "100ms")
    assert done.returncode == 3
    assert done.stderr.count("refused") == 1  # each complaint once
    assert "Traceback" not in done.stderr
    assert all(page is None for _, page in load(output).pages)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["/nowhere/out.gz", "--server", "http://127.0.0.1:1"], "/nowhere/out.gz: cannot be written"),
        (["out.gz", "--server", "ftp://a"], "--server"),
        (["out.gz", "--server", "http://a:1", "--duration", "long"], "--duration"),
        (["out.gz", "--server", "http://a:1", "--duration", "0s"], "--duration"),
        (["out.gz"], "--server"),
        (["/dev/full", "--server", "http://127.0.0.1:1"], "/dev/full"),
    ],
)
def test_bad_use_is_one_line(arguments: list[str], says: str) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_a_disk_that_fills_up_ends_it_with_one_line(played: StandIn, tmp_path: Path) -> None:
    output = tmp_path / "out.jsonl.gz"
    command = [
        sys.executable, "-c",
        ("import resource, signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); "
        "resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000)); "
        "from vllm_length_exporter.cli import main; main()"),
        "record", str(output), "--server", played.url, "--interval", "20ms", "--duration", "30s",
    ]  # fmt: skip
    begun = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert done.stderr.strip().endswith("cannot be written: File too large")
    assert "Traceback" not in done.stderr
    assert time.monotonic() - begun < 25
    assert load(output).pages


def test_every_cut_of_a_file_is_readable_up_to_there(tmp_path: Path) -> None:
    path, cut = tmp_path / "whole.gz", tmp_path / "cut.gz"
    writer = Writer(path)
    for number in range(40):
        writer.page(float(number), f"page {number}\n" * 20)
        writer.log(number + 0.5, f"line {number}")
        writer.flush()
    writer.close()
    whole = path.read_bytes()
    before = 0
    for size in range(0, len(whole) + 1, 37):
        cut.write_bytes(whole[:size])
        try:
            made = load(cut)
        except RecordingError:
            assert before == 0  # only where not even the first row is whole
            continue
        assert [text for _, text in made.log] == [f"line {number}" for number in range(len(made.log))]
        assert len(made.pages) + len(made.log) >= before
        before = len(made.pages) + len(made.log)
    assert before >= 78
    assert len(load(path).pages) == len(load(path).log) == 40


def test_answers_that_change_are_played_when_they_changed(tmp_path: Path) -> None:
    made = Recording(
        ((0.0, "a\n"), (10.0, "b\n")), (), "first", "1", ((5.0, "models", "second"), (8.0, "models", "first"))
    )
    path = tmp_path / "x.gz"
    save(made, path)
    assert load(path) == made
    player = Player(made)
    assert [player.answer("models", t) for t in (0.0, 4.9, 5.0, 7.9, 8.0)] == [
        "first", "first", "second", "second", "first",
    ]  # fmt: skip
    assert player.answer("version", 9.0) == "1"
