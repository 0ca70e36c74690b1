from __future__ import annotations

import gc
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.deadline import wait_for
from tests.sources.collected import Collected
from tests.sources.docker_engine import Container, Engine
from tests.sources.stamped_log import SECOND, Server, serve
from vllm_length_exporter.sources.logs import docker as module
from vllm_length_exporter.sources.logs import feed
from vllm_length_exporter.sources.logs.docker import DockerLog
from vllm_length_exporter.sources.logs.lines import LogError

LOST = "ended, and Docker no longer tells how"
OLD = 1_700_000_000 * SECOND  # before any exporter's start


def now() -> int:
    return time.time_ns() + SECOND


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "SHORTEST", 0.005)
    monkeypatch.setattr(feed, "LONGEST", 0.2)
    monkeypatch.setattr(module, "STATUS_INTERVAL", 0.02)


@pytest.fixture
def engine() -> Engine:
    return Engine({"vllm": Container("a" * 64, started=OLD)})


@pytest.fixture
def server(engine: Engine, tmp_path: Path) -> Iterator[Server]:
    with serve(engine.answer, tmp_path / "docker.sock") as served:
        yield served


@contextmanager
def following(where: Path, position: dict[str, Any] | None = None, **options: Any) -> Iterator[Collected]:
    source = DockerLog("vllm", position, base_url=f"unix://{where}/docker.sock", **options)
    try:
        yield Collected(source)
    finally:
        begin = time.monotonic()
        source.close()
        assert time.monotonic() - begin < 2


def test_old_lines_do_not_count_and_new_ones_do(engine: Engine, server: Server, tmp_path: Path) -> None:
    log = engine.containers["vllm"].log
    log.write(OLD, "one\n", "two\n")
    with following(tmp_path) as found:
        found.until_told("one", "two")
        log.write(now(), "three\n")
        log.write(now(), "four\n", stream=2)
        found.until_told("one", "two", "three", "four")
        assert found.counted == ["three", "four"]


def test_messages_that_docker_split_are_joined_by_stream(
    engine: Engine, server: Server, tmp_path: Path
) -> None:
    log = engine.containers["vllm"].log
    log.write(OLD, "x" * 16_384)
    log.write(OLD, "of stderr\r\n", stream=2)
    log.write(OLD, "y" * 10 + "\n")
    with following(tmp_path) as found:
        found.until_told("of stderr", "x" * 16_384 + "y" * 10)


def test_a_terminal_s_log_has_no_frames(engine: Engine, server: Server, tmp_path: Path) -> None:
    container = engine.containers["vllm"]
    container.tty = True
    container.log.write(OLD, "one\n", "two\n")
    with following(tmp_path) as found:
        found.until_told("one", "two")


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    steps=st.lists(
        st.sampled_from([0, 0, 0, 1, 999_999_999, SECOND, 3 * SECOND, -1]), min_size=1, max_size=40
    ),
    cuts=st.lists(st.integers(0, 1500), max_size=6),
    same=st.booleans(),
)
def test_whatever_breaks_each_line_comes_once(steps: list[int], cuts: list[int], same: bool) -> None:
    engine = Engine({"vllm": Container("a" * 64, started=OLD)})
    at, expected = now(), []
    for number, step in enumerate(steps):
        at += step
        expected.append("the same" if same else f"line {number}")
        engine.containers["vllm"].log.write(at, expected[-1] + "\n")
    with serve(engine.answer) as server:
        server.cuts = list(cuts)
        source = DockerLog("vllm", base_url=f"tcp://127.0.0.1:{server.port}")
        found = Collected(source)
        try:
            found.until(lambda: len(found.told) >= len(expected))
            engine.containers["vllm"].log.write(at, "last\n")
            found.until(lambda: found.told[-1:] == ["last"])
        finally:
            source.close()
    assert found.told == [*expected, "last"]
    assert found.counted == found.told


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    steps=st.lists(st.sampled_from([0, 0, 1, SECOND, -1]), min_size=2, max_size=30),
    first=st.integers(1, 30),
    same=st.booleans(),
)
def test_after_a_restart_of_the_exporter_each_line_counts_once(
    steps: list[int], first: int, same: bool
) -> None:
    engine = Engine({"vllm": Container("a" * 64, started=OLD)})
    log = engine.containers["vllm"].log
    log.write(OLD, "old\n")
    at, position = now(), None
    counted: list[str] = []
    expected: list[str] = []
    halves = steps[:first], steps[first:]
    with serve(engine.answer) as server:
        for half in halves:
            for step in half:
                at += step
                expected.append("the same" if same else f"line {len(expected)}")
                log.write(at, expected[-1] + "\n")
            source = DockerLog("vllm", position, base_url=f"tcp://127.0.0.1:{server.port}")
            found = Collected(source)
            try:
                found.until(lambda: len(found.told) >= len(expected) + 1)  # noqa: B023  called in this turn
            finally:
                source.close()
            assert found.told == ["old", *expected]  # for state, from the beginning
            counted += found.counted
            position = found.kept()
    assert counted == expected


