"""An ASGI application that plays a script, the middleware around it, and what both sides saw."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from prometheus_client import REGISTRY

from vllm_length_exporter.middleware import LengthAccounting

Message = MutableMapping[str, Any]
PREFIX = "vllm_length_middleware_"
LIMIT = 8192
CHAT, COMPLETIONS, RESPONSES, MESSAGES, EMBEDDINGS = (
    "/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages", "/v1/embeddings",
)  # fmt: skip
DISCONNECT: Message = {"type": "http.disconnect"}


@dataclass
class Script:
    """What the client sends, and what the application does."""

    request: Sequence[Message]
    answer: Sequence[Message] = ()
    error: BaseException | None = None  # raised after the answer
    reads: int | None = None  # messages read before the answer; None: until the body ends
    reads_after: int = 0  # messages read before the last message of the answer
    path: str = CHAT
    metadata: object = None  # what vLLM leaves in the request's state


@dataclass
class Seen:
    """The messages on both sides of the middleware, and what came out of it."""

    received: list[Message] = field(default_factory=list)  # by the application
    sent: list[Message] = field(default_factory=list)  # to the client
    error: BaseException | None = None


def vllm(limit: int | None = LIMIT, names: Sequence[str] = ("tiny",), **state: object) -> object:
    """An application object as vLLM fills it, as far as the middleware looks."""
    models = SimpleNamespace(
        base_model_paths=[SimpleNamespace(name=name) for name in names],
        lora_requests={"adapter": object()},
        model_config=SimpleNamespace(max_model_len=limit),
    )
    found = {"openai_serving_models": models, "args": SimpleNamespace(served_model_name=list(names)), **state}
    return SimpleNamespace(state=SimpleNamespace(**found), routes=())


def play(
    *scripts: Script, app: object = None, middleware: type[LengthAccounting] | None = LengthAccounting
) -> list[Seen]:
    """Play the scripts one after the other through one middleware. Both sides must see the same objects."""
    return asyncio.run(_play(scripts, vllm() if app is None else app, middleware))


async def _play(
    scripts: Sequence[Script], app: object, middleware: type[LengthAccounting] | None
) -> list[Seen]:
    current: list[tuple[Script, Seen]] = []

    async def application(scope: Any, receive: Any, send: Any) -> None:
        script, seen = current[-1]
        if script.metadata is not None:
            scope.setdefault("state", {})["request_metadata"] = script.metadata

        async def read() -> None:
            seen.received.append(await receive())

        if script.reads is None:
            await read()
            while seen.received[-1].get("more_body"):
                await read()
        for _ in range(script.reads or 0):
            await read()
        for message in script.answer[:-1]:
            await send(message)
        for _ in range(script.reads_after):
            await read()
        for message in script.answer[-1:]:
            await send(message)
        if script.error is not None:
            raise script.error

    wrapped: Any = application if middleware is None else middleware(application)
    played = []
    for script in scripts:
        seen = Seen()
        current.append((script, seen))
        messages = iter(script.request)

        async def receive(messages: Iterator[Message] = messages) -> Message:
            return next(messages, DISCONNECT)

        async def send(message: Message, seen: Seen = seen) -> None:
            seen.sent.append(message)

        scope = {"type": "http", "method": "POST", "path": script.path, "headers": [], "app": app}
        try:
            await wrapped(scope, receive, send)
        except BaseException as error:  # noqa: BLE001 - whatever the script raises
            seen.error = error
        played.append(seen)
        for given, got in ((script.request, seen.received), (script.answer, seen.sent)):
            assert all(got[i] is message for i, message in enumerate(given[: len(got)]))
        assert len(seen.sent) == len(script.answer)
        assert seen.error is script.error
    return played


# --- requests


def body(*parts: bytes) -> list[Message]:
    """A request body in parts."""
    last = len(parts) - 1
    return [{"type": "http.request", "body": part, "more_body": i < last} for i, part in enumerate(parts)]


def request(**fields: object) -> list[Message]:
    return body(json.dumps({"model": "tiny", **fields}).encode())


def chat(text: str = "hello", **fields: object) -> list[Message]:
    return request(messages=[{"role": "user", "content": text}], **fields)


# --- answers


def start(status: int = 200, content: str = "application/json", *more: tuple[bytes, bytes]) -> Message:
    headers = [(b"content-type", content.encode()), *more]
    return {"type": "http.response.start", "status": status, "headers": headers}


def last(data: bytes = b"") -> Message:
    return {"type": "http.response.body", "body": data, "more_body": False}


def part(data: bytes) -> Message:
    return {"type": "http.response.body", "body": data, "more_body": True}


def compact(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def json_answer(value: object, status: int = 200) -> list[Message]:
    return [start(status), last(compact(value))]


def usage(prompt: int, output: int) -> dict[str, object]:
    return {
        "prompt_tokens": prompt,
        "total_tokens": prompt + output,
        "completion_tokens": output,
        "prompt_tokens_details": None,
    }


def served(prompt: int, output: int, *finish: str, text: str = "hi") -> list[Message]:
    """A chat's or a completion's answer in JSON, as vLLM 0.32 writes it."""
    choices = [
        {
            "index": i,
            "message": {"role": "assistant", "content": text},
            "logprobs": None,
            "finish_reason": reason,
        }
        | {"stop_reason": None, "token_ids": None}
        for i, reason in enumerate(finish or ("stop",))
    ]
    answer = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "tiny"}
    return json_answer(
        {**answer, "choices": choices, "usage": usage(prompt, output), "prompt_logprobs": None}
    )


def error(
    message: str, status: int = 400, parameter: str | None = None, kind: str = "BadRequestError"
) -> list[Message]:
    return json_answer(
        {"error": {"message": message, "type": kind, "param": parameter, "code": status}}, status
    )


def event(value: object) -> bytes:
    return b"data: " + compact(value) + b"\n\n"


def named(name: str, **fields: object) -> bytes:
    return b"event: " + name.encode() + b"\n" + event({"type": name, **fields})


DONE = b"data: [DONE]\n\n"


def stream(*events: bytes) -> list[Message]:
    """A stream, each event in a message of its own and an empty last one, as Starlette sends it."""
    return [start(200, "text/event-stream; charset=utf-8"), *map(part, events), last()]


def delta(text: str | None = " word", finish: str | None = None, index: int = 0) -> bytes:
    choice = {"index": index, "delta": {"content": text} if text else {}, "logprobs": None}
    chunk = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "tiny"}
    return event({**chunk, "choices": [{**choice, "finish_reason": finish}]})


def final(prompt: int, output: int) -> bytes:
    """The last event of a stream that was asked for usage."""
    return event(
        {
            "id": "chatcmpl-1",
            "object": "chat.completion.chunk",
            "choices": [],
            "usage": usage(prompt, output),
        }
    )


# --- counts


@contextmanager
def counted() -> Iterator[dict[str, float]]:
    """What the block adds to the middleware's counters, by `name{label=value,...}`; filled when the block ends."""
    before = snapshot()
    found: dict[str, float] = {}
    yield found
    for name, value in snapshot().items():
        if value != before.get(name, 0.0):
            found[name] = value - before.get(name, 0.0)


def snapshot() -> Mapping[str, float]:
    """The middleware's samples now, without the names' prefix, buckets and times of creation."""
    found = {}
    for family in REGISTRY.collect():
        if not family.name.startswith(PREFIX):
            continue
        for sample in family.samples:
            if sample.name.endswith(("_created", "_bucket", "_info", "limit_tokens")):
                continue
            labels = ",".join(f"{name}={value}" for name, value in sample.labels.items())
            found[f"{sample.name[len(PREFIX) :]}{{{labels}}}"] = sample.value
    return found


def outcomes(found: Mapping[str, float]) -> dict[str, float]:
    """The counts of `requests_total`, by outcome."""
    return of(found, "requests_total")


def of(found: Mapping[str, float], name: str) -> dict[str, float]:
    """The counts of one series, by its labels without the model's and the endpoint's."""
    chosen: dict[str, float] = {}
    for full, value in found.items():
        series, _, labels = full.partition("{")
        if series == name:
            kept = [
                label.partition("=")[2]
                for label in labels[:-1].split(",")
                if not label.startswith(("model=", "endpoint="))
            ]
            chosen[",".join(kept)] = chosen.get(",".join(kept), 0) + value
    return chosen
