"""The catalogue's grammar: how a row of it is written, compiled and matched.

A row's template is the text as vLLM prints it, with `{field:kind}` where a value stands. Kinds convert to
base units. A field whose name begins with `_` is not kept. `[[ ]]` is a part that may be missing.
What stands before `‖` proves the message; what follows only tells versions apart, so that a text that was
cut or that a later release reworded still gives its numbers. Rows are compiled when first met.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from types import MappingProxyType
from typing import NamedTuple

from vllm_length_exporter.vllm.arguments import arguments, engine_config
from vllm_length_exporter.vllm.events import EventName, FieldValue
from vllm_length_exporter.vllm.numbers import decimal, gib, integer, percent

# Longer texts are prompts; only the two lines that print a whole configuration are read whole.
LONGEST_MESSAGE = 16_384


class Kind(StrEnum):
    """Where a message appears: in the log, as the reason of a failed start, as the answer to a request."""

    LOG = "log"
    STARTUP_ERROR = "startup_error"
    REQUEST_ERROR = "request_error"


@dataclass(frozen=True, slots=True)
class Message:
    """One row of the catalogue. `also` names rows of the same text from other places or releases."""

    id: str
    kind: Kind
    event: EventName
    template: str
    first: str  # the first and last release that was seen to hold it
    last: str
    level: str = "INFO"
    fixed: Mapping[str, FieldValue] = field(default_factory=lambda: MappingProxyType({}))
    also: tuple[str, ...] = ()
    has: tuple[str, ...] = ()  # literals that the text must hold besides
    lacks: tuple[str, ...] = ()
    within: str | None = None  # it is a later line of the record that begins so
    client: bool = False  # what a client sent may follow: no line of the record after the first counts
    head: bool = False  # the first line of a record that holds a traceback
    continued: bool = False  # later lines of the record have rows of their own
    aside: str | None = None  # a template that is looked for behind the head where the whole is not there


class Found(NamedTuple):
    """A row that matched and the fields of the text, `fixed` ones included."""

    message: Message
    fields: Mapping[str, FieldValue]
    whole: bool  # the text matched to its end, so the versions of the row hold


_INT = r"-?\d[\d,]*(?:\.0+)?"
_NUMBER = r"-?\d[\d,]*(?:\.\d+)?"


def _engine(text: str) -> FieldValue:
    return str(int(text))


def _statistics(text: str) -> Mapping[str, FieldValue] | None:
    """`Running: 5 reqs, Waiting: 2 reqs, GPU KV cache usage: 97.4%, ...`, in any order (0.2.7-0.33)."""
    found: dict[str, FieldValue] = {}
    for part in text.rstrip(".").split(", "):
        name, _, value = part.partition(": ")
        if name in _REQUESTS and value.endswith(" reqs"):
            found[_REQUESTS[name]] = integer(value.removesuffix(" reqs"))
        elif name == "Preemptions":
            found["preemptions"] = integer(value)
        elif name.endswith(" KV cache usage") and value.endswith("%") and (name != "CPU KV cache usage"):
            found["kv_cache_usage_ratio"] = percent(value[:-1])
        elif name == "CPU KV cache usage" and "kv_cache_usage_ratio" not in found:
            # V0 prints the GPU's share first; alone it is the CPU backend's own (0.30+).
            found["kv_cache_usage_ratio"] = percent(value.rstrip("%"))
    return found if "running" in found and "kv_cache_usage_ratio" in found else None


def _of_several(found: Mapping[str, FieldValue]) -> Mapping[str, FieldValue]:
    """The usage of several engines together is a mean, and no engine's own."""
    return {("mean_" + key if key == "kv_cache_usage_ratio" else key): value for key, value in found.items()}


_REQUESTS = {
    "Running": "running", "Waiting": "waiting", "Pending": "waiting", "Swapped": "swapped",
    "Deferred": "deferred",
}  # fmt: skip

