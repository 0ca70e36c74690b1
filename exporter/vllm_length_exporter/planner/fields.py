"""Reads the numbers of a config.json that the cache depends on, under the names that model families use."""

from __future__ import annotations

from collections.abc import Mapping

from vllm_length_exporter.planner.error import PlanError

Config = Mapping[str, object]

# Other names for the same number, the usual one first.
ALIASES: Mapping[str, tuple[str, ...]] = {
    "num_hidden_layers": ("num_hidden_layers", "n_layer", "n_layers", "num_layers"),
    "num_attention_heads": ("num_attention_heads", "n_head", "n_heads", "num_heads"),
    "hidden_size": ("hidden_size", "n_embd", "d_model", "n_embed"),
    "num_key_value_heads": (
        "num_key_value_heads",
        "n_head_kv",
        "num_kv_heads",
        "multi_query_group_num",
        "num_attention_groups",
    ),
    "head_dim": ("head_dim", "hidden_size_per_head", "kv_channels", "attention_head_dim"),
    "intermediate_size": ("intermediate_size", "n_inner", "ffn_hidden_size", "ffn_dim", "d_ff"),
}


def number(config: Config, key: str) -> int | None:
    """A positive whole number, or None where the key is absent, null or 0.

    Raises:
        PlanError: it holds something else; one line.
    """
    for name in ALIASES.get(key, (key,)):
        value = config.get(name)
        if value is None or (value == 0 and not isinstance(value, bool)):
            continue
        if isinstance(value, bool) or not isinstance(value, int | float) or value != value or value < 1:
            raise PlanError(f"config.json: {name}: expected a positive whole number, found {_shown(value)}")
        if value > 2**40 or int(value) != value:
            raise PlanError(f"config.json: {name}: {_shown(value)} is no number of a model's")
        return int(value)
    return None


def needed(config: Config, key: str) -> int:
    """The same, where nothing can be said without it."""
    found = number(config, key)
    if found is None:
        kind = config.get("model_type", "unknown")
        raise PlanError(
            f"config.json: {key} is missing, and the type {kind} has no default for it that is known"
        )
    return found


def names(config: Config, key: str) -> list[str] | None:
    """A list of texts, or None where the key is absent.

    Raises:
        PlanError: it holds something else; one line.
    """
    value = config.get(key)
    if value is None:
        return None
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise PlanError(f"config.json: {key}: expected a list of names, found {_shown(value)}")
    return value


def indices(config: Config, key: str) -> list[int] | None:
    """A list of whole numbers, or None where the key is absent. Raises PlanError as `names`."""
    value = config.get(key)
    if value is None:
        return None
    if not isinstance(value, list) or not all(type(item) is int for item in value):
        raise PlanError(f"config.json: {key}: expected a list of whole numbers, found {_shown(value)}")
    return value


def inner(config: Config, key: str) -> Config:
    """An object within the configuration; empty where it is absent. Raises PlanError as `names`."""
    value = config.get(key)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise PlanError(f"config.json: {key}: expected an object, found {_shown(value)}")
    return value


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
