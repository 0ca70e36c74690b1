"""The workload of a live server, from the counters of its metrics page since its process began."""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client.parser import text_string_to_metric_families

from vllm_length_exporter.planner.error import PlanError
from vllm_length_exporter.planner.prices import Workload
from vllm_length_exporter.vllm.names import PREFIXES

# Our names -> vLLM's counters, the first that is there (facts sheet, 1.4).
COUNTERS: Mapping[str, tuple[str, ...]] = {
    "input_tokens": ("prompt_tokens_total",),
    "output_tokens": ("generation_tokens_total",),
    "cached_input_tokens": ("prompt_tokens_cached_total", "prefix_cache_hits_total"),
    "recomputed_tokens": ("prompt_tokens_recomputed_total",),  # 0.16-0.19
    "preemptions": ("num_preemptions_total",),
    "requests": ("request_success_total",),
}
START = "process_start_time_seconds"


def workload(page: str, now: float, refused_requests: int = 0) -> Workload:
    """What a server served from its start until `now` (Unix time).

    Raises:
        PlanError: the page does not hold the counters, or not the time of the start; one line.
    """
    sums, finished_for_length, start = _read(page)
    if start is None:
        raise PlanError(
            "the page does not say when the server started (several API servers): name a workload instead"
        )
    for name in ("input_tokens", "output_tokens", "requests"):
        if name not in sums:
            raise PlanError(
                f"the page has no vllm:{COUNTERS[name][0]}: its statistics are off (--disable-log-stats)"
            )
    hours = (now - start) / 3600
    if hours <= 0:
        raise PlanError("the server started in the future by its own page: the clocks differ")
    return Workload(
        hours=hours,
        requests=sums["requests"],
        input_tokens=sums["input_tokens"],
        output_tokens=sums["output_tokens"],
        cached_input_tokens=min(sums.get("cached_input_tokens", 0), sums["input_tokens"]),
        recomputed_tokens=sums.get("recomputed_tokens"),
        preemptions=sums.get("preemptions", 0),
        refused_requests=refused_requests,
        truncated_requests=finished_for_length,
    )


def _read(page: str) -> tuple[dict[str, int], int, float | None]:
    wanted = {spelling: name for name, spellings in COUNTERS.items() for spelling in spellings}
    found: dict[str, float] = {}
    finished_for_length, start = 0.0, None
    try:
        for family in text_string_to_metric_families(page):
            for sample in family.samples:
                if sample.name == START:
                    start = float(sample.value)
                plain = next(
                    (
                        sample.name.removeprefix(prefix)
                        for prefix in PREFIXES
                        if sample.name.startswith(prefix)
                    ),
                    None,
                )
                if plain in wanted:
                    found[plain] = found.get(plain, 0.0) + float(sample.value)
                if plain == "request_success_total" and sample.labels.get("finished_reason") == "length":
                    finished_for_length += float(sample.value)
    except ValueError as error:
        raise PlanError(f"no metrics page: {' '.join(str(error).split())[:120]}") from None
    sums = {
        name: int(next(found[spelling] for spelling in spellings if spelling in found))
        for name, spellings in COUNTERS.items()
        if any(spelling in found for spelling in spellings)
    }
    return sums, int(finished_for_length), start
