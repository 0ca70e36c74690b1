"""Paths that take a prompt, and how their requests and answers look."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Style:
    """How an API writes lengths.

    `output`: the request's fields for its output budget, the first one present counts. `default_output`: the budget
    where there is none, in every version. `prompts`: fields that may list several prompts; None: any request may
    have several. `end`: the key that tells how an answer ended, `ended`: finds the values, `cut`: the one that says
    "for length". `names_only_cuts`: the key has a value only for an answer that was cut. `opaque`: answers carry no
    usage of one prompt.
    """

    output: tuple[str, ...] = ()
    default_output: int | None = None
    prompts: tuple[str, ...] | None = ()
    end: bytes = b""
    ended: re.Pattern[bytes] | None = None
    cut: bytes = b"length"
    opaque: bool = False
    names_only_cuts: bool = False

    @property
    def one_prompt(self) -> bool:
        """Whether a request always has exactly one prompt."""
        return self.prompts == ()


# An unescaped quote never stands inside a JSON string: `"name":` is a key wherever it is found.
_FINISH = b'"finish_reason":'
_FINISHED = re.compile(_FINISH + rb' ?"(\w+)"')
CHAT = Style(("max_completion_tokens", "max_tokens"), end=_FINISH, ended=_FINISHED)
COMPLETIONS = Style(("max_tokens",), default_output=16, prompts=("prompt",), end=_FINISH, ended=_FINISHED)
RESPONSES = Style(
    ("max_output_tokens",),
    end=b'"incomplete_details":',
    ended=re.compile(rb'"incomplete_details": ?\{"reason": ?"(\w+)"'),
    cut=b"max_output_tokens",
    names_only_cuts=True,
)
MESSAGES = Style(
    ("max_tokens",),
    end=b'"stop_reason":',
    ended=re.compile(rb'"stop_reason": ?"(\w+)"'),
    cut=b"max_tokens",
)
POOLING = Style(prompts=("input",))
PAIRS = Style(prompts=None)
OPAQUE = Style(prompts=None, opaque=True)

ENDPOINTS = {
    "/v1/chat/completions": CHAT,
    "/v1/completions": COMPLETIONS,
    "/v1/responses": RESPONSES,
    "/v1/messages": MESSAGES,
    "/v1/embeddings": POOLING,
    "/pooling": POOLING,
    "/classify": POOLING,
    "/score": PAIRS,
    "/v1/score": PAIRS,
    "/rerank": PAIRS,
    "/v1/rerank": PAIRS,
    "/v2/rerank": PAIRS,
    "/v1/chat/completions/batch": OPAQUE,
    "/inference/v1/generate": OPAQUE,
    "/cohere/v2/chat": OPAQUE,
    "/v2/embed": OPAQUE,
    "/generative_scoring": OPAQUE,
    "/v1/decisions": OPAQUE,  # 0.33+: usage adds its questions up
    "/invocations": OPAQUE,  # any of them, by its body
}
GENERATING = ("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages")
