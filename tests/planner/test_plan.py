"""The plan as a whole: memory, both directions, what-ifs, flags that fit together, and problems named."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from packaging.version import Version

from tests.planner import models
from vllm_length_exporter.planner.architecture import architecture
from vllm_length_exporter.planner.budget import budget
from vllm_length_exporter.planner.error import PlanError
from vllm_length_exporter.planner.plan import Plan, plan_model
from vllm_length_exporter.planner.pool import layout
from vllm_length_exporter.planner.reading import ModelFiles
from vllm_length_exporter.planner.settings import GIB, Settings


def plan(
    config: dict[str, Any],
    lengths: tuple[int, ...] = (),
    concurrencies: tuple[int, ...] = (),
    **flags: Any,
) -> Plan:
    return plan_model(ModelFiles(config), Settings(**flags), lengths=lengths, concurrencies=concurrencies)


def flag(made: Plan, name: str) -> str | None:
    return next((found.value for found in made.flags if found.name == name), None)


EIGHT_GIB: dict[str, Any] = {"kv_cache_memory_bytes": 8 * GIB}


def test_concurrency_at_a_length() -> None:
    made = plan(models.LLAMA_3_1_8B, lengths=(8192, 8193), **EIGHT_GIB)
    # 4,096 blocks of 2 MiB, one of them never given out; 512 a request, 513 for one token more
    assert [row.requests.low for row in made.at_lengths] == [4095 // 512, 4095 // 513]
    assert [row.needed_bytes for row in made.at_lengths] == [GIB, 513 * 2**21]
    assert all(row.requests.exact for row in made.at_lengths)


def test_a_length_beyond_the_window_is_said_to_be_refused() -> None:
    made = plan(models.LLAMA_3_1_8B, lengths=(131072, 131073), **EIGHT_GIB)
    said = "requests of 131,073 tokens are refused: the longest that this model serves is 131,072"
    assert [note for note in made.notes if "refused" in note] == [said]


def test_length_at_a_concurrency() -> None:
    made = plan(models.LLAMA_3_1_8B, concurrencies=(1, 3, 4095, 4096), **EIGHT_GIB)
    assert [row.longest.low for row in made.at_concurrencies] == [4095 * 16, 1365 * 16, 16, 0]


@given(
    st.sampled_from(["LLAMA_3_1_8B", "GEMMA_3_27B", "GPT_OSS_20B", "QWEN3_NEXT_80B", "DEEPSEEK_V3"]),
    st.integers(1, 64),
    st.integers(1, 4000),
)
def test_both_directions_agree(name: str, requests: int, mib: int) -> None:
    """The longest length at a concurrency has that concurrency, and one token more has not."""
    made = plan(getattr(models, name), concurrencies=(requests,), kv_cache_memory_bytes=mib * 2**20)
    longest, capacity = made.at_concurrencies[0].longest.low, made.capacity
    assert capacity is not None
    assert longest == 0 or capacity.requests(longest).low >= requests
    assert made.window is not None
    if longest < made.window.window:
        assert capacity.requests(longest + 1).low < requests


@given(st.integers(1, 131072), st.integers(1, 131072))
def test_a_longer_request_never_fits_more_often(one: int, other: int) -> None:
    pool = layout(architecture(models.GEMMA_3_27B), models.GEMMA_3_27B, Settings()).size(8 * GIB)
    short, long = sorted((one, other))
    assert pool.requests(short) >= pool.requests(long)


def test_engines_add_up() -> None:
    one = plan(models.LLAMA_3_1_8B, lengths=(8192,), **EIGHT_GIB)
    two = plan(models.LLAMA_3_1_8B, lengths=(8192,), concurrencies=(14,), data_parallel_size=2, **EIGHT_GIB)
    assert two.at_lengths[0].requests.low == 2 * one.at_lengths[0].requests.low
    assert two.reported_tokens == one.reported_tokens  # vLLM reports it for each engine
    assert two.at_concurrencies[0].longest.low == 585 * 16  # 7 on each engine


def test_memory_from_a_device_has_a_range_and_names_what_it_cannot_know() -> None:
    made = plan(models.LLAMA_3_1_8B, device_memory=80 * GIB, gpu_memory_utilization=0.9)
    assert made.budget is not None
    assert [part.name for part in made.budget.parts] == [
        "weights", "activation peak", "CUDA graphs", "context and communication",
    ]  # fmt: skip
    span = made.budget.kv_cache
    # 72 GiB less 15 GiB of weights; servers of this kind print some 54 GiB
    assert 45 * GIB < span.low < 54 * GIB < span.high < 58 * GIB
    assert made.at_lengths[-1].requests.low <= made.at_lengths[-1].requests.high
    assert any("measured by vLLM at start" in note for note in made.notes)


@pytest.mark.parametrize(("version", "share"), [("0.19.1", 0.9), ("0.20.0", 0.92), ("0.32.0", 0.92)])
def test_the_default_share_of_a_device_depends_on_the_version(version: str, share: float) -> None:
    chosen = Settings(version=Version(version), device_memory=80 * GIB)
    assert chosen.utilization == share
    found = budget(architecture(models.LLAMA_3_1_8B), ModelFiles(models.LLAMA_3_1_8B), chosen)
    assert found is not None
    asked = math.ceil(80 * GIB * share)
    assert found.kv_cache.high == asked - sum(part.bytes.low for part in found.parts)


def test_no_memory_is_left() -> None:
    with pytest.raises(PlanError) as failure:
        plan(models.LLAMA_3_1_70B, device_memory=80 * GIB)
    assert str(failure.value).startswith(
        "no memory is left for the KV cache: 0.92 of 80 GiB is 73.6 GiB, and "
    )


def test_weights_of_unknown_size() -> None:
    with pytest.raises(PlanError) as failure:
        plan({**models.GEMMA_3_27B, "vision_config": {"a": 1}}, device_memory=80 * GIB)
    assert str(failure.value).startswith("the weights' size is not known: ")


def test_without_memory_there_is_what_a_request_needs_and_no_more() -> None:
    made = plan(models.LLAMA_3_1_8B, lengths=(131072,))
    assert made.at_lengths[0].needed_bytes == 16 * GIB
    assert (made.capacity, made.reported_tokens, made.what_ifs, made.at_concurrencies) == (None, None, (), ())
    assert any(note.startswith("no memory was named") for note in made.notes)


def test_an_override_of_blocks_is_memory_enough() -> None:
    made = plan(models.LLAMA_3_1_8B, num_gpu_blocks_override=100, max_model_len=800)
    assert made.reported_tokens is not None
    assert made.reported_tokens.low == 1600
    assert {row.change for row in made.what_ifs} == {
        "--data-parallel-size 2", "half of the limit: 400", "twice the limit: 1,600",
    }  # fmt: skip


def test_what_would_change() -> None:
    made = plan(models.LLAMA_3_1_8B, max_model_len=8192, **EIGHT_GIB)
    found = {row.change: (row.requests.low, row.longest.low) for row in made.what_ifs}
    assert found == {
        "--kv-cache-dtype fp8": (15, 131_056),
        "+1 GiB for the KV cache": (8, 73_712),
        "+8 GiB for the KV cache": (15, 131_056),
        "--tensor-parallel-size 2": (15, 131_056),
        "--data-parallel-size 2": (14, 65_520),
        "half of the limit: 4,096": (15, 4_096),
        "twice the limit: 16,384": (3, 16_384),
    }


def test_a_limit_that_does_not_fit_is_a_problem_and_the_flags_cure_it() -> None:
    made = plan(models.LLAMA_3_1_8B, **EIGHT_GIB)
    assert made.refusal is not None
    assert " ".join(made.problems) == (
        "one request of 131072 tokens needs 16.00 GiB of KV cache on each device, 8.00 GiB are there: vLLM does not"
        " start; a limit of 65520 would"
    )
    assert flag(made, "--max-model-len") == "65520"
    cured = plan(models.LLAMA_3_1_8B, max_model_len=65520, **EIGHT_GIB)
    assert (cured.refusal, cured.problems) == (None, ())


def test_before_0_29_a_limit_may_start_and_never_be_served() -> None:
    made = plan(models.LLAMA_3_1_8B, version=Version("0.26.0"), max_model_len=65536, **EIGHT_GIB)
    assert made.refusal is None
    assert " ".join(made.problems) == (
        "one request of 65536 tokens needs the block that vLLM never gives out: it would wait for ever;"
        " 65520 tokens can be served"
    )
    assert flag(made, "--max-model-len") == "65520"


def test_auto_fit_takes_what_fits() -> None:
    made = plan(models.LLAMA_3_1_8B, auto_fit=True, **EIGHT_GIB)
    assert (made.limit, made.limit_source, made.refusal) == (65_520, "auto-fit to the least memory", None)
    fits = plan(models.LLAMA_3_1_8B, auto_fit=True, kv_cache_memory_bytes=32 * GIB)
    assert fits.limit == 131_072


def test_a_limit_beyond_the_window_is_a_problem() -> None:
    made = plan(models.MISTRAL_7B, max_model_len=40_000, **EIGHT_GIB)
    assert made.problems == (
        "--max-model-len 40000 is above the window of 32768: vLLM refuses it without VLLM_ALLOW_LONG_MAX_MODEL_LEN=1",
    )
    assert flag(made, "--max-model-len") == "32768"


@pytest.mark.parametrize(
    ("given_settings", "problem"),
    [
        (
            {"enable_chunked_prefill": False, "max_num_batched_tokens": 4096, "max_model_len": 8192},
            "--max-num-batched-tokens 4096 is below the limit of 8192: without chunked prefill vLLM refuses it",
        ),
        (
            {"max_num_batched_tokens": 128, "max_num_seqs": 256, "max_model_len": 8192},
            "--max-num-batched-tokens 128 is below --max-num-seqs 256: vLLM refuses it",
        ),
    ],
)
def test_flags_that_contradict_each_other_are_named_and_mended(
    given_settings: dict[str, Any], problem: str
) -> None:
    made = plan(models.LLAMA_3_1_8B, **EIGHT_GIB, **given_settings)
    assert made.problems == (problem,)
    tokens, limit, sequences = (
        int(flag(made, name) or 0)
        for name in ("--max-num-batched-tokens", "--max-model-len", "--max-num-seqs")
    )
    assert tokens >= sequences
    assert given_settings.get("enable_chunked_prefill", True) or tokens >= limit


@settings(max_examples=40)
@given(
    config=st.sampled_from([models.LLAMA_3_1_8B, models.GEMMA_3_27B, models.QWEN3_NEXT_80B]),
    mib=st.integers(200, 40_000),
    chunked=st.booleans(),
    length=st.none() | st.integers(1, 30_000),
    requests=st.none() | st.integers(1, 500),
)
def test_the_flags_are_consistent(
    config: dict[str, Any], mib: int, chunked: bool, length: int | None, requests: int | None
) -> None:
    """A server with these flags starts, accepts its own numbers, and can serve a request of its limit."""
    wishes = {
        "lengths": () if length is None else (length,),
        "concurrencies": () if requests is None else (requests,),
    }
    made = plan(config, kv_cache_memory_bytes=mib * 2**20, enable_chunked_prefill=chunked, **wishes)
    limit = flag(made, "--max-model-len")
    if limit is None:
        return
    again = plan(
        config,
        kv_cache_memory_bytes=mib * 2**20,
        enable_chunked_prefill=chunked,
        max_model_len=int(limit),
        max_num_seqs=int(flag(made, "--max-num-seqs") or 0),
        max_num_batched_tokens=int(flag(made, "--max-num-batched-tokens") or 0),
    )
    # A larger step, which prefill in one piece asks for, lets windows hold more: then one more turn is needed.
    if chunked:
        assert again.problems == ()
        assert again.refusal is None


def test_flags_serve_what_was_asked_for() -> None:
    made = plan(models.GPT_OSS_20B, concurrencies=(8,), kv_cache_memory_bytes=5 * GIB)
    assert made.capacity is not None
    assert flag(made, "--max-num-seqs") == "8"
    assert made.capacity.requests(int(flag(made, "--max-model-len") or 0)).low >= 8
    typical = plan(models.GPT_OSS_20B, lengths=(8192,), kv_cache_memory_bytes=5 * GIB)
    assert typical.capacity is not None
    assert flag(typical, "--max-num-seqs") == str(typical.capacity.requests(8192).low)


def test_a_window_that_is_not_known_must_be_given() -> None:
    config = {key: value for key, value in models.QWEN3_32B.items() if key != "max_position_embeddings"}
    with pytest.raises(PlanError) as failure:
        plan({**config, "model_type": "qwen9"})
    assert str(failure.value) == "the window is not known from config.json: give --max-model-len"
    assert plan({**config, "model_type": "qwen9"}, max_model_len=4096).limit == 4096


def test_a_checkpoint_may_ask_for_its_own_cache_format() -> None:
    scheme = {"type": "float", "num_bits": 8, "dynamic": False}
    config = {
        **models.LLAMA_3_1_8B,
        "quantization_config": {"quant_method": "compressed-tensors", "kv_cache_scheme": scheme},
    }
    made = plan(config, **EIGHT_GIB)
    assert made.layout is not None
    assert made.layout.bytes_per_token == 65_536
    assert "the checkpoint asks for a KV cache of fp8_e4m3" in made.notes
