"""What holds requests back, and answers cut for length.

```
# HELP vllm_length_requests_running Requests that the engine works on.
# TYPE vllm_length_requests_running gauge
vllm_length_requests_running{engine="0",model_name="tiny",server="a:8000"} 13.0
# HELP vllm_length_preemptions_total Requests that lost their KV cache to others and are computed again.
# TYPE vllm_length_preemptions_total counter
vllm_length_preemptions_total{engine="0",model_name="tiny",server="a:8000"} 27.0
vllm_length_preemptions_per_second{engine="0",model_name="tiny",server="a:8000"} 0.9
```
"""

from __future__ import annotations

from collections.abc import Iterator

from .metric import Family, Metric
from .snapshot import Snapshot

ENGINE = ("model_name", "engine")

RUNNING = Metric("requests_running", "Requests that the engine works on.", ENGINE)
WAITING = Metric("requests_waiting", "Requests that wait for the engine.", ENGINE)
WAITING_FOR_CAPACITY = Metric(
    "requests_waiting_for_capacity",
    "Requests that vLLM says wait for capacity (0.20.2+): KV cache or max_num_seqs; the KV cache only when its "
    "usage says so too.",
    ENGINE,
)
PREEMPTIONS = Metric(
    "preemptions_total",
    "Requests that lost their KV cache to others and are computed again, vLLM's own count.",
    ENGINE,
    "counter",
)
PREEMPTION_RATE = Metric("preemptions_per_second", "Preemptions a second over the exporter's window.", ENGINE)
TRUNCATIONS = Metric(
    "truncations_total",
    "Requests that finished for length (the limit or max_tokens), vLLM's own count.",
    ENGINE,
    "counter",
)
FINISHED = Metric(
    "requests_finished_total",
    "Requests that finished for whatever reason, vLLM's own count: what truncations are a part of. "
    "Refused requests never got so far and are not among them.",
    ENGINE,
    "counter",
)

METRICS = (RUNNING, WAITING, WAITING_FOR_CAPACITY, PREEMPTIONS, PREEMPTION_RATE, TRUNCATIONS, FINISHED)

_VALUES = (
    (RUNNING, "running"), (WAITING, "waiting"), (WAITING_FOR_CAPACITY, "waiting_for_capacity"),
    (PREEMPTIONS, "preemptions_total"), (PREEMPTION_RATE, "preemptions_per_second"),
    (TRUNCATIONS, "truncations_total"), (FINISHED, "finished_total"),
)  # fmt: skip


def families(snapshot: Snapshot) -> Iterator[Family]:
    rows = {metric.name: metric.family() for metric in METRICS}
    for view in snapshot.views():
        for engine in view.pressure:
            for metric, key in _VALUES:
                if (value := getattr(engine, key)) is not None:
                    rows[metric.name].add(value.value, view.server, view.model_name or "", engine.engine)
    yield from rows.values()
