"""Alerts on the watch itself: sources that contradict each other or are lost, and the exporter."""

from __future__ import annotations

from collections.abc import Iterator

from vllm_length_exporter.collectors.kv_cache import DISAGREEMENT
from vllm_length_exporter.collectors.requests import FINISHED
from vllm_length_exporter.collectors.sources import BUILD, JOB_ERRORS, LOG_LINES, RELOAD_OK, UP
from vllm_length_exporter.derive.values import Severity, State

from .query import Query
from .rule import Alert, Dashboard

SERVER = "{{ $labels.server }}"
EXPORTER = "{{ $labels.instance }}"
SERVING = (State.UP, State.SLEEPING, State.STALLED)


def alerts(query: Query) -> Iterator[Alert]:
    yield _disagree(query)
    yield _no_statistics(query)
    yield _source(
        query,
        "SourceDown",
        'source!="logs"',
        SERVING,
        "A source of a server's numbers cannot be read.",
        f"{SERVER}: {{{{ $labels.source }}}} gave nothing good lately, and the server is there. "
        f"Series that came from it are withheld.",
        "Ask the source yourself: curl http://SERVER/metrics and /v1/models; the exporter's log names the error.",
        query.thresholds.source_down.hold,
    )
    yield _source(
        query,
        "LogLost",
        'source="logs"',
        (*SERVING, State.STARTING),
        "The server's log cannot be read any more.",
        f"{SERVER}: failed starts and, on versions that log them, refused requests are not seen now.",
        "Check the path, the permissions and the rotation of the log that the exporter was given.",
        query.thresholds.log_lost.hold,
    )
    yield _silent(query)
    yield from _exporter(query)


def _disagree(query: Query) -> Alert:
    limit = query.thresholds.sources_disagree
    return Alert(
        "SourcesDisagree",
        Severity.WARNING,
        f"{query.recent(DISAGREEMENT)} > {limit.gap:g}",
        "Two sources tell different numbers of the same server.",
        f"{SERVER}: {{{{ $labels.quantity }}}} differs by {{{{ $value | humanizePercentage }}}} between its sources.",
        "Check that the log given to the exporter is this server's, and of its newest start.",
        limit.hold,
        dashboard=Dashboard.EXPORTER,
        findings=("sources_disagree",),
    )


def _no_statistics(query: Query) -> Alert:
    return Alert(
        "LogStatsDisabled",
        Severity.WARNING,
        query.finding("log_stats_disabled"),
        "The server shows no statistics of its engine.",
        f"{SERVER}: usage, queue, preemptions and finished requests cannot be seen, and alerts on them are blind.",
        "Start vLLM without --disable-log-stats.",
        query.thresholds.log_stats_disabled.hold,
        dashboard=Dashboard.EXPORTER,
        findings=("log_stats_disabled",),
    )


def _source(
    query: Query,
    name: str,
    which: str,
    states: tuple[State, ...],
    summary: str,
    description: str,
    action: str,
    hold: str,
) -> Alert:
    return Alert(
        name,
        Severity.WARNING,
        # with the server gone its sources are gone too: that has an alert of its own
        f"{query.recent(UP, which)} == 0\nand ignoring (source, state)\n{query.state(*states)}",
        summary,
        description,
        action,
        hold,
        dashboard=Dashboard.EXPORTER,
    )


def _silent(query: Query) -> Alert:
    limit = query.thresholds.log_silent
    finished = f"sum without (model_name, engine) (increase({query(FINISHED)}[{limit.window}]))"
    return Alert(
        "LogSilent",
        Severity.INFO,
        f"increase({query(LOG_LINES)}[{limit.window}]) == 0\nand\n{finished} >= {limit.finished}",
        "The server works and its log says nothing.",
        f"{SERVER}: no line in {limit.window}, although at least {limit.finished} requests finished meanwhile. "
        f"The log may be written elsewhere since a rotation.",
        "Compare the file that vLLM writes to with the one that the exporter was given.",
        dashboard=Dashboard.EXPORTER,
    )


def _exporter(query: Query) -> Iterator[Alert]:
    thresholds = query.thresholds
    selector = f"up{{{thresholds.exporter_selector}}}"
    yield Alert(
        "ExporterDown",
        Severity.CRITICAL,
        f"max_over_time({selector}[{thresholds.missed_scrapes}]) == 0",
        "The exporter does not answer: its servers are not watched.",
        f"{EXPORTER}: no scrape succeeded lately. No alert on its servers can fire.",
        "Look at the exporter's own log and whether its process runs.",
        thresholds.exporter_down.hold,
        dashboard=Dashboard.EXPORTER,
        per_server=False,
    )
    yield Alert(
        "ExporterAbsent",
        Severity.CRITICAL,
        f"absent({query.recent(BUILD)})",
        "No exporter is scraped at all: no server is watched.",
        "Prometheus has no series of any exporter. No alert of this kind can fire.",
        "Check Prometheus' scrape configuration and its targets page; then that the exporters run.",
        thresholds.exporter_absent.hold,
        dashboard=Dashboard.EXPORTER,
        per_server=False,
    )
    yield Alert(
        "ConfigReloadFailed",
        Severity.WARNING,
        f"{query.recent(RELOAD_OK)} == 0",
        "The exporter could not read its changed configuration.",
        f"{EXPORTER}: it goes on with the configuration from before.",
        "Run `vllm-length-exporter serve --check-config --config FILE`: it names the line.",
        thresholds.config_reload_failed.hold,
        dashboard=Dashboard.EXPORTER,
        per_server=False,
    )
    window, errors = thresholds.exporter_job_failing.window, query(JOB_ERRORS)
    yield Alert(
        "ExporterJobFailing",
        Severity.WARNING,
        f"increase({errors}[{window}]) > 0\nor  # the first error of a job is a new series, which does not grow\n"
        f"({errors} unless last_over_time({errors}[{window}] offset {window})) > 0\n"
        f"and on (job, instance)\nlast_over_time({query(BUILD)}[{window}] offset {window})",
        "A part of the exporter fails.",
        f"{EXPORTER}: one of its jobs failed in the last {window} of a fault of its own.",
        "The exporter's log holds the fault; please report it.",
        dashboard=Dashboard.EXPORTER,
        per_server=False,
    )
