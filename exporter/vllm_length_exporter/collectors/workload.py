"""The workload against the limit.

```
# HELP vllm_length_request_tokens_at_most Bucket edge that this share of the finished requests stays within.
# TYPE vllm_length_request_tokens_at_most gauge
vllm_length_request_tokens_at_most{model_name="tiny",part="total",server="a:8000",share="0.99"} 2000.0
vllm_length_recommended_max_model_len_tokens{coverage="0.99",model_name="tiny",server="a:8000"} 2000.0
vllm_length_concurrency_at_tokens{engine="0",model_name="tiny",server="a:8000",tokens="2048"} 4.9375
vllm_length_limit_binding_ratio{engine="0",limit="kv_cache",model_name="tiny",server="a:8000"} 0.25
```
"""

from __future__ import annotations

from collections.abc import Iterator

from .metric import Family, Metric
from .snapshot import Snapshot

AT_MOST = Metric(
    "request_tokens_at_most",
    "Bucket edge that this share of the requests finished in the workload window stays within; for part total without "
    "the middleware a bound from both parts.",
    ("model_name", "part", "share"),
)
RECOMMENDED = Metric(
    "recommended_max_model_len_tokens",
    "Smallest limit that would have served this share of the requests finished in the workload window.",
    ("model_name", "coverage"),
)
CONCURRENCY_AT = Metric(
    "concurrency_at_tokens",
    "Requests of this many tokens that would fit at once: usable blocks / blocks of one such request.",
    ("model_name", "engine", "tokens"),
)
BINDING = Metric(
    "limit_binding_ratio",
    "Share of the window's time in which this limit held requests back; nothing is the rest.",
    ("model_name", "engine", "limit"),
)
TRUNCATIONS_BY_CAUSE = Metric(
    "truncations_by_cause_total",
    "Answers cut for length by cause, from the middleware: the context was full, or max_tokens was reached.",
    ("model_name", "cause"),
    "counter",
)
CLAMPED = Metric(
    "clamped_requests_total",
    "Requests whose output budget was silently cut to fit the limit (0.32+), from the middleware.",
    ("model_name",),
    "counter",
)

METRICS = (AT_MOST, RECOMMENDED, CONCURRENCY_AT, BINDING, TRUNCATIONS_BY_CAUSE, CLAMPED)


def families(snapshot: Snapshot) -> Iterator[Family]:
    at_most, recommended, concurrency, binding, truncations, clamped = (metric.family() for metric in METRICS)
    for view in snapshot.views():
        model = view.model_name or ""
        for row in view.at_most:
            at_most.add(row.tokens, view.server, model, row.part, f"{row.share:g}")
        for wanted in view.recommended:
            recommended.add(wanted.tokens, view.server, model, f"{wanted.coverage:g}")
        for fits in view.concurrency_at:
            concurrency.add(fits.requests, view.server, model, fits.engine, str(fits.tokens))
        for share in view.binding:
            binding.add(share.ratio, view.server, model, share.engine, share.limit)
        for cause, count in view.truncations_by_cause:
            truncations.add(count, view.server, model, cause)
        if view.clamped_requests is not None:
            clamped.add(view.clamped_requests, view.server, model)
    yield from (at_most, recommended, concurrency, binding, truncations, clamped)
