"""A real Prometheus, filled by the daemon on played recordings: what the boards ask in their tests and pictures.

The servers begin after the daemon, so that it sees their starts, as it does in a cluster that is rolled out.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.deadline import wait_for
from tests.live.daemon import Daemon
from tests.process import free_port
from tests.real.prometheus import Prometheus, scrape_config
from tests.recorded import recording
from vllm_length_exporter.recording import Player
from vllm_length_exporter.standin import StandIn

JOB = "vllm-length-exporter"  # as in alerts/thresholds.yml

# Server's name: what it plays.
PRESSURE = {"pressure": "0.32.0-pressure"}
FAILED_START = {"failed": "0.32.0-kvtoosmall"}
EVERYTHING = {
    **PRESSURE,
    **FAILED_START,
    "refuses": "0.16.0-pressure",  # logs its refusals
    "small-limit": "0.32.0-explicit4096",
    "two-engines": "0.32.0-dp2",
    "accounted": "0.32.0-accounted",  # with the middleware
}
CHANGING = {"changing": "0.32.0-explicit4096"}  # comes back with another limit when a test says so
# One alert that fires at once, for the boards' annotations; the real rules wait some minutes.
RULES = {
    "groups": [
        {
            "name": "scene",
            "rules": [
                {
                    "alert": "VLLMLengthStartupFailed",
                    "expr": 'vllm_length_server_state{state="failed"} == 1',
                    "labels": {"severity": "critical"},
                }
            ],
        }
    ]
}


class Scene:
    """What plays: the daemon, the Prometheus that scrapes it every second, and the servers."""

    def __init__(
        self, daemon: Daemon, prometheus: Prometheus, standins: dict[str, StandIn], logs: dict[str, Path]
    ) -> None:
        self.daemon, self.prometheus = daemon, prometheus
        self._standins, self._logs = standins, logs

    @property
    def servers(self) -> tuple[str, ...]:
        return tuple(self._standins)

    def restart(self, server: str, name: str) -> None:
        """The server ends, and comes back at the same place as another recording plays it."""
        old = self._standins.pop(server)
        old.stop()
        self._standins[server] = wait_for(
            lambda: _standin(name, self._logs[server], old.port),
            seconds=20,
            what=f"port {old.port} is free again",
            ignoring=(OSError,),
        )
        self._standins[server].start()

    def stop(self) -> None:
        for made in self._standins.values():
            made.stop()


def _standin(name: str, log: Path, port: int) -> StandIn:
    return StandIn(Player(recording(name), loop=True), log=log, port=port)


@contextmanager
def scene(program: Path, folder: Path, played: Mapping[str, str]) -> Iterator[Scene]:
    """`program` is Prometheus; `played` is a recording's name by server. All servers start once the daemon watches."""
    logs = {server: folder / f"{server}.log" for server in played}
    for log in logs.values():
        log.touch()
    standins = {server: _standin(name, logs[server], free_port()) for server, name in played.items()}
    urls = {
        server: made.url if made.player.recording.pages else f"http://127.0.0.1:{free_port()}"
        for server, made in standins.items()
    }
    rows = [{"name": server, "url": urls[server], "log": str(logs[server])} for server in played]
    config = folder / "exporter.json"  # YAML holds JSON
    config.write_text(json.dumps({"poll_interval": "1s", "servers": rows}))
    rules = folder / "rules.json"
    rules.write_text(json.dumps(RULES))
    with Daemon(folder / "daemon.log", "--config", str(config)) as daemon:
        daemon.wait_until(
            lambda: all(
                daemon.scrape().get("vllm_length_log_lines_total", server=name) is not None for name in played
            ),
            seconds=30,
            what="the daemon reads every log",
        )
        scraped = {**scrape_config("1s", {JOB: [f"127.0.0.1:{daemon.port}"]}), "rule_files": [str(rules)]}
        with Prometheus(program, folder / "prometheus", scraped) as prometheus:
            prometheus.wait_until(
                lambda: prometheus.query("vllm_length_server_starts_total"),
                seconds=30,
                what="the first scrape",
            )
            made = Scene(daemon, prometheus, standins, logs)
            try:
                for standin in standins.values():
                    standin.start()
                yield made
            finally:
                made.stop()
