"""What must hold whatever happens, asked of each scrape against what the stand-ins know."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.exposition import Page
from tests.faults.exporter import Cost, Exporter
from tests.faults.log import ServerLog
from tests.faults.vllm import PAGES_OF_A_PROCESS, Mode, Vllm

POLL = 1.0  # seconds
STALE = 3 * POLL
PATIENCE = 3.0  # seconds for a busy machine
MEMORY_GROWTH = 16_000  # kB
DESCRIPTOR_GROWTH = 30
LEAST_ON_TIME = 0.2  # of the values that are checked; without a busy machine it is 0.6


@dataclass
class Checker:
    """Counts what it checked, and keeps each violation as one line."""

    exporter: Exporter
    servers: list[Vllm]
    logs: dict[str, ServerLog]
    lagged_at: Callable[[], float]  # when the stand-ins themselves could not answer in time
    checks: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)
    costs: list[tuple[float, int, Cost]] = field(default_factory=list)  # time, start, cost
    frozen_until: float = 0.0
    worst_age: float = 0.0
    _counted: dict[str, tuple[int, float]] = field(default_factory=dict)

    def check(self) -> None:
        asked = time.monotonic()
        written = {name: log.refusals for name, log in self.logs.items()}
        page = self.exporter.scrape()
        took = time.monotonic() - asked
        self.checks["scrapes"] += 1
        for server in self.servers:
            self._values(page, server, asked, took)
            self._promptness(page, server, asked)
        for name, log in self.logs.items():
            self._events(page, name, written[name], log)
        if page.get("vllm_length_exporter_job_errors_total", task="poll") or page.get(
            "vllm_length_exporter_job_errors_total", task="log"
        ):
            self._wrong("a job of the exporter failed of its own fault")
        self.costs.append((asked, self.exporter.starts, self.exporter.cost()))

    def _values(self, page: Page, server: Vllm, asked: float, took: float) -> None:
        """Every value is one page's, that page was served lately, and no value is an earlier process's."""
        of = {"server": server.name}
        running = page.get("vllm_length_requests_running", **of)
        if running is None:
            if page.get("vllm_length_preemptions_total", **of) is not None:
                self._wrong(f"{server.name}: half a page is published")
            return
        self.checks["values"] += 1
        process, number = divmod(int(running), PAGES_OF_A_PROCESS)
        served = {(proc, num): at for at, proc, num in list(server.pages)}
        at = served.get((process, number))
        if at is None:
            self._wrong(f"{server.name}: {running} was on no page of it")
            return
        age = asked - at
        self.worst_age = max(self.worst_age, age)
        if age > STALE + took + PATIENCE / 2:
            self._wrong(f"{server.name}: a value {age:.1f} s old is published")
        if (got := page.get("vllm_length_preemptions_total", **of)) != number:
            self._wrong(f"{server.name}: preemptions {got} beside the page {number}")
        capacity = page.get("vllm_length_kv_cache_capacity_tokens", **of)
        if capacity is not None and capacity != server.capacity_of(process):
            self._wrong(f"{server.name}: capacity {capacity} of another process than {process}")
        limit = page.get("vllm_length_max_model_len_tokens", **of)
        if limit is not None:
            # The API may have answered for a process that started after the page.
            true = {server.limit_of(proc) for proc in range(process, server.process + 1)}
            if limit not in true:
                self._wrong(f"{server.name}: limit {limit} where only {sorted(true)} were true")

    def _promptness(self, page: Page, server: Vllm, asked: float) -> None:
        """A server that answers is read on time, whatever its neighbours do."""
        well_since = max(server.since, self.exporter.started, self.frozen_until, self.lagged_at())
        if server.mode is not Mode.OK or asked - well_since < STALE + PATIENCE:
            return
        self.checks["on time"] += 1
        at = page.get(
            "vllm_length_source_last_success_timestamp_seconds", server=server.name, source="metrics"
        )
        age = None if at is None else time.time() - at
        if age is None or age > 2 * POLL + PATIENCE:
            self._wrong(f"{server.name}: answers, and was last read {age} s ago")
        if page.get("vllm_length_max_model_len_tokens", server=server.name) is None and (
            asked - well_since > STALE + PATIENCE + 8 * POLL
        ):
            self._wrong(f"{server.name}: answers, and its limit is not published")

    def _events(self, page: Page, name: str, written: int, log: ServerLog) -> None:
        """No refusal is counted before it is written, or twice; none is forgotten while the exporter runs."""
        self.checks["events"] += 1
        counted = counted_refusals(page, name)
        if counted > log.refusals:
            self._wrong(f"{name}: {counted:g} refusals counted of {written} written")
        rows = list(page.all("vllm_length_rejections_total", server=name, evidence="server_log"))
        if rows and sum(row.value for row in rows) != counted:
            self._wrong(f"{name}: {sum(row.value for row in rows):g} rejections of {counted:g} refusals")
        start, before = self._counted.get(name, (0, 0.0))
        if start == self.exporter.starts and counted < before:
            self._wrong(f"{name}: refusals fell from {before:g} to {counted:g}")
        self._counted[name] = (self.exporter.starts, counted)

    def _wrong(self, what: str) -> None:
        if len(self.violations) < 200:
            self.violations.append(what)

    # --- at the end

    def finish(self) -> None:
        """What only shows over the whole run."""
        output = self.exporter.output()
        self.checks["log of the exporter"] += 1
        if self.checks["on time"] < self.checks["values"] * LEAST_ON_TIME:
            self._wrong("the machine was too busy to tell whether servers are read on time")
        if "Traceback" in output:
            self._wrong("a traceback in the exporter's log")
        for start in range(1, self.exporter.starts + 1):
            costs = [(at, cost) for at, which, cost in self.costs if which == start]
            warm = [cost for at, cost in costs if at >= costs[0][0] + 15] if costs else []
            if len(warm) < 20:
                continue
            self.checks["flat"] += 1
            first, last = warm[: len(warm) // 3], warm[-len(warm) // 3 :]
            grown = _median(last, "memory") - _median(first, "memory")
            opened = _median(last, "descriptors") - _median(first, "descriptors")
            if grown > MEMORY_GROWTH:
                self._wrong(f"memory grew by {grown} kB in the start {start}")
            if opened > DESCRIPTOR_GROWTH:
                self._wrong(f"{opened} more descriptors in the start {start}")


def counted_refusals(page: Page, server: str) -> float:
    return page.get("vllm_length_log_events_total", server=server, event="refused") or 0.0


def _median(costs: list[Cost], what: str) -> int:
    return sorted(int(getattr(cost, what)) for cost in costs)[len(costs) // 2]
