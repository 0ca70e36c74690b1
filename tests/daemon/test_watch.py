"""One server under watch, with everything that a page and a log can do wrong. Time is a clock of the test's."""

from __future__ import annotations

import gzip
import logging
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.recorded import log_lines, pages
from tests.sources.faulty import Behaviour, answer, drip, faulty_server, hang, once, read_request
from vllm_length_exporter.collectors.snapshot import ServerSnapshot
from vllm_length_exporter.derive.values import ServerView, State, Value
from vllm_length_exporter.sources.http import Endpoint
from vllm_length_exporter.sources.logs.file import FileLog
from vllm_length_exporter.watch import Watch

PAGE = pages("0.32.0-pressure")[20][1].encode()
GOOD = answer(PAGE)
MODELS = answer(b'{"data":[{"id":"tiny","max_model_len":8192,"parent":null}]}')
VERSION = answer(b'{"version":"0.32.0"}')


@dataclass
class Clock:
    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Server:
    """A vLLM whose `/metrics` answers with `page`, which a test may change at any time."""

    page: bytes | Behaviour = GOOD
    models: bytes = MODELS


@contextmanager
def vllm(server: Server) -> Iterator[str]:
    def behave(connection: socket.socket, faulty: object) -> None:
        while read_request(connection, faulty):  # type: ignore[arg-type]
            path = faulty.requests[-1].split(" ", 2)[1]  # type: ignore[attr-defined]
            if path == "/v1/models":
                connection.sendall(server.models)
            elif path == "/version":
                connection.sendall(VERSION)
            elif callable(server.page):
                faulty.requests.append("")  # type: ignore[attr-defined]
                connection.sendall(b"")
                server.page(connection, faulty)  # type: ignore[arg-type]
                return
            else:
                connection.sendall(server.page)

    with faulty_server(behave) as faulty:
        yield faulty.url


def watching(url: str, clock: Clock, log: Path | None = None, timeout: float = 0.5) -> Watch:
    source = FileLog(log) if log is not None else None
    return Watch("s", Endpoint(url, timeout=timeout), source, monotonic=clock, wall=clock)


def up(snapshot: ServerSnapshot, source: str = "metrics") -> bool:
    return next(status.up for status in snapshot.sources if status.source == source)


def seen(watch: Watch) -> ServerView:
    view = watch.snapshot().view
    assert view is not None
    return view


