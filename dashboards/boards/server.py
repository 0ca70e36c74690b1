"""Server: one server in full, from its length budget to its starts and findings."""

from __future__ import annotations

from dashboards.board import Board, Section, line, section
from dashboards.panels import (
    BYTES,
    PER_SECOND,
    PLAIN,
    RATIO,
    REQUESTS_PER_SECOND,
    TOKENS,
    Column,
    Query,
    Steps,
    bars,
    gauge,
    lines,
    stat,
    table,
    timeline,
)
from dashboards.selector import Selector
from dashboards.thresholds import (
    preemption_steps,
    refused_share_steps,
    usage_steps,
)
from dashboards.words import (
    LIMIT_COLORS,
    SEVERITIES,
    SEVERITY_STEPS,
    STATES,
    severity_number,
    state_number,
)
from vllm_length_exporter.collectors.findings import UNKNOWN
from vllm_length_exporter.collectors.kv_cache import (
    BLOCK_SIZE,
    BLOCKS,
    BYTES_PER_TOKEN,
    CAPACITY,
    CAPACITY_INFO,
    CONCURRENCY,
    DISAGREEMENT,
    FREE,
    MEMORY,
    USAGE,
    USED,
)
from vllm_length_exporter.collectors.limits import (
    BATCHED_TOKENS,
    MAX_MODEL_LEN,
    MAX_MODEL_LEN_INFO,
    REQUESTED,
    SEQUENCES,
    WINDOW,
)
from vllm_length_exporter.collectors.rejections import CLIENT_ERRORS, OBSERVABLE, REJECTIONS
from vllm_length_exporter.collectors.requests import (
    FINISHED,
    PREEMPTIONS,
    RUNNING,
    TRUNCATIONS,
    WAITING,
    WAITING_FOR_CAPACITY,
)
from vllm_length_exporter.collectors.startup import AVAILABLE, ESTIMATED, FAILURES, NEEDED, STARTS, VLLM_INFO
from vllm_length_exporter.collectors.workload import AT_MOST, BINDING, CLAMPED, TRUNCATIONS_BY_CAUSE
from vllm_length_exporter.mixin.rule import Dashboard

WITHHELD = "Not known: see the withheld numbers below"
NO_PAGE = "No page: the server is not up, or cannot be read"
FEW = "Too few requests finished"


def board(select: Selector) -> Board:
    return Board(
        uid=Dashboard.SERVER,
        title="vLLM length / Server",
        description="One server: its length budget, its KV cache, what is refused or cut, and how its starts went.",
        sections=(
            _fine(select),
            _budget(select),
            _kv_cache(select),
            _pressure(select),
            _refused(select),
            _starts(select),
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
        "Share of requests refused for length over the last minutes, where the server tells them exactly.",
        Query(_refused_share(select), "of all"),
        unit=RATIO,
        decimals=1,
        steps=refused_share_steps(select.thresholds),
        no_value="No exact count",
    )
    cut = stat(
        "Cut",
        "Share of answers that ended for length: the limit, or the client's own max_tokens.",
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
            Column("server", "Server", width=220),
            Column(
                "Value",
                "Severity",
                unit="none",
                words=SEVERITIES,
                steps=SEVERITY_STEPS,
                coloured=True,
                width=120,
            ),
            Column("finding", "Finding"),
        ),
        sort=("Severity", True),
        no_value="No finding: nothing that is known is wrong",
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
        line(5, (24, findings)),
    )


