"""Fleet: every server, the worst first. One look tells which server and which limit."""

from __future__ import annotations

from dashboards.board import Board, Section, line, section
from dashboards.links import to_server, to_server_of_series
from dashboards.panels import lines, stat, table, timeline
from dashboards.parts import (
    PER_SECOND,
    RATIO,
    REQUESTS_PER_SECOND,
    TOKENS,
    ZERO_IS_GOOD,
    Column,
    Query,
    Steps,
)
from dashboards.selector import Selector
from dashboards.thresholds import binding_steps, preemption_steps, usage_steps
from dashboards.words import (
    SEVERITIES,
    SEVERITY_STEPS,
    STATE_NAMES,
    STATES,
    severity_number,
    state_number,
)
from vllm_length_exporter.collectors.findings import FINDING
from vllm_length_exporter.collectors.kv_cache import CAPACITY, CONCURRENCY, USAGE
from vllm_length_exporter.collectors.limits import MAX_MODEL_LEN
from vllm_length_exporter.collectors.rejections import REJECTIONS
from vllm_length_exporter.collectors.requests import PREEMPTIONS, RUNNING, WAITING
from vllm_length_exporter.collectors.startup import STARTS, STATE, VLLM_INFO
from vllm_length_exporter.collectors.workload import BINDING, RECOMMENDED
from vllm_length_exporter.derive.values import State
from vllm_length_exporter.mixin.rule import Dashboard

_BROKEN = 'state=~"' + "|".join((State.FAILED, State.DOWN, State.STALLED)) + '"'
_SOME_LIMIT = 'limit!="nothing"'

NO_EXPORTER = "No exporter is scraped: see the Exporter board"
NO_PAGE = "No server is up, or its page cannot be read"
NO_COUNT = "No server tells refusals apart: see client errors on the Server board"
VARIABLES = ("server", "model_name")


def board(select: Selector) -> Board:
    return Board(
        uid=Dashboard.FLEET,
        title="vLLM length / Fleet",
        description="Every vLLM server: how long a request may be, how many fit, what is refused, and what binds.",
        sections=(_fine(select), _servers(select), _pressure(select), _states(select)),
    )


def _fine(select: Selector) -> Section:
    nothing = f"0 * count({select(STARTS)})"  # 0 as long as the exporter is scraped
    servers_up = stat(
        "Servers up",
        "Servers that serve, of all that are watched. If some are missing, look for them in the table below.",
        Query(f"sum({select(STATE, state='up')}) or {nothing}", "up"),
        Query(f"count({select(STARTS)})", "watched"),
        no_value=NO_EXPORTER,
        text_mode="value_and_name",
    )
    broken = stat(
        "Failed, down or stalled",
        "Servers that cannot serve. Open the server: its board says why the start failed, with the numbers.",
        Query(f"sum({select(STATE, _BROKEN)}) or {nothing}", "servers"),
        steps=ZERO_IS_GOOD,
        no_value=NO_EXPORTER,
    )
    critical = stat(
        "Critical findings",
        "Named problems that need somebody now. Each is in the table below and has a runbook.",
        Query(f"count({select(FINDING, severity='critical')}) or {nothing}", "findings"),
        steps=ZERO_IS_GOOD,
        no_value=NO_EXPORTER,
    )
    waiting = stat(
        "Waiting",
        "Requests that wait for an engine, all servers. If it grows, look below for what holds them back.",
        Query(f"sum({select(WAITING)})", "requests"),
        no_value=NO_PAGE,
        spark=True,
    )
    refused = stat(
        "Refused for length",
        "Requests refused for length, a second, where a server tells them exactly. Open the server "
        "for the causes.",
        Query(f"sum(rate({select(REJECTIONS)}[$__rate_interval]))", "refused"),
        unit=REQUESTS_PER_SECOND,
        no_value=NO_COUNT,
        decimals=2,
        spark=True,
    )
    preemptions = stat(
        "Preemptions",
        "Requests that lost their KV cache to others and are computed again, a second. If it stays "
        "above 0, lower --max-num-seqs or give the KV cache more memory.",
        Query(f"sum(rate({select(PREEMPTIONS)}[$__rate_interval]))", "preemptions"),
        unit=PER_SECOND,
        steps=preemption_steps(select.thresholds),
        no_value=NO_PAGE,
        decimals=2,
        spark=True,
    )
    return section(
        "Is it fine?",
        line(
            4,
            (4, servers_up),
            (4, broken),
            (4, critical),
            (4, waiting),
            (4, refused),
            (4, preemptions),
        ),
    )


