"""The generated boards as the tests read them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from dashboards.__main__ import OUTPUT

Json = dict[str, Any]


@dataclass(frozen=True)
class Asked:
    """One query of a board; its text in a failure names where it stands."""

    board: str
    panel: str
    letter: str
    expr: str

    def __str__(self) -> str:
        return f"{self.board} / {self.panel} / {self.letter}: {self.expr}"


@cache
def boards(folder: Path = OUTPUT) -> dict[str, Json]:
    """Every board by its uid."""
    read = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    return {board["uid"]: board for board in read}


def panels(board: Json) -> Iterator[Json]:
    """The panels that show something."""
    return (panel for panel in board["panels"] if panel["type"] != "row")


def queries(board: Json) -> Iterator[Asked]:
    for panel in panels(board):
        for target in panel["targets"]:
            yield Asked(board["uid"], panel["title"], target["refId"], target["expr"])


def annotation_queries(board: Json) -> Iterator[Asked]:
    for annotation in board["annotations"]["list"]:
        yield Asked(board["uid"], "annotation", annotation["name"], annotation["target"]["expr"])


ALL_QUERIES = [asked for board in boards().values() for asked in queries(board)]
ALL_ANNOTATIONS = [asked for board in boards().values() for asked in annotation_queries(board)]
ALL_PANELS = [(board["uid"], panel) for board in boards().values() for panel in panels(board)]
