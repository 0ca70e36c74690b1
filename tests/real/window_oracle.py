"""`VLLM_HOME/bin/python -m tests.real.window_oracle < configs.jsonl`: what the installed vLLM derives for each config.

Runs in vLLM's own environment and imports nothing of ours. One line in, one line out: the largest length that
vLLM accepts and the one it takes without --max-model-len, or its error.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path


def derive(config: dict[str, object]) -> dict[str, object]:
    from vllm.config.model import _get_and_verify_max_len  # type: ignore[import-not-found]
    from vllm.transformers_utils.config import get_config, get_hf_text_config  # type: ignore[import-not-found]
    from vllm.transformers_utils.model_arch_config_convertor import ModelArchConfigConvertorBase  # type: ignore[import-not-found]

    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(config))
        loaded = get_config(folder, trust_remote_code=False)
    text = get_hf_text_config(loaded)
    convertor = ModelArchConfigConvertorBase(loaded, text)

    class Architecture:
        derived_max_model_len_and_key = convertor.derive_max_model_len_and_key()

    def limit(asked: int | None) -> int:
        return int(
            _get_and_verify_max_len(
                text, Architecture(), None, asked, False, getattr(text, "sliding_window", None)
            )
        )

    default = limit(None)
    low, high = 1, 2**40  # the largest accepted length, by halving
    while low < high:
        middle = (low + high + 1) // 2
        try:
            limit(middle)
            low = middle
        except ValueError:
            high = middle - 1
    return {"default": default, "accepted": low}


def main() -> None:
    for line in sys.stdin:
        try:
            answer = derive(json.loads(line))
        except Exception as error:  # noqa: BLE001  # whatever stops vLLM is an answer
            answer = {"error": f"{type(error).__name__}: {error}"[:300]}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
