"""The evidence ladder: the best evidence that a server offers, and never two added up."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from tests.recorded import last_view, truth
from vllm_length_exporter.derive.evidence import Evidence
from vllm_length_exporter.derive.rejections import (
    REFUSAL_LOGS,
    clamped_requests,
    refusal_log,
    rejections,
    truncations_by_cause,
)
from vllm_length_exporter.server import Counts, ServerState, logged
from vllm_length_exporter.vllm.lines import events
from vllm_length_exporter.vllm.page import Page, read_page

HTTP = (
    'http_requests_total{handler="/v1/completions",method="POST",status="4xx"} 5',
    'http_requests_total{handler="/v1/chat/completions",method="POST",status="5xx"} 3',
    'http_requests_total{handler="/v1/completions",method="POST",status="2xx"} 90',
    'http_requests_total{handler="/v1/models",method="GET",status="4xx"} 7',
)
MIDDLEWARE = (
    'vllm_length_middleware_info{version="0.1.0"} 1',
    'vllm_length_middleware_refused_total{model="m",endpoint="/v1/completions",cause="prompt_too_long"} 2',
    'vllm_length_middleware_refused_total{model="m",endpoint="/v1/chat/completions",cause="prompt_too_long"} 1',
    'vllm_length_middleware_truncated_total{model="m",cause="context_full"} 4',
    'vllm_length_middleware_clamped_total{model="m"} 2',
)


def page(*lines: str) -> Page:
    return read_page(("\n".join(("process_start_time_seconds 1", *lines)) + "\n").encode())


def with_log(**refused: int) -> ServerState:
    return replace(ServerState("s"), log_seen=True, counts=Counts(refusals=refused))


def counted(evidence: Evidence, state: ServerState) -> dict[str, int]:
    return {row.cause: row.count for row in rejections(evidence, state).rejections if row.count}


def test_the_middleware_wins_over_a_log_that_counts_as_well() -> None:
    evidence = Evidence(page(*HTTP, *MIDDLEWARE), version="0.16.0")
    found = rejections(evidence, with_log(prompt_too_long=9))
    assert found.level == "exact"
    assert {row.evidence for row in found.rejections} == {"middleware"}
    assert counted(evidence, with_log(prompt_too_long=9)) == {"prompt_too_long": 3}
    assert found.client_errors is None
    assert truncations_by_cause(evidence) == (("context_full", 4), ("max_tokens", 0), ("unknown", 0))
    assert clamped_requests(evidence) == 2


def test_a_middleware_that_has_counted_nothing_yet_is_exact_and_zero() -> None:
    found = rejections(Evidence(page(MIDDLEWARE[0]), version="0.32.0"), ServerState("s"))
    assert found.level == "exact"
    assert {row.count for row in found.rejections} == {0}
    assert len(found.rejections) == 5, "every cause is there from the beginning"


@pytest.mark.parametrize("version", ["0.6.0", "0.10.2", "0.16.0", "0.17.1", "0.18.1", "0.20.2", "0.22.1"])
def test_where_the_version_logs_refusals_the_log_is_exact(version: str) -> None:
    found = rejections(Evidence(page(*HTTP), version=version), with_log(prompt_too_long=2))
    assert found.level == "exact"
    assert {row.evidence for row in found.rejections} == {"server_log"}


@pytest.mark.parametrize(
    ("version", "bound"),
    [("0.17.1", 5), ("0.18.1", 3), ("0.22.1", 3), ("0.23.0", 5), ("0.32.0", 5), (None, 8)],
)
def test_without_log_and_middleware_the_http_counters_bound(version: str | None, bound: int) -> None:
    found = rejections(Evidence(page(*HTTP), version=version), ServerState("s"))
    assert found.level == "upper_bound"
    assert found.rejections == ()
    assert found.client_errors == ("http_counters", bound)


@pytest.mark.parametrize("version", ["0.17.1", "0.20.2", "0.26.0", "0.32.0"])
def test_the_bound_holds_an_endpoint_that_refuses_with_500(version: str) -> None:
    shown = [
        f'http_requests_total{{handler="/v1/messages",method="POST",status="{status}"}} {count}'
        for status, count in (("2xx", 9), ("4xx", 2), ("5xx", 3))
    ]
    found = rejections(Evidence(page(*shown), version=version), ServerState("s"))
    assert found.client_errors == ("http_counters", 5)


def test_the_access_log_counts_what_can_be_a_refusal() -> None:
    state = ServerState("s")
    for path, status in [
        ("/v1/messages", 500),
        ("/v1/completions", 400),
        ("/v1/completions", 500),
        ("/v1/embeddings", 404),
    ]:
        line = f'INFO:     10.0.0.1:5 - "POST {path} HTTP/1.1" {status} Error'
        state = logged(state, events([line])[0], at=1.0)
    assert state.counts.client_errors == 2


def test_the_access_log_is_the_tighter_bound() -> None:
    state = replace(ServerState("s"), log_seen=True, access_log_seen=True, counts=Counts(client_errors=4))
    assert rejections(Evidence(page(*HTTP), version="0.32.0"), state).client_errors == ("access_log", 4)


def test_nothing_at_all_is_said_to_be_nothing() -> None:
    found = rejections(Evidence(page(), version="0.32.0"), ServerState("s"))
    assert (found.level, found.rejections, found.client_errors) == ("none", (), None)
    assert [item.quantity for item in found.unknown] == ["rejections"]


def test_the_table_has_no_gap_and_no_overlap() -> None:
    for version in (f"0.{minor}.{patch}" for minor in range(6, 33) for patch in range(4)):
        rows = [row for row in REFUSAL_LOGS if row is refusal_log(version)]
        assert len(rows) == 1, version
    assert refusal_log(None) is None
    assert refusal_log("0.2.7") is None


KINDS = {  # what each request of the recorded load is refused for, where it is
    "prompt_over_limit": "prompt_too_long",
    "prompt_over_limit_chat": "prompt_too_long",
    "sum_over_limit": "prompt_plus_output_too_long",
    "sum_over_limit_chat": "prompt_plus_output_too_long",
    "max_tokens_over_limit": "output_too_long",
    "max_completion_tokens_over_limit": "output_too_long",
    "prompt_equals_limit": "no_room_for_output",
}


@pytest.mark.parametrize("name", ["0.16.0-pressure", "0.16.0-explicit4096"])
def test_the_log_of_0_16_gives_what_the_client_saw(name: str) -> None:
    expected: dict[str, int] = {}
    for event in truth(name)["events"]:
        if event["status"] == 400 and event["kind"] in KINDS:
            cause = KINDS[event["kind"]]
            expected[cause] = expected.get(cause, 0) + 1
    seen = last_view(name)
    assert seen.rejections_observable == "exact"
    assert {row.cause: row.count for row in seen.rejections if row.count} == expected
    assert sum(expected.values()) == 7


@pytest.mark.parametrize("name", ["0.32.0-accounted", "0.33.0-accounted"])
def test_the_middleware_gives_what_the_client_saw(name: str) -> None:
    """0.32 serves what is over the limit only together, and cuts it to fit."""
    limit, seen, events = 8192, last_view(name), truth(name)["events"]
    refused = [KINDS[event["kind"]] for event in events if event["status"] == 400 and event["kind"] in KINDS]
    served = [event for event in events if event["status"] == 200]
    cut = [event["usage"]["total_tokens"] == limit for event in served if event["finish"] == "length"]
    assert seen.rejections_observable == "exact"
    assert {row.evidence for row in seen.rejections} == {"middleware"}
    assert {row.cause: row.count for row in seen.rejections if row.count} == dict(Counter(refused))
    assert dict(Counter(refused)) == {"prompt_too_long": 2, "output_too_long": 2, "no_room_for_output": 1}
    assert seen.clamped_requests == sum(event["kind"].startswith("sum_over_limit") for event in served) == 2
    assert seen.truncations_by_cause == (
        ("context_full", cut.count(True)), ("max_tokens", cut.count(False)), ("unknown", 0),
    )  # fmt: skip


@pytest.mark.parametrize("name", ["0.26.0-pressure", "0.32.0-pressure", "0.32.0-dp2", "0.32.0-api2"])
def test_where_nothing_is_logged_the_bound_is_said_to_be_one(name: str) -> None:
    seen = last_view(name)
    refused = [event for event in truth(name)["events"] if event["status"] == 400]
    assert seen.rejections_observable == "upper_bound"
    assert seen.rejections == ()
    assert seen.client_errors == ("access_log", len(refused))
    assert len([event for event in refused if event["kind"] in KINDS]) < len(refused)
