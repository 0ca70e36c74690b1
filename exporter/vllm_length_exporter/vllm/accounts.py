"""What the series of our own middleware on vLLM's page say; None of a page that has none of them.

A counter of theirs shows only once it has counted, so that one which is not there stands at 0.
"""

from __future__ import annotations

from vllm_length_exporter.vllm.events import RefusalCause
from vllm_length_exporter.vllm.names import MIDDLEWARE_CLAMPED, MIDDLEWARE_REFUSED, MIDDLEWARE_TRUNCATED
from vllm_length_exporter.vllm.page import Page

TRUNCATION_CAUSES = ("context_full", "max_tokens", "unknown")


def refused(page: Page) -> dict[str, int] | None:
    """Refused requests by cause, every RefusalCause; a cause that is none of them counts as OTHER."""
    return _by_cause(page, MIDDLEWARE_REFUSED, tuple(RefusalCause), RefusalCause.OTHER)


def truncated(page: Page) -> dict[str, int] | None:
    """Answers that ended for length by cause, every one of TRUNCATION_CAUSES."""
    return _by_cause(page, MIDDLEWARE_TRUNCATED, TRUNCATION_CAUSES, "unknown")


def clamped(page: Page) -> int | None:
    """Requests served with less output budget than they asked for."""
    if not page.middleware:
        return None
    return int(sum(sample.value for sample in page.middleware.get(MIDDLEWARE_CLAMPED, ())))


def _by_cause(page: Page, name: str, causes: tuple[str, ...], otherwise: str) -> dict[str, int] | None:
    if not page.middleware:
        return None
    counts = dict.fromkeys(map(str, causes), 0)
    for sample in page.middleware.get(name, ()):
        cause = sample.labels.get("cause", "")
        counts[cause if cause in counts else str(otherwise)] += int(sample.value)
    return counts
