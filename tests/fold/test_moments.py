"""What is kept of a page says the same as the page, whatever it is packed into."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from vllm_length_exporter.histogram import Histogram
from vllm_length_exporter.moments import lengths, moment

numbers = st.floats(0, 2.0**63)
rows = st.dictionaries(st.sampled_from(("0", "1", "a/0")), numbers)


@given(running=rows, waiting=rows, truncated=rows, preemptions=rows)
def test_a_moment_tells_of_each_engine_what_the_page_told(
    running: dict[str, float],
    waiting: dict[str, float],
    truncated: dict[str, float],
    preemptions: dict[str, float],
) -> None:
    told = {"running": running, "waiting": waiting, "truncated": truncated}
    kept = moment(0.0, told, preemptions)
    assert (kept.running, kept.waiting, kept.truncated, kept.preemptions) == (
        running,
        waiting,
        truncated,
        preemptions,
    )
    for engine in ("0", "1", "a/0", "another"):
        found = kept.of(engine)
        assert math.isnan(found.usage)
        assert [None if math.isnan(number) else number for number in (found.running, found.waiting)] == [
            running.get(engine), waiting.get(engine),
        ]  # fmt: skip
    assert moment(0.0, told, preemptions, before=moment(-5.0, told, {})) == kept


# The largest count is what 64 engines at the page's limit add up to.
counts = st.lists(numbers, min_size=2, max_size=20).map(
    lambda found: tuple(sorted(int(64 * n) for n in found))
)
histograms = counts.map(lambda found: Histogram((*map(float, range(len(found) - 1)), math.inf), found))


@given(parts=st.dictionaries(st.sampled_from(("prompt", "generation", "total")), histograms))
def test_no_count_of_a_histogram_is_lost(parts: dict[str, Histogram]) -> None:
    kept = lengths(0.0, parts)
    assert kept.parts == parts
    assert lengths(0.0, parts, before=lengths(-60.0, {"asked": Histogram((math.inf,), (1,))})) == kept


def test_what_has_not_changed_is_kept_once() -> None:
    parts = {"prompt": Histogram((10.0, math.inf), (3, 4))}
    first = lengths(0.0, parts)
    grown = lengths(60.0, {"prompt": Histogram((10.0, math.inf), (3, 5))}, first)
    assert grown.edges is first.edges
    assert lengths(120.0, parts, first).packed is first.packed
    before = moment(0.0, {"running": {"0": 1.0}}, {"0": 7.0}, refused={"too_long": 2.0})
    after = moment(5.0, {"running": {"0": 2.0}}, {"0": 7.0}, refused={"too_long": 2.0}, before=before)
    assert after.preemptions is before.preemptions
    assert after.engines is before.engines
    assert after.refused is before.refused
    assert after.of("0").running == 2.0
