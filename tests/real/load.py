"""A load with one request of every kind that a length limit can touch, and what the client makes of the answers.

The client knows the length of what it sent: a prompt of token ids, or ASCII text, of which the tiny model makes a
token a character.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from tests.real.client import Answer, Client

CROWD = 24


@dataclass(frozen=True, slots=True)
class Sent:
    """One request: its kind, what it asked for in tokens (None: nothing said), and what came back."""

    kind: str
    answer: Answer
    prompt: int | None = None
    output: int | None = None
    default_output: int | None = None


@dataclass(frozen=True, slots=True)
class Truth:
    """What the client saw, by cause."""

    refused: dict[str, int] = field(default_factory=dict)
    clamped: int = 0
    truncated: dict[str, int] = field(default_factory=dict)
    served: int = 0
    client_errors: int = 0


def chat_tokens(text: str) -> int:
    """Tokens of a chat with one message of the user, by the tiny model's template."""
    return len(f"user: {text}\nassistant:")


def length_load(client: Client, limit: int) -> list[Sent]:
    """One request after the other; then, with a small KV cache, more at once than fit: see `crowd`."""
    sent: list[Sent] = []

    def complete(kind: str, prompt: int, output: int | None = None) -> None:
        body = {} if output is None else {"max_tokens": output}
        answer = client.complete(client.tokens(prompt), **body)
        sent.append(Sent(kind, answer, prompt, output, default_output=16))

    def chat(kind: str, text: str, **body: object) -> None:
        output = body.get("max_completion_tokens", body.get("max_tokens"))
        answer = client.chat(text, **body)
        sent.append(Sent(kind, answer, chat_tokens(text), output if isinstance(output, int) else None))

    complete("ok", 50, 20)
    complete("no_max_tokens_short", 50)
    complete("sum_over_limit", limit * 3 // 4, limit // 2)
    chat("sum_over_limit_chat", "hello " * (limit * 7 // 60), max_tokens=limit // 2)
    complete("prompt_over_limit", limit + 100, 5)
    chat("prompt_over_limit_chat", "hello " * (limit + 50), max_tokens=5)
    chat("max_tokens_over_limit", "hello", max_tokens=limit + 500)
    chat("max_completion_tokens_over_limit", "hello", max_completion_tokens=limit + 500)
    complete("prompt_equals_limit", limit)
    chat("temperature_below_zero", "hello", max_tokens=5, temperature=-3)
    chat("no_such_model", "hello", max_tokens=5, model="nope")
    return sent


def crowd(client: Client, count: int = CROWD) -> list[Sent]:
    """700 + 1,200 tokens, so many times at once."""
    answers = client.crowd(count, prompt_tokens=700, max_tokens=1200)
    return [Sent("crowd", answer, 700, 1200) for answer in answers]


def truth(sent: list[Sent], limit: int) -> Truth:
    """What happened to these requests, by the client's own count."""
    refused: Counter[str] = Counter()
    truncated: Counter[str] = Counter()
    clamped = served = errors = 0
    for one in sent:
        cause = refusal(one, limit)
        if cause is not None:
            refused[cause] += 1
        elif one.answer.status >= 400:
            errors += 1
        else:
            served += 1
            clamped += one.output is not None and (one.prompt or 0) + one.output > limit
            if one.answer.finish_reason == "length":
                truncated[truncation(one, limit)] += 1
    return Truth(dict(refused), clamped, dict(truncated), served, errors)


def refusal(one: Sent, limit: int) -> str | None:
    """Why the server refused a request for its length; None where it did not."""
    if one.answer.status != 400 or "temperature" in one.kind:
        return None
    prompt, output = one.prompt or 0, one.output if one.output is not None else one.default_output
    if prompt > limit:
        return "prompt_too_long"
    if output is not None and output > limit:
        return "output_too_long"
    if prompt == limit:
        return "no_room_for_output"
    return "prompt_plus_output_too_long"


def truncation(one: Sent, limit: int) -> str:
    """Why an answer ended for length."""
    completion, output = one.answer.completion_tokens or 0, one.output
    if (one.answer.prompt_tokens or 0) + completion == limit:
        return "context_full"
    return "max_tokens" if completion == (one.default_output if output is None else output) else "unknown"
