"""Every kind of log, in its long and its short form, and what is refused."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from vllm_length_exporter.settings.logs import (
    DockerLog,
    FileLog,
    JournaldLog,
    KubernetesLog,
    Log,
    StdinLog,
    parse_log,
)

HERE = Path("/etc/exporter")


@pytest.mark.parametrize(
    ("given", "log"),
    [
        ("-", StdinLog()),
        ({"stdin": True}, StdinLog()),
        ("vllm.log", FileLog(HERE / "vllm.log")),
        ({"file": "/var/log/vllm.log"}, FileLog(Path("/var/log/vllm.log"))),
        ("docker://vllm", DockerLog("vllm")),
        ({"docker": "vllm"}, DockerLog("vllm")),
        (
            {"docker": {"container": "vllm", "url": "tcp://127.0.0.1:2375"}},
            DockerLog("vllm", "tcp://127.0.0.1:2375"),
        ),
        ("kubernetes://", KubernetesLog()),
        ("kubernetes://vllm", KubernetesLog("vllm")),
        ({"kubernetes": {"container": "c", "pod": "p", "namespace": "n"}}, KubernetesLog("c", "p", "n")),
        ("journald://vllm.service", JournaldLog("vllm.service")),
        ({"journald": {"unit": "vllm.service"}}, JournaldLog("vllm.service")),
    ],
)
def test_a_log_is_read(given: object, log: Log) -> None:
    assert parse_log(given, HERE) == log


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("dokcer://vllm", "expected a path or one of docker://, kubernetes://, journald://"),
        ("docker://", "expected the key 'container' of docker"),
        ({"docker": {"image": "vllm"}}, "unknown key 'image' of docker; expected one of container, url"),
        ({"docker": {"container": 7}}, "expected a text under container of docker, got 7"),
        ({"kubernetes": ["vllm"]}, "expected kubernetes: {container: ..., pod: ..., namespace: ...}"),
        ({"journald": {}}, "expected the key 'unit' of journald"),
        ({"syslog": "x"}, "unknown kind of log 'syslog'"),
        ({"stdin": False}, "expected stdin: true"),
        ([], "expected a path"),
    ],
)
def test_a_mistake_is_one_line(given: object, says: str) -> None:
    with pytest.raises(ValueError, match=re.escape(says)) as error:
        parse_log(given, HERE)
    assert "\n" not in str(error.value)
