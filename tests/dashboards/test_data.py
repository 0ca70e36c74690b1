"""Every query of every board, asked of a real Prometheus: each returns data on the server that it is about."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dashboards.preview.__main__ import pictures
from dashboards.substitution import Substitution
from tests.conftest import Tool
from tests.dashboards.boards import ALL_ANNOTATIONS, ALL_PANELS, ALL_QUERIES, Asked, boards
from tests.dashboards.scene import CHANGING, EVERYTHING, Scene, scene
from tests.deadline import wait_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

USUAL = "pressure"
# What another server shows: one that failed to start, logs its refusals, was given a limit, has the middleware.
SHOWN_ON = {
    "Refused for length": "accounted",
    "Refused for length, by cause": "refuses",
    "Refused": "refuses",
    ("Servers", "N"): "refuses",
    ("Starts, and failures by cause", "B"): "failed",
    "Last failed start: KV cache": "failed",
    "Limit that would fit": "failed",
    ("From the model's window to what fits (tokens)", "B"): "small-limit",
    ("As measured", "G"): "refuses",
    ("Cut for length, and clamped", "B"): "accounted",
    ("Cut for length, and clamped", "C"): "accounted",
    "Which limit ended them": "accounted",
}
# Without a server that runs these still say what is wrong.
SHOWN_ON_A_FAILED_START = (
    "State",
    "Findings",
    "Starts, and failures by cause",
    "Last failed start: KV cache",
    "Limit that would fit",
    "Servers",
    "Servers up",
    "Failed, down or stalled",
    "Critical findings",
    "State of each server",
    "Read or lost",
    "Log lines read",
    "Events recognised in logs",
)
SECONDS = 60  # until a server that plays has shown everything


@pytest.fixture(scope="module")
def played(tool: Tool, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with scene(tool("prometheus"), tmp_path_factory.mktemp("scene"), EVERYTHING | CHANGING) as made:
        yield made


@pytest.fixture(scope="module")
def restarted(played: Scene) -> Scene:
    """One of the servers has come back with another limit."""
    limit = 'vllm_length_max_model_len_tokens{server="changing"}'
    played.prometheus.wait_until(
        lambda: played.prometheus.query(limit), seconds=SECONDS, what="the limit before"
    )
    played.restart("changing", "0.32.0-pressure")
    return played


def wait_for_data(played: Scene, asked: Asked, server: str, rate_interval: int = 15) -> None:
    expr = Substitution({"server": server}, rate_interval, span=120)(asked.expr)
    prometheus = played.prometheus
    prometheus.wait_until(
        lambda: prometheus.query(expr), seconds=SECONDS, what=f"data for {asked}", every=0.5
    )


@pytest.mark.parametrize("asked", ALL_QUERIES, ids=str)
def test_a_query_returns_data(played: Scene, asked: Asked) -> None:
    by_query = SHOWN_ON.get((asked.panel, asked.letter))
    wait_for_data(played, asked, by_query or SHOWN_ON.get(asked.panel, USUAL))


@pytest.mark.parametrize("title", SHOWN_ON_A_FAILED_START)
def test_a_failed_start_is_shown(played: Scene, title: str) -> None:
    expressions = [asked for asked in ALL_QUERIES if asked.panel == title]
    assert expressions, f"no panel is called {title}"
    wait_for_data(played, expressions[0], "failed")


def test_the_variables_offer_every_server_and_engine(played: Scene) -> None:
    for board in boards().values():
        for variable in board["templating"]["list"][1:]:
            series, _, label = (
                variable["query"]["query"].removeprefix("label_values(").removesuffix(")").rpartition(", ")
            )
            # Grafana asks for the values of the board's time, not of this moment
            query = f"count by ({label}) (last_over_time({Substitution()(series)}[5m]))"
            expected = {"server": set(played.servers), "model_name": {"tiny"}, "engine": {"0", "1"}}[label]
            wait_for(
                lambda query=query, label=label, expected=expected: (  # type: ignore[misc]
                    expected <= {row["metric"].get(label) for row in played.prometheus.query(query)}
                ),
                seconds=SECONDS,
                what=f"{expected} for {variable['name']} of {board['title']}",
            )


@pytest.mark.parametrize(
    "asked", [asked for asked in ALL_ANNOTATIONS if asked.board == "vllm-length-server"], ids=str
)
def test_an_annotation_marks_what_it_is_named_after(restarted: Scene, asked: Asked) -> None:
    server = {"Starts": "changing", "Limit changes": "changing", "Alerts": "failed"}[asked.letter]
    wait_for_data(restarted, asked, server, rate_interval=60)


def test_the_preview_draws_every_board_and_names_the_panels_without_data(
    played: Scene, tmp_path: Path
) -> None:
    for asked in ALL_QUERIES[-3:]:
        wait_for_data(played, asked, "accounted")
    empty = pictures(played.prometheus.base_url, tmp_path, "pressure", 60, 1)
    for uid in boards():
        picture = (tmp_path / f"{uid}.png").read_bytes()
        assert picture.startswith(b"\x89PNG")
        width, height = int.from_bytes(picture[16:20]), int.from_bytes(picture[20:24])
        rows = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in boards()[uid]["panels"])
        assert (width, height) == (24 * 68 + 16, 64 + 38 * rows + 16)
    assert "Last failed start: KV cache" in empty["vllm-length-server"]
    assert not set(empty["vllm-length-server"]) & {"State", "Limit", "KV cache in use", "Preemptions"}


def test_the_tables_above_name_panels_that_there_are() -> None:
    titles = {panel["title"] for _, panel in ALL_PANELS}
    named = {key if isinstance(key, str) else key[0] for key in SHOWN_ON}
    assert named | set(SHOWN_ON_A_FAILED_START) <= titles
