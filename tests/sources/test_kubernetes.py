from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.sources.collected import Collected
from tests.sources.kubernetes_api import Cluster
from tests.sources.stamped_log import SECOND, Server, serve
from vllm_length_exporter.sources.http import Endpoint
from vllm_length_exporter.sources.logs import feed
from vllm_length_exporter.sources.logs import kubernetes as module
from vllm_length_exporter.sources.logs.kubernetes import KubernetesLog
from vllm_length_exporter.sources.logs.lines import LogError

OLD = 1_700_000_000 * SECOND  # before any exporter's start


def now() -> int:
    return time.time_ns() + SECOND


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "SHORTEST", 0.005)
    monkeypatch.setattr(feed, "LONGEST", 0.2)
    monkeypatch.setattr(module, "STATUS_INTERVAL", 0.02)
    monkeypatch.setattr(module, "STRANGE_INTERVAL", 0.02)


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def server(cluster: Cluster) -> Iterator[Server]:
    with serve(cluster.answer) as served:
        yield served


@contextmanager
def following(server: Server, position: dict[str, Any] | None = None, **options: Any) -> Iterator[Collected]:
    token = Path(options.pop("token_file", ""))
    endpoint = Endpoint(f"http://127.0.0.1:{server.port}", token_file=token, timeout=2)
    named = {"container": "vllm", "pod": "vllm-0", "namespace": "models", **options}
    source = KubernetesLog(position=position, api=endpoint, **named)
    try:
        yield Collected(source)
    finally:
        begin = time.monotonic()
        source.close()
        assert time.monotonic() - begin < 2


@pytest.fixture
def token(tmp_path: Path) -> Path:
    file = tmp_path / "token"
    file.write_text("token")
    return file


def test_old_lines_do_not_count_and_new_ones_do(cluster: Cluster, server: Server, token: Path) -> None:
    run = cluster.run("one")
    run.log.write(OLD, "one\n", "two\n")
    with following(server, token_file=token) as found:
        found.until_told("one", "two")
        run.log.write(now(), "three\n")
        found.until_told("one", "two", "three")
        assert found.counted == ["three"]


def test_the_kubelet_s_own_words_are_no_lines(cluster: Cluster, server: Server, token: Path) -> None:
    run = cluster.run("one")
    run.log.write(OLD, "one\n")
    run.complaint = b"unable to retrieve container logs for containerd://one\n"
    run.end(0, "Completed")
    with following(server, token_file=token) as found:
        found.until_told("one", "<ended: exit code 0>")


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    steps=st.lists(
        st.sampled_from([0, 0, 0, 1, 999_999_999, SECOND, 3 * SECOND, -1]), min_size=1, max_size=40
    ),
    cuts=st.lists(st.integers(0, 1500), max_size=6),
    same=st.booleans(),
)
def test_whatever_breaks_each_line_comes_once(
    steps: list[int], cuts: list[int], same: bool, token: Path
) -> None:
    cluster = Cluster()
    run = cluster.run("one")
    at, expected = now(), []
    for number, step in enumerate(steps):
        at += step
        expected.append("the same" if same else f"line {number}")
        run.log.write(at, expected[-1] + "\n")
    with serve(cluster.answer) as server:
        server.cuts = list(cuts)
        with following(server, token_file=token) as found:
            found.until(lambda: len(found.told) >= len(expected))
            run.log.write(at, "last\n")
            found.until(lambda: found.told[-1:] == ["last"])
    assert found.told == [*expected, "last"]
    assert found.counted == found.told


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    steps=st.lists(st.sampled_from([0, 0, 1, SECOND, -1]), min_size=2, max_size=30),
    first=st.integers(1, 30),
    restarts=st.booleans(),
)
def test_after_a_restart_of_the_exporter_each_line_counts_once(
    steps: list[int], first: int, restarts: bool, token: Path
) -> None:
    """And where the container was started anew meanwhile, the rest of the one before comes first."""
    cluster = Cluster()
    run = cluster.run("one")
    run.log.write(OLD, "old\n")
    at, position = now(), None
    counted: list[str] = []
    expected: list[str] = []
    with serve(cluster.answer) as server:
        for half in (steps[:first], steps[first:]):
            for step in half:
                at += step
                expected.append(f"line {len(expected)}")
                run.log.write(at, expected[-1] + "\n")
            if restarts and position is not None:
                run.end(137, "OOMKilled")
                cluster.run("two").log.write(at + SECOND, "of two\n")
                expected += ["<ended: OOMKilled (137)>", "<restarted>", "of two"]
            with following(server, position, token_file=token) as found:
                found.until(lambda: len(found.told) >= len(expected) + 1)  # noqa: B023  called in this turn
            assert found.told == ["old", *expected]
            counted += found.counted
            position = found.kept()
    assert counted == [line for line in expected if not line.startswith("<")]


