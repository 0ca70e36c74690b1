"""What vLLM is started with, as far as it decides the KV cache, and what it takes where a flag is not given."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from packaging.version import Version

from vllm_length_exporter.planner.error import PlanError
from vllm_length_exporter.planner.rules import NEWEST, Rules

GIB = 2**30


class Device(StrEnum):
    GPU = "gpu"
    CPU = "cpu"


@dataclass(frozen=True, slots=True)
class Settings:
    """vLLM's flags by their own names; None is "not given". Memory is of one device, in bytes."""

    version: Version = NEWEST
    device: Device = Device.GPU
    dtype: str = "auto"
    kv_cache_dtype: str = "auto"
    block_size: int | None = None
    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    data_parallel_size: int = 1
    decode_context_parallel_size: int = 1
    max_model_len: int | None = None
    auto_fit: bool = False  # --max-model-len auto
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    gpu_memory_utilization: float | None = None
    device_memory: int | None = None
    kv_cache_memory_bytes: int | None = None
    num_gpu_blocks_override: int | None = None
    enable_chunked_prefill: bool = True
    enable_prefix_caching: bool = True
    disable_hybrid_kv_cache_manager: bool = False
    async_scheduling: bool | None = None

    def __post_init__(self) -> None:
        for name in ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size"):
            if getattr(self, name) < 1:
                raise PlanError(f"--{name.replace('_', '-')} must be at least 1")
        if (
            self.decode_context_parallel_size < 1
            or self.tensor_parallel_size % self.decode_context_parallel_size
        ):
            raise PlanError("--decode-context-parallel-size must divide --tensor-parallel-size")

    @property
    def rules(self) -> Rules:
        return Rules(self.version)

    @property
    def devices(self) -> int:
        """Devices of one engine."""
        return self.tensor_parallel_size * self.pipeline_parallel_size

    @property
    def utilization(self) -> float:
        return self.gpu_memory_utilization or self.rules.memory_utilization

    @property
    def batched_tokens(self) -> int:
        """Tokens of one scheduler step (defaults of the OpenAI server, 0.8.5-0.33)."""
        if self.max_num_batched_tokens is not None:
            return self.max_num_batched_tokens
        if self.device is Device.CPU:
            chosen = 2048 * self.devices
        elif self._memory_at_least(160) and self.rules.has("batch_by_160_gib"):
            chosen = 16384
        else:
            chosen = 8192 if self._memory_at_least(70) else 2048
        if not self.enable_chunked_prefill and self.max_model_len is not None:
            chosen = max(chosen, self.max_model_len)
        return chosen

    @property
    def sequences(self) -> int:
        """Sequences of one scheduler step, likewise."""
        if self.max_num_seqs is not None:
            return self.max_num_seqs
        if self.device is Device.CPU:
            return 128 * self.devices
        return 1024 if self._memory_at_least(70) else 256

    @property
    def batches_in_flight(self) -> int:
        """Steps that may hold their tokens at once, as a sliding window counts them."""
        if not self.rules.has("batches_in_flight"):
            return 1
        overlapped = self.device is Device.GPU if self.async_scheduling is None else self.async_scheduling
        if overlapped and (self.pipeline_parallel_size == 1 or self.rules.has("overlap_of_stages")):
            return self.pipeline_parallel_size + 1
        return self.pipeline_parallel_size

    @property
    def tokens_in_flight(self) -> int:
        return self.batches_in_flight * self.batched_tokens

    def _memory_at_least(self, gib: int) -> bool:
        return self.device_memory is not None and self.device_memory >= gib * GIB
