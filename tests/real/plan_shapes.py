"""`python -m tests.real.plan_shapes VLLM_HOME [SHAPE ...]`: the plan against real servers of many shapes, on the CPU.

Each server is started with a tiny model of that shape until its log names the capacity, or that it does not fit, and
is then ended. Prints planned against reported; ends with 1 where one differs by more than a block. Some five minutes.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import distributions
from pathlib import Path

from packaging.version import Version

from tests.deadline import DeadlineError
from tests.real.tiny_model import LONG, make_tiny_model
from tests.real.vllm_server import START_SECONDS, VllmServer
from vllm_length_exporter.planner.architecture import architecture
from vllm_length_exporter.planner.pool import Pool, layout
from vllm_length_exporter.planner.reading import read_model
from vllm_length_exporter.planner.settings import GIB, Device, Settings
from vllm_length_exporter.vllm.model_config import window

CAPACITY = re.compile(
    r"KV cache size: ([\d,]+) tokens(?:, Maximum concurrency for ([\d,]+) tokens per request: ([\d.]+)x)?"
)
NEEDED = re.compile(r"\(([\d.]+) GiB KV cache is needed")
ESTIMATE = re.compile(r"estimated maximum model length is (\d+)")
GEMMA: Mapping[str, object] = {
    "architectures": ["Gemma3ForCausalLM"],
    "model_type": "gemma3_text",
    "num_hidden_layers": 8,
    "max_position_embeddings": 32768,
    "rope_local_base_freq": 10000.0,
    "sliding_window": 1024,
    "layer_types": ["sliding_attention"] * 3
    + ["full_attention"]
    + ["sliding_attention"] * 3
    + ["full_attention"],
    "query_pre_attn_scalar": 32,
    "hidden_activation": "gelu_pytorch_tanh",
    "tie_word_embeddings": True,
}
UNEVEN = {**GEMMA, "num_hidden_layers": 7, "layer_types": ["sliding_attention"] * 5 + ["full_attention"] * 2}
LATENT: Mapping[str, object] = {
    "architectures": ["DeepseekV2ForCausalLM"],
    "model_type": "deepseek_v2",
    "num_key_value_heads": 4,
    "kv_lora_rank": 512,
    "q_lora_rank": None,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "head_dim": 64,
    "n_routed_experts": 4,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "first_k_dense_replace": 2,  # all layers are dense
    "moe_intermediate_size": 64,
}
LINEAR: Mapping[str, object] = {
    "architectures": ["Qwen3NextForCausalLM"],
    "model_type": "qwen3_next",
    "num_hidden_layers": 4,
    "full_attention_interval": 4,
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 32,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_value_head_dim": 32,
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 64,
    "shared_expert_intermediate_size": 64,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "norm_topk_prob": True,
}
MISTRAL: Mapping[str, object] = {
    "architectures": ["MistralForCausalLM"],
    "model_type": "mistral",
    "sliding_window": 1000,
    "max_position_embeddings": 32768,
}


@dataclass(frozen=True, slots=True)
class Shape:
    """A model, and how it is served."""

    config: Mapping[str, object] = field(default_factory=dict)
    arguments: tuple[str, ...] = ()
    settings: Mapping[str, object] = field(default_factory=dict)


SHAPES = {
    "grouped-query": Shape(),
    "multi-query": Shape({"num_key_value_heads": 1}),
    "sliding-window hybrid": Shape(GEMMA),
    "uneven hybrid": Shape(UNEVEN),
    "hybrid, smaller steps": Shape(
        GEMMA, ("--max-num-batched-tokens", "512"), {"max_num_batched_tokens": 512}
    ),
    "hybrid manager off": Shape(
        GEMMA, ("--disable-hybrid-kv-cache-manager",), {"disable_hybrid_kv_cache_manager": True}
    ),
    "all layers slide": Shape(MISTRAL),
    "two engines": Shape({}, ("--data-parallel-size", "2"), {"data_parallel_size": 2}),
    "fp8 cache": Shape({}, ("--kv-cache-dtype", "fp8"), {"kv_cache_dtype": "fp8"}),
    "block of 64": Shape({}, ("--block-size", "64"), {"block_size": 64}),
    "block of 32": Shape({}, ("--block-size", "32"), {"block_size": 32}),
    "block of 16": Shape({}, ("--block-size", "16"), {"block_size": 16}),
    "limit that no block divides": Shape({}, ("--max-model-len", "1000"), {"max_model_len": 1000}),
    "latent": Shape(LATENT),
    "linear hybrid": Shape(LINEAR),
    "linear hybrid, no prefixes": Shape(
        LINEAR, ("--no-enable-prefix-caching",), {"enable_prefix_caching": False}
    ),
    "too small": Shape(LONG),
    "auto-fit": Shape(LONG, ("--max-model-len", "auto"), {"auto_fit": True}),
}


def planned(folder: Path, shape: Shape, version: Version) -> tuple[Pool, int]:
    """The pool and the limit, from the model's folder and the flags alone."""
    files = read_model(folder)
    settings = Settings(version=version, device=Device.CPU, dtype="float32", **shape.settings)  # type: ignore[arg-type]
    pool = layout(architecture(files.config), files.config, settings).size(GIB)
    derived = window(files.config, version)
    assert derived is not None
    limit = settings.max_model_len or derived.default_limit
    return pool, pool.auto_limit(limit) if settings.auto_fit else limit


