"""How much memory a model's weights take on one device: exact from their headers, else estimated with a range."""

from __future__ import annotations

from dataclasses import dataclass

from vllm_length_exporter.planner.dtypes import model_bytes
from vllm_length_exporter.planner.fields import Config, inner, number
from vllm_length_exporter.planner.reading import ModelFiles
from vllm_length_exporter.planner.safetensors import loaded_bytes
from vllm_length_exporter.planner.settings import Settings
from vllm_length_exporter.vllm.model_config import text_config


@dataclass(frozen=True, slots=True)
class Span:
    """From at least to at most; both the same where the number is exact."""

    low: int
    high: int

    @property
    def exact(self) -> bool:
        return self.low == self.high

    def __add__(self, other: Span) -> Span:
        return Span(self.low + other.low, self.high + other.high)


@dataclass(frozen=True, slots=True)
class Part:
    """One use of a device's memory, in bytes, and where the number comes from."""

    name: str
    bytes: Span
    source: str


# Bits of a weight with its scales, by quant_method; None is: as `bits` in the configuration says.
QUANTISED_BITS = {
    "fp8": 8.1,
    "fbgemm_fp8": 8.1,
    "mxfp4": 4.25,
    "modelopt_fp4": 4.5,
    "gptq": None,
    "awq": None,
}
DENSE_ERROR, SPARSE_ERROR, QUANTISED_ERROR = 0.05, 0.1, 0.15
UNEVEN = 0.03  # what is replicated on all devices of an engine


def weights(files: ModelFiles, settings: Settings) -> Part | None:
    """The weights on the fullest device, or None where nothing is known of them."""
    text = text_config(files.config)
    layers = number(text, "num_hidden_layers") or 10_000
    quantised = bool(files.config.get("quantization_config") or text.get("quantization_config"))
    if files.tensors is not None:
        total = loaded_bytes(files.tensors, None if quantised else model_bytes(settings.dtype), layers)
        return Part("weights", _on_one(Span(total, total), settings, layers), "safetensors headers")
    if files.stated_bytes is not None:
        total = files.stated_bytes
        return Part("weights", _on_one(Span(total, total), settings, layers), "safetensors index")
    estimate = _estimate(text, files.config, settings)
    return (
        None
        if estimate is None
        else Part("weights", _on_one(estimate, settings, layers), "estimate from config.json")
    )


def _on_one(total: Span, settings: Settings, layers: int) -> Span:
    if settings.devices == 1:
        return total
    stage = -(-layers // settings.pipeline_parallel_size) / layers
    share = stage / settings.tensor_parallel_size
    return Span(int(total.low * share), int(total.high * share * (1 + UNEVEN)))


def parameters(text: Config) -> int | None:
    """About how many parameters a decoder with gated MLPs has, or None where the configuration does not say."""
    layers, hidden = number(text, "num_hidden_layers"), number(text, "hidden_size")
    heads, vocabulary = number(text, "num_attention_heads"), number(text, "vocab_size")
    dense = number(text, "intermediate_size")
    if layers is None or hidden is None or heads is None or vocabulary is None or dense is None:
        return None
    embeddings = _embeddings(text)
    experts = next((number(text, key) for key in EXPERTS if number(text, key)), None)
    first = number(text, "first_k_dense_replace") or 0
    if experts is None:
        mlps = layers * 3 * hidden * dense
    else:
        width = number(text, "moe_intermediate_size") or dense
        shared = number(text, "n_shared_experts") or 0
        shared_width = number(text, "shared_expert_intermediate_size") or shared * width
        sparse = experts * 3 * hidden * width + 3 * hidden * shared_width + experts * hidden
        mlps = first * 3 * hidden * dense + (layers - first) * sparse
    return embeddings + layers * _attention(text, hidden, heads) + mlps


def _embeddings(text: Config) -> int:
    tables = 1 if text.get("tie_word_embeddings") is True else 2
    return (number(text, "vocab_size") or 0) * (number(text, "hidden_size") or 0) * tables


EXPERTS = ("num_local_experts", "n_routed_experts", "num_experts", "moe_num_experts")


def _attention(text: Config, hidden: int, heads: int) -> int:
    rank = number(text, "kv_lora_rank")
    if rank is not None:
        nope, rope = number(text, "qk_nope_head_dim") or 128, number(text, "qk_rope_head_dim") or 64
        value, query = number(text, "v_head_dim") or 128, number(text, "q_lora_rank")
        queries = heads * (nope + rope) * (query or hidden) + (hidden * query if query else 0)
        return queries + hidden * (rank + rope) + rank * heads * (nope + value) + heads * value * hidden
    width = number(text, "head_dim") or hidden // heads
    return 2 * hidden * width * (heads + (number(text, "num_key_value_heads") or heads))


def _estimate(text: Config, config: Config, settings: Settings) -> Span | None:
    count = parameters(text)
    if count is None or config.get("vision_config"):
        return None  # a tower of unknown size would be missing
    quantisation = inner(config, "quantization_config")
    if quantisation:
        method = str(quantisation.get("quant_method", ""))
        bits = QUANTISED_BITS.get(method) or number(quantisation, "bits")
        if bits is None:
            return None
        plain = _embeddings(text)  # stay as they are
        return _around(plain * model_bytes(settings.dtype) + (count - plain) * bits / 8, QUANTISED_ERROR)
    sparse = any(number(text, key) for key in EXPERTS)
    return _around(count * model_bytes(settings.dtype), SPARSE_ERROR if sparse else DENSE_ERROR)


def _around(value: float, error: float) -> Span:
    return Span(int(value * (1 - error)), int(value * (1 + error)))
