"""Where a program that the tests run lies: fetched under `.cache/tools`, else on PATH."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.tools.cache import TOOLS

NEWEST = "forky"
SUITES = ("bookworm", "trixie", "forky")  # oldest first
PLACES = ("usr/bin", "bin", "lib/systemd", "usr/libexec/docker/cli-plugins")
# Debian calls it otherwise
DEBIAN_NAMES = {"alertmanager": "prometheus-alertmanager"}
HOW = "run `make tools`"


def find(name: str, suite: str = NEWEST) -> Path | None:
    """The program of that Debian suite; for the newest, whatever is on PATH will do too."""
    for place in PLACES:
        program = TOOLS / suite / place / DEBIAN_NAMES.get(name, name)
        if program.is_file():
            return program
    on_path = shutil.which(name) if suite == NEWEST else None
    return Path(on_path) if on_path else None


def find_all(name: str) -> dict[str, Path]:
    """Every fetched version of a program, by suite, oldest first."""
    found = {suite: find(name, suite) for suite in SUITES}
    return {suite: program for suite, program in found.items() if program}