def compare(home: Path, name: str, shape: Shape, version: Version, work: Path) -> bool:
    """One shape's line; whether it agrees within one block."""
    folder = make_tiny_model(work / name.replace(" ", "-"), shape.config)
    pool, limit = planned(folder, shape, version)
    server = VllmServer(home, folder, work / f"{folder.name}.log", *shape.arguments)

    def spoken() -> str | None:
        text = server.output()
        return text if CAPACITY.search(text) or ESTIMATE.search(text) else None

    with server:
        try:
            text = server.wait_until(
                spoken, seconds=START_SECONDS, what="the log names the capacity", every=0.5
            )
        except DeadlineError:
            text = server.output()
    refusal = pool.refusal(limit)
    if refusal is not None:
        needed, estimate = NEEDED.search(text), ESTIMATE.search(text)
        seen = f"{needed[1] if needed else '?'} GiB needed, {estimate[1] if estimate else '?'} fit"
        ours = f"{refusal.needed_bytes / GIB:.1f} GiB needed, {refusal.estimated_limit} fit"
        agrees = seen == ours
    else:
        found = CAPACITY.search(text)
        reported = int(found[1].replace(",", "")) if found else -1
        concurrency = found[3] if found and found[3] else "?"
        seen = f"{reported:,} tokens, {found[2] if found else '?'} at {concurrency}x"
        ours = f"{pool.reported_tokens(limit):,} tokens, {limit:,} at {pool.concurrency(limit):.2f}x"
        agrees = abs(pool.reported_tokens(limit) - reported) <= pool.layout.block_size
    if not agrees:
        sys.stdout.write(text[-3000:])
    print(f"{name:<30} {ours:<46} {seen:<46} {'ok' if agrees else 'DIFFERS'}", flush=True)
    return agrees


def main() -> None:
    home, names = Path(sys.argv[1]), sys.argv[2:] or list(SHAPES)
    installed = distributions(
        path=[str(path) for path in home.glob("lib/python3*/site-packages")], name="vllm"
    )
    version = Version(next(iter(installed)).version)
    print(f"vLLM {version}\n{'shape':<30} {'planned':<46} {'reported':<46}")
    with tempfile.TemporaryDirectory(prefix="plan-shapes-") as work:
        agree = [compare(home, name, SHAPES[name], version, Path(work)) for name in names]
    print(f"{sum(agree)} of {len(agree)} agree")
    sys.exit(0 if all(agree) else 1)


if __name__ == "__main__":
    main()
