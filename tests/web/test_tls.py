"""TLS of our own port: versions, client certificates, rotation, and clients that are slow in the handshake."""

from __future__ import annotations

import http.client
import logging
import ssl
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import requests
import trustme

from tests.deadline import wait_for
from tests.web.certificates import TLS, client_context, write_server_certificate
from tests.web.conftest import Listen
from tests.web.wire import connected, get, rest
from vllm_length_exporter.settings.mistake import ConfigError
from vllm_length_exporter.web import connections
from vllm_length_exporter.web.listener import Listener


@pytest.fixture
def web_config(ca: trustme.CA, tmp_path: Path) -> Path:
    """A web configuration with TLS; its certificate is beside it."""
    write_server_certificate(ca, tmp_path)
    return configured(tmp_path)


def configured(folder: Path, more: str = "") -> Path:
    path = folder / "web.yml"
    fresh = folder / "web.yml.new"
    fresh.write_text(TLS + more)
    fresh.replace(path)
    return path


@contextmanager
def shaken(listener: Listener, context: ssl.SSLContext) -> Iterator[ssl.SSLSocket]:
    with connected(listener) as plain, context.wrap_socket(plain, server_hostname="127.0.0.1") as sock:
        yield sock


def answer(listener: Listener, context: ssl.SSLContext) -> bytes:
    with shaken(listener, context) as sock:
        sock.sendall(get("/-/healthy"))
        return rest(sock)


def is_refused(listener: Listener, context: ssl.SSLContext) -> bool:
    """Whether there is no answer. Under TLS 1.3 the client may see an alert, or only the end."""
    try:
        return answer(listener, context) == b""
    except (ssl.SSLError, ConnectionError):
        return True


def served_serial(listener: Listener, context: ssl.SSLContext) -> int:
    with shaken(listener, context) as sock:
        certificate = sock.getpeercert()
        assert certificate is not None
        return int(str(certificate["serialNumber"]), 16)


def test_it_answers(listen: Listen, web_config: Path, ca_file: Path) -> None:
    listener = listen(web_config_file=web_config)
    assert listener.url.startswith("https://")
    for path in ("/metrics", "/", "/-/healthy"):
        assert requests.get(listener.url + path, verify=str(ca_file), timeout=5).ok


def test_a_connection_serves_many_requests(listen: Listen, web_config: Path, ca: trustme.CA) -> None:
    listener = listen(web_config_file=web_config)
    connection = http.client.HTTPSConnection(
        "127.0.0.1", listener.address.port, timeout=5, context=client_context(ca)
    )
    try:
        connection.connect()
        first = connection.sock
        for _ in range(3):
            connection.request("GET", "/metrics")
            response = connection.getresponse()
            assert response.status == 200
            assert len(response.read()) > 1000
            assert connection.sock is first
    finally:
        connection.close()


def test_who_does_not_trust_us_gets_nothing(listen: Listen, web_config: Path) -> None:
    with pytest.raises(requests.exceptions.SSLError):
        requests.get(listen(web_config_file=web_config).url, timeout=5)


def test_plain_http_is_told_so(listen: Listen, web_config: Path) -> None:
    listener = listen(web_config_file=web_config)
    answer = requests.get(f"http://{listener.address}/metrics", timeout=5)
    assert (answer.status_code, answer.text) == (400, "this port speaks HTTPS only\n")


class TestVersions:
    def test_an_old_one_is_refused(
        self, listen: Listen, web_config: Path, ca: trustme.CA, tmp_path: Path
    ) -> None:
        old = client_context(ca)
        old.maximum_version = ssl.TLSVersion.TLSv1_2
        assert b" 200 " in answer(listen(web_config_file=web_config), old)
        listener = listen(web_config_file=configured(tmp_path, "  min_version: TLS13\n"))
        assert is_refused(listener, old)
        assert b" 200 " in answer(listener, client_context(ca))

    def test_tls_1_1_is_refused_unless_asked_for(
        self, listen: Listen, web_config: Path, ca: trustme.CA
    ) -> None:
        ancient = client_context(ca)
        ancient.set_ciphers("DEFAULT:@SECLEVEL=0")
        with pytest.warns(DeprecationWarning, match="TLSv1_1"):
            ancient.maximum_version = ssl.TLSVersion.TLSv1_1
        with pytest.warns(DeprecationWarning, match="TLSv1"):
            ancient.minimum_version = ssl.TLSVersion.TLSv1
        with pytest.raises(ssl.SSLError, match=r"(?i)alert protocol version"):
            answer(listen(web_config_file=web_config), ancient)


