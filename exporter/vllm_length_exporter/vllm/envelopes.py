"""Takes off what other programs put round a line of vLLM's log: one layer after another, each known once.

An envelope is only looked for at the beginning of what is left of the line, so nothing that a client sent
further on can look like one. Records of JSON formatters come out whole: level, process, traceback.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

LAYERS = 8  # no shipping chain is longer; a line that goes on has no vLLM in it
_SEQUENCE = r"(?:\[[0-9;?]*[A-Za-z]|\][^\x07\x1b]*(?:\x07|\x1b\\))"
ANSI = re.compile(rf"\x1b{_SEQUENCE}")
# Shippers spell the escape sign out. Only what stands about the header is colour: the rest may be escaped text.
SPELT = re.compile(rf"(?:\\u001b|\\x1b|\\033|#033|\^\[){_SEQUENCE}")
HEADER_LENGTH = 250
BARE = ("(", "INFO", "ERROR", "WARNING", "DEBUG", "CRITICAL", "Traceback", " ")

_CLOCK = r"\d\d:\d\d:\d\d(?:[.,]\d+)?"
_ISO = rf"\d{{4}}-\d\d-\d\dT{_CLOCK}(?:Z|[+-]\d\d:?\d\d)"
_HOST = r"[^\s:]+"
_LAYER = re.compile(
    "|".join(
        (
            rf"(?P<cri>{_ISO} (?:stdout|stderr) (?P<tag>[FP])(?::\S*)? ?)",
            rf"{_ISO} {_HOST} [^\s:\[\]]+\[\d+\]: ",  # journald short-iso
            rf"\w{{3}} \d{{4}}-\d\d-\d\d {_CLOCK} [A-Z]{{2,5}} {_HOST} [^\s:\[\]]+(?:\[\d+\])?: ",  # short-full
            rf"(?:<\d{{1,3}}>)?1 {_ISO} \S+ \S+ \S+ \S+ (?:-|\[[^\]]*\]) ",  # syslog, RFC 5424
            rf"{_ISO} ",  # kubectl --timestamps, docker logs -t
            rf"(?:<\d{{1,3}}>)?\w{{3}} [ \d]\d {_CLOCK} {_HOST} [^\s:\[\]]+(?:\[\d+\])?: ",  # journald short
            rf"\[ *\d+\.\d+\] {_HOST} [^\s:\[\]]+(?:\[\d+\])?: ",  # journald short-monotonic
            r"\[pod/[^\]\s]+\] ",  # kubectl logs --prefix
            r"[A-Za-z0-9][\w.-]* *\| ",  # docker compose
            r"\d+[:-](?=[A-Za-z(\[{<\"' #\\^]|\d{4}-|\d+\.\d+s )",  # grep -n
            r"\d+\.\d+s \d+ ",  # a notebook service numbers the lines
        )
    )
)


@dataclass(frozen=True, slots=True)
class JsonRecord:
    """A record that a JSON formatter wrote: its borders are certain."""

    message: str
    level: str | None = None
    logger: str | None = None
    location: str | None = None
    process: str | None = None
    pid: int | None = None
    stamp: str | None = None
    traceback: str | None = None


class Peeled(NamedTuple):
    """A line without its envelopes; `record` where it was a whole JSON record.

    `channel` is set where a container runtime's envelope came off: what is in it is still to be peeled.
    `whole` is False for a piece of a line that the runtime cut; pieces of one channel belong together.
    """

    text: str
    whole: bool = True
    channel: str = ""
    record: JsonRecord | None = None


# An access line of a finished request from its first character to its last, in the usual envelopes: a line that
# is nothing else need not be taken apart.
_STAMPED = rf"(?:[A-Za-z0-9][\w.-]* *\| )?(?:{_ISO} (?:stdout F )?)?"
IS_FINISHED = re.compile(
    rf"(?:{{\"log\":\"|{_STAMPED})(?:\x1b\[[0-9;]+m)?(?:\(\w+ pid=\d+\))?(?:\x1b\[[0-9;]+m)? ?INFO:     "
    r'[\w.:\[\]]+ - \\?"[A-Z]+ [^ "\\]* HTTP/\d(?:\.\d)?\\?" 200 OK'
    r'(?:\\n","stream":"\w+"(?:,"attrs":{[^{}]*})?,"time":"[\d:.TZ+-]+"})?\s*'
).fullmatch

# The same from vLLM's JSON formatter (0.31+), which names the logger before the message.
IS_FINISHED_JSON = re.compile(
    r'\{"asctime": "[^"]*", "levelname": "INFO", "name": "uvicorn\.access", "processName": "[^"]*", "process": \d+, '
    r'"message": "[\w.:\[\]]+ - \\"[A-Z]+ [^ "\\]* HTTP/\d(?:\.\d)?\\" 200"'
).match


def bare(line: str) -> str:
    """The line without its end and without colour."""
    line = line.rstrip("\r\n")
    return ANSI.sub("", line) if "\x1b" in line else line


def _without_spelt_colour(text: str) -> str:
    begin = text[:HEADER_LENGTH]
    if not any(sign in begin for sign in ("\\", "#033", "^[")) or begin.lstrip().startswith(("'", '"')):
        return text  # in a quoted string the escapes are the string's own
    return SPELT.sub("", begin) + text[HEADER_LENGTH:]


def peel(line: str) -> Peeled:
    """What is left of a line when its envelopes are off.

    A container runtime's is the last that is taken off: its lines may be pieces, so what is in them can only
    be peeled when they are together.
    """
    text = bare(line)
    for _ in range(LAYERS):
        if text.startswith(BARE):
            break
        if text.startswith("{"):
            inner = _json(text)
            if inner is None:
                break
            if inner.record is not None or inner.channel:
                return inner
            text = bare(inner.text)
            continue
        layer = _LAYER.match(text)
        if layer is None:
            colour = SPELT.match(text)
            if colour is None:
                break
            text = text[colour.end() :]
            continue
        text = text[layer.end() :]
        if tag := layer.group("tag"):
            return Peeled(text, tag == "F", layer.group("cri").split()[1])
    return Peeled(_without_spelt_colour(text))


_LEVEL_KEYS = ("levelname", "level", "severity", "log.level", "level_name", "loglevel", "lvl")
_MESSAGE_KEYS = ("message", "msg", "event")
_LOGGER_KEYS = ("name", "logger", "logger_name", "loggerName", "log.logger")
_PROCESS_KEYS = ("vllm_process_name", "processName", "process_name")
_PID_KEYS = ("process", "pid", "process_id")
_STAMP_KEYS = ("asctime", "timestamp", "time", "@timestamp", "ts")
_TRACEBACK_KEYS = (
    "exc_info",
    "exc_text",
    "exception",
    "traceback",
    "stack_trace",
    "error.stack_trace",
    "stack",
)
LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")


def _json(text: str) -> Peeled | None:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    if isinstance(log := value.get("log"), str):  # docker's json-file, and shippers that keep its key
        cut = "stream" in value and "time" in value and not log.endswith("\n")
        return Peeled(log.rstrip("\r\n"), not cut, str(value.get("stream") or "log"))
    if "MESSAGE" in value:  # journalctl -o json
        return Peeled(
            _journal_text(value["MESSAGE"]), value.get("CONTAINER_PARTIAL_MESSAGE") != "true", "journal"
        )
    if isinstance(record := value.get("record"), dict) and "message" in record:  # loguru's serialisation
        return _record(record)
    return _record(value)


def _journal_text(value: object) -> str:
    if isinstance(value, list) and all(isinstance(byte, int) and 0 <= byte < 256 for byte in value):
        return bytes(value).decode("utf-8", "replace")
    return value if isinstance(value, str) else ""


def _record(value: Mapping[str, object]) -> Peeled | None:
    message = next((text for key in _MESSAGE_KEYS if isinstance(text := value.get(key), str)), None)
    if message is None:
        return None
    level, logger = _text(value, _LEVEL_KEYS), _text(value, _LOGGER_KEYS)
    # A shipper's own wrapping of a line: vLLM's own header is still in it.
    if (level is None and logger is None) or message.startswith(("(", *LEVELS)):
        return Peeled(message.rstrip("\r\n"))
    pid = _text(value, _PID_KEYS)
    file, line = _text(value, ("filename", "file")), _text(value, ("lineno", "line"))
    return Peeled(
        message,
        record=JsonRecord(
            message=message,
            level=level.upper().replace("WARN", "WARNING").replace("WARNINGING", "WARNING")
            if level
            else None,
            logger=logger,
            location=f"{file}:{line}" if file and line else None,
            process=_process_name(_text(value, _PROCESS_KEYS)),
            pid=int(pid) if pid and pid.isdigit() else None,
            stamp=_text(value, _STAMP_KEYS),
            traceback=_text(value, _TRACEBACK_KEYS),
        ),
    )


def _process_name(name: str | None) -> str | None:
    return None if name == "MainProcess" else name


def _text(value: Mapping[str, object], keys: tuple[str, ...]) -> str | None:
    for key in keys:
        found = value.get(key)
        if isinstance(found, Mapping):  # loguru: {"level": {"name": "INFO"}}, {"process": {"id": 1}}
            found = found.get("name", found.get("id"))
        if isinstance(found, str) and found:
            return found
        if isinstance(found, int) and not isinstance(found, bool):
            return str(found)
        if isinstance(found, list) and all(isinstance(line, str) for line in found):
            return "\n".join(found)
    return None