def _budget(select: Selector) -> Section:
    budget = bars(
        "From the model's window to what fits (tokens)",
        "window: what the model was made for; requested: --max-model-len; limit: what is enforced "
        "now; KV cache: what the smallest engine holds in all; requests: what 99 % of them stay "
        "within. A KV cache below the limit means that a request within the limit can never be "
        "served.",
        Query(f"max({select(WINDOW)})", "window"),
        Query(f"max({select(REQUESTED)})", "requested"),
        Query(f"max({select(MAX_MODEL_LEN)})", "limit"),
        Query(f"min({select(CAPACITY)})", "KV cache"),
        Query(f"max({select(AT_MOST, part='total', share='0.99')})", "requests (99 %)"),
        no_value=WITHHELD,
    )
    origin = table(
        "Where the numbers come from",
        "mode: whether the limit was given (explicit), chosen by vLLM (auto) or neither (default). "
        "Sources: the API, the metrics page's cache_config, or the log.",
        Query(f"max by (server, mode, source) ({select(MAX_MODEL_LEN_INFO)})"),
        Query(
            f'max by (server, capacity_source) (label_replace({select(CAPACITY_INFO)}, "capacity_source", "$1", '
            '"source", "(.*)"))'
        ),
        Query(f"max by (server, version, engine_generation) ({select(VLLM_INFO)})"),
        columns=(
            Column("version", "vLLM"),
            Column("mode", "Mode"),
            Column("source", "Limit from"),
            Column("capacity_source", "Capacity from"),
        ),
        no_value=WITHHELD,
    )
    withheld = table(
        "Withheld numbers",
        "Numbers that are not shown because nothing determines them, and what would. Give the "
        "exporter that source, usually the server's log from its start.",
        Query(f"max by (quantity, missing) ({select(UNKNOWN)})"),
        columns=(Column("quantity", "Number"), Column("missing", "Needs")),
        no_value="Nothing is withheld",
    )
    measured = stat(
        "As measured",
        "KV cache of one engine: memory set aside by one worker, what a token costs in it, tokens, "
        "blocks and their size; and the scheduler's limits for one step. Disagreement: the largest "
        "gap between sources that should agree.",
        Query(f"min({select(MEMORY)})", "KV memory", unit=BYTES),
        Query(f"max({select(BYTES_PER_TOKEN)})", "a token", unit=BYTES),
        Query(f"min({select(CAPACITY)})", "capacity, tokens"),
        Query(f"min({select(BLOCKS)})", "usable blocks"),
        Query(f"max({select(BLOCK_SIZE)})", "tokens a block"),
        Query(f"max({select(SEQUENCES)})", "max_num_seqs"),
        Query(f"max({select(BATCHED_TOKENS)})", "max_num_batched_tokens"),
        Query(f"max({select(DISAGREEMENT)})", "disagreement", unit=RATIO),
        no_value=WITHHELD,
        steps=PLAIN,
        text_mode="value_and_name",
    )
    return section(
        "Length budget",
        line(8, (12, budget), (6, origin), (6, withheld)),
        line(4, (24, measured)),
    )


def _kv_cache(select: Selector) -> Section:
    usage = lines(
        "In use",
        "Share of KV-cache blocks in use. Above the red line, with requests waiting or preempted, an "
        "alert pages.",
        Query(select(USAGE), "engine {{engine}}"),
        unit=RATIO,
        maximum=1,
        steps=usage_steps(select.thresholds),
        no_value=NO_PAGE,
    )
    headroom = lines(
        "Headroom (tokens)",
        "Tokens that still fit. Below the dashed line a request of the full limit has to wait.",
        Query(select(FREE), "free, engine {{engine}}"),
        Query(f"max({select(MAX_MODEL_LEN)})", "one request of the limit", dashed=True),
        unit=TOKENS,
        no_value=WITHHELD,
    )
    blocks = lines(
        "Blocks",
        "Blocks in use, of those that requests can use. A request takes a whole block for its last "
        "few tokens.",
        Query(select(USED), "in use, engine {{engine}}"),
        Query(f"min({select(BLOCKS)})", "usable in one engine", dashed=True),
        no_value=WITHHELD,
    )
    return section("KV cache", line(8, (8, usage), (8, headroom), (8, blocks)))


def _pressure(select: Selector) -> Section:
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


def _refused(select: Selector) -> Section:
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
        no_value="This server does not tell refusals apart: see client errors",
    )
    observable = stat(
        "How refusals are known",
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
        no_value="Refusals are known exactly",
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
        line(8, (8, refusals), (4, observable), (4, client_errors), (8, cut)),
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
        "Last failed start: limit that fits",
        "The longest --max-model-len that would have started, as vLLM estimates it. The null block "
        "is in it: give one block less.",
        Query(f"max({select(ESTIMATED)})", "tokens"),
        unit=TOKENS,
        no_value="No failed start that gave it",
    )
    return section(
        "Starts and failures",
        line(7, (9, state), (4, starts), (6, failed_memory), (5, estimate)),
    )


def _refused_share(select: Selector) -> str:
    refused = f"sum(rate({select(REJECTIONS)}[$__rate_interval]))"
    finished = f"sum(rate({select(FINISHED)}[$__rate_interval]))"
    return f"{refused} / ({refused} + {finished} > 0)"


def _cut_share(select: Selector) -> str:
    cut = f"sum(rate({select(TRUNCATIONS)}[$__rate_interval]))"
    finished = f"sum(rate({select(FINISHED)}[$__rate_interval]))"
    return f"{cut} / ({finished} > 0)"
