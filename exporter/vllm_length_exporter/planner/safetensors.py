"""Reads what a safetensors file holds from its header alone: 8 bytes of length, then JSON. No tensor is read."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from vllm_length_exporter.planner.error import PlanError

LENGTH_BYTES = 8
LARGEST_HEADER = 100_000_000  # bytes, as the format has it
FLOATS = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}


@dataclass(frozen=True, slots=True)
class Tensor:
    """A stored tensor: `stored` in bytes, `numbers` by its shape."""

    name: str
    dtype: str
    numbers: int
    stored: int


def read_header(path: Path) -> tuple[Tensor, ...]:
    """The tensors of a file.

    Raises:
        PlanError: the file cannot be read or is no safetensors file; one line.
    """
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            length = int.from_bytes(file.read(LENGTH_BYTES), "little")
            if size < LENGTH_BYTES or length > min(LARGEST_HEADER, size - LENGTH_BYTES):
                raise PlanError(f"{path}: no safetensors file: its header would be {length:,} bytes long")
            body = file.read(length)
    except OSError as error:
        raise PlanError(f"{path}: cannot be read: {error.strerror}") from error
    try:
        header = json.loads(body)
    except (ValueError, RecursionError):
        raise PlanError(f"{path}: no safetensors file: its header is not JSON") from None
    if not isinstance(header, dict):
        raise PlanError(f"{path}: no safetensors file: its header is not a JSON object")
    return tuple(_tensor(path, name, entry) for name, entry in header.items() if name != "__metadata__")


def _tensor(path: Path, name: str, entry: object) -> Tensor:
    if isinstance(entry, dict):
        offsets, shape, dtype = (
            _counts(entry.get("data_offsets")),
            _counts(entry.get("shape")),
            entry.get("dtype"),
        )
        if offsets is not None and len(offsets) == 2 and shape is not None and isinstance(dtype, str):
            stored = offsets[1] - offsets[0]
            if stored >= 0:
                return Tensor(name, dtype, math.prod(shape), stored)
    raise PlanError(f"{path}: no safetensors file: the entry of {name[:80]!r} makes no sense")


def _counts(value: object) -> list[int] | None:
    if not isinstance(value, list) or not all(type(item) is int and 0 <= item < 2**62 for item in value):
        return None
    return value


def loaded_bytes(tensors: Iterable[Tensor], number_bytes: int | None, layers: int) -> int:
    """Bytes that the tensors take once loaded.

    `number_bytes` is what floating-point numbers become under --dtype, None where the checkpoint is quantised and
    stays as it is. Layers from `layers` on are a draft model's and are not loaded.
    """
    total = 0
    for tensor in tensors:
        layer = _layer(tensor.name)
        if layer is not None and layer >= layers:
            continue
        cast = number_bytes is not None and tensor.dtype in FLOATS
        total += tensor.numbers * number_bytes if cast and number_bytes is not None else tensor.stored
    return total


def _layer(name: str) -> int | None:
    """`model.layers.61.mlp.weight` is of layer 61; towers of other inputs count their own layers."""
    for prefix in ("model.layers.", "model.language_model.layers.", "language_model.model.layers."):
        if name.startswith(prefix):
            digits = name[len(prefix) :].partition(".")[0]
            return int(digits) if digits.isdecimal() and len(digits) < 6 else None
    return None
