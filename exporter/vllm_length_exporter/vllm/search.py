"""Finds vLLM's words in a text that is no log: a client's exception, an answer's body, a pasted excerpt.

Nothing here may feed a gauge or a counter: the words are looked for anywhere in the text.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator

from vllm_length_exporter.vllm.envelopes import bare, peel
from vllm_length_exporter.vllm.messages import Found, Message, anchor, match_at
from vllm_length_exporter.vllm.messages_errors import REQUEST_ERRORS, STARTUP_ERRORS
from vllm_length_exporter.vllm.messages_log import LOG, UVICORN
from vllm_length_exporter.vllm.pasted import unescaped
from vllm_length_exporter.vllm.records import taken_apart

LONGEST = 200_000  # characters that are looked through; a question is shorter
_ESCAPED = re.compile(r"""\\+(?=["'nrtu/])""")
_TYPOGRAPHIC = str.maketrans({"‘": "'", "’": "'", "“": '"', "”": '"', "\u00a0": " ", "…": "..."})
_WORDLESS = frozenset({"startup_complete", "shutdown_uvicorn", "uvicorn_access"})


def errors(text: str) -> Found | None:
    """The startup or request error that the text holds; the one that is matched furthest."""
    return _best(flattened(text), (*STARTUP_ERRORS, *REQUEST_ERRORS))


def log_words(text: str) -> Found | None:
    """What else of the log stands in the text, where it is no log line by itself."""
    return _best(flattened(text), [row for row in (*LOG, *UVICORN) if row.id not in _WORDLESS])


def flattened(text: str) -> str:
    """The text in one line: envelopes, headers and escapes off, wrapped lines joined, blanks as one."""
    lines = text[-LONGEST:].translate(_TYPOGRAPHIC).splitlines()
    joined = " ".join(_words(line) for line in lines)
    return " ".join(html.unescape(_without_escapes(joined)).split())


def _words(line: str) -> str:
    peeled = peel(line)
    text = peeled.record.message if peeled.record is not None else peeled.text
    return taken_apart(bare(text)).text


def _without_escapes(text: str) -> str:
    for _ in range(6):  # a body inside a repr inside a body: each puts its own before a quote mark
        shorter = unescaped(_ESCAPED.sub(r"\\", text)) if _ESCAPED.search(text) else text
        if shorter == text:
            break
        text = shorter
    return text.replace("''", "'").replace('""', '"')


def _best(text: str, rows: Iterable[Message]) -> Found | None:
    found = list(_matches(text, rows))
    if not found:
        return None
    return max(found, key=lambda pair: (pair[0].whole, pair[1]))[0]


def _matches(text: str, rows: Iterable[Message]) -> Iterator[tuple[Found, int]]:
    for row in rows:
        if anchor(row) not in text:
            continue
        found = match_at(row, text)
        if found is not None:
            yield found
