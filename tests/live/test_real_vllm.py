"""A real vLLM is started, loaded, killed and restarted; the daemon's series are compared with what the client saw."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.exposition import Page
from tests.live.daemon import Daemon, Watcher
from tests.real.client import Answer, Client
from tests.real.vllm_server import SMALL_CACHE, VllmServer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

POLL = 2.0  # seconds
SERVER = "tiny-server"
BLOCKS, BLOCK_SIZE, SEQUENCES = 79, 128, 16  # SMALL_CACHE, less the null block
CAPACITY = 80 * BLOCK_SIZE
LIMIT, NEW_LIMIT = 8192, 4096
CROWD, PROMPT, OUTPUT = 24, 700, 1200  # more than the cache holds
# What outlives a server's process: the exporter's own counts, and what it says of its sources and of the server's end.
OUTLIVES = (
    "vllm_length_server_",
    "vllm_length_startup_",
    "vllm_length_source_",
    "vllm_length_log_",
    "vllm_length_rejections_",
    "vllm_length_client_errors_",
    "vllm_length_exporter_",
    "vllm_length_unknown",
    "vllm_length_finding",
)


@dataclass(frozen=True)
class Scene:
    vllm: VllmServer
    daemon: Daemon
    watcher: Watcher


@dataclass(frozen=True)
class Load:
    """What the client saw, and the daemon's pages meanwhile."""

    answers: list[Answer]
    limit: int
    pages: list[Page]


def value(page: Page, series: str, **labels: str) -> float | None:
    return page.get(f"vllm_length_{series}", server=SERVER, **labels)


def state(page: Page) -> str:
    (now,) = [one.labels["state"] for one in page.all("vllm_length_server_state", server=SERVER) if one.value]
    return now