def test_the_container_before_is_read_first_and_its_end_told(
    cluster: Cluster, server: Server, token: Path
) -> None:
    before = cluster.run("one")
    before.log.write(OLD, "loading\n")
    before.end(137, "OOMKilled")
    cluster.run("two").log.write(OLD + 9 * SECOND, "loading again\n")
    with following(server, token_file=token) as found:
        found.until_told("loading", "<ended: OOMKilled (137)>", "<restarted>", "loading again")
        assert found.counted == []


def test_restarts_are_followed(cluster: Cluster, server: Server, token: Path) -> None:
    run = cluster.run("one")
    run.log.write(OLD, "one\n")
    expected = ["one"]
    with following(server, token_file=token) as found:
        found.until_told(*expected)
        for number, (code, reason, said) in enumerate(
            [
                (1, "Error", "exit code 1"),
                (137, "OOMKilled", "OOMKilled (137)"),
                (143, "Error", "SIGTERM (143)"),
                (128, "StartError", "StartError (128)"),
            ]
        ):
            run.log.write(now(), f"last words {number}\n")
            run.end(code, reason)
            run = cluster.run(f"later {number}")
            run.log.write(now(), f"first words {number}\n")
            expected += [f"last words {number}", f"<ended: {said}>", "<restarted>", f"first words {number}"]
            found.until_told(*expected)


def test_a_crash_loop_waits_and_tells_each_end_once(cluster: Cluster, server: Server, token: Path) -> None:
    run = cluster.run("one")
    run.log.write(OLD, "one\n")
    with following(server, token_file=token) as found:
        found.until_told("one")
        cluster.waiting = "CrashLoopBackOff"
        run.end(1, "Error")
        found.until_told("one", "<ended: exit code 1>")
        requests = len(server.requests)
        found.until(lambda: len(server.requests) > requests + 4, "some looks at the state")
        assert not found.errors
        cluster.run("two").log.write(now(), "two\n")
        found.until_told("one", "<ended: exit code 1>", "<restarted>", "two")


def test_a_container_that_the_api_does_not_show_yet_is_not_taken_for_the_old_one(
    cluster: Cluster, server: Server, token: Path
) -> None:
    """The kubelet gives the new container's log while the API still shows the old one as running."""
    run = cluster.run("one")
    run.log.write(now(), "one\n")
    with following(server, token_file=token) as found:
        found.until_told("one")
        cluster.shown = 1
        after = cluster.run("two")
        after.log.write(now() + 2 * SECOND, "two\n")
        run.log.write(now(), "last words\n")
        run.log.finish()
        requests = len(server.requests)
        found.until(lambda: len(server.requests) > requests + 6, "some tries")
        assert found.told == ["one", "last words"]
        run.end(1, "Error")
        cluster.shown = None
        found.until_told("one", "last words", "<ended: exit code 1>", "<restarted>", "two")


def test_a_first_connection_to_a_container_that_the_api_does_not_show_yet(
    cluster: Cluster, server: Server, token: Path
) -> None:
    run = cluster.run("one")
    run.log.write(OLD, "one\n")
    after = cluster.run("two")
    after.log.write(OLD + SECOND, "two\n")
    cluster.shown = 1
    with following(server, token_file=token, idle=0.2) as found:
        found.until_told("two")  # unavoidable: nothing tells yet that it is not of the first
        run.end(1, "Error")
        cluster.shown = None
        found.until_told("two", "one", "<ended: exit code 1>", "<restarted>")
        after.log.write(now(), "three\n")
        found.until_told("two", "one", "<ended: exit code 1>", "<restarted>", "three")
        assert found.counted == ["three"]


def test_a_broken_connection_in_the_log_of_the_one_before_loses_nothing(
    cluster: Cluster, server: Server, token: Path
) -> None:
    before = cluster.run("one")
    before.log.write(OLD, *(f"{number}\n" for number in range(100)))
    before.end(1, "Error")
    cluster.run("two").log.write(OLD + 9 * SECOND, "two\n")
    server.cuts = [700, 900, 0]
    with following(server, token_file=token) as found:
        found.until_told(*map(str, range(100)), "<ended: exit code 1>", "<restarted>", "two")


