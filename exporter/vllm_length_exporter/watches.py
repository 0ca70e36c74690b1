"""From the configuration to watches: each server's sources are made here, and kept over a reload if unchanged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from vllm_length_exporter import config
from vllm_length_exporter.derive.view import Horizon
from vllm_length_exporter.resume import Point
from vllm_length_exporter.settings import logs
from vllm_length_exporter.sources.http import Endpoint
from vllm_length_exporter.sources.logs.file import FileLog
from vllm_length_exporter.sources.logs.lines import LogError, LogSource
from vllm_length_exporter.sources.logs.stdin import StdinLog
from vllm_length_exporter.vllm.model_config import Config, ModelConfigError, checked_config
from vllm_length_exporter.watch import Pace, Watch

# A page may come late by this many intervals before its series are dropped.
STALE_INTERVALS = 3.0


@dataclass(frozen=True, slots=True)
class Key:
    """What a watch is made from: equal keys make equal watches."""

    server: config.Server
    pace: Pace


def make_watches(
    load: Callable[[], config.Config], present: list[Watch], points: dict[str, Point]
) -> list[Watch]:
    """The watches of the configuration as it is now.

    Raises:
        ConfigError: the configuration, or a file that it names, cannot be used; one line.
    """
    settings = load()
    faults = config.missing_files(settings)
    if faults:
        raise config.ConfigError(faults[0])
    kept = {watch.key: watch for watch in present}
    pace = Pace(
        poll_interval=settings.poll_interval,
        models_interval=settings.models_interval,
        horizon=Horizon(
            stale_after=STALE_INTERVALS * settings.poll_interval,
            window=settings.window,
            workload_window=settings.workload_window,
        ),
    )
    watches = []
    for server in settings.servers:
        key = Key(server, pace)
        watches.append(kept[key] if key in kept else _watch(key, points.get(server.name)))
    return watches


def _watch(key: Key, point: Point | None) -> Watch:
    server = key.server
    try:
        asked = endpoint(server)
        log = None if server.log is None else log_source(server.log, point.position if point else None)
    except (ValueError, LogError) as error:
        raise config.ConfigError(f"server {server.name}: {error}") from error
    return Watch(
        server.name,
        asked,
        log,
        key.pace,
        key=key,
        model_config=model_config(server.model_config),
        counts=point.counts if point else None,
    )


def endpoint(server: config.Server) -> Endpoint:
    """Where and how to ask a configured server. Raises ValueError where its settings contradict each other."""
    return Endpoint(
        server.url,
        token_file=server.bearer_token_file,
        token_variable=server.bearer_token_env,
        ca_file=server.ca_file,
        client_cert=server.client_cert_file,
        client_key=server.client_key_file,
        timeout=server.timeout,
        proxy_from_environment=server.proxy_from_environment,
    )


def log_source(log: logs.Log, position: dict[str, object] | None) -> LogSource:
    """The source of a configured log, from `position` on. Raises LogError where its kind cannot be used here.

    A kind's client is imported when it is used: most exporters need none.
    """
    match log:
        case logs.FileLog(path):
            return FileLog(path, position)
        case logs.StdinLog():
            return StdinLog()
        case logs.DockerLog(container, url):
            from vllm_length_exporter.sources.logs.docker import DockerLog

            return DockerLog(container, position, base_url=url)
        case logs.KubernetesLog(container, pod, namespace):
            from vllm_length_exporter.sources.logs.kubernetes import KubernetesLog

            return KubernetesLog(container, pod, namespace, position)
        case logs.JournaldLog(unit):
            from vllm_length_exporter.sources.logs.journald import JournaldLog

            return JournaldLog(unit, position)
    raise LogError(f"no source for a log of kind {type(log).__name__}")


def model_config(path: Path | None) -> Config | None:
    """The config.json that the user named.

    Raises:
        ConfigError: it cannot be read, or is no configuration of a model.
    """
    if path is None:
        return None
    try:
        return checked_config(path.read_bytes(), str(path))
    except OSError as error:
        raise config.ConfigError(f"model_config: {path}: cannot be read: {error.strerror}") from error
    except ModelConfigError as error:
        raise config.ConfigError(f"model_config: {error}") from error