class TestClientCertificates:
    @pytest.fixture
    def required(self, web_config: Path, ca: trustme.CA, tmp_path: Path) -> Path:
        ca.cert_pem.write_to_path(str(tmp_path / "clients.crt"))
        return configured(
            tmp_path, "  client_ca_file: clients.crt\n  client_auth_type: RequireAndVerifyClientCert\n"
        )

    def test_with_one(self, listen: Listen, required: Path, ca: trustme.CA) -> None:
        certificate = ca.issue_cert("prometheus@example.org")
        assert b" 200 " in answer(listen(web_config_file=required), client_context(ca, certificate))

    def test_without(self, listen: Listen, required: Path, ca: trustme.CA) -> None:
        assert is_refused(listen(web_config_file=required), client_context(ca))

    def test_with_one_of_another_authority(self, listen: Listen, required: Path, ca: trustme.CA) -> None:
        stranger = trustme.CA().issue_cert("prometheus@example.org")
        assert is_refused(listen(web_config_file=required), client_context(ca, stranger))

    def test_if_given(self, listen: Listen, required: Path, ca: trustme.CA, tmp_path: Path) -> None:
        configured(tmp_path, "  client_ca_file: clients.crt\n  client_auth_type: VerifyClientCertIfGiven\n")
        listener = listen(web_config_file=required)
        assert b" 200 " in answer(listener, client_context(ca))
        assert is_refused(listener, client_context(ca, trustme.CA().issue_cert("x@example.org")))


