"""How vLLM words a refusal for length, by version, and which cause its numbers prove."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from .request import Request


class Wording(NamedTuple):
    """One wording, read in the releases from `first` to `last`.

    Groups: limit, prompt, least ("at least "), output, characters, most (characters), room (input tokens), left
    (output tokens left), budget (of min_tokens). A prompt was counted whole unless `least` matched, or `cut` and it
    is one token more than the room: there vLLM cuts a text before it counts.
    """

    first: str
    last: str
    pattern: str
    cut: bool = False


_CONTEXT = r"This (?:model's )?maximum context length is (?P<limit>\d+) tokens\. However, "
_BOUND = (
    r"(?P<characters>\d+) characters \(more than (?P<most>\d+) characters, "
    r"which is the upper bound for (?P<room>\d+) input tokens\)"
)
_ONLY = (
    r"tokens\. However, the model's context length is only (?P<limit>\d+) tokens, "
    r"resulting in a maximum input length of (?P<room>\d+) tokens"
)
# Source: vLLM's releases 0.2.7 to 0.33.0, and the answers of running 0.16.0, 0.20.2, 0.26.0, 0.32.0 and 0.33.0.
WORDINGS = (
    Wording("0.2.7", "0.10.0", _CONTEXT + r"you requested \d+ tokens \((?P<prompt>\d+) in the messages, "
            r"(?P<output>\d+) in the completion\)"),
    Wording("0.4.3", "0.10.0", _CONTEXT + r"you requested (?P<prompt>\d+) tokens in the messages, Please"),
    Wording("0.4.3", "0.19.1", _CONTEXT + r"you requested (?P<prompt>\d+) tokens in the input for ", cut=True),
    Wording("0.6.0", "0.7.3", r"The prompt \(total length (?P<prompt>\d+)\) is too long to fit into the model "
            r"\(context length (?P<limit>\d+)\)"),
    Wording("0.7.3", "0.7.3", r"Prompt length of (?P<prompt>\d+) is longer than the maximum model length of "
            r"(?P<limit>\d+)"),
    Wording("0.8.5", "0.33.0", r"The [\w/ -]{1,40} \(length (?P<prompt>\d+)\)"
            r"(?: plus the number of requested output tokens \(at least 1\))? "
            r"is longer than the maximum model length of (?P<limit>\d+)"),
    Wording("0.10.1.1", "0.19.1", _CONTEXT + r"your request has (?P<prompt>\d+) input tokens", cut=True),
    Wording("0.10.1.1", "0.17.1", r"'max_tokens' or 'max_completion_tokens' is too large: (?P<output>\d+)\. "
            r"This model's maximum context length is (?P<limit>\d+) tokens and your request has (?P<prompt>\d+) input "
            r"tokens", cut=True),
    Wording("0.11.2", "0.33.0", r"The engine prompt length (?P<prompt>\d+) exceeds the max_model_len (?P<limit>\d+)"),
    Wording("0.14.1", "0.15.1", r"'max_tokens' \((?P<output>\d+)\) cannot be greater than the model's maximum context "
            r"length \((?P<limit>\d+)\)"),
    Wording("0.16.0", "0.33.0", r"\w{1,40}=(?P<output>\d+) ?cannot be greater than (?:\w{1,40}=){1,2}(?P<limit>\d+)\. "
            r"Please request fewer output tokens"),
    Wording("0.16.0", "0.17.1", r"You passed (?P<prompt>\d+) input tokens and requested (?P<output>\d+) output "
            + _ONLY, cut=True),
    Wording("0.16.0", "0.17.1", r"You passed (?P<characters>\d+) input characters and requested (?P<output>\d+) output "
            + _ONLY + r" \(at most (?P<most>\d+) characters\)"),
    Wording("0.18.1", "0.31.0", _CONTEXT + r"you requested (?P<output>\d+) output tokens and your prompt contains "
            r"(?P<least>at least )?(?P<prompt>\d+) input tokens"),
    Wording("0.18.1", "0.31.0", _CONTEXT + r"you requested (?P<output>\d+) output tokens and your prompt contains "
            + _BOUND),
    Wording("0.18.1", "0.33.0", r"Input length \((?P<prompt>\d+)\) exceeds model's maximum context length "
            r"\((?P<limit>\d+)\)"),
    Wording("0.32.0", "0.33.0", _CONTEXT + r"your prompt contains (?P<least>at least )?(?P<prompt>\d+) input tokens, "
            r"which exceeds this limit"),
    Wording("0.32.0", "0.33.0", _CONTEXT + r"your prompt contains " + _BOUND),
    # the client names the question: only the end is vLLM's own
    Wording("0.33.0", "0.33.0", r"question .{1,400}: the prompt has (?P<prompt>\d+) tokens, more than "
            r"max_model_len=(?P<limit>\d+); nothing is truncated\Z"),
    Wording("0.2.7", "0.33.0", r"\w{0,40}_tokens must be at least 1, got (?P<left>-?\d+)\."),
    Wording("0.4.3", "0.33.0", r"min_tokens must be less than or equal to max_tokens=(?P<budget>-?\d+), got \d+"),
    # a length beyond a limit, with neither prompt nor output in it
    Wording("0.4.3", "0.33.0", r"truncate_prompt_tokens[ =\w()]{0,40}(?:is greater|cannot be greater) than "),
    Wording("0.16.0", "0.33.0", r"The [\w/ -]{1,40} contains a\(n\) \w{1,40} item with [^.]{1,80}, which exceeds the "
            r"pre-allocated encoder cache size \d+"),
    Wording("0.20.2", "0.33.0", r"max_tokens_per_\w{1,20} \(\d+\) must be less than max_model_len \(\d+\)"),
)  # fmt: skip
_PATTERNS = tuple((row, re.compile(row.pattern)) for row in WORDINGS)
# Words that are not in the table are still about length when vLLM names one of these as the wrong parameter.
LENGTH_PARAMETERS = ("input_tokens", "input_text")
_CHARACTERS = 2000


class Numbers(NamedTuple):
    """What a refusal names, in tokens; None where it does not. `prompt` is a lower bound unless `exact`."""

    limit: int | None = None
    prompt: int | None = None
    exact: bool = False
    output: int | None = None


class Verdict(NamedTuple):
    """That a request was refused for length, the cause that is proven, and the numbers."""

    cause: str
    numbers: Numbers = Numbers()


def refusal(message: str, parameter: object, request: Request) -> Verdict | None:
    """What a server's error message says about length; None where it is about something else.

    Only its beginning counts: further on, a message may repeat what a client sent.
    """
    message = message[:_CHARACTERS]
    for row, pattern in _PATTERNS:
        match = pattern.match(message)
        if match is not None:
            return _verdict(row, match.groupdict(), request)
    return Verdict("other") if parameter in LENGTH_PARAMETERS else None


def _verdict(row: Wording, found: Mapping[str, str | None], request: Request) -> Verdict | None:
    numbers = {name: int(text) for name, text in found.items() if text is not None and name != "least"}
    left = numbers.get("left", numbers.get("budget"))
    if left is not None:
        # The same words answer a client that asked for too little, and one that the prompt left nothing to.
        if not request.read or not request.output_known:
            return Verdict("other")
        if request.output == left:
            return None
        return Verdict("no_room_for_output" if "left" in numbers else "other")
    limit, output, prompt = numbers.get("limit"), numbers.get("output"), numbers.get("prompt")
    room = numbers.get("room", None if limit is None else limit - (output or 0))
    exact = prompt is not None and found.get("least") is None
    if row.cut and room is not None and prompt == room + 1 and not request.token_ids:
        exact = False
    if room is not None and numbers.get("most"):
        # The longest token has most / room characters: so many characters are at least so many tokens.
        prompt = max(-(-numbers["characters"] * room // numbers["most"]), room + 1)
    named = Numbers(limit, prompt, exact, output)
    return Verdict(cause(named), named)


def cause(numbers: Numbers) -> str:
    """The narrowest cause that the numbers prove."""
    limit, prompt, exact, output = numbers
    if limit is None:
        return "other"
    if prompt is not None and prompt > limit:
        return "prompt_too_long"
    if output is not None and output > limit:
        return "output_too_long"
    if exact and prompt == limit:
        return "no_room_for_output"
    if prompt is not None and output is not None and prompt + output > limit:
        return "prompt_plus_output_too_long"
    return "other"
