"""The boards, one file each."""

from __future__ import annotations

from dashboards.parts import Json
from dashboards.selector import Selector
from vllm_length_exporter.mixin.thresholds import Thresholds

from . import exporter, fleet, server, workload


def boards(thresholds: Thresholds) -> dict[str, Json]:
    """Every board as JSON, by uid. Each is asked with the variables that it has."""
    made = {}
    for module in (fleet, server, workload, exporter):
        select = Selector(thresholds, module.VARIABLES)
        board = module.board(select)
        made[str(board.uid)] = board.as_json(select)
    return made
