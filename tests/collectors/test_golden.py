"""The golden pages: one for each recording, sound by promtool, and holding what the client saw."""

from __future__ import annotations

import subprocess

import pytest

from tests.collectors.golden import FOLDER, page
from tests.conftest import Tool
from tests.recorded import NAMES, last_view, played, truth
from vllm_length_exporter.collectors.registry import METRICS
from vllm_length_exporter.derive.values import State, Value
from vllm_length_exporter.derive.view import Horizon, view

GIB = 1 << 30
STARTED = tuple(name for name in NAMES if truth(name)["started"])
FAILED = tuple(name for name in NAMES if not truth(name)["started"])


@pytest.mark.parametrize("name", NAMES)
def test_the_page_is_the_golden_one(name: str) -> None:
    golden = (FOLDER / f"{name}.prom").read_text()
    assert page(name) == golden, "if this is meant: python -m tests.collectors.golden"


@pytest.mark.parametrize("name", NAMES)
def test_promtool_finds_nothing_wrong(name: str, tool: Tool) -> None:
    checked = subprocess.run(
        [tool("promtool"), "check", "metrics"], input=page(name), text=True, capture_output=True, check=False
    )
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")


def test_no_golden_page_is_left_over() -> None:
    assert {path.stem for path in FOLDER.glob("*.prom")} == set(NAMES)


def test_every_series_name_and_label_is_declared_once() -> None:
    names = [metric.full_name for metric in METRICS]
    assert len(names) == len(set(names))
    for metric in METRICS:
        assert metric.name.endswith("_total") == (metric.kind == "counter"), metric.name
        assert ":" not in metric.full_name


def expected_limit(name: str) -> int:
    """What the server enforced: /v1/models, but for the two of 0.16.0 that fitted the length later."""
    if name == "0.16.0-kvauto":
        return 32768
    (card,) = truth(name)["models"]["data"]
    return int(card["max_model_len"])


@pytest.mark.parametrize("name", STARTED)
def test_limit_and_capacity_are_those_of_the_server(name: str) -> None:
    seen = last_view(name)
    assert seen.state is State.UP
    assert seen.limits.effective is not None
    assert seen.limits.effective.value == expected_limit(name)
    engines = 2 if name.endswith("dp2") else 1
    assert [row.engine for row in seen.capacity] == [str(rank) for rank in range(engines)]
    assert all(row.tokens is not None and row.full_length_concurrency is not None for row in seen.capacity)


def test_pressure_0_32() -> None:
    peak, preemptions = 0, 0
    for at, state in played("0.32.0-pressure"):
        seen = view(state, at, Horizon())
        assert seen is not None
        (row,) = seen.capacity
        assert row.blocks == Value(79, "cache_config")
        assert row.used_blocks is not None, f"no whole number of blocks at {at}"
        peak = max(peak, row.used_blocks.value)
        (pressure,) = seen.pressure
        assert pressure.preemptions_total is not None
        preemptions = pressure.preemptions_total.value
    assert (peak, preemptions) == (77, 27)
    seen = last_view("0.32.0-pressure")
    (row,) = seen.capacity
    assert seen.limits.effective == Value(8192, "models_api")
    assert row.tokens == Value(10240, "cache_config")
    assert row.full_length_concurrency == Value(1.25, "cache_config")
    assert row.bytes_per_token is not None
    assert row.bytes_per_token.value == 1024.0
    assert seen.limits.max_num_seqs == Value(16, "engine_log")


def test_two_engines() -> None:
    seen = last_view("0.32.0-dp2")
    assert [row.tokens and row.tokens.value for row in seen.capacity] == [10240, 10240]
    assert [row.blocks and row.blocks.value for row in seen.capacity] == [79, 79]
    assert [row.preemptions_total and row.preemptions_total.value for row in seen.pressure] == [7, 7]


def test_hybrid() -> None:
    (row,) = last_view("0.32.0-hybrid").capacity
    assert row.tokens == Value(1409110, "cache_config")
    assert row.full_length_concurrency is not None
    assert f"{row.full_length_concurrency.value:.2f}" == "43.00"
    assert row.free_tokens is None


@pytest.mark.parametrize(
    ("name", "limit"), [("0.32.0-kvauto", 32640), ("0.32.0-kvminus1", 32640), ("0.16.0-kvauto", 32768)]
)
def test_auto_fit(name: str, limit: int) -> None:
    limits = last_view(name).limits
    assert limits.effective is not None
    assert limits.effective.value == limit
    assert limits.requested is not None
    assert limits.requested.value == "auto"
    assert limits.window is not None
    assert limits.window.value == 1048576
    assert limits.mode == "auto"


@pytest.mark.parametrize(
    ("name", "estimate"),
    [("0.32.0-kvtoosmall", 32640), ("0.26.0-kvtoosmall", 32768), ("0.16.0-kvtoosmall", 32768)],
)
def test_kv_cache_too_small(name: str, estimate: int) -> None:
    seen = last_view(name)
    assert seen.state is State.FAILED
    assert seen.startup.cause == "kv_cache_too_small"
    assert seen.startup.needed_bytes == Value(32 * GIB, "startup_log")
    assert seen.startup.available_bytes == Value(1 * GIB, "startup_log")
    assert seen.startup.estimated_limit == Value(estimate, "startup_log")
    assert seen.capacity == ()
    assert [finding.id for finding in seen.findings] == ["startup_kv_cache_too_small"]


@pytest.mark.parametrize("name", FAILED)
def test_a_failed_start_has_a_cause_and_no_values(name: str) -> None:
    seen = last_view(name)
    assert seen.state is State.FAILED
    assert seen.startup.cause not in (None, "other")
    assert seen.limits.effective is None
    text = page(name)
    assert "vllm_length_max_model_len_tokens{" not in text
    assert "vllm_length_kv_cache_capacity_tokens{" not in text
