"""One request and its answer, read as they pass."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

from . import series
from .answer import (
    NO_ENDS,
    Ends,
    ServerError,
    Usage,
    read_ends,
    read_entries,
    read_error,
    read_last_end,
    read_usage,
    stream_ended,
    stream_error,
    truncation,
    usage_of,
    whole_events,
)
from .endpoints import Style
from .refusals import Verdict, refusal
from .request import KEPT_BYTES, UNREAD, read_request
from .server import Server

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

ANSWER_BYTES = 1 << 20  # of an answer that is looked at
TAIL_BYTES = 1 << 16  # of one beyond that
TAIL_PARTS = 16  # of an answer that are kept: the ends of every API are in the last four
_EVENTS = b"text/event-stream"
# Exceptions that vLLM answers with a 4xx outside of all middlewares (0.18 to 0.22).
_MISTAKES = ("ValueError", "TypeError", "OverflowError", "VLLMNotFoundError", "TemplateError")


class Exchange:
    """`receive` and `send` take the place of the server's, and hand every message on as it is."""

    __slots__ = (
        "_answer_size",
        "_disconnected",
        "_endpoint",
        "_ends",
        "_keep",
        "_parts",
        "_receive",
        "_request",
        "_request_over",
        "_request_size",
        "_scope",
        "_send",
        "_server",
        "_status",
        "_stream",
        "_style",
        "_tail",
        "_unreadable",
        "settled",
    )

    def __init__(
        self, server: Server, endpoint: str, style: Style, scope: Scope, receive: Receive, send: Send
    ) -> None:
        self._server, self._endpoint, self._style, self._scope = server, endpoint, style, scope
        self._receive, self._send = receive, send
        self._request = UNREAD
        self._parts: list[bytes] | None = None  # of a request in more than one message
        self._request_size = 0
        self._request_over = False  # read, or given up
        self._status = 0
        self._stream = False
        self._unreadable = False  # the answer is compressed
        self._tail: deque[bytes] | None = None  # the last parts of an answer in more than one message
        self._keep: Callable[[bytes], None] | None = None
        self._answer_size = 0
        self._ends = NO_ENDS  # seen while a stream of several answers runs
        self._disconnected = False
        self.settled = False  # counted: what follows changes nothing

    async def receive(self) -> Message:
        """The next message from the client."""
        message = await self._receive()
        try:
            self._received(message)
        except Exception as error:  # noqa: BLE001 - no client sees an error of ours
            series.hide(error)
        return message

    def send(self, message: Message) -> Awaitable[None]:
        """Send a message to the client."""
        try:
            keep = self._keep
            if keep is not None and message.get("more_body") and message["type"] == "http.response.body":
                keep(message.get("body", b""))
            elif not self.settled:
                kind = message["type"]
                if kind == "http.response.start":
                    self._start(message)
                elif kind == "http.response.body":
                    body = message.get("body") or b""
                    if message.get("more_body"):
                        self._take(body)
                    else:
                        self._complete(body)
        except Exception as error:  # noqa: BLE001 - no client sees an error of ours
            series.hide(error)
        return self._send(message)

    def end(self, error: BaseException | None) -> None:
        """The application returned, or raised."""
        if self.settled:
            return
        try:
            self._broke_off(error)
        except Exception as own:  # noqa: BLE001 - no client sees an error of ours
            series.hide(own)

    # --- the request

    def _received(self, message: Message) -> None:
        if message["type"] != "http.request":
            self._disconnected = self._disconnected or message["type"] == "http.disconnect"
            return
        if self._request_over:
            return
        body = message.get("body") or b""
        self._request_size += len(body)
        if self._request_size > KEPT_BYTES:
            self._request_over, self._parts = True, None
            series.unaccounted("request_too_large")
            return
        if message.get("more_body"):
            self._parts = [*(self._parts or ()), body]
            return
        if self._parts is not None:
            body = b"".join([*self._parts, body])
        self._request_over, self._parts = True, None
        try:
            self._request = read_request(body, self._style)
        except ValueError:
            series.unaccounted("request_malformed")

    # --- the answer

    def _start(self, message: Message) -> None:
        self._status = message["status"]
        for name, value in message.get("headers") or ():
            if name == b"content-type":
                self._stream = value.startswith(_EVENTS)
            elif name == b"content-encoding" and value != b"identity":
                self._unreadable = True
        if self._stream:
            self._tail = deque(maxlen=TAIL_PARTS)
            # the only answer ends in the last parts; of several, each may end anywhere
            ended = self._style.ended
            if ended is None or self._request.answers == 1:
                self._keep = self._tail.append
            else:
                self._keep = self._watching(self._tail.append, ended.search)

    def _take(self, part: bytes) -> None:
        """A part of an answer that is no stream."""
        if self._tail is None:
            self._tail = deque(maxlen=TAIL_PARTS)
        self._answer_size += len(part)
        self._tail.append(part if self._answer_size <= ANSWER_BYTES else part[-TAIL_BYTES:])

    def _watching(
        self, append: Callable[[bytes], None], search: Callable[[bytes], object]
    ) -> Callable[[bytes], None]:
        """What takes the parts of a stream in which several answers end."""

        def keep(part: bytes) -> None:
            append(part)
            if search(part):
                found, seen = read_ends(part, self._style), self._ends
                broken = seen.broken or found.broken
                self._ends = Ends(seen.answers + found.answers, seen.cut + found.cut, broken)

        return keep

    def _complete(self, last: bytes) -> None:
        """The answer ends: it is counted before the client has all of it."""
        if last and self._keep is not None:
            self._keep(last)
            last = b""
        self.settled, self._keep = True, None
        body, whole = self._kept(last)
        if self._disconnected:
            self._count("disconnected")
        elif self._status >= 400:
            error = read_error(body) if whole and not self._unreadable else None
            self._refuse_or_fail(error, self._status)
        elif self._style.opaque:
            self._count("served")
        elif self._unreadable:
            self._unknown("answer_unread")
        elif self._stream:
            error = stream_error(body)
            if error is not None:
                self._refuse_or_fail(error, error.code)
            elif stream_ended(body):
                self._answered(body, whole)
            else:
                self._unknown("stream_cut")
        else:
            self._answered(body, whole)

    def _kept(self, last: bytes) -> tuple[bytes, bool]:
        """What is there of the answer, and whether that is all of it."""
        tail = self._tail
        if not tail:
            whole = len(last) <= ANSWER_BYTES
            return (last if whole else last[-TAIL_BYTES:]), whole
        whole = len(tail) < TAIL_PARTS and self._answer_size <= ANSWER_BYTES
        body = b"".join(tail) + last
        tail.clear()
        return (body if whole or not self._stream else whole_events(body)), whole

    def _answered(self, body: bytes, whole: bool) -> None:
        ends, told = self._answers(body, whole)
        usage = read_usage(body) or self._kept_usage()
        if ends.broken:
            self._count("failed")
        elif usage is not None and told:
            self._serve(usage, ends)
        else:
            if ends.cut:
                series.of(self._server.model(self._request)).truncated("unknown", ends.cut)
            self._unknown("stream_without_usage" if usage is None and self._stream else "answer_unread")

    def _answers(self, body: bytes, whole: bool) -> tuple[Ends, bool]:
        """How the answers ended, and whether the end of each was told."""
        style, expected = self._style, self._request.answers
        if style.ended is None:
            found = expected or (read_entries(body) if whole else 0)
            return Ends(found), found > 0
        if expected == 1 or style.names_only_cuts:
            ends = read_last_end(body, style)
            return (
                (Ends(1, ends.cut, ends.broken), True) if style.names_only_cuts else (ends, ends.answers == 1)
            )
        ends = self._ends if self._stream else read_ends(body, style)
        return ends, ends.answers > 0 and expected in (None, ends.answers)

    def _serve(self, usage: Usage, ends: Ends) -> None:
        request, limit, model = self._request, self._server.limit, self._server.model(self._request)
        counted = series.of(model)
        total = usage.prompt + usage.output if ends.answers == 1 else None
        reason = None
        if usage.turns > 1:
            reason = "several_turns"
        elif request.answers is None and total is None and not self._style.one_prompt:
            reason = "several_prompts"
        elif limit is not None and total is not None and total > limit:
            reason = "over_limit"
        if ends.cut:
            decided = reason is None and ends.cut == ends.answers
            cause = truncation(usage, request, ends.answers, limit) if decided else "unknown"
            counted.truncated(cause, ends.cut)
        if reason is not None:
            self._unknown(reason)
            return
        if total is None:
            series.unaccounted("several_answers")
        output = request.output
        if limit is None:
            if ends.cut or output is not None:
                series.unaccounted("limit_unknown")
        elif output is not None and usage.prompt + output > limit:
            counted.clamped()
        counted.served(usage.prompt, output, total, self._asked(usage.prompt, total))
        series.request(model, self._endpoint, "served")

    def _asked(self, prompt: int, total: int | None) -> int | None:
        """Prompt + requested output; what was used where the request named none."""
        request, style = self._request, self._style
        output = request.default_output if request.output is None else request.output
        if output is not None:
            return prompt + output
        if not style.output or (request.output_known and style.default_output is None):
            return total
        return None

    def _kept_usage(self) -> Usage | None:
        """What vLLM keeps for middlewares about a finished request: the only word on a stream without usage."""
        state = self._scope.get("state")
        kept = state.get("request_metadata") if isinstance(state, Mapping) else None
        usage = getattr(kept, "final_usage_info", None)
        names = ("prompt_tokens", "completion_tokens")
        return None if usage is None else usage_of({name: getattr(usage, name, None) for name in names})

    # --- refusals and failures

    def _refuse_or_fail(self, error: ServerError | None, status: int | None) -> None:
        """An error of the server; a status of None is an event that names none."""
        if error is not None:  # whatever its status: /v1/messages of 0.20 refuses with a 500
            verdict = refusal(error.message, error.parameter, self._request)
            if verdict is not None:
                self._refuse(verdict)
                return
        self._count("client_error" if status is not None and 400 <= status < 500 else "failed")

    def _refuse(self, verdict: Verdict) -> None:
        numbers, model = verdict.numbers, self._server.model(self._request)
        self._server.learn_limit(numbers.limit)
        series.refused(model, self._endpoint, verdict.cause)
        output = numbers.output if numbers.output is not None else self._request.output
        if numbers.exact and numbers.prompt is not None:
            series.of(model).refused_asked(numbers.prompt + (output or 0))
        series.request(model, self._endpoint, "refused")

    def _broke_off(self, error: BaseException | None) -> None:
        """The application ended before its answer did."""
        self.settled, self._keep, self._tail = True, None, None
        if isinstance(error, Exception) and not self._status:
            self._raised(error)
        else:
            self._count("disconnected" if self._disconnected else "failed")

    def _raised(self, error: Exception) -> None:
        """0.18 to 0.22: a refusal passes every middleware as an exception, and becomes a 400 outside of them."""
        inner: Any = error
        while len(getattr(inner, "exceptions", ())) == 1:  # task groups wrap what is raised in them
            inner = inner.exceptions[0]
        verdict = refusal(str(inner), getattr(inner, "parameter", None), self._request)
        if isinstance(inner, ValueError) and verdict is not None:
            self._refuse(verdict)
        elif self._disconnected:
            self._count("disconnected")
        else:
            mistaken = any(kind.__name__ in _MISTAKES for kind in type(inner).__mro__)
            self._count("client_error" if mistaken else "failed")

    # --- counting

    def _unknown(self, reason: str) -> None:
        series.unaccounted(reason)
        self._count("unknown")

    def _count(self, outcome: str) -> None:
        series.request(self._server.model(self._request), self._endpoint, outcome)
