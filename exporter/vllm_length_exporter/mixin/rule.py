"""What a rule is made of."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from vllm_length_exporter.derive.values import Severity

NAME = "VLLMLength"  # what all alerts' names begin with


class Dashboard(StrEnum):
    """The board that shows an alert's numbers, by its uid."""

    FLEET = "vllm-length-fleet"
    SERVER = "vllm-length-server"
    WORKLOAD = "vllm-length-workload"
    EXPORTER = "vllm-length-exporter"


@dataclass(frozen=True, slots=True)
class Record:
    """A recording rule: `name` is level:metric:operations."""

    name: str
    expr: str


@dataclass(frozen=True, slots=True)
class Alert:
    """An alerting rule. `name` is without the shared prefix; `findings` are the exporter's that it tells of."""

    name: str
    severity: Severity
    expr: str
    summary: str
    description: str
    action: str
    hold: str = "0s"
    keep: str | None = None  # None: as for all
    dashboard: Dashboard = Dashboard.SERVER
    per_server: bool = True
    findings: tuple[str, ...] = ()

    @property
    def full_name(self) -> str:
        return NAME + self.name


@dataclass(frozen=True, slots=True)
class Group:
    """Rules that are evaluated one after another."""

    name: str
    rules: tuple[Record | Alert, ...]
