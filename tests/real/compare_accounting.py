"""`python -m tests.real.compare_accounting VLLM_HOME [CASES [SEED]]`: our accounting against vLLM's own functions.

Random mixtures of layers, memory, limits and stages go through the functions that size the KV cache at a start
(`pool_oracle`, vLLM 0.32), and configurations with every length key and RoPE type through those that derive the
window (`window_oracle`, 0.30-0.32). No server is started; 500 cases take some 20 s. Ends with 1 on a difference.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from packaging.version import Version

from vllm_length_exporter.planner.groups import groups
from vllm_length_exporter.planner.layers import Reach
from vllm_length_exporter.planner.pages import Page
from vllm_length_exporter.planner.pool import Layout, stages_of
from vllm_length_exporter.planner.settings import Settings
from vllm_length_exporter.vllm.model_config import LENGTH_KEYS, window

Case = dict[str, Any]
NEWEST = Version("0.32.0")
PATTERNS = {
    "full": ["full"],
    "latent": ["latent"],
    "sliding": ["sliding"],
    "hybrid": ["sliding", "sliding", "full"],
    "long hybrid": ["sliding"] * 5 + ["full"],
    "uneven hybrid": ["sliding", "full", "full", "sliding", "sliding"],
    "two widths": ["full", "wide"],
    "wide hybrid": ["sliding", "wide"],
    "states": ["state", "state", "state", "full"],
    "chunked": ["chunked", "chunked", "chunked", "full"],
}
REACHES = {"full": Reach.FULL, "wide": Reach.FULL, "latent": Reach.FULL, "sliding": Reach.SLIDING}
REACHES["chunked"] = Reach.CHUNKED


def ask(home: Path, oracle: str, questions: Sequence[Case]) -> list[Case]:
    """The oracle's answers, in vLLM's own environment."""
    done = subprocess.run(
        [str(home / "bin" / "python"), "-m", f"tests.real.{oracle}"],
        input="\n".join(map(json.dumps, questions)),
        capture_output=True,
        text=True,
        check=False,
    )
    answers = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if len(answers) != len(questions):
        raise RuntimeError(f"{oracle} ended early: {done.stderr[-2000:]}")
    return answers


def pool_cases(count: int, chance: random.Random) -> Iterator[tuple[str, Case, Case]]:
    """Kind, question and our answer."""
    for _ in range(count):
        kind = chance.choice(list(PATTERNS))
        stages = chance.choice([1, 1, 1, 2, 3])
        layers = chance.randint(stages, 40)
        chosen = Settings(
            version=NEWEST,
            pipeline_parallel_size=stages,
            max_num_batched_tokens=chance.choice([512, 2048, 8192]),
            enable_prefix_caching=chance.random() < 0.5,
            disable_hybrid_kv_cache_manager=kind != "states" and chance.random() < 0.15,
            num_gpu_blocks_override=chance.choice([None, None, None, chance.randint(2, 500)]),
            async_scheduling=chance.random() < 0.5,
        )
        described = list(_layers(kind, layers, chance))
        made = groups([_page(i, layer) for i, layer in enumerate(described)], chosen)
        split = stages_of(layers, stages)
        cut = Layout(
            chosen, "auto", made, tuple(max(group.on(stage).bytes for group in made) for stage in split)
        )
        limit = chance.randint(1, 60_000)
        auto = chance.random() < 0.3
        memory = cut.block_bytes * chance.randint(1, 6000) + chance.randint(0, cut.block_bytes - 1)
        question = {
            "stages": [[described[i] for i in stage] for stage in split],
            "limit": limit,
            "asked": -1 if auto else limit,
            "no_hybrid": chosen.disable_hybrid_kv_cache_manager or kind == "chunked",
            "dcp": 1,
            "override": chosen.num_gpu_blocks_override,
            "prefixes": chosen.enable_prefix_caching,
            "in_flight": chosen.tokens_in_flight,
            "memory": memory,
        }
        yield kind, question, _answer(cut, memory, limit, auto)


def _layers(kind: str, count: int, chance: random.Random) -> Iterator[Case]:
    block_size, kv_heads = chance.choice([16, 32, 64, 128]), chance.choice([1, 2, 4, 8])
    head_size, span = chance.choice([32, 64, 128]), chance.choice([128, 1000, 4096, 9000])
    times, page = chance.choice([2, 3]), block_size * 2 * kv_heads * head_size
    for i in range(count):
        name = PATTERNS[kind][i % len(PATTERNS[kind])]
        layer = {
            "name": f"layer {i}",
            "kind": name,
            "block_size": block_size,
            "kv_heads": kv_heads,
            "head_size": head_size,
        }
        if name == "latent":
            layer |= {"kv_heads": 1, "head_size": 576}
        elif name == "wide":
            layer |= {"kind": "full", "kv_heads": kv_heads * times, "reach": "wide"}
        elif name == "state":
            layer |= {"bytes": page - 16, "padded": page}
        elif name != "full":
            layer["span"] = span
        yield layer


def _page(i: int, layer: Case) -> Page:
    if layer["kind"] == "state":
        return Page(i, None, layer["block_size"], 0, state_bytes=layer["bytes"], padded_bytes=layer["padded"])
    token = layer["head_size"] * layer["kv_heads"] * (1 if layer["kind"] == "latent" else 2)
    return Page(i, REACHES[layer["kind"]], layer["block_size"], token, layer.get("span"))


def _answer(cut: Layout, memory: int, limit: int, auto: bool) -> Case:
    pool = cut.size(memory)
    taken = pool.auto_limit(limit) if auto else limit
    refusal = pool.refusal(taken) if taken else None
    if not taken or refusal is not None:
        return {"estimate": 0 if auto or refusal is None else refusal.estimated_limit}
    return {
        "blocks": pool.total_blocks,
        "tokens": pool.reported_tokens(taken),
        "concurrency": pool.concurrency(taken),
        "limit": taken,
        "groups": len(cut.groups),
    }


def window_cases() -> Iterator[Case]:
    """Configurations of a small Llama with each key and each RoPE type, and of families with their own ways."""
    base = {
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 128, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "vocab_size": 512,
    }  # fmt: skip
    yield base
    for key in LENGTH_KEYS:
        yield {**base, "max_position_embeddings": 8192, key: 4096}
        yield {**base, "max_position_embeddings": 2048, key: 4096}
    ropes: list[Case] = [
        {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4096},
        {"type": "yarn", "factor": 4.0},
        {"rope_type": "linear", "factor": 2.5},
        {"type": "dynamic", "factor": 4.0},
        {"rope_type": "default"},
        {
            "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
        },
        {
            "rope_type": "longrope", "factor": 4.0, "short_factor": [1.0] * 16, "long_factor": [1.0] * 16,
            "original_max_position_embeddings": 4096,
        },
    ]  # fmt: skip
    for rope in ropes:
        yield {**base, "max_position_embeddings": 16384, "rope_scaling": rope}
        yield {**base, "max_position_embeddings": 16384, "rope_parameters": {**rope, "rope_theta": 10000.0}}
    yield {**base, "model_type": "gemma3_text", "rope_scaling": {"rope_type": "linear", "factor": 8.0}}
    for kind in ("qwen2", "qwen3", "mistral", "gemma2", "cohere2", "opt", "bloom", "mamba"):
        yield {"model_type": kind}
    yield {
        "model_type": "gemma3",
        "text_config": {"model_type": "gemma3_text", "num_hidden_layers": 34},
        "vision_config": {},
    }


def compare_windows(home: Path) -> int:
    """How many differ."""
    questions, wrong = list(window_cases()), 0
    for question, told in zip(questions, ask(home, "window_oracle", questions), strict=True):
        found = window(question, NEWEST)
        ours = None if found is None else (found.default_limit, found.window if found.key else None)
        theirs = (told.get("default"), told.get("accepted") if told.get("accepted") != 2**40 else None)
        if "error" not in told and ours != theirs:
            wrong += 1
            print(f"window of {question}: {ours}, vLLM {theirs}")
    print(f"windows: {len(questions) - wrong} of {len(questions)} agree")
    return wrong


def compare_pools(home: Path, count: int, seed: int) -> int:
    """How many differ."""
    cases, wrong = list(pool_cases(count, random.Random(seed))), 0
    answers = ask(home, "pool_oracle", [question for _, question, _ in cases])
    for (kind, question, ours), theirs in zip(cases, answers, strict=True):
        theirs.pop("refused", None)
        if ours != theirs:
            wrong += 1
            shown = {key: value for key, value in question.items() if key != "stages"}
            print(f"{kind}: {ours}, vLLM {theirs}: {shown}")
    print(f"pools: {count - wrong} of {count} agree")
    return wrong


def main() -> None:
    home, count = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 500
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else 1
    sys.exit(1 if compare_windows(home) + compare_pools(home, count, seed) else 0)


if __name__ == "__main__":
    main()
