"""Any config.json gives a layout that makes sense, or one line."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.planner import models
from vllm_length_exporter.planner.architecture import architecture
from vllm_length_exporter.planner.error import PlanError
from vllm_length_exporter.planner.plan import plan_model
from vllm_length_exporter.planner.pool import Layout, layout
from vllm_length_exporter.planner.reading import ModelFiles
from vllm_length_exporter.planner.settings import GIB, Settings

KNOWN = [value for name, value in vars(models).items() if name.isupper() and isinstance(value, dict)]
KEYS = sorted(
    {key for config in KNOWN for key in config} | {"layer_types", "quantization_config", "text_config"}
)
ANYTHING: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(
    st.sampled_from(KNOWN),
    st.dictionaries(st.sampled_from(KEYS), ANYTHING, max_size=3),
    st.sampled_from([1, 2, 8]),
)
def test_a_known_model_with_junk_in_its_keys(
    config: dict[str, Any], junk: dict[str, Any], devices: int
) -> None:
    complaint = ""
    try:
        plan_model(
            ModelFiles({**config, **junk}),
            Settings(kv_cache_memory_bytes=GIB, tensor_parallel_size=devices, max_model_len=4096),
        )
    except PlanError as error:
        complaint = str(error)
    assert "\n" not in complaint


@given(
    layers=st.integers(1, 80),
    kv_heads=st.sampled_from([1, 2, 4, 8]),
    groups=st.integers(1, 8),
    width=st.sampled_from([32, 64, 96, 128]),
    pattern=st.lists(st.sampled_from(["full_attention", "sliding_attention"]), min_size=1, max_size=7),
    window=st.integers(1, 5000),
    stages=st.integers(1, 4),
    length=st.integers(1, 200_000),
)
def test_any_mixture_of_layers(
    layers: int,
    kv_heads: int,
    groups: int,
    width: int,
    pattern: list[str],
    window: int,
    stages: int,
    length: int,
) -> None:
    """What a request needs never falls with its length, nor below its own keys and values."""
    config = {
        "model_type": "any",
        "num_hidden_layers": layers,
        "num_attention_heads": kv_heads * groups,
        "num_key_value_heads": kv_heads,
        "head_dim": width,
        "hidden_size": 4096,
        "sliding_window": window,
        "layer_types": [pattern[i % len(pattern)] for i in range(layers)],
    }
    found = cut(config, pipeline_parallel_size=min(stages, layers))
    full = config["layer_types"].count("full_attention")  # type: ignore[attr-defined]
    one = 2 * kv_heads * width * 2
    assert found.needed_bytes(length) >= full * length * one // min(stages, layers)
    assert found.blocks(length) <= found.blocks(length + 1)
    if stages == 1:
        assert found.bytes_per_token >= full * one
        assert found.bytes_per_token_within_windows >= layers * one
    # The groups hold each layer once.
    held = sorted(page.layer for group in found.groups for page in group.pages)
    assert held == list(range(layers))


def cut(config: dict[str, Any], **flags: Any) -> Layout:
    return layout(architecture(config), config, Settings(**flags))
