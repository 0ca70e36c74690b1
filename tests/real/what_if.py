"""`python -m tests.real.what_if VENV ...`: the what-if table against servers started with the limits of its rows.

VENV is a virtual environment with a vLLM for the CPU. One server is measured; then, for each length of its table, a
server is started with that `--max-model-len`, and the concurrency that vLLM reports stands beside what the table
foretold. Ends with 1 where they differ by more than a block. Some three minutes a version.
"""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path

from tests.real.tiny_model import make_tiny_model
from tests.real.vllm_server import SMALL_CACHE, START_SECONDS, VllmServer
from vllm_length_exporter.inspection import Inspection
from vllm_length_exporter.sources.http import Endpoint, HttpSource

REPORTED = re.compile(r"Maximum concurrency for ([\d,]+) tokens per request: ([\d.]+)x")
CACHES = {"80 blocks by override": SMALL_CACHE, "1 GiB": ()}
ROUNDING = 0.005  # of the two digits that vLLM prints


def main(homes: list[str]) -> int:
    if not homes:
        print(__doc__, file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        model = make_tiny_model(work / "tiny")
        agree = [
            compare(Path(home), model, work / f"{number}-{what[:2]}.log", what)
            for number, home in enumerate(homes)
            for what in CACHES
        ]
    return 0 if all(agree) else 1


def compare(home: Path, model: Path, log: Path, what: str) -> bool:
    """The table of one server, a line a row; whether every row agrees within one block."""
    cache, agree = CACHES[what], True
    with VllmServer(home, model, log, *cache) as server:
        server.wait_ready(START_SECONDS)
        measured = Inspection("measured")
        measured.ask(HttpSource(Endpoint(server.base_url)))
        measured.read_log(server.output().splitlines())
        view = measured.view()
        engine = view.capacity[0]
        print(f"\n{home.name}, {what}: {engine.blocks.value if engine.blocks else '?'} usable blocks")
        for row in view.concurrency_at:
            log.write_text("")
            server.restart(*cache, "--max-model-len", str(row.tokens))
            said = server.wait_until(
                lambda: REPORTED.search(log.read_text()), seconds=START_SECONDS, what="the concurrency"
            )
            assert said is not None
            assert engine.block_size is not None
            blocks = -(-row.tokens // engine.block_size.value)
            reported = float(said.group(2))
            off = max(0.0, abs(reported - row.requests) - ROUNDING) * blocks
            agree = agree and off <= 1
            print(
                f"  --max-model-len {row.tokens:>6}  table {row.requests:>8.2f}  vLLM {reported:>8.2f}"
                f"  {off:.2f} blocks apart{'' if off <= 1 else '  DIFFERS'}",
                flush=True,
            )
    return agree


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
