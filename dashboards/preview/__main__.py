"""`python -m dashboards.preview --prometheus URL --output FOLDER [--server NAME]`: a picture of each board."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

import requests

from dashboards.__main__ import OUTPUT
from dashboards.substitution import Substitution

from .answers import Asker
from .picture import picture


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m dashboards.preview", description=__doc__)
    parser.add_argument("--prometheus", required=True, metavar="URL", help="the Prometheus to ask")
    parser.add_argument("--output", required=True, type=Path, metavar="FOLDER", help="where the pictures go")
    parser.add_argument("--server", metavar="NAME", help="the server that the boards of one server show")
    parser.add_argument(
        "--minutes", type=float, default=60, help="how much time to show (default: %(default)s)"
    )
    parser.add_argument(
        "--scrape-interval", type=float, default=15, metavar="SECONDS", help="(default: %(default)s)"
    )
    given = parser.parse_args(arguments)
    given.output.mkdir(parents=True, exist_ok=True)
    try:
        pictures(given.prometheus, given.output, given.server, given.minutes * 60, given.scrape_interval)
    except requests.RequestException as error:
        print(f"dashboards.preview: {given.prometheus}: {error}", file=sys.stderr)
        return 2
    return 0


def pictures(url: str, folder: Path, server: str | None, span: float, scrape: float) -> dict[str, list[str]]:
    """Draw every generated board for the last `span` seconds; the panels without data by board."""
    now = time.time()
    chosen = {} if server is None else {"server": server}
    substitution = Substitution(chosen, max(int(4 * scrape), 5), int(span))
    asker = Asker(url, now - span, now, scrape, substitution)
    empty = {}
    for file in sorted(OUTPUT.glob("*.json")):
        empty[file.stem] = picture(json.loads(file.read_text()), asker, folder / f"{file.stem}.png")
    return empty


if __name__ == "__main__":
    sys.exit(main())
