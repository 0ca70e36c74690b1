"""Named problems that hold now (design section 8), each with advice that carries the server's own numbers.

A rule looks at what was derived and says nothing where a number it needs is withheld.
To add a finding: a rule in `rules/`, a row in RULES, a runbook page, and an alert or a reason why there is none.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from vllm_length_exporter.server import ServerState
from vllm_length_exporter.vllm.events import StartFailure as Cause

from .evidence import Evidence
from .rules import capacity, lengths, limits, sources
from .rules import startup as start
from .rules.case import Case, Said
from .values import Finding, ServerView, Severity


@dataclass(frozen=True, slots=True)
class Rule:
    id: str
    severity: Severity
    check: Callable[[Case], Said | None]


def findings(view: ServerView, evidence: Evidence, state: ServerState, now: float) -> ServerView:
    """The view with every finding that holds, in the order of RULES."""
    case = Case(view, evidence, state, now)
    found = tuple(
        Finding(rule.id, rule.severity, said.summary, said.advice, said.evidence)
        for rule in RULES
        if (said := rule.check(case)) is not None
    )
    return replace(view, findings=found)


# fmt: off
RULES = (
    Rule("startup_kv_cache_too_small", Severity.CRITICAL, start.failed(Cause.KV_CACHE_TOO_SMALL, start.advise_memory)),
    Rule("startup_no_kv_memory", Severity.CRITICAL, start.failed(Cause.NO_KV_MEMORY, start.advise_no_memory)),
    Rule("startup_limit_above_window", Severity.CRITICAL, start.failed(Cause.LIMIT_ABOVE_WINDOW, start.advise_window)),
    Rule("startup_memory_busy", Severity.CRITICAL, start.failed(Cause.MEMORY_BUSY, start.advise_busy)),
    Rule("startup_no_kv_memory", Severity.CRITICAL, start.failed(Cause.AUTO_FIT_IMPOSSIBLE, start.advise_no_memory)),
    Rule(
        "batched_tokens_below_limit",
        Severity.CRITICAL,
        start.failed(Cause.BATCHED_TOKENS_BELOW_LIMIT, start.advise_batched),
    ),
    Rule("startup_killed", Severity.CRITICAL, start.startup_killed),
    Rule("crash_loop", Severity.CRITICAL, start.crash_loop),
    Rule("capacity_below_limit", Severity.CRITICAL, capacity.capacity_below_limit),
    Rule("admission_stall", Severity.CRITICAL, capacity.admission_stall),
    Rule("gauges_frozen", Severity.CRITICAL, sources.gauges_frozen),
    Rule("kv_cache_saturated", Severity.WARNING, capacity.kv_cache_saturated),
    Rule("preempting", Severity.WARNING, capacity.preempting),
    Rule("length_rejections", Severity.WARNING, lengths.length_rejections),
    Rule("silent_clamping", Severity.WARNING, lengths.silent_clamping),
    Rule("truncation_high", Severity.INFO, lengths.truncation_high),
    Rule("binding_max_num_seqs", Severity.WARNING, capacity.binding_max_num_seqs),
    Rule("batched_tokens_below_limit", Severity.WARNING, limits.batched_tokens_below_limit),
    Rule("limit_beyond_window", Severity.WARNING, limits.limit_beyond_window),
    Rule("sources_disagree", Severity.WARNING, sources.sources_disagree),
    Rule("limit_far_above_workload", Severity.INFO, lengths.limit_far_above_workload),
    Rule("auto_fit_reduced", Severity.INFO, limits.auto_fit_reduced),
    Rule("limit_below_window", Severity.INFO, limits.limit_below_window),
    Rule("rejections_unobservable", Severity.INFO, sources.rejections_unobservable),
    Rule("log_stats_disabled", Severity.WARNING, sources.log_stats_disabled),
    Rule("capacity_lines_hidden", Severity.INFO, sources.capacity_lines_hidden),
)
# fmt: on
