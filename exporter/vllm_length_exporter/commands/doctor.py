"""`doctor`: the whole picture of one server, live or from files."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import click

from vllm_length_exporter import report
from vllm_length_exporter.commands.option import format_option, option
from vllm_length_exporter.derive.values import Severity
from vllm_length_exporter.inspection import Inspection, NothingRecognisedError
from vllm_length_exporter.sources.http import Endpoint, FetchError, HttpSource
from vllm_length_exporter.terminal import UnusableInput, complain
from vllm_length_exporter.vllm.model_config import ModelConfigError
from vllm_length_exporter.vllm.models import AnswerError
from vllm_length_exporter.vllm.page import PageError

NOTHING_RECOGNISED = 3


@click.command()
@option("--server", "url", metavar="URL", help="Ask this server, for example http://127.0.0.1:8000.")
@option("--metrics", metavar="FILE", help="A saved /metrics page.")
@option("--models", metavar="FILE", help="A saved answer of /v1/models.")
@option("--log", metavar="FILE", help="The server's log; - is standard input.")
@option("--model-config", metavar="FILE", help="The model's config.json, for its window.")
@option("--bearer-token-file", type=click.Path(path_type=Path), help="File with the server's API key.")
@option("--name", default=None, help="What to call the server in the answer.")
@option(
    "--fail-on",
    type=click.Choice([str(severity) for severity in Severity]),
    help="Exit with 1 on a finding of this severity or above.",
)
@format_option
def doctor(
    url: str | None,
    metrics: str | None,
    models: str | None,
    log: str | None,
    model_config: str | None,
    bearer_token_file: Path | None,
    name: str | None,
    fail_on: str | None,
    shape: str,
) -> None:
    """Say how long a request may be, how many fit, what is refused, and why.

    Give a live --server (and its --log), or any of the files that you have.
    """
    if url is None and metrics is None and models is None and log is None:
        raise UnusableInput("nothing to look at: give --server, or one of --metrics, --models, --log")
    if url is not None and (metrics is not None or models is not None):
        raise UnusableInput("--server asks for the page and the models itself: drop --metrics and --models")
    inspection = Inspection(name or (_host(url) if url else "files"))
    if log is not None:
        inspection.read_log(_lines(log))
    if url is not None:
        _ask(inspection, url, bearer_token_file)
    try:
        if metrics is not None:
            inspection.read_page(_bytes(metrics))
        if models is not None:
            inspection.read_models(_bytes(models))
        if model_config is not None:
            inspection.read_model_config(_bytes(model_config), model_config)
    except (PageError, AnswerError) as error:
        raise UnusableInput(f"{metrics if isinstance(error, PageError) else models}: {error}") from error
    except ModelConfigError as error:
        raise UnusableInput(str(error)) from error
    try:
        view = inspection.view()
    except NothingRecognisedError as error:
        complain(str(error))
        sys.exit(NOTHING_RECOGNISED)
    if shape == "json":
        click.echo(report.as_json([view]))
    else:
        click.echo(report.as_text([view]), nl=False)
    found = report.worst([view])
    order = list(Severity)
    if fail_on is not None and found is not None and order.index(found) >= order.index(Severity(fail_on)):
        sys.exit(1)


def _ask(inspection: Inspection, url: str, token_file: Path | None) -> None:
    try:
        endpoint = Endpoint(url, token_file=token_file)
    except ValueError as error:
        raise UnusableInput(f"--server: {error}") from error
    source = HttpSource(endpoint)
    try:
        inspection.ask(source)
    except (FetchError, PageError) as error:
        message = str(error) if isinstance(error, FetchError) else f"{endpoint.address('/metrics')}: {error}"
        complain(message)
        if not inspection.has_log:
            sys.exit(2)
    finally:
        source.close()
    for complaint in inspection.complaints:
        complain(complaint)


def _host(url: str) -> str:
    return url.split("//", 1)[-1].split("@")[-1].rstrip("/")


def _bytes(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise UnusableInput(f"{path}: cannot be read: {error.strerror}") from error


def _lines(path: str) -> Iterator[str]:
    if path == "-":
        yield from (line.decode("utf-8", "replace") for line in sys.stdin.buffer)
        return
    try:
        with Path(path).open("rb") as lines:
            yield from (line.decode("utf-8", "replace") for line in lines)
    except OSError as error:
        raise UnusableInput(f"{path}: cannot be read: {error.strerror}") from error
