"""Workload: what lengths the requests have, and which limit and concurrency that asks for."""

from __future__ import annotations

from dashboards.board import Board, Section, line, section
from dashboards.panels import bars, lines, stat, table
from dashboards.parts import BLUE, FACTOR, RATIO, REQUESTS_PER_SECOND, TOKENS, Column, Query, Steps
from dashboards.selector import Selector
from dashboards.thresholds import limit_by_workload_steps, truncated_share_steps
from vllm_length_exporter.collectors.kv_cache import CONCURRENCY
from vllm_length_exporter.collectors.limits import MAX_MODEL_LEN
from vllm_length_exporter.collectors.requests import FINISHED, RUNNING, TRUNCATIONS, WAITING
from vllm_length_exporter.collectors.workload import (
    AT_MOST,
    CLAMPED,
    CONCURRENCY_AT,
    RECOMMENDED,
    TRUNCATIONS_BY_CAUSE,
)
from vllm_length_exporter.mixin.rule import Dashboard

FEW = "Too few requests finished in the exporter's workload window"
NO_LIMIT = "The limit is not known: see the Server board"
NO_PAGE = "No page: the server is not up, or cannot be read"
SHARES = (("0.5", "50 %"), ("0.9", "90 %"), ("0.95", "95 %"), ("0.99", "99 %"), ("1", "all"))
VARIABLES = ("server", "model_name", "engine")


def board(select: Selector) -> Board:
    return Board(
        uid=Dashboard.WORKLOAD,
        title="vLLM length / Workload",
        description="The lengths of real requests against the limit: which limit would do, and how many would fit.",
        sections=(_answer(select), _lengths(select), _concurrency(select), _cut(select)),
        one_server=True,
    )


def _answer(select: Selector) -> Section:
    share = f"{select.thresholds.limit_far_above_workload.share:g}"
    quantile = f"max({select(AT_MOST, part='total', share=share)})"
    limit = stat(
        "Limit",
        "Tokens of prompt and output together that one request may have now.",
        Query(f"max({select(MAX_MODEL_LEN)})", "tokens"),
        unit=TOKENS,
        no_value=NO_LIMIT,
    )
    recommended_for_99 = stat(
        "Recommended for 99 %",
        "The smallest limit that would have served 99 % of the finished requests. Set "
        "--max-model-len near it, with room for what you expect.",
        Query(f"max({select(RECOMMENDED, coverage='0.99')})", "tokens"),
        unit=TOKENS,
        no_value=FEW,
    )
    factor = stat(
        "Limit / what requests need",
        f"The limit over what {float(share):.0%} of the requests stay within. Far above 1 the limit is room that "
        "nobody uses: each full-length request that must fit costs KV cache. An alert tells of it.",
        Query(f"max({select(MAX_MODEL_LEN)}) / {quantile}", "times"),
        unit=FACTOR,
        decimals=1,
        steps=limit_by_workload_steps(select.thresholds),
        no_value=FEW,
    )
    finished = stat(
        "Finished",
        "Requests that finished in this time range.",
        Query(f"sum(increase({select(FINISHED)}[$__range]))", "requests"),
        decimals=0,
        no_value=NO_PAGE,
    )
    ended_for_length = stat(
        "Ended for length",
        "Share of the answers of this time range that ended for length: the limit, or the client's "
        "own max_tokens.",
        Query(
            f"sum(increase({select(TRUNCATIONS)}[$__range])) / (sum(increase({select(FINISHED)}[$__range])) > 0)",
            "of all",
        ),
        unit=RATIO,
        decimals=1,
        steps=truncated_share_steps(select.thresholds),
        no_value="Nothing finished in this time range",
    )
    concurrency = stat(
        "Full-length requests that fit",
        "Requests of the full limit that the smallest engine's KV cache holds at once.",
        Query(f"min({select(CONCURRENCY)})", "requests"),
        unit="none",
        decimals=2,
        steps=Steps("red", ((1, "green"),)),
        no_value="Not known: see the Server board",
    )
    return section(
        "Which limit does the workload ask for?",
        line(
            4,
            (4, limit),
            (4, recommended_for_99),
            (4, factor),
            (4, finished),
            (4, ended_for_length),
            (4, concurrency),
        ),
    )


