"""Server: one server in full, from its length budget to its starts and findings."""

from __future__ import annotations

from dashboards.board import Board, Section, line, section
from dashboards.panels import bars, gauge, stat, table, timeline
from dashboards.parts import (
    BYTES,
    RATIO,
    TOKENS,
    Column,
    Query,
    Steps,
)
from dashboards.selector import Selector
from dashboards.thresholds import (
    refused_share_steps,
    usage_steps,
)
from dashboards.words import (
    SEVERITIES,
    SEVERITY_STEPS,
    STATES,
    severity_number,
    state_number,
)
from vllm_length_exporter.collectors.findings import UNKNOWN
from vllm_length_exporter.collectors.kv_cache import (
    CONCURRENCY,
    USAGE,
)
from vllm_length_exporter.collectors.limits import (
    MAX_MODEL_LEN,
)
from vllm_length_exporter.collectors.rejections import REJECTIONS
from vllm_length_exporter.collectors.requests import (
    FINISHED,
    TRUNCATIONS,
    WAITING,
)
from vllm_length_exporter.collectors.startup import AVAILABLE, ESTIMATED, FAILURES, NEEDED, STARTS
from vllm_length_exporter.mixin.rule import Dashboard

from .server_budget import budget, kv_cache
from .server_requests import pressure, refused
from .server_words import NO_PAGE, WITHHELD

VARIABLES = ("server", "model_name", "engine")


def board(select: Selector) -> Board:
    return Board(
        uid=Dashboard.SERVER,
        title="vLLM length / Server",
        description="One server: its length budget, its KV cache, what is refused or cut, and how its starts went.",
        sections=(
            _fine(select),
            _starts(select),
            budget(select),
            kv_cache(select),
            pressure(select),
            refused(select),
        ),
        one_server=True,
    )


def _fine(select: Selector) -> Section:
    state = stat(
        "State",
        "What the server does now. failed or down: see its starts below. stalled: requests wait and "
        "none runs.",
        Query(state_number(select), "state"),
        words=STATES,
        no_value="Not watched: see the Exporter board",
    )
    limit = stat(
        "Limit",
        "Tokens of prompt and output together that one request may have. The budget below says where "
        "it comes from.",
        Query(f"max({select(MAX_MODEL_LEN)})", "tokens"),
        unit=TOKENS,
        no_value=WITHHELD,
    )
    concurrency = stat(
        "Full-length requests that fit",
        "Requests of the full limit that the smallest engine's KV cache holds at once. Below 1 a "
        "request within the limit can never be served: lower --max-model-len.",
        Query(f"min({select(CONCURRENCY)})", "requests"),
        unit="none",
        decimals=2,
        steps=Steps("red", ((1, "green"),)),
        no_value=WITHHELD,
    )
    usage = gauge(
        "KV cache in use",
        "Share of KV-cache blocks in use, of the fullest engine.",
        Query(f"max({select(USAGE)})", "usage"),
        steps=usage_steps(select.thresholds),
        no_value=NO_PAGE,
    )
    waiting = stat(
        "Waiting",
        "Requests that wait for an engine.",
        Query(f"sum({select(WAITING)})", "requests"),
        no_value=NO_PAGE,
        spark=True,
    )
    refused = stat(
        "Refused",
        "Share of this time range's requests that were refused for length, where the server tells them exactly.",
        Query(_refused_share(select), "of all"),
        unit=RATIO,
        decimals=1,
        steps=refused_share_steps(select.thresholds),
        no_value="No exact count, or no request",
    )
    cut = stat(
        "Cut",
        "Share of this time range's answers that ended for length: the limit, or the client's own max_tokens.",
        Query(_cut_share(select), "of all"),
        unit=RATIO,
        decimals=1,
        no_value=NO_PAGE,
    )
    findings = table(
        "Findings",
        "Named problems that hold now, the gravest first. The exporter's own page and "
        "`vllm-length-exporter doctor` give each with advice and this server's numbers; the runbooks "
        "are linked above.",
        Query(severity_number(select, "finding")),
        columns=(
            Column(
                "Value",
                "Severity",
                unit="none",
                words=SEVERITIES,
                steps=SEVERITY_STEPS,
                coloured=True,
                width=120,
            ),
            Column("finding", "Finding", link=("Runbooks", select.thresholds.links.runbooks)),
        ),
        sort=("Severity", True),
        no_value="No finding: nothing that is known is wrong",
    )
    withheld = table(
        "Withheld numbers",
        "Numbers that are not shown because nothing determines them, and what would. Give the "
        "exporter that source, usually the server's log from its start.",
        Query(f"max by (quantity, missing) ({select(UNKNOWN)})"),
        columns=(Column("quantity", "Number", width=230), Column("missing", "Needs")),
        no_value="Nothing is withheld, or the server is not up",
    )
    return section(
        "Is it fine?",
        line(
            4,
            (3, state),
            (4, limit),
            (4, concurrency),
            (4, usage),
            (3, waiting),
            (3, refused),
            (3, cut),
        ),
        line(5, (10, findings), (14, withheld)),
    )


def _starts(select: Selector) -> Section:
    state = timeline(
        "State",
        "The server's states over time. A bar of starting that never turns green is a start that "
        "hangs or fails.",
        Query(state_number(select), "{{server}}"),
        words=STATES,
        no_value="Not watched: see the Exporter board",
    )
    starts = bars(
        "Starts, and failures by cause",
        "Since the exporter's own start. kv_cache_too_small: lower --max-model-len or give more "
        "memory; the numbers are beside.",
        Query(f"sum({select(STARTS)})", "starts"),
        Query(f"sum by (cause) ({select(FAILURES)}) > 0", "{{cause}}"),
        steps=Steps("blue"),
        no_value="Not watched: see the Exporter board",
    )
    failed_memory = bars(
        "Last failed start: KV cache",
        "What one request of the limit needed, and what was left of the memory for the KV cache. "
        "They go with the next start.",
        Query(f"max({select(NEEDED)})", "needed"),
        Query(f"max({select(AVAILABLE)})", "available"),
        unit=BYTES,
        no_value="No failed start that gave numbers",
    )
    estimate = stat(
        "Limit that would fit",
        "The longest --max-model-len with which the last failed start would have worked, as vLLM estimates it. "
        "Before 0.32 the estimate counts a block that no request can use: give one block less.",
        Query(f"max({select(ESTIMATED)})", "tokens"),
        unit=TOKENS,
        no_value="No failed start that gave it",
    )
    return section(
        "Starts and failures",
        line(5, (9, state), (6, starts), (5, failed_memory), (4, estimate)),
    )


def _refused_share(select: Selector) -> str:
    refused = f"sum(increase({select(REJECTIONS)}[$__range]))"
    finished = f"sum(increase({select(FINISHED)}[$__range]))"
    return f"{refused} / ({refused} + {finished} > 0)"


def _cut_share(select: Selector) -> str:
    cut = f"sum(increase({select(TRUNCATIONS)}[$__range]))"
    finished = f"sum(increase({select(FINISHED)}[$__range]))"
    return f"{cut} / ({finished} > 0)"
