"""Server: its length budget and its KV cache."""

from __future__ import annotations

from dashboards.board import Section, line, section
from dashboards.panels import bars, lines, stat, table
from dashboards.parts import (
    BYTES,
    PLAIN,
    RATIO,
    TOKENS,
    Column,
    Query,
)
from dashboards.selector import Selector
from dashboards.thresholds import (
    usage_steps,
)
from vllm_length_exporter.collectors.kv_cache import (
    BLOCK_SIZE,
    BLOCKS,
    BYTES_PER_TOKEN,
    CAPACITY,
    CAPACITY_INFO,
    DISAGREEMENT,
    FREE,
    MEMORY,
    USAGE,
    USED,
)
from vllm_length_exporter.collectors.limits import (
    BATCHED_TOKENS,
    MAX_MODEL_LEN,
    MAX_MODEL_LEN_INFO,
    REQUESTED,
    SEQUENCES,
    WINDOW,
)
from vllm_length_exporter.collectors.startup import VLLM_INFO
from vllm_length_exporter.collectors.workload import AT_MOST

from .server_words import NO_PAGE, WITHHELD


def budget(select: Selector) -> Section:
    budget = bars(
        "From the model's window to what fits (tokens)",
        "window: what the model was made for; requested: --max-model-len; limit: what is enforced "
        "now; KV cache: what the smallest engine holds in all; requests: what 99 % of them stay "
        "within. A KV cache below the limit means that a request within the limit can never be "
        "served.",
        Query(f"max({select(WINDOW)})", "window"),
        Query(f"max({select(REQUESTED)})", "requested"),
        Query(f"max({select(MAX_MODEL_LEN)})", "limit"),
        Query(f"min({select(CAPACITY)})", "KV cache"),
        Query(f"max({select(AT_MOST, part='total', share='0.99')})", "requests (99 %)"),
        no_value=WITHHELD,
    )
    origin = table(
        "Where the numbers come from",
        "mode: whether the limit was given (explicit), chosen by vLLM (auto) or neither (default). "
        "Sources: the API, the metrics page's cache_config, or the log.",
        Query(f"max by (server, mode, source) ({select(MAX_MODEL_LEN_INFO)})"),
        Query(
            f'max by (server, capacity_source) (label_replace({select(CAPACITY_INFO)}, "capacity_source", "$1", '
            '"source", "(.*)"))'
        ),
        Query(f"max by (server, version, engine_generation) ({select(VLLM_INFO)})"),
        columns=(
            Column("version", "vLLM"),
            Column("mode", "Mode"),
            Column("source", "Limit from"),
            Column("capacity_source", "Capacity from"),
        ),
        no_value=WITHHELD,
    )
    measured = stat(
        "As measured",
        "KV cache of one engine: memory set aside by one worker, what a token costs in it, tokens, "
        "blocks and their size; and the scheduler's limits for one step. Disagreement: the largest "
        "gap between sources that should agree.",
        Query(f"min({select(MEMORY)})", "KV memory", unit=BYTES),
        Query(f"max({select(BYTES_PER_TOKEN)})", "a token", unit=BYTES),
        Query(f"min({select(CAPACITY)})", "capacity, tokens"),
        Query(f"min({select(BLOCKS)})", "usable blocks"),
        Query(f"max({select(BLOCK_SIZE)})", "tokens a block"),
        Query(f"max({select(SEQUENCES)})", "max_num_seqs"),
        Query(f"max({select(BATCHED_TOKENS)})", "max_num_batched_tokens"),
        Query(f"max({select(DISAGREEMENT)})", "disagreement", unit=RATIO),
        no_value=WITHHELD,
        steps=PLAIN,
        text_mode="value_and_name",
    )
    return section(
        "Length budget",
        line(8, (14, budget), (10, origin)),
        line(4, (24, measured)),
    )


def kv_cache(select: Selector) -> Section:
    usage = lines(
        "In use",
        "Share of KV-cache blocks in use. Above the red line, with requests waiting or preempted, an "
        "alert pages.",
        Query(select(USAGE), "engine {{engine}}"),
        unit=RATIO,
        maximum=1,
        steps=usage_steps(select.thresholds),
        no_value=NO_PAGE,
    )
    headroom = lines(
        "Headroom (tokens)",
        "Tokens that still fit. Below the dashed line a request of the full limit has to wait.",
        Query(select(FREE), "free, engine {{engine}}"),
        Query(f"max({select(MAX_MODEL_LEN)})", "one request of the limit", dashed=True),
        unit=TOKENS,
        no_value=WITHHELD,
    )
    blocks = lines(
        "Blocks",
        "Blocks in use, of those that requests can use. A request takes a whole block for its last "
        "few tokens.",
        Query(select(USED), "in use, engine {{engine}}"),
        Query(f"min({select(BLOCKS)})", "usable in one engine", dashed=True),
        no_value=WITHHELD,
    )
    return section("KV cache", line(8, (8, usage), (8, headroom), (8, blocks)))