class TestRotation:
    def test_a_new_certificate_is_served(
        self, listen: Listen, web_config: Path, ca: trustme.CA, tmp_path: Path
    ) -> None:
        listener = listen(web_config_file=web_config)
        context = client_context(ca)
        with shaken(listener, context) as kept:
            serial = write_server_certificate(ca, tmp_path)
            assert served_serial(listener, context) == serial
            kept.sendall(get("/-/healthy"))
            assert b" 200 " in rest(kept)

    def test_a_bad_one_leaves_the_old_one_and_is_told_once(
        self,
        listen: Listen,
        web_config: Path,
        ca: trustme.CA,
        tmp_path: Path,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        listener = listen(web_config_file=web_config)
        context = client_context(ca)
        before = served_serial(listener, context)
        (tmp_path / "server.crt").write_text("-----BEGIN CERTIFICATE-----\nbroken\n")
        for _ in range(3):
            assert served_serial(listener, context) == before
        (record,) = caplog.records
        assert vars(record)["error"].startswith(
            f"{web_config}: tls_server_config.cert_file: expected a PEM certificate"
        )
        assert write_server_certificate(ca, tmp_path) == served_serial(listener, context)

    def test_a_deleted_one_leaves_the_old_one(
        self, listen: Listen, web_config: Path, ca: trustme.CA, tmp_path: Path
    ) -> None:
        listener = listen(web_config_file=web_config)
        context = client_context(ca)
        before = served_serial(listener, context)
        (tmp_path / "server.key").unlink()
        assert served_serial(listener, context) == before

    def test_tls_does_not_go_off_without_a_restart(
        self,
        listen: Listen,
        web_config: Path,
        ca: trustme.CA,
        tmp_path: Path,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        listener = listen(web_config_file=web_config)
        (tmp_path / "web.yml").write_text("basic_auth_users: {}\n")
        assert b" 200 " in answer(listener, client_context(ca))
        assert requests.get(f"http://{listener.address}/metrics", timeout=5).status_code == 400
        (record,) = caplog.records
        assert (
            vars(record)["error"]
            == f"{web_config}: tls_server_config: TLS goes on or off with a restart only"
        )


class TestSlowHandshakes:
    def test_they_do_not_hold_up_others(self, listen: Listen, web_config: Path, ca_file: Path) -> None:
        listener = listen(web_config_file=web_config)
        with ExitStack() as stack:
            for count in range(connections.THREADS + 4):
                sock = stack.enter_context(connected(listener))
                sock.sendall(b"\x16\x03\x01" if count % 2 else b"\x16")
            assert requests.get(listener.url + "/metrics", verify=str(ca_file), timeout=4).ok

    def test_one_that_says_nothing_after_it_costs_no_thread(
        self, listen: Listen, web_config: Path, ca: trustme.CA, ca_file: Path
    ) -> None:
        listener = listen(web_config_file=web_config)
        context = client_context(ca)
        with ExitStack() as stack:
            for _ in range(connections.THREADS + 4):
                stack.enter_context(shaken(listener, context))
            wait_for(
                lambda: not [conn for conn in listener._server._open if conn.begun is not None],
                seconds=2,
                what="no worker is in one of them",
            )
            assert requests.get(listener.url + "/metrics", verify=str(ca_file), timeout=2).ok

    def test_they_do_not_hold_up_the_stop(self, listen: Listen, web_config: Path) -> None:
        listener = listen(web_config_file=web_config)
        with connected(listener) as sock:
            sock.sendall(b"\x16\x03\x01")
            listener.stop()
            assert rest(sock) == b""

    @pytest.mark.parametrize("sent", [b"\x00" * 50, b"\x16\x03\x01\x00\x05hello", b"\x80\x2e\x01\x00\x02"])
    def test_nonsense_harms_nothing(
        self, listen: Listen, web_config: Path, ca_file: Path, sent: bytes, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO)
        listener = listen(web_config_file=web_config)
        with connected(listener) as sock:
            sock.sendall(sent)
            rest(sock, after_our_end=True)
        assert requests.get(listener.url + "/metrics", verify=str(ca_file), timeout=5).ok
        assert [record for record in caplog.records if record.name.startswith("vllm_length")] == []


class TestFilesAtTheStart:
    def fault(self, path: Path) -> str:
        with pytest.raises(ConfigError) as raised:
            Listener(lambda *_: [], "127.0.0.1:0", path)
        return str(raised.value)

    def test_missing(self, web_config: Path, tmp_path: Path) -> None:
        (tmp_path / "server.key").unlink()
        assert self.fault(web_config) == (
            f"{web_config}: tls_server_config.key_file: {tmp_path}/server.key: cannot be read: "
            "No such file or directory"
        )

    def test_no_certificate(self, web_config: Path, tmp_path: Path) -> None:
        (tmp_path / "server.crt").write_text("nothing of the kind")
        assert self.fault(web_config).startswith(
            f"{web_config}: tls_server_config.cert_file: expected a PEM certificate and its key in key_file: "
        )

    def test_a_key_of_another(self, web_config: Path, tmp_path: Path, ca: trustme.CA) -> None:
        ca.issue_cert("x").private_key_pem.write_to_path(str(tmp_path / "server.key"))
        assert self.fault(web_config).endswith(": key values mismatch")

    def test_a_key_with_a_passphrase(self, web_config: Path, tmp_path: Path) -> None:
        from cryptography.hazmat.primitives import serialization

        key = serialization.load_pem_private_key((tmp_path / "server.key").read_bytes(), None)
        (tmp_path / "server.key").write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.BestAvailableEncryption(b"secret"),
            )
        )
        assert self.fault(web_config).endswith("expected a key without passphrase")

    def test_no_client_authority(self, web_config: Path, tmp_path: Path) -> None:
        (tmp_path / "clients.crt").write_text("nothing of the kind")
        configured(
            tmp_path, "  client_ca_file: clients.crt\n  client_auth_type: RequireAndVerifyClientCert\n"
        )
        assert self.fault(web_config).startswith(
            f"{web_config}: tls_server_config.client_ca_file: expected PEM certificates: "
        )
