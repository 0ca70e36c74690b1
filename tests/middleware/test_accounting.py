"""What is counted for requests that are answered: outcome, lengths, cuts."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tests.middleware.scripted import (
    CHAT,
    COMPLETIONS,
    DISCONNECT,
    DONE,
    EMBEDDINGS,
    LIMIT,
    MESSAGES,
    RESPONSES,
    Message,
    Script,
    chat,
    counted,
    delta,
    event,
    final,
    json_answer,
    last,
    named,
    of,
    outcomes,
    part,
    play,
    request,
    served,
    start,
    stream,
    usage,
    vllm,
)
from vllm_length_exporter.middleware import LengthAccounting
from vllm_length_exporter.middleware.accounting import App

Answer = list[Message]


def kept(prompt: int, output: int) -> object:
    """What vLLM leaves in a request's state when its stream ended."""
    return SimpleNamespace(final_usage_info=SimpleNamespace(prompt_tokens=prompt, completion_tokens=output))


@pytest.mark.parametrize(
    ("asked", "answer", "cause"),
    [
        (chat(max_tokens=20), served(50, 20, "length"), {"max_tokens": 1}),
        (chat(max_completion_tokens=20, max_tokens=900), served(50, 20, "length"), {"max_tokens": 1}),
        (chat(max_tokens=20), served(50, 19, "stop"), {}),
        (chat(), served(50, LIMIT - 50, "length"), {"context_full": 1}),
        (chat(max_tokens=LIMIT), served(50, LIMIT - 50, "length"), {"context_full": 1}),
        # the limit and the requested number at once: the context is full
        (chat(max_tokens=LIMIT - 50), served(50, LIMIT - 50, "length"), {"context_full": 1}),
        # the server's own default, or its cap
        (chat(), served(50, 2048, "length"), {"unknown": 1}),
        (chat(max_tokens=4000), served(50, 2048, "length"), {"unknown": 1}),
        # no answer of two exceeds 20 tokens, so 40 in all are 20 each
        (chat(max_tokens=20, n=2), served(50, 40, "length", "length"), {"max_tokens": 2}),
        (chat(max_tokens=20, n=2), served(50, 33, "stop", "length"), {"unknown": 1}),
        (chat(max_tokens=20), stream(delta(), delta(None, "length"), final(50, 20), DONE), {"max_tokens": 1}),
        (chat(), stream(delta(), delta(None, "length"), final(50, LIMIT - 50), DONE), {"context_full": 1}),
        (chat(), stream(delta(), delta(None, "length"), DONE), {"unknown": 1}),
        (chat(max_tokens=20), stream(delta(), delta(None, "tool_calls"), final(50, 20), DONE), {}),
    ],
)  # fmt: skip
def test_why_a_chat_ended_for_length(asked: Answer, answer: Answer, cause: dict[str, float]) -> None:
    with counted() as found:
        play(Script(asked, answer))
    assert of(found, "truncated_total") == cause


@pytest.mark.parametrize(
    ("fields", "output", "cause"),
    [
        ({"prompt": "hello"}, 16, "max_tokens"),  # 16 is the API's own number
        ({"prompt": "hello", "max_tokens": None}, 16, "unknown"),  # which is not what null means in every version
        ({"prompt": [5, 6, 7], "max_tokens": 30}, 30, "max_tokens"),
        ({"prompt": ["hello"], "max_tokens": 30}, 30, "max_tokens"),
    ],
)  # fmt: skip
def test_why_a_completion_ended_for_length(fields: dict[str, object], output: int, cause: str) -> None:
    with counted() as found:
        play(Script(request(**fields), served(50, output, "length"), path=COMPLETIONS))
    assert of(found, "truncated_total") == {cause: 1}


def test_the_lengths_of_a_served_request() -> None:
    with counted() as found:
        play(Script(chat(max_tokens=300), served(700, 120)))
    assert found == {
        f"requests_total{{model=tiny,endpoint={CHAT},outcome=served}}": 1,
        "prompt_tokens_count{model=tiny}": 1,
        "prompt_tokens_sum{model=tiny}": 700,
        "requested_output_tokens_count{model=tiny}": 1,
        "requested_output_tokens_sum{model=tiny}": 300,
        "total_tokens_count{model=tiny}": 1,
        "total_tokens_sum{model=tiny}": 820,
        "asked_tokens_count{model=tiny}": 1,
        "asked_tokens_sum{model=tiny}": 1000,
    }


