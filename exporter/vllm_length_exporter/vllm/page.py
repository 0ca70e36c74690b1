"""vLLM's metrics page (Prometheus text format 0.0.4) as samples by quantity.

Lines are chosen by name with one compiled pattern; names and labels are then read by prometheus_client's own
parser, once for each series, and remembered until the series is gone from the page.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from prometheus_client.parser import text_string_to_metric_families

from vllm_length_exporter.vllm.names import MIDDLEWARE_PREFIX, PREFERENCE, Name, Quantity, spellings

_SPELLINGS = spellings()
# The labels reach to the line's last brace, so braces inside quoted values do no harm.
_LINE = re.compile(r"([^{\s]+)(\{.*\})?[ \t]+([^\s{}]+)(?:[ \t]+-?\d+)?\s*")
_NO_LABELS: Mapping[str, str] = MappingProxyType({})

_OF_OURS = "\nvllm_length_exporter_build_info"
_OURS = "the page is the exporter's own: give the address of vLLM"
LARGEST = 2.0**63  # no count, size or time of a server is larger; sums of these stay finite


class PageError(ValueError):
    """The body is no metrics page of vLLM; the message is one line that says what it looks like."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One series. `name` is its spelling on the page without the prefix."""

    name: str
    labels: Mapping[str, str]
    value: float

    @property
    def engine(self) -> str:
        """The engine that the series belongs to: vLLM's label, "0" where it has none.

        Several Ray replicas on one page are kept apart by their ReplicaId.
        """
        engine = self.labels.get("engine", "0")
        replica = self.labels.get("ReplicaId")
        return f"{replica}/{engine}" if replica else engine

    @property
    def model_name(self) -> str | None:
        return self.labels.get("model_name") or None


@dataclass(frozen=True, slots=True)
class Page:
    """The sound part of one metrics page. Values that are not finite, or negative, are not in it.

    `middleware` holds the series of our own middleware by full name. `ambiguous` counts the series that
    stood there twice with different values (none of which is kept), `malformed` the lines that do not parse.
    """

    samples: Mapping[Quantity, tuple[Sample, ...]]
    middleware: Mapping[str, tuple[Sample, ...]] = field(default_factory=dict)
    ambiguous: int = 0
    malformed: int = 0

    def of(self, quantity: Quantity) -> tuple[Sample, ...]:
        return self.samples.get(quantity, ())

    def by_engine(self, quantity: Quantity, **labels: str) -> dict[str, float]:
        """The value of each engine; one that shows two series for it decides nothing and is left out."""
        rows: dict[str, list[float]] = {}
        for sample in self.of(quantity):
            if all(sample.labels.get(key) == value for key, value in labels.items()):
                rows.setdefault(sample.engine, []).append(sample.value)
        return {engine: values[0] for engine, values in rows.items() if len(values) == 1}

    @property
    def engines(self) -> tuple[str, ...]:
        """The engines that this page speaks of, in order."""
        shown = {
            sample.engine
            for quantity in (Quantity.KV_USAGE, Quantity.RUNNING, Quantity.CACHE_CONFIG)
            for sample in self.of(quantity)
        }
        return tuple(sorted(shown, key=lambda engine: (len(engine), engine)))

    @property
    def model_names(self) -> tuple[str, ...]:
        names: dict[str, None] = {}
        for quantity in (Quantity.RUNNING, Quantity.KV_USAGE, Quantity.PREEMPTIONS):
            for sample in self.of(quantity):
                if sample.model_name:
                    names[sample.model_name] = None
        return tuple(names)

    @property
    def process_start(self) -> float | None:
        """Unix time of the server process's start; absent with several API servers (multiprocess mode)."""
        samples = self.of(Quantity.PROCESS_START)
        return samples[0].value if samples else None

    @property
    def has_statistics(self) -> bool:
        """Whether there is any series of vLLM's own: `--disable-log-stats` removes them all."""
        return bool(self.engines)


