"""`python -m dashboards`: write the boards as JSON; `--check` says whether they are as they would be written."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from vllm_length_exporter.mixin.thresholds import Thresholds
from vllm_length_exporter.mixin.thresholds_file import ThresholdsError, read

from .boards import boards
from .parts import Json
from .thresholds import FILE

OUTPUT = Path(__file__).parent / "generated"


def generated(thresholds: Thresholds) -> dict[str, Json]:
    """Every board by its file's name."""
    return {f"{uid}.json": board for uid, board in boards(thresholds).items()}


def as_text(board: Json) -> str:
    return json.dumps(board, indent=1, ensure_ascii=False) + "\n"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m dashboards", description=__doc__)
    parser.add_argument(
        "--thresholds", type=Path, default=FILE, help="the alerts' thresholds (default: %(default)s)"
    )
    parser.add_argument(
        "--output", type=Path, default=OUTPUT, help="folder to write to (default: %(default)s)"
    )
    parser.add_argument("--check", action="store_true", help="write nothing; 1 if a file would change")
    given = parser.parse_args(arguments)
    try:
        texts = {name: as_text(board) for name, board in generated(read(given.thresholds)).items()}
    except ThresholdsError as error:
        print(f"dashboards: {error}", file=sys.stderr)
        return 2
    differing = [name for name, text in texts.items() if _read(given.output / name) != text]
    extra = sorted(path.name for path in given.output.glob("*.json") if path.name not in texts)
    if given.check:
        for name in (*differing, *extra):
            print(
                f"dashboards: {given.output / name} is not as generated: run `python -m dashboards`",
                file=sys.stderr,
            )
        return 1 if differing or extra else 0
    given.output.mkdir(parents=True, exist_ok=True)
    for name in differing:
        (given.output / name).write_text(texts[name], encoding="utf-8")
    for name in extra:
        (given.output / name).unlink()
    return 0


def _read(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.exists() else None


if __name__ == "__main__":
    sys.exit(main())
