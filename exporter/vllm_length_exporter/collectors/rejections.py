"""Refused requests, by the best evidence that each server offers.

```
# HELP vllm_length_rejections_total Requests refused for length, by the best evidence of this server.
# TYPE vllm_length_rejections_total counter
vllm_length_rejections_total{cause="prompt_too_long",evidence="server_log",model_name="tiny",server="a:8000"} 2.0
vllm_length_rejections_observable{level="exact",server="a:8000"} 1.0
vllm_length_client_errors_total{evidence="access_log",server="a:8000"} 7.0
```
"""

from __future__ import annotations

from collections.abc import Iterator

from .metric import Family, Metric
from .snapshot import Snapshot

LEVELS = ("exact", "upper_bound", "none")

REJECTIONS = Metric(
    "rejections_total",
    "Requests refused for length, by the best evidence of this server: its middleware, else its log.",
    ("model_name", "cause", "evidence"),
    "counter",
)
OBSERVABLE = Metric(
    "rejections_observable",
    "1 for what this server offers of refused requests: exact counts, an upper bound (client errors), or none.",
    ("level",),
)
CLIENT_ERRORS = Metric(
    "client_errors_total",
    "Client errors on inference requests: an upper bound of refusals where nothing is exact.",
    ("evidence",),
    "counter",
)

METRICS = (REJECTIONS, OBSERVABLE, CLIENT_ERRORS)


def families(snapshot: Snapshot) -> Iterator[Family]:
    rejections, observable, client_errors = (metric.family() for metric in METRICS)
    for view in snapshot.views():
        for row in view.rejections:
            rejections.add(row.count, view.server, view.model_name or "", row.cause, row.evidence)
        for level in LEVELS if view.rejections_observable is not None else ():
            observable.add(level == view.rejections_observable, view.server, level)
        if view.client_errors is not None:
            evidence, count = view.client_errors
            client_errors.add(count, view.server, evidence)
    yield from (rejections, observable, client_errors)
