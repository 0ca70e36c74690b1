"""The fixed state of layers without keys and values, by the model's type (vLLM 0.10-0.32)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from vllm_length_exporter.planner.error import PlanError
from vllm_length_exporter.planner.fields import Config, inner, needed, number
from vllm_length_exporter.planner.layers import State


def state(config: Config) -> State:
    """What one state layer keeps for a request.

    Raises:
        PlanError: the model's type is not known to have such layers, or a number is missing; one line.
    """
    kind = str(config.get("model_type", "unknown"))
    shape = SHAPES.get(kind)
    if shape is None:
        raise PlanError(f"config.json: what a state layer of {kind} keeps is not known here")
    return shape(config)


def _gated_delta_net(config: Config) -> State:
    key_heads, key_dim = needed(config, "linear_num_key_heads"), needed(config, "linear_key_head_dim")
    value_heads, value_dim = needed(config, "linear_num_value_heads"), needed(config, "linear_value_head_dim")
    return State(
        conv_width=2 * key_heads * key_dim + value_heads * value_dim,
        conv_length=needed(config, "linear_conv_kernel_dim") - 1,
        heads=value_heads,
        head_numbers=key_dim * value_dim,
        recurrent_dtype=_dtype(config, "mamba_ssm_dtype"),
    )


def _mamba1(width: Callable[[Config], int], size: str, kernel: str) -> Callable[[Config], State]:
    def shape(config: Config) -> State:
        inner_size = width(config)
        return State(
            conv_width=inner_size,
            conv_length=needed(config, kernel) - 1,
            heads=inner_size,
            head_numbers=needed(config, size),
        )

    return shape


def _mamba2(
    width: Callable[[Config], int], groups: str, heads: str, head_dim: str, size: str, kernel: str
) -> Callable[[Config], State]:
    def shape(config: Config) -> State:
        numbers = needed(config, size)
        return State(
            conv_width=width(config),
            conv_length=needed(config, kernel) - 1,
            heads=needed(config, heads),
            head_numbers=needed(config, head_dim) * numbers,
            groups=needed(config, groups),
            group_numbers=2 * numbers,
            recurrent_dtype=_nemotron_dtype(config) if config.get("model_type") == "nemotron_h" else None,
        )

    return shape


def _expanded(key: str) -> Callable[[Config], int]:
    return lambda config: (number(config, key) or 2) * needed(config, "hidden_size")


def _falcon_h1_width(config: Config) -> int:
    return number(config, "mamba_d_ssm") or _expanded("mamba_expand")(config)


def _short_convolution(config: Config) -> State:
    return State(
        number(config, "conv_dim") or needed(config, "hidden_size"), needed(config, "conv_L_cache") - 1
    )


def _kimi_delta(config: Config) -> State:
    part = inner(config, "linear_attn_config")
    heads, width = needed(part, "num_heads"), needed(part, "head_dim")
    return State(
        conv_width=3 * heads * width,
        conv_length=needed(part, "short_conv_kernel_size") - 1,
        heads=heads,
        head_numbers=width * width,
        recurrent_dtype="float32",
    )


def _nemotron_dtype(config: Config) -> str:
    return _dtype(config, "mamba_ssm_cache_dtype") or "float32"


def _dtype(config: Config, key: str) -> str | None:
    value = config.get(key)
    return value.removeprefix("torch.") if isinstance(value, str) else None


SHAPES: Mapping[str, Callable[[Config], State]] = {
    "bamba": _mamba2(
        _expanded("mamba_expand"),
        "mamba_n_groups",
        "mamba_n_heads",
        "mamba_d_head",
        "mamba_d_state",
        "mamba_d_conv",
    ),
    "falcon_h1": _mamba2(
        _falcon_h1_width, "mamba_n_groups", "mamba_n_heads", "mamba_d_head", "mamba_d_state", "mamba_d_conv"
    ),
    "falcon_mamba": _mamba1(lambda config: needed(config, "intermediate_size"), "state_size", "conv_kernel"),
    "granitemoehybrid": _mamba2(
        _expanded("mamba_expand"),
        "mamba_n_groups",
        "mamba_n_heads",
        "mamba_d_head",
        "mamba_d_state",
        "mamba_d_conv",
    ),
    "jamba": _mamba1(_expanded("mamba_expand"), "mamba_d_state", "mamba_d_conv"),
    "kimi_linear": _kimi_delta,
    "lfm2": _short_convolution,
    "lfm2_moe": _short_convolution,
    "mamba": _mamba1(lambda config: needed(config, "intermediate_size"), "state_size", "conv_kernel"),
    "mamba2": _mamba2(_expanded("expand"), "n_groups", "num_heads", "head_dim", "state_size", "conv_kernel"),
    "nemotron_h": _mamba2(
        lambda config: needed(config, "mamba_num_heads") * needed(config, "mamba_head_dim"),
        "n_groups",
        "mamba_num_heads",
        "mamba_head_dim",
        "ssm_state_size",
        "conv_kernel",
    ),
    "olmo_hybrid": _gated_delta_net,
    "qwen3_5_moe_text": _gated_delta_net,
    "qwen3_5_text": _gated_delta_net,
    "qwen3_next": _gated_delta_net,
}
