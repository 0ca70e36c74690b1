from __future__ import annotations

import gzip
import socket
import ssl
import threading
import time
import tracemalloc
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import trustme

from tests.deadline import wait_for
from tests.sources.faulty import (
    Behaviour,
    Faulty,
    always,
    answer,
    drip,
    faulty_server,
    hang,
    once,
    read_request,
)
from vllm_length_exporter.sources.http import Endpoint, Fetched, FetchError, FetchFailure, HttpSource, masked

TEXT = "text/plain; version=0.0.4"
PAGE = b"# TYPE a gauge\na 1\n" * 3000


@contextmanager
def asking(endpoint: Endpoint) -> Iterator[HttpSource]:
    source = HttpSource(endpoint)
    try:
        yield source
    finally:
        source.close()


def fetch(endpoint: Endpoint, path: str = "/metrics") -> Fetched:
    with asking(endpoint) as source:
        return source.get(path, TEXT)


def failure(endpoint: Endpoint) -> FetchError:
    with pytest.raises(FetchError) as caught:
        fetch(endpoint)
    assert "\n" not in str(caught.value)
    return caught.value


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def test_a_page_comes_whole_over_one_connection() -> None:
    with faulty_server(always(answer(PAGE))) as server, asking(Endpoint(server.url + "/")) as source:
        answers = [source.get("/metrics", TEXT) for _ in range(3)]
        assert {found.body for found in answers} == {PAGE}
        assert {(found.status, found.content_type) for found in answers} == {(200, "text/plain")}
        assert all(0 < found.seconds < 5 for found in answers)
        assert server.connections == 1
        first = server.requests[0]
    assert first.startswith("GET /metrics HTTP/1.1\r\n")
    assert "\r\nAccept: text/plain; version=0.0.4\r\n" in first
    assert "\r\nAccept-Encoding: gzip\r\n" in first
    assert "authorization" not in first.lower()


@pytest.mark.parametrize(("path", "asked"), [("/metrics/", "/api/metrics"), ("/v1/models", "/api/v1/models")])
def test_the_path_is_asked_below_the_base_without_a_trailing_slash(path: str, asked: str) -> None:
    with faulty_server(always(answer(b"a 1\n"))) as server:
        fetch(Endpoint(server.url + "/api/"), path)
        assert server.requests[0].startswith(f"GET {asked} HTTP/1.1\r\n")


def test_a_gzip_page_comes_unpacked() -> None:
    packed = gzip.compress(PAGE[:30_000]) + gzip.compress(PAGE[30_000:])
    with faulty_server(always(answer(packed, headers="Content-Encoding: gzip"))) as server:
        assert fetch(Endpoint(server.url)).body == PAGE


@pytest.mark.parametrize(
    "body", [b"<html><body>login</body></html>", b'{"a": 1}', bytes(range(256)) * 40, b""]
)
def test_what_a_body_means_is_not_judged_here(body: bytes) -> None:
    with faulty_server(always(answer(body))) as server:
        assert fetch(Endpoint(server.url)).body == body


@pytest.mark.parametrize("name", ["content-length", "Content-Length", "CONTENT-LENGTH"])
def test_an_empty_body_of_a_given_length_is_whole(name: str) -> None:
    with faulty_server(always(f"HTTP/1.1 200 OK\r\n{name}: 0\r\n\r\n".encode())) as server:
        assert fetch(Endpoint(server.url)).body == b""


def test_chunks_are_joined() -> None:
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\na 1\n\r\n4\r\nb 2\n\r\n0\r\n\r\n"
    with faulty_server(always(chunked)) as server:
        assert fetch(Endpoint(server.url)).body == b"a 1\nb 2\n"


