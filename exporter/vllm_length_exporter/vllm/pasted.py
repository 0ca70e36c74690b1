"""A log that somebody pasted: as one quoted, escaped string, or quoted for another language."""

from __future__ import annotations

import ast
import json
import re

from vllm_length_exporter.vllm.records import taken_apart

_QUOTED = re.compile(r"""\s*(?:"[\w.-]+"\s*:\s*)?(?P<quote>["'])(?P<body>.*)""", re.DOTALL)


def pasted(text: str) -> list[str] | None:
    """The lines of a log that was pasted as one quoted, escaped string (or one such string a line).

    None where the text is not one. A caller must not ask once plain records were seen: what a client sent
    is escaped in vLLM's own lines as well.
    """
    match = _QUOTED.fullmatch(text)
    if match is None:
        return None
    quote, body = match.group("quote"), match.group("body").rstrip().rstrip(",")
    whole = body.endswith(quote)
    body = body.removesuffix(quote)
    if not whole and "\\" not in body and quote * 2 not in body:
        return None
    body = body.replace(quote * 2, quote)
    try:
        value = ast.literal_eval(f"{quote}{body}{quote}") if quote == "'" else json.loads(f'"{body}"')
    except (ValueError, SyntaxError):
        value = unescaped(body)
    return str(value).splitlines() or None


def unescaped(body: str) -> str:
    """The text with its backslash escapes read."""
    return re.sub(r"\\(u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|033|.)", _escape, body)


def _escape(match: re.Match[str]) -> str:
    code = match.group(1)
    if len(code) > 1:
        number = 0x1B if code == "033" else int(code[1:], 16)
        return "\ufffd" if 0xD800 <= number < 0xE000 else chr(number)
    return {"n": "\n", "r": "\r", "t": "\t"}.get(code, code)


def escaped(text: str) -> list[str] | None:
    """The lines of a log that was pasted as one escaped string without its quotes.

    vLLM escapes what clients send as well, but in quotes, and not with a header of its own on each line.
    """
    first, *rest = text.split("\\n")
    if not rest or any(quote in first for quote in "'\"`"):
        return None
    lines = [unescaped(part) for part in (first, *rest) if part]
    return lines if all(taken_apart(line).header for line in lines) else None


def undoubled(text: str) -> str:
    """A text that was quoted for another language, where every quote mark stands twice."""
    for mark in ("'", '"'):
        if mark * 2 in text and all(len(run) % 2 == 0 for run in re.findall(f"{mark}+", text)):
            text = text.replace(mark * 2, mark)
    return text
