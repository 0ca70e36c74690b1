"""`python -m tests.bench.bench_daemon`: the daemon's cost against the budgets, as a table.

Processors differ, so the CPU of a poll stands beside what a real Prometheus spends on the same pages in the same
run: the ratio is what can be compared between machines. Exits with 1 when a budget is not kept.
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
from functools import partial
from pathlib import Path

import requests

from tests.bench.cost import cpu_seconds, resident_bytes
from tests.bench.figure import HEADER, Figure
from tests.bench.fleet import Fleet
from tests.live.daemon import Daemon
from tests.process import Process
from tests.real.prometheus import Prometheus, scrape_config
from tests.tools import binaries
from vllm_length_exporter.sources.http import Endpoint, HttpSource
from vllm_length_exporter.watch import ACCEPT_PAGE, Watch

SERVERS = 200
DEFAULT_INTERVAL = 5  # seconds between two polls: the daemon's own
SELDOM = 140  # seconds: keeps polls out of a measurement of scrapes
MOST_PROMETHEUS = 4 / 0.72  # the budget of a poll, over what Prometheus used where the budget was set
STARTS = 5
PROMETHEUS = {  # what Prometheus 3.5 sends
    "Accept": "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
    "application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,"
    "text/plain;version=0.0.4;q=0.3,*/*;q=0.2",
    "Accept-Encoding": "gzip",
}


def main() -> int:
    with tempfile.TemporaryDirectory() as name, Fleet(SERVERS) as fleet:
        print(f"pages of {fleet.pages[0].count(chr(10))} lines\n\n{HEADER}")
        kept = True
        for part in (polls, parts_of_a_poll, memory, scrapes, starts):
            for figure in part(fleet, Path(name)):
                print(figure.row(), flush=True)
                kept = kept and figure.kept
    return 0 if kept else 1


def polls(fleet: Fleet, folder: Path) -> list[Figure]:
    """CPU of a poll, the daemon's loop and all: one server often, and all of them at once."""
    figures = []
    for count, interval, polled in ((1, 0.1, 200), (SERVERS, 1, 15 * SERVERS)):
        with daemon_for(fleet, folder, count, interval) as daemon:
            ours = milliseconds_per_page(daemon, fleet, polled)
        theirs = prometheus_milliseconds(fleet, folder, count, interval, polled)
        what = f"CPU of a poll, {count} server{'s' * (count > 1)}"
        figures.append(Figure(what, ours, "ms", 4, theirs, MOST_PROMETHEUS))
    return figures


def prometheus_milliseconds(fleet: Fleet, folder: Path, count: int, interval: float, polled: int) -> float:
    program = binaries.find("prometheus")
    if program is None:
        raise FileNotFoundError(f"prometheus is missing: {binaries.HOW}")
    config = scrape_config(f"{interval * 1000:.0f}ms", {"vllm": fleet.addresses[:count]})
    with Prometheus(program, folder / f"prometheus-{count}", config) as prometheus:
        return milliseconds_per_page(prometheus, fleet, polled)


