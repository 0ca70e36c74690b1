"""`python -m tests.bench.bench_daemon`: the daemon's cost against the budgets, as a table.

Processors differ, so a budget of time goes with what a real Prometheus spends on the same pages in the same run.
Exits with 1 when a budget is not kept.
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
from tests.bench.figure import HEADER, Figure, Yardstick
from tests.bench.fleet import Fleet
from tests.live.daemon import Daemon
from tests.process import Process
from tests.real.prometheus import Prometheus, scrape_config
from tests.tools import binaries
from vllm_length_exporter.moments import LENGTHS_EVERY_SECONDS
from vllm_length_exporter.sources.http import Endpoint, HttpSource
from vllm_length_exporter.watch import ACCEPT_PAGE, Watch
from vllm_length_exporter.web.history import EVERY as SAMPLED
from vllm_length_exporter.web.history import History

SERVERS = 200
DEFAULT_INTERVAL = 5  # seconds between two polls: the daemon's own
WINDOW = 300  # seconds of which every page is kept: the daemon's own
SELDOM = 140  # seconds: keeps polls out of a measurement of scrapes
PROMETHEUS_THEN = 0.72  # ms of CPU for one page, where the budgets were set
POLLS = 200  # of one server, to measure a poll
FEW = 4  # polls of a server until its memory is looked at
RECKONED = "reckoned from its objects, without what the allocator keeps"
STARTS = 5
FLEET = 500  # servers on the status page
PROMETHEUS = {  # what Prometheus 3.5 sends
    "Accept": "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
    "application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,"
    "text/plain;version=0.0.4;q=0.3,*/*;q=0.2",
    "Accept-Encoding": "gzip",
}


def main() -> int:
    with tempfile.TemporaryDirectory() as name, Fleet(SERVERS) as fleet:
        folder = Path(name)
        print(f"pages of {fleet.pages[0].count(chr(10))} lines")
        pace = prometheus(fleet, folder, 1, 0.1, POLLS)
        print(
            f"Prometheus spends {pace.here:.2f} ms of CPU on one of them, {pace.there:.2f} ms where the budgets were "
            f"set: a budget of time is {pace.pace:.1f} times as long here\n\n{HEADER}"
        )
        kept = True
        for part in (polls, parts_of_a_poll, memory, scrapes, status_pages, starts):
            for figure in part(fleet, folder, pace):
                print(figure.row(), flush=True)
                kept = kept and figure.kept
    return 0 if kept else 1


def prometheus(fleet: Fleet, folder: Path, count: int, interval: float, pages: int) -> Yardstick:
    """CPU of a page in a real Prometheus that scrapes so many servers."""
    program = binaries.find("prometheus")
    if program is None:
        raise FileNotFoundError(f"prometheus is missing: {binaries.HOW}")
    config = scrape_config(f"{interval * 1000:.0f}ms", {"vllm": fleet.addresses[:count]})
    with Prometheus(program, folder / f"prometheus-{count}", config) as process:
        return Yardstick("Prometheus", milliseconds_per_page(process, fleet, pages), PROMETHEUS_THEN)


def polls(fleet: Fleet, folder: Path, pace: Yardstick) -> list[Figure]:
    """CPU of a poll, the daemon's loop and all: one server often, and all of them at once."""
    figures = []
    for count, interval, pages in ((1, 0.1, POLLS), (SERVERS, 1, 15 * SERVERS)):
        with daemon_for(fleet, folder, count, interval) as daemon:
            ours = milliseconds_per_page(daemon, fleet, pages)
        theirs = pace if count == 1 else prometheus(fleet, folder, count, interval, pages)
        note = f"{ours / theirs.here:.1f} x Prometheus' {theirs.here:.2f} ms"
        figures.append(Figure(f"CPU of a poll, {servers(count)}", ours, "ms", 4, theirs, note))
    return figures


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


def parts_of_a_poll(fleet: Fleet, folder: Path, pace: Yardstick) -> list[Figure]:
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
        Figure("  of it parse, derive, publish", rest, "ms", 2, pace),
    ]


def thread_milliseconds(work: Callable[[], object]) -> float:
    begun = time.thread_time()
    work()
    return (time.thread_time() - begun) * 1e3


