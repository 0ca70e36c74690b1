"""Reads a file of thresholds over the defaults; a mistake in it is one line with file and key."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from vllm_length_exporter.settings.document import read_or_empty
from vllm_length_exporter.settings.mistake import ConfigError
from vllm_length_exporter.terminal import escaped

from .thresholds import INTEGRATIONS, Thresholds

MANY = 10  # keys that are not worth listing in one line
DEFAULTS = Path(__file__).with_name("thresholds.yml")


class ThresholdsError(ValueError):
    """The file cannot be used; the message is one line with file and key."""


def read(path: Path = DEFAULTS) -> Thresholds:
    """The thresholds of `path`; what it does not name is as in the defaults.

    Raises:
        ThresholdsError: the file cannot be read, or holds an unknown key or an impossible value.
    """
    merged = _document(DEFAULTS)
    if path.resolve() != DEFAULTS.resolve():
        merged = _over(merged, _document(path), path, "")
    try:
        return msgspec.convert(merged, Thresholds)
    except msgspec.ValidationError as error:
        raise ThresholdsError(f"{path}: {_complaint(str(error), merged)}") from error


def _document(path: Path) -> dict[str, Any]:
    try:
        document = read_or_empty(path)
    except ConfigError as error:
        raise ThresholdsError(str(error)) from error
    loaded = None if document is None else document.content
    if loaded is None:
        return {}
    if not isinstance(loaded, dict):
        raise ThresholdsError(f"{path}: expected keys and values, got {_kind(loaded)}")
    return loaded


# Labels are the user's own: there every key is new.
_FREE = ("labels",)


def _over(base: Mapping[str, Any], edit: Mapping[Any, Any], path: Path, place: str) -> dict[str, Any]:
    merged = dict(base)
    for key, value in edit.items():
        where = escaped(f"{place}{key}")
        if key not in base:
            near = difflib.get_close_matches(str(key), list(base), 1)
            known = (
                ", ".join(base) if len(base) <= MANY else "see the packaged file (rules --show-thresholds)"
            )
            hint = f", did you mean {near[0]!r}?" if near else f"; known here: {known}"
            raise ThresholdsError(f"{path}: {where}: unknown key{hint}")
        if isinstance(base[key], dict) and key not in _FREE:
            if not isinstance(value, dict):
                raise ThresholdsError(f"{path}: {where}: expected keys and values, got {_kind(value)}")
            merged[key] = _over(base[key], value, path, f"{where}.")
        elif isinstance(value, float) and not math.isfinite(value):
            raise ThresholdsError(f"{path}: {where}: expected a number, got {value}")
        else:
            merged[key] = value
    return merged


def _complaint(text: str, document: Mapping[str, Any]) -> str:
    """Msgspec's words, with the key first and the value that was found."""
    said, _, place = text.partition(" - at ")
    key = re.sub(r"^.*?\$\.?", "", place.strip("`"))
    said = re.sub(r"^Object contains unknown field `(.*)`$", r"unknown key '\1'", said)
    if r"\d+w" in said:
        said = (
            "expected a duration such as 90s, 5m or 1h30m, longer than 0"
            if "[1-9]" in said
            else ("expected a duration such as 0s, 90s or 5m")
        )
    if said.startswith("Invalid enum value"):
        said = f"expected one of {', '.join(INTEGRATIONS)}"
    said = said[:1].lower() + said[1:].replace("`", "")
    found = _at(document, key)
    value = "" if isinstance(found, dict | list) or found is None or "got" in said else f", got {found!r}"
    return f"{key}: {said}{value}" if key else f"{said}{value}"


def _at(document: Any, key: str) -> Any:
    """The value under a path such as `a.b[0].c`; None where the path leads nowhere."""
    for part in re.findall(r"[^.\[\]]+", key):
        if isinstance(document, Mapping):
            document = document.get(part)
        elif isinstance(document, list) and part.isdigit() and int(part) < len(document):
            document = document[int(part)]
        else:
            return None
    return document


def _kind(value: object) -> str:
    return {str: "a text", list: "a list", dict: "keys and values", type(None): "nothing"}.get(
        type(value), repr(value)
    )
