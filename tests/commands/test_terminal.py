"""A line for a terminal is one line, whatever is in it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_length_exporter.terminal import complain, escaped, lines


@pytest.mark.parametrize("text", ["", "plain", 'with "quotes" and \\ and 30 °', "模型", "🙂"])
def test_what_is_printable_is_shown_as_it_is(text: str) -> None:
    assert escaped(text) == text


@pytest.mark.parametrize(("text", "shown"), [
    ("a\nb", r"a\u000ab"),
    ("\r\t", r"\u000d\u0009"),
    ("\x1b[2Jgone", r"\u001b[2Jgone"),
    ("\u2028\u202e", r"\u2028\u202e"),  # a line end, and text that runs backwards
    (b"\xff".decode("utf-8", "surrogateescape"), r"\udcff"),
])  # fmt: skip
def test_what_is_not_is_shown_by_its_number(text: str, shown: str) -> None:
    assert escaped(text) == shown


@given(st.lists(st.text()))
def test_there_are_as_many_lines_as_rows(rows: list[str]) -> None:
    made = lines(rows)
    assert len(made.splitlines()) == max(len(rows), 1)
    made.encode("utf-8")


def test_a_complaint_is_one_line_with_our_name(capsys: pytest.CaptureFixture[str]) -> None:
    complain("http://a: \x1b[31m\nb")
    assert capsys.readouterr().err == "vllm-length-exporter: http://a: \\u001b[31m\\u000ab\n"
