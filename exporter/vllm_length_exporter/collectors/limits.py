"""The length budget.

```
# HELP vllm_length_max_model_len_tokens Limit on prompt + output tokens of one request that this server enforces now.
# TYPE vllm_length_max_model_len_tokens gauge
vllm_length_max_model_len_tokens{model_name="tiny",server="a:8000"} 8192.0
vllm_length_max_model_len_info{mode="default",model_name="tiny",server="a:8000",source="models_api"} 1.0
vllm_length_model_window_tokens{model_name="tiny",server="a:8000"} 8192.0
vllm_length_max_num_batched_tokens{server="a:8000"} 2048.0
vllm_length_max_num_seqs{server="a:8000"} 16.0
```
"""

from __future__ import annotations

from collections.abc import Iterator

from .metric import Family, Metric
from .snapshot import Snapshot

MAX_MODEL_LEN = Metric(
    "max_model_len_tokens",
    "Limit on prompt + output tokens of one request that this server enforces now.",
    ("model_name",),
)
MAX_MODEL_LEN_INFO = Metric(
    "max_model_len_info",
    "Where the limit comes from: mode is default, explicit or auto (unknown without the start in the log), "
    "source is what told it; histogram_bound means that only a lower bound is known.",
    ("model_name", "source", "mode"),
)
REQUESTED = Metric(
    "max_model_len_requested_tokens",
    "Number that the operator gave with --max-model-len, from the log's non-default arguments.",
    ("model_name",),
)
WINDOW = Metric(
    "model_window_tokens",
    "Context window that the model's config derives, from the log or a given config.json.",
    ("model_name",),
)
BATCHED_TOKENS = Metric(
    "max_num_batched_tokens", "Tokens of all requests that the scheduler takes in one step, from the log."
)
SEQUENCES = Metric("max_num_seqs", "Sequences that the scheduler takes in one step, from the log.")

METRICS = (MAX_MODEL_LEN, MAX_MODEL_LEN_INFO, REQUESTED, WINDOW, BATCHED_TOKENS, SEQUENCES)


def families(snapshot: Snapshot) -> Iterator[Family]:
    effective, info, requested, window, batched, sequences = (metric.family() for metric in METRICS)
    for view in snapshot.views():
        limits, model = view.limits, view.model_name or ""
        if limits.effective is not None:
            effective.add(limits.effective.value, view.server, model)
        known = limits.effective or limits.floor
        if known is not None:
            info.add(1, view.server, model, known.source, limits.mode or "unknown")
        if limits.requested is not None and isinstance(limits.requested.value, int):
            requested.add(limits.requested.value, view.server, model)
        if limits.window is not None:
            window.add(limits.window.value, view.server, model)
        if limits.max_num_batched_tokens is not None:
            batched.add(limits.max_num_batched_tokens.value, view.server)
        if limits.max_num_seqs is not None:
            sequences.add(limits.max_num_seqs.value, view.server)
    yield from (effective, info, requested, window, batched, sequences)
