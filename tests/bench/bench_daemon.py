"""`python -m tests.bench.bench_daemon`: the daemon's cost against the budgets, as a table.

Processors differ, so every figure of CPU time stands beside what a real Prometheus spent on the same pages in the
same run: the ratio is what can be compared between machines.
"""

from __future__ import annotations

import gc
import json
import statistics
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import requests

from tests.bench.cost import cpu_seconds, resident_bytes
from tests.bench.fleet import Fleet
from tests.deadline import wait_for
from tests.live.daemon import Daemon
from tests.real.prometheus import Prometheus, scrape_config
from tests.tools import binaries
from vllm_length_exporter.sources.http import Endpoint, HttpSource
from vllm_length_exporter.watch import ACCEPT_PAGE, Watch

SERVERS = 200
INTERVAL = 1  # seconds between polls of one server
DEFAULT_INTERVAL = 5  # seconds: the daemon's own
ROUNDS = 15  # polls of each server that are measured
SCRAPES = 300
STARTS = 5
NEVER = 3600  # a poll interval that keeps polls out of a measurement of scrapes
PROMETHEUS = {  # what Prometheus 3.5 sends
    "Accept": "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
    "application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,"
    "text/plain;version=0.0.4;q=0.3,*/*;q=0.2",
    "Accept-Encoding": "gzip",
}


@dataclass(frozen=True, slots=True)
class Figure:
    """One row of the table."""

    what: str
    value: float
    budget: float | None
    unit: str
    note: str = ""

    @property
    def kept(self) -> bool:
        return self.budget is None or self.value <= self.budget

    def row(self) -> str:
        budget = "" if self.budget is None else f"{self.budget:.2f}"
        verdict = "" if self.budget is None else ("ok" if self.kept else "OVER")
        return f"{self.what:<44} {self.value:>9.2f} {budget:>9} {self.unit:<4} {verdict:<5} {self.note}"


def main() -> int:
    with tempfile.TemporaryDirectory() as name, Fleet(SERVERS) as fleet:
        folder = Path(name)
        lines = fleet.pages[0].count("\n")
        print(f"{SERVERS} servers, pages of {lines} lines, one poll a second each, {ROUNDS} rounds\n")
        print(f"{'what':<44} {'measured':>9} {'budget':>9}")
        figures = []
        for figure in (*polls(fleet, folder), *scrapes(fleet, folder), *starts(fleet, folder)):
            print(figure.row(), flush=True)
            figures.append(figure)
    return 0 if all(figure.kept for figure in figures) else 1


def polls(fleet: Fleet, folder: Path) -> list[Figure]:
    """CPU of a poll and memory, with the whole fleet; Prometheus on the same fleet right after."""
    config = folder / "fleet.yml"
    servers = [
        {"name": f"server-{i}", "url": f"http://{address}"} for i, address in enumerate(fleet.addresses)
    ]
    config.write_text(json.dumps({"servers": servers, "poll_interval": INTERVAL}))
    with Daemon(folder / "fleet.log", "--config", str(config)) as daemon:
        settle(daemon, fleet)
        ours, large = cpu_per_page(daemon.pid, fleet), resident_bytes(daemon.pid)
    prometheus = binaries.find("prometheus")
    if prometheus is None:
        raise FileNotFoundError(f"prometheus: {binaries.HOW}")
    with Prometheus(
        prometheus, folder / "p", scrape_config(f"{INTERVAL}s", {"vllm": fleet.addresses})
    ) as process:
        settle(process, fleet)
        theirs = cpu_per_page(process.pid, fleet)
    with Daemon(
        folder / "one.log", "--server", f"http://{fleet.addresses[0]}", "--poll-interval", "1"
    ) as daemon:
        settle(daemon, fleet, pages=ROUNDS)
        small = resident_bytes(daemon.pid)
    fetch, rest = poll_parts(fleet)
    ratio = f"{ours / theirs:.1f} x Prometheus' {theirs * 1e3:.2f} ms"
    return [
        Figure("a poll, whole daemon", ours * 1e3, 4, "ms", ratio),
        Figure("  of it fetch", fetch * 1e3, None, "ms"),
        Figure("  of it parse, derive, publish", rest * 1e3, 2, "ms"),
        Figure("resident, one server", small / 1e6, 60, "MB"),
        Figure(f"resident, {SERVERS} servers", large / 1e6, None, "MB"),
        Figure("  of it a further server", (large - small) / (SERVERS - 1) / 1e3, 200, "kB"),
        Figure("a server's objects after an hour", bytes_after(fleet, 3600) / 1e3, 200, "kB"),
    ]


def configuration(fleet: Fleet, folder: Path, interval: int) -> Path:
    """A configuration file with every server of the fleet."""
    file = folder / f"every-{interval}.yml"
    servers = [
        {"name": f"server-{i}", "url": f"http://{address}"} for i, address in enumerate(fleet.addresses)
    ]
    file.write_text(json.dumps({"servers": servers, "poll_interval": interval}))  # YAML holds JSON
    return file


