"""The boards, one file each."""

from __future__ import annotations

from dashboards.board import Board
from dashboards.selector import Selector

from . import exporter, fleet, server, workload


def boards(select: Selector) -> tuple[Board, ...]:
    return tuple(made.board(select) for made in (fleet, server, workload, exporter))
