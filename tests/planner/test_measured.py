"""From doctor's JSON: measured numbers instead of theory, and bounds where they do not decide."""

from __future__ import annotations

import json
from typing import Any

import pytest
from packaging.version import Version

from tests.planner.test_recordings import STARTED, limit, planned
from tests.recorded import NAMES, last_view, truth
from vllm_length_exporter.planner.error import PlanError
from vllm_length_exporter.planner.measured import Server, server
from vllm_length_exporter.planner.plan import plan_model, plan_server
from vllm_length_exporter.planner.reading import ModelFiles
from vllm_length_exporter.planner.settings import Device, Settings
from vllm_length_exporter.report import as_json

DOCUMENT: dict[str, Any] = {
    "server": "gpu-1:8000",
    "vllm_version": "0.32.0",
    "limits": {
        "effective": {"value": 8192, "source": "models_api"},
        "max_num_seqs": {"value": 16, "source": "engine_log"},
    },
    "capacity": [
        {
            "engine": "0",
            "tokens": {"value": 10240, "source": "cache_config"},
            "memory_bytes": {"value": 1 << 30, "source": "startup_log"},
            "bytes_per_token": {"value": 1024.0, "source": "startup_log"},
            "blocks": {"value": 79, "source": "cache_config"},
            "block_size": {"value": 128, "source": "cache_config"},
            "full_length_concurrency": {"value": 1.25, "source": "cache_config"},
        }
    ],
    "unknown": [],
}  # fmt: skip


def read(*servers: dict[str, Any], name: str | None = None) -> Server:
    return server({"servers": list(servers)}, "doctor.json", name)


def changed(**changes: Any) -> dict[str, Any]:
    """DOCUMENT with other numbers of its one engine; None takes a number away."""
    engine = {
        **DOCUMENT["capacity"][0],
        **{key: {"value": value, "source": "x"} for key, value in changes.items()},
    }
    engine = {
        key: value
        for key, value in engine.items()
        if not isinstance(value, dict) or value["value"] is not None
    }
    return {**DOCUMENT, "capacity": [engine]}


def doctor(name: str) -> Server:
    """A recorded server, as doctor's own JSON tells it."""
    return server(json.loads(as_json([last_view(name)])), name)


