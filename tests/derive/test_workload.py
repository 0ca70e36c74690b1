"""Quantiles against numpy, the recommended limit against the workload it was made from, and what binds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.recorded import played
from vllm_length_exporter import moments
from vllm_length_exporter.derive.values import EngineCapacity, Limits, Value
from vllm_length_exporter.derive.workload import (
    COVERAGES,
    ENOUGH_REQUESTS,
    SHARES,
    binding,
    bound_by,
    concurrency_table,
    recommended_limit,
    total_at_most,
    windowed,
)
from vllm_length_exporter.histogram import Histogram, histogram
from vllm_length_exporter.moments import Moment, lengths

LIMIT = 8192
EDGES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, math.inf)  # vLLM's own, for a limit of 8,192


def observed(lengths: Sequence[int], edges: Sequence[float] = EDGES) -> Histogram:
    return Histogram(tuple(edges), tuple(sum(length <= edge for length in lengths) for edge in edges))


requests = st.lists(
    st.tuples(st.integers(1, 8000), st.integers(1, 8000)).map(lambda r: (r[0], min(r[1], LIMIT - r[0]))),
    min_size=ENOUGH_REQUESTS,
    max_size=300,
)


@given(requests, st.sampled_from(SHARES))
def test_a_quantile_is_the_edge_above_numpys(rows: list[tuple[int, int]], share: float) -> None:
    prompts = [prompt for prompt, _ in rows]
    edge = observed(prompts).at_most(share)
    assert edge is not None
    exact = float(np.quantile(prompts, share, method="inverted_cdf"))
    below = max((e for e in EDGES if e < edge), default=0)
    assert below < exact <= edge


@settings(max_examples=300)
@given(requests, st.sampled_from(COVERAGES), st.booleans(), st.sampled_from([True, False, None]))
def test_the_recommended_limit_would_have_served_the_share(
    rows: list[tuple[int, int]], coverage: float, with_middleware: bool, clamps: bool | None
) -> None:
    totals = [prompt + output for prompt, output in rows]
    parts = {
        "prompt": observed([prompt for prompt, _ in rows]),
        "generation": observed([output for _, output in rows]),
        "max_tokens": observed([output for _, output in rows]),
    }
    if with_middleware:
        parts |= {"total": observed(totals), "asked": observed(totals)}
    found = recommended_limit(parts, coverage, LIMIT, clamps=clamps)
    assert found is not None
    served = sum(total <= found[0] for total in totals)
    assert served >= coverage * len(rows) - 1e-9
    assert found[0] <= LIMIT


def test_up_to_0_31_a_request_needs_room_for_all_that_it_asks_for() -> None:
    parts = {
        "prompt": observed([100] * 50),
        "generation": observed([10] * 50),
        "max_tokens": observed([2000] * 50),
    }
    assert recommended_limit(parts, 1.0, LIMIT, clamps=False) == (2100, "prompt edge + max_tokens edge")
    assert recommended_limit(parts, 1.0, LIMIT, clamps=True) == (110, "prompt edge + generation edge")


def test_the_top_bucket_is_at_most_the_limit() -> None:
    assert total_at_most({"total": observed([6000] * 30)}, 0.5, LIMIT) == (LIMIT, "middleware")
    assert total_at_most({"total": observed([6000] * 30)}, 0.5, None) is None


def test_with_too_few_requests_nothing_is_said() -> None:
    few = {"prompt": observed([100] * 19), "generation": observed([100] * 19)}
    assert total_at_most(few, 0.5, LIMIT) is None


def test_only_what_came_in_the_window_counts_and_a_restart_begins_anew() -> None:
    old, new = observed([10] * 1000), observed([10] * 1000 + [4000] * 40)
    grown = windowed((lengths(0.0, {"prompt": old}), lengths(60.0, {"prompt": new})))
    assert grown["prompt"].total == 40
    assert windowed((lengths(0.0, {"prompt": new}), lengths(60.0, {"prompt": old}))) == {}
    assert windowed((lengths(0.0, {"prompt": new}),)) == {}


def test_buckets_of_several_engines_add_up_and_broken_ones_are_left() -> None:
    assert histogram([(1.0, 1), (math.inf, 2), (1.0, 3), (math.inf, 5)]) == Histogram((1.0, math.inf), (4, 7))
    assert histogram([(1.0, 1)]) is None, "no top bucket"
    assert histogram([(1.0, 3), (math.inf, 2)]) is None, "not cumulative"
    assert histogram([(1.0, 1), (math.inf, 2), (math.inf, 2)]) is None, "one engine lacks a bucket"
    assert histogram([]) is None


def moment(
    at: float, waiting: float = 0, running: float = 0, usage: float = 0.0, preempted: float = 0
) -> Moment:
    rows = {"running": {"0": running}, "waiting": {"0": waiting}, "usage": {"0": usage}}
    return moments.moment(at, rows, {"0": preempted})


@pytest.mark.parametrize(
    ("now", "seqs", "what"),
    [
        (moment(5), 16, "nothing"),
        (moment(5, running=16, usage=0.99), 16, "nothing"),
        (moment(5, waiting=3, running=16, usage=0.013), 16, "max_num_seqs"),
        (moment(5, waiting=3, running=9, usage=0.97), 16, "kv_cache"),
        (moment(5, running=9, usage=0.5, preempted=1), 16, "kv_cache"),
        (moment(5, waiting=3, running=2, usage=0.2), 16, "max_num_batched_tokens"),
        (moment(5, waiting=3, running=2, usage=0.2), None, None),
    ],
)
def test_what_binds(now: Moment, seqs: int | None, what: str | None) -> None:
    assert bound_by(moment(0), now, "0", seqs) == what


def test_shares_of_the_window_add_up_to_one_and_cannot_be_told_without_max_num_seqs() -> None:
    history = (moment(0), moment(5, 3, 16, 0.1), moment(10, 3, 16, 0.1), moment(15), moment(20))
    engines = (EngineCapacity("0"),)
    found = binding(history, engines, Limits(max_num_seqs=Value(16, "engine_log")), 300.0)
    assert {row.limit: row.ratio for row in found} == {
        "kv_cache": 0.0, "max_num_seqs": 0.5, "max_num_batched_tokens": 0.0, "nothing": 0.5,
    }  # fmt: skip
    assert binding(history, engines, Limits(), 300.0) == ()


def test_the_what_if_table_starts_from_usable_blocks() -> None:
    engine = EngineCapacity("0", blocks=Value(79, "x"), block_size=Value(128, "x"), one_group=True)
    rows = {
        row.tokens: row.requests for row in concurrency_table((engine,), Limits(effective=Value(8192, "x")))
    }
    assert rows[8192] == 79 / 64
    assert rows[1024] == 79 / 8
    hybrid = EngineCapacity("0", blocks=Value(79, "x"), block_size=Value(128, "x"))
    assert concurrency_table((hybrid,), Limits(effective=Value(8192, "x"))) == ()


def test_in_the_recording_under_pressure_the_kv_cache_binds() -> None:
    states = [state for _, state in played("0.32.0-pressure")]
    bound = [
        bound_by(before, now, "0", 16) for state in states[-1:] for before, now in pairwise(state.history)
    ]
    assert set(bound) <= {"kv_cache", "max_num_seqs", "nothing", "max_num_batched_tokens"}
    assert bound.count("kv_cache") >= 3
