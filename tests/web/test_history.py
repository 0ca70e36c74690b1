"""Half an hour of an engine: kept in few bytes, forgotten in time, and drawn where it belongs."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from vllm_length_exporter.derive.values import EngineCapacity, EnginePressure, ServerView, State, Value
from vllm_length_exporter.web.figures import HEIGHT, WIDTH, curve, share_of
from vllm_length_exporter.web.history import EVERY, SPAN, History
from vllm_length_exporter.web.watched import Point


def view(server: str, usage: float | None, preemptions: int | None, engine: str = "0") -> ServerView:
    capacity = EngineCapacity(engine, usage_ratio=None if usage is None else Value(usage, "metrics"))
    pressure = EnginePressure(
        engine, preemptions_total=None if preemptions is None else Value(preemptions, "metrics")
    )
    return ServerView(server, State.UP, capacity=(capacity,), pressure=(pressure,))


def test_samples_are_kept_for_half_an_hour() -> None:
    history = History()
    for step in range(1000):
        history.record([view("a", step / 1000, step)], step * EVERY)
    points = history.of("a")["0"]
    assert len(points) == SPAN / EVERY
    assert points[-1] == Point(999 * EVERY, 0.999, 999)
    assert points[0].at > points[-1].at - SPAN


def test_an_engine_that_shows_nothing_fades_away() -> None:
    history = History()
    history.record([view("a", 0.5, 3)], 0.0)
    history.record([view("a", None, None)], 100.0)
    assert history.of("a")["0"] == (Point(0.0, 0.5, 3.0),)
    history.record([view("a", None, None)], SPAN + 1)
    assert history.of("a") == {}


def test_a_part_that_is_not_known_is_none() -> None:
    history = History()
    history.record([view("a", None, 3)], 0.0)
    assert history.of("a")["0"] == (Point(0.0, None, 3.0),)


def test_a_server_that_is_no_longer_watched_is_forgotten() -> None:
    history = History()
    history.record([view("a", 0.5, 0), view("b", 0.5, 0)], 0.0)
    history.record([view("b", 0.5, 0)], EVERY)
    assert history.of("a") == {}
    assert len(history.of("b")["0"]) == 2
    assert history.of("nobody") == {}


def points_of(*usage: float | None, every: float = EVERY, end: float = SPAN) -> list[Point]:
    first = end - every * (len(usage) - 1)
    return [Point(first + every * index, value, None) for index, value in enumerate(usage)]


def test_the_newest_sample_is_at_the_right_and_full_is_at_the_top() -> None:
    (line,) = curve("0", points_of(0.0, 1.0), SPAN).lines
    assert line.split()[-1] == f"{WIDTH:.1f},0.0"
    assert line.split()[0].endswith(f",{HEIGHT:.1f}")


def test_a_gap_breaks_the_curve() -> None:
    points = [*points_of(0.1, 0.2, end=600.0), *points_of(0.3, 0.4)]
    assert len(curve("0", points, SPAN).lines) == 2


def test_preemptions_are_counted_over_a_restart() -> None:
    counts = (100, 103, 103, 2, 4)
    points = [Point(SPAN - 100 + 5 * index, 0.5, count) for index, count in enumerate(counts)]
    drawn = curve("0", points, SPAN)
    assert drawn.preemptions == 3 + 0 + 2 + 2
    assert max(bar.height for bar in drawn.bars) == HEIGHT


def test_one_sample_tells_no_preemptions() -> None:
    assert curve("0", [Point(0.0, 0.5, 100)], 1.0).preemptions is None
    assert curve("0", [], 1.0).usage_highest is None


@given(
    st.lists(
        st.tuples(
            st.floats(0, 2 * SPAN),
            st.none() | st.floats(-1, 2, allow_nan=False),
            st.none() | st.integers(0, 10**9),
        ),
        max_size=40,
    )
)
def test_everything_is_drawn_inside_its_frame(samples: list[tuple[float, float | None, int | None]]) -> None:
    points = [Point(at, usage, count) for at, usage, count in sorted(samples, key=lambda sample: sample[0])]
    drawn = curve("0", points, 2 * SPAN)
    for text in (*drawn.lines, *drawn.areas):
        for pair in text.split():
            x, y = map(float, pair.split(","))
            assert 0 <= x <= WIDTH
            assert 0 <= y <= HEIGHT
    for bar in drawn.bars:
        assert 0 <= bar.x <= bar.x + bar.width <= WIDTH + 0.1
        assert 0 <= bar.y <= bar.y + bar.height <= HEIGHT + 0.1


def test_bars_are_to_scale_and_never_invisible() -> None:
    assert share_of(4096, 8192) == 50
    assert 0 < share_of(1, 10**9) < 1
    assert share_of(0, 8192) == 0
    assert share_of(0, 0) == 0
