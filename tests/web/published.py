"""Something to serve: what a daemon would publish, without one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector, CollectorRegistry

from vllm_length_exporter.derive.values import (
    EngineCapacity,
    Finding,
    Limits,
    ServerView,
    Severity,
    State,
    Value,
)
from vllm_length_exporter.web.application import Application
from vllm_length_exporter.web.watched import Point, Watched

LIMIT = 8192


class Series(Collector):
    """`size` samples of a gauge, and a counter."""

    def __init__(self, size: int = 120) -> None:
        self.size = size

    def collect(self) -> Iterable[Metric]:
        limit = GaugeMetricFamily("vllm_length_max_model_len_tokens", "The limit.", labels=["server"])
        for index in range(self.size):
            limit.add_metric([f"vllm-{index}:8000"], LIMIT)
        yield limit
        refused = CounterMetricFamily("vllm_length_rejections", "Refused.", labels=["cause"])
        refused.add_metric(["prompt_too_long"], 3)
        yield refused


@dataclass
class Daemon:
    """A `Published` whose answers a test sets."""

    series: Collector = field(default_factory=Series)
    views: Sequence[ServerView] = ()
    untried: Sequence[str] = ()
    histories: Mapping[str, Mapping[str, tuple[Point, ...]]] = field(default_factory=dict)
    is_ready: bool = True
    fault: str | None = None
    on_reload: Callable[[], str | None] = lambda: None

    def registry(self) -> CollectorRegistry:
        made = CollectorRegistry(auto_describe=False)
        made.register(self.series)
        return made

    def statuses(self) -> Sequence[ServerView]:
        return self.views

    def watched(self) -> Sequence[Watched]:
        return [Watched(view.server, view) for view in self.views] + [Watched(name) for name in self.untried]

    def history(self, server: str) -> Mapping[str, tuple[Point, ...]]:
        return self.histories.get(server, {})

    def ready(self) -> bool:
        return self.is_ready

    def healthy(self) -> str | None:
        return self.fault

    def reload(self) -> str | None:
        return self.on_reload()


def application(daemon: Daemon | None = None, *, lifecycle: bool = False) -> Application:
    served = daemon or Daemon()
    return Application(served, status_json=lambda: b'{"servers": []}', lifecycle=lifecycle)


def a_view(server: str = "a:8000", model: str = "llama") -> ServerView:
    engine = EngineCapacity(
        "0", tokens=Value(10240, "cache_config"), full_length_concurrency=Value(1.25, "cache_config")
    )
    return ServerView(
        server=server,
        state=State.UP,
        model_name=model,
        limits=Limits(effective=Value(LIMIT, "models_api")),
        capacity=(engine,),
        findings=(Finding("preempting", Severity.WARNING, "Requests are preempted.", "Do this.", "27"),),
    )