def milliseconds_per_page(process: Process, fleet: Fleet, pages: int) -> float:
    """CPU time for each page that the process asks for, once it has asked for a fifth as many."""
    asked_for(process, fleet, pages // 5)
    served, cpu = fleet.served, cpu_seconds(process.pid)
    asked_for(process, fleet, pages)
    return (cpu_seconds(process.pid) - cpu) / (fleet.served - served) * 1e3


def asked_for(process: Process, fleet: Fleet, pages: int) -> None:
    begin = fleet.served
    what = f"{pages} pages were asked for"
    process.wait_until(lambda: fleet.served - begin >= pages, seconds=300, what=what, every=0.2)


def parts_of_a_poll(fleet: Fleet, folder: Path) -> list[Figure]:
    """Medians in this process: the HTTP exchange, and all the rest."""
    del folder
    endpoint = Endpoint(f"http://{fleet.addresses[1]}")
    watch, source = Watch("bench", endpoint), HttpSource(endpoint)
    watch.poll()
    fetch, whole = [], []
    for _ in range(100):
        fetch.append(thread_milliseconds(lambda: source.get("/metrics", ACCEPT_PAGE)))
        whole.append(thread_milliseconds(watch.poll))
    watch.close()
    source.close()
    rest = statistics.median(whole) - statistics.median(fetch)
    return [
        Figure("  of it fetch", statistics.median(fetch), "ms"),
        Figure("  of it parse, derive, publish", rest, "ms", 2),
    ]


def thread_milliseconds(work: Callable[[], object]) -> float:
    begun = time.thread_time()
    work()
    return (time.thread_time() - begun) * 1e3


def memory(fleet: Fleet, folder: Path) -> list[Figure]:
    """Resident memory with one server and with all; and what one server's objects weigh when its history is full."""
    resident = []
    for count in (1, SERVERS):
        with daemon_for(fleet, folder, count, 1) as daemon:
            asked_for(daemon, fleet, 10 * count)
            resident.append(resident_bytes(daemon.pid))
    small, large = resident
    return [
        Figure("memory, one server", small / 1e6, "MB", 60),
        Figure(f"memory, {SERVERS} servers", large / 1e6, "MB"),
        Figure("  of it a further server", (large - small) / (SERVERS - 1) / 1e3, "kB", 200),
        Figure("objects of a server after an hour", bytes_after(fleet, 3600) / 1e3, "kB", 200),
    ]


def bytes_after(fleet: Fleet, seconds: int) -> float:
    """What the objects of one server weigh after so long, by a clock that is turned on."""
    now = 0.0
    endpoints = [Endpoint(f"http://{address}") for address in fleet.addresses[2:5]]
    first, *watches = [
        Watch(f"hour-{i}", endpoint, monotonic=lambda: now) for i, endpoint in enumerate(endpoints)
    ]
    first.poll()  # what all servers share is made now
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for _ in range(seconds // DEFAULT_INTERVAL):
        now += DEFAULT_INTERVAL
        for watch in watches:
            watch.poll()
    gc.collect()
    used = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    for watch in (first, *watches):
        watch.close()
    return used / len(watches)


def scrapes(fleet: Fleet, folder: Path) -> list[Figure]:
    """CPU and time of a scrape as Prometheus asks for it."""
    return [scrape(fleet, folder, 1, 200, 2.0), scrape(fleet, folder, SERVERS, 20, None)]


def scrape(fleet: Fleet, folder: Path, count: int, repeated: int, budget: float | None) -> Figure:
    times = []
    with daemon_for(fleet, folder, count, SELDOM) as daemon, requests.Session() as session:
        session.headers.update(PROMETHEUS)
        get = partial(session.get, f"{daemon.base_url}/metrics", timeout=30)
        daemon.wait_until(lambda: limits(get().text) == count, seconds=60, what="all limits", every=0.5)
        cpu = cpu_seconds(daemon.pid)
        for _ in range(repeated):
            begun = time.perf_counter()
            size = len(get().content)
            times.append(time.perf_counter() - begun)
        spent = (cpu_seconds(daemon.pid) - cpu) / repeated
    note = f"{size / 1e3:.0f} kB unpacked, answered in {statistics.median(times) * 1e3:.1f} ms"
    return Figure(f"CPU of a scrape, {count} server{'s' * (count > 1)}", spent * 1e3, "ms", budget, note=note)


def starts(fleet: Fleet, folder: Path) -> list[Figure]:
    """From the command to the first scrape that holds the server's limit."""
    times = [start(fleet, folder) for _ in range(STARTS)]
    note = f"worst of {STARTS}: {max(times):.2f} s"
    return [Figure("start to first scrape", statistics.median(times), "s", 0.7, note=note)]


def start(fleet: Fleet, folder: Path) -> float:
    daemon = Daemon(folder / "start.log", "--server", f"http://{fleet.addresses[0]}")
    begun = time.monotonic()
    daemon.start()
    try:
        daemon.wait_until(
            lambda: limits(requests.get(f"{daemon.base_url}/metrics", timeout=5).text),
            seconds=30,
            what="a scrape with the limit",
            every=0.005,
            ignoring=(requests.ConnectionError,),
        )
        return time.monotonic() - begun
    finally:
        daemon.terminate()


def limits(page: str) -> int:
    """How many servers' limits a page holds."""
    return page.count("\nvllm_length_max_model_len_tokens{")


def daemon_for(fleet: Fleet, folder: Path, count: int, interval: float) -> Daemon:
    """A daemon that polls so many servers of the fleet every `interval` seconds."""
    config = folder / f"{count}-every-{interval}.yml"
    servers = [{"name": f"server-{i}", "url": f"http://{at}"} for i, at in enumerate(fleet.addresses[:count])]
    config.write_text(json.dumps({"servers": servers, "poll_interval": interval}))  # YAML holds JSON
    return Daemon(folder / f"{count}-every-{interval}.log", "--config", str(config))


if __name__ == "__main__":
    sys.exit(main())
