"""Alerts on the limits themselves: what cannot be served, what changed, what does not suit the workload."""

from __future__ import annotations

from collections.abc import Iterator

from vllm_length_exporter.collectors.kv_cache import CAPACITY, CONCURRENCY
from vllm_length_exporter.collectors.limits import BATCHED_TOKENS, MAX_MODEL_LEN, WINDOW
from vllm_length_exporter.collectors.workload import AT_MOST, TRUNCATIONS_BY_CAUSE
from vllm_length_exporter.derive.values import Severity

from .query import Query, asked
from .records import rejections_rate, requests_rate
from .rule import Alert, Dashboard
from .thresholds import seconds

SERVER = "{{ $labels.server }}"
# A restart takes minutes: what the server showed before it still counts for so long.
OVER_A_RESTART = "1h"


def alerts(query: Query) -> Iterator[Alert]:
    yield _capacity(query)
    yield _changed(
        query, Severity.WARNING, "<", "lower", "Clients that send more than it are refused from now on"
    )
    yield _changed(query, Severity.INFO, ">", "higher", "Longer requests take more of the KV cache each")
    yield _far_above(query)
    yield _below(query)
    yield _beyond_window(query)
    yield _batched_tokens(query)


def _capacity(query: Query) -> Alert:
    return Alert(
        "CapacityBelowLimit",
        Severity.WARNING,
        query.finding("capacity_below_limit"),
        "The KV cache cannot hold one request of the limit.",
        f"{SERVER}: the limit is {query.shown(MAX_MODEL_LEN)} tokens, the KV cache holds {query.shown(CAPACITY)} "
        f"an engine, one block of which no request can use "
        f"({query.shown(CONCURRENCY, shape='%.3g')} requests of the limit). "
        f"A request that long waits for ever and everything behind it too.",
        "Lower --max-model-len to what `vllm-length-exporter doctor` names, or give the KV cache more memory.",
        query.thresholds.misconfigured.hold,
        findings=("capacity_below_limit",),
    )


def _changed(query: Query, severity: Severity, sign: str, direction: str, meaning: str) -> Alert:
    told, look_back = query.thresholds.limit_changed.told_for, query.thresholds.limit_changed.look_back
    before = f"last_over_time({query(MAX_MODEL_LEN)}[{look_back}] offset {told})"
    old = query(MAX_MODEL_LEN, "server=%q", "model_name=%q")
    return Alert(
        "LimitChanged",
        severity,
        # a new pod of the same server is the same server
        f"min without (instance, pod) ({query(MAX_MODEL_LEN)})\n{sign}\nmin without (instance, pod) ({before})",
        f"The server's limit on the length of a request is {direction} than before.",
        f'{SERVER} ({{{{ $labels.model_name }}}}): {{{{ $value | printf "%.0f" }}}} tokens now, '
        f"{asked(f'min(last_over_time({old}[{look_back}] offset {told}))', 'server', 'model_name')} before. {meaning}.",
        "Look for what changed: --max-model-len, vLLM's version, the model's config, the memory left for the KV cache.",
        keep="0s",
    )


def _far_above(query: Query) -> Alert:
    limit = query.thresholds.limit_far_above_workload
    used = query(AT_MOST, 'part="total"', f'share="{limit.share:g}"')
    shown = query(AT_MOST, "server=%q", 'part="total"', f'share="{limit.share:g}"')
    return Alert(
        "LimitFarAboveWorkload",
        Severity.WARNING,
        f"last_over_time({query(MAX_MODEL_LEN)}[{OVER_A_RESTART}])\n"
        f"> ignoring (part, share)\n"
        f"{limit.factor:g} * max_over_time({used}[{limit.window}])",
        "The server takes far longer requests than anybody sends.",
        f'{SERVER} ({{{{ $labels.model_name }}}}): the limit is {{{{ $value | printf "%.0f" }}}} tokens; in the last '
        f"{limit.window} {limit.share * 100:g} % of the requests stayed within "
        f"{asked(f'max(max_over_time({shown}[{limit.window}]))', 'server')}.",
        "Set --max-model-len to what the workload needs: `vllm-length-exporter plan --server URL` shows what it frees.",
        limit.hold,
        dashboard=Dashboard.WORKLOAD,
        findings=("limit_far_above_workload",),
    )


def _below(query: Query) -> Alert:
    limit = query.thresholds.limit_below_workload
    requests, refused = requests_rate(limit.window), rejections_rate(limit.window)
    full = query(TRUNCATIONS_BY_CAUSE, 'cause="context_full"')
    return Alert(
        "LimitBelowWorkload",
        Severity.WARNING,
        f"(\n"
        f"  ({refused} or 0 * {requests})\n"
        f"  +  # the middleware tells which answers were cut by the limit and not by the client's max_tokens\n"
        f"  (sum without (model_name, cause) (rate({full}[{limit.window}])) or 0 * {requests})\n"
        f")\n"
        f"/\n"
        f"({requests} > 0) > {limit.share:g}\n"
        f"and\n"
        f"{requests} * {seconds(limit.window)} >= {limit.min_requests}",
        "The workload needs longer requests than the server takes.",
        f"{SERVER}: {{{{ $value | humanizePercentage }}}} of the requests of the last {limit.window} were refused for "
        f"their length or answered only up to the limit of {query.shown(MAX_MODEL_LEN, over=OVER_A_RESTART)} tokens.",
        "Raise --max-model-len if the KV cache carries it, or have clients shorten their prompts.",
        limit.hold,
        dashboard=Dashboard.WORKLOAD,
    )


def _beyond_window(query: Query) -> Alert:
    return Alert(
        "LimitBeyondWindow",
        Severity.WARNING,
        query.finding("limit_beyond_window"),
        "The server takes longer requests than the model was made for.",
        f"{SERVER}: the limit is {query.shown(MAX_MODEL_LEN)} tokens, the model's window {query.shown(WINDOW)}. "
        f"Answers degrade beyond the window.",
        "Lower --max-model-len to the window, or configure rope scaling that the model was made for.",
        query.thresholds.misconfigured.hold,
        findings=("limit_beyond_window",),
    )


def _batched_tokens(query: Query) -> Alert:
    return Alert(
        "BatchedTokensBelowLimit",
        Severity.WARNING,
        query.finding("batched_tokens_below_limit"),
        "Without chunked prefill a long prompt cannot be scheduled.",
        f"{SERVER}: --max-num-batched-tokens is {query.shown(BATCHED_TOKENS)}, the limit {query.shown(MAX_MODEL_LEN)} "
        f"tokens, and chunked prefill is off.",
        "Raise --max-num-batched-tokens to the limit, or drop --no-enable-chunked-prefill.",
        query.thresholds.misconfigured.hold,
        findings=("batched_tokens_below_limit",),
    )
