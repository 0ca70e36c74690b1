"""One line of vLLM's own output: who wrote it, its header, and what an exception's traceback says last.

vLLM repeats the header (level, time, file) on every line of a record; uvicorn and the interpreter do not.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from vllm_length_exporter.vllm.events import Process

# `(EngineCore_DP0 pid=1)`, `(VllmWorker rank=0 pid=1)`, `(RayWorkerWrapper pid=1, ip=10.0.0.1)`, `(pid=1)`;
# a colour whose escape sign was lost may stand round it.
_PROCESS = re.compile(
    r"(?:\[[0-9;]+m)?\((?:(?P<name>[A-Za-z_][\w.:/-]*(?: (?:rank=)?\w+)?) )?pid=(?P<pid>\d+)(?:, ip=[\w.:]+)?\)"
    r"(?:\[[0-9;]+m)? ?"
)
_LEVEL = r"(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL)"
# Square brackets since 0.8; people cut dates out and documentation drops the closing one.
_VLLM = re.compile(
    rf"{_LEVEL} +(?:(?P<stamp>\d\d-\d\d \d\d:\d\d:\d\d)(?:[.,]\d+)? +)?"
    r"(?:\[(?P<bracketed>[\w./-]+:\d+)\]|(?P<plain>[\w./-]+\.py:\d+)\]?)(?: (?P<text>.*)|$)",
    re.DOTALL,
)
_UVICORN = re.compile(rf"{_LEVEL}: +(?P<text>.*)", re.DOTALL)
_OWN_LOGGER = r"\[?(?:vllm|uvicorn)[\w.]*\]?(?::\d+)?"
_CONFIGURED = re.compile(  # the usual formats of a logging configuration of one's own
    rf"\[?(?P<stamp>\d{{4}}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?)\]?[ |:-]+"
    rf"(?:\[?{_LEVEL}\]?[ |:-]+(?P<logger>{_OWN_LOGGER})|(?P<logger2>{_OWN_LOGGER})[ |:-]+\[?(?P<level2>"
    r"DEBUG|INFO|WARNING|ERROR|CRITICAL)\]?)[ |:-]+(?P<text>.*)",
    re.DOTALL,
)
_BASIC = re.compile(rf"{_LEVEL}:(?P<logger>(?:vllm|uvicorn)[\w.]*):(?P<text>.*)", re.DOTALL)
_REPEATED = re.compile(r" \[repeated \d+x across cluster\].*$")


_NOBODY = Process()


class Header(NamedTuple):
    """What tells one record from another; two lines with the same header and time are one record's."""

    level: str
    stamp: str | None = None
    location: str | None = None
    uvicorn: bool = False


class Line(NamedTuple):
    """A line taken apart; `header` is None for what was printed without a logger."""

    text: str
    process: Process
    header: Header | None


def taken_apart(text: str) -> Line:
    """The process prefixes and the header of a line that has no envelope left."""
    process = _NOBODY
    for _ in range(3):
        if not text.startswith(("(", "[")):
            break
        match = _PROCESS.match(text)
        if match is None:
            break
        inner = _process(match.group("name"), match.group("pid"))
        # A Ray worker's line inside an engine's: the engine's rank is what counts.
        if inner.engine is not None or process is _NOBODY or process.engine is None:
            process = inner
        text = text[match.end() :]
    header, text = _header(text)
    if " [repeated " in text:  # Ray tells once what several workers said
        text = _REPEATED.sub("", text)
    return Line(text, process, header)


@lru_cache(maxsize=1024)
def _process(name: str | None, pid: str) -> Process:
    return Process(name, int(pid))


def _header(text: str) -> tuple[Header | None, str]:
    if text.startswith(("INFO", "ERROR", "WARNING", "DEBUG", "CRITICAL")):
        if match := _VLLM.match(text):
            level, stamp, bracketed, plain, rest = match.groups()
            return Header(level, stamp, bracketed or plain), rest or ""
        if match := _UVICORN.match(text):
            return Header(match.group("level"), uvicorn=True), match.group("text")
        if match := _BASIC.match(text):
            uvicorn = match.group("logger").startswith("uvicorn")
            return Header(match.group("level"), uvicorn=uvicorn), match.group("text")
    elif (text[:1].isdigit() or text.startswith("[")) and (match := _CONFIGURED.match(text)):
        logger = (match.group("logger") or match.group("logger2")).lstrip("[")
        level = match.group("level") or match.group("level2")
        return Header(level, match.group("stamp"), None, logger.startswith("uvicorn")), match.group("text")
    return None, text


TRACEBACK = "Traceback (most recent call last):"
_EXCEPTION = re.compile(r"(?P<name>[A-Za-z_][\w.]*)(?:: (?P<text>.*))?", re.DOTALL)
_GROUP = re.compile(r"\s*(?:\| ?|\+ (?=Exception Group)|\+-[+-]*(?: \d+ -*)?)")
_PYDANTIC = re.compile(r"\d+ validation errors? for \w+")


@dataclass(frozen=True, slots=True)
class Raised:
    """An exception as a traceback ends with it."""

    name: str  # without its module
    text: str
    is_invalid: bool = False  # pydantic refused a value of the configuration

    @property
    def is_group(self) -> bool:
        return self.name.endswith("ExceptionGroup")


@dataclass(slots=True)
class Traceback:
    """Reads a traceback line by line; the first of its exceptions is the root, the others wrap it.

    Only the line that ends the frames counts: further lines of a message may hold what a client sent.
    """

    frames: bool = False  # between "Traceback" and the exception
    in_vllm: bool = False  # a frame is vLLM's own
    count: int = 0
    _awaits_value: bool = field(default=False)

    def feed(self, text: str) -> Raised | None:
        """The exception, on the line where its message stands."""
        if self.frames or self.count == 0:
            text = _GROUP.sub("", text, count=1) if text.lstrip().startswith(("|", "+")) else text
        if text.endswith(TRACEBACK) and text in (TRACEBACK, f"Exception Group {TRACEBACK}"):
            self.frames, self._awaits_value = True, False
            return None
        if self._awaits_value:
            if raised := self._value_error(text):
                self._awaits_value = False
                return raised
            if not text.startswith(" "):
                return None  # the name of the field that is wrong
            self._awaits_value = False
            return None
        if not self.frames:
            return None
        if text.startswith(" ") or not text:
            self.in_vllm = self.in_vllm or "/vllm/" in text
            return None
        return self._raised(text)

    def lone(self, text: str) -> Raised | None:
        """The exception in a line that stands without its frames, as excerpts often do."""
        if self.count:
            return None
        return self._value_error(text) or self._raised(text)

    @staticmethod
    def _value_error(text: str) -> Raised | None:
        """The message as pydantic passes it on (0.13+)."""
        mark = "  Value error, "
        return Raised("ValueError", text[len(mark) :], is_invalid=True) if text.startswith(mark) else None

    def _raised(self, text: str) -> Raised | None:
        match = _EXCEPTION.fullmatch(text)
        if match is None:
            return None  # another process printed in between
        raised = Raised(match.group("name").rpartition(".")[2], match.group("text") or "")
        if raised.is_group:
            return None  # what is in it follows, with frames of its own or without
        self.frames = False
        self.count += 1
        if _PYDANTIC.fullmatch(raised.text):
            self._awaits_value = True
            return None
        return raised