def _lengths(select: Selector) -> Section:
    total = lines(
        "Prompt and output together, by share of requests (tokens)",
        "What half, 90 %, ... of the finished requests stay within. Lines near the dashed limit: "
        "raise it. All lines far below it: a lower limit lets more requests fit.",
        *(Query(f"max({select(AT_MOST, part='total', share=share)})", name) for share, name in SHARES),
        Query(f"max({select(MAX_MODEL_LEN)})", "limit", dashed=True),
        unit=TOKENS,
        stepped=True,
        no_value=FEW,
    )
    joint = table(
        "Joint distribution (tokens)",
        "What a share of the requests stays within, by part. total is prompt and output of one "
        "request together, so it is less than the sum of the two: exact to its buckets with the "
        "middleware, without it a bound.",
        Query(f"max by (part, share) ({select(AT_MOST)})"),
        columns=(
            Column("part\\share", "Part", width=110),
            *(Column(share, name, unit=TOKENS) for share, name in SHARES),
        ),
        before=(
            {
                "id": "groupingToMatrix",
                "options": {"columnField": "share", "rowField": "part", "valueField": "Value"},
            },
        ),
        no_value=FEW,
    )
    recommended_by_share = bars(
        "Limit for a share of requests (tokens)",
        "The smallest --max-model-len that would have served that share of the finished requests.",
        *(
            Query(f"max({select(RECOMMENDED, coverage=share)})", name)
            for share, name in SHARES
            if share != "0.5"
        ),
        Query(f"max({select(MAX_MODEL_LEN)})", "limit now"),
        no_value=FEW,
    )
    return section(
        "Lengths of requests (bucket edges: at most so many tokens)",
        line(9, (12, total), (7, joint), (5, recommended_by_share)),
    )


def _concurrency(select: Selector) -> Section:
    what_if = table(
        "If requests were this long",
        "Whole requests of that many tokens that the KV cache holds at once, all engines together, "
        "from the measured blocks. Use it to weigh a limit against concurrency.",
        Query(f"sum by (tokens) (floor({select(CONCURRENCY_AT)}))"),
        columns=(
            Column("tokens", "Tokens a request", unit=TOKENS, width=160),
            Column("Value", "Fit at once", unit=TOKENS, steps=BLUE, bar=True),
        ),
        before=(
            {
                "id": "convertFieldType",
                "options": {
                    "conversions": [{"targetField": "tokens", "destinationType": "number"}],
                    "fields": {},
                },
            },
        ),
        sort=("Tokens a request", False),
        no_value="Withheld: what a token costs at another length is not known for this model",
    )
    at_once = lines(
        "Requests at once",
        "Running and waiting requests, against those of the full limit that fit. Running above the "
        "dashed line works because requests are shorter than the limit.",
        Query(f"sum({select(RUNNING)})", "running"),
        Query(f"sum({select(WAITING)})", "waiting"),
        Query(f"sum({select(CONCURRENCY)})", "full-length requests that fit", dashed=True),
        no_value=NO_PAGE,
    )
    return section("How many fit at once", line(9, (10, what_if), (14, at_once)))


def _cut(select: Selector) -> Section:
    finished = lines(
        "Finished, and ended for length",
        "All finished requests, and those that ended for length. If most end for length, clients ask "
        "for too little or the limit is too low.",
        Query(f"sum(rate({select(FINISHED)}[$__rate_interval]))", "finished"),
        Query(f"sum(rate({select(TRUNCATIONS)}[$__rate_interval]))", "ended for length"),
        unit=REQUESTS_PER_SECOND,
        no_value=NO_PAGE,
    )
    causes = lines(
        "Which limit ended them",
        "context_full: the server's limit; max_tokens: the client's; clamped: output budgets that "
        "vLLM 0.32 cut silently. From the middleware.",
        Query(
            f"sum by (cause) (rate({select(TRUNCATIONS_BY_CAUSE)}[$__rate_interval]))",
            "{{cause}}",
        ),
        Query(f"sum(rate({select(CLAMPED)}[$__rate_interval]))", "clamped"),
        unit=REQUESTS_PER_SECOND,
        no_value="Needs the middleware in vLLM (--middleware)",
    )
    return section("Ended for length", line(7, (12, finished), (12, causes)))