def test_lines_that_were_rotated_away_are_not_waited_for(
    cluster: Cluster, server: Server, token: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PATIENCE", 0.05)
    run = cluster.run("one")
    at = now()
    run.log.write(at, "one\n")
    with following(server, token_file=token, idle=0.1) as found:
        found.until_told("one")
        with run.log.changed:
            run.log.messages.clear()
        run.log.write(at + SECOND, "two\n")
        found.until_told("one", "two")


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_backlog_of_a_million_lines_comes_once_over_lost_connections(
    cluster: Cluster, server: Server, token: Path
) -> None:
    run = cluster.run("one")
    for second in range(1000):
        run.log.write(OLD + second * SECOND, *(f"{second * 1000 + number}\n" for number in range(1000)))
    server.cuts = [10_000_000, 1_000_000, 20_000_000]
    with following(server, token_file=token) as found:
        found.until(lambda: len(found.told) >= 1_000_000, seconds=200)
        assert found.told == [str(number) for number in range(1_000_000)]
    assert server.cuts == []


def test_silence_is_no_error(cluster: Cluster, server: Server, token: Path) -> None:
    run = cluster.run("one")
    with following(server, token_file=token, idle=0.05) as found:
        found.until(lambda: sum("/log" in path for path in server.requests) > 3, "new connections")
        run.log.write(now(), "one\n")
        found.until_told("one")
        assert not found.errors


# --- errors


def test_a_container_that_has_not_started(cluster: Cluster, server: Server, token: Path) -> None:
    cluster.waiting = "ImagePullBackOff"
    with following(server, token_file=token) as found:
        found.until(lambda: found.errors)
        assert found.errors == ["pod models/vllm-0: container vllm has not started (ImagePullBackOff)"]
        cluster.run("one").log.write(now(), "one\n")
        found.until_told("one")


def test_missing_rights_say_which(cluster: Cluster, server: Server, token: Path) -> None:
    cluster.run("one")
    cluster.forbidden = True
    with following(server, token_file=token) as found:
        found.until(lambda: found.errors)
    assert "answers 403" in found.errors[0]
    assert "the service account must be allowed to get pods and pods/log" in found.errors[0]


def test_no_such_pod(cluster: Cluster, server: Server, token: Path) -> None:
    with following(server, token_file=token, pod="other") as found:
        found.until(lambda: found.errors)
    assert "pod models/other:" in found.errors[0]
    assert "there is no such pod" in found.errors[0]


def test_a_rotated_token_is_read_anew(cluster: Cluster, server: Server, token: Path) -> None:
    cluster.run("one").log.write(now(), "one\n")
    token.write_text("old")
    with following(server, token_file=token) as found:
        found.until(lambda: found.errors)
        token.write_text("token")
        found.until_told("one")


def test_the_container_of_a_pod_with_several_must_be_named(
    cluster: Cluster, server: Server, token: Path
) -> None:
    cluster.run("one").log.write(now(), "one\n")
    cluster.others = ("exporter",)
    with following(server, token_file=token, container=None) as found:
        found.until(lambda: found.errors)
        assert found.errors == ["pod models/vllm-0: name the container; its containers: exporter, vllm"]
    with following(server, token_file=token, container="vlm") as found:
        found.until(lambda: found.errors)
        assert found.errors[0].startswith("pod models/vllm-0: there is no container 'vlm'; its containers:")
    cluster.others = ()
    with following(server, token_file=token, container=None) as found:
        found.until_told("one")


def test_outside_of_a_pod_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(LogError, match="the exporter runs in no pod"):
        KubernetesLog("vllm")


def test_the_own_pod_is_the_default(
    cluster: Cluster, server: Server, tmp_path: Path, token: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "namespace").write_text("models\n")
    monkeypatch.setattr(module, "ACCOUNT", tmp_path)
    monkeypatch.delenv("POD_NAME", raising=False)
    monkeypatch.delenv("POD_NAMESPACE", raising=False)
    monkeypatch.setenv("HOSTNAME", "vllm-0")
    cluster.run("one").log.write(now(), "one\n")
    endpoint = Endpoint(f"http://127.0.0.1:{server.port}", token_file=token)
    source = KubernetesLog(api=endpoint)
    try:
        Collected(source).until_told("one")
    finally:
        source.close()
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "6443")
    monkeypatch.delenv("KUBERNETES_SERVICE_PORT_HTTPS", raising=False)
    own = KubernetesLog()._http.endpoint
    assert (own.url, own.token_file, own.ca_file) == (
        "https://[fd00::1]:6443",
        tmp_path / "token",
        tmp_path / "ca.crt",
    )
