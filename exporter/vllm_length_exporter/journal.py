"""The exporter's own log, on standard error: one line a record, as logfmt or JSON.

```
ts=2026-01-31T12:00:00.123Z level=warning logger=daemon msg="clock stepped" planned=anew
```

What is passed as `extra` to a logging call becomes further keys.
"""

from __future__ import annotations

import logging
import sys
import traceback
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import IO

import msgspec

from vllm_length_exporter.terminal import escaped

PACKAGE = "vllm_length_exporter"
FORMATS = ("logfmt", "json")
OWN_KEYS = frozenset({"ts", "level", "logger", "msg", "error", "trace"})
STANDARD = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime"}
BARE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.:/@+,*%()[]<>|~^")


class Logfmt(logging.Formatter):
    """`key=value` pairs; a value with anything unusual in it is quoted, so that a record is one line."""

    def format(self, record: logging.LogRecord) -> str:
        return " ".join(f"{key}={_quoted(str(value))}" for key, value in _pairs(record))


class Json(logging.Formatter):
    """One JSON object a record."""

    def format(self, record: logging.LogRecord) -> str:
        # A file name that is no UTF-8 has surrogates in it, which JSON cannot carry.
        sound = {
            key: value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value
            for key, value in _pairs(record)
        }
        return msgspec.json.encode(sound).decode()


def set_up(level: str = "info", form: str = "logfmt", stream: IO[str] | None = None) -> None:
    """Write records of `level` and above to `stream` (standard error) in one of `FORMATS`; again: anew.

    Of libraries only warnings are written, whatever the level.
    """
    handler = logging.StreamHandler(stream if stream is not None else sys.stderr)
    handler.setFormatter(Json() if form == "json" else Logfmt())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger(PACKAGE).setLevel(level.upper())
    logging.captureWarnings(True)
    logging.raiseExceptions = False  # a full disk behind standard error must not print tracebacks


def _pairs(record: logging.LogRecord) -> Iterator[tuple[str, object]]:
    moment = datetime.fromtimestamp(record.created, UTC)
    yield "ts", moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    yield "level", record.levelname.lower()
    yield "logger", record.name.removeprefix(PACKAGE + ".")
    yield "msg", record.getMessage()
    for key, value in record.__dict__.items():
        if key not in STANDARD:
            # "error" is common as an extra; where an exception is told too, the two must not be one key.
            taken = key in OWN_KEYS and (key != "error" or bool(record.exc_info))
            yield (f"{key}_" if taken else key), _plain(value)
    if record.exc_info and record.exc_info[0] is not None:
        yield "error", "".join(traceback.format_exception_only(*record.exc_info[:2])).strip()
        yield "trace", "".join(traceback.format_exception(*record.exc_info)).strip()


def _plain(value: object) -> object:
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)


def _quoted(text: str) -> str:
    if text and BARE.issuperset(text):
        return text
    return '"' + "".join(_ESCAPES.get(character) or escaped(character) for character in text) + '"'


_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
