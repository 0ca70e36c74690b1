"""Bytes per token of public models, by hand arithmetic."""

from __future__ import annotations

from typing import Any

import pytest
from packaging.version import Version

from tests.planner import models, naive
from vllm_length_exporter.planner.architecture import architecture
from vllm_length_exporter.planner.error import PlanError
from vllm_length_exporter.planner.pool import Layout, layout
from vllm_length_exporter.planner.settings import GIB, Device, Settings


def laid_out(config: dict[str, Any], **settings: Any) -> Layout:
    return layout(architecture(config), config, Settings(**settings))


# Each line is the sum that a reader can do: 2 (K and V) x KV heads x head size x 2 bytes x layers.
BY_HAND = [
    (models.LLAMA_3_1_8B, "grouped-query (8 KV heads for 32)", 2 * 8 * 128 * 2 * 32, 131_072),
    (models.LLAMA_3_1_70B, "grouped-query (8 KV heads for 64)", 2 * 8 * 128 * 2 * 80, 327_680),
    (models.QWEN2_5_7B, "grouped-query (4 KV heads for 28)", 2 * 4 * 128 * 2 * 28, 57_344),
    (models.QWEN3_32B, "grouped-query (8 KV heads for 64)", 2 * 8 * 128 * 2 * 64, 262_144),
    (models.MISTRAL_7B, "grouped-query (8 KV heads for 32)", 2 * 8 * 128 * 2 * 32, 131_072),
    # 10 of 62 layers keep every token
    (
        models.GEMMA_3_27B,
        "grouped-query (16 KV heads for 32), 10 full, 52 sliding window 1,024",
        2 * 16 * 128 * 2 * 10,
        81_920,
    ),
    # one vector of 512 + 64 a layer, for all heads together
    (models.DEEPSEEK_V3, "multi-head latent", (512 + 64) * 2 * 61, 70_272),
    # 12 of 24 layers
    (
        models.GPT_OSS_20B,
        "grouped-query (8 KV heads for 64), 12 full, 12 sliding window 128",
        2 * 8 * 64 * 2 * 12,
        24_576,
    ),
    # all layers slide: beyond 2,047 tokens nothing grows
    (models.PHI_3_MINI_4K, "multi-head (32 KV heads for 32), 32 sliding window 2,047", 0, 0),
    # 12 of 48 layers
    (
        models.QWEN3_NEXT_80B,
        "grouped-query (2 KV heads for 16), 12 full, 36 with a fixed state",
        2 * 2 * 256 * 2 * 12,
        24_576,
    ),
]


@pytest.mark.parametrize(("config", "attention", "sum_by_hand", "expected"), BY_HAND)
def test_bytes_per_token(config: dict[str, Any], attention: str, sum_by_hand: int, expected: int) -> None:
    assert sum_by_hand == expected
    assert laid_out(config).bytes_per_token == expected
    assert architecture(config).attention == attention


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (models.PHI_3_MINI_4K, 2 * 32 * 96 * 2 * 32),  # 393,216
        (models.GPT_OSS_20B, 2 * 8 * 64 * 2 * 24),  # 49,152
        # 52 sliding layers make 6 groups of 10, with 8 of padding: 70 layers are paid for 62
        (models.GEMMA_3_27B, 2 * 16 * 128 * 2 * 70),
    ],
)
def test_within_its_window_every_layer_costs(config: dict[str, Any], expected: int) -> None:
    assert laid_out(config).bytes_per_token_within_windows == expected


