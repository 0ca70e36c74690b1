"""What a workload costs, by hand arithmetic; and each mistake in a price file by the line it gets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.recorded import pages
from vllm_length_exporter.planner.cost import Cost, Offer, cost, recomputed_tokens
from vllm_length_exporter.planner.error import PlanError
from vllm_length_exporter.planner.prices import Api, Prices, SelfHosted, Workload, read_prices, read_workload
from vllm_length_exporter.planner.weights import Span
from vllm_length_exporter.planner.workload import workload

FILE = Path(__file__).with_name("prices.yml")


def priced(devices: int = 4) -> Cost:
    prices = read_prices(FILE)
    assert prices.workload is not None
    return cost(prices, prices.workload, devices)


def offer(found: Cost, name: str) -> Offer:
    return next(item for item in found.offers if item.name == name)


def test_our_own_devices_cost_by_the_hour() -> None:
    own = offer(priced(), "self-hosted")
    assert own.total == 4 * 10 * 2.5
    assert own.per_million.all == pytest.approx(100 / 230)
    # 150 M fresh, 50 M cached at a tenth, 30 M output at four times: 275 M input tokens
    assert own.per_million.input == pytest.approx(100 / 275)
    assert own.per_million.cached_input == pytest.approx(100 / 2750)
    assert own.per_million.output == pytest.approx(400 / 275)


def test_the_parts_make_the_whole() -> None:
    each = offer(priced(), "self-hosted").per_million
    assert each.input is not None
    assert each.cached_input is not None
    assert each.output is not None
    assert 150 * each.input + 50 * each.cached_input + 30 * each.output == pytest.approx(100)


def test_an_api_costs_by_the_token() -> None:
    large, small = offer(priced(), "large"), offer(priced(), "small")
    assert large.total == pytest.approx(150 * 3 + 50 * 0.3 + 30 * 15)
    assert small.total == pytest.approx(200 * 0.15 + 30 * 0.6)  # cached input costs as input
    assert (small.per_million.cached_input, small.per_million.output) == (0.15, 0.6)


def test_where_both_cost_the_same() -> None:
    even = dict(priced().break_even)
    assert even["large"] == pytest.approx(100 / 915)  # at a ninth of this volume
    assert even["small"] == pytest.approx(100 / 48)  # at twice this volume


def test_waste() -> None:
    found = priced()
    own, large = offer(found, "self-hosted"), offer(found, "large")
    # each of 1,000 preemptions computes at most the mean request of 2,300 tokens again
    assert found.recomputed_tokens == Span(0, 2_300_000)
    assert own.waste.recomputation[0] == 0
    assert own.waste.recomputation[1] == pytest.approx(2.3 * 100 / 275)
    assert own.waste.truncation == pytest.approx(2)  # 2 % of the requests
    assert large.waste.recomputation == (0.0, 0.0)
    assert large.waste.truncation == pytest.approx(18.3)


def test_recomputed_tokens_that_were_counted_are_exact() -> None:
    work = Workload(
        hours=1, requests=10, input_tokens=100, output_tokens=10, preemptions=5, recomputed_tokens=7
    )
    assert recomputed_tokens(work) == Span(7, 7)


def test_without_weights_no_kind_has_a_price_of_its_own() -> None:
    work = Workload(hours=1, requests=10, input_tokens=10**6, output_tokens=10**6)
    found = cost(Prices(self_hosted=SelfHosted(gpu_hour=2)), work, 1)
    each = found.offers[0].per_million
    assert (each.input, each.cached_input, each.output, each.all) == (None, None, None, 1.0)


def test_an_idle_hour_costs_as_much_and_has_no_price_a_token() -> None:
    work = Workload(hours=1, requests=0, input_tokens=0, output_tokens=0)
    prices = Prices(self_hosted=SelfHosted(gpu_hour=2, output_weight=3), apis=(Api("a", 1, 1),))
    found = cost(prices, work, 1)
    assert found.offers[0].total == 2
    assert found.offers[0].per_million.all is None
    assert found.break_even == ()


COUNTS = st.integers(0, 10**12)


@given(COUNTS, COUNTS, st.integers(0, 10**6), st.integers(0, 10**6), st.floats(0.01, 1e4), st.floats(0, 100))
def test_costs_are_never_negative_and_waste_never_exceeds_them(
    tokens: int, output: int, requests: int, preemptions: int, hours: float, price: float
) -> None:
    work = Workload(
        hours=hours, requests=requests, input_tokens=tokens, cached_input_tokens=tokens // 2,
        output_tokens=output, preemptions=preemptions, truncated_requests=requests // 3,
    )  # fmt: skip
    found = cost(Prices(self_hosted=SelfHosted(price, 0.5, 2.0), apis=(Api("a", price, price),)), work, 2)
    for item in found.offers:
        assert item.total >= 0
        assert 0 <= item.waste.recomputation[0] <= item.waste.recomputation[1] <= item.total
        assert 0 <= item.waste.truncation <= item.total


def test_the_workload_of_a_live_server_is_read_from_its_page() -> None:
    """The recorded server under pressure, an hour after its start."""
    text = pages("0.32.0-pressure")[-1][1]
    start = next(
        float(line.split()[1]) for line in text.splitlines() if line.startswith("process_start_time_seconds")
    )

    def counter(name: str) -> int:
        return int(
            sum(
                float(line.rsplit(" ", 1)[1])
                for line in text.splitlines()
                if line.startswith(f"vllm:{name}{{")
            )
        )

    found = workload(text, start + 3600, refused_requests=5)
    assert found.hours == 1
    assert found.input_tokens == counter("prompt_tokens_total") > 20_000
    assert found.output_tokens == counter("generation_tokens_total") > 20_000
    assert found.requests == counter("request_success_total") > 20
    assert found.cached_input_tokens == counter("prompt_tokens_cached_total")
    assert found.preemptions == counter("num_preemptions_total") == 27
    assert 0 < found.truncated_requests <= found.requests
    assert (found.refused_requests, found.recomputed_tokens) == (5, None)
    older = pages("0.16.0-pressure")[-1][1]
    assert workload(older, 2e9).recomputed_tokens is not None  # 0.16 to 0.19 count them


@pytest.mark.parametrize(
    ("page", "message"),
    [
        ("", "the page does not say when the server started"),
        ("process_start_time_seconds 1.0\n", "the page has no vllm:prompt_tokens_total"),
        ("<html>", "no metrics page"),
    ],
)
def test_a_page_without_a_workload_is_one_line(page: str, message: str) -> None:
    with pytest.raises(PlanError) as failure:
        workload(page, 3600.0)
    assert str(failure.value).startswith(message)
    assert "\n" not in str(failure.value)


WORK = "hours: 1, requests: 1, input_tokens: 1, output_tokens: 1"
MISTAKES = [
    ("", ": is empty"),
    ("currency: EUR", ": expected self_hosted or apis: there is no price"),
    ("self_hosted: {gpu_hour: 2, gpus: 3}", ":1: self_hosted.gpus: unknown key; expected one of gpu_hour,"),
    ("self_hosted: {gpu_hour: -1}", ":1: self_hosted.gpu_hour: Expected `float` >= 0"),
    ("self_hosted: {gpu_hour: '2'}", ":1: self_hosted.gpu_hour: expected a number"),
    ("self_hosted: {}", ":1: self_hosted: expected the key 'gpu_hour', which is missing"),
    ("apis:\n- {name: a, input: 1}", ":2: apis[0]: expected the key 'output', which is missing"),
    (
        "apis:\n- {name: a, input: 1, output: 2}\n- {name: a, input: 1, output: 2}",
        ": apis: the name 'a' stands twice",
    ),
    (
        "self_hosted: {gpu_hour: 1}\nself_hosted: {gpu_hour: 2}",
        ":2: self_hosted: expected once, is also in line 1",
    ),
    ("self_hosted: {gpu_hour: .nan}", ":1: self_hosted.gpu_hour: Expected `float` >= 0"),
    ("self_hosted: {gpu_hour: .inf}", ":1: self_hosted.gpu_hour: Expected `float` <= 1"),
    (
        "self_hosted: {gpu_hour: 1}\nworkload: {hours: 0, requests: 1, input_tokens: 1, output_tokens: 1}",
        ":2: workload.hours: Expected `float` > 0",
    ),
    (
        f"self_hosted: {{gpu_hour: 1}}\nworkload: {{{WORK}, cached_input_tokens: 2}}",
        ":2: workload.cached_input_tokens: expected at most input_tokens (1)",
    ),
    (
        "self_hosted: {gpu_hour: 1}\nworkload: {hours: 1, requests: 1.5, input_tokens: 1, output_tokens: 1}",
        ":2: workload.requests: expected a whole number",
    ),
]


@pytest.mark.parametrize(("content", "message"), MISTAKES)
def test_each_mistake_in_a_price_file_is_one_line(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "prices.yml"
    path.write_text(content)
    with pytest.raises(PlanError) as failure:
        read_prices(path)
    assert str(failure.value).startswith(f"{path}{message}")
    assert "\n" not in str(failure.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    for read in (read_prices, read_workload):
        with pytest.raises(PlanError) as failure:
            read(tmp_path / "none.yml")
        assert str(failure.value) == f"{tmp_path / 'none.yml'}: cannot be read: No such file or directory"


JUNK: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


def test_a_file_that_is_no_yaml_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "prices.yml"
    path.write_text("[")
    with pytest.raises(PlanError, match=r"^[^\n]*prices\.yml:\d: expected YAML: [^\n]*$"):
        read_prices(path)


@given(st.dictionaries(st.sampled_from(["currency", "self_hosted", "apis", "workload"]), JUNK))
def test_any_document_is_prices_or_one_line(
    tmp_path_factory: pytest.TempPathFactory, content: dict[str, Any]
) -> None:
    path = tmp_path_factory.mktemp("prices") / "prices.yml"
    path.write_text(yaml.safe_dump(content))
    complaint = ""
    try:
        read_prices(path)
    except PlanError as error:
        complaint = str(error)
    assert "\n" not in complaint
