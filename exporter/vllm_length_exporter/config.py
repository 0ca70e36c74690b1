"""The configuration: a YAML file, or the flags of one server -> one frozen `Config`.

```yaml
poll_interval: 5s
servers:
  - url: http://vllm-a:8000
    log: /var/log/vllm/a.log
  - name: long-context
    url: https://vllm-b:8000
    bearer_token_file: token
    ca_file: ca.pem
```

Paths are relative to the folder of the file. Every mistake is one line: file, line, key, what is expected.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from vllm_length_exporter.settings.logs import FileLog, Log, StdinLog, parse_log
from vllm_length_exporter.settings.mistake import ConfigError, KeyedError, KeyPath, dotted
from vllm_length_exporter.settings.strict import convert
from vllm_length_exporter.settings.values import CONTROL, Duration, Url, file_path, shown
from vllm_length_exporter.web.address import Address

__all__ = [
    "Address",
    "Config",
    "ConfigError",
    "Duration",
    "FileLog",
    "Log",
    "LogFormat",
    "LogLevel",
    "Server",
    "StdinLog",
    "Url",
    "load",
    "missing_files",
    "single_server",
]

VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
PATHS = frozenset({"state_dir", "web_config_file"})
FILES = ("bearer_token_file", "ca_file", "client_cert_file", "client_key_file", "model_config")
NAME_LENGTH = 200  # characters of a server's name: it is a label on every series


class LogLevel(StrEnum):
    """What of our own log is written."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogFormat(StrEnum):
    LOGFMT = "logfmt"
    JSON = "json"


