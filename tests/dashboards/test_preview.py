"""The preview's own arithmetic: variables, units, transformations, legends."""

from __future__ import annotations

import math
from typing import Any

import pytest

from dashboards.preview.answers import Series
from dashboards.preview.canvas import fitting, width_of
from dashboards.preview.fields import COLORS, field_of, shown
from dashboards.preview.tables import rows_of
from dashboards.preview.times import beginnings, ticks
from dashboards.substitution import Substitution
from tests.dashboards.boards import ALL_PANELS, boards, panels


def test_variables_are_put_in_as_grafana_does() -> None:
    put = Substitution({"server": "a.b:8000"}, rate_interval=20, span=600)
    asked = 'rate(x{server=~"$server", engine=~"${engine}"}[$__rate_interval]) + y[$__range] + "$1"'
    assert put(asked) == 'rate(x{server=~"a\\\\.b:8000", engine=~".*"}[20s]) + y[600s] + "$1"'
    with pytest.raises(KeyError, match="cluster"):
        put('x{cluster="$cluster"}')


@pytest.mark.parametrize(
    ("value", "unit", "decimals", "text"),
    [
        (8192, "locale", None, "8,192"),
        (1.25, "none", 2, "1.25"),
        (0.924, "percentunit", None, "92.4%"),
        (0.5, "percentunit", 1, "50.0%"),
        (1073741824, "bytes", None, "1 GiB"),
        (0, "bytes", None, "0 B"),
        (0.0048, "s", None, "4.8 ms"),
        (240, "s", None, "240 s"),
        (2.5, "reqps", None, "2.5 req/s"),
        (4.75, "suffix: /s", None, "4.75 /s"),
        (math.nan, "none", None, "NaN"),
    ],
)
def test_a_value_in_its_unit(value: float, unit: str, decimals: int | None, text: str) -> None:
    assert shown(value, unit, decimals) == text


def test_every_unit_of_the_boards_is_known_to_the_preview() -> None:
    for _, panel in ALL_PANELS:
        units = [panel["fieldConfig"]["defaults"].get("unit", "none")]
        for override in panel["fieldConfig"]["overrides"]:
            units += [item["value"] for item in override["properties"] if item["id"] == "unit"]
        for unit in units:
            assert shown(1.0, unit)


def a_panel(uid: str, title: str) -> dict[str, Any]:
    return next(panel for panel in panels(boards()[uid]) if panel["title"] == title)


def point(query: str, value: float, **labels: str) -> Series:
    return Series(query, "", labels, (0.0,), (value,))


def test_the_fleets_table_is_joined_by_server_and_the_worst_is_first() -> None:
    series = [
        point("A", 0, server="a"), point("A", 3, server="b"),
        point("B", 3, server="b", finding="crash_loop"),
        point("C", 1, server="a", state="up"), point("C", 1, server="b", state="failed"),
        point("E", 8192, server="a"),
    ]  # fmt: skip
    worst, fine = rows_of(a_panel("vllm-length-fleet", "Servers"), series)
    assert worst == {"Server": "b", "Worst": 3, "Problem": "crash_loop", "State": "failed"}
    assert fine == {"Server": "a", "Worst": 0, "State": "up", "Limit": 8192}


def test_lengths_are_a_matrix_of_part_and_share() -> None:
    series = [point("A", 1000, part="prompt", share="0.5"), point("A", 3000, part="total", share="0.5")]
    series.append(point("A", 8192, part="total", share="1"))
    rows = rows_of(a_panel("vllm-length-workload", "Joint distribution (tokens)"), series)
    assert rows == [{"Part": "prompt", "50 %": 1000}, {"Part": "total", "50 %": 3000, "all": 8192}]


def test_the_what_if_table_is_in_the_order_of_lengths() -> None:
    series = [point("A", count, tokens=tokens) for tokens, count in (("1024", 9), ("131072", 0), ("2048", 4))]
    rows = rows_of(a_panel("vllm-length-workload", "If requests were this long"), series)
    assert [row["Tokens a request"] for row in rows] == [1024, 2048, 131072]


def test_a_state_is_a_word_in_its_colour() -> None:
    panel = a_panel("vllm-length-server", "State")
    field = field_of(panel, point("A", 1))
    assert (field.text(1.0), field.color(1.0)) == ("up", COLORS["green"])
    assert (field.text(5.0), field.color(5.0)) == ("failed", COLORS["red"])


def test_thresholds_colour_a_value() -> None:
    field = field_of(a_panel("vllm-length-server", "KV cache in use"))
    assert [field.color(value) for value in (0.89, 0.9, 0.95)] == [
        COLORS[name] for name in ("green", "orange", "red")
    ]


def test_text_is_cut_to_its_width() -> None:
    long = "prompt_plus_output_too_long (middleware)"
    cut = fitting(long, 11, 100)
    assert cut.endswith("…")
    assert width_of(cut, 11) <= 100 < width_of(long, 11)
    assert fitting("short", 11, 100) == "short"


def test_neighbouring_points_are_one_mark() -> None:
    assert beginnings((10.0, 11.0, 12.0, 30.0), 1.0) == [10.0, 30.0]


def test_few_moments_where_there_is_little_room() -> None:
    assert [text for _, text, _ in ticks((0.0, 3600.0), 800)] == ["00:00", "00:15", "00:30", "00:45", "01:00"]
    assert len(ticks((0.0, 3600.0), 200)) == 3
