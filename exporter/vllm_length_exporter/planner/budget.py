"""How much memory of each device is left for the KV cache, and what is taken before it.

What vLLM measures at start (activations, graphs) cannot be known beforehand: it is named with a range.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from vllm_length_exporter.planner.architecture import Architecture
from vllm_length_exporter.planner.dtypes import model_bytes
from vllm_length_exporter.planner.error import PlanError
from vllm_length_exporter.planner.fields import number
from vllm_length_exporter.planner.reading import ModelFiles
from vllm_length_exporter.planner.settings import GIB, Device, Settings
from vllm_length_exporter.planner.weights import Part, Span, weights
from vllm_length_exporter.vllm.model_config import text_config

MIB = 2**20
# Seen in vLLM's memory profiles; a context and communication buffers grow with the devices that talk.
CONTEXT = Span(100 * MIB, 1 * GIB)
COMMUNICATION = Span(200 * MIB, 1536 * MIB)
GRAPHS = Span(0, 1536 * MIB)


@dataclass(frozen=True, slots=True)
class Budget:
    """Memory for the KV cache on each device, in bytes; exact or with a range."""

    kv_cache: Span
    source: str
    parts: tuple[Part, ...] = ()  # what is taken before it


def budget(model: Architecture, files: ModelFiles, settings: Settings) -> Budget | None:
    """The memory that the flags leave, or None where no flag says how much there is.

    Raises:
        PlanError: the flags leave none, or the weights' size is not known; one line.
    """
    if settings.kv_cache_memory_bytes is not None:
        exact = settings.kv_cache_memory_bytes
        return Budget(Span(exact, exact), "kv_cache_memory_bytes")
    if settings.device_memory is None:
        return None
    requested = math.ceil(settings.device_memory * settings.utilization)
    stored = weights(files, settings)
    if stored is None:
        raise PlanError(
            "the weights' size is not known: name the folder that holds them, or give --kv-cache-memory-gib"
        )
    parts = (stored, *_unknown(model, files, settings))
    taken = Span(0, 0)
    for part in parts:
        taken += part.bytes
    left = Span(max(requested - taken.high, 0), max(requested - taken.low, 0))
    if left.high == 0:
        gib = taken.low / GIB
        raise PlanError(
            f"no memory is left for the KV cache: {settings.utilization:g} of {settings.device_memory / GIB:g} GiB is"
            f" {requested / GIB:.1f} GiB, and {gib:.1f} GiB are taken before it"
        )
    return Budget(left, "device memory", parts)


def _unknown(model: Architecture, files: ModelFiles, settings: Settings) -> list[Part]:
    """What only a start can tell."""
    text = text_config(files.config)
    width = (
        number(text, "moe_intermediate_size") or number(text, "intermediate_size") or 4 * model.hidden_size
    )
    tokens, each = settings.batched_tokens, model_bytes(settings.dtype)
    per_token = 4 * model.hidden_size + 2 * width // settings.tensor_parallel_size
    logits = min(settings.sequences, tokens) * (model.vocabulary or 0) * 4
    activations = Span(tokens * per_token * each, 3 * tokens * per_token * each + 3 * logits)
    parts = [Part("activation peak", activations, "estimate: measured by vLLM at start")]
    if settings.device is Device.GPU:
        graphs = GRAPHS if settings.rules.has("graphs_in_utilization") else Span(0, 0)
        parts.append(Part("CUDA graphs", graphs, "estimate: measured by vLLM at start"))
        context = CONTEXT + (COMMUNICATION if settings.devices > 1 else Span(0, 0))
        parts.append(Part("context and communication", context, "estimate: depends on driver and topology"))
    return parts
