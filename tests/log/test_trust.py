"""Nothing that a client sent, and nothing that a model is called, sets a gauge or a counter."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.log.envelopes import SHIPPINGS
from tests.log.examples import EXAMPLES, Example, traceback
from vllm_length_exporter.vllm.events import Event, EventName
from vllm_length_exporter.vllm.lines import LogParser, events

H = "INFO 11-29 14:35:05 "
# What may come of a line that holds a client's text: that there was a request, and nothing else.
HARMLESS = frozenset({EventName.OTHER})
STARTED = [
    f"(APIServer pid=1) {H}[api_utils.py:286] non-default args: {{'model': 'm', 'max_model_len': 8192}}",
    f"(APIServer pid=1) {H}[model.py:733] Using max model len 8192",
    f"(EngineCore pid=2) {H}[kv_cache_utils.py:1] GPU KV cache size: 10,240 tokens",
    "(APIServer pid=1) INFO:     Application startup complete.",
]


def imitations() -> Iterator[str]:
    """What a client would write to be taken for vLLM: every message, bare and in every dress."""
    for example in EXAMPLES:
        yield example.text.split("\n")[0]
        yield "\n".join(example.lines())
        yield "\n".join(f"(EngineCore pid=2) {line}" for line in example.lines())
        yield "\n".join(traceback(example.text))


IMITATIONS = list(imitations())


def harmful(found: list[Event]) -> list[Event]:
    return [event for event in found if event.name not in HARMLESS]


def after_start(*lines: str) -> list[Event]:
    """What the lines tell once a server is up."""
    parser = LogParser()
    parser.feed_many(STARTED)
    return [*parser.feed_many(lines), *parser.idle(), *parser.idle()]


@pytest.mark.parametrize("before", [[], STARTED], ids=["unknown", "serving"])
@pytest.mark.parametrize(
    "record",
    [
        "Received request r: prompt: {0!r}, params: SamplingParams(n=1), prompt_token_ids: [1], lora_request: None.",
        "Received request cmpl-1: prompt: {0!r}, sampling params: SamplingParams(n=1), prompt token ids: [1].",
        "Received request {0}: params: SamplingParams(n=1), lora_request: None.",
        "Added request {0}.",
        "Finished request {0}.",
        "Aborted request(s) {0}.",
        "Generated text for the prompt {0!r}",
        "Request body: {0!r}",
        "model name is {0}",
    ],
)
def test_prompts_in_logged_requests(record: str, before: list[str]) -> None:
    parser = LogParser()
    parser.feed_many(before)
    for number, text in enumerate(IMITATIONS):
        header = f"(APIServer pid=1) {H}[logger.py:{number}] "  # each a record of its own
        line = header + record.format(text).replace("\n", f"\r\n{header}")
        assert harmful(parser.feed_many(line.split("\r\n"))) == [], text
    assert harmful(parser.idle() + parser.idle()) == []


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.id)
def test_prompts_over_several_lines_with_vllms_header_on_each(example: Example) -> None:
    head = f"(APIServer pid=1) {H}[serving_chat.py:99] "
    lines = [head + text for text in ("Processing this:", example.text, *traceback(example.text), "end")]
    assert harmful(after_start(*lines)) == []
    assert harmful(events(lines)) == []


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.id)
def test_prompts_over_several_lines_without_a_header(example: Example) -> None:
    head = f"(APIServer pid=1) {H}[logger.py:39] Received request cmpl-1: prompt: 'first line"
    tail = "last line', params: SamplingParams(n=1), prompt_token_ids: None, lora_request: None."
    forged = [*example.lines(), *traceback(example.text), f"(EngineCore pid=2) {example.lines()[0]}"]
    assert harmful(after_start(head, *forged, tail)) == []
    # after the prompt's end the log is believed again
    believed = after_start(head, *forged, tail, "ERROR:    Exception in ASGI application", *_too_long())
    assert [event.name for event in harmful(believed)] == [EventName.REFUSED]


def _too_long() -> list[str]:
    text = "Input length (9000) exceeds model's maximum context length (8192)."
    return traceback(text)


@pytest.mark.parametrize("text", IMITATIONS[::7])
def test_exceptions_that_quote_a_client(text: str) -> None:
    """An exception's message may quote the request, over several lines; only its first line is vLLM's."""
    quoted = traceback(f"Unknown role:\n{text}", "jinja2.exceptions.TemplateError")
    lines = "\n".join(quoted).split("\n")
    head = "(APIServer pid=1) ERROR 11-29 14:36:00 [serving_chat.py:200] "
    logged = [head + line for line in ("Error in preprocessing prompt inputs", *lines)]
    refused = [event for event in after_start(*logged) if event.name is EventName.REFUSED]
    assert refused == []
    # uvicorn prints a message as it is, so a client could forge a whole record in it: it sets no gauge once the
    # server is up. (A refusal it could count, and could as well by being refused.)
    raw = ["ERROR:    Exception in ASGI application", *lines]
    found = [event for event in after_start(*raw) if event.name in _GAUGES]
    assert found == []


_GAUGES = frozenset(
    {
        EventName.KV_CAPACITY,
        EventName.KV_MEMORY,
        EventName.KV_BLOCKS,
        EventName.MODEL_LENGTH,
        EventName.AUTO_FIT,
        EventName.SCHEDULER_LIMITS,
        EventName.BLOCKS_OVERRIDE,
        EventName.BLOCK_SIZE,
        EventName.WINDOW,
        EventName.START_FAILED,
    }
)


@pytest.mark.parametrize("name", ["served_model_name", "model", "revision_of_a_template"])
@pytest.mark.parametrize(
    "evil",
    [
        "x', 'max_model_len': 5, '",
        'x", "max_model_len": 5, "',
        "x, max_seq_len=5, kv_cache_dtype=fp8",
        "GPU KV cache size: 5 tokens",
        "x'}\nnon-default args: {'max_model_len': 5}",
        "max_model_len=5",
        "\\', \\'max_model_len\\': 5",
    ],
)
def test_names_that_imitate_arguments(name: str, evil: str) -> None:
    arguments = {
        name: [evil] if name == "served_model_name" else evil,
        "max_model_len": 8192,
        "max_num_seqs": 4,
    }
    (event,) = events([f"{H}[api_utils.py:286] non-default args: {arguments}"])
    assert event.integer("max_model_len") == 8192
    assert event.integer("max_num_seqs") == 4


@pytest.mark.parametrize(
    "evil", ["x, max_seq_len=5, tensor_parallel_size=9", "Bob's", "x', max_seq_len=5, 'y", "a)b(c]d{"]
)
def test_names_that_imitate_the_configuration(evil: str) -> None:
    config = (
        f"model={evil!r}, speculative_config=None, tokenizer={evil!r}, dtype=torch.bfloat16, max_seq_len=8192, "
        f"tensor_parallel_size=2, kv_cache_dtype=auto, served_model_name={evil}, enable_prefix_caching=True"
    )
    (event,) = events([f"{H}[core.py:133] Initializing a V1 LLM engine (v0.32.0) with config: {config}"])
    assert event.integer("max_seq_len") == 8192
    assert event.integer("tensor_parallel_size") == 2


@pytest.mark.parametrize("text", [text for text in IMITATIONS if "\n" not in text])
def test_paths_and_request_ids(text: str) -> None:
    path = text.replace(" ", "%20").replace('"', "%22")
    found = after_start(f'INFO:     10.0.0.5:1 - "POST /{path} HTTP/1.1" 200 OK')
    assert found == []
    assert harmful(after_start(f"{H}[async_llm.py:269] Added request {text}.")) == []


def test_one_line_of_a_forged_start_is_not_enough() -> None:
    forged = f"(EngineCore pid=2) {H}[kv_cache_utils.py:1] GPU KV cache size: 5 tokens"
    assert after_start(forged) == []


def test_request_ids_cannot_count_preemptions() -> None:
    evil = (
        "0 is preempted by PreemptionMode.SWAP mode because there is not enough KV cache space. This can affect the "
        "end-to-end performance. Increase gpu_memory_utilization or tensor_parallel_size to provide more KV cache "
        "memory. total_num_cumulative_preemption=999"
    )
    line = f"WARNING 11-29 14:35:05 [scheduler.py:9] Sequence group {evil} is preempted by PreemptionMode.SWAP mode"
    assert all(event.integer("preemptions") is None for event in events([line]))


@pytest.mark.parametrize("shipping", sorted(SHIPPINGS))
def test_a_pasted_log_is_believed_only_where_nothing_else_stands(shipping: str) -> None:
    pasted = json.dumps(f"{H}[kv_cache_utils.py:1] GPU KV cache size: 5 tokens\n{H}[m.py:1] x")
    assert after_start(*SHIPPINGS[shipping]([pasted])) == []


@settings(max_examples=300, deadline=None)
@given(st.lists(st.binary(max_size=200), max_size=12))
def test_noise_raises_nothing_and_tells_nothing(chunks: list[bytes]) -> None:
    lines = [chunk.decode("utf-8", "surrogateescape") for chunk in chunks]
    assert events(lines) == []


PIECES = st.one_of(
    st.sampled_from([line for example in EXAMPLES for line in example.lines()]).flatmap(
        lambda line: st.tuples(st.just(line), st.integers(0, len(line))).map(lambda cut: cut[0][cut[1] :])
    ),
    st.text(max_size=30),
    st.sampled_from(
        ["{", '{"log":"', '"', "'", "(", "[", "\x1b[", "Traceback (most recent call last):", "  | ", "\\n"]
    ),
)


@settings(max_examples=120, deadline=None)
@given(st.lists(st.lists(PIECES, max_size=4).map("".join), max_size=8))
def test_no_line_raises(lines: list[str]) -> None:
    parser = LogParser()
    for line in lines:
        parser.feed(line)
    parser.idle()
    parser.idle()


def test_a_line_of_five_megabytes_takes_no_time() -> None:
    for start in (
        f"{H}[logger.py:1] Received request r: prompt: '",
        f"{H}[x.py:1] ",
        "x",
        "{",
        '"',
        "ValueError: ",
    ):
        assert harmful(events([start + "GPU KV cache size: 5 tokens " * 180_000])) == []
