"""The whole catalogue by id: log lines, reasons of a failed start, refusals."""

from __future__ import annotations

from functools import cache

from vllm_length_exporter.vllm.messages import Message
from vllm_length_exporter.vllm.messages_errors import REQUEST_ERRORS, STARTUP_ERRORS
from vllm_length_exporter.vllm.messages_log import LOG, UVICORN

CATALOGUE: tuple[Message, ...] = (*LOG, *UVICORN, *STARTUP_ERRORS, *REQUEST_ERRORS)


@cache
def _by_id() -> dict[str, Message]:
    rows = {name: row for row in CATALOGUE for name in row.also}
    return rows | {row.id: row for row in CATALOGUE}


def row(message_id: str) -> Message | None:
    """The row of this id, or the one that its text shares; None for an id that is no row's."""
    return _by_id().get(message_id)
