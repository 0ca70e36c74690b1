"""The calculators that people use, to show where they are wrong."""

from __future__ import annotations

from typing import Any


def without_grouped_query(config: dict[str, Any], bytes_each: int = 2) -> int:
    """Bytes per token as if every attention head had keys and values: 2 x layers x hidden size."""
    return 2 * int(config["num_hidden_layers"]) * int(config["hidden_size"]) * bytes_each


def every_layer_full(config: dict[str, Any], bytes_each: int = 2) -> int:
    """Bytes per token as if every layer kept every token: grouped queries, but no windows, no latent, no states."""
    heads = int(config["num_attention_heads"])
    width = int(config.get("head_dim") or config["hidden_size"] // heads)
    return 2 * int(config["num_hidden_layers"]) * int(config["num_key_value_heads"]) * width * bytes_each
