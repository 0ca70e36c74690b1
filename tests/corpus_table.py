"""Tries the product on a folder of published vLLM output, entry by entry: right, withheld or wrong.

    python -m tests.corpus_table FOLDER [--all]

Each entry is a JSON object with `text`, `kind` and `expected`. The folder is none of this project's: the texts
have other owners, so nothing of them is kept here. Ends with 1 where a number is wrong.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vllm_length_exporter.explain import explain
from vllm_length_exporter.story import Story, opens
from vllm_length_exporter.story import told as fold
from vllm_length_exporter.vllm.events import Event, EventName
from vllm_length_exporter.vllm.lines import events
from vllm_length_exporter.vllm.names import Quantity
from vllm_length_exporter.vllm.page import read_page

GIB = 2**30
CAUSES: Mapping[str, tuple[str, ...]] = {
    # what the entries call a cause -> ours; a tight or healthy server has none
    "none": ("none", "auto_fit_reduced", "limit_beyond_window"),
    "kv_cache_too_small_for_max_model_len": ("kv_cache_too_small",),
    "no_memory_for_kv_blocks": ("no_kv_memory",),
    "max_model_len_exceeds_model": ("limit_above_window",),
    "max_model_len_override_warning": ("limit_beyond_window",),
    "gpu_memory_busy": ("memory_busy",),
    "cuda_oom_after_kv_alloc": ("out_of_memory",),
    "code_error": ("other",),
    "engine_crash_device_error": ("engine_died",),
    "client_code_error": ("none",),
    "kv_capacity_tight": ("none", "kv_cache_saturated"),
    "user_typo_suspect": ("none",),
    "kv_cache_pressure": ("kv_cache_saturated", "preempting"),
    "length_rejection": (
        "prompt_too_long", "prompt_plus_output_too_long", "output_too_long", "no_room_for_output",
    ),
}  # fmt: skip
WITHHELD: Mapping[str, str] = {
    "block_size": "a default that no line names",
    "preemptions": "no line counts them: V1 logs none",
    "starts": "the lines that open a start were left out",
    "length_rejections": "tracebacks whose first lines were left out are not counted",
}


@dataclass(frozen=True)
class Cell:
    """One expected field of one entry."""

    entry: str
    field: str
    expected: object
    got: object
    verdict: str
    reason: str = ""


def stories(told: list[Event]) -> list[Story]:
    """The starts that the log tells, one story each."""
    found = [Story()]
    for event in told:
        if opens(found[-1], event):
            found.append(Story())
        found[-1] = fold(found[-1], event)
    return found


def readings(text: str) -> dict[str, object]:
    """What the product reads from a log or a message, under the names of the entries."""
    told, explanation = events(text.split("\n")), explain(text)
    story = stories(told)[-1]
    numbers, failure = explanation.numbers, story.failure
    refused = [event for event in told if event.name is EventName.REFUSED]
    capacity = min(story.capacity_tokens.values(), default=None)
    limit = story.auto_fit.fitted if story.auto_fit else None
    limit = limit or story.model_length or story.max_seq_len or story.concurrency_length
    asked = numbers.get("limit") or numbers.get("requested")
    override = next(iter(story.override.values()), (None, None))[1]
    blocks = min(story.blocks.values(), default=None)
    totals = [event.integer("num_gpu_blocks_total") for event in told if event.name is EventName.KV_BLOCKS]
    argument = story.argument_number
    memory = min(story.kv_memory.values(), default=None)
    return {
        "max_model_len": limit or asked or argument("max_model_len"),
        "derived_max_model_len": numbers.get("window"),
        "kv_tokens": capacity,
        "concurrency": min(story.concurrency.values(), default=numbers.get("full_length_concurrency")),
        "available_gib": gib(memory if memory is not None else numbers.get("available_bytes")),
        "needed_gib": gib(numbers.get("needed_bytes")),
        "estimated_max_model_len": numbers.get("estimated_limit"),
        "num_gpu_blocks": override or blocks or next((total for total in totals if total), None),
        "block_size": story.block_size or argument("block_size"),
        "preemptions": numbers.get("preemptions"),
        "prompt_tokens": numbers.get("prompt_tokens"),
        "prompt_tokens_at_least": numbers.get("prompt_tokens_at_least"),
        "completion_tokens": numbers.get("output_tokens"),
        "max_tokens_derived": numbers.get("output_tokens"),
        "free_gib": gib(number(failure and failure.numbers.get("free_bytes"))),
        "total_gib": gib(number(failure and failure.numbers.get("total_bytes"))),
        "wanted_gib": gib(number(failure and failure.numbers.get("desired_bytes"))),
        "kv_cache_memory_bytes": argument("kv_cache_memory_bytes"),
        "length_rejections": len(refused) or None,
        "starts": len(stories(told)) if any(story.arguments for story in stories(told)) else None,
        "peak_kv_usage_pct": usages(told) or None,
        "cause": explanation.cause,
    }


def page_readings(text: str) -> dict[str, object]:
    """What the product reads from a metrics page; the label "None" is no value."""
    page = read_page(f"{text}\n".encode())
    samples, counted = page.of(Quantity.CACHE_CONFIG), page.by_engine(Quantity.PREEMPTIONS)
    labels = dict(samples[0].labels) if samples else {}
    return {
        "kv_tokens": labels.get("kv_cache_size_tokens"),
        "concurrency": labels.get("kv_cache_max_concurrency"),
        "num_gpu_blocks": labels.get("num_gpu_blocks"),
        "block_size": labels.get("block_size"),
        "preemptions": sum(counted.values()) if counted else None,
    }


def usages(told: list[Event]) -> list[float]:
    """The shares of the KV cache that the statistics name, in per cent."""
    shares = [event.number("kv_cache_usage_ratio") for event in told if event.name is EventName.STATISTICS]
    return [round(share * 100, 1) for share in shares if share is not None]


def gib(value: float | None) -> float | None:
    return None if value is None else round(value / GIB, 2)


def number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def cells(entry: Mapping[str, Any], name: str) -> Iterator[Cell]:
    """Every expected field that the product has a reading for."""
    page = entry["kind"] == "metrics_page"
    read = page_readings(entry["text"]) if page else readings(entry["text"])
    expected, derived = entry["expected"], entry.get("derived_fields", ())
    for field, value in expected.items():
        if field not in read or (value is None and read[field] is None):
            continue
        got = read[field]
        yield Cell(name, field, value, got, *verdict(field, value, got, derived, entry["text"]))


def verdict(
    field: str, expected: object, got: object, derived: tuple[str, ...], text: str
) -> tuple[str, str]:
    if field == "cause":
        right = got in CAUSES.get(str(expected), (expected,))
        return ("right" if right else "withheld" if got is None else "wrong"), ""
    if got is None:
        if field in derived:
            return "withheld", "computed by a person, not printed"
        return "withheld", WITHHELD.get(field) or (
            "not printed" if is_not_in(expected, text) else "not at the start of a record"
        )
    if isinstance(got, list):
        return ("right" if expected in got else "withheld"), "the text's own figures are others"
    if isinstance(expected, int | float) and isinstance(got, int | float | str):
        same = math.isclose(float(expected), float(got), rel_tol=0, abs_tol=0.005)
        if not same and field == "length_rejections" and float(got) < float(expected):
            return "withheld", WITHHELD[field]
        return ("right" if same else "wrong"), ""
    return ("right" if expected == got else "wrong"), ""


def is_not_in(value: object, text: str) -> bool:
    spellings = {str(value), f"{value:,}" if isinstance(value, int | float) else str(value)}
    return not any(re.search(rf"(?<![\d.,]){re.escape(spelling)}(?![\d])", text) for spelling in spellings)


def main() -> int:
    """Print the table and say whether a number was wrong."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--all", action="store_true", help="print the right cells too")
    options = parser.parse_args()
    counts: Counter[str] = Counter()
    paths = sorted(options.folder.glob("*.json"))
    if not paths:
        print(f"{options.folder}: no entries (*.json) there", file=sys.stderr)
        return 2
    for path in paths:
        entry = json.loads(path.read_text(encoding="utf-8"))
        for cell in cells(entry, path.stem):
            counts[cell.verdict] += 1
            if options.all or cell.verdict != "right":
                print(
                    f"{cell.entry[:44]:44}  {cell.field:24}  {cell.expected!s:>14.30}  {cell.got!s:>18}"
                    f"  {cell.verdict:8}  {cell.reason}"
                )
    print(
        f"{len(paths)} entries: {counts['right']} right, {counts['withheld']} withheld, {counts['wrong']} wrong"
    )
    return 1 if counts["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
