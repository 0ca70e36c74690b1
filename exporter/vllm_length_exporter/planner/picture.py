"""The plan as a picture: requests at once over length. Needs matplotlib (the extra `plot`)."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from vllm_length_exporter.planner.error import PlanError
from vllm_length_exporter.planner.plan import Plan

POINTS = 60
FORMATS = (".png", ".svg", ".pdf")


def draw(plan: Plan, path: Path) -> None:
    """Write the picture.

    Raises:
        PlanError: matplotlib is not installed, the plan has no memory to draw, or the file cannot be written.
    """
    capacity = plan.capacity
    if capacity is None:
        raise PlanError("--plot: there is nothing to draw without memory: give --kv-cache-memory-gib")
    if path.suffix not in FORMATS:
        raise PlanError(f"--plot {path}: the name must end in one of {', '.join(FORMATS)}")
    try:
        backend: Any = importlib.import_module("matplotlib")
        backend.use("Agg")
        figures: Any = importlib.import_module("matplotlib.figure")
        tickers: Any = importlib.import_module("matplotlib.ticker")
    except ImportError:
        raise PlanError("--plot needs matplotlib: pip install 'vllm-length-exporter[plot]'") from None
    most = max(plan.limit, *(row.length for row in plan.at_lengths))
    lengths = _spread(most)
    spans = [capacity.requests(length) for length in lengths]
    figure = figures.Figure(figsize=(8, 5), layout="constrained")
    axes = figure.subplots()
    axes.step(lengths, [span.low for span in spans], where="post", color="tab:blue", label="requests at once")
    if any(not span.exact for span in spans):
        axes.fill_between(
            lengths,
            [span.low for span in spans],
            [span.high for span in spans],
            step="post",
            alpha=0.25,
            color="tab:blue",
            label="what a start can add",
        )
    if plan.limit:
        axes.axvline(plan.limit, color="tab:red", linestyle="--", label=f"limit {plan.limit:,}")
    if plan.model is not None or plan.settings.max_num_seqs is not None:
        sequences = plan.settings.sequences
        axes.axhline(sequences, color="tab:gray", linestyle=":", label=f"max_num_seqs {sequences:,}")
    axes.set_xscale("log", base=2)
    if min(span.low for span in spans) > 0:
        axes.set_yscale("log")
        axes.set_ylim(bottom=0.8)
    else:
        axes.set_yscale("symlog", linthresh=1)
        axes.set_ylim(bottom=0)
    axes.set_xlim(lengths[0], lengths[-1])
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(tickers.FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.set_xlabel("tokens of a request (prompt and output)")
    axes.set_ylabel("requests at once")
    axes.set_title(f"{plan.subject}: what the KV cache holds, vLLM {plan.settings.version}")
    axes.grid(visible=True, which="major", alpha=0.3)
    axes.legend()
    try:
        figure.savefig(path)
    except OSError as error:
        raise PlanError(f"--plot {path}: cannot be written: {error.strerror}") from error


def _spread(most: int) -> list[int]:
    """Lengths up to `most`, evenly spread on a logarithmic axis."""
    first = min(256, most)
    ratio = (most / first) ** (1 / (POINTS - 1))
    return sorted({round(first * ratio**i) for i in range(POINTS)} | {most})