@pytest.mark.parametrize("name", [name for name in STARTED if name not in ("0.16.0-kvauto",)])
def test_measured_and_planned_agree_on_every_recorded_server(name: str) -> None:
    seen, pool = doctor(name), planned(name)
    assert seen.limit == limit(name)
    assert seen.capacity.usable_blocks == pool.usable_blocks
    assert seen.capacity.blocks_at_limit == pool.layout.blocks(limit(name))
    for length in (1, 100, 1000, limit(name) // 2, limit(name)):
        found = seen.capacity.requests(length)
        engines = pool.layout.settings.data_parallel_size
        assert found.low <= pool.requests(length) * engines <= found.high
        assert found.exact or not seen.capacity.one_group


def test_the_hybrid_is_not_taken_for_plain_blocks() -> None:
    seen = doctor("0.32.0-hybrid")
    assert not seen.capacity.one_group
    at_limit, below = seen.capacity.requests(32_768), seen.capacity.requests(8_192)
    assert (at_limit.low, at_limit.high) == (43, 43)
    assert (below.low, below.high) == (43, 170)  # in truth 16,383 of 64 + 5 x 25 blocks: 86
    assert planned("0.32.0-hybrid").requests(8_192) == 86
    made = plan_server(seen, Settings())
    assert any("bounds only" in note for note in made.notes)


def test_with_the_model_s_files_the_hybrid_is_exact_and_held_against_the_measured() -> None:
    seen, config = doctor("0.32.0-hybrid"), truth("0.32.0-hybrid")["model_config"]
    settings = Settings(version=Version("0.32.0"), device=Device.CPU, dtype="float32")
    made = plan_model(ModelFiles(config), settings, measured=seen, lengths=(8_192,))
    assert made.at_lengths[0].requests.low == made.at_lengths[0].requests.high == 86
    assert "measured capacity 1,409,110 tokens, planned 1,409,110 (they agree)" in made.notes
    wrong = plan_model(ModelFiles(config), Settings(version=Version("0.32.0")), measured=seen)
    assert any("a flag of the server is missing here" in note for note in wrong.notes)


def test_blocks_stand_for_memory_where_a_page_tells_only_them() -> None:
    """An fp8 cache in the same memory holds four times what float32 does."""
    told = json.loads(as_json([last_view("0.32.0-yarn")]))
    for engine in told["servers"][0]["capacity"]:
        engine.pop("memory_bytes", None)
    seen = server(told, "page")
    assert seen.memory_bytes is None
    settings = Settings(version=Version("0.32.0"), device=Device.CPU, dtype="float32")
    made = plan_model(ModelFiles(truth("0.32.0-yarn")["model_config"]), settings, measured=seen)
    assert made.budget is not None
    assert made.budget.kv_cache.low == 1 << 30
    fp8 = next(row for row in made.what_ifs if row.change == "--kv-cache-dtype fp8")
    assert (made.at_lengths[-1].requests.low, fp8.requests.low) == (127, 511)


def test_two_engines_are_counted_together_and_the_smaller_speaks() -> None:
    smaller = {**DOCUMENT["capacity"][0], "engine": "1", "blocks": {"value": 70, "source": "x"}}
    smaller |= {
        "tokens": {"value": 71 * 128, "source": "x"},
        "full_length_concurrency": {"value": 71 / 64, "source": "x"},
    }
    found = read({**DOCUMENT, "capacity": [*DOCUMENT["capacity"], smaller]})
    assert (found.capacity.engines, found.capacity.usable_blocks) == (2, 70)
    assert found.capacity.requests(1000).low == 2 * (70 // 8)


@pytest.mark.parametrize(
    ("total", "block_size", "limit"), [(100_001, 16, 1_280_000), (4_096, 128, 262_144), (77_777, 16, 131_072)]
)
def test_a_concurrency_rounded_by_the_log_does_not_blur_the_blocks(
    total: int, block_size: int, limit: int
) -> None:
    """At 100,001 blocks, 1.25 stands for anything between 79,681 and 80,321 blocks a request."""
    blocks = -(-limit // block_size)
    for tokens in (total * block_size, int(total / blocks * limit)):  # until 0.19, and since
        engine = changed(
            tokens=tokens,
            blocks=total - 1,
            block_size=block_size,
            full_length_concurrency=round(total / blocks, 2),
        )
        found = read({**engine, "limits": {"effective": {"value": limit, "source": "x"}}})
        assert (found.capacity.blocks_at_limit, found.capacity.one_group) == (blocks, True)


def test_what_more_memory_or_another_limit_changes() -> None:
    made = plan_server(read(DOCUMENT), Settings(), concurrencies=(4,))
    assert [(row.change, row.requests.low, row.longest.low) for row in made.what_ifs] == [
        ("+0.10 GiB for the KV cache", 1, 8192),
        ("+0.50 GiB for the KV cache", 1, 8192),
        ("+1.00 GiB for the KV cache", 2, 8192),
        ("half of the limit: 4,096", 2, 4096),
    ]
    assert made.at_concurrencies[0].longest.low == 79 // 4 * 128
    assert (made.settings.max_num_seqs, made.limit_source) == (16, "measured")


def test_flags_do_not_name_what_the_server_did_not_tell() -> None:
    told = plan_server(read(DOCUMENT), Settings())
    assert [flag.name for flag in told.flags] == ["--max-model-len", "--max-num-seqs"]
    silent = plan_server(
        read({**DOCUMENT, "limits": {"effective": DOCUMENT["limits"]["effective"]}}), Settings()
    )
    assert [flag.name for flag in silent.flags] == ["--max-model-len"]
    asked = plan_server(
        read({**DOCUMENT, "limits": {"effective": DOCUMENT["limits"]["effective"]}}),
        Settings(),
        concurrencies=(4,),
    )
    assert [(flag.name, flag.value) for flag in asked.flags] == [
        ("--max-model-len", "2432"),
        ("--max-num-seqs", "4"),
    ]


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({}, "doctor.json: not doctor's JSON: it has no list of servers"),
        ({"servers": [1]}, "doctor.json: not doctor's JSON: it has no list of servers"),
        ({"servers": []}, "doctor.json: 0 servers: choose one by its name"),
        ({"servers": [DOCUMENT, DOCUMENT]}, "doctor.json: 2 servers: choose one by its name"),
        (
            {"servers": [{**DOCUMENT, "limits": {}}]},
            "doctor.json: limits.effective is missing: doctor withheld it",
        ),
        ({"servers": [{**DOCUMENT, "capacity": []}]}, "doctor.json: capacity is missing: doctor withheld it"),
        (
            {"servers": [{**changed(full_length_concurrency=None), "unknown": [{"missing": "the log"}]}]},
            "doctor.json: capacity: full_length_concurrency is missing: doctor needs the log",
        ),
        ({"servers": [changed(blocks=None)]}, "doctor.json: capacity: blocks is missing: doctor withheld it"),
        ({"servers": [changed(blocks=True)]}, "doctor.json: capacity: blocks is missing: doctor withheld it"),
    ],
)
def test_what_a_plan_cannot_start_from_is_one_line(document: dict[str, Any], message: str) -> None:
    with pytest.raises(PlanError) as failure:
        server(document, "doctor.json")
    assert str(failure.value) == message


def test_a_server_is_chosen_by_its_name() -> None:
    other = {**DOCUMENT, "server": "gpu-2:8000", "limits": {"effective": {"value": 4096, "source": "x"}}}
    assert read(DOCUMENT, other, name="gpu-2:8000").limit == 4096
    with pytest.raises(PlanError) as failure:
        read(DOCUMENT, other, name="gpu-3:8000")
    assert str(failure.value) == "doctor.json: no server gpu-3:8000; there is gpu-1:8000, gpu-2:8000"


def test_doctor_has_what_a_plan_needs_for_all_that_started() -> None:
    told = [name for name in NAMES if name in STARTED and name != "0.16.0-kvauto"]
    assert len(told) >= 12
    for name in told:
        assert doctor(name).limit > 0
