"""The middleware in a real vLLM 0.32.0 with two API servers, against what the client counted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests
from prometheus_client.parser import text_string_to_metric_families

from tests.real.client import Client
from tests.real.load import Truth, crowd, length_load, truth
from tests.real.versions import PREFIX, with_middleware
from tests.real.vllm_server import MODEL_NAME, SMALL_CACHE, VllmServer

LIMIT = 8192

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]  # the first one waits for the server


@pytest.fixture(scope="module")
def vllm(vllm_home: Path, tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[VllmServer]:
    log = tmp_path_factory.mktemp("vllm") / "server.log"
    with with_middleware(vllm_home, tiny_model, log, "--api-server-count", "2", *SMALL_CACHE) as server:
        server.wait_ready(600)
        yield server


def counts(page: str, name: str, label: str | None = None) -> dict[str, float]:
    """One series of the page, summed by the values of one label; zeros left out."""
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            if sample.name == PREFIX + name:
                key = sample.labels[label] if label is not None else ""
                found[key] = found.get(key, 0) + sample.value
    return {key: value for key, value in found.items() if value}


def added(before: dict[str, float], after: dict[str, float]) -> dict[str, float]:
    return {key: value - before.get(key, 0) for key, value in after.items() if value != before.get(key, 0)}


def test_refused_cut_and_clamped_as_the_client_counted_them(vllm: VllmServer) -> None:
    client = Client(vllm.base_url)
    before = vllm.page()
    sent = [*length_load(client, LIMIT), *crowd(client)]
    page = vllm.page()
    expected = truth(sent, LIMIT)
    assert expected.refused == {"prompt_too_long": 2, "output_too_long": 2, "no_room_for_output": 1}
    assert expected.clamped == 2
    assert expected.client_errors == 2

    def seen(name: str, label: str | None = None) -> dict[str, float]:
        return added(counts(before, name, label), counts(page, name, label))

    outcomes = seen("requests_total", "outcome")
    assert outcomes == {
        "served": expected.served,
        "refused": sum(expected.refused.values()),
        "client_error": 2,
    }
    assert (
        Truth(
            refused={cause: int(count) for cause, count in seen("refused_total", "cause").items()},
            clamped=int(seen("clamped_total")[""]),
            truncated={cause: int(count) for cause, count in seen("truncated_total", "cause").items()},
            served=int(outcomes["served"]),
            client_errors=int(outcomes["client_error"]),
        )
        == expected
    )
    answers = [one.answer for one in sent if one.answer.status == 200]
    total = sum((one.prompt_tokens or 0) + (one.completion_tokens or 0) for one in answers)
    assert seen("total_tokens_sum") == {"": total}
    assert seen("total_tokens_count") == {"": len(answers)}
    assert counts(page, "errors_total") == {}
    assert counts(page, "limit_tokens", "source") == {"app_state": LIMIT}
    assert set(counts(page, "requests_total", "model")) == {MODEL_NAME, "other"}


CHAT = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 30, "ignore_eos": True}
ASKED = {"prompt": "hello", "max_tokens": 30, "ignore_eos": True}
USAGE = {"include_usage": True, "continuous_usage_stats": True}
APIS = {  # name -> path, body, answers that end for length, outcome
    "completion stream": ("/v1/completions", {**ASKED, "stream": True}, 1, "served"),
    "with usage": ("/v1/completions", {**ASKED, "stream": True, "stream_options": USAGE}, 1, "served"),
    "chat stream": ("/v1/chat/completions", {**CHAT, "stream": True}, 1, "served"),
    "three answers": ("/v1/chat/completions", {**CHAT, "n": 3}, 3, "served"),
    "three answers in a stream": ("/v1/chat/completions", {**CHAT, "n": 3, "stream": True}, 3, "served"),
    "one prompt in a list": ("/v1/completions", {**ASKED, "prompt": ["hello"]}, 1, "served"),
    "two prompts": ("/v1/completions", {**ASKED, "prompt": ["hello", "world"]}, 2, "unknown"),
    "response": ("/v1/responses", {"input": "hello", "max_output_tokens": 3}, None, "served"),
    "response stream": (
        "/v1/responses",
        {"input": "hello", "max_output_tokens": 3, "stream": True},
        None,
        "served",
    ),
    "message": ("/v1/messages", {"messages": CHAT["messages"], "max_tokens": 3}, None, "served"),
    "message stream": (
        "/v1/messages",
        {"messages": CHAT["messages"], "max_tokens": 3, "stream": True},
        None,
        "served",
    ),
    "a prompt of the limit": (
        "/v1/completions",
        {"prompt": [7] * LIMIT, "stream": True},
        0,
        "refused",
    ),
}


@pytest.mark.parametrize("name", APIS)
def test_every_api(vllm: VllmServer, name: str) -> None:
    path, body, cut, outcome = APIS[name]
    before = vllm.page()
    reply = requests.post(vllm.base_url + path, json={"model": MODEL_NAME, **body}, timeout=120)
    page = vllm.page()
    assert reply.status_code == (400 if outcome == "refused" else 200)
    assert added(counts(before, "requests_total", "outcome"), counts(page, "requests_total", "outcome")) == {
        outcome: 1
    }
    truncated = added(counts(before, "truncated_total", "cause"), counts(page, "truncated_total", "cause"))
    if cut is None:  # the model may stop by itself
        cut = sum(word in reply.text for word in ('"max_tokens"', '"reason":"max_output_tokens"'))
        assert cut in (0, 1)
    assert sum(truncated.values()) == cut
    if outcome == "served" and cut:
        assert set(truncated) == {"max_tokens"}


def test_a_stream_that_the_client_leaves(vllm: VllmServer) -> None:
    before = vllm.page()
    body = {"model": MODEL_NAME, **ASKED, "max_tokens": 8000, "stream": True}
    with requests.post(f"{vllm.base_url}/v1/completions", json=body, stream=True, timeout=120) as reply:
        next(reply.iter_content(64))

    def left() -> bool:
        now = added(
            counts(before, "requests_total", "outcome"), counts(vllm.page(), "requests_total", "outcome")
        )
        return now == {"disconnected": 1}

    vllm.wait_until(left, seconds=60, what="the client's leaving is counted")


def test_the_page_is_one_that_prometheus_takes(vllm: VllmServer) -> None:
    families = list(text_string_to_metric_families(vllm.page()))
    ours = [family for family in families if family.name.startswith(PREFIX[:-1])]
    assert len(ours) >= 12
    assert json.dumps([family.documentation for family in ours])
    assert not any("pid" in sample.labels for family in ours for sample in family.samples)
