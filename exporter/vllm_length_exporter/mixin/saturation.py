"""Alerts on what holds requests back now: a full KV cache, preemptions, a queue that does not move."""

from __future__ import annotations

from collections.abc import Iterator

from vllm_length_exporter.collectors.kv_cache import CONCURRENCY, FREE, USAGE
from vllm_length_exporter.collectors.limits import MAX_MODEL_LEN, SEQUENCES
from vllm_length_exporter.collectors.requests import FINISHED, PREEMPTION_RATE, PREEMPTIONS, RUNNING, WAITING
from vllm_length_exporter.collectors.workload import BINDING
from vllm_length_exporter.derive.values import Severity, State

from .query import Query
from .records import time_to_saturation
from .rule import Alert, Dashboard
from .thresholds import Preemptions, Saturation, seconds

ENGINE = "Engine {{ $labels.engine }} of {{ $labels.server }} ({{ $labels.model_name }})"


def alerts(query: Query) -> Iterator[Alert]:
    thresholds = query.thresholds
    yield _saturated(query, Severity.CRITICAL, thresholds.kv_cache_saturated.critical)
    yield _saturated(query, Severity.WARNING, thresholds.kv_cache_saturated.warning)
    yield _storm(query, Severity.CRITICAL, thresholds.preemption_storm.critical)
    yield _storm(query, Severity.WARNING, thresholds.preemption_storm.warning)
    yield _filling(query)
    yield _stall(query)
    yield _sequences(query)


def _saturated(query: Query, severity: Severity, limit: Saturation) -> Alert:
    waiting, running = query.recent(WAITING), query.recent(RUNNING)
    return Alert(
        "KVCacheSaturated",
        severity,
        f"{query.recent(USAGE)} >= {limit.usage:g}\n"
        f"and\n"
        f"# a full cache alone is no fault: somebody must wait for it or lose it\n"
        f"(\n"
        f"  {waiting} / ({waiting} + {running}) > {limit.queue:g}\n"
        f"  or\n"
        f"  {query.recent(PREEMPTION_RATE)} > {limit.preemptions_per_second:g}\n"
        f")",
        "The KV cache is full and requests wait for it.",
        f"{ENGINE}: up to {{{{ $value | humanizePercentage }}}} of the KV cache is in use, "
        f"{query.shown(WAITING, 'engine')} requests wait and {query.shown(RUNNING, 'engine')} run, "
        f"{query.shown(PREEMPTION_RATE, 'engine', shape='%.2g')} preemptions a second.",
        "Send less to this server or start another; then lower --max-num-seqs or give the KV cache more memory.",
        limit.hold,
        findings=("kv_cache_saturated",),
    )


def _storm(query: Query, severity: Severity, limit: Preemptions) -> Alert:
    lost, done = (f"rate({query(metric)}[{limit.window}])" for metric in (PREEMPTIONS, FINISHED))
    return Alert(
        "PreemptionStorm",
        severity,
        f"{lost} > {limit.per_finished:g} * {done}\nand\n{lost} > {limit.per_second:g}",
        "Requests lose their KV cache to others and are computed again.",
        f'{ENGINE}: {{{{ $value | printf "%.2g" }}}} preemptions a second, more than {limit.per_finished:g} '
        f"for each request that finishes; {query.shown(RUNNING, 'engine')} requests run, "
        f"{query.shown(WAITING, 'engine')} wait, the KV cache is in use to "
        f"{query.shown(USAGE, 'engine', scale=' * 100')} %.",
        "Lower --max-num-seqs, so that fewer requests share the KV cache.",
        limit.hold,
        findings=("preempting",),
    )


def _filling(query: Query) -> Alert:
    limit = query.thresholds.kv_cache_filling
    return Alert(
        "KVCacheFilling",
        Severity.WARNING,
        f"{time_to_saturation(query)} < {seconds(limit.horizon)}\n"
        f"and\n"
        f"avg_over_time({query(USAGE)}[5m]) >= {limit.usage:g}",
        "The KV cache will be full soon at the present pace.",
        f"{ENGINE}: full in about {{{{ $value | humanizeDuration }}}} at the pace of the last {limit.window}; "
        f"{query.shown(FREE, 'engine')} tokens are free, {query.shown(CONCURRENCY, 'engine', shape='%.3g')} requests "
        f"of the limit fit in all.",
        "Add a server or send less, before requests have to wait.",
        limit.hold,
    )


def _stall(query: Query) -> Alert:
    return Alert(
        "AdmissionStall",
        Severity.CRITICAL,
        f"{query.lowest(WAITING)} > 0\n"
        f"and\n"
        f"{query.recent(RUNNING)} == 0\n"
        f"unless ignoring (model_name, engine, state)\n"
        f"{query.state(State.SLEEPING)}",
        "Requests wait and none runs.",
        f'{ENGINE}: at least {{{{ $value | printf "%.0f" }}}} requests wait and none runs, while '
        f"{query.shown(FREE, 'engine')} tokens of the KV cache are free. "
        f"The first in the queue does not fit, or the engine hangs.",
        "Abort the longest waiting request or restart the server; then lower --max-model-len to what fits.",
        query.thresholds.admission_stall.hold,
        findings=("admission_stall",),
    )


def _sequences(query: Query) -> Alert:
    limit = query.thresholds.max_num_seqs_binding
    binding = query(BINDING, 'limit="max_num_seqs"')
    return Alert(
        "MaxNumSeqsBinding",
        Severity.WARNING,
        f"avg_over_time({binding}[{limit.window}]) > {limit.share:g}",
        "Requests wait for --max-num-seqs while the KV cache has room.",
        f"{ENGINE}: --max-num-seqs ({query.shown(SEQUENCES)}) held requests back for "
        f"{{{{ $value | humanizePercentage }}}} of the last {limit.window}; {query.shown(FREE, 'engine')} tokens of "
        f"the KV cache are free (limit {query.shown(MAX_MODEL_LEN)}).",
        "Raise --max-num-seqs.",
        limit.hold,
        dashboard=Dashboard.WORKLOAD,
        findings=("binding_max_num_seqs",),
    )
