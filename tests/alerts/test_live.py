"""The whole chain: recorded servers, the daemon, a real Prometheus with our rules, a real Alertmanager, a webhook.

Nothing is faked but the time: the recordings are of real servers, the thresholds are the packaged ones, and only what
is measured in minutes is measured in seconds here.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import requests
import yaml

from tests.alerts.servers import Alertmanager, Receiver, receiving
from tests.alerts.test_rendering import rendered_with
from tests.conftest import Tool
from tests.deadline import wait_for
from tests.live.daemon import Daemon
from tests.process import free_port
from tests.real.prometheus import Prometheus, scrape_config
from tests.recorded import recording
from vllm_length_exporter.recording import Player
from vllm_length_exporter.standin import StandIn

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

UNDER_PRESSURE = "0.32.0-pressure"
FAILED = "0.32.0-kvtoosmall"
HEALTHY = (
    "0.32.0-hybrid", "0.32.0-kvauto", "0.32.0-kvminus1", "0.32.0-fp8kv", "0.32.0-yarn", "0.26.0-yarn", "0.16.0-yarn",
)  # fmt: skip
EVALUATION = 1.0  # seconds
FAST = """
missed_scrapes: 5s
keep_firing_for: 1m
kv_cache_saturated: {critical: {for: 3s}, warning: {for: 8s}}
preemption_storm: {critical: {window: 15s, for: 3s}, warning: {window: 15s, for: 8s}}
admission_stall: {for: 5s}
max_num_seqs_binding: {window: 10s, for: 3s}
startup_failed: {for: 2s}
server_down: {for: 5s}
server_unresponsive: {for: 5s}
gauges_frozen: {for: 5s}
sources_disagree: {for: 5s}
log_stats_disabled: {for: 5s}
misconfigured: {for: 5s}
source_down: {for: 5s}
log_lost: {for: 5s}
config_reload_failed: {for: 5s}
"""
PAGES = {
    ("VLLMLengthKVCacheSaturated", "critical", UNDER_PRESSURE),
    ("VLLMLengthPreemptionStorm", "critical", UNDER_PRESSURE),
    ("VLLMLengthStartupKVCacheTooSmall", "critical", FAILED),
}
# Fire too, and are not told: the page of the same name says it.
TICKETS = {
    ("VLLMLengthKVCacheSaturated", "warning", UNDER_PRESSURE),
    ("VLLMLengthPreemptionStorm", "warning", UNDER_PRESSURE),
}


@dataclass
class Chain:
    prometheus: Prometheus
    manager: Alertmanager
    receiver: Receiver
    rules: list[dict[str, Any]]

    def firing(self) -> set[tuple[str, str, str]]:
        series = self.prometheus.query('count by (alertname, severity, server) (ALERTS{alertstate="firing"})')
        return {identity(row["metric"]) for row in series}

    def told(self) -> set[tuple[str, str, str]]:
        return {identity(one["labels"]) for one in self.receiver.alerts}

    def message(self, name: str) -> dict[str, Any]:
        """The first message about an alert."""
        return next(one for one in self.receiver.alerts if one["labels"]["alertname"] == name)


def identity(labels: dict[str, str]) -> tuple[str, str, str]:
    return labels["alertname"], labels["severity"], labels.get("server", "")


@contextlib.contextmanager
def servers(folder: Path) -> Iterator[list[dict[str, str]]]:
    """Recorded servers that play, as the daemon's configuration names them. The failed one leaves a log alone."""
    configured, playing = [], []
    with contextlib.ExitStack() as stack:
        for name in (UNDER_PRESSURE, *HEALTHY, FAILED):
            log = folder / f"{name}.log"
            log.touch()
            standin = StandIn(Player(recording(name), loop=True), port=0, log=log)
            url = standin.url if recording(name).pages else f"http://127.0.0.1:{free_port()}"
            configured.append({"name": name, "url": url, "log": str(log)})
            playing.append(standin)
            stack.callback(standin.stop)
        for standin in playing:
            standin.start()
        yield configured


