"""Refusals for length: every wording, the cause that its numbers prove, and what must not be taken for one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from packaging.version import Version

from tests.middleware.scripted import (
    CHAT,
    COMPLETIONS,
    DONE,
    MESSAGES,
    Message,
    Script,
    chat,
    compact,
    counted,
    delta,
    error,
    event,
    json_answer,
    named,
    of,
    outcomes,
    play,
    request,
    snapshot,
    stream,
    vllm,
)
from tests.recorded import NAMES, truth
from vllm_length_exporter.middleware.refusals import WORDINGS, refusal
from vllm_length_exporter.middleware.request import UNREAD
from vllm_length_exporter.vllm.messages import Index
from vllm_length_exporter.vllm.messages_errors import REQUEST_ERRORS
from vllm_length_exporter.vllm.refusals import refusal as logged_refusal

TOO_LONG, SUM, OUTPUT, NO_ROOM, OTHER = (
    "prompt_too_long", "prompt_plus_output_too_long", "output_too_long", "no_room_for_output", "other",
)  # fmt: skip
SEEN = {  # kind of a recorded request -> cause; a text in characters proves what its characters prove
    "sum_over_limit": SUM,
    "sum_over_limit_chat": SUM,
    "prompt_over_limit": TOO_LONG,
    "prompt_over_limit_chat": TOO_LONG,
    "max_tokens_over_limit": OUTPUT,
    "max_completion_tokens_over_limit": OUTPUT,
    "prompt_equals_limit": NO_ROOM,
}


def recorded() -> list[tuple[str, str, str]]:
    """(recording, kind of request, body) of every 4xx answer that was recorded."""
    return [
        (name, one["kind"], one["error"])
        for name in NAMES
        for one in truth(name).get("events") or ()
        if isinstance(one["status"], int) and 400 <= one["status"] < 500
    ]


RECORDED = recorded()


def test_there_are_recorded_refusals_of_four_versions() -> None:
    assert {name.partition("-")[0] for name, _, _ in RECORDED} == {"0.16.0", "0.26.0", "0.32.0", "0.33.0"}
    assert {kind for _, kind, _ in RECORDED} >= set(SEEN)


@pytest.mark.parametrize(
    ("name", "kind", "text"), RECORDED, ids=[f"{name}-{kind}" for name, kind, _ in RECORDED]
)
def test_recorded_answers(name: str, kind: str, text: str) -> None:
    parsed = json.loads(text)
    with counted() as found:
        play(
            Script(request(prompt=[1, 2, 3]), json_answer(parsed, parsed["error"]["code"]), path=COMPLETIONS)
        )
    expected = SEEN.get(kind)
    assert of(found, "refused_total") == ({expected: 1} if expected else {}), name
    assert outcomes(found) == ({"refused": 1} if expected else {"client_error": 1})


def worded() -> list[tuple[str, int | None, str]]:
    """(cause, prompt + output, words) of every way in which a version words a refusal."""
    lines = (Path(__file__).parent / "wordings.tsv").read_text().splitlines()
    rows = [line.split("\t") for line in lines if not line.startswith("#")]
    return [(cause, None if asked == "-" else int(asked), message) for cause, asked, message in rows]


WORDED = worded()


@pytest.mark.parametrize(("cause", "asked", "message"), WORDED, ids=range(len(WORDED)))
def test_every_wording(cause: str, asked: int | None, message: str) -> None:
    with counted() as found:
        play(Script(chat(max_tokens=4000) if "'max_tokens' or" in message else chat(), error(message)))
    assert of(found, "refused_total") == {cause: 1}
    assert found.get("refused_asked_tokens_sum{model=tiny}") == asked


def test_a_count_of_token_ids_is_never_cut() -> None:
    message = (
        "You passed 4193 input tokens and requested 4000 output tokens. However, the model's context length is only "
        "8192 tokens, resulting in a maximum input length of 4192 tokens. Please"
    )
    with counted() as found:
        play(Script(request(prompt=[5, 6], max_tokens=4000), error(message), path=COMPLETIONS))
    assert found["refused_asked_tokens_sum{model=tiny}"] == 8193


@pytest.mark.parametrize(
    ("fields", "message", "expected"),
    [
        ({"max_tokens": 0}, "max_tokens must be at least 1, got 0.", None),
        ({"max_completion_tokens": -1}, "max_tokens must be at least 1, got -1.", None),
        ({"max_tokens": 12}, "min_tokens must be less than or equal to max_tokens=12, got 100.", None),
        ({"max_tokens": 50}, "max_tokens must be at least 1, got 0.", NO_ROOM),
        ({}, "max_tokens must be at least 1, got 0.", NO_ROOM),
    ],
)
def test_a_client_that_asked_for_nothing_was_not_refused_for_length(
    fields: dict[str, Any], message: str, expected: str | None
) -> None:
    with counted() as found:
        play(Script(chat(**fields), error(message, parameter="max_tokens")))
    assert of(found, "refused_total") == ({expected: 1} if expected else {})


def test_of_a_body_that_was_not_read_nothing_is_said() -> None:
    huge = chat("x" * (1 << 20), max_tokens=0)
    with counted() as found:
        play(Script(huge, error("max_tokens must be at least 1, got 0.")))
    assert of(found, "refused_total") == {OTHER: 1}


def test_words_of_a_version_to_come() -> None:
    unknown = "Your prompt is far too long for this server."
    with counted() as found:
        play(
            Script(chat(), error(unknown, parameter="input_tokens")),
            Script(chat(), error(unknown, parameter="input_text")),
            Script(chat(), error(unknown)),
        )
    assert of(found, "refused_total") == {OTHER: 2}
    assert outcomes(found) == {"refused": 2, "client_error": 1}


QUOTED = "This model's maximum context length is 8192 tokens. However, your request has 9000 input tokens."


@pytest.mark.parametrize(
    "answer",
    [
        error("temperature must be non-negative, got -3.0.", parameter="temperature"),
        error("The model `nope` does not exist.", 404, "model", "NotFoundError"),
        error(f"The model `{QUOTED}` does not exist.", 404),
        error(f"1 validation error:\n  {{'type': 'int_parsing', 'input': \"{QUOTED}\"}}"),
        error(f"Invalid JSON near '{QUOTED}'"),
        json_answer({"error": "Unauthorized"}, 401),
        json_answer({"detail": QUOTED}, 422),
        json_answer([QUOTED], 400),
        [*json_answer({}, 400)[:1], {"type": "http.response.body", "body": QUOTED.encode()}],
    ],
)
def test_errors_that_are_about_something_else(answer: list[Message]) -> None:
    with counted() as found:
        play(Script(chat(), answer))
    assert of(found, "refused_total") == {}
    assert outcomes(found) == {"client_error": 1}


def test_messages_of_0_20_refuse_with_an_internal_error() -> None:
    message = "This model's maximum context length is 8192 tokens. However, you requested 30 output tokens and your "
    message += "prompt contains 49817 characters (more than 32648 characters, which is the upper bound for 8162 input "
    told = {"type": "error", "error": {"type": "internal_error", "message": f"{message}tokens). Please"}}
    with counted() as found:
        play(Script(chat(max_tokens=30), json_answer(told, 500), path=MESSAGES))
    assert of(found, "refused_total") == {TOO_LONG: 1}


@pytest.mark.parametrize("status", [500, 503])
def test_a_server_that_failed(status: int) -> None:
    with counted() as found:
        play(Script(chat(), error("The engine is currently busy and cannot accept new requests.", status)))
    assert outcomes(found) == {"failed": 1}


class VLLMValidationError(ValueError):
    """Looks like vLLM's own."""

    def __init__(self, message: str, parameter: str | None = None) -> None:
        super().__init__(message)
        self.parameter = parameter

    def __str__(self) -> str:
        return f"{super().__str__()} (parameter={self.parameter}, value=1)"


