"""Recording rules: what alerts and dashboards ask again and again, by engine, server, model and for the whole fleet."""

from __future__ import annotations

from vllm_length_exporter.collectors.kv_cache import BLOCKS, CAPACITY, FREE, USAGE, USED
from vllm_length_exporter.collectors.limits import MAX_MODEL_LEN
from vllm_length_exporter.collectors.rejections import CLIENT_ERRORS, REJECTIONS
from vllm_length_exporter.collectors.requests import FINISHED, PREEMPTIONS, RUNNING, TRUNCATIONS, WAITING
from vllm_length_exporter.collectors.startup import STATE

from .query import Query
from .rule import Group, Record
from .thresholds import seconds

FLEET_WINDOW = "5m"


def rejections_rate(window: str) -> str:
    return f"server:vllm_length_rejections:rate{window}"


def finished_rate(window: str) -> str:
    return f"server:vllm_length_requests_finished:rate{window}"


def requests_rate(window: str) -> str:
    return f"server:vllm_length_requests:rate{window}"


def rejections_ratio(window: str) -> str:
    return f"server:vllm_length_rejections:ratio_rate{window}"


def records(query: Query) -> tuple[Group, ...]:
    return (
        Group("vllm-length-engine.rules", tuple(_engine(query))),
        Group("vllm-length-server.rules", tuple(_server(query))),
        Group("vllm-length-model.rules", tuple(_model(query))),
        Group("vllm-length-fleet.rules", tuple(_fleet(query))),
    )


def time_to_saturation(query: Query) -> str:
    """Seconds until the cache is full at the present pace, to the minute; nothing where it does not fill."""
    window = query.thresholds.kv_cache_filling.window
    return f"round((1 - {query.recent(USAGE)}) / (deriv({query(USAGE)}[{window}]) > 0), 60)"


def _engine(query: Query) -> list[Record]:
    return [Record("engine:vllm_length_kv_cache_saturation:seconds", time_to_saturation(query))]


def windows(query: Query) -> list[str]:
    """Every window that a share of requests is asked over, shortest first."""
    spike = query.thresholds.rejections_spike
    used = {FLEET_WINDOW}
    used |= {window for burn in (*spike.critical, *spike.warning) for window in (burn.long, burn.short)}
    for section in (
        query.thresholds.limit_below_workload,
        query.thresholds.client_errors_high,
        query.thresholds.silent_clamping,
        query.thresholds.truncation_high.warning,
        query.thresholds.truncation_high.info,
    ):
        used.add(section.window)
    return sorted(used, key=seconds)


def _server(query: Query) -> list[Record]:
    rules: list[Record] = []
    for window in windows(query):
        refused, finished, asked = rejections_rate(window), finished_rate(window), requests_rate(window)
        rules += [
            Record(
                refused, f"sum without (model_name, cause, evidence) (rate({query(REJECTIONS)}[{window}]))"
            ),
            Record(finished, f"sum without (model_name, engine) (rate({query(FINISHED)}[{window}]))"),
            # a refused request never finishes: both together are all that were asked
            Record(asked, f"{finished} + {refused}\nor\n{finished}"),
            Record(rejections_ratio(window), f"{refused}\n/\n({asked} > 0)"),
        ]
    return [
        *rules,
        Record("server:vllm_length_kv_cache_usage_ratio:max", f"max without (engine) ({query(USAGE)})"),
        Record("server:vllm_length_kv_cache_free_tokens:sum", f"sum without (engine) ({query(FREE)})"),
        Record(
            f"server:vllm_length_preemptions:rate{FLEET_WINDOW}",
            f"sum without (model_name, engine) (rate({query(PREEMPTIONS)}[{FLEET_WINDOW}]))",
        ),
        Record(
            f"server:vllm_length_truncations:ratio_rate{FLEET_WINDOW}",
            f"sum without (model_name, engine) (rate({query(TRUNCATIONS)}[{FLEET_WINDOW}]))\n/\n"
            f"({finished_rate(FLEET_WINDOW)} > 0)",
        ),
        Record(
            f"server:vllm_length_client_errors:rate{FLEET_WINDOW}",
            f"sum without (evidence) (rate({query(CLIENT_ERRORS)}[{FLEET_WINDOW}]))",
        ),
    ]


def _model(query: Query) -> list[Record]:
    return [
        Record("model:vllm_length_max_model_len_tokens:min", f"min by (model_name) ({query(MAX_MODEL_LEN)})"),
        Record("model:vllm_length_kv_cache_capacity_tokens:sum", f"sum by (model_name) ({query(CAPACITY)})"),
        Record("model:vllm_length_kv_cache_free_tokens:sum", f"sum by (model_name) ({query(FREE)})"),
        Record(
            "model:vllm_length_kv_cache_usage_ratio:avg",
            f"sum by (model_name) ({query(USED)})\n/\n(sum by (model_name) ({query(BLOCKS)}) > 0)",
        ),
        Record("model:vllm_length_requests_waiting:sum", f"sum by (model_name) ({query(WAITING)})"),
        Record("model:vllm_length_requests_running:sum", f"sum by (model_name) ({query(RUNNING)})"),
        Record(
            f"model:vllm_length_requests_finished:rate{FLEET_WINDOW}",
            f"sum by (model_name) (rate({query(FINISHED)}[{FLEET_WINDOW}]))",
        ),
    ]


def _fleet(query: Query) -> list[Record]:
    refused, asked = rejections_rate(FLEET_WINDOW), requests_rate(FLEET_WINDOW)
    return [
        Record("fleet:vllm_length_servers:count", f"sum by (state) ({query(STATE)})"),
        Record(
            "fleet:vllm_length_kv_cache_usage_ratio:avg", f"sum({query(USED)})\n/\n(sum({query(BLOCKS)}) > 0)"
        ),
        Record("fleet:vllm_length_kv_cache_capacity_tokens:sum", f"sum({query(CAPACITY)})"),
        Record(f"fleet:vllm_length_requests:rate{FLEET_WINDOW}", f"sum({asked})"),
        Record(
            f"fleet:vllm_length_rejections:rate{FLEET_WINDOW}",
            f"sum by (cause) (rate({query(REJECTIONS)}[{FLEET_WINDOW}]))",
        ),
        # only servers whose refusals can be counted are in the whole
        Record(
            f"fleet:vllm_length_rejections:ratio_rate{FLEET_WINDOW}",
            f"sum({refused})\n/\n(sum({asked} and {refused}) > 0)",
        ),
    ]
