"""Capacity, blocks and headroom: the rules of each version, and what is withheld."""

from __future__ import annotations

import pytest

from vllm_length_exporter.derive.capacity import capacity
from vllm_length_exporter.derive.evidence import Evidence
from vllm_length_exporter.derive.limits import implied_limit, limits
from vllm_length_exporter.derive.values import EngineCapacity, Value
from vllm_length_exporter.story import AutoFit, Story
from vllm_length_exporter.vllm.models import Card
from vllm_length_exporter.vllm.page import Page, read_page


def config(engine: str = "0", /, **labels: object) -> str:
    inside = ",".join(f'{key}="{value}"' for key, value in {"engine": engine, **labels}.items())
    return f"vllm:cache_config_info{{{inside}}} 1.0"


def page(*lines: str) -> Page:
    return read_page(("\n".join(lines) + "\n").encode())


def usage(value: float, engine: str = "0") -> str:
    return f'vllm:kv_cache_usage_perc{{engine="{engine}"}} {value!r}'


def only(evidence: Evidence, effective: int | None = 8192) -> EngineCapacity:
    (engine,) = capacity(evidence, effective).engines
    return engine


def withheld(evidence: Evidence, effective: int | None = 8192) -> set[str]:
    return {item.quantity for item in capacity(evidence, effective).unknown}


NEW: dict[str, object] = {
    "block_size": 128,
    "num_gpu_blocks": 80,
    "kv_cache_size_tokens": 10240,
    "kv_cache_max_concurrency": 1.25,
}


@pytest.mark.parametrize("used", [0, 1, 40, 77, 78, 79])
def test_used_blocks_are_the_whole_number_that_usage_means(used: int) -> None:
    found = only(Evidence(page(config(**NEW), usage(used / 79)), version="0.32.0"))
    assert found.blocks == Value(79, "cache_config")
    assert found.used_blocks is not None
    assert found.used_blocks.value == used
    assert found.free_tokens == Value((79 - used) * 128, "free usable blocks x block size")


def test_until_0_10_1_usage_divides_by_all_blocks() -> None:
    shown = page(config(**NEW), usage(40 / 80))
    found = only(Evidence(shown, version="0.10.1"))
    assert found.used_blocks is not None
    assert found.used_blocks.value == 40


def test_a_usage_that_is_no_whole_number_of_blocks_gives_no_used_blocks() -> None:
    evidence = Evidence(page(config(**NEW), usage(0.5)), version="0.32.0")
    assert only(evidence).used_blocks is None
    assert only(evidence).usage_ratio == Value(0.5, "metrics")
    assert "kv_cache_used_blocks" in withheld(evidence)


def test_without_a_version_used_blocks_are_told_only_when_both_rules_agree() -> None:
    assert only(Evidence(page(config(**NEW), usage(0.0)))).used_blocks == Value(0, "usage x blocks")
    found = only(Evidence(page(config(**NEW), usage(77 / 79)))).used_blocks
    assert found is not None
    assert found.value == 77, "77/79 is whole with 79 blocks, and with 80 it is not"


def test_num_gpu_blocks_is_a_sum_over_the_engines_of_the_page() -> None:
    two = {**NEW, "num_gpu_blocks": 160}
    evidence = Evidence(
        page(config("0", **two), config("1", **two), usage(0, "0"), usage(7 / 79, "1")), version="0.32.0"
    )
    found = capacity(evidence, 8192).engines
    assert [engine.blocks for engine in found] == [Value(79, "cache_config")] * 2
    assert [engine.tokens for engine in found] == [Value(10240, "cache_config")] * 2
    assert found[1].used_blocks == Value(7, "usage x blocks")


def test_a_sum_that_does_not_divide_gives_no_blocks() -> None:
    odd = {**NEW, "num_gpu_blocks": 161}
    evidence = Evidence(page(config("0", **odd), config("1", **odd)), version="0.32.0")
    assert {engine.blocks for engine in capacity(evidence, 8192).engines} == {None}


