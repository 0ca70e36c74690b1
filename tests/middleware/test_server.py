"""What the middleware learns of the server that it runs in, from the application's state alone."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from prometheus_client import REGISTRY

from tests.middleware.scripted import LIMIT, Script, chat, counted, error, of, play, served, snapshot, vllm
from vllm_length_exporter.middleware import LengthAccounting, series

CLAMPED = Script(chat(max_tokens=4000), served(6000, 100))  # against a limit of 8,192


@pytest.fixture(autouse=True)
def no_limit_told() -> Iterator[None]:
    series.LIMIT.clear()
    yield
    series.LIMIT.clear()


def limits() -> dict[str, float]:
    return {
        sample.labels["source"]: sample.value
        for family in REGISTRY.collect()
        for sample in family.samples
        if sample.name == "vllm_length_middleware_limit_tokens"
    }


def config(limit: object = LIMIT, **more: object) -> SimpleNamespace:
    return SimpleNamespace(max_model_len=limit, **more)


@pytest.mark.parametrize(
    "state",
    [
        {"openai_serving_models": SimpleNamespace(model_config=config())},
        {"vllm_config": SimpleNamespace(model_config=config()), "args": SimpleNamespace(model="m")},
        {"engine_client": SimpleNamespace(model_config=config()), "args": SimpleNamespace(model="m")},
        {
            "engine_client": SimpleNamespace(vllm_config=SimpleNamespace(model_config=config())),
            "args": SimpleNamespace(model="m"),
        },
    ],
)
def test_the_limit_is_found_where_versions_have_it(state: dict[str, object]) -> None:
    with counted() as found:
        play(CLAMPED, app=SimpleNamespace(state=SimpleNamespace(**state)))
    assert of(found, "clamped_total") == {"": 1}
    assert limits() == {"app_state": LIMIT}


@pytest.mark.parametrize("limit", [None, "8192", -1, 0, True, 8192.0])
def test_what_is_no_limit(limit: object) -> None:
    with counted() as found:
        play(CLAMPED, app=vllm(limit=limit))  # type: ignore[arg-type]
    assert of(found, "clamped_total") == {}
    assert limits() == {}


@pytest.mark.parametrize(
    ("version", "known"),
    [("0.16.0", False), ("0.19.1+cpu", False), ("0.20.2", True), ("0.32.0+cpu", True), ("1.0", True), ("dev", False),
     (None, False)],
)  # fmt: skip
def test_a_limit_fitted_by_the_engine_counts_where_the_api_server_learns_it(
    version: str | None, known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = ModuleType("vllm")
    if version is not None:
        module.__version__ = version  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "vllm", module)
    app: Any = vllm()
    app.state.openai_serving_models.model_config.original_max_model_len = -1
    with counted() as found:
        play(CLAMPED, app=app)
    assert of(found, "clamped_total") == ({"": 1} if known else {})
    assert limits() == ({"app_state": LIMIT} if known else {})


@pytest.mark.parametrize(
    ("state", "label"),
    [
        ({"args": SimpleNamespace(served_model_name=["tiny"], model="/path")}, "tiny"),
        ({"args": SimpleNamespace(served_model_name="tiny", model="/path")}, "tiny"),
        ({"args": SimpleNamespace(served_model_name=None, model="tiny")}, "tiny"),
        ({"args": SimpleNamespace(served_model_name=None, model="/path")}, "other"),
        ({"args": SimpleNamespace(served_model_name=7, model=None)}, ""),
    ],
)
def test_served_names_from_the_arguments(state: dict[str, object], label: str) -> None:
    with counted() as found:
        play(Script(chat(), served(5, 5)), app=SimpleNamespace(state=SimpleNamespace(**state)))
    assert any(name.startswith(f"requests_total{{model={label},") for name in found)


def test_series_at_zero_before_the_first_request() -> None:
    """An alert's rate sees the first refusal only where there was a zero before."""

    async def start(scope: Any, receive: Any, send: Any) -> None:
        pass

    app: Any = vllm(names=["early", "alias"])
    app.routes = [SimpleNamespace(path="/v1/embeddings"), SimpleNamespace(path="/metrics"), object()]
    asyncio.run(LengthAccounting(start)({"type": "lifespan", "app": app}, start, start))  # type: ignore[arg-type]
    zeros = {name for name, value in snapshot().items() if value == 0 and "=early" in name}
    assert "refused_total{model=early,endpoint=/v1/embeddings,cause=prompt_too_long}" in zeros
    assert "clamped_total{model=early}" in zeros
    assert "truncated_total{model=early,cause=context_full}" in zeros
    assert not any("/v1/chat/completions" in name for name in zeros)  # not a route of this server


def test_only_so_many_adapters_have_a_label_of_their_own() -> None:
    app: Any = vllm(names=["base"])
    app.state.openai_serving_models.lora_requests = {f"adapter-{i}": object() for i in range(60)}
    requests = [Script(chat(model=f"adapter-{i}"), error("about something else")) for i in range(60)]
    with counted() as found:
        play(*requests, *requests, app=app)
    labels = [name for name in found if name.startswith("requests_total{model=adapter-")]
    assert len(labels) == 50
    assert sum(value for name, value in found.items() if "model=other" in name) == 20
