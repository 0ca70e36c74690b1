"""A board around its panels: the grid, the variables, the links to the other boards and the annotations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from grafanalib import core  # type: ignore[import-untyped]

from vllm_length_exporter.collectors.limits import MAX_MODEL_LEN, MAX_MODEL_LEN_INFO
from vllm_length_exporter.collectors.requests import RUNNING
from vllm_length_exporter.collectors.startup import STARTS
from vllm_length_exporter.mixin.rule import NAME, Dashboard

from .modern import modern
from .panels import row
from .parts import DATASOURCE, Json
from .selector import Selector

WIDTH = 24  # columns of Grafana's grid
TAG = "vllm-length"
ALL = "$__all"


@dataclass(frozen=True, slots=True)
class Line:
    """Panels side by side, of one height: `Line(8, (12, panel), (12, panel))`."""

    height: int
    panels: tuple[tuple[int, Any], ...]


def line(height: int, *panels: tuple[int, Any]) -> Line:
    if sum(width for width, _ in panels) != WIDTH:
        raise ValueError(f"a line is {WIDTH} wide, this one {sum(width for width, _ in panels)}")
    return Line(height, panels)


@dataclass(frozen=True, slots=True)
class Section:
    title: str
    lines: tuple[Line, ...]


def section(title: str, *lines: Line) -> Section:
    return Section(title, lines)


@dataclass(frozen=True, slots=True)
class Board:
    """`one_server`: the board shows one server, chosen; else all, or some."""

    uid: Dashboard
    title: str
    description: str
    sections: Sequence[Section]
    one_server: bool = False

    def as_json(self, select: Selector) -> Json:
        links = select.thresholds.links
        return modern(
            core.Dashboard(
                uid=str(self.uid),
                title=self.title,
                description=self.description,
                tags=[TAG, "vllm"],
                timezone="browser",
                refresh="30s",
                time=core.Time("now-1h", "now"),
                graphTooltip=core.GRAPH_TOOLTIP_MODE_SHARED_CROSSHAIR,
                editable=True,
                links=[
                    core.DashboardLink(
                        type="dashboards", title="Length boards", tags=[TAG], includeVars=True, keepTime=True
                    ),
                    core.DashboardLink(
                        type="link",
                        title="Runbooks",
                        uri=links.runbooks,
                        icon="doc",
                        targetBlank=True,
                        keepTime=False,
                    ),
                ],
                templating=core.Templating(list=list(self._variables(select))),
                annotations=core.Annotations(list=list(_annotations(select))),
                panels=list(_placed(self.sections)),
            )
        )

    def _variables(self, select: Selector) -> Iterator[Any]:
        yield core.Template(
            name="datasource", label="Data source", type="datasource", query="prometheus", default="default"
        )
        asked = {
            # a server that never came up has starts too
            "server": (STARTS, "Server"),
            "model_name": (MAX_MODEL_LEN_INFO, "Model"),
            "engine": (RUNNING, "Engine"),
        }
        for name in select.variables:
            metric, label = asked[name]
            several = not (self.one_server and name == "server")
            yield core.Template(
                name=name,
                label=label,
                query=f"label_values({select.before(name)(metric)}, {name})",
                dataSource=DATASOURCE,
                refresh=core.REFRESH_ON_TIME_RANGE_CHANGE,
                multi=several,
                includeAll=several,
                # a failed server has no model and no engine: "all" must match that too
                allValue=".*" if several else None,
                default=ALL if several else "",
            )


def _annotations(select: Selector) -> Iterator[Json]:
    starts, limit = select(STARTS), select(MAX_MODEL_LEN)
    # the exporter's own restart resets its counters, which is no start of the server
    yield _annotation(
        "Starts",
        "blue",
        f"changes({starts}[$__rate_interval]) > resets({starts}[$__rate_interval])",
        "{{server}} started",
    )
    # a restart leaves a gap, so the old limit is looked for an hour back
    yield _annotation(
        "Limit changes",
        "purple",
        f"changes({limit}[1h]) > (changes({limit}[1h] offset $__rate_interval) or 0 * {limit})",
        "{{server}}: another limit",
    )
    firing = select.labelled("ALERTS", f'alertname=~"{NAME}.+"', 'alertstate="firing"', 'severity!="info"')
    yield _annotation("Alerts", "red", firing, "{{alertname}} {{server}}")


def _annotation(name: str, color: str, expr: str, title: str) -> Json:
    return {
        "name": name,
        "datasource": DATASOURCE,
        "enable": True,
        "hide": False,
        "iconColor": color,
        "titleFormat": title,
        "target": {
            "expr": expr,
            "refId": "Anno",
            "datasource": DATASOURCE,
            "legendFormat": title,
            "interval": "1m",
        },
    }


def _placed(sections: Sequence[Section]) -> Iterator[Any]:
    """The panels with their places in the grid and ids in reading order."""
    top, number = 0, 1
    for part in sections:
        head = row(part.title)
        head.id, head.gridPos = number, core.GridPos(h=1, w=WIDTH, x=0, y=top)
        yield head
        top, number = top + 1, number + 1
        for shelf in part.lines:
            left = 0
            for width, panel in shelf.panels:
                panel.id, panel.gridPos = number, core.GridPos(h=shelf.height, w=width, x=left, y=top)
                yield panel
                left, number = left + width, number + 1
            top += shelf.height
