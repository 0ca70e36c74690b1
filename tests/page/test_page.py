"""vLLM's page: every spelling, the sound part of a broken one, and the stock parser as the oracle."""

from __future__ import annotations

import contextlib
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from tests.recorded import NAMES, pages
from vllm_length_exporter.vllm.names import NAMES as ROWS
from vllm_length_exporter.vllm.names import PREFIXES, Quantity, spellings
from vllm_length_exporter.vllm.page import PageError, PageReader, read_page

WITH_PAGES = [name for name in NAMES if pages(name)]


def page_of(*lines: str) -> bytes:
    return ("\n".join(lines) + "\n").encode()


@pytest.mark.parametrize("name", WITH_PAGES)
def test_reads_what_the_stock_parser_reads(name: str) -> None:
    known = spellings()
    reader = PageReader()
    for _, text in pages(name):
        page = reader.read(text.encode())
        ours = {
            (sample.name, tuple(sorted(sample.labels.items()))): sample.value
            for samples in page.samples.values()
            for sample in samples
        }
        theirs = {
            (known[sample.name].exposed, tuple(sorted(sample.labels.items()))): float(sample.value)
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name in known
        }
        assert ours == theirs
        assert page.malformed == page.ambiguous == 0


@pytest.mark.parametrize("prefix", PREFIXES)
def test_every_prefix_is_the_same_quantity(prefix: str) -> None:
    page = read_page(page_of(f'{prefix}num_requests_running{{engine="0",model_name="m"}} 3'))
    assert page.by_engine(Quantity.RUNNING) == {"0": 3.0}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.exposed)
def test_every_row_is_read(row: object) -> None:
    exposed, quantity = row.exposed, row.quantity  # type: ignore[attr-defined]
    prefix = "vllm:" if row.prefixed else ""  # type: ignore[attr-defined]
    page = read_page(page_of(f"{prefix}{exposed} 1"))
    assert page.of(quantity)[0].value == 1.0


def test_the_newer_of_two_usage_names_wins() -> None:
    page = read_page(
        page_of('vllm:gpu_cache_usage_perc{engine="0"} 0.5', 'vllm:kv_cache_usage_perc{engine="0"} 0.25')
    )
    assert page.by_engine(Quantity.KV_USAGE) == {"0": 0.25}


def test_a_v0_page_has_one_engine_called_0() -> None:
    page = read_page(
        page_of(
            'vllm:gpu_cache_usage_perc{model_name="m"} 0.5', 'vllm:num_requests_running{model_name="m"} 1'
        )
    )
    assert page.engines == ("0",)
    assert page.model_names == ("m",)


def test_ray_replicas_are_kept_apart() -> None:
    page = read_page(
        page_of(
            'ray_vllm_num_requests_running{ReplicaId="a",engine="0"} 1',
            'ray_vllm_num_requests_running{ReplicaId="b",engine="0"} 2',
        )
    )
    assert page.by_engine(Quantity.RUNNING) == {"a/0": 1.0, "b/0": 2.0}


def test_labels_with_quotes_braces_and_newlines() -> None:
    page = read_page(page_of(r'vllm:num_requests_running{engine="0",model_name="a\"} 9 \\ {x=\"1\"}\n"} 3'))
    assert page.of(Quantity.RUNNING)[0].labels["model_name"] == 'a"} 9 \\ {x="1"}\n'
    assert page.by_engine(Quantity.RUNNING) == {"0": 3.0}


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-Inf", "-1", "-0.5"])
def test_values_that_cannot_be_are_left_out(value: str) -> None:
    page = read_page(
        page_of(f'vllm:kv_cache_usage_perc{{engine="0"}} {value}', 'vllm:num_requests_running{engine="0"} 1')
    )
    assert page.of(Quantity.KV_USAGE) == ()
    assert page.by_engine(Quantity.RUNNING) == {"0": 1.0}


def test_a_series_that_stands_twice_with_two_values_is_left_out() -> None:
    page = read_page(
        page_of(
            'vllm:num_requests_running{engine="0"} 1',
            'vllm:num_requests_running{engine="0"} 2',
            'vllm:num_requests_waiting{engine="0"} 4',
            'vllm:num_requests_waiting{engine="0"} 4',
        )
    )
    assert page.of(Quantity.RUNNING) == ()
    assert page.ambiguous == 1
    assert page.by_engine(Quantity.WAITING) == {"0": 4.0}


def test_a_line_that_does_not_parse_is_counted_and_the_rest_read() -> None:
    page = read_page(
        page_of(
            "vllm:num_requests_running{engine=0} 1",
            "vllm:num_requests_running{",
            'vllm:num_requests_waiting{engine="0"} many',
            'vllm:num_requests_waiting{engine="0"} 4 1700000000000',
        )
    )
    assert page.malformed == 3
    assert page.by_engine(Quantity.WAITING) == {"0": 4.0}


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"", "empty"),
        (b"  \n", "empty"),
        (b"<!DOCTYPE html><html><body>hello</body></html>\n", "HTML"),
        (b"<html>no end", "HTML"),
        (b'{"detail":"Not Found"}', "JSON"),
        (b"\x89PNG\r\n\x1a\n\x00\xff", "not UTF-8"),
        (b'vllm:num_requests_running{engine="0"} 1\nvllm:num_preemptions_total{engine="0"} 2', "cut"),
        (b"# HELP go_goroutines Number\n# TYPE go_goroutines gauge\ngo_goroutines 12\n", "none of vLLM's"),
        (b"# HELP a b\nvllm_length_exporter_build_info 1\n", "the exporter's own"),
        (b"process_start_time_seconds 1.7e9\nvllm_length_exporter_build_info 1\n", "the exporter's own"),
        (b"just some text\nand more\n", "not in the Prometheus text format"),
    ],
)
def test_what_is_no_page_says_what_it_looks_like(body: bytes, says: str) -> None:
    with pytest.raises(PageError, match=says) as error:
        read_page(body)
    assert "\n" not in str(error.value)


def test_a_page_without_statistics_is_a_page() -> None:
    page = read_page(
        page_of("process_start_time_seconds 1.7e9", 'http_requests_total{handler="/v1/models"} 1')
    )
    assert not page.has_statistics
    assert page.process_start == 1.7e9


@given(st.binary(max_size=400))
def test_bytes_never_raise_anything_else(body: bytes) -> None:
    with contextlib.suppress(PageError):
        read_page(body)


@given(
    st.lists(st.tuples(st.sampled_from(sorted(spellings())), st.text(max_size=30), st.floats()), max_size=8)
)
def test_made_up_lines_never_give_a_value_that_cannot_be(rows: list[tuple[str, str, float]]) -> None:
    text = "".join(f"{name}{{model_name={labels!r}}} {value}\n" for name, labels, value in rows)
    try:
        page = read_page(text.encode("utf-8", "surrogatepass"))
    except PageError:
        return
    for samples in page.samples.values():
        assert all(math.isfinite(sample.value) and sample.value >= 0 for sample in samples)


def test_a_page_of_vllm_may_hold_series_of_ours() -> None:
    """Several pages may be put together, as Prometheus' federation does."""
    page = read_page(b'vllm:num_requests_running{engine="0"} 1\nvllm_length_exporter_build_info 1\n')
    assert page.has_statistics
