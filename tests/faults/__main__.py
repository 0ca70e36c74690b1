"""`python -m tests.faults --minutes 30`: the fault suite for as long as wanted, with its table."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import click

from tests.faults.chaos import survive


@click.command()
@click.option("--minutes", type=click.FloatRange(0.1), default=3.0, show_default=True)
@click.option("--seed", type=int, default=1, show_default=True)
@click.option("--folder", type=click.Path(path_type=Path, file_okay=False), help="Keep all files here.")
def main(minutes: float, seed: int, folder: Path | None) -> None:
    """Faults at random; exit 1 where an invariant did not hold."""
    with tempfile.TemporaryDirectory(prefix="faults-") as temporary:
        violations = survive(folder or Path(temporary), minutes * 60, seed)
    for violation in violations:
        click.echo(violation, err=True)
    sys.exit(1 if violations else 0)


if __name__ == "__main__":
    main()
