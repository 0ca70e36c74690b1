"""The fault suite in CI: three minutes of mixed faults, and 500 servers of which a fifth is sick."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
import yaml

from tests.bench.fleet import Fleet
from tests.deadline import wait_for
from tests.faults.chaos import survive
from tests.faults.exporter import Exporter
from tests.faults.vllm import Mode, Servers, Vllm

HEALTHY, SICK = 400, 100
POLL = 5.0  # seconds, the default
WATCHED = 25.0  # seconds
BASE_MEMORY, MEMORY_EACH = 60_000, 300  # kB; the budget of a server is 200, and a busy machine gets some more


@pytest.mark.slow
@pytest.mark.endurance
@pytest.mark.timeout(600)
def test_three_minutes_of_mixed_faults(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    seed = int(os.environ.get("FAULTS_SEED", "1"))
    with capsys.disabled():
        violations = survive(tmp_path / "faults", 180, seed)
    assert violations == []


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_500_servers_of_which_100_are_sick(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sick = [Vllm(f"sick-{number}") for number in range(SICK)]
    modes = (Mode.HANG, Mode.REFUSE, Mode.ERROR, Mode.GARBAGE, Mode.DRIP)
    config = tmp_path / "exporter.yml"
    with Fleet(HEALTHY) as fleet, Servers(sick) as servers:
        for number, server in enumerate(sick):
            servers.behave(server, modes[number % len(modes)])
        rows = [
            {"name": f"well-{i}", "url": f"http://{address}"} for i, address in enumerate(fleet.addresses)
        ]
        rows += [{"name": server.name, "url": f"http://127.0.0.1:{server.port}"} for server in sick]
        config.write_text(yaml.safe_dump({"poll_interval": "5s", "servers": rows}))
        exporter = Exporter(tmp_path, config)
        try:
            exporter.begin()
            wait_for(
                lambda: _well(exporter) == HEALTHY, seconds=60, what="all healthy servers are read", every=1
            )
            served, begun, processor = fleet.served, time.monotonic(), _seconds(exporter.pid)
            worst = 0.0
            while time.monotonic() - begun < WATCHED:
                now = time.time()
                page = exporter.scrape()
                ages = [
                    now - row.value
                    for row in page.all("vllm_length_source_last_success_timestamp_seconds", source="metrics")
                    if row.labels["server"].startswith("well-")
                ]
                worst = max(worst, *ages)
                assert len(ages) == HEALTHY
                time.sleep(5)  # reading 500 servers' series costs more than watching them
            took = time.monotonic() - begun
            polls, share = fleet.served - served, (_seconds(exporter.pid) - processor) / took
            cost = exporter.cost()
        finally:
            exporter.terminate()
    with capsys.disabled():
        print(
            f"\n500 servers, 100 of them sick, {took:.0f} s: {polls} polls of healthy ones "
            f"({polls / (HEALTHY * took / POLL):.0%} of those due), none read longer ago than {worst:.1f} s, "
            f"{share:.0%} of a core, {cost.memory} kB, {cost.descriptors} descriptors, {cost.threads} threads"
        )
    assert "Traceback" not in exporter.output()
    assert polls >= 0.8 * HEALTHY * took / POLL
    assert worst < 3 * POLL
    assert cost.memory < BASE_MEMORY + MEMORY_EACH * (HEALTHY + SICK)


def _well(exporter: Exporter) -> int:
    up = exporter.scrape().all("vllm_length_source_up", source="metrics")
    return sum(row.value == 1 and row.labels["server"].startswith("well-") for row in up)


def _seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