class GroupError(Exception):
    """A group of exceptions, as anyio raises it, with as many inside as given."""

    def __init__(self, *exceptions: Exception) -> None:
        super().__init__("unhandled errors in a TaskGroup")
        self.exceptions = exceptions


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_refusal_that_passes_as_an_exception(wrapped: bool) -> None:
    refusals = [
        VLLMValidationError(f"{QUOTED} Please", "input_tokens"),
        VLLMValidationError("temperature must be non-negative, got -3.0.", "temperature"),
        RuntimeError("the engine is dead"),
        ValueError(
            "The decoder prompt (length 9000) is longer than the maximum model length of 8192. Make sure"
        ),
    ]
    with counted() as found:
        play(*(Script(chat(), error=GroupError(one) if wrapped else one) for one in refusals))
    assert of(found, "refused_total") == {TOO_LONG: 2}
    assert outcomes(found) == {"refused": 2, "client_error": 1, "failed": 1}


def test_a_group_of_several_exceptions_is_a_failure() -> None:
    with counted() as found:
        play(Script(chat(), error=GroupError(VLLMValidationError(QUOTED), RuntimeError("x"))))
    assert outcomes(found) == {"failed": 1}


def test_a_refusal_inside_a_stream() -> None:
    message = "The decoder prompt (length 9000) is longer than the maximum model length of 8192. Make sure"
    told = {"message": message, "type": "BadRequestError", "param": None, "code": 400}
    broken = {"message": "Internal server error", "type": "InternalServerError", "param": None, "code": 500}
    anthropic = named("error", error={"type": "invalid_request_error", "message": message})
    with counted() as found:
        play(
            Script(chat(), stream(event({"error": told}), DONE)),
            Script(chat(), stream(delta(), event({"error": broken}), DONE)),
            Script(chat(), stream(anthropic), path=MESSAGES),
        )
    assert of(found, "refused_total") == {TOO_LONG: 2}
    assert outcomes(found) == {"refused": 2, "failed": 1}


