"""`record`: a server's pages, answers and log in one file, for a bounded time."""

from __future__ import annotations

import contextlib
import signal
import sys
from pathlib import Path

import click

from vllm_length_exporter import config
from vllm_length_exporter.commands.option import option
from vllm_length_exporter.recorder import Recorder
from vllm_length_exporter.recording import Writer
from vllm_length_exporter.settings.values import Duration
from vllm_length_exporter.sources.http import HttpSource
from vllm_length_exporter.sources.logs.lines import LogError
from vllm_length_exporter.terminal import UnusableInput, complain
from vllm_length_exporter.watches import endpoint, log_source

NOTHING_RECOGNISED = 3


def _seconds(ctx: click.Context, param: click.Parameter, value: str) -> Duration:
    try:
        return Duration.parse(value)
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, param) from error


@click.command()
@click.argument("output", type=click.Path(path_type=Path, dir_okay=False))
@option(
    "--server", "url", metavar="URL", required=True, help="The server, for example http://127.0.0.1:8000."
)
@option("--log", metavar="PATH", help="Its log, from the beginning; - is standard input.")
@option(
    "--duration",
    callback=_seconds,
    metavar="DURATION",
    default="5m",
    show_default=True,
    help="How long to record.",
)
@option(
    "--interval",
    callback=_seconds,
    metavar="DURATION",
    default="1s",
    show_default=True,
    help="How often to ask for the page.",
)
@option(
    "--keep-text/--redact",
    default=False,
    show_default=True,
    help="Record the log as it is, with prompts and keys that are in it.",
)
@option("--bearer-token-file", metavar="FILE", help="File with the server's API key.")
@option("--bearer-token-env", metavar="NAME", help="Environment variable with the server's API key.")
@option("--ca-file", metavar="FILE", help="CA certificates to trust for the server.")
@option("--client-cert-file", metavar="FILE", help="Client certificate to show the server.")
@option("--client-key-file", metavar="FILE", help="Its key, where it is not in the same file.")
@option("--timeout", metavar="DURATION", help="How long an answer of the server may take.  [default: 5s]")
def record(
    output: Path,
    url: str,
    log: str | None,
    duration: Duration,
    interval: Duration,
    *,
    keep_text: bool,
    **flags: str,
) -> None:
    """Record a server's pages, API answers and log to OUTPUT, for replay, doctor and a bug report.

    What clients wrote and what looks like a key does not enter the file: of the log, vLLM's own known words and
    numbers are kept, and all else becomes its length. SIGTERM and SIGINT end the recording early.
    """
    try:
        settings = config.single_server(url, log=log, **flags)  # type: ignore[arg-type]  # checked there
        if faults := config.missing_files(settings):
            raise UnusableInput(faults[0])
        (server,) = settings.servers
        source = HttpSource(endpoint(server))
        lines = None if server.log is None else log_source(server.log, None)
    except (ValueError, LogError) as error:
        raise UnusableInput(str(error)) from error
    try:
        writer = Writer(output)
    except FileExistsError as error:
        raise UnusableInput(f"{output}: is there already; give a new name, or move it away") from error
    except OSError as error:
        raise UnusableInput(f"{output}: cannot be written: {error.strerror}") from error
    recorder = Recorder(
        source, writer, lines, interval=interval, keep_text=keep_text,
        complain=complain,
    )  # fmt: skip
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: recorder.stop())
    try:
        recorder.run(duration)
    except OSError as error:
        raise UnusableInput(f"{output}: cannot be written: {error.strerror or error}") from error
    finally:
        source.close()
        if lines is not None:
            lines.close()
    tally = recorder.tally
    size = 0
    with contextlib.suppress(OSError):
        size = output.stat().st_size
    click.echo(
        f"{output}: {tally.pages} pages, {tally.failed_pages} failed, {tally.lines} log lines"
        f"{'' if keep_text else ' (redacted)'}, {size} bytes"
    )
    if not tally.pages and not tally.lines:
        complain(f"{url} gave no page and no log line")
        sys.exit(NOTHING_RECOGNISED)