@pytest.fixture(scope="module")
def scene(vllm_home: Path, tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """The daemon is there first; the server and its log come later."""
    folder = tmp_path_factory.mktemp("live")
    vllm = VllmServer(vllm_home, tiny_model, folder / "vllm.log", *SMALL_CACHE)
    arguments = [
        "--server",
        vllm.base_url,
        "--name",
        SERVER,
        "--log",
        str(vllm.log),
        "--poll-interval",
        str(POLL),
    ]
    with Daemon(folder / "daemon.log", *arguments) as daemon, Watcher(daemon, every=0.2) as watcher, vllm:
        yield Scene(vllm, daemon, watcher)


@pytest.fixture(scope="module")
def load(scene: Scene) -> Load:
    scene.vllm.wait_ready()
    client = Client(scene.vllm.base_url)
    begun = time.monotonic()
    answers = [
        client.complete(client.tokens(50), max_tokens=20, ignore_eos=True),
        client.chat("hello", max_tokens=5, ignore_eos=True),
        client.complete(client.tokens(LIMIT + 100), max_tokens=5),  # refused: prompt over the limit
        client.chat("hello", max_tokens=LIMIT + 500),  # refused: output over the limit
        *client.crowd(CROWD, PROMPT, OUTPUT),
    ]

    def at_rest() -> bool:
        page = scene.daemon.scrape()
        return value(page, "requests_running") == 0 and value(page, "preemptions_total") == preemptions(scene)

    scene.daemon.wait_until(at_rest, seconds=10 * POLL, what="the daemon has seen the load end")
    (card,) = client.models()
    limit = card["max_model_len"]
    assert isinstance(limit, int)
    return Load(answers, limit, scene.watcher.since(begun))


def preemptions(scene: Scene) -> float:
    return Page(scene.vllm.page()).value("vllm:num_preemptions_total", engine="0")


@pytest.fixture(scope="module")
def killed(scene: Scene, load: Load) -> float:
    """The moment when the server's whole process group was killed."""
    scene.vllm.kill()
    return time.monotonic()


@pytest.fixture(scope="module")
def restarted(scene: Scene, killed: float) -> Page:
    """The daemon's page at the second poll after the server with a new limit became ready."""
    scene.daemon.wait_until(
        lambda: state(scene.daemon.scrape()) == "down", seconds=3 * POLL, what="state down"
    )
    scene.vllm.restart(*SMALL_CACHE, "--max-model-len", str(NEW_LIMIT))
    scene.vllm.wait_ready()
    scene.daemon.wait_until(
        lambda: value(scene.daemon.scrape(), "max_model_len_tokens"),
        seconds=2 * POLL,
        what="a limit within two polls",
    )
    scene.daemon.wait_until(
        lambda: value(scene.daemon.scrape(), "kv_cache_used_blocks") is not None,
        seconds=POLL,
        what="a whole page",
    )
    return scene.daemon.scrape()


def test_the_load_was_what_it_should_be(scene: Scene, load: Load) -> None:
    assert [answer.status for answer in load.answers].count(400) == 2
    assert all(answer.completion_tokens == OUTPUT for answer in load.answers[-CROWD:])
    assert preemptions(scene) > 0


def test_limits_are_the_servers(scene: Scene, load: Load) -> None:
    page = scene.daemon.scrape()
    assert load.limit == LIMIT
    assert value(page, "max_model_len_tokens", model_name="tiny") == LIMIT
    assert value(page, "max_model_len_info", source="models_api", mode="default") == 1
    assert value(page, "max_model_len_requested_tokens") is None
    assert value(page, "max_num_seqs") == SEQUENCES


def test_capacity_is_the_servers(scene: Scene, load: Load) -> None:
    page = scene.daemon.scrape()
    assert value(page, "kv_cache_capacity_tokens", engine="0") == CAPACITY
    assert value(page, "kv_cache_blocks", engine="0") == BLOCKS
    assert value(page, "kv_cache_block_size_tokens", engine="0") == BLOCK_SIZE
    assert value(page, "full_length_concurrency", engine="0") == CAPACITY / LIMIT
    assert value(page, "vllm_info", version=scene.vllm.version()) == 1


def test_used_blocks_are_whole_at_every_poll_and_the_cache_filled_up(scene: Scene, load: Load) -> None:
    used = [value(page, "kv_cache_used_blocks") for page in load.pages]
    usage = [value(page, "kv_cache_usage_ratio") for page in load.pages]
    free = [value(page, "kv_cache_free_tokens") for page in load.pages]
    seen = [(u, r, f) for u, r, f in zip(used, usage, free, strict=True) if u is not None]
    assert seen
    for blocks, ratio, tokens in seen:
        assert blocks.is_integer()
        assert 0 <= blocks <= BLOCKS
        assert ratio == pytest.approx(blocks / BLOCKS, abs=1e-9)
        assert tokens == (BLOCKS - blocks) * BLOCK_SIZE
    # A preemption proves that it was full; which moment a poll meets is the machine's matter.
    assert preemptions(scene) > 0
    assert max(blocks for blocks, _, _ in seen) > 0.5 * BLOCKS


def test_running_never_exceeds_the_scheduler_and_returns_to_zero(scene: Scene, load: Load) -> None:
    running = [n for page in load.pages if (n := value(page, "requests_running")) is not None]
    waiting = [n for page in load.pages if (n := value(page, "requests_waiting")) is not None]
    assert 0 < max(running) <= SEQUENCES
    assert max(waiting) > 0
    assert max(r + w for r, w in zip(running, waiting, strict=True)) <= CROWD
    page = scene.daemon.scrape()
    assert (value(page, "requests_running"), value(page, "requests_waiting")) == (0, 0)


def test_counts_are_the_servers_and_the_clients(scene: Scene, load: Load) -> None:
    page = scene.daemon.scrape()
    reasons = [answer.finish_reason for answer in load.answers]
    assert value(page, "preemptions_total", engine="0") == preemptions(scene)
    assert value(page, "truncations_total", engine="0") == reasons.count("length")
    assert value(page, "requests_finished_total", engine="0") == len(reasons) - reasons.count(None)


def test_refusals_leave_only_a_bound_and_it_is_the_clients(scene: Scene, load: Load) -> None:
    """From 0.27 on the log says nothing about a refused request but its access-log line."""
    scene.daemon.wait_until(
        lambda: value(scene.daemon.scrape(), "client_errors_total", evidence="access_log") == 2,
        seconds=2 * POLL,
        what="two client errors in the access log",
    )
    page = scene.daemon.scrape()
    assert value(page, "rejections_observable", level="upper_bound") == 1
    assert list(page.all("vllm_length_rejections_total", server=SERVER)) == []


def test_before_the_server_served_nothing_was_claimed(scene: Scene, load: Load) -> None:
    early = [page for page in scene.watcher.since() if state(page) in ("down", "starting")]
    assert {state(page) for page in early} == {"down", "starting"}
    assert all(value(page, "requests_running") is None for page in early)


def test_after_a_kill_all_series_go_within_three_polls(scene: Scene, killed: float) -> None:
    def leftovers(page: Page) -> set[str]:
        return {
            s.name
            for s in page.samples
            if s.labels.get("server") == SERVER and not s.name.startswith(OUTLIVES)
        }

    scene.daemon.wait_until(
        lambda: not leftovers(scene.daemon.scrape()),
        seconds=killed + 3 * POLL - time.monotonic(),
        what="nothing of the killed server is published",
    )
    page = scene.daemon.scrape()
    assert state(page) == "down"
    assert page.value("vllm_length_exporter_config_last_reload_successful") == 1
    scene.daemon.wait_until(
        lambda: value(scene.daemon.scrape(), "source_up", source="metrics") == 0,
        seconds=killed + 4 * POLL - time.monotonic() + 1,
        what="source_up is 0 at the poll after three intervals",
    )


def test_after_a_restart_the_new_limit_and_nothing_of_the_old(
    scene: Scene, killed: float, restarted: Page
) -> None:
    assert value(restarted, "max_model_len_tokens") == NEW_LIMIT
    assert value(restarted, "max_model_len_requested_tokens") == NEW_LIMIT
    assert value(restarted, "max_model_len_info", mode="explicit") == 1
    assert value(restarted, "full_length_concurrency") == CAPACITY / NEW_LIMIT
    assert value(restarted, "preemptions_total") == 0
    assert value(restarted, "server_starts_total") == 2
    later = [page for page in scene.watcher.since(killed + POLL) if state(page) == "down"]
    assert later
    first = scene.watcher.since(killed).index(later[0])
    limits = {value(page, "max_model_len_tokens") for page in scene.watcher.since(killed)[first:]}
    assert limits == {None, NEW_LIMIT}
    assert {value(page, "preemptions_total") for page in scene.watcher.since(killed)[first:]} <= {None, 0}


def test_an_asked_for_shutdown_is_down_and_not_failed(scene: Scene, restarted: Page) -> None:
    begun = time.monotonic()
    assert scene.vllm.terminate() == 0
    scene.daemon.wait_until(
        lambda: state(scene.daemon.scrape()) == "down", seconds=3 * POLL, what="state down"
    )
    assert "failed" not in {state(page) for page in scene.watcher.since(begun)}
    failures = scene.daemon.scrape().all("vllm_length_startup_failures_total", server=SERVER)
    assert {failure.value for failure in failures} == {0}
