"""What the sources themselves tell of: frozen, silent, at odds, or hidden."""

from __future__ import annotations

from vllm_length_exporter.derive.rules.case import Case, Said
from vllm_length_exporter.derive.values import State

DISAGREEMENT = 0.01


def gauges_frozen(case: Case) -> Said | None:
    if case.view.state is not State.STALLED or case.sources.page is None or case.state.progress_at is None:
        return None
    return Said(
        f"Requests are in the engine, and none of its counters has moved for "
        f"{case.now - case.state.progress_at:.0f} s.",
        "The engine hangs, or its statistics no longer reach the API server: look at its log, then restart it.",
        "vLLM's token and preemption counters",
    )


def sources_disagree(case: Case) -> Said | None:
    apart = [d for d in case.view.disagreements if d.ratio > DISAGREEMENT]
    if not apart:
        return None
    what = ", ".join(f"{d.quantity} by {d.ratio:.1%}" for d in apart)
    return Said(
        f"Sources that should agree do not: {what}.",
        "Check that the log given with --log is this server's, and that it is its newest start.",
        "the sources of the values",
    )


def rejections_unobservable(case: Case) -> Said | None:
    if case.view.rejections_observable == "exact" or case.sources.page is None:
        return None
    bound = " beyond an upper bound" if case.view.rejections_observable == "upper_bound" else ""
    return Said(
        f"Requests refused for length cannot be counted here{bound}: vLLM counts none, and this version logs none.",
        "Add the middleware: --middleware vllm_length_exporter.middleware.LengthAccounting.",
        "vLLM's version, its log and its page",
    )


def log_stats_disabled(case: Case) -> Said | None:
    page = case.sources.page
    if page is None or page.has_statistics:
        return None
    return Said(
        "vLLM's page holds no series of the engine: usage, queue and preemptions cannot be seen.",
        "Start vLLM without --disable-log-stats.",
        "/metrics",
    )


def capacity_lines_hidden(case: Case) -> Said | None:
    story = case.sources.story
    hidden = (
        story.started and story.arguments is None and story.max_seq_len is None and not story.capacity_tokens
    )
    if not hidden or any(capacity.tokens is not None for capacity in case.view.capacity):
        return None
    return Said(
        "The log tells of a start, but not its limits and capacity: its level hides them.",
        "Start vLLM with VLLM_LOGGING_LEVEL=INFO (the default), or use vLLM 0.24 or newer.",
        "the log",
    )
