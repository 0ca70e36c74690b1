"""Whether a model can be split over so many devices, as vLLM checks it before anything is loaded."""

from __future__ import annotations

from vllm_length_exporter.planner.architecture import Architecture
from vllm_length_exporter.planner.error import PlanError
from vllm_length_exporter.planner.layers import Attention, Reach, State
from vllm_length_exporter.planner.settings import Settings


def check_parallelism(model: Architecture, settings: Settings) -> None:
    """Nothing, where it can.

    Raises:
        PlanError: it cannot; one line that names the flag and the model's number.
    """
    tensor, stages = settings.tensor_parallel_size, settings.pipeline_parallel_size
    if model.heads % tensor:
        raise PlanError(
            f"--tensor-parallel-size {tensor} does not divide the model's {model.heads} attention heads"
        )
    if stages > len(model.layers):
        raise PlanError(f"--pipeline-parallel-size {stages}: the model has {len(model.layers)} layers")
    for cache in set(model.caches):
        if isinstance(cache, Attention):
            _check_heads(cache, model.heads, settings)
        elif isinstance(cache, State) and (cache.heads % tensor or cache.conv_width % tensor):
            raise PlanError(
                f"--tensor-parallel-size {tensor} does not divide the {cache.heads} heads of a state layer"
            )


def _check_heads(cache: Attention, heads: int, settings: Settings) -> None:
    tensor, decode = settings.tensor_parallel_size, settings.decode_context_parallel_size
    few, many = sorted((cache.kv_heads, tensor))
    if many % few:
        raise PlanError(
            f"--tensor-parallel-size {tensor} and {cache.kv_heads} KV heads do not divide each other"
        )
    if decode == 1:
        return
    if cache.reach is not Reach.FULL:
        raise PlanError(f"--decode-context-parallel-size {decode}: vLLM does not split sliding windows so")
    flag = f"--decode-context-parallel-size {decode}"
    most, queries = max(tensor // cache.kv_heads, 1), heads // cache.kv_heads
    if decode > most:
        raise PlanError(f"{flag}: at most {most} with {tensor} devices for {cache.kv_heads} KV heads")
    if queries % decode:
        raise PlanError(f"{flag} does not divide the {queries} queries of a KV head")
