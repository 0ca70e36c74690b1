"""Flags as all commands declare them: GNU style, each with an environment variable."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

ENVIRONMENT_PREFIX = "VLLM_LENGTH_"


def option(flag: str, *names: str, **settings: Any) -> Callable[[F], F]:
    """`click.option` whose environment variable is the flag's name, shown in the help."""
    variable = ENVIRONMENT_PREFIX + flag.split("/")[0].removeprefix("--").replace("-", "_").upper()
    return click.option(flag, *names, envvar=variable, show_envvar=True, **settings)


def format_option(command: F) -> F:
    """`--format text|json`, for every command that answers."""
    chosen: F = option(
        "--format",
        "shape",
        type=click.Choice(["text", "json"]),
        default="text",
        show_default=True,
        help="How to answer.",
    )(command)
    return chosen
