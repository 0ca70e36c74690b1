"""The server's state, its starts, and the numbers of a failed one.

```
# HELP vllm_length_server_state 1 for the state that the server is in now, 0 for the others.
# TYPE vllm_length_server_state gauge
vllm_length_server_state{server="a:8000",state="failed"} 1.0
vllm_length_startup_failures_total{cause="kv_cache_too_small",server="a:8000"} 1.0
vllm_length_startup_kv_cache_needed_bytes{server="a:8000"} 3.4359738368e+10
vllm_length_startup_kv_cache_available_bytes{server="a:8000"} 1.073741824e+09
vllm_length_startup_estimated_max_model_len_tokens{server="a:8000"} 32640.0
vllm_length_vllm_info{engine_generation="V1",server="a:8000",version="0.32.0"} 1.0
```
"""

from __future__ import annotations

from collections.abc import Iterator

from vllm_length_exporter.derive.values import State
from vllm_length_exporter.vllm.events import StartFailure

from .metric import Family, Metric
from .snapshot import Snapshot

STATE = Metric("server_state", "1 for the state that the server is in now, 0 for the others.", ("state",))
STARTS = Metric("server_starts_total", "Starts of the server seen by the exporter.", kind="counter")
FAILURES = Metric(
    "startup_failures_total", "Failed starts by root cause, from the server's log.", ("cause",), "counter"
)
NEEDED = Metric(
    "startup_kv_cache_needed_bytes", "KV cache that the last failed start needed (as rounded by vLLM's text)."
)
AVAILABLE = Metric(
    "startup_kv_cache_available_bytes", "KV cache that the last failed start had (as rounded by vLLM's text)."
)
ESTIMATED = Metric(
    "startup_estimated_max_model_len_tokens",
    "Longest limit that the last failed start would have taken, as vLLM estimates it.",
)
VLLM_INFO = Metric(
    "vllm_info", "Version of vLLM and generation of its engine.", ("version", "engine_generation")
)

METRICS = (STATE, STARTS, FAILURES, NEEDED, AVAILABLE, ESTIMATED, VLLM_INFO)


def families(snapshot: Snapshot) -> Iterator[Family]:
    state, starts, failures, needed, available, estimated, info = (metric.family() for metric in METRICS)
    for server in snapshot.servers:
        starts.add(server.counts.starts, server.server)
        for cause in StartFailure:
            failures.add(server.counts.startup_failures.get(str(cause), 0), server.server, str(cause))
        view = server.view
        if view is None:
            continue
        for known in State:
            state.add(known is view.state, view.server, str(known))
        for family, value in (
            (needed, view.startup.needed_bytes),
            (available, view.startup.available_bytes),
            (estimated, view.startup.estimated_limit),
        ):
            if value is not None:
                family.add(value.value, view.server)
        if view.vllm_version is not None:
            info.add(1, view.server, view.vllm_version.value, view.engine_generation or "")
    yield from (state, starts, failures, needed, available, estimated, info)
