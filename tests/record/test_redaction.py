"""A redacted log tells the same, and holds nothing that a client wrote and no secret."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.log.envelopes import SHIPPINGS
from tests.log.examples import EXAMPLES, traceback
from tests.recorded import NAMES, log_lines
from vllm_length_exporter.vllm.events import EventName
from vllm_length_exporter.vllm.lines import events
from vllm_length_exporter.vllm.redacted_values import MASK, without_secrets
from vllm_length_exporter.vllm.redaction import Redactor

H = "(APIServer pid=1) INFO 11-29 14:35:05 "
E = "(APIServer pid=1) ERROR 11-29 14:35:05 "
KEY = "sk-Zq7vTkw93LmXcR5bYp"
PLANTED = "Zq7vTkw93LmXcR5bYp"
SERVING = [
    f"{H}[api_utils.py:286] non-default args: {{'model': 'm', 'max_model_len': 8192, 'api_key': ['{KEY}']}}",
    f"{H}[model.py:733] Using max model len 8192",
    "(APIServer pid=1) INFO:     Application startup complete.",
]


# No server writes these: people paste them, and so do clients. All of it becomes a placeholder.
PASTED = {"a_json_string_a_line", "one_json_string", "one_python_string", "quotes_doubled"}


def redacted(lines: list[str]) -> list[str]:
    redactor = Redactor()
    return [made for line in lines for made in redactor.lines(line)]


@pytest.mark.parametrize("name", NAMES)
def test_a_redacted_recording_tells_the_same(name: str) -> None:
    lines = log_lines(name)
    made = redacted(lines)
    assert len(made) == len(lines)
    assert events(made) == events(lines)
    assert events(redacted(made)) == events(lines)
    assert "max_tokens" not in "".join(line for line in made if "prompt" in line and "length" not in line)


@pytest.mark.parametrize("name", ["0.16.0-pressure", "0.32.0-pressure", "0.32.0-kvtoosmall"])
@pytest.mark.parametrize("shipping", sorted(set(SHIPPINGS) - PASTED))
def test_in_every_envelope(name: str, shipping: str) -> None:
    shipped = SHIPPINGS[shipping](log_lines(name))
    told = [(event.name, event.message_id, dict(event.fields)) for event in events(shipped)]
    assert [(e.name, e.message_id, dict(e.fields)) for e in events(redacted(shipped))] == told


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.id)
def test_every_message_of_the_catalogue_tells_the_same(example: object) -> None:
    lines = example.lines()  # type: ignore[attr-defined]
    before = [(event.name, event.message_id, _told(dict(event.fields))) for event in events(lines)]
    after = [(event.name, event.message_id, _told(dict(event.fields))) for event in events(redacted(lines))]
    assert after == before


def _told(fields: dict[str, object]) -> dict[str, object]:
    """Without the words that no number comes from, and which are not all known beforehand."""
    return {
        key: value for key, value in fields.items() if key not in ("model", "served_model_name", "exception")
    }


HOSTILE = [
    "{0}",
    f"{H}[logger.py:39] Received request cmpl-1: prompt: '{{0}}', params: SamplingParams(n=1), lora_request: None.",
    f"{H}[logger.py:39] Received request cmpl-1: prompt: 'several\n{{0}}\nlines {{0}}', lora_request: None.",
    f"{H}[logger.py:39] Received request {{0}}: params: SamplingParams(n=1), lora_request: None.",
    f"{H}[async_llm.py:269] Added request {{0}}.",
    f"{H}[x.py:1] Request headers: {{{{'authorization': 'Bearer {{0}}'}}}}",
    f"{H}[{{0}}.py:1] GPU KV cache size: 5 tokens",
    "({0} pid=2) INFO 11-29 14:35:05 [{0}.py:12] {0}",
    "INFO:     10.0.0.5:1 - \"POST /v1/completions?api_key={0} HTTP/1.1\" 400 Bad Request",
    "INFO:     {0}:1 - \"GET /{0} HTTP/1.1\" 404 {0}",
    "INFO:     10.0.0.5:1 - \"POST /v1/models/{0} HTTP/1.1\" 400 Bad Request",
    "INFO:     10.0.0.5:1 - \"POST /v1/completions{0} HTTP/1.1\" 400 Bad Request",
    "Traceback (most recent call last):\n  File \"/x/vllm/{0}.py\", line 1, in {0}\n    {0}\n{0}Error: {0}",
    f"{E}[serving.py:1] Error with {{0}}\n{E}[serving.py:1] ValueError: {{0}}",
    "ValueError: This model's maximum context length is 8192 tokens. {0}",
    "ValueError: Input length (9000) exceeds model's maximum context length (8192). (parameter=prompt, value={0})",
    f"{E}[x.py:1] create_error_response called with VLLMValidationError: {{0}}",
    f"{E}[x.py:1] create_error_response called with {{0}}: Input length (9000) exceeds",
    f"{H}[api_utils.py:286] non-default args: {{{{'model': '{{0}}', '{{0}}': 5, 'max_model_len': 7}}}}",
    f"{H}[core.py:1] Initializing a V1 LLM engine (v0.32.0+{{0}}) with config: model='{{0}}', max_seq_len=5",
    f"{H}[core.py:1] vLLM API server version {{0}}",
    "  Value error, {0}",
    "1 validation error for {0}",
    '{{"level": "INFO", "name": "vllm", "message": "{0}", "{0}": "{0}", "exc_info": "{0}", "time": "{0}"}}',
    '{{"level": "{0}", "name": "{0}", "message": "GPU KV cache size: 5 tokens", "filename": "{0}", "lineno": "{0}"}}',
    '{{"log": "{0}\\n", "stream": "stdout", "time": "{0}"}}',
    "2026-11-29T14:35:05.1Z {0} vllm[1]: {0}",
    "[2026-11-29 14:35:05] INFO vllm.{0}: {0}",
    "INFO:vllm.{0}:{0}",
    (f"{H}[loggers.py:1] Engine 000: Avg prompt throughput: 1.0 tokens/s, Avg generation throughput: 1.0 tokens/s, "
    "Running: 1 reqs, Waiting: 0 reqs, GPU KV cache usage: 1.0%, {0}: 5"),
]  # fmt: skip


@pytest.mark.parametrize("shape", HOSTILE)
def test_planted_text_does_not_survive(shape: str) -> None:
    lines = [*SERVING, *shape.format(PLANTED).split("\n"), f"{H}[x.py:1] after {PLANTED}"]
    made = "\n".join(redacted(lines))
    assert PLANTED not in made
    assert "'max_model_len': 8192" in made


@given(
    st.lists(st.sampled_from(HOSTILE), min_size=1, max_size=6),
    st.text("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789", min_size=6, max_size=20),
    st.sampled_from(
        ["", "prompt ", "Bearer ", "' ", '" ', "\n", "\\n", "Authorization: ", "/v1/", "\x1b[1m", "{"]
    ),
    st.sampled_from([*EXAMPLES[::5]]),
    st.booleans(),
)
@settings(max_examples=300)
def test_nothing_that_a_client_plants_survives(
    shapes: list[str], word: str, before: str, example: object, serving: bool
) -> None:
    planted = f"Q{word}Q7"  # no word of vLLM's
    lines = list(SERVING) if serving else []
    for shape in shapes:
        text = shape.replace("{{", "{").replace("}}", "}").replace("{0}", f"{before}{planted}")
        lines += text.split("\n")
    lines += [*traceback(f"{planted}\n{example.text}\n{planted}", f"{planted}.Error")]  # type: ignore[attr-defined]
    made = "\n".join(redacted(lines))
    if serving or not any("args" in shape or "config" in shape for shape in shapes):
        assert planted not in made


def test_a_pasted_log_in_a_prompt_of_several_lines_is_a_prompt() -> None:
    lines = [
        *SERVING,
        f"{H}[logger.py:39] Received request cmpl-1: prompt: 'what is",
        *log_lines("0.32.0-pressure"),
    ]
    made = redacted(lines)
    assert "tiny" not in "\n".join(made)
    assert {event.name for event in events(made[len(SERVING) :])} <= {EventName.OTHER}


SECRETS = [
    ("Bearer abc.def-123", "Bearer"),
    ("http://user:pass@host:1/x", "user:pass"),
    ("hf_abcdefghijklmnop", "abcdefghijklmnop"),
    ("sk-proj-abcdefghijkl", "abcdefghijkl"),
    ("AKIAABCDEFGHIJKLMNOP", "ABCDEFGHIJKLMNOP"),
    ("eyJhbGciOiJI.eyJzdWIiOiIx.sig", "eyJzdWIi"),
    ("s3://b/m?X-Amz-Signature=abcdef", "abcdef"),
    ("--api-key topsecret", "topsecret"),
]


@pytest.mark.parametrize(("text", "secret"), SECRETS)
def test_secrets_in_what_is_kept(text: str, secret: str) -> None:
    made = redacted([f"{H}[api_utils.py:286] non-default args: {{'model': {text!r}, 'max_model_len': 8192}}"])
    assert secret not in made[0]
    assert MASK in made[0]
    assert secret not in without_secrets(text)


@pytest.mark.parametrize("name", ["meta-llama/Llama-3.1-8B", "/models/sk/hf/qwen", "org/my_model-7b", "tiny"])
def test_names_of_models_stay(name: str) -> None:
    line = f"{H}[api_utils.py:286] non-default args: {{'model': {name!r}, 'served_model_name': [{name!r}]}}"
    assert redacted([line]) == [line]


def test_keys_in_the_arguments_of_a_start() -> None:
    arguments = {"api_key": [KEY], "hf_token": KEY, "ssl_keyfile": "/k", "model": "m", "chat_template": KEY}
    made = redacted([f"{H}[api_utils.py:286] non-default args: {arguments}"])[0]
    assert PLANTED not in made
    assert "'model': 'm'" in made


@given(st.lists(st.binary(max_size=120), max_size=10))
def test_noise_raises_nothing(chunks: list[bytes]) -> None:
    lines = [chunk.decode("utf-8", "surrogateescape") for chunk in chunks]
    for made in redacted(lines):
        json.dumps(made)


def test_a_line_of_five_megabytes_takes_no_time() -> None:
    for start in (f"{H}[logger.py:1] Received request r: prompt: '", "x", "{", "ValueError: ", "+"):
        assert all(len(made) < 200 for made in redacted([start + "GPU KV cache size: 5 tokens " * 180_000]))
