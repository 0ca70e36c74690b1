"""`python -m tests.bench.bench_log`: lines a second of the log reader, with the whole catalogue, by kind of log.

mtail, with three patterns, reads the same file in the same run: processors differ, so the budget goes with it.
Exits with 1 when the budget of access-log-heavy input is not kept.
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from tests.bench.figure import HEADER, Figure, Yardstick
from tests.tools import binaries
from vllm_length_exporter.vllm.lines import LogParser

BUDGET = 1_000_000  # lines a second of a core, access-log-heavy
MTAIL_THEN = 376_000  # what mtail did where the budget was set
LINES = 300_000
ROUNDS = 3
RECORDING = Path(__file__).parents[1] / "recordings" / "0.16.0-pressure" / "server.log"
PROGRAM = r"""
counter errors
counter finished
gauge usage
/" 4\d\d / {
  errors++
}
/" 2\d\d / {
  finished++
}
/KV cache usage: (?P<share>[\d.]+)%/ {
  usage = $share
}
"""
ACCESS = '(APIServer pid=16681) INFO:     10.0.{0}.{1}:{2} - "POST /v1/chat/completions HTTP/1.1" 200 OK'
REFUSED = (
    '(APIServer pid=16681) INFO:     10.0.{0}.{1}:{2} - "POST /v1/chat/completions HTTP/1.1" 400 Bad Request'
)
STATISTICS = (
    "(APIServer pid=16681) INFO 11-29 15:{0:02}:{1:02} [loggers.py:259] Engine 000: Avg prompt throughput: {2}.9 "
    "tokens/s, Avg generation throughput: 2067.5 tokens/s, Running: 8 reqs, Waiting: 0 reqs, GPU KV cache usage: "
    "{0}.7%, Prefix cache hit rate: 0.0%"
)


def access_heavy() -> Iterable[str]:
    """98 % finished requests, 1 % client errors, 1 % statistics: a busy server's log."""
    for number in range(LINES):
        fields = number // 250 % 250, number % 250, 1024 + number % 60_000
        if number % 100 == 50:
            yield REFUSED.format(*fields)
        elif number % 100 == 75:
            yield STATISTICS.format(number // 6000 % 60, number // 100 % 60, number)
        else:
            yield ACCESS.format(*fields)


def statistics_heavy() -> Iterable[str]:
    """Nothing but statistics, as of many engines."""
    for number in range(LINES // 4):
        yield STATISTICS.format(number // 60 % 60, number % 60, number)


def traceback_heavy() -> Iterable[str]:
    """The recorded log of a server that refuses, its tracebacks again and again."""
    lines = RECORDING.read_text(encoding="utf-8").splitlines()
    first = next(index for index, line in enumerate(lines) if "Error in preprocessing" in line)
    last = max(index for index, line in enumerate(lines) if "VLLMValidationError" in line)
    refusals = lines[first : last + 1]
    return refusals * (LINES // 4 // len(refusals))


def of_docker() -> Iterable[str]:
    """The access-log-heavy input as Docker keeps it."""
    for line in access_heavy():
        entry = {"log": f"{line}\n", "stream": "stdout", "time": "2026-11-29T15:00:00.123456789Z"}
        yield json.dumps(entry, separators=(",", ":"))


INPUTS: dict[str, Callable[[], Iterable[str]]] = {
    "access-log-heavy": access_heavy,
    "statistics-heavy": statistics_heavy,
    "traceback-heavy": traceback_heavy,
    "access-log-heavy, docker's json-file": of_docker,
}


def ours(path: Path) -> float:
    """Seconds of CPU for the file, reading and decoding included; the best of some rounds."""
    best = float("inf")
    for _ in range(ROUNDS):
        gc.collect()
        parser, begin = LogParser(), time.process_time()
        with path.open(encoding="utf-8") as lines:
            parser.feed_many(lines)
        parser.end()
        best = min(best, time.process_time() - begin)
    return best


def mtails(mtail: Path, path: Path, scratch: Path) -> float:
    """Seconds of CPU that mtail takes for the file, less what it takes for an empty one."""
    program, empty = scratch / "three.mtail", scratch / "empty.log"
    program.write_text(PROGRAM, encoding="utf-8")
    empty.write_text("", encoding="utf-8")

    def run(log: Path) -> float:
        files = ["-progs", str(program), "-logs", str(log)]
        command = [str(mtail), "-one_shot", *files, "-logtostderr", "-stderrthreshold", "3"]
        before = os.times()
        subprocess.run(command, check=True, capture_output=True)
        after = os.times()
        return after.children_user + after.children_system - before.children_user - before.children_system

    return min(run(path) for _ in range(ROUNDS)) - min(run(empty) for _ in range(ROUNDS))


def main() -> int:
    mtail = binaries.find("mtail")
    if mtail is None:
        print("mtail is not here: `make tools` puts it beside\n")
    print(HEADER)
    kept = True
    with tempfile.TemporaryDirectory() as name:
        for what, make in INPUTS.items():
            path = Path(name) / "server.log"
            lines = list(make())
            path.write_text("\n".join(lines) + "\n", encoding="utf-8")
            figure = measured(what, len(lines), path, mtail)
            print(figure.row(), flush=True)
            kept = kept and figure.kept
    return 0 if kept else 1


def measured(what: str, lines: int, path: Path, mtail: Path | None) -> Figure:
    """Lines a second of this file, beside mtail's where there is one."""
    rate, budget = lines / ours(path), BUDGET if what == "access-log-heavy" else None
    pace, note = None, ""
    if mtail is not None:
        pace = Yardstick("mtail", lines / mtails(mtail, path, path.parent), MTAIL_THEN)
        note = f"{rate / pace.here:.1f} x mtail's {pace.here:,.0f}"
    return Figure(what, rate, "lines/s", budget, pace, note, at_least=True, digits=0)


if __name__ == "__main__":
    sys.exit(main())
