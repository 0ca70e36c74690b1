"""`python -m tests.real.versions VENV ...`: the middleware in other versions of vLLM, against the client's count.

VENV is a virtual environment with a vLLM for the CPU. For each, the load of `tests/real/load.py` is sent to a server
with the middleware, and a table shows what the client saw beside what was counted. Exits with 1 where they differ.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from tests.real.client import Client
from tests.real.load import Truth, length_load, truth
from tests.real.tiny_model import make_tiny_model
from tests.real.vllm_server import SMALL_CACHE, VllmServer
from vllm_length_exporter.derive.values import ServerView
from vllm_length_exporter.inspection import Inspection

LIMIT = 8192
START_SECONDS = 900  # of an old version on a busy machine
PREFIX = "vllm_length_middleware_"
SOURCE = Path(__file__).parents[2] / "exporter"
MIDDLEWARE = ("--middleware", "vllm_length_exporter.middleware.LengthAccounting")


def main(homes: list[str]) -> int:
    if not homes:
        print(__doc__, file=sys.stderr)
        return 2
    return max(run(Path(home)) for home in homes)


def run(home: Path) -> int:
    """The exit code of one version."""
    with tempfile.TemporaryDirectory() as name:
        server = with_middleware(home, make_tiny_model(Path(name) / "tiny"), Path(name) / "log", *SMALL_CACHE)
        with server:
            server.wait_ready(START_SECONDS)
            version = server.version()
            sent = length_load(Client(server.base_url), LIMIT)
            page, log = server.page(), server.output()
    expected, found = truth(sent, LIMIT), counted(page)
    told = without_middleware(page, log)
    print(f"\nvLLM {version}")
    for what, ours, theirs in rows(expected, found):
        print(
            f"  {what:<42} client {ours:>3}   middleware {theirs:>3}   {'' if ours == theirs else 'DIFFERS'}"
        )
    print(f"  {'vLLM itself, http_requests_total':<42} {statuses(page)}")
    lines = {"page and log": told, "page alone": without_middleware(page, "")}
    holds = [shown_without(what, view, expected.refused) for what, view in lines.items()]
    return int(expected != found or not all(holds))


def without_middleware(page: str, log: str) -> ServerView:
    """What the same run tells where the middleware is not there."""
    inspection = Inspection("without")
    lines = [line for line in page.splitlines(keepends=True) if PREFIX not in line]
    inspection.read_page("".join(lines).encode())
    if log:
        inspection.read_log(log.splitlines())
    return inspection.view()


def shown_without(what: str, view: ServerView, refused: Mapping[str, int]) -> bool:
    """One line; whether what is said to be exact is, and what is said to be a bound holds."""
    level = view.rejections_observable
    if level == "exact":
        found = {row.cause: row.count for row in view.rejections if row.count}
        holds, shown = found == refused, f"{found} by {view.rejections[0].evidence}"
    else:
        bound = view.client_errors
        holds = bound is not None and bound[1] >= sum(refused.values())
        shown = "nothing" if bound is None else f"at most {bound[1]} by {bound[0]}"
    print(f"  {f'without it, {what}':<42} {level}: {shown}   {'' if holds else 'DIFFERS'}", flush=True)
    return holds


def with_middleware(home: Path, model: Path, log: Path, *arguments: str) -> VllmServer:
    """A vLLM with the middleware, found as on a read-only mount: by its path, and never installed."""
    return VllmServer(home, model, log, *MIDDLEWARE, *arguments, environment={"PYTHONPATH": str(SOURCE)})


def counted(page: str) -> Truth:
    """What the middleware says of a whole page."""
    outcomes = series(page, "requests_total", "outcome")
    return Truth(
        refused=series(page, "refused_total", "cause"),
        clamped=sum(series(page, "clamped_total", "model").values()),
        truncated=series(page, "truncated_total", "cause"),
        served=outcomes.get("served", 0),
        client_errors=outcomes.get("client_error", 0),
    )


def series(page: str, name: str, label: str) -> dict[str, int]:
    """One series of the middleware, summed by the values of one label; zeros left out."""
    found: dict[str, int] = {}
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            if sample.name == PREFIX + name and sample.value:
                key = sample.labels[label]
                found[key] = found.get(key, 0) + int(sample.value)
    return found


def statuses(page: str) -> Mapping[str, int]:
    """Requests by status, as vLLM counts them itself."""
    found: dict[str, int] = {}
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            if sample.name == "http_requests_total" and sample.labels["method"] == "POST":
                key = sample.labels["status"]
                found[key] = found.get(key, 0) + int(sample.value)
    return found


def rows(expected: Truth, found: Truth) -> Iterator[tuple[str, int, int]]:
    """(what, by the client, by the middleware)."""
    yield "served", expected.served, found.served
    for what, ours, theirs in (
        ("refused", expected.refused, found.refused),
        ("truncated", expected.truncated, found.truncated),
    ):
        for cause in sorted({*ours, *theirs}):
            yield f"{what}: {cause}", ours.get(cause, 0), theirs.get(cause, 0)
    yield "clamped", expected.clamped, found.clamped
    yield "other client errors", expected.client_errors, found.client_errors


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