def settle(process: Daemon | Prometheus, fleet: Fleet, pages: int = 3 * SERVERS) -> None:
    """Wait until it has asked for so many pages."""
    begin = fleet.served
    process.wait_until(
        lambda: fleet.served - begin >= pages, seconds=120, what=f"{pages} pages were asked for"
    )


def cpu_per_page(pid: int, fleet: Fleet) -> float:
    """Seconds of CPU time for each page that the process asks for."""
    served, cpu = fleet.served, cpu_seconds(pid)
    wait_for(lambda: fleet.served - served >= ROUNDS * SERVERS, seconds=300, what="enough pages", every=0.2)
    return (cpu_seconds(pid) - cpu) / (fleet.served - served)


def poll_parts(fleet: Fleet) -> tuple[float, float]:
    """Median CPU seconds of a poll's two parts, in this process: the HTTP exchange, and all the rest."""
    endpoint = Endpoint(f"http://{fleet.addresses[1]}")
    watch, source = Watch("bench", endpoint), HttpSource(endpoint)
    watch.poll()
    fetch, whole = [], []
    for _ in range(100):
        fetch.append(thread_seconds(lambda: source.get("/metrics", ACCEPT_PAGE)))
        whole.append(thread_seconds(watch.poll))
    watch.close()
    source.close()
    return statistics.median(fetch), statistics.median(whole) - statistics.median(fetch)


def bytes_after(fleet: Fleet, seconds: int) -> float:
    """What the objects of one server weigh after so long, by a clock that is turned on: the history is full then."""
    now = 0.0
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    endpoints = [Endpoint(f"http://{address}") for address in fleet.addresses[3:5]]
    watches = [Watch(f"history-{i}", endpoint, monotonic=lambda: now) for i, endpoint in enumerate(endpoints)]
    for _ in range(seconds // DEFAULT_INTERVAL):
        now += DEFAULT_INTERVAL
        for watch in watches:
            watch.poll()
    gc.collect()
    used = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    for watch in watches:
        watch.close()
    return used / len(watches)


def thread_seconds(work: Callable[[], object]) -> float:
    begun = time.thread_time()
    work()
    return time.thread_time() - begun


def scrapes(fleet: Fleet, folder: Path) -> list[Figure]:
    """CPU and time of a scrape as Prometheus asks for it, with one server and with all."""
    one = ["--server", f"http://{fleet.addresses[0]}", "--poll-interval", str(NEVER)]
    return [
        scrape(fleet, folder, 1, 2.0, one),
        scrape(fleet, folder, SERVERS, None, ["--config", str(configuration(fleet, folder, NEVER))]),
    ]


def scrape(fleet: Fleet, folder: Path, count: int, budget: float | None, arguments: list[str]) -> Figure:
    times = []
    with Daemon(folder / f"scrape-{count}.log", *arguments) as daemon, requests.Session() as session:
        session.headers.update(PROMETHEUS)
        url = f"{daemon.base_url}/metrics"
        daemon.wait_until(
            lambda: len(served_limits(session.get(url).text)) == count,
            seconds=60,
            what="all limits",
            every=0.5,
        )
        cpu = cpu_seconds(daemon.pid)
        for _ in range(SCRAPES // count + 20):
            begun = time.perf_counter()
            size = len(session.get(url).content)
            times.append(time.perf_counter() - begun)
        spent = (cpu_seconds(daemon.pid) - cpu) / len(times)
    note = f"{size / 1e3:.0f} kB unpacked, answered in {statistics.median(times) * 1e3:.1f} ms"
    return Figure(f"a scrape, {count} server{'s' * (count > 1)}", spent * 1e3, budget, "ms", note)


def served_limits(page: str) -> list[str]:
    return [line for line in page.splitlines() if line.startswith("vllm_length_max_model_len_tokens{")]


def starts(fleet: Fleet, folder: Path) -> list[Figure]:
    """From the command to the first scrape that holds the server's limit."""
    times = [start(fleet, folder) for _ in range(STARTS)]
    note = f"worst of {STARTS}: {max(times):.2f} s"
    return [Figure("start to first scrape", statistics.median(times), 0.7, "s", note)]


def start(fleet: Fleet, folder: Path) -> float:
    daemon = Daemon(folder / "start.log", "--server", f"http://{fleet.addresses[2]}")
    begun = time.monotonic()
    daemon.start()
    try:
        daemon.wait_until(
            lambda: served_limits(requests.get(f"{daemon.base_url}/metrics", timeout=5).text),
            seconds=30,
            what="a scrape with the limit",
            every=0.005,
            ignoring=(requests.ConnectionError,),
        )
        return time.monotonic() - begun
    finally:
        daemon.terminate()


if __name__ == "__main__":
    sys.exit(main())
