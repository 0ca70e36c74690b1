"""Server: what holds requests back, and what is refused or cut."""

from __future__ import annotations

from dashboards.board import Section, line, section
from dashboards.panels import lines, stat
from dashboards.parts import (
    PER_SECOND,
    RATIO,
    REQUESTS_PER_SECOND,
    Query,
)
from dashboards.selector import Selector
from dashboards.thresholds import (
    preemption_steps,
)
from dashboards.words import (
    LIMIT_COLORS,
)
from vllm_length_exporter.collectors.limits import (
    SEQUENCES,
)
from vllm_length_exporter.collectors.rejections import CLIENT_ERRORS, OBSERVABLE, REJECTIONS
from vllm_length_exporter.collectors.requests import (
    PREEMPTIONS,
    RUNNING,
    TRUNCATIONS,
    WAITING,
    WAITING_FOR_CAPACITY,
)
from vllm_length_exporter.collectors.workload import BINDING, CLAMPED, TRUNCATIONS_BY_CAUSE

from .server_words import NO_PAGE


def pressure(select: Selector) -> Section:
    requests = lines(
        "Requests",
        "Running and waiting. 'for capacity' (vLLM 0.20.2 and newer) means the KV cache or "
        "max_num_seqs: look at the KV cache's usage to tell which.",
        Query(f"sum({select(RUNNING)})", "running"),
        Query(f"sum({select(WAITING)})", "waiting"),
        Query(f"sum({select(WAITING_FOR_CAPACITY)})", "waiting for capacity"),
        Query(f"max({select(SEQUENCES)})", "max_num_seqs", dashed=True),
        no_value=NO_PAGE,
    )
    preemptions = lines(
        "Preemptions",
        "Requests that lost their KV cache to others and are computed again. Lower --max-num-seqs or "
        "give the KV cache more memory. Lines: the alerts' thresholds.",
        Query(f"rate({select(PREEMPTIONS)}[$__rate_interval])", "engine {{engine}}"),
        unit=PER_SECOND,
        steps=preemption_steps(select.thresholds),
        no_value=NO_PAGE,
    )
    binding = lines(
        "What binds",
        "Share of the exporter's window in which each limit held requests back. kv_cache: memory; "
        "max_num_seqs: raise it if the KV cache has room; max_num_batched_tokens: steps are full.",
        Query(f"avg by (limit) ({select(BINDING)})", "{{limit}}"),
        unit=RATIO,
        maximum=1,
        stacked=True,
        colors=LIMIT_COLORS,
        no_value="Not known: needs some minutes of pages",
    )
    return section("What holds requests back", line(8, (8, requests), (8, preemptions), (8, binding)))


def refused(select: Selector) -> Section:
    refusals = lines(
        "Refused for length, by cause",
        "Requests refused, by the best evidence of this server. prompt_too_long: shorten the prompt "
        "or raise the limit; prompt_plus_output_too_long, output_too_long: let the client ask for "
        "what is left; no_room_for_output: the prompt fills the limit.",
        Query(
            f"sum by (cause, evidence) (rate({select(REJECTIONS)}[$__rate_interval]))",
            "{{cause}} ({{evidence}})",
        ),
        unit=REQUESTS_PER_SECOND,
        no_value="Not told apart: see client errors; or the server is not up",
    )
    observable = stat(
        "Refusals known",
        "exact: counted; upper_bound: only client errors are seen, refusals are among them; none: "
        "not at all. The middleware makes it exact on every version.",
        Query(f"max by (level) ({select(OBSERVABLE)}) == 1", "{{level}}"),
        text_mode="name",
        no_value=NO_PAGE,
    )
    client_errors = lines(
        "Client errors",
        "Client errors on inference requests, where refusals are not told exactly: refusals are among them.",
        Query(f"sum by (evidence) (rate({select(CLIENT_ERRORS)}[$__rate_interval]))", "{{evidence}}"),
        unit=REQUESTS_PER_SECOND,
        no_value="Refusals are known exactly, or the server is not up",
    )
    cut = lines(
        "Cut for length, and clamped",
        "finish reason length: vLLM's own count, whichever limit it was. context_full and max_tokens "
        "tell them apart, clamped counts output budgets that vLLM 0.32 cut silently; both from the "
        "middleware.",
        Query(f"sum(rate({select(TRUNCATIONS)}[$__rate_interval]))", "finish reason length"),
        Query(
            f"sum by (cause) (rate({select(TRUNCATIONS_BY_CAUSE)}[$__rate_interval]))",
            "{{cause}}",
        ),
        Query(f"sum(rate({select(CLAMPED)}[$__rate_interval]))", "clamped"),
        unit=REQUESTS_PER_SECOND,
        no_value=NO_PAGE,
    )
    return section(
        "Refused, cut, clamped",
        line(8, (8, refusals), (3, observable), (5, client_errors), (8, cut)),
    )
