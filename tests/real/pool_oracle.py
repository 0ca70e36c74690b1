"""`VLLM_HOME/bin/python -m tests.real.pool_oracle < cases.jsonl`: blocks, capacity and errors as vLLM itself counts.

Runs in vLLM's own environment (0.32) and imports nothing of ours. It calls the functions that size the KV cache at
start, with layers made up as the case says, so that shapes can be tried that no processor here could serve.
"""

from __future__ import annotations

import json
import re
import sys
from types import SimpleNamespace
from typing import Any


def specs(case: dict[str, Any]) -> list[dict[str, Any]]:
    """The KV cache specs of each pipeline stage."""
    import torch  # type: ignore[import-not-found]
    from vllm.v1 import kv_cache_interface as kv  # type: ignore[import-not-found]

    stages: list[dict[str, Any]] = []
    for stage in case["stages"]:
        found = {}
        for layer in stage:
            size = {"block_size": layer["block_size"]}
            heads = {
                "num_kv_heads": layer.get("kv_heads", 1),
                "head_size": layer.get("head_size", 1),
                "dtype": torch.uint8,
            }
            if layer["kind"] == "full":
                spec = kv.FullAttentionSpec(**size, **heads)
            elif layer["kind"] == "latent":
                spec = kv.MLAAttentionSpec(**size, **heads)
            elif layer["kind"] == "sliding":
                spec = kv.SlidingWindowSpec(**size, **heads, sliding_window=layer["span"])
            elif layer["kind"] == "chunked":
                spec = kv.ChunkedLocalAttentionSpec(**size, **heads, attention_chunk_size=layer["span"])
            else:
                spec = kv.MambaSpec(
                    **size,
                    shapes=((layer["bytes"],),),
                    dtypes=(torch.uint8,),
                    page_size_padded=layer.get("padded"),
                )
            found[layer["name"]] = spec
        stages.append(found)
    return stages


def size(case: dict[str, Any]) -> dict[str, object]:
    from vllm.v1.core import kv_cache_utils as utils  # type: ignore[import-not-found]
    from vllm.v1.kv_cache_layout import KVCacheLayout  # type: ignore[import-not-found]

    config = SimpleNamespace(
        model_config=SimpleNamespace(
            max_model_len=case["limit"], original_max_model_len=case.get("asked", case["limit"])
        ),
        scheduler_config=SimpleNamespace(disable_hybrid_kv_cache_manager=case["no_hybrid"]),
        parallel_config=SimpleNamespace(
            decode_context_parallel_size=case["dcp"], tensor_parallel_size=case["dcp"]
        ),
        cache_config=SimpleNamespace(
            num_gpu_blocks_override=case.get("override"),
            mamba_cache_mode="align" if case["prefixes"] else "none",
            prefix_cache_retention_interval=0,
            get_resolved_kv_cache_layout=lambda: KVCacheLayout["LBNHC"],
        ),
        attention_config=SimpleNamespace(hisparse_config=None),
        device_config=SimpleNamespace(device_type="cuda"),
        speculative_config=None,
        num_prefill_lookahead_tokens=0,
        max_in_flight_tokens=case["in_flight"],
    )
    workers = specs(case)
    try:
        made = utils.get_kv_cache_configs(config, workers, [case["memory"]] * len(workers))
    except ValueError as error:
        estimate = re.search(r"estimated maximum model length is (\d+)", str(error))
        return {"refused": str(error)[:60], "estimate": int(estimate.group(1)) if estimate else 0}
    scheduler = utils.generate_scheduler_kv_cache_config(made)
    tokens, concurrency = utils.get_kv_cache_capacity(config, scheduler)
    return {
        "blocks": scheduler.num_blocks,
        "tokens": tokens,
        "concurrency": concurrency,
        "limit": config.model_config.max_model_len,
        "groups": len(scheduler.kv_cache_groups),
    }


def main() -> None:
    for line in sys.stdin:
        try:
            answer = size(json.loads(line))
        except Exception as error:  # noqa: BLE001  # whatever stops vLLM is an answer
            answer = {"error": f"{type(error).__name__}: {error}"[:300]}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