def test_errors_in_the_text_of_a_stream_are_no_errors() -> None:
    text = compact({"error": {"message": QUOTED, "code": 400}}).decode()
    with counted() as found:
        play(Script(chat(), stream(delta(f"data: {text}\n\ndata: [DONE]\n\n"), delta(None, "stop"), DONE)))
    assert of(found, "refused_total") == {}
    assert outcomes(found) == {"unknown": 1}


def test_the_limit_is_learned_from_the_first_refusal_when_nothing_else_tells_it() -> None:
    served = Script(
        chat(max_tokens=4000),
        json_answer(
            {
                "choices": [{"finish_reason": "stop"}],
                "usage": {"prompt_tokens": 6000, "completion_tokens": 50},
            }
        ),
    )
    with counted() as found:
        play(served, Script(chat(), error(f"{QUOTED} Please")), served, app=object())
    assert of(found, "clamped_total") == {"": 1}
    assert of(found, "unaccounted_total") == {"limit_unknown": 1}


def test_counters_that_alerts_look_at_begin_at_zero() -> None:
    play(
        Script(chat(), error("x"), path="/v1/models"), app=vllm(names=["fresh"])
    )  # not seen: no state is read
    assert not any("fresh" in name for name in snapshot())
    play(Script(chat(model="fresh"), error("x")), app=vllm(names=["fresh"]))
    zeros = {name for name, value in snapshot().items() if "model=fresh" in name and value == 0}
    assert {f"refused_total{{model=fresh,endpoint={CHAT},cause={cause}}}" for cause in SEEN.values()} <= zeros
    assert "clamped_total{model=fresh}" in zeros


@pytest.mark.parametrize("message", [message for _, _, message in WORDED], ids=range(len(WORDED)))
def test_the_server_s_log_would_tell_the_same_cause(message: str) -> None:
    found = Index(REQUEST_ERRORS).find(message)
    assert found is not None
    by_log = logged_refusal(found.message.id, found.fields)["cause"]
    verdict = refusal(message, None, UNREAD)
    assert verdict is not None
    # what was left for an output tells a cause only beside the request's body
    assert verdict.cause == (OTHER if "_tokens must be" in message else by_log)


def test_every_version_of_the_table_is_a_release() -> None:
    for row in WORDINGS:
        assert Version(row.first) <= Version(row.last) <= Version("0.33.0"), row


def test_a_question_that_a_client_named_like_a_refusal_is_none() -> None:
    forged = "question 'a: the prompt has 9001 tokens, more than max_model_len=8192; nothing is truncated"
    assert refusal(f"{forged}': choices: at most 26", None, UNREAD) is None
    assert Index(REQUEST_ERRORS).find(f"{forged}': choices: at most 26") is None
    true = f"{forged}': the prompt has 8200 tokens, more than max_model_len=8192; nothing is truncated"
    verdict = refusal(true, None, UNREAD)
    assert verdict is not None
    assert (verdict.cause, verdict.numbers.prompt) == ("prompt_too_long", 8200)
