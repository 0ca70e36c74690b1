"""What a request asks for, read from its body without decoding the prompt."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .endpoints import Style

KEPT_BYTES = 1 << 20  # of a body; of larger ones nothing is read
SMALL_BYTES = 4096  # up to here, decoding all of a body costs less than finding the fields in it
_NAMES = (b"model", b"max_tokens", b"max_completion_tokens", b"max_output_tokens", b"n")
_SCALAR = re.compile(
    rb'\s*"(\w+)"\s*:\s*(-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?|true|false|null|"[^"\\]{0,200}")\s*,'
)
# The opening quote of a key follows one of these; of a quote inside a string, a backslash.
_BEFORE_KEY = rb'(?<=[{,\s]")'
_WANTED = re.compile(rb'"' + _BEFORE_KEY + rb"(?:" + rb"|".join(_NAMES) + rb')"\s*:')
_TRIES = 6
_DECODER = json.JSONDecoder()


@dataclass  # not frozen: that takes as long as to decode a short body
class Request:
    """What a request asks for.

    `read`: its body could be read. `output`: the number it sent, None where it sent none; `default_output`: what
    stands for none. `output_known`: false where it sent something else, or may have sent it in other fields.
    `answers`: how many it has to get, None where the body does not tell. `token_ids`: its prompt is one list of
    numbers.
    """

    read: bool = False
    model: str | None = None
    output: int | None = None
    default_output: int | None = None
    output_known: bool = False
    answers: int | None = None
    token_ids: bool = False


UNREAD = Request()


def read_request(body: bytes, style: Style) -> Request:
    """What the body asks for.

    Raises:
        ValueError: it is no JSON object.
    """
    several, token_ids = (False, False) if style.prompts == () else _listed(body, style)
    small = len(body) <= SMALL_BYTES and not token_ids
    fields = _parsed(body) if small else _fields(body)
    output, known, default = None, bool(style.output), style.default_output
    for name in style.output:
        if name in fields:
            default = None  # null is not the default in every version
            value = fields[name]
            if value is not None:
                output = _whole(value)
                known = output is not None
                break
    model, number = fields.get("model"), fields.get("n")
    if not isinstance(model, str):
        model = None
    answers = 1 if number is None else _whole(number)
    if several or answers is None or answers < 1:
        answers = None
    return Request(True, model, output, default, known, answers, token_ids)


def _fields(body: bytes) -> Mapping[str, Any]:
    """The scalar fields of the outermost object, as far as this module wants them.

    Most of a large body is one text or list that need not be decoded: what stands before it is read key by key, and
    what stands behind it from the first wanted key on. "{" + that rest is an object that ends where the body ends
    only if the key belongs to the outermost object.
    """
    if body[:1] != b"{":
        return _parsed(body)
    fields: dict[str, Any] = {}
    at = 1
    while (scalar := _SCALAR.match(body, at)) is not None:
        if scalar.group(1) in _NAMES:
            text = scalar.group(2).decode()
            fields[scalar.group(1).decode()] = text[1:-1] if text[0] == '"' else _DECODER.decode(text)
        at = scalar.end()
    found = _WANTED.search(body, at)
    if found is None:
        return fields if body[-16:].rstrip().endswith(b"}") else _parsed(body)
    for _ in range(_TRIES):
        rest = _rest(body, found.start())
        if rest is not None:
            return {**fields, **rest}
        found = _WANTED.search(body, found.end())
        if found is None:
            break
    return _parsed(body)


def _rest(body: bytes, start: int) -> Mapping[str, Any] | None:
    """The object that is left from a key on; None where it is not the outermost one."""
    try:
        text = "{" + body[start:].decode()
        rest, end = _DECODER.raw_decode(text)
    except (ValueError, RecursionError):
        return None
    return rest if not text[end:].strip() else None


def _parsed(body: bytes) -> Mapping[str, Any]:
    try:
        text = body.decode()
        parsed, end = _DECODER.raw_decode(text)
        whole = end == len(text) or not text[end:].strip()
    except (ValueError, RecursionError):
        whole = False
    if not whole:
        parsed = _as_server(body)
    if not isinstance(parsed, dict):
        raise ValueError("no JSON object")  # noqa: TRY004 - input that is malformed, whatever it is instead
    return parsed


def _as_server(body: bytes) -> object:
    """The body as vLLM reads it: in any encoding of JSON, with blanks before it."""
    try:
        return json.loads(body)
    except RecursionError as error:
        raise ValueError("nested too deep") from error


def _listed(body: bytes, style: Style) -> tuple[bool, bool]:
    """Whether there may be several prompts, and whether the prompt is one list of token ids."""
    if style.prompts is None:
        return True, False
    for name in style.prompts:
        found = _LISTS[name].search(body)
        if found is not None:
            ids = found.group(1).isdigit()
            return not ids, ids
    return False, False


_LISTS = {
    name: re.compile(rb'"' + _BEFORE_KEY + name.encode() + rb'"\s*:\s*\[\s*(["\[{\d])')
    for name in ("prompt", "input")
}


def _whole(value: object) -> int | None:
    """A whole number as vLLM's validation takes it: 20, 20.0 and "20"."""
    if isinstance(value, int):
        return None if isinstance(value, bool) else value
    if isinstance(value, float):
        return int(value) if value.is_integer() else None
    if isinstance(value, str) and re.fullmatch(r"-?\d{1,18}", value):
        return int(value)
    return None
