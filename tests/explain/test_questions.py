"""What people ask about length, as situations with numbers of our own: the answer has to name the real cause."""

from __future__ import annotations

import pytest

from tests.explain.test_explain import flags, too_small
from vllm_length_exporter.explain import Explanation, explain

H = "INFO 11-29 14:35:05 "


def advice(explanation: Explanation) -> str:
    return " ".join((explanation.summary, *explanation.advice, *explanation.versions))


def v0(limit: int, tokens: int) -> str:
    return (
        f"ValueError: The model's max seq len ({limit}) is larger than the maximum number of tokens that "
        f"can be stored in KV "
        f"cache ({tokens}). Try increasing `gpu_memory_utilization` or decreasing `max_model_len` when "
        f"initializing the "
        "engine."
    )


def statistics(running: int, waiting: int, usage: float) -> str:
    return (
        f"{H}[loggers.py:1] Engine 000: Avg prompt throughput: 9.0 tokens/s, Avg generation throughput: 9.0 tokens/s, "
        f"Running: {running} reqs, Waiting: {waiting} reqs, GPU KV cache usage: {usage}%, Prefix cache hit rate: 0.0%"
    )


def test_a_longer_limit_starts_and_a_shorter_one_does_not() -> None:
    explanation = explain(v0(30_000, 24_016))
    assert flags(explanation, "--max-model-len") == ["24016"]
    assert "--enable-chunked-prefill" in advice(explanation)
    assert "--max-num-batched-tokens" in advice(explanation)


def test_where_does_the_capacity_come_from() -> None:
    lines = (
        f"{H}[kv.py:1] GPU KV cache size: 43,008 tokens\n{H}[kv.py:2] Maximum concurrency for 8,192 "
        f"tokens per request: 5.25x"
    )
    explanation = explain(lines)
    assert explanation.numbers == {"limit": 8192, "capacity_tokens": 43_008, "full_length_concurrency": 5.25}
    assert "no setting" in advice(explanation)
    assert "--kv-cache-dtype" in advice(explanation)


@pytest.mark.parametrize(("limit", "tokens"), [(32_768, 16_000), (4096, 3680), (32_768, 7312)])
def test_the_cache_is_smaller_than_the_limit(limit: int, tokens: int) -> None:
    assert flags(explain(v0(limit, tokens)), "--max-model-len") == [str(tokens)]


def test_are_the_ranks_of_tensor_parallelism_added_up() -> None:
    explanation = explain(f"(Worker_TP0 pid=1) {H}[gpu_worker.py:1] Available KV cache memory: 6.20 GiB")
    assert "not added up" in advice(explanation)


def test_pipeline_stages_of_unequal_size() -> None:
    arguments = f"{H}[u.py:1] non-default args: {{'model': 'm', 'pipeline_parallel_size': 2}}\n"
    explanation = explain(arguments + too_small(262_144, 24.0, 3.2, 34_944))
    assert "smallest stage" in advice(explanation)
    assert flags(explanation, "--max-model-len") == ["34816"]


def test_a_longer_limit_leaves_less_memory() -> None:
    explanation = explain(too_small(220_000, 10.1, 5.6, 121_984))
    assert flags(explanation, "--max-model-len") == ["121856"]
    assert "activation peak" in advice(explanation)


def test_old_release_without_an_estimate() -> None:
    text = too_small(1_048_576, 24.0, 10.0).replace("GiB", "GB")
    explanation = explain(text)
    (value,) = flags(explanation, "--max-model-len")
    assert 430_000 < int(value) <= 1_048_576 * 10 // 24
    assert "only trying tells" in advice(explanation)


def test_how_many_requests_at_once() -> None:
    explanation = explain(f"{H}[kv.py:2] Maximum concurrency for 8,192 tokens per request: 5.25x")
    assert "shorter ones more" in advice(explanation)
    assert "--max-num-seqs" in advice(explanation)


@pytest.mark.parametrize(("running", "waiting"), [(1, 3), (4, 60)])
def test_requests_wait_and_the_cache_is_empty(running: int, waiting: int) -> None:
    explanation = explain(statistics(running, waiting, 3.2))
    assert "memory is not the cause" in advice(explanation)
    assert "--max-num-seqs" in advice(explanation)
    assert "--max-loras" in advice(explanation)


def test_two_requests_fill_the_cache() -> None:
    explanation = explain(statistics(2, 0, 99.8))
    assert explanation.cause == "kv_cache_saturated"
    assert "--max-model-len" in advice(explanation)


def test_requests_go_back_to_the_queue() -> None:
    explanation = explain(
        "WARNING 11-29 14:35:05 scheduler.py:1] Sequence group 7 is preempted by PreemptionMode.RECOMPUTE "
        "mode because there "
        "is not enough KV cache space. This can affect the end-to-end performance. Increase gpu_memory_utilization or "
        "tensor_parallel_size to provide more KV cache memory. total_num_cumulative_preemption=101"
    )
    assert (explanation.cause, explanation.numbers) == ("preempting", {"preemptions": 101})
    assert "computed again" in advice(explanation)


def test_capacity_and_concurrency_do_not_multiply() -> None:
    lines = (
        f"{H}[kv.py:1] GPU KV cache size: 290,000 tokens\n{H}[kv.py:2] Maximum concurrency for 32,768 "
        f"tokens per request: 33.00x"
    )
    assert "The concurrency is the figure to trust" in advice(explain(lines))
    lines = lines.replace("33.00x", "8.85x")
    assert "to trust" not in advice(explain(lines))


def test_draft_model_takes_memory() -> None:
    arguments = f"{H}[u.py:1] non-default args: {{'model': 'm', 'speculative_config': {{'method': 'mtp'}}}}\n"
    assert "draft model" in advice(explain(arguments + too_small(1_000_000, 50.0, 7.7, 121_088)))


def test_prompt_over_the_batch_of_v0() -> None:
    explanation = explain(
        "WARNING 11-29 14:35:05 scheduler.py:1] Input prompt (2501 tokens) is too long "
        "and exceeds limit of 2048"
    )
    assert explanation.cause == "prompt_too_long"
    assert "--max-num-batched-tokens" in advice(explanation)


def test_stretched_elsewhere() -> None:
    explanation = explain(
        "This model's maximum context length is 32768 tokens. However, your request has 40000 input "
        "tokens. Please reduce the "
        "length of the input messages."
    )
    assert "--hf-overrides" in advice(explanation)
    assert "config.json" in advice(explanation)


def test_model_card_promises_more() -> None:
    explanation = explain(
        "ValueError: User-specified max_model_len (131072) is greater than the derived max_model_len "
        "(max_position_embeddings="
        "8192 or model_max_length=None in model's config.json). To allow overriding this maximum, set the env var "
        "VLLM_ALLOW_LONG_MAX_MODEL_LEN=1"
    )
    assert flags(explanation, "--max-model-len") == ["8192"]
    assert "not the model card" in advice(explanation)


def test_which_block_size() -> None:
    text = (
        "Setting attention block size to 784 tokens to ensure that attention page size is >= mamba page size."
    )
    assert "784" in advice(explain(f"{H}[interface.py:1] {text}"))
