"""What a message means: recognised in every form it reaches a person in, with advice that its numbers allow."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.log.examples import EXAMPLES, Example
from vllm_length_exporter.explain import Explanation, explain, explain_text
from vllm_length_exporter.vllm.catalogue import row
from vllm_length_exporter.vllm.events import RefusalCause, StartFailure

ERRORS = [example for example in EXAMPLES if example.kind != "log"]
REFUSALS = [example for example in EXAMPLES if example.kind == "request_error"]
KEYS = ("limit", "prompt_tokens", "prompt_tokens_at_least", "output_tokens", "total_tokens", "capacity_tokens",
        "needed_bytes", "available_bytes", "estimated_limit", "window", "requested", "full_length_concurrency",
        "preemptions")  # fmt: skip
SUM = (
    "This model's maximum context length is 8192 tokens. However, you requested 10000 tokens (6000 in the messages, "
    "4000 in the completion). Please reduce the length of the messages or completion."
)
BOUND = (
    "This model's maximum context length is 65536 tokens. However, you requested 12000 output tokens and your prompt "
    "contains at least 53537 input tokens, for a total of at least 65537 tokens. Please reduce the length of the input "
    "prompt or the number of requested output tokens. (parameter=input_tokens, value=53537)"
)


def too_small(limit: int, needed: float, available: float, estimate: int | None = None) -> str:
    fits = (
        f"Based on the available memory, the estimated maximum model length is {estimate}. "
        if estimate
        else ""
    )
    return (
        f"ValueError: To serve at least one request with the models's max seq len ({limit}), ({needed} GiB KV cache is "
        f"needed, which is larger than the available KV cache memory ({available} GiB). {fits}Try increasing "
        "`gpu_memory_utilization` or decreasing `max_model_len` when initializing the engine."
    )


def flags(explanation: Explanation, name: str) -> list[str]:
    """The values that the advice gives a flag or a field."""
    return re.findall(rf"{name}(?: to)?(?: at most)? (\d+(?:\.\d+)?)", " ".join(explanation.advice))


def client(text: str) -> str:
    body = {"message": text, "type": "BadRequestError", "param": "input_tokens", "code": 400}
    return f"openai.BadRequestError: Error code: 400 - { ({'error': body})!r}"


FORMS: dict[str, Callable[[str], str]] = {
    "bare": str,
    "exception": lambda text: f"vllm.exceptions.VLLMValidationError: {text}",
    "client": client,
    "nested body": lambda text: json.dumps(
        {"error": {"message": text, "type": "BadRequestError", "code": 400}}
    ),
    "flat body": lambda text: json.dumps({"object": "error", "message": text, "code": 400}, indent=1),
    "anthropic body": lambda text: json.dumps({"type": "error", "error": {"type": "x", "message": text}}),
    "stream": lambda text: "data: " + json.dumps({"error": {"message": text}}) + "\n\ndata: [DONE]\n",
    "body in a repr in a body": lambda text: json.dumps({"detail": f"RuntimeError({client(text)!r})"}),
    "quotes doubled": lambda text: text.replace("'", "''").replace('"', '""'),
    "html": lambda text: text.replace("'", "&#39;").replace('"', "&quot;"),
    "typeset": lambda text: text.replace("'", "’"),
    "wrapped": lambda text: re.sub(r"(.{40}\S*) ", r"\1\n    ", text),
    "compose": lambda text: f"vllm-1  | (APIServer pid=1) ValueError: {text}",
    "chat": lambda text: f"Hi! We get this since yesterday, what now?\n> {text}\nThanks",
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_every_refusal_in_every_form(form: Callable[[str], str]) -> None:
    for example in REFUSALS:
        explanation = explain(form(example.text))
        assert explanation.kind == "request_error", example.id
        found = row(explanation.id or "")
        assert found is not None
        assert example.id in (found.id, *found.also), (example.id, found.id)
        assert explanation.cause == example.fields["cause"], example.id
        for key in set(KEYS) & set(example.fields):
            assert explanation.numbers[key] == example.fields[key], example.id


@pytest.mark.parametrize("example", ERRORS, ids=lambda example: example.id)
def test_every_error_is_explained(example: Example) -> None:
    explanation = explain(f"ValueError: {example.text}")
    assert explanation.kind == example.kind
    assert explanation.cause == example.fields["cause"]
    assert explanation.who in ("client", "operator", "both")
    assert explanation.summary
    assert explanation.advice or explanation.cause == "other"
    assert explanation.as_json()["numbers"] == dict(explanation.numbers)
    text = explain_text(explanation)
    assert explanation.summary in text
    assert all(advice in text for advice in explanation.advice)


@pytest.mark.parametrize(
    "example",
    [example for example in EXAMPLES if example.kind == "log" and example.fields],
    ids=lambda e: e.id,
)
def test_every_log_line_that_holds_a_number_is_explained(example: Example) -> None:
    assert explain("\n".join(example.lines())).kind in ("log", "request_error")


def test_keys_are_stable() -> None:
    assert list(explain(SUM).as_json()) == ["kind", "id", "cause", "numbers", "advice"]
    assert explain(SUM).as_json()["numbers"] == {
        "limit": 8192,
        "prompt_tokens": 6000,
        "output_tokens": 4000,
        "total_tokens": 10000,
    }
    seen = {key for example in EXAMPLES for key in explain("\n".join(example.lines())).numbers}
    assert seen == set(KEYS)
    causes = {example.fields["cause"] for example in ERRORS}
    assert causes <= {*StartFailure, *RefusalCause}


def test_prompt_far_over_the_limit() -> None:
    explanation = explain(
        "This model's maximum context length is 16384 tokens. However, you requested 122946 tokens (112946 in the "
        "messages, 10000 in the completion). Please reduce the length of the messages or completion."
    )
    assert (explanation.kind, explanation.cause) == ("request_error", "prompt_too_long")
    assert explanation.numbers["prompt_tokens"] == 112_946
    assert "6,384" in explanation.advice[0]  # what is left for the prompt beside 10,000 of output
    assert flags(explanation, "--max-model-len") == ["122946"]
    assert flags(explanation, "max_tokens") == []  # no max_tokens helps


def test_cache_that_holds_less_than_the_limit() -> None:
    explanation = explain(
        "ValueError: The model's max seq len (4096) is larger than the maximum number of tokens that can "
        "be stored in KV "
        "cache (3664). Try increasing `gpu_memory_utilization` or decreasing `max_model_len` when "
        "initializing the engine."
    )
    assert (explanation.kind, explanation.cause) == ("startup_error", "kv_cache_too_small")
    assert explanation.numbers == {"limit": 4096, "capacity_tokens": 3664}
    assert flags(explanation, "--max-model-len") == ["3664"]
    assert explanation.who == "operator"


ABOVE = (
    "User-specified max_model_len (9000) is greater than the derived max_model_len (max_position_embeddings=8192.0 or "
    "model_max_length=None in model's config.json)."
)


@pytest.mark.parametrize(
    "more",
    [
        " To allow overriding this maximum, set the env var VLLM_ALLOW_LONG_MAX_MODEL_LEN=1.",
        " This may lead to incorrect model outputs or CUDA errors.",  # the first sentences of either
        "",
    ],
)
def test_limit_above_the_derived_window(more: str) -> None:
    explanation = explain(ABOVE + more)
    assert (explanation.kind, explanation.cause) == ("startup_error", "limit_above_window")
    assert explanation.numbers == {"window": 8192, "requested": 9000}
    assert flags(explanation, "--max-model-len") == ["8192"]
    assert any("VLLM_ALLOW_LONG_MAX_MODEL_LEN=1" in advice for advice in explanation.advice)


@pytest.mark.parametrize(
    "text", [f"WARNING 11-29 10:00:00 [model.py:1] {ABOVE}", f"{ABOVE} Make sure the value is correct"]
)
def test_the_same_words_as_a_warning_are_no_failure(text: str) -> None:
    explanation = explain(text)
    assert (explanation.kind, explanation.cause) == ("log", "limit_beyond_window")
    assert explanation.numbers == {"window": 8192, "requested": 9000}


@settings(max_examples=200, deadline=None)
@given(limit=st.integers(2, 10**6), prompt=st.integers(1, 2 * 10**6), output=st.integers(1, 2 * 10**6))
def test_advice_to_the_client_would_be_served(limit: int, prompt: int, output: int) -> None:
    total = prompt + output
    if total <= limit:
        return
    explanation = explain(
        f"This model's maximum context length is {limit} tokens. However, you requested {total} tokens "
        f"({prompt} in the "
        f"messages, {output} in the completion). Please reduce the length of the messages or completion."
    )
    cause = "prompt_too_long" if prompt > limit else "output_too_long" if output > limit else None
    cause = cause or ("no_room_for_output" if prompt == limit else "prompt_plus_output_too_long")
    assert explanation.cause == cause
    for value in flags(explanation, "max_tokens"):
        assert int(value) >= 1
        assert int(value) + prompt <= limit
    for value in flags(explanation, "--max-model-len"):
        assert int(value) >= total or cause == "output_too_long" or output >= limit
    for text in re.findall(r"cut the prompt to (?:at most )?(-?[\d,]+)", " ".join(explanation.advice)):
        assert 0 <= int(text.replace(",", "")) <= limit - (output if output < limit else 1)


@settings(max_examples=200, deadline=None)
@given(blocks=st.integers(2, 60_000), block=st.sampled_from([16, 32, 64, 128]))
def test_advised_length_leaves_a_block_that_no_request_can_use(blocks: int, block: int) -> None:
    estimate = blocks * block
    explanation = explain(too_small(estimate * 2, 20.0, 10.0, estimate))
    for value in flags(explanation, "--max-model-len"):
        assert 0 < int(value) <= estimate - block


def test_release_that_does_not_count_that_block_is_taken_at_its_word() -> None:
    start = (
        "INFO 11-29 14:35:05 [core.py:1] Initializing a V1 LLM engine (v0.32.0) with config: "
        "model='m', max_seq_len=9"
    )
    assert flags(explain(f"{start}\n{too_small(65_280, 2.0, 1.0, 32_640)}"), "--max-model-len") == ["32640"]


def test_count_that_is_a_bound_gives_no_false_number() -> None:
    explanation = explain(BOUND)
    assert "prompt_tokens" not in explanation.numbers
    assert "total_tokens" not in explanation.numbers
    assert explanation.numbers["prompt_tokens_at_least"] == 53_537
    assert "bound" in explanation.advice[0]


def raises_utilization(explanation: Explanation) -> bool:
    text = " ".join(explanation.advice)
    return "raise --gpu-memory-utilization" in text or "--gpu-memory-utilization wins" in text


@pytest.mark.parametrize(
    "text",
    [
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total "
        "capacity of 23.56 GiB"),
        "torch.AcceleratorError: CUDA error: out of memory",
        ("ValueError: Free memory on device cuda:0 (0.32/23.56 GiB) on startup is less than desired GPU "
        "memory utilization "
        "(0.9, 21.2 GiB). Decrease GPU memory utilization or reduce GPU memory used by other processes."),
        "INFO 11-29 14:35:05 [utils.py:1] non-default args: {'model': 'm', 'kv_cache_memory_bytes': 1073741824}\n"
        + too_small(65_536, 2.0, 1.0, 32_768),
        "INFO 11-29 14:35:05 [cpu_worker.py:1] Explicitly set (1.0/31.28) GiB for KV cache on node 0.\n"
        + too_small(65_536, 2.0, 1.0, 32_768),
        too_small(1_048_576, 64.0, 1.0, 16_384),  # no card has 63 GiB left
        ("INFO 11-29 14:35:05 [gpu_worker.py:1] Available KV cache memory: -24.42 GiB\n"
        "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`"),
    ],
)  # fmt: skip
def test_more_utilization_is_not_advised_where_it_cannot_help(text: str) -> None:
    explanation = explain(text)
    assert explanation.kind == "startup_error"
    assert not raises_utilization(explanation)
    assert explanation.advice


def test_more_utilization_is_advised_where_it_may_help() -> None:
    assert raises_utilization(explain(too_small(65_536, 2.0, 1.0, 32_768)))


def test_utilization_that_is_free_now() -> None:
    explanation = explain(
        "Free memory on device cuda:0 (20.1/23.56 GiB) on startup is less than desired GPU memory "
        "utilization (0.9, 21.2 "
        "GiB). Decrease GPU memory utilization or reduce GPU memory used by other processes."
    )
    assert flags(explanation, "--gpu-memory-utilization") == ["0.85"]
    assert explanation.numbers["available_bytes"] == round(20.1 * 2**30)


def test_eight_bit_cache_is_advised_only_if_it_would_fit() -> None:
    def advised(text: str) -> bool:
        return any("--kv-cache-dtype fp8" in advice for advice in explain(text).advice)

    assert advised(too_small(65_536, 2.0, 1.2, 39_312))
    assert not advised(too_small(65_536, 4.0, 1.2, 19_648))
    fp8 = "INFO 11-29 14:35:05 [u.py:1] non-default args: {'kv_cache_dtype': 'fp8'}\n"
    assert not advised(fp8 + too_small(65_536, 2.0, 1.2, 39_312))


def test_warning_is_no_failure() -> None:
    text = (
        "User-specified max_model_len (48000) is greater than the derived max_model_len "
        "(max_position_embeddings=32768.0 "
        "or model_max_length=None in model's config.json). VLLM_ALLOW_LONG_MAX_MODEL_LEN must be used "
        "with extreme caution."
    )
    assert (explain(text).kind, explain(text).cause) == ("log", "limit_beyond_window")
    assert explain(f"ValueError: {text}").kind == "startup_error"


def test_message_that_was_cut() -> None:
    text = too_small(128_000, 39.06, 12.64).partition(" Try")[0]
    explanation = explain(text)
    assert explanation.cause == "kv_cache_too_small"
    assert "estimated_limit" not in explanation.numbers
    assert flags(explanation, "--max-model-len") == ["40960"]  # by proportion, and rounded down


def test_engine_core_failed_is_never_the_cause() -> None:
    text = f"(EngineCore pid=9) {too_small(65_536, 2.0, 1.0, 32_768)}\n(APIServer pid=1) RuntimeError: Engine core "
    text += "initialization failed. See root cause above. Failed core proc(s): {}"
    assert explain(text).cause == "kv_cache_too_small"


@pytest.mark.parametrize(
    "text", ["", "hello", "ValueError: foo", "{}", '{"error": {"message": "not found"}}', "\x00\xff"]
)
def test_nothing_recognised(text: str) -> None:
    explanation = explain(text)
    assert explanation.as_json() == {
        "kind": "unknown",
        "id": None,
        "cause": None,
        "numbers": {},
        "advice": [],
    }
    assert "recognised" in explain_text(explanation)


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=400) | st.binary(max_size=400).map(lambda raw: raw.decode("latin-1")))
def test_no_text_raises(text: str) -> None:
    explain_text(explain(text))


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(EXAMPLES), st.integers(0, 400), st.sampled_from(["", "\n", "\\n", '"', "{"]))
def test_no_cut_message_raises(example: Example, cut: int, glue: str) -> None:
    explain_text(explain(f"{example.text[:cut]}{glue}{example.text[cut:]}"))
