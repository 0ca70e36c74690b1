"""vLLM's API answers: `/v1/models` and `/version`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any


class AnswerError(ValueError):
    """The body is not what vLLM answers; the message is one line."""


@dataclass(frozen=True, slots=True)
class Card:
    """One base model of `/v1/models`. `max_model_len` is in tokens, since 0.5.5; LoRA cards have none."""

    name: str
    max_model_len: int | None = None


def read_models(body: bytes) -> tuple[Card, ...]:
    """The base-model cards in the server's order: a card with a parent is a LoRA adapter and left out.

    Raises:
        AnswerError: the body is no list of models.
    """
    answer = _loaded(body, "/v1/models")
    rows = answer.get("data") if isinstance(answer, dict) else None
    if not isinstance(rows, list):
        raise AnswerError("/v1/models: expected an object with a list under 'data'")
    cards = []
    for row in rows:
        if not isinstance(row, dict) or not isinstance(row.get("id"), str) or row.get("parent"):
            continue
        limit = row.get("max_model_len")
        sound = isinstance(limit, int) and not isinstance(limit, bool) and limit > 0
        cards.append(Card(row["id"], limit if sound else None))
    return tuple(cards)


def read_version(body: bytes) -> str:
    """The version as vLLM spells it, for example "0.32.0" or "0.13.0+cu129".

    Raises:
        AnswerError: the body is no version answer.
    """
    answer = _loaded(body, "/version")
    version = answer.get("version") if isinstance(answer, dict) else None
    if not isinstance(version, str) or not version or len(version) > 100:
        raise AnswerError("/version: expected an object with a text under 'version'")
    return version


def _loaded(body: bytes, path: str) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise AnswerError(f"{path}: the answer is not JSON") from error
