"""What a config.json may leave out: values that the model's configuration class fills in, by `model_type`.

Many published files hold only what differs from the class (`google/gemma-3-4b-it` names neither heads nor
length), and vLLM reads the class. Values are those of Transformers 5; a type that is not here has none for us.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType


def _row(
    length: int | None,
    layers: int,
    hidden: int,
    heads: int,
    kv_heads: int,
    head_dim: int | None = None,
    **more: object,
) -> Mapping[str, object]:
    row = {
        "max_position_embeddings": length,
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": head_dim,
        **more,
    }
    return MappingProxyType({key: value for key, value in row.items() if value is not None})


CLASS_DEFAULTS: Mapping[str, Mapping[str, object]] = MappingProxyType(
    {
        "cohere": _row(8192, 40, 8192, 64, 64),
        "cohere2": _row(8192, 40, 8192, 64, 64, 128, sliding_window=4096),
        "gemma": _row(8192, 28, 3072, 16, 16, 256),
        "gemma2": _row(8192, 26, 2304, 8, 4, 256, sliding_window=4096),
        "gemma3_text": _row(131072, 26, 2304, 8, 4, 256, sliding_window=4096),
        "gemma3n_text": _row(32768, 35, 2048, 8, 2, 256, sliding_window=512, num_kv_shared_layers=15),
        "glm4": _row(131072, 40, 4096, 32, 2, 128),
        "gpt_oss": _row(131072, 36, 2880, 64, 8, 64, sliding_window=128),
        "granite": _row(2048, 32, 4096, 32, 32),
        "llama": _row(2048, 32, 4096, 32, 32),
        "llama4_text": _row(131072, 48, 5120, 40, 8, 128, attention_chunk_size=8192),
        "mistral": _row(131072, 32, 4096, 32, 8, sliding_window=4096),
        "mixtral": _row(131072, 32, 4096, 32, 8),
        "mllama_text_model": _row(131072, 40, 4096, 32, 8),
        "olmo": _row(2048, 32, 4096, 32, 32),
        "olmo2": _row(2048, 32, 4096, 32, 32),
        "olmo3": _row(2048, 32, 4096, 32, 32, sliding_window=4096),
        "opt": _row(2048, 12, 768, 12, 12),
        "phi": _row(2048, 24, 2048, 32, 32),
        "phi3": _row(4096, 32, 3072, 32, 32),
        "phimoe": _row(131072, 32, 4096, 32, 8),
        "qwen2": _row(32768, 32, 4096, 32, 32, use_sliding_window=False, max_window_layers=28),
        "qwen2_5_vl_text": _row(32768, 80, 8192, 64, 8, use_sliding_window=False, max_window_layers=80),
        "qwen2_moe": _row(32768, 24, 2048, 16, 16, use_sliding_window=False, max_window_layers=28),
        "qwen2_vl_text": _row(32768, 80, 8192, 64, 8, use_sliding_window=False, max_window_layers=80),
        "qwen3": _row(32768, 32, 4096, 32, 32, 128, use_sliding_window=False, max_window_layers=28),
        "qwen3_moe": _row(32768, 24, 2048, 32, 4, use_sliding_window=False),
        "qwen3_next": _row(32768, 48, 2048, 16, 2, 256, full_attention_interval=4),
        "qwen3_vl_moe_text": _row(128000, 24, 2048, 16, 16, 128),
        "qwen3_vl_text": _row(128000, 32, 4096, 32, 32, 128),
        "smollm3": _row(32768, 36, 2048, 16, 4, use_sliding_window=False),
        "stablelm": _row(4096, 32, 2560, 32, 32),
        "starcoder2": _row(4096, 30, 3072, 24, 2),
    }
)

# Configuration classes that know no length at all: vLLM falls back to 2048 for them.
NO_LENGTH = frozenset({"bloom", "falcon_mamba", "mamba", "mamba2"})
