"""How the exporter's sources do, and the exporter itself.

```
# HELP vllm_length_source_up 1 while the last good read of the source is recent.
# TYPE vllm_length_source_up gauge
vllm_length_source_up{server="a:8000",source="metrics"} 1.0
vllm_length_source_last_success_timestamp_seconds{server="a:8000",source="metrics"} 1.7639e+09
vllm_length_source_duration_seconds{server="a:8000",source="metrics"} 0.004
vllm_length_log_events_total{event="started",server="a:8000"} 1.0
vllm_length_exporter_build_info{python_version="3.11.7",revision="unknown",version="0.1.0"} 1.0
```
"""

from __future__ import annotations

import platform
from collections.abc import Iterator

from vllm_length_exporter.build import exporter_version, revision

from .metric import Family, Metric
from .snapshot import Snapshot

UP = Metric(
    "source_up", "1 while the last good read of the source is younger than three poll intervals.", ("source",)
)
LAST_SUCCESS = Metric("source_last_success_timestamp_seconds", "Time of the last good read.", ("source",))
DURATION = Metric("source_duration_seconds", "How long the last read took.", ("source",))
LOG_LINES = Metric(
    "log_lines_total", "Log lines read since the exporter's start or resume point.", kind="counter"
)
LOG_EVENTS = Metric("log_events_total", "Events recognised in the log since then.", ("event",), "counter")
BUILD = Metric(
    "exporter_build_info",
    "Version of the exporter.",
    ("version", "revision", "python_version"),
    per_server=False,
)
RELOAD_OK = Metric(
    "exporter_config_last_reload_successful",
    "1 if the last reload of the configuration worked.",
    per_server=False,
)
RELOAD_AT = Metric(
    "exporter_config_last_reload_success_timestamp_seconds",
    "Time of the last good (re)load.",
    per_server=False,
)
JOB_ERRORS = Metric(
    "exporter_job_errors_total",
    "Jobs of the exporter that failed of a fault of its own.",
    ("task",),  # "job" is the scrape's own label
    "counter",
    False,
)

METRICS = (UP, LAST_SUCCESS, DURATION, LOG_LINES, LOG_EVENTS, BUILD, RELOAD_OK, RELOAD_AT, JOB_ERRORS)


def families(snapshot: Snapshot) -> Iterator[Family]:
    rows = {metric.name: metric.family() for metric in METRICS}
    for server in snapshot.servers:
        for source in server.sources:
            rows[UP.name].add(source.up, server.server, source.source)
            if source.last_success is not None:
                rows[LAST_SUCCESS.name].add(source.last_success, server.server, source.source)
            if source.duration is not None:
                rows[DURATION.name].add(source.duration, server.server, source.source)
        if any(source.source == "logs" for source in server.sources):
            rows[LOG_LINES.name].add(server.counts.log_lines, server.server)
        for event, count in server.counts.log_events.items():
            rows[LOG_EVENTS.name].add(count, server.server, event)
    rows[BUILD.name].add(1, exporter_version(), revision(), platform.python_version())
    rows[RELOAD_OK.name].add(snapshot.config_reload_ok)
    if snapshot.config_reload_at is not None:
        rows[RELOAD_AT.name].add(snapshot.config_reload_at)
    for job, count in snapshot.job_errors.items():
        rows[JOB_ERRORS.name].add(count, job)
    yield from rows.values()