def test_a_hybrid_model_has_a_capacity_and_no_headroom_in_tokens() -> None:
    hybrid = {
        "block_size": 128, "num_gpu_blocks": 16384, "kv_cache_size_tokens": 1409110,
        "kv_cache_max_concurrency": 43.00262467191601,
    }  # fmt: skip
    evidence = Evidence(page(config(**hybrid), usage(0.0)), version="0.32.0")
    found = only(evidence, 32768)
    assert found.tokens == Value(1409110, "cache_config")
    assert found.full_length_concurrency == Value(43.00262467191601, "cache_config")
    assert found.free_tokens is None
    assert "kv_cache_free_tokens" in withheld(evidence, 32768)


def test_a_limit_that_is_no_multiple_of_the_block_is_no_hybrid() -> None:
    blocks, limit = 8094, 8196
    concurrency = blocks / -(-limit // 16)
    plain = {
        "block_size": 16, "num_gpu_blocks": blocks, "kv_cache_size_tokens": int(concurrency * limit),
        "kv_cache_max_concurrency": concurrency,
    }  # fmt: skip
    assert only(Evidence(page(config(**plain), usage(0.0)), version="0.32.0"), limit).free_tokens is not None


OLD: dict[str, object] = {"block_size": 16, "num_gpu_blocks": 1000, "sliding_window": "None"}
PLAIN_STORY = Story(max_seq_len=4096, context_parallel=False)


def test_the_product_is_the_capacity_where_the_log_proves_one_group() -> None:
    found = only(Evidence(page(config(**OLD)), version="0.16.0", story=PLAIN_STORY))
    assert found.tokens == Value(16000, "block_product")


@pytest.mark.parametrize(
    ("labels", "story"),
    [
        (OLD, Story()),
        ({**OLD, "sliding_window": 1024}, PLAIN_STORY),
        ({**OLD, "mamba_block_size": 784}, PLAIN_STORY),
        ({**OLD, "mamba_page_size_padded": 65536}, PLAIN_STORY),
        (OLD, Story(max_seq_len=4096, context_parallel=True)),
        (OLD, Story(max_seq_len=4096, context_parallel=False, trap="padding_layers")),
        ({**OLD, "num_gpu_blocks": "None"}, PLAIN_STORY),
    ],
)
def test_the_product_is_withheld_where_it_may_be_wrong(labels: dict[str, object], story: Story) -> None:
    evidence = Evidence(page(config(**labels)), version="0.16.0", story=story)
    assert only(evidence).tokens is None
    assert "kv_cache_capacity" in withheld(evidence)


def test_up_to_0_9_0_the_product_is_what_vllm_says() -> None:
    assert only(Evidence(page(config(**OLD)), version="0.9.0")).tokens == Value(16000, "block_product")


def test_a_v0_engine_has_no_null_block() -> None:
    shown = page(
        'vllm:cache_config_info{block_size="16",num_gpu_blocks="1000"} 1',
        'vllm:num_requests_running{model_name="m"} 1',
        'vllm:gpu_cache_usage_perc{model_name="m"} 0.5',
    )
    found = only(Evidence(shown, version="0.6.6"))
    assert found.blocks == Value(1000, "cache_config")
    assert found.used_blocks == Value(500, "usage x blocks")


def test_the_log_gives_the_capacity_where_the_page_does_not() -> None:
    story = Story(capacity_tokens={"0": 10240}, concurrency={"0": 1.25}, concurrency_length=8192)
    found = only(Evidence(page(config(**OLD)), version="0.16.0", story=story))
    assert found.tokens == Value(10240, "startup_log")
    assert found.full_length_concurrency == Value(1.25, "startup_log")


def test_a_concurrency_for_another_length_than_the_limit_is_withheld() -> None:
    story = Story(concurrency={"0": 1.25}, concurrency_length=8192)
    assert (
        only(Evidence(page(config(**OLD)), version="0.16.0", story=story), 4096).full_length_concurrency
        is None
    )


def test_bytes_per_token_under_an_override_come_from_the_count_before_it_or_not_at_all() -> None:
    overridden = {**NEW, "num_gpu_blocks_override": 80, "kv_cache_memory_bytes": 1 << 30}
    bare = Evidence(page(config(**overridden)), version="0.32.0")
    assert only(bare).bytes_per_token is None
    assert only(bare).memory_bytes is None
    told = Evidence(page(config(**overridden)), version="0.32.0", story=Story(override={"0": (8192, 80)}))
    assert only(told).bytes_per_token == Value(1024.0, "memory / tokens (cache_config)")


def test_sources_of_the_capacity_that_differ_are_said_to() -> None:
    story = Story(capacity_tokens={"0": 5120})
    found = capacity(Evidence(page(config(**NEW)), version="0.32.0", story=story), 8192)
    assert [(gap.quantity, gap.ratio) for gap in found.disagreements] == [("kv_cache_capacity", 0.5)]


@pytest.mark.parametrize("length", [1, 17, 4096, 8191, 8192, 8196, 32640, 131072, 1048576])
@pytest.mark.parametrize("blocks", [80, 256, 8192, 16384, 100_003])
def test_the_limit_is_found_again_from_size_and_concurrency(length: int, blocks: int) -> None:
    concurrency = blocks / -(-length // 16)
    found = implied_limit(int(concurrency * length), concurrency, blocks)
    # A server that holds less than one request leaves several lengths possible: then it says nothing.
    assert found == length if concurrency >= 1 else found in (None, length)


@pytest.mark.parametrize(("blocks", "limit"), [(84, 4608), (97, 6272), (80, 8192 - 128)])
def test_a_rounded_concurrency_proves_no_limit(blocks: int, limit: int) -> None:
    concurrency = blocks / (limit // 128)
    shown = {"block_size": 128, "num_gpu_blocks": blocks, "kv_cache_size_tokens": blocks * 128}
    exact = page(config(**shown, kv_cache_max_concurrency=concurrency))
    assert limits(Evidence(exact, version="0.32.0")).limits.effective == Value(limit, "cache_config")
    rounded = page(config(**shown, kv_cache_max_concurrency=round(concurrency, 2)))
    assert limits(Evidence(rounded, version="0.32.0")).limits.effective is None


def test_the_api_wins_except_where_it_does_not_know_the_fit() -> None:
    cards = (Card("m", 1048576),)
    fit = Story(auto_fit=AutoFit(32768, 1048576), arguments={"max_model_len": "auto"})
    late = limits(Evidence(cards=cards, version="0.16.0", story=fit)).limits
    assert late.effective == Value(32768, "auto_fit_log")
    assert late.requested == Value("auto", "engine_log")
    assert late.window == Value(1048576, "auto_fit_log")
    assert late.mode == "auto"
    aware = limits(Evidence(cards=(Card("m", 32640),), version="0.32.0", story=fit)).limits
    assert aware.effective == Value(32640, "models_api")


def test_with_auto_the_early_lines_are_no_limit() -> None:
    story = Story(model_length=1048576, max_seq_len=1048576, arguments={"max_model_len": "auto"})
    assert limits(Evidence(story=story)).limits.effective is None


def test_base_models_that_differ_leave_the_limit_to_the_other_sources() -> None:
    cards = (Card("a", 4096), Card("b", 8192))
    assert limits(Evidence(cards=cards)).limits.effective is None
    story = Story(arguments={}, model_length=8192)
    found = limits(Evidence(cards=cards, story=story)).limits
    assert found.effective == Value(8192, "engine_log")
    assert (found.mode, found.requested, found.window) == ("default", None, Value(8192, "engine_log"))


def test_an_explicit_limit_says_nothing_of_the_window() -> None:
    story = Story(arguments={"max_model_len": 4096}, model_length=4096)
    found = limits(Evidence(story=story)).limits
    assert (found.mode, found.window) == ("explicit", None)


def test_the_top_bucket_is_a_lower_bound_and_no_limit() -> None:
    shown = page(
        *(f'vllm:request_prompt_tokens_bucket{{engine="0",le="{le}"}} 0' for le in ("1.0", "5000.0", "+Inf"))
    )
    found = limits(Evidence(shown)).limits
    assert found.effective is None
    assert found.floor == Value(5000, "histogram_bound")
