"""Which evidence of refused requests a server offers, and what it counts. Evidences are never added up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from vllm_length_exporter.server import ServerState
from vllm_length_exporter.vllm import accounts
from vllm_length_exporter.vllm.events import RefusalCause
from vllm_length_exporter.vllm.names import Quantity
from vllm_length_exporter.vllm.page import Page
from vllm_length_exporter.vllm.refusals import REFUSED_AS_FAULT, REFUSING_PATHS
from vllm_length_exporter.vllm.release import within

from .evidence import Evidence
from .values import Rejections, Unknown

EXACT, UPPER_BOUND, NONE = "exact", "upper_bound", "none"
LEVELS = (EXACT, UPPER_BOUND, NONE)


@dataclass(frozen=True, slots=True)
class RefusalLog:
    """What versions from `first` to `last` do with a refusal: does the log tell it, and which status counts it."""

    first: str | None
    last: str | None
    in_log: bool
    http_status: str


# Source: vLLM's entrypoints, 0.6.0 to 0.33.0, checked on live servers of 0.16, 0.20.2, 0.26, 0.32 and 0.33.
REFUSAL_LOGS = (
    RefusalLog("0.6.0", "0.17.99", in_log=True, http_status="4xx"),
    RefusalLog("0.18.0", "0.22.99", in_log=True, http_status="5xx"),
    RefusalLog("0.23.0", None, in_log=False, http_status="4xx"),
)


@dataclass(frozen=True, slots=True)
class RejectionsFound:
    """`client_errors` is (evidence, count), a bound where nothing is exact; `level` is one of LEVELS."""

    level: str
    rejections: tuple[Rejections, ...] = ()
    client_errors: tuple[str, int] | None = None
    unknown: tuple[Unknown, ...] = ()


def refusal_log(version: str | None) -> RefusalLog | None:
    """What this version does with a refusal; None where the version is unknown or too old to say."""
    return next((row for row in REFUSAL_LOGS if within(version, row.first, row.last)), None)


def rejections(evidence: Evidence, state: ServerState) -> RejectionsFound:
    """The best evidence that this server offers: middleware, then its log, then a bound."""
    page = evidence.page
    accounted = accounts.refused(page) if page is not None else None
    if accounted is not None:
        return RejectionsFound(EXACT, _counted(accounted, "middleware"))
    version = evidence.vllm_version
    row = refusal_log(version[0] if version else None)
    if state.log_seen and row is not None and row.in_log:
        return RejectionsFound(EXACT, _counted(state.counts.refusals, "server_log"))
    bound = _bound(page, state, row)
    if bound is None:
        told = row is None or row.in_log
        missing = "the middleware, or the server's log" if told else "the middleware: this version logs none"
        return RejectionsFound(NONE, unknown=(Unknown("rejections", missing),))
    return RejectionsFound(
        UPPER_BOUND,
        client_errors=bound,
        unknown=(Unknown("rejections", "the middleware: this version logs none"),),
    )


def truncations_by_cause(evidence: Evidence) -> tuple[tuple[str, int], ...]:
    """Answers cut for length by cause; empty without the middleware."""
    counts = accounts.truncated(evidence.page) if evidence.page is not None else None
    return tuple((counts or {}).items())


def clamped_requests(evidence: Evidence) -> int | None:
    """Requests whose output budget was cut to fit; None without the middleware."""
    return accounts.clamped(evidence.page) if evidence.page is not None else None


def _counted(counts: Mapping[str, int], evidence: str) -> tuple[Rejections, ...]:
    return tuple(Rejections(str(cause), evidence, counts.get(str(cause), 0)) for cause in RefusalCause)


def _bound(page: Page | None, state: ServerState, row: RefusalLog | None) -> tuple[str, int] | None:
    if state.log_seen and state.access_log_seen:
        return "access_log", state.counts.client_errors
    if page is None or not page.of(Quantity.HTTP_REQUESTS):
        return None
    usual = row.http_status[0] if row is not None else "45"  # of an unknown version, either
    count = sum(
        sample.value
        for sample in page.of(Quantity.HTTP_REQUESTS)
        if sample.labels.get("handler", "").startswith(REFUSING_PATHS)
        and sample.labels.get("method") == "POST"
        and _can_be_refusal(sample.labels.get("handler", ""), sample.labels.get("status", ""), usual)
    )
    return "http_counters", int(count)


def _can_be_refusal(handler: str, shown: str, usual: str) -> bool:
    """Statuses are grouped by vLLM ("4xx"); a server set up otherwise shows each ("400")."""
    return len(shown) == 3 and shown[0] in ("45" if handler in REFUSED_AS_FAULT else usual)
