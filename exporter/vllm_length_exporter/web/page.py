"""The status page at `/`: all servers at a glance, or one in full. Every value is escaped by the templates."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from vllm_length_exporter.derive.values import ServerView, Severity, State, Value

from . import answers, figures, fleet, words
from .watched import Point, Watched

TEMPLATES = Path(__file__).parent / "templates"
REFRESH = 5  # seconds between two looks of the page's script
REFRESH_OF_MANY = 15
MANY = 50  # servers


class UnknownServerError(LookupError):
    """No configured server has this name."""


def page(
    watched: Sequence[Watched],
    history: Callable[[str], Mapping[str, tuple[Point, ...]]],
    *,
    ready: bool,
    now: float,
    server: str | None,
    tokens: str | None,
) -> str:
    """The page as HTML. `history` gives the samples of a server's engines, `now` is their monotonic clock.

    Raises:
        UnknownServerError: there is no such server; the page for it is `missing_page`.
    """
    if server is None and len(watched) != 1:
        return _fleet(watched, ready=ready)
    found = [one for one in watched if server is None or one.server == server]
    if not found:
        raise UnknownServerError(server)
    return _server(found[0], history, now, tokens, alone=len(watched) == 1)


def missing_page(server: str) -> str:
    return _render("missing.html", title="Not watched", server=server, refresh=0)


def _fleet(watched: Sequence[Watched], *, ready: bool) -> str:
    states = Counter(str(one.view.state) if one.view is not None else "not tried" for one in watched)
    findings = Counter(
        str(finding.severity) for one in watched if one.view is not None for finding in one.view.findings
    )
    return _render(
        "fleet.html",
        title="vLLM servers",
        rows=fleet.rows(watched),
        states=states.most_common(),
        findings=findings,
        ready=ready,
        refresh=REFRESH_OF_MANY if len(watched) > MANY else REFRESH,
    )


def _server(
    one: Watched,
    history: Callable[[str], Mapping[str, tuple[Point, ...]]],
    now: float,
    tokens: str | None,
    *,
    alone: bool,
) -> str:
    view = one.view
    return _render(
        "server.html" if view is not None else "untried.html",
        title=one.server,
        one=one,
        view=view,
        alone=alone,
        asked=tokens,
        budget=[] if view is None else _budget(view),
        fit=None if view is None else answers.fit(view, tokens),
        curves=[figures.curve(engine, points, now) for engine, points in history(one.server).items()],
        # "now" is what the view says everywhere on the page: the history's last sample is older
        usage=defaultdict(
            lambda: None, {} if view is None else {row.engine: row.usage_ratio for row in view.capacity}
        ),
        pressure=defaultdict(
            lambda: None, {} if view is None else {row.engine: row for row in view.pressure}
        ),
        refresh=REFRESH,
    )


def _budget(view: ServerView) -> list[dict[str, Any]]:
    """The rows of the length budget, each with the share of the longest that its bar takes."""
    limits = view.limits
    rows: list[tuple[str, str, Value[int] | None]] = [
        ("window", "Window of the model", limits.window),
        ("requested", "Requested (--max-model-len)", _whole(limits.requested)),
        ("limit", "Limit in force", limits.effective),
    ]
    if limits.effective is None and limits.floor is not None:
        rows.append(("limit", "Limit is at least", limits.floor))
    several = len(view.capacity) > 1
    rows += [
        ("cache", f"KV cache, engine {row.engine}" if several else "KV cache", row.tokens)
        for row in view.capacity
    ]
    longest = [row for row in view.at_most if row.part == "total" and row.share == 0.99]
    rows += [("workload", "99 % of requests, at most", Value(row.tokens, row.source)) for row in longest]
    known = [value.value for _, _, value in rows if value is not None]
    if not known and view.state in (State.DOWN, State.FAILED, State.STARTING):
        return []
    top = max(known, default=1)
    return [
        {
            "kind": kind,
            "name": name,
            "value": value,
            "share": figures.share_of(value.value if value else 0, top),
        }
        for kind, name, value in rows
        if value is not None or kind in ("window", "limit")
    ]


def _whole(value: Value[int | str] | None) -> Value[int] | None:
    return Value(value.value, value.source) if value is not None and isinstance(value.value, int) else None


def _render(name: str, **values: Any) -> str:
    return _environment().get_template(name).render(version=_version(), **values)


@cache
def _environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters |= {
        "number": _shown,
        "tokens": _shown,
        "bytes": lambda value: _shown(value, words.byte_size),
        "percent": lambda value: _shown(value, words.percent),
        "plain_percent": words.percent,
        "byte_size": words.byte_size,
        "ago": words.ago,
        "count": words.number,
        "source": words.source,
    }
    made.globals |= {
        "words": words,
        "width": figures.WIDTH,
        "height": figures.HEIGHT,
        "severities": tuple(reversed(Severity)),
    }
    return made


@cache
def _version() -> str:
    try:
        return version("vllm-length-exporter")
    except PackageNotFoundError:
        return "unknown"


_NUMBER = Markup(
    '<span class="number" title="from {source}">{text}<span class="unseen">, from {source}</span></span>'
)
_WITHHELD = Markup(
    '<span class="number withheld" title="withheld">–<span class="unseen">withheld</span></span>'
)


def _shown(value: Value[Any] | None, text: Callable[[Any], str] = words.number) -> Markup:
    """A number that tells where it comes from, on hover and to a screen reader; a dash where it is withheld."""
    if value is None:
        return _WITHHELD
    shown = value.value if isinstance(value.value, str) else text(value.value)
    return _NUMBER.format(source=words.source(value.source), text=shown)