Converter = Callable[[str], "FieldValue | Mapping[str, FieldValue]"]
KINDS: Mapping[str, tuple[str, Converter]] = {
    "int": (_INT, integer),
    "maybe": (rf"None|{_INT}", integer),
    "num": (_NUMBER, decimal),
    "gib": (_NUMBER, gib),
    "percent": (_NUMBER, percent),
    "engine": (r"\d+", _engine),
    "count": (rf"(?:at least )?{_INT}", str),  # see `_fields`
    "word": (r"\S+", str),
    "name": (r"[\w./-]+", str),
    "id": (r"[a-z_]+", str),
    "device": (r"[A-Za-z]{2,10}(?: \+ [a-z]+)?", str),
    "method": (r"[A-Z]+", str),
    "prompt": (r"(?:encoder|decoder)", str),
    "address": (r"[^ ]*", str),
    "text": (r".{1,400}?", str),
    "rest": (r".*", str),
    "gap": (r"\s*", str),
    "logo": (r"[█▄▀ ]+", str),
    "arguments": (r"\{.*", lambda text: arguments(text) or {}),
    "namespace": (r".*", lambda text: arguments(text, bare=True) or {}),
    "config": (r".*", engine_config),
    "statistics": (r".*", lambda text: _statistics(text) or {}),
    "mean": (r".*", lambda text: _of_several(_statistics(text) or {})),
}
_SUFFIX = r"(?: \(parameter=.*\)| None)?\s*"  # 0.14+ names the parameter; chat 0.9.0-0.14.1 ends in None
_PIECE = re.compile(r"(\{\w*:\w+\}|\[\[|\]\])")


@dataclass(frozen=True, slots=True)
class _Compiled:
    whole: re.Pattern[str]
    head: re.Pattern[str] | None
    fields: tuple[tuple[str, Converter], ...]  # one for each group, in order


@cache
def _compiled(template: str) -> _Compiled:
    head, mark, tail = template.partition("‖")
    fields: list[tuple[str, Converter]] = []
    head_regex = _regex(head, fields)
    whole = head_regex + _regex(tail, fields) + _SUFFIX
    return _Compiled(
        re.compile(whole, re.DOTALL),
        re.compile(head_regex, re.DOTALL) if mark else None,
        tuple(fields),
    )


def _regex(template: str, fields: list[tuple[str, Converter]]) -> str:
    made = []
    for piece in _PIECE.split(template):
        if piece == "[[":
            made.append("(?:")
        elif piece == "]]":
            made.append(")?")
        elif piece.startswith("{") and _PIECE.fullmatch(piece):
            name, _, kind = piece[1:-1].partition(":")
            pattern, converter = KINDS[kind]
            if name.startswith("_"):
                made.append(f"(?:{pattern})")
            else:
                fields.append((name or kind, converter))
                made.append(f"({pattern})")
        else:
            made.append(re.escape(piece))
    return "".join(made)


def _may_match(message: Message, text: str) -> bool:
    return all(part in text for part in message.has) and not any(part in text for part in message.lacks)


def match(message: Message, text: str) -> Found | None:
    """The row's fields in the text, which must begin with the row's template; None where it does not."""
    if (message.has or message.lacks) and not _may_match(message, text):
        return None
    compiled = _compiled(message.template)
    found, whole = compiled.whole.fullmatch(text), True
    if found is None and compiled.head is not None:
        found, whole = compiled.head.match(text), False
    if found is None:
        return None
    fields = {**message.fixed, **_fields(compiled, found)}
    return Found(message, fields if whole else fields | _aside(message, text, found.end()), whole)


def match_at(message: Message, text: str) -> tuple[Found, int] | None:
    """The row anywhere in the text, and how many characters it covers; for texts that are no log."""
    if not _may_match(message, text):
        return None
    compiled = _compiled(message.template)
    head = (compiled.head or compiled.whole).search(text)
    if head is None:
        return None
    whole = compiled.whole.match(text, head.start())
    found = whole or head
    fields = {**message.fixed, **_fields(compiled, found)}
    if whole is None:
        fields |= _aside(message, text, found.end())
    return Found(message, fields, whole is not None), found.end() - found.start()


Replace = Callable[[str, str, str], str]


def rewritten(message: Message, text: str, replace: Replace) -> str | None:
    """The text with each value put through `replace(field, kind, value)`; None where it is not the row's.

    The row's own words stay. What follows a head that alone matched is the field `_tail` of the kind `rest`.
    """
    compiled = _with_all_values(message.template)
    found = compiled.whole.fullmatch(text)
    if found is None and compiled.head is not None:
        found = compiled.head.match(text)
    if found is None:
        return None
    made, position = [], 0
    for group, field_name, kind in compiled.values:
        start, end = found.span(group) if group in found.re.groupindex else (-1, -1)
        if start >= 0:
            made += [text[position:start], replace(field_name, kind, text[start:end])]
            position = end
    made.append(text[position : found.end()])
    if tail := text[found.end() :]:
        made.append(replace("_tail", "rest", tail))
        if message.aside is not None and (aside := _with_all_values(message.aside).bare.search(tail)):
            made.append(f" {aside.group()}")
    return "".join(made)


