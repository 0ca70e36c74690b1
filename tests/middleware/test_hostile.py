"""Bodies and answers that are broken, huge, endless or made to mislead: no wrong count, no exception."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.middleware.scripted import (
    CHAT,
    COMPLETIONS,
    DONE,
    LIMIT,
    Message,
    Script,
    body,
    chat,
    compact,
    counted,
    delta,
    error,
    event,
    final,
    last,
    of,
    outcomes,
    part,
    play,
    request,
    served,
    start,
    stream,
    vllm,
)
from vllm_length_exporter.middleware import LengthAccounting, series
from vllm_length_exporter.middleware.endpoints import ENDPOINTS
from vllm_length_exporter.middleware.request import KEPT_BYTES, SMALL_BYTES, read_request


def test_thirty_megabytes_are_let_through_and_counted_as_unread() -> None:
    picture = b"A" * (1 << 16)
    parts = [
        b'{"model": "tiny", "max_tokens": 5, "messages": [{"role": "user", "content": "',
        *[picture] * 480,
    ]
    script = Script(body(*parts, b'"}]}'), served(6000, 5, "length"))
    with counted() as found:
        play(script)
    assert of(found, "unaccounted_total") == {"request_too_large": 1}
    assert of(found, "prompt_tokens_sum") == {"": 6000}
    assert of(found, "truncated_total") == {"unknown": 1}  # what it asked for is not known
    assert f"requests_total{{model=,endpoint={CHAT},outcome=served}}" in found


def test_a_body_that_never_ends() -> None:
    endless = body(*[b"x" * 1000] * 5001)[:5000]
    script = Script(endless, (), error=asyncio.CancelledError(), reads=5000)
    with counted() as found:
        play(script)
    assert of(found, "unaccounted_total") == {"request_too_large": 1}
    assert outcomes(found) == {"failed": 1}


LARGE = b'{"metadata": "' + b"y" * SMALL_BYTES + b'", '


@pytest.mark.parametrize(
    ("data", "noticed"),
    [*((data, True) for data in (
        b"", b"{", b"[]", b"null", b"nonsense", b'{"max_tokens": }', b'{"max_tokens": 5',
        b'{"max_tokens": 5} trailing', b"[" * 100_000, b'{"a":' * 100_000 + b'"max_tokens": 5', b"\x00" * 100,
        b'{"max_tokens": ' + b"9" * 10_000 + b"}",
    )),
    # what is between the fields of a large body is not decoded: the server refuses it, and that is all that counts
    (b'{"a": "\xff", "n": 1}', True), (b'{"n": 1,}', True), (b'{"messages": "unclosed, "max_tokens": 5}', True),
    (LARGE + b'"a": "\xff", "n": 1}', False), (LARGE + b'"messages": "unclosed, "max_tokens": 5}', False)],
    ids=range(17),
)  # fmt: skip
def test_bodies_that_are_no_json(data: bytes, noticed: bool) -> None:
    refused = error("1 validation error: {'type': 'json_invalid'}")
    with counted() as found:
        play(Script(body(data), refused))
    assert outcomes(found) == {"client_error": 1}
    assert of(found, "errors_total") == {}
    assert of(found, "unaccounted_total") == ({"request_malformed": 1} if noticed else {})


MISLEADING = [
    chat('please set "max_tokens": 3, and {"max_tokens": 3}'),
    chat('\\"max_tokens": 3, \\\\", "max_tokens": 3,'),
    request(messages=[{"role": "user", "content": "x", "max_tokens": 3}]),
    request(tools=[{"function": {"parameters": {"max_tokens": 3, "n": 2, "model": "x"}}}], messages=[]),
    request(metadata={"max_tokens": 3}, messages=[]),
    request(**{'x"max_tokens': 3, "messages": []}),
    request(**{"max_tokens ": 3, "Max_Tokens": 3, "messages": []}),
]


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("asked", MISLEADING, ids=range(len(MISLEADING)))
def test_what_looks_like_a_field_and_is_none(asked: list[Message], large: bool) -> None:
    if large:
        asked = body(LARGE + asked[0]["body"][1:])
    found = read_request(asked[0]["body"], ENDPOINTS[CHAT])
    assert (found.output, found.answers, found.model) == (None, 1, "tiny")
    with counted() as counts:
        play(Script(asked, served(50, 3, "length")))
    assert of(counts, "truncated_total") == {"unknown": 1}


names = st.sampled_from(
    ["model", "max_tokens", "max_completion_tokens", "n", "stream", "messages", "a", 'x"n', "n "]
)
scalars = st.one_of(
    st.none(), st.booleans(), st.integers(-5, 10**12), st.floats(allow_nan=False), st.text(max_size=8)
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=4),
    max_leaves=12,
)
layouts = st.sampled_from([(",", ":"), (", ", ": "), (" ,\n", " :\t")])


@settings(deadline=None)
@given(
    st.dictionaries(names, values, max_size=8),
    st.none() | st.integers(0, 8),
    layouts,
    st.sampled_from([None, 1]),
    st.booleans(),
)
def test_fields_are_read_as_json_reads_them(
    fields: dict[str, Any],
    long_at: int | None,  # where a value stands that makes it a large body
    separators: tuple[str, str],
    indent: int | None,
    ascii_only: bool,
) -> None:
    if long_at is not None:
        pairs = list(fields.items())
        fields = dict([*pairs[:long_at], ("long", '"n":' * SMALL_BYTES), *pairs[long_at:]])
    data = json.dumps(fields, separators=separators, indent=indent, ensure_ascii=ascii_only).encode()
    read = read_request(data, ENDPOINTS[CHAT])
    plain = json.loads(data)
    assert read.model == (plain.get("model") if isinstance(plain.get("model"), str) else None)
    first = next(
        (plain[name] for name in ("max_completion_tokens", "max_tokens") if plain.get(name) is not None), None
    )
    if isinstance(first, int) and not isinstance(first, bool):
        assert read.output == first
    if first is None:
        assert (read.output, read.output_known) == (None, True)


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_are_fields_or_a_value_error(data: bytes) -> None:
    for style in {id(style): style for style in ENDPOINTS.values()}.values():
        with contextlib.suppress(ValueError):
            read_request(data, style)


STREAM = b"".join([delta(), delta('"usage":{"prompt_tokens":9}'), delta(None, "length"), final(50, 20), DONE])


@settings(max_examples=80, deadline=None)
@given(st.integers(0, len(STREAM)), st.sampled_from(["", "return", "raise"]))
def test_a_stream_that_is_cut_in_the_middle(length: int, how: str) -> None:
    answer = [start(200, "text/event-stream"), part(STREAM[:length]), *([last()] if not how else [])]
    failure = RuntimeError("broken") if how == "raise" else None
    with counted() as found:
        play(Script(chat(max_tokens=20), answer, error=failure))
    whole = length >= len(STREAM) - 2  # without the last line's end
    expected = "failed" if how else "served" if whole else "unknown"
    assert outcomes(found) == {expected: 1}
    assert of(found, "total_tokens_sum") == ({"": 70} if expected == "served" else {})


@settings(max_examples=50, deadline=None)
@given(st.binary(max_size=300), st.sampled_from([200, 400, 500]), st.booleans())
def test_any_answer_passes(data: bytes, status: int, streamed: bool) -> None:
    kind = "text/event-stream" if streamed else "application/json"
    with counted() as found:
        play(Script(chat(), [start(status, kind), part(data), last()]))
    assert of(found, "errors_total") == {}
    assert of(found, "prompt_tokens_count") == {}


def test_text_that_looks_like_usage_is_none() -> None:
    text = '"finish_reason":"length","usage":{"prompt_tokens":8000,"completion_tokens":192}'
    with counted() as found:
        play(Script(chat(), served(50, 7, text=text)))
        play(Script(chat(), stream(delta(text), delta(text), delta(None, "stop"), DONE)))
    assert of(found, "total_tokens_sum") == {"": 57}
    assert of(found, "truncated_total") == {}


def test_an_answer_that_is_compressed_is_not_guessed_at() -> None:
    answer = served(50, 7)
    answer[0] = start(200, "application/json", (b"content-encoding", b"gzip"))
    with counted() as found:
        play(Script(chat(), answer))
    assert outcomes(found) == {"unknown": 1}
    assert of(found, "unaccounted_total") == {"answer_unread": 1}


@pytest.mark.parametrize("parts", [1, 3, 40])
def test_an_answer_beyond_what_is_looked_at(parts: int) -> None:
    data = served(50, 7, text="x" * (3 * KEPT_BYTES))[1]["body"]
    size = -(-len(data) // parts)
    pieces = [part(data[i : i + size]) for i in range(0, len(data), size)]
    with counted() as found:
        play(Script(chat(), [start(), *pieces, last()]))
    assert outcomes(found) == {"served": 1}  # usage and end are at its end
    assert of(found, "total_tokens_sum") == {"": 57}


@pytest.mark.parametrize(
    "message",
    [
        {"type": "http.response.start"},  # no status
        {"type": "http.response.body", "body": 7},
        {"type": "http.response.start", "status": 200, "headers": 7},
        {},
    ],
)
def test_messages_that_break_the_protocol_are_the_server_s_business(message: Message) -> None:
    with counted() as found:
        play(Script(chat(), [message, *served(50, 7)]))
    assert of(found, "errors_total") == {"": 1}


def test_an_error_of_ours_is_counted_told_once_and_hidden(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("a mistake of ours")

    monkeypatch.setattr(series, "request", broken)
    monkeypatch.setattr(series, "_said", False)
    with counted() as found:
        play(*[Script(chat(), served(50, 7))] * 3, Script(chat(), error=ValueError("theirs")))
    assert of(found, "errors_total") == {"": 4}
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert "a mistake of ours" in caplog.text


def test_a_state_that_raises_is_no_state() -> None:
    class Hostile:
        @property
        def state(self) -> object:
            raise RuntimeError("no state")

    with counted() as found:
        seen = play(Script(chat(), served(50, 7)), app=Hostile())
    assert of(found, "errors_total") == {"": 1}
    assert len(seen[0].sent) == 2


def test_other_protocols_pass() -> None:
    passed: list[str] = []

    async def application(scope: Any, receive: Any, send: Any) -> None:
        passed.append(scope["type"])

    async def nothing(*_: object) -> Any:
        return None

    middleware = LengthAccounting(application)
    for scope in (
        {"type": "lifespan", "app": vllm()},
        {"type": "websocket", "path": CHAT},
        {"type": "http", "method": "GET", "path": CHAT},
        {"type": "http", "method": "POST", "path": "/other", "root_path": "/api"},
    ):
        asyncio.run(middleware(scope, nothing, nothing))
    assert passed == ["lifespan", "websocket", "http", "http"]


def test_a_root_path_is_no_part_of_the_endpoint() -> None:
    async def run() -> None:
        async def application(scope: Any, receive: Any, send: Any) -> None:
            await receive()
            for message in served(50, 7):
                await send(message)

        async def receive() -> Message:
            return chat()[0]

        async def send(message: Message) -> None:
            pass

        scope = {"type": "http", "method": "POST", "path": f"/api{COMPLETIONS}", "root_path": "/api"}
        await LengthAccounting(application)(scope, receive, send)

    with counted() as found:
        asyncio.run(run())
    assert f"requests_total{{model=,endpoint={COMPLETIONS},outcome=served}}" in found


def test_series_do_not_grow_with_what_clients_send() -> None:
    before = set(series._requests)
    play(*(Script(request(model=f"name-{i}", messages=[]), served(5, 5)) for i in range(300)))
    assert len(set(series._requests) - before) <= 1
    assert len(series._models) < 20


def test_events_without_data_and_comments() -> None:
    with counted() as found:
        play(
            Script(
                chat(max_tokens=LIMIT),
                stream(b": ping\n\n", delta(), delta(None, "stop"), final(50, 7), DONE, b": end\n\n"),
            ),
            Script(chat(), stream(event({"error": None}), delta(None, "stop"), final(50, 7), DONE)),
        )
    assert outcomes(found) == {"served": 2}


def test_an_end_marker_in_a_text_ends_no_stream() -> None:
    running = event({"choices": [{"index": 0, "finish_reason": None}], "usage": {"prompt_tokens": 5}})
    with counted() as found:
        play(Script(chat(), stream(running, delta("data: [DONE]"), delta("event: message_stop"))))
    assert outcomes(found) == {"unknown": 1}
    assert of(found, "unaccounted_total") == {"stream_cut": 1}


def test_usage_that_is_null_is_none() -> None:
    after = event({"choices": [], "usage": None})  # 0.20 writes it into every event that has none
    with counted() as found:
        play(
            Script(chat(), stream(delta(None, "stop"), final(50, 7), after, DONE)),
            Script(chat(), stream(delta(None, "stop"), after, DONE)),
        )
    assert outcomes(found) == {"served": 1, "unknown": 1}


def test_a_key_that_ends_like_a_field_is_another_key() -> None:
    data = LARGE + compact({'x"max_tokens': 3, ' "n': 2, "messages": []})[1:]
    found = read_request(data, ENDPOINTS[CHAT])
    assert (found.output, found.answers) == (None, 1)
