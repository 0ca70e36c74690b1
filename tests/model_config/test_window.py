"""The window that config.json derives, held against what real servers took and against the published models."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from packaging.version import Version

from tests.recorded import FOLDER, NAMES, truth
from vllm_length_exporter.vllm.model_config import (
    LENGTH_KEYS,
    Derived,
    ModelConfigError,
    accepts,
    read_config,
    text_config,
    window,
)

YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8192}
PHI3_128K = {
    "model_type": "phi3",
    "max_position_embeddings": 131072,
    "original_max_position_embeddings": 4096,
    "rope_scaling": {"type": "longrope", "short_factor": [1.0] * 48, "long_factor": [1.0] * 48},
}
VERSIONS = ["0.4.3", "0.8.5", "0.10.2", "0.11.2", "0.14.1", "0.16.0", "0.29.0", "0.30.0", "0.32.0"]


def derived(config: dict[str, Any], version: str | None = "0.32.0", **more: Any) -> Derived:
    found = window(config, None if version is None else Version(version), **more)
    assert found is not None
    return found


@pytest.mark.parametrize("name", NAMES)
def test_the_window_is_what_the_recorded_server_took(name: str) -> None:
    seen = truth(name)
    found = derived(seen["model_config"], seen["vllm_version"])
    models = seen.get("models")
    if "--max-model-len" not in seen["args"] and models:
        assert found.default_limit == models["data"][0]["max_model_len"]
    log = (truth_log(name)).splitlines()
    printed = [line.rsplit(" ", 1)[1] for line in log if "Using max model len" in line]
    if printed and "--max-model-len" not in seen["args"]:
        assert str(found.default_limit) == printed[0]
    refused = next((line for line in log if "greater than the derived max_model_len" in line), None)
    if refused is not None:
        asked = int(seen["args"][seen["args"].index("--max-model-len") + 1])
        assert f"({found.key}={float(found.window)}" in refused or f"({found.key}={found.window}" in refused
        assert not accepts(found, seen["model_config"], asked)


def truth_log(name: str) -> str:
    return (FOLDER / name / "server.log").read_text(encoding="utf-8", errors="replace")


@pytest.mark.parametrize(
    ("version", "expected"),
    [("0.16.0", 32768), ("0.26.0", 32768), ("0.29.0", 32768), ("0.30.0", 8192), ("0.32.0", 8192)],
)
def test_yarn_counts_from_the_original_length_until_0_29(version: str, expected: int) -> None:
    assert truth("0.32.0-yarn")["model_config"]["rope_scaling"] == YARN
    assert derived(truth("0.32.0-yarn")["model_config"], version).window == expected


def test_without_a_version_only_what_all_versions_agree_on_is_derived() -> None:
    assert (
        window({"model_type": "llama", "max_position_embeddings": 8192, "rope_scaling": YARN}, None) is None
    )
    assert window(PHI3_128K, None) is None
    assert derived({"model_type": "llama", "max_position_embeddings": 8192}, None).window == 8192
    linear = {"max_position_embeddings": 4096, "rope_scaling": {"type": "linear", "factor": 8.0}}
    assert derived(linear, None).window == 32768


def test_between_two_versions_that_were_read_both_must_agree() -> None:
    config = {"max_position_embeddings": 131072, "rope_scaling": {"rope_type": "llama3", "factor": 8.0}}
    assert window(config, Version("0.6.6")) is None  # 0.4.3 scales, 0.8.5 does not
    assert derived(config, "0.8.5").window == 131072
    assert derived(config, "0.4.3").window == 1048576


@pytest.mark.parametrize("version", ["0.30.0rc1", "0.32.0+cpu", "0.33.1.dev5+g1234567"])
def test_builds_count_as_the_release_that_they_lead_to(version: str) -> None:
    assert derived({"max_position_embeddings": 8192, "rope_scaling": YARN}, version).window == 8192


@pytest.mark.parametrize("key", LENGTH_KEYS)
@pytest.mark.parametrize("version", VERSIONS)
def test_each_key_of_vllm_s_counts_alone(key: str, version: str) -> None:
    assert derived({key: 12345}, version) == Derived(12345, 12345, key)


def test_the_smallest_key_decides_but_model_max_length_replaces_it() -> None:
    assert derived({"max_position_embeddings": 8192, "seq_length": 4096}).key == "seq_length"
    command_r = {"max_position_embeddings": 8192, "model_max_length": 131072}
    assert derived(command_r) == Derived(131072, 131072, "model_max_length")
    assert derived({"max_position_embeddings": 8192, "model_max_length": 4096}).window == 4096


def test_longrope_defaults_to_the_original_length_and_accepts_the_whole() -> None:
    found = derived(PHI3_128K, "0.11.2")
    assert (found.window, found.default_limit, found.rope_type) == (131072, 4096, "longrope")
    assert accepts(found, PHI3_128K, 131072)
    assert not accepts(found, PHI3_128K, 131073)
    assert derived(PHI3_128K, "0.10.2").default_limit == 131072


def test_gemma3_is_scaled_already() -> None:
    config = {"model_type": "gemma3_text", "max_position_embeddings": 131072}
    assert derived({**config, "rope_scaling": {"rope_type": "linear", "factor": 8.0}}).window == 131072
    assert (
        derived(
            {**config, "model_type": "llama", "rope_scaling": {"rope_type": "linear", "factor": 8.0}}
        ).window
        == 1048576
    )


def test_what_the_file_leaves_out_comes_from_the_model_s_class() -> None:
    gemma = {"model_type": "gemma3", "text_config": {"model_type": "gemma3_text", "num_hidden_layers": 34}}
    assert derived(gemma).window == 131072
    assert text_config(gemma)["num_attention_heads"] == 8
    llava = {"model_type": "llava", "text_config": {"model_type": "llama", "max_position_embeddings": 4096}}
    assert derived(llava).window == 4096


def test_the_nested_configuration_counts_and_not_the_outer_one() -> None:
    nested = {
        "max_position_embeddings": 999,
        "text_config": {"model_type": "x", "max_position_embeddings": 4096},
    }
    assert derived(nested).window == 4096
    thinker = {"thinker_config": {"text_config": {"max_position_embeddings": 32768}}}
    assert derived(thinker).window == 32768


def test_rope_parameters_may_be_nested_by_layer_type_and_the_last_factor_wins() -> None:
    nested = {
        "full_attention": {"rope_type": "linear", "factor": 2.0},
        "sliding_attention": {"rope_type": "linear", "factor": 4.0},
    }
    assert derived({"max_position_embeddings": 1000, "rope_parameters": nested}).window == 4000
    assert derived({"max_position_embeddings": 1000, "rope_parameters": nested}, "0.11.2").window == 1000


def test_a_model_that_knows_no_length_gets_2048_and_takes_any() -> None:
    found = derived({"model_type": "bloom"})
    assert (found.window, found.key) == (2048, None)
    assert accepts(found, {"model_type": "bloom"}, 10**6)


def test_nothing_is_derived_from_a_file_that_names_no_length() -> None:
    assert window({"model_type": "brand_new"}, Version("0.32.0")) is None


def test_yarn_without_an_original_length() -> None:
    config = {"max_position_embeddings": 8192, "rope_scaling": {"rope_type": "yarn", "factor": 4.0}}
    assert window(config, Version("0.10.2")) is None  # this vLLM stops with a KeyError
    assert derived(config, "0.20.2").window == 32768


def test_sentence_transformers_and_the_tokenizer_of_a_pooling_model() -> None:
    bert = {
        "architectures": ["RobertaModel"],
        "max_position_embeddings": 514,
        "position_embedding_type": "absolute",
    }
    assert window(bert, Version("0.32.0")) is None
    assert derived(bert, tokenizer={"model_max_length": 512}).window == 512
    assert derived(bert, tokenizer={"model_max_length": 10**30}).window == 514
    assert (
        derived({"max_position_embeddings": 8192}, sentence_transformers={"max_seq_length": 256}).window
        == 256
    )


def test_disable_sliding_window() -> None:
    config = {"max_position_embeddings": 32768, "sliding_window": 4096}
    assert derived(config, disable_sliding_window=True) == Derived(4096, 4096, "sliding_window")
    assert derived({**config, "sliding_window": 0}, disable_sliding_window=True).window == 32768


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "m/config.json: not JSON: Expecting value (line 1)"),
        (b"{", "m/config.json: not JSON: Expecting property name enclosed in double quotes (line 1)"),
        (b"[1]", "m/config.json: expected a JSON object, found a list"),
        (b"null", "m/config.json: expected a JSON object, found null"),
        (b"\xff\xfe\x00", "m/config.json: not JSON: neither UTF-8 text nor numbers of a sane size"),
        (
            b'{"a":' + b"9" * 5000 + b"}",
            "m/config.json: not JSON: neither UTF-8 text nor numbers of a sane size",
        ),
        (b"[" * 100_000, "m/config.json: nested too deeply to be a model's configuration"),
    ],
)
def test_a_malformed_file_is_one_line(body: bytes, message: str) -> None:
    with pytest.raises(ModelConfigError) as failure:
        read_config(body, "m/config.json")
    assert str(failure.value) == message


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            {"max_position_embeddings": "8192"},
            "max_position_embeddings: expected a positive number, found '8192'",
        ),
        (
            {"max_position_embeddings": True},
            "max_position_embeddings: expected a positive number, found True",
        ),
        ({"seq_length": -1}, "seq_length: expected a positive number, found -1"),
        ({"n_positions": [1]}, "n_positions: expected a positive number, found a list"),
        ({"n_positions": 1, "rope_scaling": "yarn"}, "rope_scaling: expected an object, found a text"),
        (
            {"n_positions": 1, "rope_scaling": {"type": "linear", "factor": "x"}},
            "rope factor: expected a positive number, found 'x'",
        ),
    ],
)
def test_a_wrong_value_is_one_line_that_names_the_key(config: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelConfigError, match=r"^config\.json: ") as failure:
        window(config, Version("0.32.0"))
    assert str(failure.value) == f"config.json: {message}"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
KEYS = [
    *LENGTH_KEYS,
    "rope_scaling",
    "rope_parameters",
    "sliding_window",
    "model_type",
    "text_config",
    "architectures",
]
INNER = ["rope_type", "type", "factor", "original_max_position_embeddings"]


@given(
    st.dictionaries(st.sampled_from(KEYS), JSON | st.dictionaries(st.sampled_from(INNER), JSON)),
    st.sampled_from(VERSIONS),
)
@example({"n_positions": 10**400, "rope_scaling": {"type": "linear", "factor": 10**400}}, "0.32.0")
@example({"n_positions": 8192, "rope_scaling": {"type": "linear", "factor": 1e308}}, "0.32.0")
@example({"n_positions": 8192, "rope_scaling": {"type": "linear", "factor": 1e-308}}, "0.32.0")
def test_any_object_gives_a_window_or_nothing_or_one_line(config: dict[str, Any], version: str) -> None:
    complaint, found = "", None
    try:
        found = window(config, Version(version))
    except ModelConfigError as error:
        complaint = str(error)
    assert "\n" not in complaint
    assert found is None or (found.window >= 1 and found.default_limit >= 1)


@given(st.binary(max_size=64))
def test_any_bytes_are_an_object_or_one_line(body: bytes) -> None:
    complaint, found = "config.json: ", None
    try:
        found = read_config(body)
    except ModelConfigError as error:
        complaint = str(error)
    assert complaint.startswith("config.json: ")
    assert "\n" not in complaint
    assert found is None or found == json.loads(body)