def test_a_linear_hybrid_s_request_costs_its_states() -> None:
    found = laid_out(models.QWEN3_NEXT_80B, enable_prefix_caching=False)
    # convolution: 3 columns of 2 x 16 x 128 + 32 x 128; recurrence: 32 heads of 128 x 128; 2 bytes each
    state = (3 * (2 * 16 * 128 + 32 * 128) + 32 * 128 * 128) * 2
    token = 2 * 2 * 256 * 2
    # the block grows until a page of attention holds a state, in steps of 16 tokens
    block_size = -(-state // (16 * token)) * 16
    assert (state, block_size, found.block_size) == (1_097_728, 544, 544)
    assert found.state_bytes == 36 * block_size * token
    assert laid_out(models.QWEN3_NEXT_80B).state_bytes == 2 * found.state_bytes  # prefix caching keeps two


def test_sparse_latent_attention_keeps_an_index_as_well() -> None:
    # 128 of fp8 and one float32 scale: 132 bytes a layer
    assert laid_out(models.DEEPSEEK_V3_2).bytes_per_token == ((512 + 64) * 2 + 132) * 61
    packed = laid_out(models.DEEPSEEK_V3_2, kv_cache_dtype="fp8_ds_mla")
    assert packed.bytes_per_token == (656 + 132) * 61


def test_a_model_of_states_alone_costs_nothing_a_token() -> None:
    found = laid_out(models.MAMBA_2_7B)
    conv, recurrence = 3 * (2 * 4096 + 2 * 8 * 128), 128 * 64 * 128
    assert found.bytes_per_token == 0
    assert found.state_bytes == 64 * (conv + recurrence) * 2
    assert architecture(models.MAMBA_2_7B).attention == "64 with a fixed state"


@pytest.mark.parametrize(
    ("kv_cache_dtype", "expected"),
    [
        ("fp8", 2 * 8 * 128 * 32),
        ("fp8_e5m2", 2 * 8 * 128 * 32),
        ("bfloat16", 2 * 8 * 128 * 2 * 32),
        ("nvfp4", 2 * 8 * (64 + 8) * 32),  # half a byte and a scale for 16
        ("int8_per_token_head", 2 * 8 * (128 + 4) * 32),
        ("int4_per_token_head", 2 * 8 * (64 + 4) * 32),
    ],
)
def test_formats_of_the_cache(kv_cache_dtype: str, expected: int) -> None:
    assert laid_out(models.LLAMA_3_1_8B, kv_cache_dtype=kv_cache_dtype).bytes_per_token == expected


@pytest.mark.parametrize(
    ("tensor_parallel", "kv_heads"),
    [(1, 8), (2, 4), (8, 1), (16, 1)],  # replicated beyond the number of KV heads
)
def test_tensor_parallel_splits_heads_and_replicates_what_is_left(
    tensor_parallel: int, kv_heads: int
) -> None:
    found = laid_out(models.LLAMA_3_1_8B, tensor_parallel_size=tensor_parallel)
    assert found.bytes_per_token == 2 * kv_heads * 128 * 2 * 32


def test_latent_attention_is_not_split_by_tensor_parallel_but_by_decode_context_parallel() -> None:
    whole = laid_out(models.DEEPSEEK_V3, tensor_parallel_size=8)
    assert whole.bytes_per_token == 70_272
    split = laid_out(models.DEEPSEEK_V3, tensor_parallel_size=8, decode_context_parallel_size=8)
    assert split.bytes_per_token == 70_272 / 8
    assert split.size(64 * GIB).requests(131_072) >= 8 * whole.size(64 * GIB).requests(131_072)


def test_grouped_query_is_split_by_decode_context_parallel_only_beyond_its_kv_heads() -> None:
    found = laid_out(models.LLAMA_3_1_8B, tensor_parallel_size=32, decode_context_parallel_size=4)
    assert found.bytes_per_token == 2 * 1 * 128 * 2 * 32 / 4
    pool = found.size(GIB)
    assert pool.reported_tokens(131_072) == 4 * found.size(GIB).total_blocks * 16


@pytest.mark.parametrize(
    ("config", "settings", "message"),
    [
        (
            models.GPT_OSS_20B,
            {"tensor_parallel_size": 16, "decode_context_parallel_size": 2},
            "--decode-context-parallel-size 2: vLLM does not split sliding windows so",
        ),
        (
            models.QWEN2_5_7B,
            {"tensor_parallel_size": 14},
            "--tensor-parallel-size 14 and 4 KV heads do not divide each other",
        ),
        (
            {**models.LLAMA_3_1_8B, "num_attention_heads": 48, "num_key_value_heads": 16, "head_dim": 128},
            {"tensor_parallel_size": 48, "decode_context_parallel_size": 2},
            "--decode-context-parallel-size 2 does not divide the 3 queries of a KV head",
        ),
    ],
)
def test_how_many_devices_a_model_can_be_split_over(
    config: dict[str, Any], settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(PlanError) as failure:
        laid_out(config, **settings)
    assert str(failure.value) == message


def test_pipeline_parallel_is_bound_by_its_fullest_stage() -> None:
    assert laid_out(models.LLAMA_3_1_70B, pipeline_parallel_size=4).bytes_per_token == 327_680 / 4
    # 61 layers on 4: 15, 15, 16, 15 - one stage has 16
    assert laid_out(models.DEEPSEEK_V3, pipeline_parallel_size=4).stage_block_bytes == tuple(
        layers * 64 * 1152 for layers in (15, 15, 16, 15)
    )


# What calculators without the knowledge say, and by how much they are wrong.


@pytest.mark.parametrize(
    ("config", "times"),
    [(models.LLAMA_3_1_8B, 4), (models.LLAMA_3_1_70B, 8), (models.QWEN2_5_7B, 7), (models.MISTRAL_7B, 4)],
)
def test_a_calculator_without_grouped_query_is_off_by_the_group(config: dict[str, Any], times: int) -> None:
    assert naive.without_grouped_query(config) == times * laid_out(config).bytes_per_token


def test_a_calculator_that_counts_sliding_layers_fully_promises_too_little() -> None:
    gemma = models.GEMMA_3_27B["text_config"]
    assert naive.every_layer_full(gemma) == 507_904  # 6.2 times what a token costs
    memory, length = 24 * GIB, 32_768
    ours = laid_out(models.GEMMA_3_27B, max_num_batched_tokens=2048).size(memory)
    promised = memory // (naive.every_layer_full(gemma) * length)
    assert (promised, ours.requests(length)) == (1, 4)
    oss = laid_out(models.GPT_OSS_20B, max_num_batched_tokens=2048).size(memory)
    promised = memory // (naive.every_layer_full(models.GPT_OSS_20B) * 131_072)
    assert (promised, oss.requests(131_072)) == (4, 7)


def test_a_calculator_that_leaves_sliding_layers_out_promises_too_much() -> None:
    pool = laid_out(models.GPT_OSS_20B, max_num_batched_tokens=8192).size(4 * GIB)
    without_windows = 4 * GIB // (24_576 * 8_192)
    assert (without_windows, pool.requests(8_192)) == (21, 10)


def test_a_calculator_without_latent_attention_is_off_by_57() -> None:
    per_head = 2 * 128 * 128 * 2 * 61
    assert round(per_head / laid_out(models.DEEPSEEK_V3).bytes_per_token) == 57


def test_a_calculator_that_gives_linear_layers_keys_is_off_by_4() -> None:
    assert (
        naive.every_layer_full(models.QWEN3_NEXT_80B) == 4 * laid_out(models.QWEN3_NEXT_80B).bytes_per_token
    )


def test_an_fp8_cache_does_not_double_a_hybrid() -> None:
    """States stay in 16 bits, and their pages with them: 544 tokens of 16 bits hold what 1,088 of 8 bits do."""
    length = 8_192
    plain = laid_out(models.QWEN3_NEXT_80B).size(16 * GIB).requests(length)
    halved = laid_out(models.QWEN3_NEXT_80B, kv_cache_dtype="fp8").size(16 * GIB).requests(length)
    assert 1 < halved / plain < 1.9


def test_chunked_attention_keeps_every_token_by_default() -> None:
    assert laid_out(models.LLAMA_4_SCOUT).bytes_per_token == 2 * 8 * 128 * 2 * 48
    assert architecture(models.LLAMA_4_SCOUT).attention == (
        "grouped-query (8 KV heads for 40), 36 chunked 8,192, 12 full"
    )


@pytest.mark.parametrize(
    ("version", "stages", "batches"),
    [("0.25.1", 1, 1), ("0.26.0", 1, 2), ("0.28.0", 4, 4), ("0.29.0", 4, 5), ("0.32.0", 1, 2)],
)
def test_batches_in_flight_that_a_window_must_hold(version: str, stages: int, batches: int) -> None:
    chosen = Settings(version=Version(version), pipeline_parallel_size=stages)
    assert chosen.batches_in_flight == batches
    assert Settings(version=Version(version), async_scheduling=False).batches_in_flight == 1
    assert Settings(version=Version(version), device=Device.CPU).batches_in_flight == 1


def test_on_the_cpu_a_block_is_128_tokens() -> None:
    assert laid_out(models.LLAMA_3_1_8B, device=Device.CPU).block_size == 128
    assert (
        laid_out(models.DEEPSEEK_V3, device=Device.CPU, block_size=64).block_size == 16
    )  # whatever is asked


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            {"model_type": "llama", "num_hidden_layers": "32"},
            "num_hidden_layers: expected a positive whole number, found '32'",
        ),
        (
            {"model_type": "new"},
            "num_hidden_layers is missing, and the type new has no default for it that is known",
        ),
        (
            {**models.LLAMA_3_1_8B, "layer_types": ["full_attention", "holographic"]},
            "layer_types: what a layer of kind holographic keeps is not known",
        ),
        (
            {**models.LLAMA_3_1_8B, "layer_types": ["full_attention"]},
            "layer_types names 1 layers, num_hidden_layers is 32",
        ),
        (
            {**models.LLAMA_3_1_8B, "layer_types": ["mamba"] * 32},
            "what a state layer of llama keeps is not known here",
        ),
        (
            {**models.LLAMA_3_1_8B, "kv_lora_rank": 512},
            "kv_lora_rank: whether vLLM serves llama with latent attention is not known",
        ),
        (
            {**models.DEEPSEEK_V3, "compress_ratios": [4]},
            "compress_ratios: how vLLM caches compressed attention is not known here",
        ),
        (
            {**models.LLAMA_3_1_8B, "num_hidden_layers": 10**9},
            "num_hidden_layers: 1,000,000,000 is no number of layers of a model",
        ),
        (
            {"model_type": "t5", "is_encoder_decoder": True},
            "t5 is an encoder-decoder model; its cross attention is not planned here",
        ),
    ],
)
def test_what_is_not_known_is_refused_in_one_line(config: dict[str, Any], message: str) -> None:
    with pytest.raises(PlanError) as failure:
        architecture(config)
    assert str(failure.value) == f"config.json: {message}"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"dtype": "int3"}, "--dtype int3: not known; one of auto, half, float16, bfloat16, float, float32"),
        ({"kv_cache_dtype": "fp8_ds_mla"}, "--kv-cache-dtype fp8_ds_mla is for latent attention only"),
        (
            {"tensor_parallel_size": 3},
            "--tensor-parallel-size 3 does not divide the model's 32 attention heads",
        ),
        (
            {"tensor_parallel_size": 8, "decode_context_parallel_size": 8},
            "--decode-context-parallel-size 8: at most 1 with 8 devices for 8 KV heads",
        ),
        ({"pipeline_parallel_size": 64}, "--pipeline-parallel-size 64: the model has 32 layers"),
    ],
)
def test_settings_that_do_not_suit_the_model_are_one_line(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(PlanError) as failure:
        laid_out(models.LLAMA_3_1_8B, **settings)
    assert str(failure.value) == message
