"""Which kind of layer is where: from `layer_types`, or by the rule of the model's type.

Kinds: "full", "sliding", "chunked", "state" (Mamba, linear attention, convolution), "both" (state and full
attention in one layer) and "none" (keeps nothing).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from vllm_length_exporter.planner.error import PlanError
from vllm_length_exporter.planner.fields import Config, indices, inner, names, needed, number

KINDS: Mapping[str, str] = {
    "attention": "full",
    "full_attention": "full",
    "indexed_attention": "full",  # sparse attention still keeps every token
    "deepseek_sparse_attention": "full",
    "qwen_sparse_attention": "full",
    "sliding_attention": "sliding",
    "chunked_attention": "chunked",
    "linear_attention": "state",
    "mamba": "state",
    "mamba2": "state",
    "conv": "state",
    "hybrid": "both",
    "mlp": "none",
    "moe": "none",
}


def layer_kinds(config: Config) -> list[str]:
    """The kind of every layer.

    Raises:
        PlanError: a kind is not known; one line.
    """
    layers = needed(config, "num_hidden_layers")
    if layers > 10_000:
        raise PlanError(f"config.json: num_hidden_layers: {layers:,} is no number of layers of a model")
    for key in ("layer_types", "layers_block_type"):
        listed = names(config, key)
        if listed:
            return _listed(listed, key, layers)
    rule = RULES.get(str(config.get("model_type")))
    found = rule(config, layers) if rule else _by_window(config, layers)
    if len(found) != layers:
        raise PlanError(f"config.json: {len(found)} layers are described, num_hidden_layers is {layers}")
    return found


def _listed(listed: list[str], key: str, layers: int) -> list[str]:
    unknown = sorted(set(listed) - KINDS.keys())
    if unknown:
        raise PlanError(f"config.json: {key}: what a layer of kind {unknown[0]} keeps is not known")
    if len(listed) < layers:
        raise PlanError(f"config.json: {key} names {len(listed)} layers, num_hidden_layers is {layers}")
    return [KINDS[name] for name in listed[:layers]]  # more than that are layers of a draft model


def _by_window(config: Config, layers: int) -> list[str]:
    """All layers alike: sliding where the configuration has a window, as vLLM then takes it for all."""
    if config.get("use_sliding_window") is False or number(config, "sliding_window") is None:
        return ["full"] * layers
    return ["sliding"] * layers


def _every(period: int, usual: str, last_full: bool = False) -> Callable[[Config, int], list[str]]:
    """Every `period`-th layer is full, the others are `usual`."""

    def rule(config: Config, layers: int) -> list[str]:
        step = (
            number(config, "sliding_window_pattern") if _is_count(config, "sliding_window_pattern") else None
        )
        found = ["full" if (i + 1) % (step or period) == 0 else usual for i in range(layers)]
        return [*found[:-1], "full"] if last_full else found

    return rule


def _is_count(config: Config, key: str) -> bool:
    return type(config.get(key)) is int


def _by_letters(config: Config, layers: int) -> list[str]:
    """`sliding_window_pattern` as letters: LLLG is three local layers and a global one."""
    pattern = config.get("sliding_window_pattern")
    if number(config, "sliding_window") is None:
        return ["full"] * layers
    if isinstance(pattern, str) and pattern:
        period = len(pattern)
        return ["full" if (i + 1) % period == 0 else "sliding" for i in range(layers)]
    return _every(4, "sliding")(config, layers)


def _after_window_layers(config: Config, layers: int) -> list[str]:
    """Qwen 2 and its like: a window only where it is switched on, from layer `max_window_layers` on."""
    if config.get("use_sliding_window") is not True or number(config, "sliding_window") is None:
        return ["full"] * layers
    first = number(config, "max_window_layers") or 0
    return ["sliding" if i >= first else "full" for i in range(layers)]


def _llama4(config: Config, layers: int) -> list[str]:
    marks = indices(config, "no_rope_layers")
    if not marks:
        step = number(config, "no_rope_layer_interval") or 4
        marks = [int((i + 1) % step != 0) for i in range(layers)]
    if number(config, "attention_chunk_size") is None:
        return ["full"] * len(marks)
    return ["chunked" if mark else "full" for mark in marks]


def _interval(config: Config, layers: int) -> list[str]:
    step = number(config, "full_attention_interval") or 4
    return ["full" if (i + 1) % step == 0 else "state" for i in range(layers)]


def _jamba(config: Config, layers: int) -> list[str]:
    period = number(config, "attn_layer_period") or 8
    offset = number(config, "attn_layer_offset") if config.get("attn_layer_offset") != 0 else 0
    return ["full" if i % period == (4 if offset is None else offset) else "state" for i in range(layers)]


def _bamba(config: Config, layers: int) -> list[str]:
    full = indices(config, "attn_layer_indices") or []
    return ["full" if i in full else "state" for i in range(layers)]


def _lfm2(config: Config, layers: int) -> list[str]:
    full = indices(config, "full_attn_idxs")
    return ["full" if full is None or i in full else "state" for i in range(layers)]


def _nemotron_h(config: Config, layers: int) -> list[str]:
    pattern = config.get("hybrid_override_pattern")
    letters = {"M": "state", "*": "full", "-": "none", "E": "none"}
    if not isinstance(pattern, str) or not set(pattern) <= letters.keys():
        raise PlanError("config.json: hybrid_override_pattern: expected a text of M, *, - and E")
    del layers
    return [letters[letter] for letter in pattern]


def _kimi_linear(config: Config, layers: int) -> list[str]:
    full = indices(inner(config, "linear_attn_config"), "full_attn_layers")
    if full is None:
        raise PlanError("config.json: linear_attn_config.full_attn_layers is missing")
    return ["full" if i + 1 in full else "state" for i in range(layers)]  # they count from 1


RULES: Mapping[str, Callable[[Config, int], list[str]]] = {
    "afmoe": _every(4, "sliding"),
    "bamba": _bamba,
    "cohere2": _every(4, "sliding"),
    "exaone4": _by_letters,
    "exaone_moe": _by_letters,
    "falcon_h1": lambda _, layers: ["both"] * layers,
    "falcon_mamba": lambda _, layers: ["state"] * layers,
    "gemma2": lambda _, layers: ["sliding" if i % 2 == 0 else "full" for i in range(layers)],
    "gemma3_text": _every(6, "sliding"),
    "gemma3n_text": _every(5, "sliding"),
    "gpt_oss": lambda _, layers: ["sliding" if i % 2 == 0 else "full" for i in range(layers)],
    "jamba": _jamba,
    "kimi_linear": _kimi_linear,
    "lfm2": _lfm2,
    "lfm2_moe": _lfm2,
    "llama4_text": _llama4,
    "mamba": lambda _, layers: ["state"] * layers,
    "mamba2": lambda _, layers: ["state"] * layers,
    "nemotron_h": _nemotron_h,
    "olmo3": _every(4, "sliding"),
    "qwen2": _after_window_layers,
    "qwen2_5_vl_text": _after_window_layers,
    "qwen2_moe": lambda _, layers: ["full"] * layers,
    "qwen2_vl_text": _after_window_layers,
    "qwen3": _after_window_layers,
    "qwen3_5_moe_text": _interval,
    "qwen3_5_text": _interval,
    "qwen3_moe": lambda _, layers: ["full"] * layers,
    "qwen3_next": _interval,
    "smollm3": lambda _, layers: ["full"] * layers,
}
