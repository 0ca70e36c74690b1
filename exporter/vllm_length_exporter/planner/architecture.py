"""From a config.json to the layers that keep something, and what kind of attention that is."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from vllm_length_exporter.planner.error import PlanError
from vllm_length_exporter.planner.fields import Config, needed, number
from vllm_length_exporter.planner.layers import Attention, Cache, Latent, Layer, Reach, State
from vllm_length_exporter.planner.patterns import layer_kinds
from vllm_length_exporter.planner.states import state
from vllm_length_exporter.vllm.model_config import text_config

# Types that vLLM serves as multi-head latent attention where they have a kv_lora_rank.
LATENT_TYPES = frozenset(
    {"axk1", "bailing_hybrid", "deepseek_v2", "deepseek_v3", "deepseek_v32", "glm4_moe_lite", "glm_moe_dsa"}
    | {"kimi_k2", "kimi_linear", "longcat_flash", "pangu_ultra_moe"}
)
# Keys of a cache that is not described here: rather no number than a wrong one.
UNKNOWN_CACHES = {
    "compress_ratios": "compressed attention",
    "rswa_window": "reference sliding windows",
    "cross_attention_layers": "cross attention",
    "block_configs": "layers of different shapes",
    "per_layer_config": "layers of different shapes",
    "global_head_dim": "layers of different head sizes",
    "swa_head_dim": "layers of different head sizes",
    "swa_num_key_value_heads": "layers of different head counts",
    "dual_chunk_attention_config": "dual chunk attention",
    "attn_type_list": "lightning attention",
}


@dataclass(frozen=True, slots=True)
class Architecture:
    """What the KV cache of a model depends on."""

    model_type: str
    attention: str  # the kind of attention in words
    layers: tuple[Layer, ...]
    hidden_size: int
    heads: int
    vocabulary: int | None

    @property
    def caches(self) -> tuple[Cache, ...]:
        """All caches of all layers, in order."""
        return tuple(cache for layer in self.layers for cache in layer.caches)


def architecture(config: Config) -> Architecture:
    """The layers of a model.

    Raises:
        PlanError: the configuration does not say what its layers keep, or we do not know it; one line.
    """
    text = text_config(config)
    kind = str(text.get("model_type", "unknown"))
    for key, what in UNKNOWN_CACHES.items():
        if text.get(key):
            raise PlanError(f"config.json: {key}: how vLLM caches {what} is not known here")
    if text.get("is_encoder_decoder") is True or config.get("is_encoder_decoder") is True:
        raise PlanError(
            f"config.json: {kind} is an encoder-decoder model; its cross attention is not planned here"
        )
    kinds = layer_kinds(text)
    attention = _attention(text, kind) if set(kinds) - {"state", "none"} else None
    own = len(kinds) - (number(text, "num_kv_shared_layers") or 0)
    layers = tuple(
        _layer(text, name, attention if i < own else None, shared=i >= own) for i, name in enumerate(kinds)
    )
    if not any(layer.caches for layer in layers):
        raise PlanError("config.json: no layer of this model keeps anything")
    heads = number(text, "num_attention_heads") or 0
    return Architecture(
        model_type=kind,
        attention=_in_words(layers, heads),
        layers=layers,
        hidden_size=needed(text, "hidden_size"),
        heads=heads,
        vocabulary=number(text, "vocab_size"),
    )


def _layer(text: Config, name: str, attention: Attention | Latent | None, *, shared: bool) -> Layer:
    if name == "none" or shared:
        return Layer()
    if name == "state":
        return Layer((state(text),))
    assert attention is not None
    if name == "both":
        return Layer((state(text), attention))
    if name == "full" or isinstance(attention, Latent):
        return Layer((attention,))
    key, reach = (
        ("sliding_window", Reach.SLIDING) if name == "sliding" else ("attention_chunk_size", Reach.CHUNKED)
    )
    span = needed(text, key) + SPAN_OFFSET.get(str(text.get("model_type")), 0)
    return Layer((Attention(attention.kv_heads, attention.key_dim, attention.value_dim, reach, span),))


# Families whose window counts the token itself in addition.
SPAN_OFFSET = {"cohere2": 1}


def _attention(text: Config, kind: str) -> Attention | Latent:
    rank = number(text, "kv_lora_rank")
    if rank is not None:
        if kind not in LATENT_TYPES:
            raise PlanError(
                f"config.json: kv_lora_rank: whether vLLM serves {kind} with latent attention is not known"
            )
        index = number(text, "index_head_dim") if number(text, "index_topk") is not None else None
        # fp8 numbers and a float32 scale for every 128 of them
        index_bytes = 0 if index is None else index + index // 128 * 4
        return Latent(rank + needed(text, "qk_rope_head_dim"), index_bytes)
    heads = needed(text, "num_attention_heads")
    width = number(text, "head_dim")
    if width is None:
        width = needed(text, "hidden_size") // heads
    return Attention(_kv_heads(text, kind, heads), width, width)


def _kv_heads(text: Config, kind: str, heads: int) -> int:
    if (
        kind in ("falcon", "gpt_bigcode")
        and text.get("multi_query", True)
        and not text.get("new_decoder_architecture")
    ):
        return 1
    if kind == "dbrx":
        attention = text.get("attn_config")
        return needed(attention if isinstance(attention, dict) else {}, "kv_n_heads")
    if isinstance(text.get("num_kv_heads"), list) or isinstance(text.get("num_key_value_heads"), list):
        raise PlanError(
            "config.json: num_key_value_heads: layers of different head counts are not planned here"
        )
    return number(text, "num_key_value_heads") or heads


def _in_words(layers: tuple[Layer, ...], heads: int) -> str:
    """For example `grouped-query (8 KV heads for 32), 52 sliding window 1024, 10 full`."""
    caches = [cache for layer in layers for cache in layer.caches]
    parts = []
    latent = next((cache for cache in caches if isinstance(cache, Latent)), None)
    attention = next((cache for cache in caches if isinstance(cache, Attention)), None)
    if latent is not None:
        parts.append("multi-head latent" + (" with an indexer" if latent.index_bytes else ""))
    if attention is not None:
        parts.append(f"{_sharing(attention.kv_heads, heads)} ({attention.kv_heads} KV heads for {heads})")
    reaches = Counter(
        (cache.reach, cache.span) if isinstance(cache, Attention) else (Reach.FULL, None)
        for cache in caches
        if not isinstance(cache, State)
    )
    states = sum(isinstance(cache, State) for cache in caches)
    if states or set(reaches) - {(Reach.FULL, None)}:
        counted = [
            f"{count} {reach}" + (f" {span:,}" if span else "")
            for (reach, span), count in sorted(reaches.items(), key=str)
        ]
        parts.extend([*counted, *([f"{states} with a fixed state"] if states else [])])
    return ", ".join(parts)


def _sharing(kv_heads: int, heads: int) -> str:
    if kv_heads == heads:
        return "multi-head"
    return "multi-query" if kv_heads == 1 else "grouped-query"
