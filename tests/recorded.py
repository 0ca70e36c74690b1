"""The recorded servers of `tests/recordings/` as `Recording`s: pages with their times, log lines aligned to them."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from vllm_length_exporter.derive.values import ServerView
from vllm_length_exporter.derive.view import Horizon, view
from vllm_length_exporter.recording import Recording
from vllm_length_exporter.server import (
    REFUSALS_THAT_PROVE_AN_END,
    PollFailure,
    ServerState,
    answered_models,
    answered_version,
    logged,
    poll_failed,
    polled,
    read_lines,
)
from vllm_length_exporter.vllm.lines import LogParser
from vllm_length_exporter.vllm.models import read_models, read_version
from vllm_length_exporter.vllm.page import PageReader

FOLDER = Path(__file__).parent / "recordings"
NAMES = tuple(sorted(path.name for path in FOLDER.iterdir() if (path / "truth.json").exists()))
BEFORE_THE_FIRST_PAGE = -0.001


def truth(name: str) -> dict[str, Any]:
    """What the recorder knew: the arguments, the model's config, and what the client saw."""
    loaded: dict[str, Any] = json.loads((FOLDER / name / "truth.json").read_text())
    return loaded


def log_lines(name: str) -> list[str]:
    text = (FOLDER / name / "server.log").read_text(encoding="utf-8", errors="replace")
    return text.removesuffix("\n").split("\n")


def pages(name: str) -> list[tuple[float, str]]:
    """The pages of a server that started; none for one that did not."""
    packed = FOLDER / name / "metrics.jsonl.gz"
    if not packed.exists():
        return []
    with gzip.open(packed, "rt", encoding="utf-8") as rows:
        return [(row["t"], row["text"]) for row in map(json.loads, rows) if "text" in row]


@cache
def recording(name: str) -> Recording:
    """A recorded server. The log has no clock of its own worth using: each page read left an access line in it,
    so the lines between two such lines were written between two pages."""
    shown, seen = pages(name), truth(name)
    log, at, read = [], BEFORE_THE_FIRST_PAGE, 0
    for line in log_lines(name):
        if '"GET /metrics HTTP/1.1" 200' in line and read < len(shown):
            at = shown[read][0]
            read += 1
        log.append((at, line))
    if shown and read >= len(shown):  # what follows the last page is the server's end
        end = next(
            (
                i
                for i, (t, line) in enumerate(log)
                if (t == at and "hutting down" in line) or "[shutdown]" in line
            ),
            len(log),
        )
        log = [(t + (0.001 if i >= end else 0.0), line) for i, (t, line) in enumerate(log)]
    models, version = seen.get("models"), seen.get("version")
    return Recording(
        tuple(shown),
        tuple(log),
        None if models is None else json.dumps(models),
        None if version is None else json.dumps(version),
    )


def played(name: str) -> Iterator[tuple[float, ServerState]]:
    """The state after each page of a recording (after the log, for a server that never started)."""
    recorded = recording(name)
    parser, state = LogParser(), ServerState(name)
    rows = iter(recorded.log)
    pending = next(rows, None)
    readers = PageReader()
    for at, text in recorded.pages or ((0.0, None),):
        while pending is not None and pending[0] <= at:
            state = read_lines(state, 1, at)
            for event in parser.feed(pending[1]):
                state = logged(state, event, at)
            pending = next(rows, None)
        for event in parser.idle():
            state = logged(state, event, at)
        if text is None:
            for _ in range(REFUSALS_THAT_PROVE_AN_END):
                state = poll_failed(state, PollFailure.REFUSED, at)
        else:
            state = polled(state, readers.read(text.encode()), at)
            if recorded.models is not None and state.cards is None:
                state = answered_models(state, read_models(recorded.models.encode()), at)
            if recorded.version is not None and state.version is None:
                state = answered_version(state, read_version(recorded.version.encode()))
        yield at, state


def last_view(name: str) -> ServerView:
    """What is known of a recorded server at its last page."""
    at, state = list(played(name))[-1]
    seen = view(state, at, Horizon())
    assert seen is not None
    return seen
