"""The plan against reality: what the recorded servers reported, or named when they did not start."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import pytest
from packaging.version import Version

from tests.recorded import NAMES, log_lines, pages, truth
from vllm_length_exporter.planner.architecture import architecture
from vllm_length_exporter.planner.pool import Pool, layout
from vllm_length_exporter.planner.settings import GIB, Device, Settings
from vllm_length_exporter.vllm.model_config import window

STARTED = [name for name in NAMES if truth(name)["started"]]
FOR_MEMORY = [name for name in NAMES if name.endswith("kvtoosmall")]
SIZE = re.compile(r"KV cache size: ([\d,]+) tokens")
CONCURRENCY = re.compile(r"Maximum concurrency for ([\d,]+) tokens per request: ([\d.]+)x")


def argument(name: str, flag: str) -> str | None:
    args = truth(name)["args"]
    return args[args.index(flag) + 1] if flag in args else None


@cache
def planned(name: str) -> Pool:
    """The pool of a recorded server, from its config.json and arguments alone: 1 GiB on the CPU, float32."""
    seen = truth(name)
    override = argument(name, "--num-gpu-blocks-override")
    settings = Settings(
        version=Version(seen["vllm_version"]),
        device=Device.CPU,
        dtype="float32",
        kv_cache_dtype=argument(name, "--kv-cache-dtype") or "auto",
        data_parallel_size=int(argument(name, "--data-parallel-size") or 1),
        num_gpu_blocks_override=None if override is None else int(override),
    )
    config = seen["model_config"]
    return layout(architecture(config), config, settings).size(GIB)


def limit(name: str) -> int:
    """The limit that the server takes, as planned."""
    seen = truth(name)
    found = window(seen["model_config"], Version(seen["vllm_version"]))
    assert found is not None
    asked = argument(name, "--max-model-len")
    if asked in ("auto", "-1"):
        return planned(name).auto_limit(found.default_limit)
    return int(asked) if asked else found.default_limit


def reported(name: str) -> dict[str, list[float]]:
    """Capacity, concurrency and limit in the server's log."""
    found: dict[str, list[float]] = {"tokens": [], "concurrency": [], "limit": []}
    for line in log_lines(name):
        if match := SIZE.search(line):
            found["tokens"].append(int(match[1].replace(",", "")))
        if match := CONCURRENCY.search(line):
            found["limit"].append(int(match[1].replace(",", "")))
            found["concurrency"].append(float(match[2]))
    return found


def label(name: str, key: str) -> list[str]:
    text = pages(name)[0][1]
    lines = [line for line in text.splitlines() if line.startswith("vllm:cache_config_info{")]
    return [found[1] for line in lines if (found := re.search(rf'[{{,]{key}="([^"]*)"', line))]


@pytest.mark.parametrize("name", STARTED)
def test_the_capacity_is_what_the_server_printed(name: str) -> None:
    seen, pool = reported(name), planned(name)
    assert seen["tokens"]
    assert set(seen["tokens"]) == {pool.reported_tokens(limit(name))}
    assert set(seen["limit"]) == {limit(name)}
    # The log rounds to two decimals. Until 0.26, 32,768 tokens in all and 32,640 of limit would be 1.00 as well.
    assert set(seen["concurrency"]) == {float(f"{pool.concurrency(limit(name)):.2f}")}


@pytest.mark.parametrize("name", STARTED)
def test_the_blocks_are_what_the_page_says(name: str) -> None:
    pool, engines = planned(name), planned(name).layout.settings.data_parallel_size
    assert label(name, "num_gpu_blocks") == [str(pool.total_blocks * engines)] * engines
    assert set(label(name, "block_size")) == {str(pool.layout.block_size)}


@pytest.mark.parametrize("name", STARTED)
def test_the_labels_of_0_24_and_later_agree_to_the_last_digit(name: str) -> None:
    if Version(truth(name)["vllm_version"]) < Version("0.24"):
        assert label(name, "kv_cache_size_tokens") == []
        return
    pool = planned(name)
    assert set(label(name, "kv_cache_size_tokens")) == {str(pool.reported_tokens(limit(name)))}
    assert set(label(name, "kv_cache_max_concurrency")) == {str(pool.concurrency(limit(name)))}


@pytest.mark.parametrize("name", STARTED)
def test_a_server_that_started_was_expected_to(name: str) -> None:
    assert planned(name).refusal(limit(name)) is None


@pytest.mark.parametrize("name", FOR_MEMORY)
def test_what_a_server_lacked_is_what_its_message_names(name: str) -> None:
    text = "\n".join(log_lines(name))
    found = re.search(r"\(([\d.]+) GiB KV cache is needed.*?\(([\d.]+) GiB\)", text)
    estimate = re.search(r"estimated maximum model length is (\d+)", text)
    assert found is not None
    assert estimate is not None
    refusal = planned(name).refusal(limit(name))
    assert refusal is not None
    assert f"{refusal.needed_bytes / GIB:.1f}" == found[1] == "32.0"
    assert f"{refusal.available_bytes / GIB:.1f}" == found[2] == "1.0"
    assert str(refusal.estimated_limit) == estimate[1]


@pytest.mark.parametrize(
    ("version", "expected"), [("0.16.0", 32_768), ("0.26.0", 32_768), ("0.32.0", 32_640)]
)
def test_the_null_block_counts_from_0_29_on(version: str, expected: int) -> None:
    refusal = planned(f"{version}-kvtoosmall").refusal(1_048_576)
    assert refusal is not None
    assert refusal.estimated_limit == expected


def test_the_hybrid_is_less_than_its_blocks_and_more_than_a_sixth_of_them() -> None:
    pool = planned("0.32.0-hybrid")
    assert pool.reported_tokens(32_768) == 1_409_110
    assert round(pool.concurrency(32_768), 4) == 43.0026
    assert pool.total_blocks * pool.layout.block_size == 2_097_152
    assert len(pool.layout.groups) == 6


def test_an_fp8_cache_of_a_float32_model_holds_four_times_as_much() -> None:
    assert (
        planned("0.32.0-fp8kv").reported_tokens(8_192)
        == 4_194_304
        == 4 * planned("0.32.0-yarn").reported_tokens(8_192)
    )


def test_two_engines_have_a_cache_each() -> None:
    pool = planned("0.32.0-dp2")
    assert (pool.total_blocks, pool.usable_blocks, pool.reported_tokens(8_192)) == (80, 79, 10_240)


def facts(name: str) -> dict[str, Any]:
    pool = planned(name)
    return {"usable": pool.usable_blocks, "requests": pool.requests(limit(name))}


@pytest.mark.parametrize(
    ("name", "usable", "requests"),
    [
        # 32,768 tokens are promised and can never be served: one block is not given out
        ("0.16.0-kvauto", 255, 0),
        ("0.32.0-kvauto", 255, 1),
        ("0.32.0-pressure", 79, 1),
        ("0.32.0-hybrid", 16_383, 43),
    ],
)
def test_what_can_be_served_leaves_the_null_block_out(name: str, usable: int, requests: int) -> None:
    assert facts(name) == {"usable": usable, "requests": requests}