class Server(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One vLLM server. Equal servers are watched alike, so a reload keeps what has not changed."""

    url: Url
    name: str = ""  # default: host:port of the URL
    log: Log | None = None
    bearer_token_file: Path | None = None
    bearer_token_env: str | None = None
    ca_file: Path | None = None
    client_cert_file: Path | None = None
    client_key_file: Path | None = None
    timeout: Duration = Duration(5.0)
    model_config: Path | None = None  # the model's config.json, for its window
    proxy_from_environment: bool = False

    def __post_init__(self) -> None:
        if not self.name:
            msgspec.structs.force_setattr(self, "name", self.url.host_port)
        if not self.name.strip() or len(self.name) > NAME_LENGTH or CONTROL.search(self.name):
            wanted = f"expected a name of at most {NAME_LENGTH} characters on one line"
            raise KeyedError("name", f"{wanted}, got {shown(self.name)}")
        if self.bearer_token_env is not None and not VARIABLE.fullmatch(self.bearer_token_env):
            # The value is not repeated: it may be the token itself.
            raise KeyedError("bearer_token_env", "expected the name of an environment variable")
        if self.bearer_token_file is not None and self.bearer_token_env is not None:
            raise KeyedError("bearer_token_env", "expected either this or bearer_token_file, not both")
        if self.client_key_file is not None and self.client_cert_file is None:
            raise KeyedError("client_key_file", "expected client_cert_file beside it")
        if not self.url.startswith("https:"):
            for key in ("ca_file", "client_cert_file"):
                if getattr(self, key) is not None:
                    raise KeyedError(key, "expected only with an https address")


class Config(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All settings. Time spans are in seconds."""

    servers: tuple[Server, ...]
    listen_address: Address = Address("0.0.0.0:9832")
    poll_interval: Duration = Duration(5.0)
    window: Duration = Duration(300.0)  # what rates and shares cover
    workload_window: Duration = Duration(3600.0)  # what workload quantiles cover
    models_interval: Duration = Duration(300.0)  # between two questions to /v1/models
    state_dir: Path | None = None
    web_config_file: Path | None = None
    web_enable_lifecycle: bool = False
    log_level: LogLevel = LogLevel.INFO
    log_format: LogFormat = LogFormat.LOGFMT

    def __post_init__(self) -> None:
        if not self.servers:
            raise KeyedError("servers", "expected at least one server")
        if self.poll_interval < 0.1:
            raise KeyedError("poll_interval", f"expected at least 100ms, got {self.poll_interval:g}s")
        if self.window < 2 * self.poll_interval:
            raise KeyedError(
                "window",
                f"expected at least two poll intervals ({2 * self.poll_interval:g}s), got {self.window:g}s",
            )
        if self.workload_window < self.window:
            raise KeyedError(
                "workload_window",
                f"expected at least the window ({self.window:g}s), got {self.workload_window:g}s",
            )


def load(path: Path, **flags: object) -> Config:
    """The configuration of a file; flags that were given (are not None) win over its keys.

    Raises:
        ConfigError: one line with the first mistake.
    """
    from vllm_length_exporter.settings import document  # a start without a file needs no YAML

    read = document.read(path)
    given = _given(flags)
    content = {**read.content, **given} if isinstance(read.content, dict) else read.content

    def place(key: KeyPath) -> str:
        return _flag(key) if key and key[0] in given else read.place(key)

    return _config(content, path.parent, given, place)


def single_server(
    url: str,
    *,
    log: str | Path | None = None,
    name: str | None = None,
    bearer_token_file: str | Path | None = None,
    bearer_token_env: str | None = None,
    ca_file: str | Path | None = None,
    client_cert_file: str | Path | None = None,
    client_key_file: str | Path | None = None,
    timeout: str | float | None = None,
    model_config: str | Path | None = None,
    proxy_from_environment: bool | None = None,
    **flags: object,
) -> Config:
    """The configuration of one server by flags; `flags` are the keys of `Config`, None where not given.

    Raises:
        ConfigError: one line that names the flag.
    """
    server = _given(
        {
            "url": url,
            "log": log,
            "name": name,
            "bearer_token_file": bearer_token_file,
            "bearer_token_env": bearer_token_env,
            "ca_file": ca_file,
            "client_cert_file": client_cert_file,
            "client_key_file": client_key_file,
            "timeout": timeout,
            "model_config": model_config,
            "proxy_from_environment": proxy_from_environment,
        }
    )
    given = _given(flags)
    return _config({**given, "servers": [server]}, Path(), given, _flag)


def missing_files(config: Config) -> list[str]:
    """One line for each file that is named and cannot be used; `load` and `single_server` refuse these."""
    return [f"{dotted(key)}: {fault}" if key else fault for key, fault in _missing(config)]


def _missing(config: Config) -> Iterator[tuple[KeyPath, str]]:
    """A log is not looked for: it may appear later."""
    for index, server in enumerate(config.servers):
        for key in FILES:
            path = getattr(server, key)
            fault = None if path is None else _unreadable(path)
            if fault is not None:
                yield ("servers", index, key), f"{path}: cannot be read: {fault}"
    if config.state_dir is not None and not config.state_dir.is_dir():
        yield ("state_dir",), f"{config.state_dir}: expected a directory"
    if config.web_config_file is not None:
        from vllm_length_exporter.web import web_config

        try:
            web_config.check(config.web_config_file)
        except ConfigError as error:
            yield (), str(error)


def _unreadable(path: Path) -> str | None:
    try:
        with path.open("rb"):
            return None
    except OSError as error:
        return error.strerror or str(error)


def _given(flags: dict[str, object]) -> dict[str, object]:
    return {key: value for key, value in flags.items() if value is not None}


def _flag(key: KeyPath) -> str:
    """`("servers", 0, "url")` as its flag: `--server`."""
    if key[:1] == ("servers",):
        key = key[2:]
    name = "server" if key in ((), ("url",)) else dotted(key)
    return "--" + name.replace("_", "-")


def _config(content: Any, folder: Path, flags: dict[str, object], place: Callable[[KeyPath], str]) -> Config:
    """Convert and check. Paths in flags are relative to where the program runs, those in a file to the file."""
    if isinstance(content, dict):
        content = {
            key: Path.cwd() / value
            if key in flags and key in PATHS and isinstance(value, str | Path)
            else value
            for key, value in content.items()
        }
    config = convert(content, Config, partial(_parse, folder), place)
    _refuse_doubles(config, place)
    for key, fault in _missing(config):
        raise ConfigError(f"{place(key)}: {fault}" if key else fault)
    return config


def _parse(folder: Path, kind: type, given: object) -> Any:
    """What msgspec does not know how to make."""
    if kind is Path:
        return file_path(given, folder)
    if kind is Log:
        return parse_log(given, folder)
    parsed: Any = kind.parse(given)  # type: ignore[attr-defined]  # Duration, Url, Address
    return parsed


def _refuse_doubles(config: Config, place: Callable[[KeyPath], str]) -> None:
    """A name is what tells two servers apart, and a line of a log is about one of them."""
    names: dict[str, int] = {}
    logs: dict[Log, int] = {}
    for index, server in enumerate(config.servers):
        first = names.setdefault(server.name, index)
        if first != index:
            where = place(("servers", index, "name"))
            raise ConfigError(
                f"{where}: expected a name of its own, servers[{first}] is called {shown(server.name)} too"
            )
        if server.log is not None and (first := logs.setdefault(server.log, index)) != index:
            where = place(("servers", index, "log"))
            raise ConfigError(f"{where}: expected a log of its own, servers[{first}] has the same")
