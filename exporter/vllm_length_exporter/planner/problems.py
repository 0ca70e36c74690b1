"""What vLLM would refuse, what could wait for ever, and what a plan cannot know."""

from __future__ import annotations

from collections.abc import Iterator

from vllm_length_exporter.planner.budget import Budget
from vllm_length_exporter.planner.capacity import Planned
from vllm_length_exporter.planner.measured import Server
from vllm_length_exporter.planner.pool import Layout, Refusal
from vllm_length_exporter.planner.reading import ModelFiles
from vllm_length_exporter.planner.settings import GIB, Settings
from vllm_length_exporter.planner.weights import Span
from vllm_length_exporter.vllm.model_config import Derived, accepts


def problems(
    files: ModelFiles,
    settings: Settings,
    derived: Derived | None,
    limit: int,
    refusal: Refusal | None,
    capacity: Planned | None,
) -> Iterator[str]:
    """What vLLM would refuse to start with, or a request could wait for without end."""
    if derived is not None and limit and not accepts(derived, files.config, limit):
        yield (
            f"--max-model-len {limit} is above the window of {derived.window}: vLLM refuses it without"
            " VLLM_ALLOW_LONG_MAX_MODEL_LEN=1"
        )
    if refusal is not None:
        fits = f"; a limit of {refusal.estimated_limit} would" if refusal.estimated_limit else ""
        yield (
            f"one request of {limit} tokens needs {refusal.needed_bytes / GIB:.2f} GiB of KV cache on each device,"
            f" {refusal.available_bytes / GIB:.2f} GiB are there: vLLM does not start{fits}"
        )
    elif capacity is not None and limit and capacity.least.requests(limit) == 0:
        yield (
            f"one request of {limit} tokens needs the block that vLLM never gives out: it would wait for ever;"
            f" {capacity.least.longest(1, limit)} tokens can be served"
        )
    tokens, sequences = settings.batched_tokens, settings.sequences
    if not settings.enable_chunked_prefill and tokens < limit:
        yield (
            f"--max-num-batched-tokens {tokens} is below the limit of {limit}: without chunked prefill vLLM refuses it"
        )
    if tokens < sequences:
        yield f"--max-num-batched-tokens {tokens} is below --max-num-seqs {sequences}: vLLM refuses it"


def notes(
    settings: Settings, cut: Layout, memory: Budget | None, server: Server | None, reported: Span | None
) -> Iterator[str]:
    """What a reader of the numbers should know."""
    if memory is None:
        yield (
            "no memory was named: give --kv-cache-memory-gib, or --device-memory-gib with --gpu-memory-utilization,"
            " to know what fits"
        )
    elif not memory.kv_cache.exact:
        yield (
            "activations and graphs are measured by vLLM at start; from the line 'Available KV cache memory' of a start"
            " --kv-cache-memory-gib makes this exact"
        )
    if len(cut.groups) > 1:
        yield f"{len(cut.groups)} groups of layers share the pool: blocks x block size is not the capacity"
    if cut.kv_cache_dtype != "auto" and settings.kv_cache_dtype == "auto":
        yield f"the checkpoint asks for a KV cache of {cut.kv_cache_dtype}"
    if server is not None and server.reported_tokens and reported is not None:
        gap = abs(reported.low - server.reported_tokens) / server.reported_tokens
        yield (
            f"measured capacity {server.reported_tokens:,} tokens, planned {reported.low:,}"
            f" ({'they agree' if gap < 0.01 else f'{gap:.1%} apart: a flag of the server is missing here'})"
        )
