"""Faults at random, from a seed, with the invariants checked all the while; and a table of what was done."""

from __future__ import annotations

import random
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

import requests
import yaml

from tests.deadline import wait_for
from tests.faults.exporter import Exporter
from tests.faults.invariants import POLL, Checker, counted_refusals
from tests.faults.log import ServerLog
from tests.faults.vllm import Mode, Servers, Vllm

EVERY = 0.25  # seconds between scrapes


@dataclass
class Row:
    """One kind of fault: how often, for how long in all, how much was checked meanwhile, what was wrong."""

    times: int = 0
    seconds: float = 0.0
    checks: int = 0
    violations: list[str] = field(default_factory=list)


class Chaos:
    """Servers, logs, and the exporter, in `folder`."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.folder = folder
        self.servers = [Vllm(f"server-{number}") for number in range(6)]
        self.logging = [Vllm(f"logging-{number}", restarts=False) for number in range(3)]
        self.config = folder / "exporter.yml"
        self.state = folder / "state"
        self.rows: dict[str, Row] = {}
        self._extra = False
        self._stop = threading.Event()

    def run(self, seconds: float) -> Checker:
        self.state.mkdir(parents=True)
        with ExitStack() as stack:
            self.vllm = stack.enter_context(Servers([*self.servers, *self.logging]))
            self.logs = {
                server.name: ServerLog(self.folder / f"{server.name}.log", number)
                for number, server in enumerate(self.logging)
            }
            for log in self.logs.values():
                stack.callback(log.close)
            self._configure()
            self.exporter = Exporter(self.folder, self.config)
            stack.callback(self.exporter.terminate)
            self.exporter.begin()
            self._wait_ready()
            self.checker = Checker(
                self.exporter, [*self.servers, *self.logging], self.logs, lambda: self.vllm.lagged_at
            )
            writer = threading.Thread(target=self._refuse_now_and_then)
            writer.start()
            stack.callback(writer.join)
            stack.callback(self._stop.set)
            faults = self._faults()
            end = time.monotonic() + seconds
            order = self._order(faults)
            while time.monotonic() < end:
                self._one(next(order), faults)
            self._stop.set()
            writer.join()
            self._settle()
            assert self.exporter.terminate() == 0
            self.checker.finish()
        return self.checker

    # --- set-up

    def _configure(self) -> None:
        servers: list[dict[str, object]] = [
            {"name": server.name, "url": f"http://127.0.0.1:{server.port}", "timeout": "1s"}
            for server in [*self.servers, *self.logging]
        ]
        for row in servers:
            if row["name"] in self.logs:
                row["log"] = str(self.logs[str(row["name"])].path)
        if self._extra:
            servers.append({"name": "extra", "url": "http://127.0.0.1:1"})
        fresh = self.config.with_suffix(".new")
        fresh.write_text(
            yaml.safe_dump(
                {
                    "poll_interval": f"{POLL:g}s",
                    "models_interval": "20s",
                    "window": "10s",
                    "workload_window": "20s",
                    "state_dir": str(self.state),
                    "servers": servers,
                }
            )
        )
        fresh.replace(self.config)

    def _wait_ready(self) -> None:
        wait_for(
            lambda: requests.get(f"{self.exporter.base_url}/-/ready", timeout=5).ok,
            seconds=30, what="the exporter has asked everybody",
        )  # fmt: skip

    def _refuse_now_and_then(self) -> None:
        own = random.Random(7)
        while not self._stop.wait(own.uniform(0.1, 0.6)):
            own.choice(list(self.logs.values())).refuse(own.randint(1, 3))

    # --- one fault

    def _faults(self) -> dict[str, Callable[[], None]]:
        def misbehave(mode: Mode) -> Callable[[], None]:
            return lambda: self._misbehave(mode)

        return {
            "servers refuse connections, and are back": misbehave(Mode.REFUSE),
            "servers flap": self._flap,
            "servers hang": misbehave(Mode.HANG),
            "servers drip": misbehave(Mode.DRIP),
            "servers answer 500": misbehave(Mode.ERROR),
            "servers answer garbage": misbehave(Mode.GARBAGE),
            "pages end in the middle": misbehave(Mode.CUT),
            "pages without end": misbehave(Mode.HUGE),
            "servers answer just within the time": misbehave(Mode.SLOW),
            "servers restart with another version and limit": self._restart,
            "log storm, with forged lines": self._log_storm,
            "rotation storm": self._rotation_storm,
            "log file away": self._log_away,
            "state directory on a full disk": self._full_disk,
            "SIGHUP storm": self._hangups,
            "scrape storm, with scrapers that never read": self._scrape_storm,
            "the exporter is frozen": self._freeze,
            "kill -9 of the exporter, and resume": self._kill,
        }

    def _order(self, faults: dict[str, Callable[[], None]]) -> Iterator[str]:
        while True:
            names = list(faults)
            self.random.shuffle(names)
            yield from names

    def _one(self, name: str, faults: dict[str, Callable[[], None]]) -> None:
        row = self.rows.setdefault(name, Row())
        begun, checks, known = (
            time.monotonic(),
            sum(self.checker.checks.values()),
            len(self.checker.violations),
        )
        faults[name]()
        self._watch(self.random.uniform(0.5, 2.0))
        row.times += 1
        row.seconds += time.monotonic() - begun
        row.checks += sum(self.checker.checks.values()) - checks
        row.violations += self.checker.violations[known:]

    def _watch(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.checker.check()
            time.sleep(EVERY)

    def _some(self) -> list[Vllm]:
        return self.random.sample(self.servers, self.random.randint(1, 4))

    def _misbehave(self, mode: Mode) -> None:
        chosen = self._some()
        for server in chosen:
            self.vllm.behave(server, mode)
        self._watch(self.random.uniform(3.0, 6.0))
        for server in chosen:
            self.vllm.behave(server, Mode.OK)

    def _flap(self) -> None:
        chosen = self._some()
        for _ in range(8):
            for server in chosen:
                self.vllm.behave(server, self.random.choice(list(Mode)))
            self._watch(0.4)
        for server in chosen:
            self.vllm.behave(server, Mode.OK)

    def _restart(self) -> None:
        for _ in range(self.random.randint(1, 4)):
            for server in self._some():
                self.vllm.restart(server)
            self._watch(self.random.uniform(0.1, 2.5))

    def _log_storm(self) -> None:
        for log in self.logs.values():
            log.storm(20_000)
            log.refuse()
        self._watch(3)

    def _rotation_storm(self) -> None:
        log = self.random.choice(list(self.logs.values()))
        for _ in range(10):
            log.refuse(2)
            log.rotate()
            self._watch(0.1)
        log.refuse()
        self._watch(1)

    def _log_away(self) -> None:
        log = self.random.choice(list(self.logs.values()))
        log.hide(away=True)
        self._watch(2)
        log.refuse()
        log.hide(away=False)
        self._watch(1)

    def _full_disk(self) -> None:
        blocked = self.state / "resume.json.new"

        def fill() -> bool:
            """Not in the middle of a write: the file would be another one than the exporter began."""
            self.exporter.freeze()
            try:
                if blocked.exists():
                    return False
                blocked.symlink_to("/dev/full")
                return True
            finally:
                self.exporter.thaw()

        wait_for(fill, seconds=30, what="the exporter writes no state")
        self._watch(7)
        blocked.unlink()

    def _hangups(self) -> None:
        for _ in range(40):
            self._extra = not self._extra
            self._configure()
            self.exporter.signal(signal.SIGHUP)
            time.sleep(0.02)
        self._extra = False
        self._configure()
        self.exporter.signal(signal.SIGHUP)
        self._watch(2)

    def _scrape_storm(self) -> None:
        idle: list[socket.socket] = []
        for _ in range(20):  # they ask, and never read the answer, or not even ask
            with suppress(OSError):
                sleeper = socket.create_connection(("127.0.0.1", self.exporter.port), 5)
                if len(idle) % 2:
                    sleeper.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
                idle.append(sleeper)
        with ThreadPoolExecutor(16) as pool:
            asked = [
                pool.submit(requests.get, f"{self.exporter.base_url}/metrics", timeout=30) for _ in range(120)
            ]
            for future in asked:
                with suppress(requests.RequestException):
                    future.result()
        self._watch(1)
        for sleeper in idle:
            sleeper.close()

    def _freeze(self) -> None:
        self.exporter.freeze()
        time.sleep(self.random.uniform(2, 6))
        self.checker.frozen_until = time.monotonic()
        self.exporter.thaw()
        self._watch(2)

    def _kill(self) -> None:
        self.exporter.kill()
        time.sleep(self.random.uniform(0, 2))
        self.exporter.begin()
        self._watch(3)

    # --- the end

    def _settle(self) -> None:
        """All is well again: every refusal was counted, once, and stays so."""
        row = self.rows.setdefault("all is well again: every refusal counted once", Row())
        begun, known = time.monotonic(), len(self.checker.violations)
        for server in self.servers:
            self.vllm.behave(server, Mode.OK)
        for name, log in self.logs.items():
            log.refuse()  # what was held back as unfinished is told
            with suppress(AssertionError):
                wait_for(
                    lambda name=name, log=log: counted_refusals(self.exporter.scrape(), name) >= log.complete,  # type: ignore[misc]
                    seconds=30, what=f"all of {name} is counted",
                )  # fmt: skip
        self._watch(4)
        page = self.exporter.scrape()
        for name, log in self.logs.items():
            row.checks += 1
            if (counted := counted_refusals(page, name)) != log.complete:
                self.checker.violations.append(
                    f"{name}: {counted:g} of {log.complete} refusals counted at the end"
                )
        row.times, row.seconds = 1, time.monotonic() - begun
        row.violations += self.checker.violations[known:]

    def table(self) -> str:
        refusals = sum(log.complete for log in self.logs.values())
        lines = [f"{'fault':<52}{'times':>6}{'seconds':>9}{'checked':>9}  result"]
        for name, row in self.rows.items():
            result = "ok" if not row.violations else f"{len(row.violations)} WRONG: {row.violations[0]}"
            lines.append(f"{name:<52}{row.times:>6}{row.seconds:>9.0f}{row.checks:>9}  {result}")
        first, last = self.checker.costs[0][2], self.checker.costs[-1][2]
        lines += [
            "checked: " + ", ".join(f"{count} {what}" for what, count in self.checker.checks.items()),
            (
                f"{refusals} refusals written; {self.exporter.starts} starts of the exporter; "
                f"oldest value published {self.checker.worst_age:.1f} s"
            ),
            (
                f"memory {first.memory} -> {last.memory} kB, descriptors {first.descriptors} -> {last.descriptors}, "
                f"threads {first.threads} -> {last.threads}"
            ),
        ]
        return "\n".join(lines) + "\n"


def survive(folder: Path, seconds: float, seed: int) -> list[str]:
    """Run, print the table, and return what was wrong."""
    chaos = Chaos(folder, seed)
    checker = chaos.run(seconds)
    sys.stdout.write(f"seed {seed}\n{chaos.table()}")
    return checker.violations
