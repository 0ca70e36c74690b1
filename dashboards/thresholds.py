"""The alerts' thresholds as colours: boards and alerts read the same file."""

from __future__ import annotations

from pathlib import Path

from vllm_length_exporter.mixin.thresholds import Thresholds

from .parts import Steps

FILE = Path(__file__).parent.parent / "alerts" / "thresholds.yml"
WARNING, CRITICAL = "orange", "red"


def usage_steps(thresholds: Thresholds) -> Steps:
    pair = thresholds.kv_cache_saturated
    return _rising(pair.warning.usage, pair.critical.usage)


def preemption_steps(thresholds: Thresholds) -> Steps:
    pair = thresholds.preemption_storm
    return _rising(pair.warning.per_second, pair.critical.per_second)


def refused_share_steps(thresholds: Thresholds) -> Steps:
    """The share of refused requests that spends the error budget as fast as the gravest and the mildest alert say."""
    spike = thresholds.rejections_spike
    budget = 1 - spike.objective
    return _rising(
        min(burn.burn_rate for burn in spike.warning) * budget,
        max(burn.burn_rate for burn in spike.critical) * budget,
    )


def truncated_share_steps(thresholds: Thresholds) -> Steps:
    return Steps("green", ((thresholds.truncation_high.info.share, WARNING),))


def limit_by_workload_steps(thresholds: Thresholds) -> Steps:
    return Steps("green", ((thresholds.limit_far_above_workload.factor, WARNING),))


def binding_steps(thresholds: Thresholds) -> Steps:
    return Steps("green", ((thresholds.max_num_seqs_binding.share, WARNING),))


def disagreement_steps(thresholds: Thresholds) -> Steps:
    return Steps("green", ((thresholds.sources_disagree.gap, WARNING),))


def _rising(warning: float, critical: float) -> Steps:
    if critical <= warning:
        return Steps("green", ((critical, CRITICAL),))
    return Steps("green", ((warning, WARNING), (critical, CRITICAL)))