def _servers(select: Selector) -> Section:
    usage = usage_steps(select.thresholds)
    columns = (
        Column("server", "Server", width=170, link=to_server()),
        Column(
            "Value #A", "Worst", unit="none", words=SEVERITIES, steps=SEVERITY_STEPS, coloured=True, width=75
        ),
        Column("finding", "Problem", width=190),
        Column("state", "State", words=STATE_NAMES, coloured=True, width=75),
        Column("version", "vLLM", width=70),
        Column("Value #E", "Limit", unit=TOKENS, width=85),
        Column("Value #F", "Recommended", unit=TOKENS, width=110),
        Column("Value #G", "Capacity", unit=TOKENS, width=90),
        Column(
            "Value #H",
            "Fit at once",
            unit="none",
            steps=Steps("red", ((1, "text"),)),
            coloured=True,
            decimals=2,
            width=95,
        ),
        Column("Value #I", "KV usage", unit=RATIO, steps=usage, bar=True, maximum=1, decimals=0, width=130),
        Column("Value #J", "Running", unit=TOKENS, width=80),
        Column("Value #K", "Waiting", unit=TOKENS, width=80),
        Column("limit", "Held back by", width=120),
        Column(
            "Value #M",
            "Preemptions",
            unit=PER_SECOND,
            steps=preemption_steps(select.thresholds),
            coloured=True,
            decimals=2,
            width=105,
        ),
        Column("Value #N", "Refused", unit=REQUESTS_PER_SECOND, decimals=2, width=95),
    )
    by_server = "by (server)"
    servers = table(
        "Servers",
        "Sorted by the gravest finding. Limit and capacity are tokens; capacity, and requests of the "
        "full limit that fit at once, are of the smallest engine; usage is of the fullest. An empty "
        "cell is a number that the server does not tell: its board names what is missing. Click a "
        "server to open it.",
        Query(f"{severity_number(select)} or 0 * max {by_server} ({select(STARTS)})"),
        Query(f"topk {by_server} (1, {severity_number(select, 'finding')})"),
        Query(f"max by (server, state) ({select(STATE)} == 1)"),
        Query(f"max by (server, version) ({select(VLLM_INFO)})"),
        Query(f"max {by_server} ({select(MAX_MODEL_LEN)})"),
        Query(f"max {by_server} ({select(RECOMMENDED, coverage='0.99')})"),
        Query(f"min {by_server} ({select(CAPACITY)})"),
        Query(f"min {by_server} ({select(CONCURRENCY)})"),
        Query(f"max {by_server} ({select(USAGE)})"),
        Query(f"sum {by_server} ({select(RUNNING)})"),
        Query(f"sum {by_server} ({select(WAITING)})"),
        Query(f"topk {by_server} (1, max by (server, limit) ({select(BINDING, _SOME_LIMIT)}) > 0)"),
        Query(f"sum {by_server} (rate({select(PREEMPTIONS)}[$__rate_interval]))"),
        Query(f"sum {by_server} (rate({select(REJECTIONS)}[$__rate_interval]))"),
        no_value=NO_EXPORTER,
        columns=columns,
        sort=("Worst", True),
    )
    return section("Servers, worst first", line(8, (24, servers)))


def _pressure(select: Selector) -> Section:
    usage = lines(
        "KV cache in use, fullest engine",
        "Share of KV-cache blocks in use. At the red line requests wait or are preempted: send less, "
        "lower --max-num-seqs, or give the KV cache more memory.",
        Query(f"max by (server) ({select(USAGE)})", "{{server}}"),
        unit=RATIO,
        maximum=1,
        steps=usage_steps(select.thresholds),
        no_value=NO_PAGE,
    )
    waiting = lines(
        "Waiting requests",
        "Requests that wait for an engine. Waiting with a KV cache that has room points to --max-num-seqs.",
        Query(f"sum by (server) ({select(WAITING)})", "{{server}}"),
        no_value=NO_PAGE,
    )
    binding = lines(
        "Share of time a limit held requests back",
        "Which limit binds, by the share of the exporter's window in which it did. kv_cache: memory; "
        "max_num_seqs: raise it if the KV cache has room; max_num_batched_tokens: a step is full of "
        "prompts.",
        Query(
            f"max by (server, limit) ({select(BINDING, _SOME_LIMIT)}) > 0",
            "{{server}} {{limit}}",
        ),
        unit=RATIO,
        maximum=1,
        steps=binding_steps(select.thresholds),
        no_value="No limit held requests back, or no server is up",
    )
    refused = lines(
        "Refused for length",
        "Requests refused for length by cause, where a server tells them exactly. prompt_too_long: "
        "shorten prompts or raise the limit; the others: let the client ask for less output.",
        Query(
            f"sum by (server, cause) (rate({select(REJECTIONS)}[$__rate_interval])) > 0",
            "{{server}} {{cause}}",
        ),
        unit=REQUESTS_PER_SECOND,
        no_value="Nothing was refused that a server tells exactly",
    )
    preemptions = lines(
        "Preemptions",
        "Requests that lost their KV cache to others and are computed again. Lines: the alerts' thresholds.",
        Query(f"sum by (server) (rate({select(PREEMPTIONS)}[$__rate_interval]))", "{{server}}"),
        unit=PER_SECOND,
        steps=preemption_steps(select.thresholds),
        no_value=NO_PAGE,
    )
    return section(
        "What holds requests back",
        line(8, (8, usage), (8, waiting), (8, binding)),
        line(8, (12, refused), (12, preemptions)),
    )


def _states(select: Selector) -> Section:
    states = timeline(
        "State of each server",
        "failed: the last start failed; stalled: requests wait and none runs, or the page does not "
        "answer; down: the process is gone. Click a bar to open the server.",
        Query(state_number(select), "{{server}}"),
        words=STATES,
        no_value=NO_EXPORTER,
        link=to_server_of_series(),
    )
    return section("States", line(8, (24, states)))
