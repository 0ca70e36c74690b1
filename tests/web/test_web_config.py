"""The web configuration: the one line that each mistake gets."""

from __future__ import annotations

from pathlib import Path

import pytest

from vllm_length_exporter.settings.mistake import ConfigError
from vllm_length_exporter.web import web_config
from vllm_length_exporter.web.web_config import ClientAuth, TlsVersion

HERE = Path(__file__).parent
INVALID = sorted(HERE.glob("invalid-*.yml"))


@pytest.mark.parametrize("path", INVALID, ids=lambda path: path.stem.removeprefix("invalid-"))
def test_each_mistake_gets_its_line(path: Path) -> None:
    first = path.read_bytes().splitlines()[0].decode()
    assert first.startswith("# expect: FILE:"), f"{path.name} does not say what is expected"
    with pytest.raises(ConfigError) as raised:
        web_config.read(path)
    assert str(raised.value) == first.removeprefix("# expect: ").replace("FILE", str(path))
    assert "secret" not in str(raised.value)


def test_every_key_is_read() -> None:
    config = web_config.read(HERE / "complete.yml")
    tls = config.tls_server_config
    assert tls is not None
    assert tls.files() == (HERE / "server.crt", Path("/etc/exporter/server.key"), HERE / "clients.crt")
    assert tls.client_auth_type is ClientAuth.OPTIONAL
    assert (tls.min_version, tls.max_version) == (TlsVersion.TLS13, TlsVersion.TLS13)
    assert list(config.basic_auth_users) == ["prometheus"]
    assert config.http_server_config.headers.given() == {
        "Strict-Transport-Security": "max-age=31536000",
        "X-Frame-Options": "SAMEORIGIN",
    }