FAULTS: dict[str, bytes | Behaviour] = {
    "hanging": hang,
    "slow drip": drip(GOOD),
    "404": answer(b'{"detail":"Not Found"}', "404 Not Found"),
    "401": answer(b'{"error":"Unauthorized"}', "401 Unauthorized"),
    "500": answer(b"Internal Server Error", "500 Internal Server Error"),
    "redirect": answer(b"", "302 Found", "Location: http://127.0.0.1:1/metrics"),
    "HTML": answer(b"<!DOCTYPE html><html><body>nginx</body></html>\n"),
    "JSON": answer(b'{"hello": "world"}'),
    "binary": answer(bytes(range(256)) * 20),
    "gzip without saying so": answer(gzip.compress(PAGE)),
    "60 MB": answer(b"a" * (60 << 20)),
    "cut in half": once(GOOD[: len(GOOD) // 2]),
    "cut at a line's middle": answer(PAGE[: PAGE.rindex(b"vllm:") + 40]),
    "empty": answer(b""),
    "not HTTP": b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
def test_a_page_that_is_none_takes_the_series_away_in_time_and_logs_one_line(
    fault: bytes | Behaviour, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    clock, server = Clock(), Server()
    with vllm(server) as url:
        watch = watching(url, clock)
        watch.poll()
        assert up(watch.snapshot())
        assert seen(watch).limits.effective == Value(8192, "models_api")
        caplog.clear()
        server.page = fault
        for _ in range(4):
            clock.now += 5.0
            watch.poll()
        assert not up(watch.snapshot())
        assert seen(watch).limits.effective is None
        assert seen(watch).capacity == ()
        assert seen(watch).pressure == ()
        assert seen(watch).state is State.STALLED, "somebody answers, or holds the connection"
        (line,) = caplog.records
        assert line.getMessage() == "source failed"
        assert "\n" not in line.error  # type: ignore[attr-defined]
        assert "/metrics" in line.error  # type: ignore[attr-defined]
        server.page = GOOD
        clock.now += 5.0
        watch.poll()
        assert up(watch.snapshot())
        assert seen(watch).limits.effective == Value(8192, "models_api")
        assert [record.getMessage() for record in caplog.records] == ["source failed", "source recovered"]
        watch.close()


def test_a_value_is_gone_when_its_time_is_up_however_late_the_next_poll_is() -> None:
    clock, server = Clock(), Server()
    with vllm(server) as url:
        watch = watching(url, clock)
        watch.poll()
        server.page = answer(b"<html>")
        clock.now += 14.5  # within the time of 15 s: what the failed poll publishes still holds the page
        watch.poll()
        assert seen(watch).limits.effective == Value(8192, "models_api")
        clock.now += 0.4
        assert up(watch.snapshot())
        clock.now += 0.2
        assert not up(watch.snapshot())
        assert seen(watch).capacity == ()
        assert seen(watch).limits.effective is None
        watch.close()


def test_gzip_that_says_so_is_read() -> None:
    packed = answer(gzip.compress(PAGE), headers="Content-Type: text/plain\r\nContent-Encoding: gzip")
    clock = Clock()
    with vllm(Server(packed)) as url:
        watch = watching(url, clock)
        watch.poll()
        assert up(watch.snapshot())
        watch.close()


def test_the_sound_parts_of_a_broken_page_are_kept() -> None:
    broken = PAGE.replace(
        b'vllm:num_requests_running{engine="0",model_name="tiny"}', b"vllm:num_requests_running{engine=0}"
    )
    broken += b'vllm:kv_cache_usage_perc{engine="0",model_name="tiny"} NaN\n'
    broken += b'vllm:num_preemptions_total{engine="0",model_name="tiny"} 1000\n'
    clock = Clock()
    with vllm(Server(answer(broken))) as url:
        watch = watching(url, clock)
        watch.poll()
        (pressure,) = seen(watch).pressure
        assert pressure.running is None
        assert pressure.waiting is not None
        assert pressure.preemptions_total is None, "two values under one name decide nothing"
        assert seen(watch).limits.effective == Value(8192, "models_api")
        watch.close()


def test_nobody_listens() -> None:
    clock = Clock()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    watch = watching(f"http://127.0.0.1:{port}", clock)
    watch.poll()
    assert not up(watch.snapshot())
    assert seen(watch).state is State.DOWN
    watch.close()


def test_two_refused_polls_take_everything_away_whatever_source_it_came_from(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    started = log_lines("0.32.0-pressure")[:101]
    log.write_text("\n".join(started) + "\n")
    clock = Clock()
    with vllm(Server()) as url:
        watch = watching(url, clock, log)
        watch.poll()
        while watch.read_log():
            pass
        watch.read_log()
        assert seen(watch).limits.max_num_seqs == Value(16, "engine_log")
        (capacity,) = seen(watch).capacity
        assert capacity.bytes_per_token is not None
    for _ in range(2):
        clock.now += 5.0
        watch.poll()
    view = seen(watch)
    assert view.state is State.DOWN
    assert (view.capacity, view.pressure, view.limits.effective, view.limits.max_num_seqs) == (
        (),
        (),
        None,
        None,
    )
    assert view.findings == ()
    watch.close()


def test_models_without_a_key_leave_the_page_and_say_so(caplog: pytest.LogCaptureFixture) -> None:
    clock, server = Clock(), Server(models=answer(b'{"error":"Unauthorized"}', "401 Unauthorized"))
    with vllm(server) as url:
        watch = watching(url, clock)
        for _ in range(20):
            watch.poll()
            clock.now += 5.0
        assert up(watch.snapshot())
        assert not up(watch.snapshot(), "models")
        assert seen(watch).limits.effective == Value(8192, "cache_config"), (
            "the page's labels tell it as well"
        )
        assert len([record for record in caplog.records if record.levelno >= logging.WARNING]) == 1
        watch.close()


def test_the_api_is_asked_rarely() -> None:
    clock = Clock()
    requests: list[str] = []

    def behave(connection: socket.socket, faulty: object) -> None:
        while read_request(connection, faulty):  # type: ignore[arg-type]
            path = faulty.requests[-1].split(" ", 2)[1]  # type: ignore[attr-defined]
            requests.append(path)
            connection.sendall({"/v1/models": MODELS, "/version": VERSION}.get(path, GOOD))

    with faulty_server(behave) as faulty:
        watch = watching(faulty.url, clock)
        for _ in range(100):
            watch.poll()
            clock.now += 5.0
        watch.close()
    assert requests.count("/metrics") == 100
    assert requests.count("/v1/models") == 2, "on the first page, and after 300 s"


@pytest.mark.parametrize("make", ["missing", "folder", "unreadable"])
def test_a_log_that_cannot_be_read_is_one_line_and_the_page_goes_on(
    make: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = tmp_path / "server.log"
    if make == "folder":
        log.mkdir()
    if make == "unreadable":
        log.symlink_to(log)  # a loop cannot be opened, whoever asks (root may read any mode)
    clock = Clock()
    with vllm(Server()) as url:
        watch = watching(url, clock, log)
        watch.poll()
        for _ in range(5):
            watch.read_log()
        assert not up(watch.snapshot(), "logs")
        assert up(watch.snapshot())
        (line,) = [record for record in caplog.records if record.levelno >= logging.WARNING]
        assert str(log) in line.error  # type: ignore[attr-defined]
        if make == "missing":
            log.write_text("\n".join(log_lines("0.32.0-pressure")[:101]) + "\n")
            while watch.read_log():
                pass
            watch.read_log()
            assert up(watch.snapshot(), "logs")
            assert seen(watch).limits.max_num_seqs == Value(16, "engine_log")
        watch.close()


def test_a_log_of_noise_gives_nothing_and_ends_nothing(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_bytes(
        b"\xff\xfe\x00garbage\xc3\x28\n"
        + b"x" * (5 << 20)
        + b"\n"
        + "\n".join(log_lines("0.32.0-pressure")[:101]).encode()
        + b"\n"
    )
    clock = Clock()
    with vllm(Server()) as url:
        watch = watching(url, clock, log)
        watch.poll()
        while watch.read_log():
            pass
        watch.read_log()
        assert seen(watch).limits.max_num_seqs == Value(16, "engine_log")
        watch.close()
