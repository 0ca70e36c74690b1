"""What an answer tells: its usage, how it ended, or its error; as JSON or as a stream of events."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from .endpoints import Style
from .request import Request

_USAGE = b'"usage":'
_USAGE_BYTES = 4096
# what vLLM writes for a chat or a completion, up to where the details begin
_PLAIN_USAGE = re.compile(
    rb'"usage": ?\{"prompt_tokens": ?(\d+), ?"total_tokens": ?\d+, ?"completion_tokens": ?(\d+)[,}]'
)
_ENTRY = re.compile(rb'"index": ?\d')
_ERROR = re.compile(rb'"error": ?\{')
# A raw line end never stands inside a JSON string: these are lines of the stream and never part of a text.
_LAST_LINES = (
    b"\ndata: [DONE]",
    b"\nevent: message_stop",
    b"\nevent: response.completed",
    b"\nevent: response.incomplete",
)
_BROKEN = (b"error", b"abort")
_DECODER = json.JSONDecoder()


@dataclass  # not frozen: that takes longer than to read it
class Usage:
    """Tokens of all prompts and of all answers; `turns` of the model, 1 where they are not told."""

    prompt: int
    output: int
    turns: int = 1


@dataclass(frozen=True)
class Ends:
    """How many answers were seen to end, how many of them for length, and whether one broke off."""

    answers: int = 0
    cut: int = 0
    broken: bool = False


NO_ENDS = Ends()
_ONE, _ONE_CUT, _ONE_BROKEN = Ends(1), Ends(1, 1), Ends(1, 0, broken=True)


class ServerError(NamedTuple):
    """An error as the server tells it, in an answer or in an event; `code` where it names a status."""

    message: str
    parameter: object = None
    code: int | None = None


def read_usage(data: bytes) -> Usage | None:
    """The last usage object in the data; None where there is none, or none of a prompt."""
    end = len(data)
    while True:
        at = data.rfind(_USAGE, 0, end)
        if at < 0:
            return None
        plain = _PLAIN_USAGE.match(data, at)
        if plain is not None:
            prompt, output = plain.groups()
            if prompt != b"0":
                return Usage(int(prompt), int(output))
        text = data[at + len(_USAGE) : at + len(_USAGE) + _USAGE_BYTES].decode("utf-8", "replace").lstrip()
        if text.startswith("{"):
            try:
                return usage_of(_DECODER.raw_decode(text)[0])
            except ValueError:
                return None
        end = at


def usage_of(found: Mapping[str, Any]) -> Usage | None:
    """Usage in the words of any of the APIs; None where it names no prompt."""
    prompt = count(found.get("prompt_tokens"))
    if prompt is None:
        prompt = count(found.get("input_tokens"))
        if prompt is not None:  # the Messages API counts cached tokens apart
            prompt += sum(
                count(found.get(name)) or 0
                for name in ("cache_read_input_tokens", "cache_creation_input_tokens")
            )
    if prompt is None:
        prompt = count(found.get("total_tokens"))
    output = count(found.get("completion_tokens"))
    if output is None:
        output = count(found.get("output_tokens"))
    if not prompt:
        return None
    details = found.get("input_tokens_details")
    turns = details.get("input_tokens_per_turn") if isinstance(details, dict) else None
    return Usage(prompt, output or 0, max(len(turns), 1) if isinstance(turns, list) else 1)


def count(value: object) -> int | None:
    """A number of things; None for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def read_ends(data: bytes, style: Style) -> Ends:
    """The ends of answers that the data tells."""
    if style.ended is None:
        return NO_ENDS
    reasons = style.ended.findall(data)
    return Ends(len(reasons), reasons.count(style.cut), any(reason in _BROKEN for reason in reasons))


def read_last_end(data: bytes, style: Style) -> Ends:
    """The end of the only answer: the last one told."""
    at = data.rfind(style.end)
    match = style.ended.match(data, at) if style.ended is not None and at >= 0 else None
    if match is None:
        return NO_ENDS
    reason = match.group(1)
    return _ONE_CUT if reason == style.cut else _ONE_BROKEN if reason in _BROKEN else _ONE


def read_entries(data: bytes) -> int:
    """How many results an answer lists."""
    return len(_ENTRY.findall(data))


def stream_ended(data: bytes) -> bool:
    """Whether the end of a stream holds its end marker."""
    return any(line in data or data.startswith(line[1:]) for line in _LAST_LINES)


def whole_events(data: bytes) -> bytes:
    """The data without the rest of an event at its beginning."""
    return data[data.find(b"\n\n") + 2 :]


def read_error(data: bytes) -> ServerError | None:
    """The error of a JSON body or an event, in any of the forms that vLLM had; None where there is none."""
    try:
        parsed = json.loads(data)
    except (ValueError, RecursionError):
        return None
    if not isinstance(parsed, dict):
        return None
    if isinstance(parsed.get("response"), dict):  # an event of the Responses API
        parsed = parsed["response"]
    found = parsed.get("error")
    if found is None and parsed.get("object") == "error":
        found = parsed
    if not isinstance(found, dict) or not isinstance(found.get("message"), str):
        return None
    return ServerError(found["message"], found.get("param"), count(found.get("code")))


def stream_error(data: bytes) -> ServerError | None:
    """The first error among the events of a stream."""
    if _ERROR.search(data) is None:
        return None
    for line in data.splitlines():
        if line.startswith(b"data:") and _ERROR.search(line):
            error = read_error(line[5:])
            if error is not None:
                return error
    return None


def truncation(usage: Usage, request: Request, answers: int, limit: int | None) -> str:
    """Why all of the answers ended for length. None exceeds its cap: where they average it, each reached it."""
    if usage.output % answers:
        return "unknown"
    each = usage.output // answers
    if limit is not None and usage.prompt + each == limit:
        return "context_full"
    requested = request.default_output if request.output is None else request.output
    return "max_tokens" if requested is not None and each == requested else "unknown"
