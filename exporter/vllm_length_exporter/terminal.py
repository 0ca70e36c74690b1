"""Text for a terminal. A line is one line: what a server, a log or a file says cannot end it or steer the screen."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import click


def escaped(text: str) -> str:
    r"""The text with what is not printable as `\u....`: line ends, escape sequences, bytes that were no UTF-8."""
    return text if text.isprintable() else "".join(map(_escaped, text))


def lines(rows: Iterable[str]) -> str:
    """Rows of an answer, one below the other."""
    return "\n".join(map(escaped, rows)) + "\n"


def complain(text: str, file: Any = None) -> None:
    """One line to standard error: what is wrong, where, what to do."""
    click.echo(f"vllm-length-exporter: {escaped(text)}", file=file, err=file is None)


class UnusableInput(click.ClickException):
    """Bad use or unreadable input: one line, exit code 2."""

    exit_code = 2

    def show(self, file: Any = None) -> None:
        complain(self.format_message(), file)


def _escaped(character: str) -> str:
    return character if character.isprintable() else f"\\u{ord(character):04x}"
