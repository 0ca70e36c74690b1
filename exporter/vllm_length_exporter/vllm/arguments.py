"""Reads the arguments and the engine's configuration as vLLM prints them: reprs, taken apart safely.

`literal_eval` of the whole is not enough (`SpeculativeConfig(...)`, `<enum ...>`, secrets cut out), so
the text is split at its own top level, quotes and brackets respected, and only known keys are read.
A text within quotes (a model's name, a template) can therefore never become an argument.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping

from vllm_length_exporter.vllm.events import ARGUMENT_FIELDS, FieldValue
from vllm_length_exporter.vllm.numbers import human

_CLOSING = {"(": ")", "[": "]", "{": "}"}
_KEY = re.compile(r"""\s*(?P<q>['"]?)(?P<key>[A-Za-z_]\w*)(?P=q)\s*(?P<sep>[:=])\s*""")

CONFIG_FIELDS: Mapping[str, str] = {
    # vLLM's name in the engine's configuration -> ours
    "model": "model",
    "max_seq_len": "max_seq_len",
    "tensor_parallel_size": "tensor_parallel_size",
    "pipeline_parallel_size": "pipeline_parallel_size",
    "data_parallel_size": "data_parallel_size",
    "decode_context_parallel_size": "decode_context_parallel_size",
    "prefill_context_parallel_size": "prefill_context_parallel_size",
    "kv_cache_dtype": "kv_cache_dtype",
    "enable_prefix_caching": "enable_prefix_caching",
    "chunked_prefill_enabled": "enable_chunked_prefill",
    "enable_chunked_prefill": "enable_chunked_prefill",
    "served_model_name": "served_model_name",
}


def parts(text: str) -> Iterator[tuple[str, str]]:
    """Key and raw value of each top-level `key=value` or `'key': value` in the text.

    Ends quietly where the text is cut in the middle of a value: that value is not handed out.
    """
    position, end = 0, len(text)
    while position < end:
        match = _KEY.match(text, position)
        if match is None:
            stop = _value_end(text, position)
            if stop is None:
                return
            position = stop + 1
            continue
        start = match.end()
        stop = _value_end(text, start)
        if stop is None:
            return
        value = text[start:stop].rstrip()
        yield match.group("key"), value
        position = stop + 1


def _value_end(text: str, start: int) -> int | None:
    """Where the value that begins at `start` ends: its comma, the closing bracket, or the end of the text.

    None where a quote or a bracket stays open.
    """
    stack: list[str] = []
    position, end = start, len(text)
    while position < end:
        char = text[position]
        if char in "'\"":
            closing = _quote_end(text, position)
            if closing is None:
                return None
            position = closing
        elif char in _CLOSING:
            stack.append(_CLOSING[char])
        elif stack and char == stack[-1]:
            stack.pop()
        elif not stack and char in ",)]}":
            return position
        position += 1
    return None if stack else end


def _quote_end(text: str, start: int) -> int | None:
    quote, position = text[start], start + 1
    while position < len(text):
        if text[position] == "\\":
            position += 1
        elif text[position] == quote:
            return position
        position += 1
    return None


def literal(text: str) -> FieldValue:
    """A scalar as Python prints it; None for all else, an `<Enum.NAME: 'value'>` by its value."""
    if match := _ENUM.match(text):
        text = match.group(1)
    if not text or text[0] not in "'\"-+.0123456789TFN":
        return None
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None
    return value if isinstance(value, int | float | str) else None


_ENUM = re.compile(r"<\w[\w.]*: ('[^']*'|-?\d+)>$")
_COUNTS = frozenset(
    key
    for key in ARGUMENT_FIELDS
    if key.endswith(("_size", "_tokens", "_seqs", "_override", "_bytes", "_count"))
)


def arguments(text: str, *, bare: bool = False) -> dict[str, FieldValue] | None:
    """The known arguments in `{'max_model_len': 32768, ...}` or, `bare`, in what is in `Namespace(...)`.

    Values that are None (not given) are absent. None where the text is not such a thing.
    """
    if not bare:
        if not text.startswith("{"):
            return None
        text = text[1:]
    found: dict[str, FieldValue] = {}
    for key, raw in parts(text):
        if key == "speculative_config" and raw != "None":
            found["speculative"] = True
        elif key == "model_tag":
            found.setdefault("model", literal(raw))
        elif key in ARGUMENT_FIELDS:
            value = _argument(key, raw)
            if value is not None:
                found[key] = value
    return {key: value for key, value in found.items() if value is not None}


def _argument(key: str, raw: str) -> FieldValue:
    if key in ("served_model_name", "middleware"):
        return _names(raw, first=key == "served_model_name")
    value = literal(raw)
    if key == "max_model_len":
        return _length(value)
    if key in _COUNTS:
        number = human(value) if isinstance(value, str) else value
        return number if isinstance(number, int) and not isinstance(number, bool) else None
    return value


def _length(value: FieldValue) -> FieldValue:
    """`--max-model-len` as given: tokens, or "auto", which is also written -1 (0.14.1+)."""
    if isinstance(value, str):
        return "auto" if value == "auto" else _length(human(value))
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    if value == -1:
        return "auto"
    return value if value > 0 else None


def _names(raw: str, *, first: bool) -> str | None:
    """The first name, or all of them with commas; vLLM prints a name or a list of names."""
    try:
        value = ast.literal_eval(raw)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        return None
    return (names[0] if first else ",".join(names)) if names else None


def engine_config(text: str) -> dict[str, FieldValue]:
    """What the engine's configuration line says of length and of how the work is split."""
    found: dict[str, FieldValue] = {}
    for key, raw in parts(text):
        if key == "speculative_config":
            found.setdefault("speculative", raw != "None")
        elif (name := CONFIG_FIELDS.get(key)) and name not in found:
            if "served_model_name" in found and not key.startswith(("enable_", "chunked_")):
                continue  # this name is printed without quotes: what follows it may be part of it
            value = literal(raw)
            if value is None and re.fullmatch(r"[\w.]+", raw) and raw != "None":
                value = raw  # 0.2.7-0.32 print kv_cache_dtype=auto without quotes
            if value is not None:
                found[name] = value
    return found