@pytest.mark.parametrize(
    ("path", "fields", "asked"),
    [
        (CHAT, {"messages": []}, 820),  # nothing asked: what was used
        (COMPLETIONS, {"prompt": "x"}, 716),
        (COMPLETIONS, {"prompt": "x", "max_tokens": None}, None),
        (COMPLETIONS, {"prompt": "x", "max_tokens": "300"}, 1000),
        (COMPLETIONS, {"prompt": "x", "max_tokens": 300.0}, 1000),
        (COMPLETIONS, {"prompt": "x", "max_tokens": 300.5}, None),
        (COMPLETIONS, {"prompt": "x", "max_tokens": True}, None),
    ],
)
def test_what_a_request_asked_for_in_all(path: str, fields: dict[str, object], asked: int | None) -> None:
    with counted() as found:
        play(Script(request(**fields), served(700, 120), path=path))
    assert found.get("asked_tokens_sum{model=tiny}") == asked
    assert outcomes(found) == {"served": 1}


def test_an_output_budget_that_was_cut_to_fit() -> None:
    fitting, exact, beyond = (
        Script(chat(max_tokens=number), served(6000, 100)) for number in (1000, 2192, 2193)
    )
    with counted() as found:
        play(fitting, exact, beyond)
    assert of(found, "clamped_total") == {"": 1}
    with counted() as found:  # nobody said what the limit is
        play(beyond, app=vllm(limit=None))
    assert of(found, "clamped_total") == {}
    assert of(found, "unaccounted_total") == {"limit_unknown": 1}


def test_a_stream_without_usage_is_unknown_and_no_answer_in_full() -> None:
    with counted() as found:
        play(Script(chat(max_tokens=20), stream(delta(), delta(None, "stop"), DONE)))
    assert outcomes(found) == {"unknown": 1}
    assert of(found, "unaccounted_total") == {"stream_without_usage": 1}
    assert of(found, "prompt_tokens_count") == {}


def test_a_stream_without_usage_that_vllm_keeps_for_middlewares() -> None:
    script = Script(chat(max_tokens=20), stream(delta(), delta(None, "length"), DONE), metadata=kept(50, 20))
    with counted() as found:
        play(script)
    assert outcomes(found) == {"served": 1}
    assert of(found, "truncated_total") == {"max_tokens": 1}
    assert of(found, "total_tokens_sum") == {"": 70}


@pytest.mark.parametrize("metadata", [object(), kept(0, 0), SimpleNamespace(final_usage_info="no usage")])
def test_other_things_that_a_request_s_state_may_hold(metadata: object) -> None:
    with counted() as found:
        play(Script(chat(), stream(delta(), delta(None, "stop"), DONE), metadata=metadata))
    assert outcomes(found) == {"unknown": 1}


def test_usage_of_a_running_stream_is_not_its_end() -> None:
    running = event({"choices": [{"index": 0, "finish_reason": None}], "usage": usage(50, 1)})
    ended = event({"choices": [{"index": 0, "finish_reason": "stop"}], "usage": usage(50, 2)})
    with counted() as found:
        play(Script(chat(), stream(running, ended, final(50, 2), DONE)))
        play(Script(chat(), stream(running, running)))  # cut
    assert outcomes(found) == {"served": 1, "unknown": 1}
    assert of(found, "unaccounted_total") == {"stream_cut": 1}
    assert of(found, "total_tokens_sum") == {"": 52}


def test_several_answers_have_a_prompt_and_no_total() -> None:
    answers = [delta(index=i) for i in (0, 1, 0, 1)] + [delta(None, "length", 1), delta(None, "stop", 0)]
    with counted() as found:
        play(Script(chat(n=2, max_tokens=9), stream(*answers, *[delta()] * 40, final(50, 12), DONE)))
    assert outcomes(found) == {"served": 1}
    assert of(found, "unaccounted_total") == {"several_answers": 1}
    assert of(found, "truncated_total") == {"unknown": 1}
    assert of(found, "prompt_tokens_sum") == {"": 50}
    assert of(found, "asked_tokens_sum") == {"": 59}
    assert of(found, "total_tokens_count") == {}


@pytest.mark.parametrize("prompts", [["one", "two"], [[1, 2], [3, 4]]])
def test_usage_of_several_prompts_is_the_length_of_none(prompts: object) -> None:
    fields = {"prompt": prompts, "max_tokens": 5000}
    with counted() as found:
        play(Script(request(**fields), served(6000, 10000, "length", "length"), path=COMPLETIONS))
    assert outcomes(found) == {"unknown": 1}
    assert of(found, "unaccounted_total") == {"several_prompts": 1}
    assert of(found, "truncated_total") == {"unknown": 2}
    assert of(found, "clamped_total") == of(found, "prompt_tokens_count") == {}