@dataclass(frozen=True, slots=True)
class _WithAllValues:
    whole: re.Pattern[str]
    head: re.Pattern[str] | None
    bare: re.Pattern[str]  # the template alone, without what vLLM may add to it
    values: tuple[tuple[str, str, str], ...]  # group, field, kind


@cache
def _with_all_values(template: str) -> _WithAllValues:
    values: list[tuple[str, str, str]] = []

    def grouped(part: str) -> str:
        made = []
        for piece in _PIECE.split(part):
            if piece.startswith("{") and _PIECE.fullmatch(piece):
                name, _, kind = piece[1:-1].partition(":")
                values.append((f"v{len(values)}", name or kind, kind))
                made.append(f"(?P<{values[-1][0]}>{KINDS[kind][0]})")
            else:
                made.append(_regex(piece, []))
        return "".join(made)

    head, mark, tail = template.partition("‖")
    head_regex = grouped(head)
    bare = head_regex + grouped(tail)
    values.append(("suffix", "_suffix", "rest"))
    return _WithAllValues(
        re.compile(f"{bare}(?P<suffix>{_SUFFIX})", re.DOTALL),
        re.compile(head_regex, re.DOTALL) if mark else None,
        re.compile(bare, re.DOTALL),
        tuple(values),
    )


def _aside(message: Message, text: str, start: int) -> dict[str, FieldValue]:
    if message.aside is None:
        return {}
    compiled = _compiled(message.aside)
    found = compiled.whole.search(text, start)
    return {} if found is None else _fields(compiled, found)


def anchor(message: Message) -> str:
    """The longest text that the row cannot do without."""
    literals = re.split(r"\{\w*:\w+\}", _without_options(message.template))
    return max(literals, key=len)


def _fields(compiled: _Compiled, found: re.Match[str]) -> dict[str, FieldValue]:
    fields: dict[str, FieldValue] = {}
    # The head alone has the first of the groups only.
    for (name, convert), text in zip(compiled.fields, found.groups(), strict=False):
        if text is None:
            continue
        value = convert(text)
        if name.endswith("_tokens") and isinstance(value, str):  # the kind "count"
            number = integer(value.removeprefix("at least "))
            fields[f"{name}_at_least" if value.startswith("at least ") else name] = number
        elif isinstance(value, Mapping):
            fields.update(value)
        elif value is not None:
            fields[name] = value
    return fields


class Index:
    """Finds the rows that a text can match by its first characters, so that most texts cost one look-up."""

    _KEY = 6

    def __init__(self, rows: Iterable[Message]) -> None:
        self._by_head: dict[str, list[Message]] = {}
        self._loose: list[tuple[str, Message]] = []
        for row in rows:
            opening = re.split(r"\{|\[\[|‖", row.template, maxsplit=1)[0]
            if len(opening) >= self._KEY:
                self._by_head.setdefault(opening[: self._KEY], []).append(row)
            else:
                self._loose.append((anchor(row), row))

    def find(self, text: str) -> Found | None:
        """The row that the text matches to its end, else the first that it begins with."""
        partial: Found | None = None
        for row in self.candidates(text):
            found = match(row, text)
            if found is not None and found.whole:
                return found
            partial = partial or found
        return partial

    def candidates(self, text: str) -> Iterable[Message]:
        if len(text) > LONGEST_MESSAGE:
            return [row for row in self._by_head.get(text[: self._KEY], ()) if row.template.endswith(_LONG)]
        rows = self._by_head.get(text[: self._KEY], [])
        loose = [row for literal, row in self._loose if literal in text]
        return [*rows, *loose] if loose else rows


_LONG = ("{:arguments}", "{:config}", "{:namespace})")


def _without_options(template: str) -> str:
    head = template.partition("‖")[0]
    while (start := head.find("[[")) >= 0:
        head = head[:start] + "{_:rest}" + head[head.index("]]", start) + 2 :]
    return head
