"""`python -m tests.dashboards.pictures`: draws the boards into docs/pictures, under pressure and of a failed start."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from dashboards.preview.__main__ import pictures
from tests.dashboards.scene import FAILED_START, PRESSURE, scene
from tests.tools import binaries
from tests.tools.cache import PROJECT

FOLDER = PROJECT / "docs" / "pictures"
MINUTES = 4  # some rounds of the recording
SCENES: dict[str, Mapping[str, str]] = {"pressure": PRESSURE, "failed-start": FAILED_START}
# of a server that never ran the other boards have nothing to show
KEPT = {"failed-start": ("vllm-length-fleet", "vllm-length-server")}


def main() -> int:
    program = binaries.find("prometheus")
    if program is None:
        print(f"tests.dashboards.pictures: prometheus is missing: {binaries.HOW}", file=sys.stderr)
        return 1
    for name, played in SCENES.items():
        (server,) = played
        with tempfile.TemporaryDirectory() as scratch, scene(program, Path(scratch), played) as made:
            end = time.monotonic() + MINUTES * 60
            made.prometheus.wait_until(
                partial(_has_come, end), seconds=MINUTES * 60 + 5, what="the recording has played", every=1
            )
            folder = FOLDER / name
            folder.mkdir(parents=True, exist_ok=True)
            empty = pictures(made.prometheus.base_url, folder, server, MINUTES * 60, 1)
        for board, titles in empty.items():
            if board not in KEPT.get(name, empty):
                (folder / f"{board}.png").unlink()
            print(f"{name} {board}: {len(titles)} panels without data: {', '.join(titles) or '-'}")
    return 0


def _has_come(moment: float) -> bool:
    return time.monotonic() >= moment


if __name__ == "__main__":
    sys.exit(main())
