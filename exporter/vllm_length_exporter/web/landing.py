"""The page at `/`: what this is, where to go, and every server on one line."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template

from vllm_length_exporter.derive.values import EngineCapacity, ServerView, Value

TEMPLATES = Path(__file__).parent / "templates"


def landing_page(views: Sequence[ServerView], *, ready: bool) -> str:
    """The page as HTML, every value escaped."""
    return _template("landing.html").render(views=views, ready=ready, version=_version())


@cache
def _template(name: str) -> Template:
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.filters["count"] = _count
    environment.filters["engines"] = _engines
    return environment.get_template(name)


@cache
def _version() -> str:
    try:
        return version("vllm-length-exporter")
    except PackageNotFoundError:
        return "unknown"


def _count(value: Value[int] | Value[float] | Value[int | str] | None) -> str:
    """`8,192`, or a dash for what is withheld."""
    if value is None:
        return "–"
    number = value.value
    return (
        number
        if isinstance(number, str)
        else f"{number:,.2f}"
        if isinstance(number, float)
        else f"{number:,}"
    )


def _engines(capacity: Sequence[EngineCapacity], name: str) -> str:
    """One field of all engines; said once where they agree: `2 × 10,240`."""
    shown = [_count(getattr(engine, name)) for engine in capacity]
    if len(shown) > 1 and len(set(shown)) == 1 and shown[0] != "–":
        return f"{len(shown)} × {shown[0]}"
    return ", ".join(shown) or "–"
