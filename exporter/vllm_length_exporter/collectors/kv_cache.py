"""The KV cache of each engine.

```
# HELP vllm_length_kv_cache_capacity_tokens Tokens that the KV cache holds, as vLLM reports it.
# TYPE vllm_length_kv_cache_capacity_tokens gauge
vllm_length_kv_cache_capacity_tokens{engine="0",model_name="tiny",server="a:8000"} 10240.0
vllm_length_kv_cache_capacity_info{engine="0",model_name="tiny",server="a:8000",source="cache_config"} 1.0
vllm_length_kv_cache_blocks{engine="0",model_name="tiny",server="a:8000"} 79.0
vllm_length_kv_cache_used_blocks{engine="0",model_name="tiny",server="a:8000"} 77.0
vllm_length_kv_cache_usage_ratio{engine="0",model_name="tiny",server="a:8000"} 0.9746835443037974
vllm_length_full_length_concurrency{engine="0",model_name="tiny",server="a:8000"} 1.25
```
"""

from __future__ import annotations

from collections.abc import Iterator

from .metric import Family, Metric
from .snapshot import Snapshot

ENGINE = ("model_name", "engine")

CAPACITY = Metric(
    "kv_cache_capacity_tokens",
    "Tokens that the KV cache of one engine holds, as vLLM reports it (its null block counted).",
    ENGINE,
)
CAPACITY_INFO = Metric(
    "kv_cache_capacity_info",
    "Where the capacity comes from: cache_config, startup_log or block_product.",
    (*ENGINE, "source"),
)
MEMORY = Metric(
    "kv_cache_memory_bytes",
    "Memory that one worker of the engine set aside for the KV cache, from cache_config_info or the log.",
    ENGINE,
)
BYTES_PER_TOKEN = Metric(
    "kv_cache_bytes_per_token",
    "Measured cost of one token: KV-cache memory of one worker / capacity.",
    ENGINE,
)
BLOCKS = Metric(
    "kv_cache_blocks", "KV-cache blocks of one engine that requests can use (all but the null block).", ENGINE
)
USED = Metric(
    "kv_cache_used_blocks", "KV-cache blocks in use: vLLM's usage x blocks, a whole number.", ENGINE
)
BLOCK_SIZE = Metric("kv_cache_block_size_tokens", "Tokens in one KV-cache block.", ENGINE)
USAGE = Metric("kv_cache_usage_ratio", "Share of KV-cache blocks in use, from vLLM's usage gauge.", ENGINE)
FREE = Metric("kv_cache_free_tokens", "Headroom: free usable blocks x block size.", ENGINE)
CONCURRENCY = Metric(
    "full_length_concurrency", "Requests of the effective limit that fit at once, as vLLM reports it.", ENGINE
)
DISAGREEMENT = Metric(
    "source_disagreement_ratio",
    "Largest relative gap between sources that should agree; 0 when they do.",
    ("quantity",),
)

METRICS = (
    CAPACITY, CAPACITY_INFO, MEMORY, BYTES_PER_TOKEN, BLOCKS, USED, BLOCK_SIZE, USAGE, FREE, CONCURRENCY, DISAGREEMENT,
)  # fmt: skip

_VALUES = (
    (CAPACITY, "tokens"), (MEMORY, "memory_bytes"), (BYTES_PER_TOKEN, "bytes_per_token"), (BLOCKS, "blocks"),
    (USED, "used_blocks"), (BLOCK_SIZE, "block_size"), (USAGE, "usage_ratio"), (FREE, "free_tokens"),
    (CONCURRENCY, "full_length_concurrency"),
)  # fmt: skip


def families(snapshot: Snapshot) -> Iterator[Family]:
    rows = {metric.name: metric.family() for metric in METRICS}
    for view in snapshot.views():
        model = view.model_name or ""
        for engine in view.capacity:
            for metric, key in _VALUES:
                if (value := getattr(engine, key)) is not None:
                    rows[metric.name].add(value.value, view.server, model, engine.engine)
            if engine.tokens is not None:
                rows[CAPACITY_INFO.name].add(1, view.server, model, engine.engine, engine.tokens.source)
        for gap in view.disagreements:
            rows[DISAGREEMENT.name].add(gap.ratio, view.server, gap.quantity)
    yield from rows.values()