def test_a_restart_of_the_exporter_in_the_middle_of_old_lines_counts_none_of_them(
    engine: Engine, server: Server, tmp_path: Path
) -> None:
    log = engine.containers["vllm"].log
    log.write(OLD, *(f"{number}\n" for number in range(2000)))
    with following(tmp_path) as found:
        found.until(lambda: found.told)
        position = found.kept()
    log.write(now(), "new\n")
    with following(tmp_path, position) as found:
        found.until(lambda: found.told[-1:] == ["new"])
        assert found.counted == ["new"]


def test_lines_that_docker_no_longer_has_are_not_waited_for(
    engine: Engine, server: Server, tmp_path: Path
) -> None:
    log = engine.containers["vllm"].log
    at = now()
    log.write(at, "one\n", "two\n")
    with following(tmp_path) as found:
        found.until_told("one", "two")
        position = found.kept()
    log.messages.clear()  # rotated away
    log.write(at + 1, "three\n")
    with following(tmp_path, position) as found:
        found.until_told("three")
        assert found.counted == ["three"]


def test_the_end_and_its_reason_come_after_the_last_line(
    engine: Engine, server: Server, tmp_path: Path
) -> None:
    container = engine.containers["vllm"]
    container.log.write(OLD, "one\n")
    with following(tmp_path) as found:
        found.until_told("one")
        container.log.write(now(), "last words\n", "unfinished")
        container.end(137, out_of_memory=True)
        found.until_told("one", "last words", "unfinished", "<ended: OOMKilled (137)>")
        position = found.kept()
        requests = len(server.requests)
        found.until(lambda: len(server.requests) > requests + 3, "some looks at the state")
        assert found.told[-1] == "<ended: OOMKilled (137)>"
        assert not found.errors
    with following(tmp_path, position) as found:  # the end is not told twice
        requests = len(server.requests)
        found.until(lambda: len(server.requests) > requests + 5, "some looks at the state")
        assert "<ended: OOMKilled (137)>" not in found.told


@pytest.mark.parametrize(
    ("code", "said"), [(0, "exit code 0"), (1, "exit code 1"), (143, "SIGTERM (143)"), (137, "SIGKILL (137)")]
)
def test_ends_have_names(code: int, said: str, engine: Engine, server: Server, tmp_path: Path) -> None:
    engine.containers["vllm"].end(code)
    with following(tmp_path) as found:
        found.until_told(f"<ended: {said}>")


def test_a_container_that_was_started_again_goes_on(engine: Engine, server: Server, tmp_path: Path) -> None:
    container = engine.containers["vllm"]
    container.log.write(OLD, "one\n")
    with following(tmp_path) as found:
        found.until_told("one")
        container.log.write(now(), "two\n")
        container.end(1)
        found.until_told("one", "two", "<ended: exit code 1>")
        container.start(now())
        container.log.write(now(), "three\n")
        found.until_told("one", "two", "<ended: exit code 1>", "<restarted>", "three")
        assert found.counted == ["two", "three"]


@pytest.mark.parametrize("remembered", [True, False])
def test_a_restart_that_nobody_saw_is_told_from_the_events(
    remembered: bool, engine: Engine, server: Server, tmp_path: Path
) -> None:
    container = engine.containers["vllm"]
    at = now()
    container.log.write(at, "one\n")
    with following(tmp_path) as found:
        found.until_told("one")
        position = found.kept()
    container.log.write(at + 1, "two\n")
    if remembered:
        engine.die(container, at + 2, 137, out_of_memory=True)
    container.start(at + 3)
    container.log.write(at + 3, "three\n")
    ended = "OOMKilled (137)" if remembered else LOST
    with following(tmp_path, position) as found:
        found.until_told("one", "two", f"<ended: {ended}>", "<restarted>", "three")
        assert found.counted == ["two", "three"]


