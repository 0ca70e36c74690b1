"""`explain`: a message of vLLM's -> what happened, the numbers, and who can change what."""

from __future__ import annotations

import sys
from pathlib import Path

import click
import msgspec

from vllm_length_exporter.commands.option import format_option, option
from vllm_length_exporter.explain import explain as explained
from vllm_length_exporter.explain import explain_text
from vllm_length_exporter.terminal import UnusableInput

NOTHING_RECOGNISED = 3
MOST_BYTES = 64 << 20  # of a file: an excerpt is meant, and what matters stands near its end


@click.command()
@click.argument("message", nargs=-1)
@option("--file", "file", metavar="FILE", help="Read the message from a file; - is standard input.")
@format_option
def explain(message: tuple[str, ...], file: str | None, shape: str) -> None:
    """Explain an error MESSAGE or a log excerpt: cause, numbers, and the exact flag or field to change.

    Without MESSAGE and --file it is read from standard input.
    """
    if message and file is not None:
        raise UnusableInput("give either the message or --file, not both")
    explanation = explained(" ".join(message) if message else _read(file or "-"))
    if shape == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(explanation.as_json()), indent=2))
    else:
        click.echo(explain_text(explanation), nl=False)
    if explanation.kind == "unknown":
        sys.exit(NOTHING_RECOGNISED)


def _read(path: str) -> str:
    if path == "-":
        if sys.stdin.isatty():
            click.echo("Paste the message, then press Ctrl-D.", err=True)
        return sys.stdin.buffer.read(MOST_BYTES).decode("utf-8", "replace")
    try:
        with Path(path).open("rb") as text:
            size = text.seek(0, 2)
            text.seek(max(size - MOST_BYTES, 0))
            return text.read().decode("utf-8", "replace")
    except OSError as error:
        raise UnusableInput(f"{path}: cannot be read: {error.strerror}") from error
