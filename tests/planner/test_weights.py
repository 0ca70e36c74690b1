"""Weights from safetensors headers, which are written here byte by byte, and estimates where there are none."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.planner import models
from vllm_length_exporter.planner.error import PlanError
from vllm_length_exporter.planner.reading import ModelFiles, read_model
from vllm_length_exporter.planner.safetensors import read_header
from vllm_length_exporter.planner.settings import Settings
from vllm_length_exporter.planner.weights import parameters, weights
from vllm_length_exporter.vllm.model_config import text_config

SIZES = {"F32": 4, "BF16": 2, "F8_E4M3": 1, "U8": 1}


def write(path: Path, tensors: dict[str, tuple[str, list[int]]]) -> int:
    """A safetensors file without the tensors' bytes; returns what they would take."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, (dtype, shape) in tensors.items():
        size = SIZES[dtype]
        for dimension in shape:
            size *= dimension
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, offset + size]}
        offset += size
    body = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(body)) + body)
    return offset


def folder(path: Path, config: dict[str, Any]) -> Path:
    path.mkdir(exist_ok=True)
    (path / "config.json").write_text(json.dumps(config))
    return path


def exact(files: ModelFiles, **settings: Any) -> int:
    part = weights(files, Settings(**settings))
    assert part is not None
    assert part.bytes.exact
    return part.bytes.low


LAYERS = {f"model.layers.{i}.mlp.weight": ("BF16", [64, 128]) for i in range(32)}


def test_the_headers_of_all_shards_are_summed(tmp_path: Path) -> None:
    model = folder(tmp_path / "m", models.LLAMA_3_1_8B)
    first = write(model / "model-00001-of-00002.safetensors", {"model.embed.weight": ("BF16", [1000, 64])})
    second = write(model / "model-00002-of-00002.safetensors", dict(LAYERS))
    write(model / "consolidated.safetensors", {"again": ("BF16", [1000, 64])})
    files = read_model(model)
    assert exact(files) == first + second
    assert weights(files, Settings()).source == "safetensors headers"  # type: ignore[union-attr]


def test_the_index_says_which_files_count(tmp_path: Path) -> None:
    model = folder(tmp_path / "m", models.LLAMA_3_1_8B)
    size = write(model / "a.safetensors", {"x": ("BF16", [10, 10])})
    write(model / "other.safetensors", {"y": ("BF16", [10, 10])})
    index = {"metadata": {"total_size": 999}, "weight_map": {"x": "a.safetensors"}}
    (model / "model.safetensors.index.json").write_text(json.dumps(index))
    assert exact(read_model(model)) == size


def test_where_a_shard_is_missing_the_index_s_total_counts(tmp_path: Path) -> None:
    model = folder(tmp_path / "m", models.LLAMA_3_1_8B)
    index = {"metadata": {"total_size": 16_060_522_496}, "weight_map": {"x": "not-downloaded.safetensors"}}
    (model / "model.safetensors.index.json").write_text(json.dumps(index))
    found = weights(read_model(model), Settings())
    assert found is not None
    assert (found.bytes.low, found.source) == (16_060_522_496, "safetensors index")


def test_floats_take_what_dtype_says_and_quantised_numbers_stay(tmp_path: Path) -> None:
    plain = folder(tmp_path / "plain", models.LLAMA_3_1_8B)
    write(plain / "model.safetensors", {"x": ("F32", [100]), "y": ("BF16", [100])})
    assert exact(read_model(plain)) == 400  # auto serves a float32 model in 16 bits
    assert exact(read_model(plain), dtype="float32") == 800
    quantised = folder(
        tmp_path / "fp8", {**models.LLAMA_3_1_8B, "quantization_config": {"quant_method": "fp8"}}
    )
    write(quantised / "model.safetensors", {"x": ("F8_E4M3", [100]), "scale": ("F32", [10])})
    assert exact(read_model(quantised)) == 140


def test_the_layers_of_a_draft_model_are_not_loaded(tmp_path: Path) -> None:
    model = folder(tmp_path / "m", {**models.DEEPSEEK_V3, "num_hidden_layers": 2})
    write(
        model / "model.safetensors",
        {f"model.layers.{i}.x": ("BF16", [100]) for i in (0, 1, 2)} | {"vision.layers.7.x": ("BF16", [1])},
    )
    assert exact(read_model(model)) == 402