def test_the_position_told_with_an_end_is_before_the_next_run_s_first_line(
    engine: Engine, server: Server, tmp_path: Path
) -> None:
    container = engine.containers["vllm"]
    at = now()
    container.log.write(at, "one\n")
    with following(tmp_path) as found:
        found.until_told("one")
        position = found.kept()
    container.log.write(at + 1, "two\n")
    container.start(at + 2)
    container.log.write(at + 2, "three\n")
    with following(tmp_path, position) as found:
        wait_for(
            lambda: found.take() and found.told[-1:] == [f"<ended: {LOST}>"],
            seconds=10,
            what="the end",
            every=0,
        )
        position = found.kept()
    with following(tmp_path, position) as found:
        found.until(lambda: found.told[-1:] == ["three"])
        assert found.counted == ["three"]
        assert f"<ended: {LOST}>" not in found.told


def test_a_container_made_anew_begins_anew(engine: Engine, server: Server, tmp_path: Path) -> None:
    engine.containers["vllm"].log.write(OLD, "one\n")
    with following(tmp_path) as found:
        found.until_told("one")
        old = engine.containers.pop("vllm")
        old.log.finish()
        found.until(lambda: found.errors)
        assert found.errors == ["container vllm: Docker answers 404: No such container: vllm"]
        engine.containers["vllm"] = Container("b" * 64, started=now())
        engine.containers["vllm"].log.write(now(), "two\n")
        found.until_told("one", "<restarted>", "two")


def test_a_backlog_that_is_not_taken_is_not_read_ahead(
    engine: Engine, server: Server, tmp_path: Path
) -> None:
    engine.containers["vllm"].log.write(OLD, *(f"{'x' * 100} {number}\n" for number in range(100_000)))
    with following(tmp_path) as found:
        source = found.source
        assert isinstance(source, DockerLog)
        found.take()
        wait_for(lambda: source._waiting >= feed.WAITING, seconds=20, what="a full queue")
        assert source._waiting < 2 * feed.WAITING
        found.until(lambda: len(found.told) == 100_000)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_backlog_of_a_million_lines_comes_once_over_lost_connections(
    engine: Engine, server: Server, tmp_path: Path
) -> None:
    log = engine.containers["vllm"].log
    for second in range(1000):
        log.write(OLD + second * SECOND, *(f"{second * 1000 + number}\n" for number in range(1000)))
    server.cuts = [10_000_000, 1_000_000, 20_000_000]
    with following(tmp_path) as found:
        found.until(lambda: len(found.told) >= 1_000_000, seconds=200)
        assert found.told == [str(number) for number in range(1_000_000)]
    assert server.cuts == []


def test_silence_is_no_error(engine: Engine, server: Server, tmp_path: Path) -> None:
    with following(tmp_path, idle=0.05) as found:
        found.until(lambda: sum("/logs" in path for path in server.requests) > 3, "new connections")
        engine.containers["vllm"].log.write(now(), "one\n")
        found.until_told("one")
        assert not found.errors


@pytest.mark.filterwarnings(
    "ignore::ResourceWarning"
)  # Docker's client leaves the socket that it cannot connect
def test_no_docker_is_one_line_and_is_tried_again(engine: Engine, tmp_path: Path) -> None:
    with following(tmp_path) as found:
        found.until(lambda: found.errors)
        assert "container vllm: Docker does not answer at unix://" in found.errors[0]
        assert "the socket must be there, and the exporter allowed to use it" in found.errors[0]
        assert "\n" not in found.errors[0]
        engine.containers["vllm"].log.write(OLD, "one\n")
        with serve(engine.answer, tmp_path / "docker.sock"):
            found.until_told("one")
    gc.collect()


def test_a_driver_that_cannot_be_read_is_docker_s_own_word(
    engine: Engine, server: Server, tmp_path: Path
) -> None:
    engine.failure = (501, "configured logging driver does not support reading")
    with following(tmp_path) as found:
        found.until(lambda: found.errors)
    assert found.errors == [
        "container vllm: Docker answers 501: configured logging driver does not support reading"
    ]


def test_without_docker_s_client_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "docker", None)
    with pytest.raises(LogError, match=r"pip install 'vllm-length-exporter\[docker\]'"):
        DockerLog("vllm")


def test_a_position_of_another_kind_is_ignored(engine: Engine, server: Server, tmp_path: Path) -> None:
    engine.containers["vllm"].log.write(OLD, "one\n")
    with following(tmp_path, {"path": "/x", "offset": 3}) as found:
        found.until_told("one")
        assert found.counted == []
