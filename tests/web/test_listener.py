"""The port: addresses, limits, and clients that are slow, silent, huge, many or rude."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest
import requests

from tests.deadline import wait_for
from tests.web.conftest import Listen
from tests.web.published import Daemon, application
from tests.web.wire import connected, exchange, get, rest
from vllm_length_exporter.web import connections
from vllm_length_exporter.web.address import Address
from vllm_length_exporter.web.application import Application
from vllm_length_exporter.web.listener import Listener, ListenError

MANY = connections.THREADS + 4
LARGE = 32 << 20  # bytes: more than the buffers between two sockets hold


def large_status() -> Application:
    return Application(Daemon(), status_json=lambda: b" " * LARGE)


class TestAddress:
    @pytest.mark.parametrize(
        ("text", "host", "port"),
        [
            ("0.0.0.0:9832", "0.0.0.0", 9832),
            (":9832", "0.0.0.0", 9832),
            ("localhost:0", "localhost", 0),
            ("[::]:9832", "::", 9832),
            ("[2001:db8::1]:80", "2001:db8::1", 80),
            ("127.0.0.1:09832", "127.0.0.1", 9832),
        ],
    )
    def test_sound(self, text: str, host: str, port: int) -> None:
        address = Address.parse(text)
        assert (address.host, address.port) == (host, port)
        assert Address.parse(str(address)) == address == Address.of(host, port)

    @pytest.mark.parametrize(
        "text",
        ["", "9832", "localhost", "::1:9832", "[::1]", "[::1:9832", "[zz]:1", "a:b", "a:-1", "a:65536", "a b:1",
     "http://a:1", "a:١", 9832],
    )  # fmt: skip
    def test_unsound(self, text: object) -> None:
        with pytest.raises(ValueError, match=r"^expected HOST:PORT such as .*, got "):
            Address.parse(text)


class TestListening:
    def test_port_0_is_any_and_is_told(self, listen: Listen) -> None:
        listener = listen()
        assert listener.address.port > 0
        assert listener.url == f"http://127.0.0.1:{listener.address.port}"
        assert requests.get(listener.url + "/-/healthy", timeout=5).ok

    def test_ipv6(self) -> None:
        try:
            socket.create_server(("::1", 0), family=socket.AF_INET6).close()
        except OSError as error:
            pytest.skip(f"this machine has no IPv6: {error}")
        listener = Listener(application(), "[::1]:0")
        listener.start()
        try:
            assert listener.url == f"http://[::1]:{listener.address.port}"
            assert requests.get(listener.url + "/-/healthy", timeout=5).ok
        finally:
            listener.stop()

    def test_the_environment_does_not_choose_the_socket(
        self, listen: Listen, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("LISTEN_PID", "1")
        assert requests.get(listen().url + "/-/healthy", timeout=5).ok

    def test_a_taken_port_is_one_line(self, listen: Listen) -> None:
        address = listen().address
        with pytest.raises(ListenError) as raised:
            Listener(application(), address)
        assert str(raised.value) == f"--listen-address {address}: cannot listen: Address already in use"

    def test_an_address_of_another_machine_is_one_line(self) -> None:
        with pytest.raises(ListenError) as raised:
            Listener(application(), "192.0.2.1:0")
        assert str(raised.value) == (
            "--listen-address 192.0.2.1:0: cannot listen: Cannot assign requested address"
        )

    def test_a_name_that_is_none_is_one_line(self) -> None:
        with pytest.raises(
            ListenError, match=r"^--listen-address no-host\.invalid:0: cannot listen: [^\n]+$"
        ):
            Listener(application(), "no-host.invalid:0")


class TestLimits:
    def test_long_request_line(self, listen: Listen) -> None:
        assert exchange(listen(), get("/" + "a" * connections.MAX_HEADER))[0] == 414

    @pytest.mark.parametrize(
        "header", ["X: " + "a" * 20_000, "\r\n".join(f"X-{n}: {n}" for n in range(3000))]
    )
    def test_large_headers(self, listen: Listen, header: str) -> None:
        listener = listen()
        assert exchange(listener, get("/metrics", header))[0] == 413
        assert exchange(listener, get("/metrics"))[0] == 200

    def test_headers_without_end(self, listen: Listen) -> None:
        with connected(listen()) as sock:
            sock.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n")

            def is_cut() -> bool:
                try:
                    sock.sendall(b"X: " + b"a" * 100_000 + b"\r\n")
                except OSError:
                    return True
                return False

            wait_for(is_cut, seconds=5, every=0.01, what="the connection is cut")

    @pytest.mark.parametrize(
        "header", ["Content-Length: 5", "Content-Length: 99999999999", "Transfer-Encoding: chunked"]
    )
    def test_a_body_is_refused_before_it_comes(self, listen: Listen, header: str) -> None:
        listener = listen(application(lifecycle=True))
        with connected(listener) as sock:
            sock.sendall(f"POST /-/reload HTTP/1.1\r\nHost: x\r\n{header}\r\n\r\n".encode())
            answer = rest(sock)
        assert answer.startswith(b"HTTP/1.1 413 ")
        assert answer.endswith(b"expected a request without body\n")

    @pytest.mark.parametrize(
        "request_",
        [
            b"\r\n\r\n",
            b"GET\r\n\r\n",
            b"get / HTTP/1.1\r\nHost: x\r\n\r\n",
            b"GET / HTTP/9.9\r\nHost: x\r\n\r\n",
            b"GET http://elsewhere/ HTTP/1.1\r\nHost: x\r\n\r\n",
            b"GET //elsewhere/ HTTP/1.1\r\nHost: x\r\n\r\n",
            b"CONNECT elsewhere:80 HTTP/1.1\r\nHost: x\r\n\r\n",
            b"GET / HTTP/1.1\nHost: x\n\n",
            b"GET / HTTP/1.1\r\nHost x\r\n\r\n",
            b"GET / HTTP/1.1\r\nContent-Length: x\r\n\r\n",
            b"GET / HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n",
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
            b"\x00" * 100,
        ],
    )
    def test_what_is_no_request_harms_nothing(self, listen: Listen, request_: bytes) -> None:
        listener = listen()
        with connected(listener) as sock:
            sock.sendall(request_)
            answer = rest(sock, after_our_end=True)
        assert answer == b"" or int(answer.split(b" ", 2)[1]) in (400, 405, 501, 505)
        assert exchange(listener, get("/metrics"))[0] == 200


@contextmanager
def clients(listener: Listener, count: int, first: bytes) -> Iterator[list[socket.socket]]:
    """`count` connections that have sent `first` and now wait."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(connected(listener)) for _ in range(count)]
        for sock in sockets:
            sock.sendall(first)
        yield sockets


