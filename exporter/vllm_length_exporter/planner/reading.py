"""Reads a model's folder: config.json, what stands beside it, and the headers of its weights."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from vllm_length_exporter.planner.error import PlanError
from vllm_length_exporter.planner.safetensors import Tensor, read_header
from vllm_length_exporter.vllm.model_config import Config, ModelConfigError, read_config

LARGEST_JSON = 64 * 2**20  # bytes; an index of weights names some 100,000 tensors
INDEX = "model.safetensors.index.json"
SENTENCE_CONFIGS = tuple(
    f"sentence_{name}_config.json"
    for name in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
)


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """What a model's folder says. `tensors` is None where there are no weights, or not all of them."""

    config: Config
    tokenizer: Config | None = None
    sentence_transformers: Config | None = None
    tensors: tuple[Tensor, ...] | None = None
    stated_bytes: int | None = None  # the weights' size as their index states it


def read_model(path: Path) -> ModelFiles:
    """The files of a model, by its folder or by its config.json alone.

    Raises:
        PlanError: config.json is missing or malformed, or so is a file beside it; one line.
    """
    folder = path if path.is_dir() else path.parent
    config = _json(path / "config.json" if path.is_dir() else path)
    if not path.is_dir() and path.name != "config.json":
        return ModelFiles(config)
    tokenizer, sentence = folder / "tokenizer_config.json", _first(folder, SENTENCE_CONFIGS)
    tensors, stated = _weights(folder)
    return ModelFiles(
        config,
        tokenizer=_json(tokenizer) if tokenizer.is_file() else None,
        sentence_transformers=None if sentence is None else _json(sentence),
        tensors=tensors,
        stated_bytes=stated,
    )


def _weights(folder: Path) -> tuple[tuple[Tensor, ...] | None, int | None]:
    stated, shards = None, sorted(folder.glob("*.safetensors"))
    shards = [shard for shard in shards if not shard.name.startswith("consolidated")]
    index = folder / INDEX
    if index.is_file():
        content = _json(index)
        metadata, files = content.get("metadata"), content.get("weight_map")
        size = metadata.get("total_size") if isinstance(metadata, dict) else None
        stated = int(size) if isinstance(size, int | float) and 0 < size < 2**62 else None
        if not isinstance(files, dict) or not all(isinstance(name, str) for name in files.values()):
            raise PlanError(f"{index}: weight_map: expected an object of file names")
        named = sorted(set(files.values()))
        if any(Path(name).name != name for name in named):
            raise PlanError(f"{index}: weight_map: names a file outside of the folder")
        shards = [folder / name for name in named]
        if not all(shard.is_file() for shard in shards):
            return None, stated
    if not shards:
        return None, stated
    return tuple(tensor for shard in shards for tensor in read_header(shard)), stated


def _first(folder: Path, names: tuple[str, ...]) -> Path | None:
    return next((folder / name for name in names if (folder / name).is_file()), None)


def _json(path: Path) -> Config:
    try:
        if path.stat().st_size > LARGEST_JSON:
            raise PlanError(f"{path}: larger than {LARGEST_JSON // 2**20} MiB: not what it should be")
        body = path.read_bytes()
    except OSError as error:
        raise PlanError(f"{path}: cannot be read: {error.strerror}") from error
    try:
        return read_config(body, str(path))
    except ModelConfigError as error:
        raise PlanError(str(error)) from None


def read_document(path: str, body: bytes) -> Config:
    """A JSON object from a file that was read already. Raises PlanError, one line."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        raise PlanError(f"{path}: not JSON") from None
    if not isinstance(value, dict):
        raise PlanError(f"{path}: expected a JSON object")
    return value
