"""TLS, users and headers of our own port, from a file in the form that Prometheus exporters share.

```yaml
tls_server_config:
  cert_file: server.crt
  key_file: server.key
  client_ca_file: ca.crt
  client_auth_type: RequireAndVerifyClientCert
  min_version: TLS13
basic_auth_users:
  prometheus: $2y$10$…
http_server_config:
  headers:
    Strict-Transport-Security: max-age=31536000
```

A key of that form which is not known here is refused: what is ignored protects nothing.
"""

from __future__ import annotations

import re
import ssl
from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec

from vllm_length_exporter.settings import document
from vllm_length_exporter.settings.mistake import ConfigError, KeyedError
from vllm_length_exporter.settings.strict import convert
from vllm_length_exporter.settings.values import file_path

BCRYPT = re.compile(r"\$2[abxy]\$(0[4-9]|1[0-9]|2[0-9]|3[01])\$[./A-Za-z0-9]{53}")
HEADER_VALUE = re.compile(r"[\x20-\x7e]*")


class ClientAuth(StrEnum):
    """Which client certificates are asked for. What only asks and does not verify is not offered."""

    NONE = "NoClientCert"
    OPTIONAL = "VerifyClientCertIfGiven"
    REQUIRED = "RequireAndVerifyClientCert"


class TlsVersion(StrEnum):
    TLS10 = "TLS10"
    TLS11 = "TLS11"
    TLS12 = "TLS12"
    TLS13 = "TLS13"


VERIFY = {
    ClientAuth.NONE: ssl.CERT_NONE,
    ClientAuth.OPTIONAL: ssl.CERT_OPTIONAL,
    ClientAuth.REQUIRED: ssl.CERT_REQUIRED,
}
VERSIONS = {
    TlsVersion.TLS10: ssl.TLSVersion.TLSv1,
    TlsVersion.TLS11: ssl.TLSVersion.TLSv1_1,
    TlsVersion.TLS12: ssl.TLSVersion.TLSv1_2,
    TlsVersion.TLS13: ssl.TLSVersion.TLSv1_3,
}


class TlsServerConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    cert_file: Path
    key_file: Path
    client_ca_file: Path | None = None
    client_auth_type: ClientAuth = ClientAuth.NONE
    min_version: TlsVersion = TlsVersion.TLS12
    max_version: TlsVersion = TlsVersion.TLS13

    def __post_init__(self) -> None:
        if self.client_auth_type is not ClientAuth.NONE and self.client_ca_file is None:
            raise KeyedError("client_auth_type", "expected client_ca_file beside it")
        if self.client_auth_type is ClientAuth.NONE and self.client_ca_file is not None:
            raise KeyedError(
                "client_ca_file",
                f"expected client_auth_type: {ClientAuth.REQUIRED} beside it, else it protects nothing",
            )
        if self.max_version < self.min_version:
            raise KeyedError("max_version", f"expected at least min_version, {self.min_version}")

    def files(self) -> tuple[Path, ...]:
        named = (self.cert_file, self.key_file, self.client_ca_file)
        return tuple(path for path in named if path is not None)


class Headers(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Headers of every answer, in place of our own."""

    content_security_policy: str | None = msgspec.field(default=None, name="Content-Security-Policy")
    x_frame_options: str | None = msgspec.field(default=None, name="X-Frame-Options")
    x_content_type_options: str | None = msgspec.field(default=None, name="X-Content-Type-Options")
    x_xss_protection: str | None = msgspec.field(default=None, name="X-XSS-Protection")
    strict_transport_security: str | None = msgspec.field(default=None, name="Strict-Transport-Security")

    def __post_init__(self) -> None:
        for name, value in self.given().items():
            if not HEADER_VALUE.fullmatch(value):
                raise KeyedError(name, "expected printable ASCII on one line")

    def given(self) -> dict[str, str]:
        fields = {field.encode_name: getattr(self, field.name) for field in msgspec.structs.fields(self)}
        return {name: value for name, value in fields.items() if value is not None}


class HttpServerConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    headers: Headers = Headers()
    http2: bool = False

    def __post_init__(self) -> None:
        if self.http2:
            raise KeyedError("http2", "expected false: this server speaks HTTP/1.1")


class WebConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    tls_server_config: TlsServerConfig | None = None
    http_server_config: HttpServerConfig = HttpServerConfig()
    basic_auth_users: dict[str, str] = {}  # name -> bcrypt hash

    def __post_init__(self) -> None:
        for name, stored in self.basic_auth_users.items():
            if not name or ":" in name:
                raise KeyedError("basic_auth_users", f"expected a user name without colon, got {name!r}")
            if not BCRYPT.fullmatch(stored):
                # The value is not repeated: it may be a password.
                raise KeyedError(
                    "basic_auth_users", f"expected a bcrypt hash ($2y$10$…) for the user {name!r}"
                )


def read(path: Path) -> WebConfig:
    """The web configuration of a file; paths in it are relative to its folder.

    Raises:
        ConfigError: one line with the first mistake.
    """
    found = document.read(path)

    def make(kind: type, given: object) -> Any:
        del kind  # paths are all that needs making
        return file_path(given, path.parent)

    return convert(found.content, WebConfig, make, found.place)


def check(path: Path) -> None:
    """Read it, and the files that it names.

    Raises:
        ConfigError: one line with the first mistake.
    """
    tls = read(path).tls_server_config
    if tls is not None:
        tls_context(tls, path)


def tls_context(config: TlsServerConfig, path: Path) -> ssl.SSLContext:
    """The context of new connections; `path` is the file to name in an error.

    Raises:
        ConfigError: a file cannot be read, or holds no certificate or no key that belongs to it.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = VERSIONS[config.min_version]
    context.maximum_version = VERSIONS[config.max_version]
    key = "cert_file"
    try:
        for key in ("cert_file", "key_file", "client_ca_file"):
            file = getattr(config, key)
            if file is not None:
                with file.open("rb"):
                    pass
        key = "cert_file"
        context.load_cert_chain(config.cert_file, config.key_file, password=_no_passphrase)
        key = "client_ca_file"
        if config.client_ca_file is not None:
            context.load_verify_locations(config.client_ca_file)
    except ssl.SSLError as error:
        what = "a PEM certificate and its key in key_file" if key == "cert_file" else "PEM certificates"
        reason = (error.reason or str(error)).replace("_", " ").lower()
        raise ConfigError(f"{path}: tls_server_config.{key}: expected {what}: {reason}") from error
    except OSError as error:
        file = getattr(config, key)
        raise ConfigError(
            f"{path}: tls_server_config.{key}: {file}: cannot be read: {error.strerror or error}"
        ) from error
    except ValueError as error:  # raised by the passphrase callback, or for bytes in the file that are none
        raise ConfigError(f"{path}: tls_server_config.{key}: {error}") from error
    context.verify_mode = VERIFY[config.client_auth_type]
    return context


def _no_passphrase() -> str:
    # Without it OpenSSL would ask on the terminal, and the daemon would wait for ever.
    raise ValueError("expected a key without passphrase")
