"""Values of a model's configuration files, read strictly: a mistake is one line that names the key."""

from __future__ import annotations

import math
from collections.abc import Mapping

Config = Mapping[str, object]

NO_LIMIT = 2**62  # tokenizers write 1e30 for none


class ModelConfigError(ValueError):
    """A config.json that cannot be used: one line that names the file and the key."""


def positive(config: Config, key: str) -> int:
    """A positive number of a key, as a whole one; what is beyond any length is NO_LIMIT.

    Raises:
        ModelConfigError: the key holds something else; one line.
    """
    value = number(config.get(key))
    if value is None or value < 1:
        raise ModelConfigError(
            f"config.json: {key}: expected a positive number, found {shown(config.get(key))}"
        )
    return int(min(value, NO_LIMIT))


def number(value: object) -> float | int | None:
    """A finite number, or None for all else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if isinstance(value, int) or math.isfinite(value) else None


def kind(value: object) -> str:
    """What a value is, in words."""
    return {list: "a list", str: "a text", bool: "true or false", type(None): "null"}.get(
        type(value), "a number"
    )


def shown(value: object) -> str:
    """A value as an error repeats it."""
    return repr(value) if isinstance(value, str | int | float | bool) or value is None else kind(value)