class TestSlowClients:
    def test_silent_ones_cost_nobody_anything(self, listen: Listen) -> None:
        listener = listen()
        with clients(listener, 4 * MANY, b""):
            assert requests.get(listener.url + "/metrics", timeout=2).ok

    def test_half_a_request_does_not_hold_up_others(self, listen: Listen) -> None:
        listener = listen()
        with clients(listener, MANY, b"GET /metrics HTTP/1.1\r\nX-Slow: "):
            # In a hurry: half a second for each of two rounds of slow ones, and not 5 s.
            assert requests.get(listener.url + "/metrics", timeout=4).ok

    def test_a_drip_is_cut(self, listen: Listen, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(connections, "READING", 0.4)
        listener = listen()
        with connected(listener) as sock:
            sock.sendall(b"GET /metrics HTTP/1.1\r\n")
            begun = time.monotonic()

            def is_cut() -> bool:
                try:
                    sock.sendall(b"X")
                except OSError:
                    return True
                return False

            wait_for(is_cut, seconds=5, every=0.05, what="the drip is cut")
            assert time.monotonic() - begun >= 0.3

    def test_one_that_does_not_read_is_cut(self, listen: Listen, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(connections, "EXCHANGE", 0.5)
        listener = listen(large_status())
        with clients(listener, 1, get("/api/v1/status")) as (sock,):
            assert sock.recv(1) == b"H"
            wait_for(lambda: not listener._server._open, seconds=5, what="the connection is closed")
            assert len(rest(sock)) < LARGE

    def test_the_one_silent_longest_makes_room(self, listen: Listen, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(connections, "MAX_CONNECTIONS", 20)
        listener = listen()
        with clients(listener, 30, b"") as sockets:
            assert rest(sockets[0]) == b""
            assert requests.get(listener.url + "/metrics", timeout=5).ok
            wait_for(lambda: len(listener._server._open) <= 20, seconds=5, what="no more than 20 are open")

    def test_a_connection_is_kept_for_the_next_scrape(self, listen: Listen) -> None:
        listener = listen()
        with connected(listener) as sock:
            for _ in range(3):
                sock.sendall(b"GET /-/healthy HTTP/1.1\r\nHost: x\r\n\r\n")
                answer = b""
                while not answer.endswith(b"healthy\n"):
                    answer += sock.recv(4096)
                assert answer.startswith(b"HTTP/1.1 200 ")


class TestStop:
    def stopped(self, listener: Listener) -> float:
        begun = time.monotonic()
        listener.stop()
        return time.monotonic() - begun

    def test_idle(self) -> None:
        listener = Listener(application(), "127.0.0.1:0")
        listener.start()
        assert requests.get(listener.url, timeout=5).ok
        assert self.stopped(listener) < 1
        with pytest.raises(requests.ConnectionError):
            requests.get(listener.url, timeout=5)

    def test_never_started(self) -> None:
        listener = Listener(application(), "127.0.0.1:0")
        assert self.stopped(listener) < 1

    def test_twice(self, listen: Listen) -> None:
        listener = listen()
        listener.stop()
        assert self.stopped(listener) < 0.2

    @pytest.mark.parametrize("first", [b"", b"GET /metrics HTTP/1.1\r\nX: "], ids=["silent", "slow"])
    def test_with_clients(self, listen: Listen, first: bytes) -> None:
        listener = listen()
        with clients(listener, MANY, first) as sockets:
            assert self.stopped(listener) < 1
            assert rest(sockets[0]) == b""

    def test_with_one_that_does_not_read(self, listen: Listen) -> None:
        listener = listen(large_status())
        with clients(listener, 1, get("/api/v1/status")) as (sock,):
            assert sock.recv(1) == b"H"
            assert self.stopped(listener) < 1

    def test_it_leaves_no_thread(self, listen: Listen) -> None:
        before = set(threading.enumerate())
        listener = listen()
        assert requests.get(listener.url, timeout=5).ok
        listener.stop()
        wait_for(lambda: set(threading.enumerate()) <= before, seconds=2, what="no thread is left")


def test_a_fault_of_ours_is_a_500_and_one_record(listen: Listen, caplog: pytest.LogCaptureFixture) -> None:
    def broken() -> str | None:
        raise KeyError("ours")

    listener = listen(application(Daemon(on_reload=broken), lifecycle=True))
    assert requests.post(listener.url + "/-/reload", timeout=5).status_code == 500
    assert requests.get(listener.url + "/-/healthy", timeout=5).ok
    (record,) = caplog.records
    assert record.levelname == "ERROR"
    assert record.exc_info is not None


def test_no_file_left_to_accept_with_is_told_once_and_survived() -> None:
    command = [sys.executable, "-m", "tests.web.few_files"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        port = int(url.rpartition(":")[2])
        with ExitStack() as stack:
            for _ in range(30):
                stack.enter_context(socket.create_connection(("127.0.0.1", port), 5))
            assert 'msg="cannot accept connections" error="[Errno 24] Too many open files"' in (
                process.stdout.readline()
            )
        wait_for(
            lambda: requests.get(url + "/-/healthy", timeout=5).ok,
            seconds=10,
            what="it answers again",
            ignoring=(requests.RequestException,),
        )
        process.stdin.close()
        assert process.stdout.read() == ""
        assert process.wait(10) == 0