@pytest.fixture(scope="module")
def chain(tool: Tool, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chain]:
    folder = tmp_path_factory.mktemp("chain")
    files = rendered_with(FAST, folder)
    (configuration,) = files["alertmanager/alertmanager.yml"]
    rules = [rule for group in files["rules/alerts.yml"][0]["groups"] for rule in group["rules"]]
    with contextlib.ExitStack() as stack:
        receiver = stack.enter_context(receiving())
        manager = Alertmanager(tool, folder, configuration, {"webhook_url": receiver.url})
        stack.enter_context(manager.process)
        manager.wait()
        config = folder / "exporter.yml"
        config.write_text(
            yaml.safe_dump(
                {"servers": stack.enter_context(servers(folder)), "poll_interval": "1s", "window": "30s"}
            ),
            encoding="utf-8",
        )
        daemon = stack.enter_context(Daemon(folder / "daemon.log", "--config", str(config)))
        scraping = {
            **scrape_config("1s", {"vllm-length-exporter": [f"127.0.0.1:{daemon.port}"]}),
            "rule_files": [str(folder / "out" / "rules" / "*.yml")],
            "alerting": {
                "alertmanagers": [{"static_configs": [{"targets": [manager.url.removeprefix("http://")]}]}]
            },
        }
        prometheus = stack.enter_context(Prometheus(tool("prometheus"), folder / "prometheus", scraping))
        made = Chain(prometheus, manager, receiver, rules)
        # everything that shall fire has fired, and then some: long enough for anything else that would
        prometheus.wait_until(
            lambda: made.firing() >= PAGES | TICKETS, seconds=120, every=0.5, what="what shall fire fires"
        )
        wait_for(lambda: made.told() >= PAGES, seconds=30, what="the pages arrive")
        first = evaluations(prometheus)
        prometheus.wait_until(
            lambda: evaluations(prometheus) > first + 15,
            seconds=60,
            every=0.5,
            what="fifteen more evaluations",
        )
        yield made


def evaluations(prometheus: Prometheus) -> int:
    """How often the startup alerts were evaluated, as Prometheus' own metrics say."""
    text = requests.get(f"{prometheus.base_url}/metrics", timeout=10).text
    counter = r'^prometheus_rule_group_iterations_total\{rule_group="[^"]*;vllm-length-startup"\} (\S+)'
    found = re.search(counter, text, re.MULTILINE)
    return int(float(found[1])) if found else 0


def test_exactly_what_shall_fire_fires(chain: Chain) -> None:
    assert chain.firing() == PAGES | TICKETS


def test_exactly_the_pages_are_told(chain: Chain) -> None:
    assert chain.told() == PAGES


def test_no_healthy_server_was_ever_told_of(chain: Chain) -> None:
    ever = chain.prometheus.query('max_over_time(ALERTS{alertstate="firing"}[10m])')
    assert not {row["metric"].get("server") for row in ever} & set(HEALTHY)
    watched = chain.prometheus.query('max_over_time(vllm_length_server_state{state="up"}[10m]) == 1')
    assert {row["metric"]["server"] for row in watched} == {*HEALTHY, UNDER_PRESSURE}


@pytest.mark.parametrize("page", sorted(PAGES))
def test_a_page_fires_within_two_evaluations_of_its_time(chain: Chain, page: tuple[str, str, str]) -> None:
    """From the first evaluation that held to the one that fired, by what Prometheus stored of both."""
    name, severity, server = page
    rule = next(one for one in chain.rules if one["alert"] == name and one["labels"]["severity"] == severity)
    hold = float(rule["for"].removesuffix("s"))
    labels = f'alertname="{name}", severity="{severity}", server="{server}"'
    since = chain.prometheus.query(f"min_over_time(ALERTS_FOR_STATE{{{labels}}}[10m])")
    pending_from = float(since[0]["value"][1])
    begun = chain.message(name)["startsAt"]
    fired_at = float(
        chain.prometheus.query(f'min_over_time(timestamp(ALERTS{{{labels}, alertstate="firing"}})[10m:1s])')[
            0
        ]["value"][1]
    )
    assert hold <= fired_at - pending_from <= hold + 2 * EVALUATION + 0.1
    assert begun


def test_the_saturated_server_is_described_with_its_own_numbers(chain: Chain) -> None:
    notes = chain.message("VLLMLengthKVCacheSaturated")["annotations"]
    found = re.fullmatch(
        r"Engine 0 of 0\.32\.0-pressure \(tiny\): up to (\S+)% of the KV cache is in use, "
        r"(\d+) requests wait and (\d+) run, (\S+) preemptions a second\.",
        notes["description"],
    )
    assert found is not None, notes["description"]
    # 79 usable blocks, of which the recording shows 75 to 77 in use at its peak, and up to 17 requests in the queue
    assert found[1] in ("94.94", "96.2", "97.47")
    assert 2 <= int(found[2]) <= 17
    assert 1 <= int(found[3]) <= 16
    assert (
        notes["context"]
        == "Limit 8192 tokens. KV cache 10240 tokens an engine. 1.25 requests of the limit fit at once."
    )
    assert notes["runbook_url"].endswith("/VLLMLengthKVCacheSaturated.md")
    assert notes["dashboard_url"].endswith(f"/d/vllm-length-server?var-server={UNDER_PRESSURE}")


def test_the_failed_start_is_described_while_the_server_is_gone(chain: Chain) -> None:
    alert = chain.message("VLLMLengthStartupKVCacheTooSmall")
    assert alert["status"] == "firing"
    said = alert["annotations"]["description"]
    assert said.startswith(f"{FAILED}: 32 GiB needed, 1 GiB available; vLLM would start with a limit of ")
    (state,) = chain.prometheus.query(f'vllm_length_server_state{{server="{FAILED}"}} == 1')
    assert state["metric"]["state"] == "failed"
    assert not chain.prometheus.query(f'vllm_length_max_model_len_tokens{{server="{FAILED}"}}')