def test_devices_share_the_weights_but_not_evenly(tmp_path: Path) -> None:
    model = folder(tmp_path / "m", {**models.LLAMA_3_1_8B, "num_hidden_layers": 10})
    write(model / "model.safetensors", {"x": ("BF16", [500])})
    part = weights(read_model(model), Settings(tensor_parallel_size=2, pipeline_parallel_size=4))
    assert part is not None
    # 10 layers on 4 stages: 3 on the fullest
    assert part.bytes.low == 1000 * 3 // 10 // 2
    assert part.bytes.high > part.bytes.low


@pytest.mark.parametrize(
    ("config", "published"),
    [
        (models.LLAMA_3_1_8B, 8.03e9),
        (models.LLAMA_3_1_70B, 70.6e9),
        (models.QWEN2_5_7B, 7.62e9),
        (models.QWEN3_32B, 32.8e9),
        (models.MISTRAL_7B, 7.25e9),
        (models.PHI_3_MINI_4K, 3.82e9),
        (models.GPT_OSS_20B, 20.9e9),
        (
            {**models.DEEPSEEK_V3, "first_k_dense_replace": 3, "n_shared_experts": 1, "q_lora_rank": 1536},
            671e9,
        ),
    ],
)
def test_the_estimate_holds_the_published_number_of_parameters(
    config: dict[str, Any], published: float
) -> None:
    count = parameters(text_config(config))
    assert count is not None
    assert abs(count - published) / published < 0.01
    part = weights(ModelFiles(config), Settings())
    assert part is not None
    assert part.bytes.low < 2 * published < part.bytes.high
    assert part.source == "estimate from config.json"


def test_no_estimate_where_a_part_of_the_model_is_not_described() -> None:
    assert weights(ModelFiles({**models.LLAMA_3_1_8B, "vision_config": {"depth": 32}}), Settings()) is None
    assert weights(ModelFiles({"model_type": "llama"}), Settings()) is None
    unknown = {**models.LLAMA_3_1_8B, "quantization_config": {"quant_method": "secret"}}
    assert weights(ModelFiles(unknown), Settings()) is None


def test_a_quantised_model_is_estimated_by_its_bits_but_its_embeddings_stay() -> None:
    quantisation = {"quant_method": "awq", "bits": 4}
    part = weights(ModelFiles({**models.LLAMA_3_1_8B, "quantization_config": quantisation}), Settings())
    assert part is not None
    assert part.bytes.low < 5.73e9 < part.bytes.high  # as published
    oss = weights(
        ModelFiles({**models.GPT_OSS_20B, "quantization_config": {"quant_method": "mxfp4"}}), Settings()
    )
    assert oss is not None
    assert oss.bytes.low < 13.76e9 < oss.bytes.high


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "no safetensors file: its header would be 0 bytes long"),
        (b"\xff" * 64, "no safetensors file: its header would be 18,446,744,073,709,551,615 bytes long"),
        (struct.pack("<Q", 4) + b"nope", "no safetensors file: its header is not JSON"),
        (struct.pack("<Q", 2) + b"[]", "no safetensors file: its header is not a JSON object"),
        (struct.pack("<Q", 7) + b'{"x":1}', "no safetensors file: the entry of 'x' makes no sense"),
    ],
)
def test_what_is_no_safetensors_file_is_one_line(tmp_path: Path, body: bytes, message: str) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(body)
    with pytest.raises(PlanError) as failure:
        read_header(path)
    assert str(failure.value) == f"{path}: {message}"


@given(st.binary(max_size=200), st.booleans())
def test_any_bytes_are_tensors_or_one_line(
    tmp_path_factory: pytest.TempPathFactory, body: bytes, framed: bool
) -> None:
    path = tmp_path_factory.mktemp("any") / "x.safetensors"
    path.write_bytes(struct.pack("<Q", len(body)) + body if framed else body)
    complaint = ""
    try:
        read_header(path)
    except PlanError as error:
        complaint = str(error)
    assert "\n" not in complaint


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ("{", "not JSON: Expecting property name enclosed in double quotes (line 1)"),
        ("{}", "weight_map: expected an object of file names"),
        ('{"weight_map": {"x": "../../etc/passwd"}}', "weight_map: names a file outside of the folder"),
    ],
)
def test_a_broken_index_is_one_line(tmp_path: Path, index: str, message: str) -> None:
    model = folder(tmp_path / "m", models.LLAMA_3_1_8B)
    (model / "model.safetensors.index.json").write_text(index)
    with pytest.raises(PlanError) as failure:
        read_model(model)
    assert str(failure.value) == f"{model / 'model.safetensors.index.json'}: {message}"
