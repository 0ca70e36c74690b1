"""The KV cache and the scheduler: what is full, what waits, and for what."""

from __future__ import annotations

from vllm_length_exporter.derive.rules.case import Case, Said
from vllm_length_exporter.derive.values import EngineCapacity
from vllm_length_exporter.derive.workload import SATURATED

ADMISSION_STALL_SECONDS = 60.0


def longest_servable(capacity: EngineCapacity, effective: int) -> int | None:
    """The longest request, in tokens, that the usable blocks of an engine can hold at all.

    None where more than the limit fits, or where it cannot be told how many blocks a token costs.
    """
    if capacity.blocks is None or capacity.block_size is None:
        return None
    if capacity.one_group:
        fits = capacity.blocks.value * capacity.block_size.value
        return fits if fits < effective else None
    return None


def capacity_below_limit(case: Case) -> Said | None:
    if case.effective is None:
        return None
    for capacity in case.view.capacity:
        fits = longest_servable(capacity, case.effective)
        if fits is not None and capacity.blocks is not None:
            return Said(
                f"A request of the limit, {case.effective} tokens, can never be served: "
                f"the KV cache of engine {capacity.engine} holds {fits} tokens that a request can use.",
                f"Set --max-model-len {fits} or lower, or give the KV cache more memory; "
                f"until then a longer request waits for ever.",
                f"{capacity.blocks.value} usable blocks ({capacity.blocks.source})",
            )
    return None


def admission_stall(case: Case) -> Said | None:
    for capacity, pressure in case.engines():
        if not (
            pressure.waiting and pressure.waiting.value and pressure.running and not pressure.running.value
        ):
            continue
        since = case.now
        for moment in reversed(case.state.history):
            if moment.running.get(capacity.engine) != 0 or not moment.waiting.get(capacity.engine):
                break
            since = moment.at
        held = case.now - since
        if held >= ADMISSION_STALL_SECONDS:
            limit = f" (limit {case.effective})" if case.effective is not None else ""
            free = f"{capacity.free_tokens.value} tokens are free" if capacity.free_tokens else "usage is low"
            return Said(
                f"Engine {capacity.engine}: {pressure.waiting.value} requests wait, none runs, for {held:.0f} s.",
                f"The first in the queue does not fit{limit} although {free}: "
                f"lower --max-model-len to what fits, or abort that request.",
                "num_requests_waiting, num_requests_running",
            )
    return None


def kv_cache_saturated(case: Case) -> Said | None:
    for capacity, pressure in case.engines():
        if capacity.usage_ratio is None or capacity.usage_ratio.value < SATURATED:
            continue
        waiting = pressure.waiting.value if pressure.waiting else 0
        preempting = pressure.preemptions_per_second.value if pressure.preemptions_per_second else 0.0
        if waiting or preempting:
            return Said(
                f"Engine {capacity.engine}: {capacity.usage_ratio.value:.1%} of the KV blocks are in use, "
                f"{waiting} requests wait, {preempting:.2g} preemptions a second.",
                "Send fewer or shorter requests to this server, or give the KV cache more room: "
                "--gpu-memory-utilization up, --kv-cache-dtype fp8, more GPUs, or a lower --max-num-seqs.",
                "kv_cache_usage_perc",
            )
    return None


def preempting(case: Case) -> Said | None:
    for pressure in case.view.pressure:
        rate = pressure.preemptions_per_second
        if rate is not None and rate.value > 0:
            return Said(
                f"Engine {pressure.engine} preempts {rate.value:.2g} requests a second and computes them again.",
                "Lower --max-num-seqs so that fewer requests share the KV cache, or give it more memory.",
                "num_preemptions_total",
            )
    return None


def binding_max_num_seqs(case: Case) -> Said | None:
    limit = case.view.limits.max_num_seqs
    if limit is None:
        return None
    for capacity, pressure in case.engines():
        running = pressure.running.value if pressure.running else 0
        waiting = pressure.waiting.value if pressure.waiting else 0
        usage = capacity.usage_ratio.value if capacity.usage_ratio else None
        if waiting and running >= limit.value and usage is not None and usage < SATURATED:
            return Said(
                f"Engine {capacity.engine}: {waiting} requests wait because --max-num-seqs is {limit.value}; "
                f"only {usage:.1%} of the KV blocks are in use.",
                f"Raise --max-num-seqs above {limit.value}: the KV cache has room for more sequences.",
                f"max_num_seqs ({limit.source}), num_requests_running, kv_cache_usage_perc",
            )
    return None
