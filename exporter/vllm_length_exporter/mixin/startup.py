"""Alerts on servers that do not start, do not stay up, or do not answer."""

from __future__ import annotations

from collections.abc import Iterator

from vllm_length_exporter.collectors.startup import AVAILABLE, ESTIMATED, FAILURES, NEEDED, STARTS, STATE
from vllm_length_exporter.derive.values import Severity, State

from .query import Query
from .rule import Alert, Dashboard

SERVER = "{{ $labels.server }}"
GIB = " / 1073741824"
STARTUP = "startup_.+"


def alerts(query: Query) -> Iterator[Alert]:
    remembered = query.thresholds.startup_failed.remembered

    def gib(which: str) -> str:
        metric = NEEDED if which == "needed" else AVAILABLE
        return query.shown(metric, shape="%.4g GiB", scale=GIB, over=remembered)

    estimated = query.shown(ESTIMATED, over=remembered)
    yield _failed(
        query,
        "KVCacheTooSmall",
        "startup_kv_cache_too_small",
        "The server did not start: the KV cache cannot hold one request of the limit.",
        f"{gib('needed')} needed, {gib('available')} available; vLLM would start with a limit of {estimated} tokens.",
        "Lower --max-model-len, or give the KV cache more memory "
        "(--gpu-memory-utilization, --kv-cache-dtype fp8, more GPUs).",
    )
    yield _failed(
        query,
        "NoKVMemory",
        "startup_no_kv_memory",
        "The server did not start: no memory is left for the KV cache.",
        "weights and activations fill the share of the memory that vLLM may use.",
        "Raise --gpu-memory-utilization, spread the model over more GPUs, or use smaller weights.",
    )
    yield _failed(
        query,
        "LimitAboveWindow",
        "startup_limit_above_window",
        "The server did not start: --max-model-len is above the model's window.",
        "--max-model-len is larger than what the model's config derives; vLLM's log names both numbers.",
        "Lower --max-model-len to the window.",
    )
    yield _failed(
        query,
        "MemoryBusy",
        "startup_memory_busy",
        "The server did not start: something else uses the device's memory.",
        "less memory was free on the device than --gpu-memory-utilization asks for.",
        "End the other process on the device, often an earlier vLLM that still goes down.",
    )
    yield _failed(
        query,
        "Killed",
        "startup_killed",
        "The server was killed while it started.",
        "its log ends without a word; the container's status says why.",
        "Give the container more host memory: weights pass through it while they load.",
    )
    yield _failed_otherwise(query, remembered)
    yield _crash_loop(query)
    yield _down(query)
    yield _starting(query)
    yield _unresponsive(query)
    yield _frozen(query)


def _failed(query: Query, name: str, finding: str, summary: str, told: str, action: str) -> Alert:
    limit = query.thresholds.startup_failed
    return Alert(
        f"Startup{name}",
        Severity.CRITICAL,
        # a supervisor tries again: between two attempts the failure is not forgotten
        f"{query.finding(finding, limit.remembered)}\nunless ignoring (state)\n{query(STATE, _is(State.UP))} == 1",
        summary,
        f"{SERVER}: {told}",
        action,
        limit.hold,
        findings=(finding,),
    )


def _failed_otherwise(query: Query, remembered: str) -> Alert:
    causes = f"sum by (cause) (increase({query(FAILURES, 'server=%q')}[1h])) > 0"
    return Alert(
        "StartupFailed",
        Severity.CRITICAL,
        f"{query.recent(STATE, _is(State.FAILED), over=remembered)} == 1\n"
        f"unless ignoring (state)  # those have alerts of their own\n"
        f"({query.finding(STARTUP, remembered)})\n"
        f"unless ignoring (state)\n"
        f"{query(STATE, _is(State.UP))} == 1",
        "The server did not start.",
        f"{SERVER}: the start failed; causes counted in the last hour:"
        f"{{{{ range {query.by_cause(causes)} }}}} {{{{ .Labels.cause }}}}{{{{ else }}}} none, the failure is older "
        f"than the exporter{{{{ end }}}}.",
        "Run `vllm-length-exporter doctor --log FILE` on the server's log.",
        query.thresholds.startup_failed.hold,
    )


def _crash_loop(query: Query) -> Alert:
    limit = query.thresholds.crash_loop
    return Alert(
        "CrashLoop",
        Severity.CRITICAL,
        f"changes({query(STARTS)}[{limit.window}]) >= {limit.starts}",
        "The server starts again and again.",
        f'{SERVER}: {{{{ $value | printf "%.0f" }}}} starts in the last {limit.window}.',
        "Read the end of the log before the newest start: what ended the server stands there.",
        findings=("crash_loop",),
    )


def _down(query: Query) -> Alert:
    return Alert(
        "ServerDown",
        Severity.CRITICAL,
        query.state(State.DOWN),
        "The server is gone.",
        f"{SERVER}: nothing answers at its address.",
        "Start it; if it was taken away on purpose, take it out of the exporter's configuration.",
        query.thresholds.server_down.hold,
    )


def _starting(query: Query) -> Alert:
    return Alert(
        "ServerStarting",
        Severity.WARNING,
        f"{query.lowest(STATE, _is(State.STARTING))} == 1",
        "The server takes very long to start.",
        f"{SERVER}: its log tells of a start, and it still does not serve after "
        f"{query.thresholds.server_starting.hold}.",
        "Read the last line of its log: a download, a compilation, or a worker that does not come up.",
        query.thresholds.server_starting.hold,
    )


def _unresponsive(query: Query) -> Alert:
    return Alert(
        "ServerUnresponsive",
        Severity.CRITICAL,
        f"{query.lowest(STATE, _is(State.STALLED))} == 1\n"
        f"unless ignoring (state)\n"
        f"({query.finding('gauges_frozen')})",
        "The server is there and does not answer as it should.",
        f"{SERVER}: its address takes connections, and /metrics gives no page of vLLM.",
        "Look at the server's log and CPU; restart it if it hangs.",
        query.thresholds.server_unresponsive.hold,
    )


def _frozen(query: Query) -> Alert:
    return Alert(
        "GaugesFrozen",
        Severity.CRITICAL,
        query.finding("gauges_frozen"),
        "Requests are in the engine and nothing moves.",
        f"{SERVER}: the page says that requests run or wait, and no counter of the engine has moved for a minute or "
        f"more. All its other numbers are as old as that.",
        "The engine hangs: save its log and a stack (py-spy dump), then restart it.",
        query.thresholds.gauges_frozen.hold,
        dashboard=Dashboard.SERVER,
        findings=("gauges_frozen",),
    )


def _is(state: State) -> str:
    return f'state="{state}"'