SHORT = b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n" + b"x" * 500
HUGE_HEADER = b"HTTP/1.1 200 OK\r\nX: " + b"y" * 100_000 + b"\r\n\r\n"
BOMB = gzip.compress(bytes(64 * 1024 * 1024), 9)
TAILED = zlib.compress(bytes(200_000)) + b"tail"
DEFLATED_WITH_A_TAIL = (
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Encoding: deflate\r\n\r\n"
    b"%x\r\n%s\r\n0\r\n\r\n" % (len(TAILED), TAILED)
)
CASES: dict[str, tuple[Behaviour, FetchFailure, str]] = {
    "404": (always(answer(b"no", "404 Not Found")), FetchFailure.STATUS, "answers 404; nothing is served"),
    "401": (
        always(answer(b"no", "401 Unauthorized")),
        FetchFailure.STATUS,
        "answers 401; check the bearer token",
    ),
    "500": (always(answer(b"no", "500 Oops")), FetchFailure.STATUS, "answers 500"),
    "204": (always(b"HTTP/1.1 204 No Content\r\n\r\n"), FetchFailure.STATUS, "answers 204"),
    "redirect": (
        always(answer(b"", "307 Temporary Redirect", "Location: http://u:secret@h/metrics/")),
        FetchFailure.REDIRECT,
        "a redirect to 'http://***@h/metrics/'",
    ),
    "60 MB page": (
        always(answer(b"a 1\n" * 15_000_000)),
        FetchFailure.TOO_LARGE,
        "larger than 1000000 bytes",
    ),
    "60 MB page of unknown length": (
        once(b"HTTP/1.1 200 OK\r\n\r\n" + b"a 1\n" * 15_000_000),
        FetchFailure.TOO_LARGE,
        "larger than 1000000 bytes",
    ),
    "length of 5000 digits": (
        once(b"HTTP/1.1 200 OK\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\nabc"),
        FetchFailure.TOO_LARGE,
        "larger than",
    ),
    "gzip bomb": (
        always(answer(BOMB, headers="Content-Encoding: gzip")),
        FetchFailure.TOO_LARGE,
        "larger than 1000000 bytes",
    ),
    "cut in half": (once(SHORT), FetchFailure.CUT, "ended in the middle of the answer"),
    "cut chunk": (
        once(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n400\r\nabc"),
        FetchFailure.CUT,
        "ended in the middle of the answer",
    ),
    "chunk size without end": (
        once(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1" * 60_000_000),
        FetchFailure.PROTOCOL,
        "the answer is not HTTP",
    ),
    "deflate in chunks with a tail": (
        always(DEFLATED_WITH_A_TAIL),
        FetchFailure.PROTOCOL,
        "encoding 'deflate', only gzip was offered",
    ),
    "cut gzip": (
        always(answer(gzip.compress(PAGE)[:100], headers="Content-Encoding: gzip")),
        FetchFailure.CUT,
        "the gzip body ends too early",
    ),
    "no gzip at all": (
        always(answer(b"a 1\n", headers="Content-Encoding: gzip")),
        FetchFailure.PROTOCOL,
        "not the gzip it says",
    ),
    "brotli": (always(answer(b"a", headers="Content-Encoding: br")), FetchFailure.PROTOCOL, "encoding 'br'"),
    "closed without answer": (once(b""), FetchFailure.CUT, "closed without an answer"),
    "cut header": (once(b"HTTP/1.1 200 OK\r\nContent-Le"), FetchFailure.CUT, "ended before the body"),
    "not HTTP": (once(b"\x00\x01\x02SSH-2.0-hello\r\n" * 5), FetchFailure.PROTOCOL, "the answer is not HTTP"),
    "huge header": (once(HUGE_HEADER), FetchFailure.PROTOCOL, "the answer is not HTTP"),
}


@pytest.mark.parametrize("case", CASES)
def test_a_bad_answer_is_one_line_and_its_kind(case: str) -> None:
    behaviour, kind, words = CASES[case]
    with faulty_server(behaviour) as server:
        error = failure(Endpoint(server.url, max_bytes=1_000_000))
        assert (error.kind, words in str(error)) == (kind, True), error
        assert str(error).startswith(f"{server.url}/metrics: ")
        if kind is FetchFailure.STATUS:
            assert error.status == int(case)


@pytest.mark.parametrize("case", ["gzip bomb", "60 MB page of unknown length", "chunk size without end"])
def test_no_more_than_the_cap_is_held_in_memory(case: str) -> None:
    with faulty_server(CASES[case][0]) as server:
        tracemalloc.start()
        try:
            failure(Endpoint(server.url, max_bytes=1_000_000))
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert peak < 8_000_000


DRIPS: dict[str, Behaviour] = {
    "hang": hang,
    "status line": drip(b"HTTP/1.1 200 OK" + b" " * 1000),
    "headers": drip(b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 1000),
    "body": drip(answer(b"a 1\n" * 1000)),
    "redirect body": drip(answer(b"x" * 1000, "302 Found", "Location: /x"), 0.001),
}


@pytest.mark.parametrize("case", ["hang", "status line", "headers", "body"])
@pytest.mark.parametrize("encrypted", [False, True])
def test_everything_ends_at_the_deadline(case: str, encrypted: bool, authority: Authority) -> None:
    tls = authority.server if encrypted else None
    with faulty_server(DRIPS[case], tls) as server:
        begin = time.monotonic()
        error = failure(Endpoint(server.url, timeout=0.4, ca_file=authority.file))
        seconds = time.monotonic() - begin
    assert error.kind is FetchFailure.TIMEOUT
    assert "no complete answer within 0.4 s" in str(error)
    assert 0.35 < seconds < 2


def test_a_handshake_that_hangs_ends_at_the_deadline(authority: Authority) -> None:
    with faulty_server(hang) as server:
        url = server.url.replace("http:", "https:")
        assert failure(Endpoint(url, timeout=0.4)).kind is FetchFailure.TIMEOUT


def test_the_body_of_a_redirect_is_not_waited_for() -> None:
    with faulty_server(DRIPS["redirect body"]) as server:
        assert failure(Endpoint(server.url, timeout=5)).kind is FetchFailure.REDIRECT


def test_after_a_timeout_the_next_request_gets_its_own_answer() -> None:
    def slow_first(connection: socket.socket, faulty: Faulty) -> None:
        late = faulty.connections == 1
        while read_request(connection, faulty):
            if late:
                faulty.stop.wait(0.5)
            connection.sendall(answer(b"late" if late else b"now"))

    with faulty_server(slow_first) as server, asking(Endpoint(server.url, timeout=0.2)) as source:
        with pytest.raises(FetchError, match="within"):
            source.get("/metrics", TEXT)
        assert source.get("/metrics", TEXT).body == b"now"


def test_a_kept_connection_that_the_server_closed_is_opened_again() -> None:
    with faulty_server(once(answer(b"a 1\n"))) as server, asking(Endpoint(server.url)) as source:
        for _ in range(5):
            assert source.get("/metrics", TEXT).body == b"a 1\n"
        assert server.connections == 5


def test_a_kept_connection_closed_just_as_it_is_used_is_tried_once_more() -> None:
    def close_at_second(connection: socket.socket, faulty: Faulty) -> None:
        if read_request(connection, faulty):
            connection.sendall(answer(b"a 1\n"))
            read_request(connection, faulty)

    with faulty_server(close_at_second) as server, asking(Endpoint(server.url)) as source:
        for _ in range(3):
            assert source.get("/metrics", TEXT).body == b"a 1\n"
        assert len(server.requests) == 5


def test_nothing_listens() -> None:
    error = failure(Endpoint(f"http://127.0.0.1:{free_port()}"))
    assert error.kind is FetchFailure.REFUSED
    assert "connection refused" in str(error)


@pytest.mark.parametrize("host", ["no-such-host.invalid", "a" * 80])
def test_no_such_host(host: str) -> None:
    error = failure(Endpoint(f"http://{host}:8000"))
    assert error.kind is FetchFailure.UNREACHABLE
    assert "host not found" in str(error)


# --- secrets


def test_a_token_file_is_read_anew_for_each_request(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("first\n")
    with (
        faulty_server(always(answer(b"a 1\n"))) as server,
        asking(Endpoint(server.url, token_file=token)) as source,
    ):
        source.get("/metrics", TEXT)
        token.write_text("second\n")
        source.get("/metrics", TEXT)
        sent = [request.split("Authorization: ")[1].split("\r\n")[0] for request in server.requests]
    assert sent == ["Bearer first", "Bearer second"]


def test_a_token_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_TOKEN", "from-environment")
    with faulty_server(always(answer(b"a 1\n"))) as server:
        fetch(Endpoint(server.url, token_variable="SOME_TOKEN"))
        assert "\r\nAuthorization: Bearer from-environment\r\n" in server.requests[0]


@pytest.mark.parametrize("text", [b"", b"two lines\nsecret", b"secret\xff\xfe", "sécret".encode()])
def test_a_token_that_cannot_be_one_is_refused_and_not_shown(text: bytes, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_bytes(text)
    error = failure(Endpoint("http://127.0.0.1:1", token_file=token))
    assert error.kind is FetchFailure.CREDENTIALS
    assert str(token) in str(error)
    assert "secret" not in str(error)


def test_a_missing_token_says_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = tmp_path / "token"
    error = failure(Endpoint("http://127.0.0.1:1", token_file=missing))
    assert (error.kind, f"{missing}: No such file" in str(error)) == (FetchFailure.CREDENTIALS, True)
    monkeypatch.delenv("SOME_TOKEN", raising=False)
    error = failure(Endpoint("http://127.0.0.1:1", token_variable="SOME_TOKEN"))
    assert (error.kind, "variable SOME_TOKEN" in str(error)) == (FetchFailure.CREDENTIALS, True)


@pytest.mark.parametrize("case", ["404", "cut in half", "hang", "60 MB page"])
def test_no_message_shows_a_secret(case: str, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("hidden-token")
    behaviour = CASES[case][0] if case in CASES else hang
    with faulty_server(behaviour) as server:
        url = server.url.replace("http://", "http://user:hidden@")
        endpoint = Endpoint(url, token_file=token, timeout=0.3)
        error = failure(endpoint)
    shown = f"{error} {error!r} {endpoint!r}"
    assert "hidden" not in shown
    assert "http://***@127.0.0.1" in str(error)


def test_user_and_password_of_the_url_are_sent() -> None:
    with faulty_server(always(answer(b"a 1\n"))) as server:
        fetch(Endpoint(server.url.replace("http://", "http://user:pw@")))
        assert "\r\nAuthorization: Basic dXNlcjpwdw==\r\n" in server.requests[0]


def test_masked_leaves_an_ordinary_url_alone() -> None:
    assert masked("http://h:1/a@b") == "http://h:1/a@b"
    assert masked("https://a:b@c@h:1/x") == "https://***@h:1/x"


# --- the environment


def test_proxies_of_the_environment_are_ignored_unless_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    with faulty_server(always(answer(b"proxy"))) as proxy, faulty_server(always(answer(b"direct"))) as server:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
            monkeypatch.setenv(name, proxy.url)
        for name in ("no_proxy", "NO_PROXY"):
            monkeypatch.delenv(name, raising=False)
        endpoint = Endpoint(server.url)
        assert fetch(endpoint).body == b"direct"
        assert fetch(replace(endpoint, proxy_from_environment=True)).body == b"proxy"
        assert proxy.requests[0].startswith(f"GET {server.url}/metrics HTTP/1.1\r\n")


def test_a_proxy_ends_at_the_deadline_too(monkeypatch: pytest.MonkeyPatch) -> None:
    with faulty_server(DRIPS["headers"]) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url)
        monkeypatch.setenv("no_proxy", "")
        endpoint = Endpoint("http://vllm.invalid:8000", timeout=0.3, proxy_from_environment=True)
        assert failure(endpoint).kind is FetchFailure.TIMEOUT


# --- TLS


class Authority:
    """A certificate authority of the test's own, a server of it, and a client."""

    def __init__(self, directory: Path) -> None:
        self.ca = trustme.CA()
        self.file = directory / "ca.pem"
        self.ca.cert_pem.write_to_path(str(self.file))
        self.server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.ca.issue_cert("127.0.0.1").configure_cert(self.server)
        client = self.ca.issue_cert("exporter@example.org")
        self.client_cert, self.client_key = directory / "client.pem", directory / "client.key"
        for blob in client.cert_chain_pems:
            blob.write_to_path(str(self.client_cert), append=True)
        client.private_key_pem.write_to_path(str(self.client_key))


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


def test_tls_with_an_authority_of_ones_own(authority: Authority) -> None:
    with (
        faulty_server(always(answer(PAGE)), authority.server) as server,
        asking(Endpoint(server.url, ca_file=authority.file)) as source,
    ):
        assert [source.get("/metrics", TEXT).body for _ in range(2)] == [PAGE, PAGE]
        assert server.connections == 1


def test_tls_with_an_unknown_authority_is_refused(authority: Authority) -> None:
    with faulty_server(always(answer(PAGE)), authority.server) as server:
        error = failure(Endpoint(server.url))
        assert not server.requests
    assert error.kind is FetchFailure.TLS
    assert "unable to get local issuer certificate" in str(error)


def test_tls_for_another_host_is_refused(authority: Authority) -> None:
    other = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.ca.issue_cert("example.org").configure_cert(other)
    with faulty_server(always(answer(PAGE)), other) as server:
        error = failure(Endpoint(server.url, ca_file=authority.file))
        assert not server.requests
    assert error.kind is FetchFailure.TLS
    assert "127.0.0.1" in str(error)


def test_plain_http_where_tls_was_expected() -> None:
    def complain(connection: socket.socket, faulty: Faulty) -> None:
        connection.recv(65_536)
        connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    with faulty_server(complain) as server:
        error = failure(Endpoint(server.url.replace("http:", "https:")))
    assert (error.kind, "TLS: WRONG_VERSION_NUMBER" in str(error)) == (FetchFailure.TLS, True), error


def test_a_client_certificate_is_shown_when_asked_for(authority: Authority) -> None:
    strict = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.ca.issue_cert("127.0.0.1").configure_cert(strict)
    authority.ca.configure_trust(strict)
    strict.verify_mode = ssl.CERT_REQUIRED
    with faulty_server(always(answer(PAGE)), strict) as server:
        endpoint = Endpoint(server.url, ca_file=authority.file)
        assert failure(endpoint).kind in (FetchFailure.TLS, FetchFailure.CUT)
        shown = replace(endpoint, client_cert=authority.client_cert, client_key=authority.client_key)
        assert fetch(shown).body == PAGE


@pytest.mark.parametrize("name", ["ca_file", "client_cert"])
def test_a_certificate_file_that_is_missing_is_named(name: str, tmp_path: Path, authority: Authority) -> None:
    missing = tmp_path / "missing.pem"
    with faulty_server(always(answer(PAGE)), authority.server) as server:
        endpoint = Endpoint(server.url, ca_file=authority.file)
        error = failure(
            replace(endpoint, ca_file=missing)
            if name == "ca_file"
            else replace(endpoint, client_cert=missing)
        )
    assert error.kind is FetchFailure.TLS
    assert str(missing) in str(error)


# --- settings


@pytest.mark.parametrize(
    "url",
    [
        "",
        "host:8000",
        "ftp://h",
        "http://",
        "http://h:99999",
        "http://h:0",
        "http://h/?a=b",
        "http://h/#x",
        "http://a b",
    ],
)
def test_a_bad_url_is_refused_at_once(url: str) -> None:
    with pytest.raises(ValueError, match="no address; expected"):
        Endpoint(url)


def test_settings_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(ValueError, match="not from both"):
        Endpoint("http://h", token_file=Path("a"), token_variable="B")
    with pytest.raises(ValueError, match="needs its client certificate"):
        Endpoint("http://h", client_key=Path("a"))
    with pytest.raises(ValueError, match="more than 0"):
        Endpoint("http://h", timeout=0)


def open_files() -> list[str]:
    return [
        f"{entry.name} {entry.readlink()}" for entry in Path("/proc/self/fd").iterdir() if entry.is_symlink()
    ]


def test_no_file_descriptor_is_left_behind() -> None:
    before = open_files()
    for case in ("404", "cut in half", "gzip bomb"):
        with faulty_server(CASES[case][0]) as server:
            failure(Endpoint(server.url, max_bytes=1_000_000))
    assert open_files() == before


# --- streams


def test_a_stream_comes_in_pieces_as_they_are_sent() -> None:
    go_on = threading.Event()

    def behave(connection: socket.socket, faulty: Faulty) -> None:
        read_request(connection, faulty)
        connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\none\n\r\n")
        go_on.wait(10)
        connection.sendall(b"4\r\ntwo\n\r\n0\r\n\r\n")

    with faulty_server(behave) as server, asking(Endpoint(server.url)) as source:
        stream = source.stream("/log?follow=true", "*/*", idle=10)
        assert next(stream) == b"one\n"
        go_on.set()
        assert list(stream) == [b"two\n"]
        assert "\r\nAccept-Encoding: identity\r\n" in server.requests[0]


@pytest.mark.parametrize(
    ("end", "kind"), [(b"", FetchFailure.CUT), (None, FetchFailure.TIMEOUT), (b"4\r\nno", FetchFailure.CUT)]
)
def test_a_stream_that_breaks_or_falls_silent_says_so(end: bytes | None, kind: FetchFailure) -> None:
    def behave(connection: socket.socket, faulty: Faulty) -> None:
        read_request(connection, faulty)
        connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\none\n\r\n")
        if end is None:
            faulty.stop.wait()
        else:
            connection.sendall(end)

    with faulty_server(behave) as server, asking(Endpoint(server.url)) as source:
        stream = source.stream("/log", "*/*", idle=0.2)
        assert next(stream) == b"one\n"
        with pytest.raises(FetchError) as caught:
            list(stream)
    assert caught.value.kind is kind


def test_a_stream_is_not_given_of_an_error_page() -> None:
    with (
        faulty_server(CASES["404"][0]) as server,
        asking(Endpoint(server.url)) as source,
        pytest.raises(FetchError, match="answers 404"),
    ):
        next(source.stream("/log", "*/*", idle=1))


@pytest.mark.parametrize("encrypted", [False, True])
@pytest.mark.parametrize("answers", [False, True])
def test_another_thread_can_end_a_stream(encrypted: bool, answers: bool, authority: Authority) -> None:
    def behave(connection: socket.socket, faulty: Faulty) -> None:
        read_request(connection, faulty)
        if answers:
            connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\none\n\r\n")
        faulty.stop.wait()

    failures: list[FetchError] = []

    def read(source: HttpSource) -> None:
        try:
            list(source.stream("/log", "*/*", idle=60))
        except FetchError as error:
            failures.append(error)

    with faulty_server(behave, authority.server if encrypted else None) as server:
        endpoint = Endpoint(server.url, timeout=60, ca_file=authority.file)
        with asking(endpoint) as source:
            reader = threading.Thread(target=read, args=(source,))
            reader.start()
            wait_for(lambda: server.requests, seconds=10, what="the request", every=0.01)
            begin = time.monotonic()
            source.cancel()
            reader.join(10)
            assert time.monotonic() - begin < 2
            with pytest.raises(FetchError):
                source.get("/metrics", TEXT)
    assert len(failures) == 1
