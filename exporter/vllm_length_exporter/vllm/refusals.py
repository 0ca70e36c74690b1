"""Why a request was refused, as far as the numbers of its message prove it."""

from __future__ import annotations

from collections.abc import Mapping

from vllm_length_exporter.vllm.events import FieldValue, RefusalCause

REFUSED = 400  # the status of a refusal for length, as the client and the access log see it
# Anthropic's endpoint answered a refusal as a fault of its own on 0.20.2 and 0.26.0; on 0.32.0 it is a 400.
REFUSED_AS_FAULT = {"/v1/messages": 500}
# How the paths begin whose requests can be refused for length.
REFUSING_PATHS = (
    "/v1/",
    "/v2/",
    "/inference/",
    "/invocations",
    "/generat",
    "/score",
    "/rerank",
    "/pooling",
    "/classify",
    "/embed",
)
_OUTPUT_BELOW_ONE = frozenset({"max_tokens_lt1_1", "max_tokens_lt1_5"})
_CUT_COUNT = "counted_tokens"


def refusal(message_id: str, fields: Mapping[str, FieldValue]) -> dict[str, FieldValue]:
    """The fields of a refusal, completed by what follows from them: a bound of the prompt, and the cause.

    vLLM cuts a text before it counts (0.16+): its count is then a bound, `prompt_tokens_at_least`.
    """
    found = dict(fields)
    _bounds(found)
    found["cause"] = str(_cause(message_id, found))
    return found


def may_be_refusal(path: str, status: int) -> bool:
    """Whether an answer with this status, from this path, can be a refusal for length."""
    return status == REFUSED or REFUSED_AS_FAULT.get(path) == status


def _bounds(found: dict[str, FieldValue]) -> None:
    room = _number(found.pop("input_tokens_at_most", None))
    counted = _number(found.pop(_CUT_COUNT, None))
    if counted is not None:
        # A text is cut one token after the room; more than that was counted whole, as token ids are.
        exact = room is not None and counted > room + 1
        found["prompt_tokens" if exact else "prompt_tokens_at_least"] = counted
    characters, most = (
        _number(found.get("prompt_characters")),
        _number(found.get("prompt_characters_at_most")),
    )
    if characters is not None and room and most:
        # vLLM allows so many characters a token as its longest token has, so these are at least so many.
        longest = -(-most // room)
        found["prompt_tokens_at_least"] = max(-(-characters // longest), room + 1)
    if (output := _number(found.get("output_tokens"))) is not None and "total_tokens" not in found:
        for key in ("prompt_tokens", "prompt_tokens_at_least"):
            if (prompt := _number(found.get(key))) is not None and output > 0:
                total = "total_tokens" if key == "prompt_tokens" else "total_tokens_at_least"
                found.setdefault(total, prompt + output)


def _cause(message_id: str, found: Mapping[str, FieldValue]) -> RefusalCause:
    limit, output = _number(found.get("limit")), _number(found.get("output_tokens"))
    exact = _number(found.get("prompt_tokens"))
    prompt = exact if exact is not None else _number(found.get("prompt_tokens_at_least"))
    if message_id in _OUTPUT_BELOW_ONE:
        # 0 and -1 are what clients ask for; less is what is left of the limit after the prompt.
        below = output is not None and output < -1
        return RefusalCause.NO_ROOM_FOR_OUTPUT if below else RefusalCause.OTHER
    if message_id.startswith(("truncate_", "prompt_embeds_", "score_", "min_gt_", "n_gt_")):
        return RefusalCause.OTHER
    if limit is None:
        return RefusalCause.OTHER
    if prompt is not None and prompt > limit:
        return RefusalCause.PROMPT_TOO_LONG
    if output is not None and output > limit:
        return RefusalCause.OUTPUT_TOO_LONG
    if exact is not None and exact == limit:
        return RefusalCause.NO_ROOM_FOR_OUTPUT
    if prompt is not None and output is not None and prompt + output > limit:
        return RefusalCause.PROMPT_PLUS_OUTPUT_TOO_LONG
    return RefusalCause.OTHER


def _number(value: FieldValue) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
