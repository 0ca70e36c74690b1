"""Our own log: one line a record, whatever is in it."""

from __future__ import annotations

import io
import json
import logging
import re
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_length_exporter import journal

NAME = "vllm_length_exporter.daemon"
PAIR = re.compile(r'(\w+)=("(?:[^"\\]|\\.)*"|[^\s"]+)')


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    root, ours = logging.getLogger(), logging.getLogger(journal.PACKAGE)
    before = (root.handlers[:], root.level, ours.level, logging.raiseExceptions)
    yield
    root.handlers[:], root.level, ours.level, logging.raiseExceptions = before
    logging.captureWarnings(False)


def lines(form: str, level: str = "info") -> io.StringIO:
    out = io.StringIO()
    journal.set_up(level, form, out)
    return out


def test_a_record_is_one_line_of_pairs() -> None:
    out = lines("logfmt")
    logging.getLogger(NAME).warning(
        "clock stepped by %d s", 3, extra={"planned": "anew", "why": "a b", "n": 2}
    )
    text = out.getvalue()
    assert re.fullmatch(
        r"ts=\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z level=warning logger=daemon "
        r'msg="clock stepped by 3 s" planned=anew why="a b" n=2\n',
        text,
    )


def test_json_keeps_numbers() -> None:
    out = lines("json")
    logging.getLogger(NAME).info("loaded", extra={"servers": 2, "ok": True, "log": None, "path": io})
    record = json.loads(out.getvalue())
    assert (record["level"], record["logger"], record["msg"]) == ("info", "daemon", "loaded")
    assert (record["servers"], record["ok"], record["log"]) == (2, True, None)
    assert record["path"] == str(io)


@pytest.mark.parametrize("form", journal.FORMATS)
def test_an_exception_stays_on_the_line(form: str) -> None:
    out = lines(form)
    try:
        int("x")
    except ValueError:
        logging.getLogger(NAME).exception("job failed", extra={"error": "ours"})
    text = out.getvalue()
    assert text.count("\n") == 1
    assert "ValueError: invalid literal" in text
    assert "test_journal.py" in text
    assert "ours" in text


@pytest.mark.parametrize("form", journal.FORMATS)
@given(text=st.text())
def test_any_text_stays_on_its_line(form: str, text: str) -> None:
    out = lines(form)
    logging.getLogger(NAME).info("read", extra={"text": text})
    logging.getLogger(NAME).info("next")
    first, second, nothing = out.getvalue().split("\n")
    assert "next" in second
    assert nothing == ""
    if form == "json":
        assert json.loads(first)["text"].encode("utf-8") == text.encode("utf-8", "backslashreplace")
    else:
        assert [key for key, _ in PAIR.findall(first)] == ["ts", "level", "logger", "msg", "text"]
        assert not re.search(r"[\x00-\x1f\x7f-\x9f\u2028\ud800-\udfff]", first)


def test_levels() -> None:
    out = lines("logfmt", "warning")
    logging.getLogger(NAME).info("quiet")
    logging.getLogger("a.library").info("library")
    logging.getLogger("a.library").warning("library warns")
    logging.getLogger(NAME).error("loud")
    assert re.findall(r"msg=(\".*?\"|\S+)", out.getvalue()) == ['"library warns"', "loud"]