def memory(fleet: Fleet, folder: Path, pace: Yardstick) -> list[Figure]:
    """Resident memory with one server and with all; and what one server's objects weigh when its history is full."""
    del pace
    resident = []
    for count in (1, SERVERS):
        with daemon_for(fleet, folder, count, DEFAULT_INTERVAL) as daemon:
            asked_for(daemon, fleet, FEW * count)
            resident.append(resident_bytes(daemon.pid))
    small, large = resident
    further = (large - small) / (SERVERS - 1)
    young, old = bytes_of(fleet, FEW, 0), bytes_of(fleet, WINDOW // DEFAULT_INTERVAL, 3600 - WINDOW)
    return [
        Figure("memory, one server", small / 1e6, "MB", 60),
        Figure(f"memory, {SERVERS} servers", large / 1e6, "MB"),
        Figure("  of it a further server", further / 1e3, "kB", 200),
        Figure("  and with an hour of history", (further + old - young) / 1e3, "kB", 200, note=RECKONED),
        Figure("objects of a server after an hour", old / 1e3, "kB", 200),
    ]


def bytes_of(fleet: Fleet, polls: int, before: float) -> float:
    """What the objects of one busy server weigh after so many polls and `before` seconds, by a clock turned on."""
    now = 0.0
    endpoints = [Endpoint(f"http://{address}") for address in fleet.addresses[2:5]]
    first, *watches = [
        Watch(f"hour-{i}", endpoint, monotonic=lambda: now) for i, endpoint in enumerate(endpoints)
    ]
    first.poll()  # what all servers share is made now
    tracemalloc.start()
    unused = tracemalloc.get_traced_memory()[0]
    history = History()
    # A page a minute leaves the same hour behind as twelve, and the recording lasts: no server stands still.
    minutes = int(before // LENGTHS_EVERY_SECONDS)
    for passed in (*[LENGTHS_EVERY_SECONDS] * minutes, *[DEFAULT_INTERVAL] * polls):
        now += passed
        for watch in watches:
            watch.poll()
        for _ in range(int(passed // SAMPLED)):  # as the daemon does, for the page's curves
            history.record([view for watch in watches if (view := watch.snapshot().view)], now)
    gc.collect()
    used = tracemalloc.get_traced_memory()[0] - unused
    tracemalloc.stop()
    for watch in (first, *watches):
        watch.close()
    return used / len(watches)


def status_pages(fleet: Fleet, folder: Path, pace: Yardstick) -> list[Figure]:
    """Time of the status page, of one server in full and of a fleet."""
    figures = []
    for count, path, budget in ((1, "/?server=server-0", 10), (FLEET, "/", 100)):
        with daemon_for(fleet, folder, count, SELDOM) as daemon, requests.Session() as session:
            get = partial(session.get, f"{daemon.base_url}{path}", timeout=30)
            scrape = f"{daemon.base_url}/metrics"
            daemon.wait_until(
                lambda: limits(session.get(scrape, timeout=30).text) == count,  # noqa: B023 - called at once
                seconds=120, what="all limits", every=1,
            )  # fmt: skip
            times = []
            for _ in range(30):
                begun = time.perf_counter()
                answer = get()
                times.append((time.perf_counter() - begun) * 1e3)
                assert answer.ok, answer.status_code
            note = f"{len(answer.content) / 1e3:.0f} kB, the slowest {max(times):.1f} ms"
        figures.append(
            Figure(f"a status page, {servers(count)}", statistics.median(times), "ms", budget, pace, note)
        )
    return figures


def scrapes(fleet: Fleet, folder: Path, pace: Yardstick) -> list[Figure]:
    """CPU and time of a scrape as Prometheus asks for it."""
    figures = []
    for count, repeated, budget in ((1, 200, 2.0), (SERVERS, 20, None)):
        spent, note = scrape(fleet, folder, count, repeated)
        figures.append(Figure(f"CPU of a scrape, {servers(count)}", spent, "ms", budget, pace, note))
    return figures


def scrape(fleet: Fleet, folder: Path, count: int, repeated: int) -> tuple[float, str]:
    """Milliseconds of CPU, and what else there is to say."""
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
    return spent * 1e3, note


def starts(fleet: Fleet, folder: Path, pace: Yardstick) -> list[Figure]:
    """From the command to the first scrape that holds the server's limit."""
    times = [start(fleet, folder) for _ in range(STARTS)]
    note = f"worst of {STARTS}: {max(times):.2f} s"
    return [Figure("start to first scrape", statistics.median(times), "s", 0.7, pace, note)]


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


def servers(count: int) -> str:
    return "1 server" if count == 1 else f"{count} servers"


def limits(page: str) -> int:
    """How many servers' limits a page holds."""
    return page.count("\nvllm_length_max_model_len_tokens{")


def daemon_for(fleet: Fleet, folder: Path, count: int, interval: float) -> Daemon:
    """A daemon that polls so many servers of the fleet every `interval` seconds."""
    config = folder / f"{count}-every-{interval}.yml"
    asked = [
        {"name": f"server-{i}", "url": f"http://{fleet.addresses[i % len(fleet.addresses)]}"}
        for i in range(count)
    ]
    config.write_text(json.dumps({"servers": asked, "poll_interval": interval}))  # YAML holds JSON
    return Daemon(folder / f"{count}-every-{interval}.log", "--config", str(config))


if __name__ == "__main__":
    sys.exit(main())
