"""Where a server's log is: a file, standard input, a container of Docker or of a pod, or a unit of journald.

`log: /var/log/vllm.log`, `log: "-"`, `log: docker://vllm`, `log: kubernetes://vllm` and `log: journald://vllm.service`
are short for `log: {file: ...}`, `{stdin: true}`, `{docker: {container: vllm}}` and so on. A further kind is one class
and one row of LOG_KINDS.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from .values import file_path, shown


class Log:
    """Where a server's log is: one kind of source."""


@dataclass(frozen=True, slots=True)
class FileLog(Log):
    """The log is a file, which may appear later and may be rotated."""

    path: Path


@dataclass(frozen=True, slots=True)
class StdinLog(Log):
    """The log comes on the exporter's standard input."""


@dataclass(frozen=True, slots=True)
class DockerLog(Log):
    """A container's log by the Docker Engine's API; without `url`, DOCKER_HOST or the local socket."""

    container: str
    url: str | None = None


@dataclass(frozen=True, slots=True)
class KubernetesLog(Log):
    """A container's log by the Kubernetes API; without `pod`, the pod that the exporter itself is in."""

    container: str | None = None
    pod: str | None = None
    namespace: str | None = None


@dataclass(frozen=True, slots=True)
class JournaldLog(Log):
    """What a systemd unit writes."""

    unit: str


def parse_log(given: object, folder: Path) -> Log:
    """One kind of log.

    Raises:
        ValueError: it is none, or more than one.
    """
    if given == "-":
        return StdinLog()
    if isinstance(given, str) and "://" in given:
        kind, _, name = given.partition("://")
        if kind not in SHORT_FORMS:
            known = ", ".join(f"{form}://" for form in SHORT_FORMS)
            raise ValueError(f"unknown kind of log {shown(kind)}; expected a path or one of {known}")
        return LOG_KINDS[kind](name, folder)
    if isinstance(given, str | Path):
        return FileLog(file_path(given, folder))
    kinds = ", ".join(LOG_KINDS)
    if not isinstance(given, dict) or len(given) != 1:
        raise ValueError(f'expected a path, "-" for standard input, or one of the keys {kinds}')
    ((kind, settings),) = given.items()
    if kind not in LOG_KINDS:
        raise ValueError(f"unknown kind of log {shown(kind)}; expected one of {kinds}")
    return LOG_KINDS[kind](settings, folder)


def _file(given: object, folder: Path) -> FileLog:
    return FileLog(file_path(given, folder))


def _stdin(given: object, folder: Path) -> StdinLog:
    del folder
    if given is not True:
        raise ValueError(f"expected stdin: true, got {shown(given)}")
    return StdinLog()


def _docker(given: object, folder: Path) -> DockerLog:
    del folder
    names = _names("docker", given, "container", ("container", "url"))
    return DockerLog(_required("docker", names, "container"), names.get("url"))


def _kubernetes(given: object, folder: Path) -> KubernetesLog:
    del folder
    names = _names("kubernetes", given, "container", ("container", "pod", "namespace"))
    return KubernetesLog(names.get("container"), names.get("pod"), names.get("namespace"))


def _journald(given: object, folder: Path) -> JournaldLog:
    del folder
    return JournaldLog(_required("journald", _names("journald", given, "unit", ("unit",)), "unit"))


def _names(kind: str, given: object, alone: str, known: tuple[str, ...]) -> dict[str, str]:
    """The texts of a mapping with known keys; a text alone is that of the key `alone`."""
    if isinstance(given, str):
        return {alone: given} if given else {}
    if not isinstance(given, dict):
        wanted = ", ".join(f"{key}: ..." for key in known)
        raise ValueError(f"expected {kind}: {{{wanted}}}, got {shown(given)}")  # noqa: TRY004  # one kind of error
    for key, value in given.items():
        if key not in known:
            raise ValueError(f"unknown key {shown(key)} of {kind}; expected one of {', '.join(known)}")
        if not isinstance(value, str) or not value:
            raise ValueError(f"expected a text under {key} of {kind}, got {shown(value)}")
    return dict(given)


def _required(kind: str, names: dict[str, str], key: str) -> str:
    if key not in names:
        raise ValueError(f"expected the key {key!r} of {kind}, which is missing")
    return names[key]


SHORT_FORMS = ("docker", "kubernetes", "journald")
LOG_KINDS: dict[str, Callable[[object, Path], Log]] = {
    "file": _file,
    "stdin": _stdin,
    "docker": _docker,
    "kubernetes": _kubernetes,
    "journald": _journald,
}
