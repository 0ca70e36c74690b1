"""`python -m tests.real.tiny_model FOLDER [KEY=JSON ...]`: a model without weights.

`vllm serve --load-format dummy` serves it. Its tokenizer knows single bytes only, so that a
prompt of n ASCII characters has n tokens.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

VOCABULARY = 512
BOS, EOS = "<s>", "</s>"
LLAMA: dict[str, object] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 8192,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "torch_dtype": "float32",
    "bos_token_id": 0,
    "eos_token_id": 1,
    "tie_word_embeddings": False,
    "hidden_act": "silu",
}
# one request of its 1,048,576 tokens needs 32 GiB of KV cache
LONG: dict[str, object] = {
    "max_position_embeddings": 1048576,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "hidden_size": 256,
}
CHAT_TEMPLATE = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant:"


def make_tiny_model(folder: Path, overrides: Mapping[str, object] | None = None) -> Path:
    """Write config.json and a tokenizer; `overrides` are keys of config.json."""
    folder.mkdir(parents=True, exist_ok=True)
    files: dict[str, object] = {
        "config.json": {**LLAMA, **(overrides or {})},
        "generation_config.json": {"bos_token_id": 0, "eos_token_id": 1},
        "tokenizer.json": byte_tokenizer(),
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": BOS,
            "eos_token": EOS,
            "model_max_length": 10**6,
            "chat_template": CHAT_TEMPLATE,
        },
    }
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content, indent=1))
    return folder


def byte_tokenizer() -> dict[str, Any]:
    """A byte-level BPE without merges, in the form of the `tokenizers` library."""
    specials = [BOS, EOS]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": i, "content": text, "single_word": False, "lstrip": False, "rstrip": False}
            | {"normalized": False, "special": True}
            for i, text in enumerate(specials)
        ],
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": None,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "vocab": {text: i for i, text in enumerate([*specials, *byte_alphabet()])},
            "merges": [],
        },
    }


def byte_alphabet() -> list[str]:
    """The character that stands for each byte: itself where printable, else one from U+0100 on (GPT-2's rule)."""
    printable = {
        *range(ord("!"), ord("~") + 1),
        *range(ord("¡"), ord("¬") + 1),
        *range(ord("®"), ord("ÿ") + 1),
    }
    others = [byte for byte in range(256) if byte not in printable]
    return [chr(byte) if byte in printable else chr(256 + others.index(byte)) for byte in range(256)]


if __name__ == "__main__":
    pairs = (argument.split("=", 1) for argument in sys.argv[2:])
    make_tiny_model(Path(sys.argv[1]), {key: json.loads(value) for key, value in pairs})
