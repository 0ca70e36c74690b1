"""How many bytes vLLM stores for one number, by the names of its --dtype and --kv-cache-dtype."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from vllm_length_exporter.planner.error import PlanError

MODEL_BYTES: Mapping[str, int] = {
    "half": 2,
    "float16": 2,
    "bfloat16": 2,
    "float": 4,
    "float32": 4,
}
# What --dtype auto becomes: the model's own type, but a float32 model is served in 16 bits.
AUTO_BYTES = 2


@dataclass(frozen=True, slots=True)
class CacheFormat:
    """One way to store the KV cache.

    A head's vector of n numbers takes n * `per_number` bytes and, for scales, n * `scales_per_number` and
    `scale_per_vector` more. `latent_bytes` is the fixed size of a whole latent (MLA) entry, for formats of that kind.
    """

    per_number: Fraction
    scales_per_number: Fraction = Fraction(0)
    scale_per_vector: int = 0
    latent_bytes: int | None = None
    latent: bool = True  # whether MLA can use it
    heads: bool = True  # whether attention with heads can use it

    def vector(self, numbers: int) -> int:
        """Bytes of one vector (the K or the V of one head), scales included."""
        whole = numbers * self.per_number + numbers * self.scales_per_number + self.scale_per_vector
        return int(whole)


_BYTE = Fraction(1)
FORMATS: Mapping[str, CacheFormat] = {
    "float16": CacheFormat(Fraction(2)),
    "bfloat16": CacheFormat(Fraction(2)),
    "fp8": CacheFormat(_BYTE),
    "fp8_e4m3": CacheFormat(_BYTE),
    "fp8_e5m2": CacheFormat(_BYTE),
    "fp8_inc": CacheFormat(_BYTE),
    # 512 of fp8, 4 scales of float32, 64 of bfloat16 for RoPE: 656 B
    "fp8_ds_mla": CacheFormat(_BYTE, latent_bytes=656, heads=False),
    "nvfp4_ds_mla": CacheFormat(Fraction(1, 2), latent_bytes=352, heads=False),
    # one float32 scale for K and one for V, a token and head
    "fp8_per_token_head": CacheFormat(_BYTE, scale_per_vector=4, latent=False),
    "int8_per_token_head": CacheFormat(_BYTE, scale_per_vector=4, latent=False),
    "int4_per_token_head": CacheFormat(Fraction(1, 2), scale_per_vector=4, latent=False),
    # 4 bits and an fp8 scale for every 16 numbers
    "nvfp4": CacheFormat(Fraction(1, 2), scales_per_number=Fraction(1, 16), latent=False),
    "nvfp4_4over6": CacheFormat(Fraction(1, 2), scales_per_number=Fraction(1, 16), latent=False),
}


def model_bytes(dtype: str) -> int:
    """Bytes of one number of the model under --dtype."""
    if dtype == "auto":
        return AUTO_BYTES
    try:
        return MODEL_BYTES[dtype]
    except KeyError:
        raise PlanError(f"--dtype {dtype}: not known; one of auto, {', '.join(MODEL_BYTES)}") from None


def cache_format(kv_cache_dtype: str, dtype: str) -> CacheFormat:
    """The format under --kv-cache-dtype; `auto` stores what the model computes in."""
    if kv_cache_dtype == "auto":
        return CacheFormat(Fraction(model_bytes(dtype)))
    try:
        return FORMATS[kv_cache_dtype]
    except KeyError:
        known = ", ".join(FORMATS)
        raise PlanError(
            f"--kv-cache-dtype {kv_cache_dtype}: how many bytes it takes is not known; one of auto, {known}"
        ) from None


def stated_cache_dtype(config: Mapping[str, object]) -> str:
    """What `auto` becomes where the checkpoint says how its KV cache is to be quantised (0.12+), else `auto`."""
    quantization = config.get("quantization_config")
    if not isinstance(quantization, dict):
        return "auto"
    method = str(quantization.get("quant_method", ""))
    inner = quantization.get("quantization")
    places = [inner if isinstance(inner, dict) else quantization, quantization]
    scheme = next((place["kv_cache_scheme"] for place in places if place.get("kv_cache_scheme")), None)
    if method.startswith("modelopt"):
        named = next(
            (place["kv_cache_quant_algo"] for place in places if place.get("kv_cache_quant_algo")), None
        )
        if scheme is None and isinstance(named, str):
            return {"fp8": "fp8_e4m3", "nvfp4": "nvfp4"}.get(named.lower(), "auto")
    elif not method.startswith("compressed"):
        return "auto"
    if isinstance(scheme, dict) and scheme.get("type") == "float" and scheme.get("num_bits") == 8:
        return "fp8_e4m3"
    return "auto"
