"""Named problems that hold now, and numbers that are withheld.

```
# HELP vllm_length_finding 1 while a named problem holds.
# TYPE vllm_length_finding gauge
vllm_length_finding{finding="preempting",server="a:8000",severity="warning"} 1.0
vllm_length_unknown{missing="the start in the log",quantity="max_num_batched_tokens",server="a:8000"} 1.0
```
"""

from __future__ import annotations

from collections.abc import Iterator

from .metric import Family, Metric
from .snapshot import Snapshot

FINDING = Metric(
    "finding", "1 while a named problem holds; each has a runbook page.", ("finding", "severity")
)
UNKNOWN = Metric(
    "unknown", "1 while a number is withheld because its inputs do not determine it.", ("quantity", "missing")
)

METRICS = (FINDING, UNKNOWN)


def families(snapshot: Snapshot) -> Iterator[Family]:
    finding, unknown = (metric.family() for metric in METRICS)
    for view in snapshot.views():
        for found in view.findings:
            finding.add(1, view.server, found.id, str(found.severity))
        for item in view.unknown:
            unknown.add(1, view.server, item.quantity, item.missing)
    yield from (finding, unknown)
