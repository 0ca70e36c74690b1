"""Exporter: whether the numbers of the other boards can be believed, and what they cost."""

from __future__ import annotations

from dashboards.board import Board, Section, line, section
from dashboards.panels import bars, lines, stat, table, timeline
from dashboards.parts import BYTES, PER_SECOND, RATIO, SECONDS, ZERO_IS_GOOD, Column, Query, Word
from dashboards.selector import Selector
from dashboards.thresholds import disagreement_steps
from dashboards.words import SOURCE_UP
from vllm_length_exporter.collectors.findings import UNKNOWN
from vllm_length_exporter.collectors.kv_cache import DISAGREEMENT
from vllm_length_exporter.collectors.sources import (
    BUILD,
    DURATION,
    JOB_ERRORS,
    LAST_SUCCESS,
    LOG_EVENTS,
    LOG_LINES,
    RELOAD_OK,
    UP,
)
from vllm_length_exporter.collectors.startup import STARTS
from vllm_length_exporter.mixin.rule import Dashboard

NOT_SCRAPED = "No exporter is scraped under the job of alerts/thresholds.yml"
NO_LOG = "No server has a log source"
VARIABLES = ("server",)


def board(select: Selector) -> Board:
    return Board(
        uid=Dashboard.EXPORTER,
        title="vLLM length / Exporter",
        description="The exporter itself: its sources, what it reads from logs, what it withholds, what it costs.",
        sections=(_fine(select), _sources(select), _logs(select), _numbers(select), _cost(select)),
    )


def _fine(select: Selector) -> Section:
    exporters_up = stat(
        "Exporters up",
        "Exporters that Prometheus can scrape, of those it knows. If one is missing, its servers "
        "have no series at all.",
        Query(f"sum({select.of_exporter('up')})", "up"),
        Query(f"count({select.of_exporter('up')})", "known"),
        text_mode="value_and_name",
        no_value=NOT_SCRAPED,
    )
    servers_watched = stat(
        "Servers watched",
        "Servers in the configuration of the exporters.",
        Query(f"count({select(STARTS)})", "servers"),
        no_value=NOT_SCRAPED,
    )
    sources_lost = stat(
        "Sources lost",
        "Metrics pages, APIs and logs that cannot be read now. The table below says which; the "
        "exporter's log says why.",
        Query(f"count({select(UP)} == 0) or 0 * count({select(STARTS)})", "sources"),
        steps=ZERO_IS_GOOD,
        no_value=NOT_SCRAPED,
    )
    configuration = stat(
        "Configuration",
        "Whether the last reload worked. If not, the old configuration is in force: the exporter's "
        "log names line and key.",
        Query(f"min({select(RELOAD_OK)})", "last reload"),
        words={"1": Word("loaded", "green"), "0": Word("refused", "red")},
        no_value=NOT_SCRAPED,
    )
    own_faults = stat(
        "Faults of its own",
        "Jobs of the exporter that failed of a fault of its own in this time range. Please report "
        "what its log says.",
        Query(f"sum(increase({select(JOB_ERRORS)}[$__range])) or 0 * count({select(BUILD)})", "jobs"),
        steps=ZERO_IS_GOOD,
        decimals=0,
        no_value=NOT_SCRAPED,
    )
    version = stat(
        "Version",
        "Versions of the running exporters; more than one while an upgrade goes on.",
        Query(f"count by (version) ({select(BUILD)})", "{{version}}"),
        text_mode="name",
        no_value=NOT_SCRAPED,
    )
    return section(
        "Is it fine?",
        line(
            4,
            (4, exporters_up),
            (4, servers_watched),
            (4, sources_lost),
            (4, configuration),
            (4, own_faults),
            (4, version),
        ),
    )


