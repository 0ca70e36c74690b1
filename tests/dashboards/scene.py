"""A real Prometheus, filled by the daemon on played recordings: what the boards ask in their tests and pictures.

The servers begin after the daemon, so that it sees their starts, as it does in a cluster that is rolled out.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from tests.live.daemon import Daemon
from tests.process import free_port
from tests.real.prometheus import Prometheus, scrape_config
from tests.recorded import recording
from vllm_length_exporter.recording import Player, Recording
from vllm_length_exporter.standin import StandIn
from vllm_length_exporter.vllm.names import (
    MIDDLEWARE_ASKED_BUCKET,
    MIDDLEWARE_CLAMPED,
    MIDDLEWARE_REFUSED,
    MIDDLEWARE_TOTAL_BUCKET,
    MIDDLEWARE_TRUNCATED,
)

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
    "accounted": "0.32.0-pressure",  # with the middleware
}
WITH_MIDDLEWARE = ("accounted",)


@dataclass(frozen=True)
class Scene:
    """What plays: the daemon, the Prometheus that scrapes it every second, and the servers' names."""

    daemon: Daemon
    prometheus: Prometheus
    servers: tuple[str, ...]


@contextmanager
def scene(program: Path, folder: Path, played: Mapping[str, str]) -> Iterator[Scene]:
    """`program` is Prometheus; `played` is a recording's name by server."""
    with ExitStack() as stack:
        logs = {server: folder / f"{server}.log" for server in played}
        standins = {}
        for server, name in played.items():
            logs[server].touch()
            recorded = recording(name)
            if server in WITH_MIDDLEWARE:
                recorded = with_middleware(recorded)
            standins[server] = StandIn(Player(recorded, loop=True), log=logs[server], port=0)
        urls = {
            server: made.url if made.player.recording.pages else f"http://127.0.0.1:{free_port()}"
            for server, made in standins.items()
        }
        config = folder / "exporter.json"  # YAML holds JSON
        rows = [{"name": server, "url": urls[server], "log": str(logs[server])} for server in played]
        config.write_text(json.dumps({"poll_interval": "1s", "servers": rows}))
        daemon = stack.enter_context(Daemon(folder / "daemon.log", "--config", str(config)))
        daemon.wait_until(
            lambda: all(
                daemon.scrape().get("vllm_length_log_lines_total", server=name) is not None for name in played
            ),
            seconds=30,
            what="the daemon reads every log",
        )
        scraped = scrape_config("1s", {JOB: [f"127.0.0.1:{daemon.port}"]})
        prometheus = stack.enter_context(Prometheus(program, folder / "prometheus", scraped))
        prometheus.wait_until(
            lambda: prometheus.query("vllm_length_server_starts_total"), seconds=30, what="the first scrape"
        )
        for made in standins.values():
            made.start()
            stack.callback(made.stop)
        yield Scene(daemon, prometheus, tuple(played))


def with_middleware(recorded: Recording) -> Recording:
    """The recording with the series that our middleware would have added to its pages, growing from page to page."""
    pages = tuple(
        (at, text if text is None else text + _middleware_series(index))
        for index, (at, text) in enumerate(recorded.pages)
    )
    return replace(recorded, pages=pages)


def _middleware_series(step: int) -> str:
    counters = {
        f'{MIDDLEWARE_REFUSED}{{cause="prompt_too_long"}}': step // 3,
        f'{MIDDLEWARE_TRUNCATED}{{cause="context_full"}}': step // 4,
        f'{MIDDLEWARE_TRUNCATED}{{cause="max_tokens"}}': step,
        MIDDLEWARE_CLAMPED: step // 2,
    }
    lines = []
    for series, value in counters.items():
        lines += [f"# TYPE {series.partition('{')[0]} counter", f"{series} {float(value)}"]
    for bucket in (MIDDLEWARE_TOTAL_BUCKET, MIDDLEWARE_ASKED_BUCKET):
        lines.append(f"# TYPE {bucket.removesuffix('_bucket')} histogram")
        shares = (("1000", 1), ("2000", 3), ("5000", 5), ("8192", 6), ("+Inf", 6))
        lines += [f'{bucket}{{le="{edge}"}} {float(step * share)}' for edge, share in shares]
    return "\n".join(lines) + "\n"