class PageReader:
    """Reads one server's pages, remembering the series of the last page so that labels are parsed once."""

    def __init__(self) -> None:
        self._series: dict[str, tuple[Name | None, str, Mapping[str, str]] | None] = {}

    def read(self, body: bytes) -> Page:
        """Parse a whole page.

        Raises:
            PageError: it is not text, was cut before its end, shows nothing of vLLM, or is the exporter's.
        """
        text = _decoded(body)
        known, seen = self._series, {}
        values: dict[str, float] = {}
        twice: set[str] = set()
        malformed = 0
        for line in _wanted(text):
            found = _LINE.fullmatch(line)
            if found is None:
                malformed += 1
                continue
            name, labels, number = found.groups()
            series = line[: found.end(2)] if labels else name
            entry = known[series] if series in known else _entry(name, labels)
            seen[series] = entry
            try:
                value = float(number)
            except ValueError:
                malformed += 1
                continue
            if entry is None:
                malformed += 1
                continue
            if not 0 <= value <= LARGEST:  # nor NaN
                continue
            if series in values and values[series] != value:
                twice.add(series)
            values[series] = value
        if not seen:
            raise PageError(_OURS if _OF_OURS in text else _impression(text))
        self._series = seen
        for series in twice:
            del values[series]
        page = _page(seen, values, ambiguous=len(twice), malformed=malformed)
        if not page.has_statistics and _OF_OURS in text:
            raise PageError(_OURS)
        return page


def read_page(body: bytes) -> Page:
    """Parse one page; see `PageReader.read`."""
    return PageReader().read(body)


def _decoded(body: bytes) -> str:
    if not body.strip():
        raise PageError("the page is empty")
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise PageError(f"the page is not UTF-8 text (byte {error.start})") from error
    if not text.endswith("\n"):
        # Its last number may be the beginning of a longer one, and what followed is missing.
        raise PageError(
            "the page was cut: its last line has no end" if any(_wanted(text)) else _impression(text)
        )
    return text


def _wanted(text: str) -> Iterator[str]:
    """The lines whose name we read, chosen without looking at the rest of the line."""
    for line in text.split("\n"):
        name = line[: line.find("{")] if "{" in line else line.split(" ", 1)[0]
        if name in _SPELLINGS or name.startswith(MIDDLEWARE_PREFIX):
            yield line


def _entry(name: str, labels: str | None) -> tuple[Name | None, str, Mapping[str, str]] | None:
    row = _SPELLINGS.get(name)
    if not labels:
        return row, name, _NO_LABELS
    try:
        samples = [
            s for family in text_string_to_metric_families(f"{name}{labels} 1\n") for s in family.samples
        ]
    except ValueError:
        return None
    if len(samples) != 1:
        return None
    # Every series of a page, and of other servers' pages, says most of these again.
    shared = {sys.intern(label): sys.intern(said) for label, said in samples[0].labels.items()}
    return row, name, MappingProxyType(shared)


def _page(
    seen: Mapping[str, tuple[Name | None, str, Mapping[str, str]] | None],
    values: Mapping[str, float],
    *,
    ambiguous: int,
    malformed: int,
) -> Page:
    by_name: dict[Quantity, dict[str, list[Sample]]] = {}
    middleware: dict[str, list[Sample]] = {}
    for series, value in values.items():
        entry = seen[series]
        if entry is None:
            continue
        row, name, labels = entry
        if row is None:
            middleware.setdefault(name, []).append(Sample(name, labels, value))
        else:
            by_name.setdefault(row.quantity, {}).setdefault(row.exposed, []).append(
                Sample(row.exposed, labels, value)
            )
    samples = {
        quantity: tuple(names[min(names, key=lambda exposed: PREFERENCE[exposed])])
        for quantity, names in by_name.items()
    }
    return Page(
        MappingProxyType(samples),
        MappingProxyType({name: tuple(rows) for name, rows in middleware.items()}),
        ambiguous,
        malformed,
    )


def _impression(text: str) -> str:
    start = text.lstrip()[:200].lower()
    if start.startswith(("<!doctype", "<html", "<")):
        return "the page is HTML, not metrics: is this the address of vLLM?"
    if start.startswith(("{", "[")):
        return "the page is JSON, not metrics: is this vLLM's /metrics?"
    if _lines_of_metrics(text):
        return "the page has metrics, but none of vLLM's: is this the address of vLLM?"
    return "the page is not in the Prometheus text format"


def _lines_of_metrics(text: str) -> bool:
    return any(_METRIC_LINE.match(line) for line in _head(text))


def _head(text: str) -> Iterator[str]:
    yield from text[:4000].splitlines()[:40]


_METRIC_LINE = re.compile(r"^(# (HELP|TYPE) |[a-zA-Z_:][a-zA-Z0-9_:]*(\{.*\})? [-+0-9.eEnNaAiIfF]+$)")
