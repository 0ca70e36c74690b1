"""Plain objects -> a typed structure, with no key too many; a mistake is told in words, not in types."""

from __future__ import annotations

import difflib
import re
import types
from collections.abc import Callable, Iterator
from enum import Enum
from typing import Any, TypeVar, Union, get_args, get_origin

import msgspec

from .mistake import ConfigError, KeyedError, KeyPath

T = TypeVar("T")

WORDS = {
    "str": "text",
    "bool": "true or false",
    "int": "a whole number",
    "float": "a number",
    "object": "keys with values",
    "array": "a list",
    "null": "nothing",
    "date": "a date",
    "datetime": "a time",
    "bytes": "binary data",
}
AT = re.compile(r"^(?P<said>.*?)(?: - at (?P<key>`key` in )?`\$(?P<path>[^`]*)`)?$", re.DOTALL)
STEP = re.compile(r"\.(?P<key>[^.\[]+)|\[(?P<index>\d+)\]|\[\.\.\.\]")
EXPECTED = re.compile(r"^Expected `(?P<expected>[^`]+)`(?:, got `(?P<got>[^`]+)`)?$")
UNKNOWN = re.compile(r"^Object contains unknown field `(?P<key>.*)`$", re.DOTALL)
MISSING = re.compile(r"^Object missing required field `(?P<key>.*)`$")


def convert(
    content: Any, shape: type[T], hook: Callable[[type, Any], Any], place: Callable[[KeyPath], str]
) -> T:
    """`content` as `shape`; `hook` makes the types that msgspec does not know, `place` names a key's place.

    Raises:
        ConfigError: a key is unknown, missing or of the wrong type, or its own check refused it.
    """
    try:
        return msgspec.convert(content, shape, dec_hook=hook)
    except msgspec.ValidationError as error:
        path, said = _told(error, shape)
        where = place(path)
        raise ConfigError(f"{where}: {said}") from error


def _told(error: msgspec.ValidationError, shape: type) -> tuple[KeyPath, str]:
    match = AT.match(str(error))
    said, path = (match["said"], _steps(match["path"] or "")) if match else (str(error), ())
    if isinstance(error.__cause__, KeyedError):
        return (*path, error.__cause__.key), str(error.__cause__)
    if match and match["key"]:
        return path, "expected a key that is text; put it in quotes"
    if unknown := UNKNOWN.match(said):
        return (*path, unknown["key"]), _unknown(unknown["key"], _at(shape, path))
    if missing := MISSING.match(said):
        return path, f"expected the key {missing['key']!r}, which is missing"
    if said.startswith("Invalid enum value"):
        return path, f"expected one of {_choices(_at(shape, path))}"
    if expected := EXPECTED.match(said):
        return path, _expected(expected["expected"], expected["got"], _at(shape, path))
    return path, said


def _steps(text: str) -> KeyPath:
    return tuple(
        int(step["index"]) if step["index"] else step["key"]
        for step in STEP.finditer(text)
        if step["index"] or step["key"]
    )


def _expected(expected: str, got: str | None, kind: Any) -> str:
    names = [name.strip() for name in expected.split("|")]
    choices = _choices(kind)
    wanted = (
        f"one of {choices}"
        if choices
        else " or ".join(WORDS.get(name, name) for name in names if name != "null")
    )
    hint = (
        "; put it in quotes"
        if "str" in names and not choices and got not in ("object", "array", "null", None)
        else ""
    )
    return f"expected {wanted}" + (f", got {WORDS.get(got, got)}{hint}" if got else "")


def _unknown(key: str, kind: Any) -> str:
    known = [field.encode_name for field in msgspec.structs.fields(kind)] if _is_struct(kind) else []
    close = difflib.get_close_matches(key, known, n=1)
    return (
        f"unknown key; did you mean {close[0]!r}?"
        if close
        else f"unknown key; expected one of {', '.join(known)}"
    )


def _choices(kind: Any) -> str:
    enums = [part for part in _parts(kind) if isinstance(part, type) and issubclass(part, Enum)]
    return ", ".join(str(member.value) for enum in enums for member in enum)


def _at(shape: Any, path: KeyPath) -> Any:
    """The type that belongs at `path`, None where the path leads out of what is declared."""
    kind = shape
    for step in path:
        if isinstance(step, int):
            kind = next((get_args(part)[0] for part in _parts(kind) if get_args(part)), None)
        else:
            struct = next((part for part in _parts(kind) if _is_struct(part)), None)
            fields = msgspec.structs.fields(struct) if struct is not None else ()
            kind = next((field.type for field in fields if field.encode_name == step), None)
    return next((part for part in _parts(kind) if _is_struct(part)), kind)


def _parts(kind: Any) -> Iterator[Any]:
    if get_origin(kind) in (Union, types.UnionType):
        yield from get_args(kind)
    else:
        yield kind


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)
