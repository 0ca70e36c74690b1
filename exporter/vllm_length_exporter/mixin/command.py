"""`rules`: renders alert rules, Alertmanager's configuration and the objects for Kubernetes."""

from __future__ import annotations

import difflib
import json
from pathlib import Path

import click

from vllm_length_exporter.commands.option import format_option, option
from vllm_length_exporter.terminal import UnusableInput

from .catalogue import UnknownAlertError
from .rendering import files
from .thresholds_file import DEFAULTS, ThresholdsError, read


@click.command()
@option(
    "--thresholds",
    type=click.Path(path_type=Path),
    default=DEFAULTS,
    show_default="the packaged ones",
    help="What the alerts compare with: YAML, just the keys that differ from the packaged file will do.",
)
@option("--output", type=click.Path(path_type=Path, file_okay=False), help="The folder to render into.")
@option(
    "--dashboards",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="A folder of dashboards (*.json) to put into ConfigMaps.",
)
@option("--check", is_flag=True, help="Write nothing; end with 1 if a file is not as it would be rendered.")
@option("--show-thresholds", is_flag=True, help="Print the packaged thresholds, to begin a file of your own.")
@format_option
def rules(
    thresholds: Path,
    output: Path | None,
    dashboards: Path | None,
    check: bool,
    show_thresholds: bool,
    shape: str,
) -> None:
    """Render the alert rules from a file of thresholds.

    Writes rules/ for Prometheus, alertmanager/ for Alertmanager and kubernetes/ for the Prometheus Operator.
    """
    if show_thresholds:
        click.echo(DEFAULTS.read_text(encoding="utf-8"), nl=False)
        return
    if output is None:
        raise UnusableInput("--output: which folder to render into?")
    differing = _differing(rendered(thresholds, dashboards), output)
    if not check:
        _write(differing, output)
    names = sorted(differing)
    if shape == "json":
        click.echo(json.dumps({"output": str(output), "differing" if check else "written": names}))
    else:
        for name in names:
            click.echo(f"{'differs' if check else 'wrote'}: {output / name}")
    if check and differing:
        raise SystemExit(1)


def rendered(thresholds: Path, dashboards: Path | None) -> dict[str, str]:
    """Every file's text.

    Raises:
        UnusableInput: the thresholds or a dashboard cannot be used.
    """
    try:
        boards = {
            path.name: path.read_text(encoding="utf-8")
            for path in sorted((dashboards or Path()).glob("*.json"))
        }
        return files(read(thresholds), boards if dashboards else {})
    except ThresholdsError as error:
        raise UnusableInput(str(error)) from error
    except UnknownAlertError as error:
        near = difflib.get_close_matches(error.name, error.names, 1)
        hint = f", did you mean {near[0]!r}?" if near else ""
        raise UnusableInput(
            f"{thresholds}: disabled_alerts: there is no alert {error.name!r}{hint}"
        ) from error
    except OSError as error:
        raise UnusableInput(f"{dashboards}: {error.strerror or error}") from error


def _differing(made: dict[str, str], output: Path) -> dict[str, str]:
    return {name: text for name, text in made.items() if _text(output / name) != text}


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None


def _write(made: dict[str, str], output: Path) -> None:
    for name, text in made.items():
        path = output / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise UnusableInput(f"{path}: {error.strerror or error}") from error