def _sources(select: Selector) -> Section:
    states = timeline(
        "Read or lost",
        "Each source of each server. metrics lost: the server is down or unreachable; models lost: "
        "its API does not answer; logs lost: the file or stream is gone, so refusals and failed "
        "starts are missed.",
        Query(f"min by (server, source) ({select(UP)})", "{{server}} {{source}}"),
        words=SOURCE_UP,
        no_value="No source was tried yet",
    )
    age = lines(
        "Age of the last good read",
        "Metrics and logs are read all the time, the API every few minutes. After three intervals "
        "without a good read the series of a source are dropped.",
        Query(f"time() - max by (server, source) ({select(LAST_SUCCESS)})", "{{server}} {{source}}"),
        unit=SECONDS,
        no_value="No source was read yet",
    )
    duration = lines(
        "How long a read took",
        "Slow metrics: the server's event loop is busy. A read is given up after the timeout.",
        Query(f"max by (server, source) ({select(DURATION)})", "{{server}} {{source}}"),
        unit=SECONDS,
        no_value="No source was read yet",
    )
    return section("Sources", line(8, (12, states), (6, age), (6, duration)))


def _logs(select: Selector) -> Section:
    log_lines = lines(
        "Log lines read",
        "Lines a second. 0 while requests finish: the exporter reads the wrong file, or it was rotated away.",
        Query(f"sum by (server) (rate({select(LOG_LINES)}[$__rate_interval]))", "{{server}}"),
        unit=PER_SECOND,
        no_value=NO_LOG,
    )
    events = bars(
        "Events recognised in logs",
        "What the lines told since the exporter's start, by kind. None at a server's start: a log format "
        "that is not known.",
        Query(f"sort_desc(sum by (event) ({select(LOG_EVENTS)}))", "{{event}}"),
        no_value="No line told anything yet",
    )
    return section("Logs", line(9, (12, log_lines), (12, events)))


def _numbers(select: Selector) -> Section:
    withheld = table(
        "Withheld numbers",
        "Numbers that are not shown because nothing determines them, and what would. Usually the "
        "server's log from its start.",
        Query(f"max by (server, quantity, missing) ({select(UNKNOWN)})"),
        columns=(
            Column("server", "Server", width=200),
            Column("quantity", "Number"),
            Column("missing", "Needs"),
        ),
        sort=("Server", False),
        no_value="Nothing is withheld",
    )
    disagreement = lines(
        "Disagreement of sources",
        "The largest relative gap between sources that should agree: above the line an alert tells. "
        "The page, the API and the log may belong to different servers.",
        Query(
            f"max by (server, quantity) ({select(DISAGREEMENT)})",
            "{{server}} {{quantity}}",
        ),
        unit=RATIO,
        steps=disagreement_steps(select.thresholds),
        no_value="No number has two sources",
    )
    return section("Numbers", line(7, (14, withheld), (10, disagreement)))


def _cost(select: Selector) -> Section:
    processor = lines(
        "Processor",
        "Share of one core that the exporter uses. It grows with the number of servers and with busy logs.",
        Query(f"rate({select.of_exporter('process_cpu_seconds_total')}[$__rate_interval])", "{{instance}}"),
        unit=RATIO,
        no_value=NOT_SCRAPED,
    )
    memory = lines(
        "Memory",
        "Resident memory of the exporter. It grows with the number of servers and then stays; if it keeps growing, "
        "please report it.",
        Query(select.of_exporter("process_resident_memory_bytes"), "{{instance}}"),
        unit=BYTES,
        no_value=NOT_SCRAPED,
    )
    scrape_time = lines(
        "Time of a scrape",
        "How long Prometheus takes to scrape the exporter: it answers from memory.",
        Query(f"max by (instance) ({select.of_exporter('scrape_duration_seconds')})", "{{instance}}"),
        unit=SECONDS,
        no_value=NOT_SCRAPED,
    )
    scrape_size = lines(
        "Series of a scrape",
        "Samples that one scrape of the exporter brings: some 100 for each engine.",
        Query(f"max by (instance) ({select.of_exporter('scrape_samples_scraped')})", "{{instance}}"),
        no_value=NOT_SCRAPED,
    )
    return section("Cost", line(7, (6, processor), (6, memory), (6, scrape_time), (6, scrape_size)))