def test_numbers_beyond_the_limit_do_not_belong_together() -> None:
    with counted() as found:
        play(Script(chat(max_tokens=9000), served(8000, 200, "length")))
    assert outcomes(found) == {"unknown": 1}
    assert of(found, "unaccounted_total") == {"over_limit": 1}
    assert of(found, "truncated_total") == {"unknown": 1}


def response(status: str, prompt: int, output: int, turns: int = 1) -> dict[str, object]:
    cut = {"reason": "max_output_tokens"} if status == "incomplete" else None
    details = {"cached_tokens": 0, "input_tokens_per_turn": [prompt // turns] * turns}
    counts = {"input_tokens": prompt, "input_tokens_details": details, "output_tokens": output}
    return {
        "id": "resp_1",
        "incomplete_details": cut,
        "output": [{"type": "message", "status": "completed"}],
        "status": status,
        "error": None,
        "usage": {**counts, "total_tokens": prompt + output},
    }


def test_responses() -> None:
    asked = request(input="hello", max_output_tokens=30)
    begun = {**response("in_progress", 0, 0), "usage": None}
    ended = [
        named("response.created", response=begun),
        *[named("response.output_text.delta", delta="x")] * 30,
        named("response.completed", response=response("incomplete", 40, 30)),
    ]
    with counted() as found:
        play(
            Script(asked, json_answer(response("completed", 40, 12)), path=RESPONSES),
            Script(asked, json_answer(response("incomplete", 40, 30)), path=RESPONSES),
            Script(asked, stream(*ended), path=RESPONSES),
        )
    assert outcomes(found) == {"served": 3}
    assert of(found, "truncated_total") == {"max_tokens": 2}
    assert of(found, "total_tokens_sum") == {"": 52 + 70 + 70}


def test_responses_in_several_turns_have_no_length() -> None:
    with counted() as found:
        play(
            Script(request(input="x"), json_answer(response("incomplete", 4000, 30, turns=2)), path=RESPONSES)
        )
    assert outcomes(found) == {"unknown": 1}
    assert of(found, "unaccounted_total") == {"several_turns": 1}
    assert of(found, "truncated_total") == {"unknown": 1}


def test_anthropic_messages() -> None:
    asked = chat(max_tokens=30)
    told = {"input_tokens": 40, "output_tokens": 30, "cache_read_input_tokens": 60}
    message = {"type": "message", "content": [], "stop_reason": "max_tokens", "usage": told}
    events = [
        named("message_start", message={"usage": {"input_tokens": 100, "output_tokens": 0}}),
        *[named("content_block_delta", delta={"type": "text_delta", "text": "x"})] * 30,
        named("message_delta", delta={"stop_reason": "max_tokens"}, usage=told),
        named("message_stop"),
    ]
    with counted() as found:
        play(
            Script(asked, json_answer(message), path=MESSAGES),
            Script(asked, stream(*events), path=MESSAGES),
        )
    assert outcomes(found) == {"served": 2}
    assert of(found, "truncated_total") == {"max_tokens": 2}
    assert of(found, "prompt_tokens_sum") == {"": 200}  # cached tokens are part of the prompt


def test_embeddings() -> None:
    def answer(prompt: int, *entries: int) -> Answer:
        data = [{"index": i, "object": "embedding", "embedding": [0.5] * 64} for i in entries]
        counts = {"prompt_tokens": prompt, "total_tokens": prompt, "completion_tokens": 0}
        return json_answer({"object": "list", "data": data, "usage": counts})

    with counted() as found:
        play(
            Script(request(input="hello"), answer(900, 0), path=EMBEDDINGS),
            Script(request(input=[1, 2, 3]), answer(900, 0), path=EMBEDDINGS),
            Script(request(input=["one"]), answer(900, 0), path=EMBEDDINGS),
            Script(request(input=["one", "two"]), answer(9000, 0, 1), path=EMBEDDINGS),
            Script(request(query="a", documents=["b", "c"]), answer(9000, 0, 1), path="/v1/rerank"),
        )
    assert outcomes(found) == {"served": 3, "unknown": 2}
    assert of(found, "unaccounted_total") == {"several_prompts": 2}
    assert of(found, "prompt_tokens_sum") == {"": 2700}
    assert of(found, "asked_tokens_sum") == {"": 2700}


@pytest.mark.parametrize(
    ("names", "requested", "label"),
    [
        (("tiny", "alias"), "tiny", "tiny"),
        (("tiny", "alias"), "alias", "alias"),
        (("tiny", "alias"), None, "tiny"),
        (("tiny",), "adapter", "adapter"),
        (("tiny",), 'x",evil="1', "other"),
        ((), "tiny", ""),
    ],
)
def test_the_model_label_is_a_served_name(names: tuple[str, ...], requested: str | None, label: str) -> None:
    app = vllm(names=names)
    with counted() as found:
        play(Script(request(model=requested, messages=[]), served(5, 5)), app=app)
    assert f"requests_total{{model={label},endpoint={CHAT},outcome=served}}" in found


def test_without_vllm_around_it_limit_and_names_are_unknown() -> None:
    with counted() as found:
        play(Script(chat(max_tokens=20), served(50, 20, "length")), app=object())
    assert of(found, "truncated_total") == {"max_tokens": 1}
    assert f"requests_total{{model=,endpoint={CHAT},outcome=served}}" in found


def test_other_requests_pass_unseen() -> None:
    with counted() as found:
        play(Script(chat(), served(5, 5), path="/v1/models"), Script(chat(), served(5, 5), path="/tokenize"))
    assert found == {}


class Twice(LengthAccounting):
    """The middleware around itself, as `--middleware` given twice makes it."""

    def __init__(self, app: App) -> None:
        super().__init__(LengthAccounting(app))


def test_given_twice_it_counts_once() -> None:
    with counted() as found:
        play(Script(chat(), served(50, 5)), middleware=Twice)
    assert outcomes(found) == {"served": 1}


def test_a_client_that_left() -> None:
    whole = served(50, 5)
    with counted() as found:
        play(
            Script([*chat(), DISCONNECT], whole[:1], reads_after=1),  # the application gave up
            Script([*chat(), DISCONNECT], whole, reads_after=1),  # the application answers nobody
            Script(
                [*chat(), DISCONNECT],
                stream(delta(), delta())[:-1],
                reads_after=1,
            ),
        )
    assert outcomes(found) == {"disconnected": 3}
    assert of(found, "prompt_tokens_count") == {}


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_answers_cut_into_parts_of_any_size(size: int) -> None:
    data = b"".join([delta(), delta(None, "length"), final(50, 20), DONE])
    parts = [part(data[i : i + size]) for i in range(0, len(data), size)]
    with counted() as found:
        play(Script(chat(max_tokens=20), [start(200, "text/event-stream"), *parts, last()]))
    # few bytes a part leave nothing to see of the end, and that is what is said
    expected = {"served": 1} if size == 1000 else {"unknown": 1}
    assert outcomes(found) == expected
    assert of(found, "total_tokens_count") == ({"": 1} if size == 1000 else {})


def test_a_stream_in_one_message() -> None:
    ended = [delta(None, "length", 0), delta(None, "length", 1)]
    data = b"".join([delta(index=0), delta(index=1), *ended, final(50, 18), DONE])
    with counted() as found:
        play(Script(chat(n=2, max_tokens=9), [start(200, "text/event-stream"), last(data)]))
    assert outcomes(found) == {"served": 1}
    assert of(found, "truncated_total") == {"max_tokens": 2}


def test_fewer_ends_than_answers_are_not_all_of_it() -> None:
    with counted() as found:
        play(Script(chat(n=3, max_tokens=9), served(50, 27, "length", "length")))
    assert outcomes(found) == {"unknown": 1}
    assert of(found, "unaccounted_total") == {"answer_unread": 1}
    assert of(found, "truncated_total") == {"unknown": 2}


@pytest.mark.parametrize("reason", ["error", "abort"])
def test_an_answer_that_broke_off(reason: str) -> None:
    with counted() as found:
        play(
            Script(chat(), served(50, 5, reason)),
            Script(chat(), stream(delta(), delta(None, reason), final(50, 1), DONE)),
            Script(chat(n=2), stream(delta(None, "stop"), delta(None, reason, 1), final(50, 2), DONE)),
        )
    assert outcomes(found) == {"failed": 3}
    assert of(found, "prompt_tokens_count") == {}


def test_an_exception_while_the_answer_runs_is_a_failure_and_no_refusal() -> None:
    error = ValueError("The engine prompt length 9000 exceeds the max_model_len 8192. Please reduce prompt.")
    with counted() as found:
        play(Script(chat(), stream(delta())[:-1], error=error))
    assert outcomes(found) == {"failed": 1}
    assert of(found, "refused_total") == {}
