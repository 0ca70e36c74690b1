"""The documentation is complete, and what it says exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.reference import FOLDER, PAGES
from vllm_length_exporter.cli import COMMANDS, SUMMARIES
from vllm_length_exporter.collectors.registry import METRICS
from vllm_length_exporter.derive.findings import RULES
from vllm_length_exporter.mixin.catalogue import WITHOUT_ALERT, every_alert

ROOT = FOLDER.parent
# What a recording rule, the middleware or a recording's own name adds to the series of the registry.
OTHER_NAMES = re.compile(r"vllm_length_(middleware_\w*|exporter\b|\w+:\w+)")
TEXTS = sorted(
    path
    for path in [*ROOT.glob("*.md"), *FOLDER.glob("**/*.md"), *(ROOT / "alerts").glob("**/*.md")]
    if path.name != "CHANGELOG.md"
)


@pytest.mark.parametrize("page", PAGES)
def test_the_reference_is_made_from_the_code(page: str) -> None:
    assert (FOLDER / page).read_text() == PAGES[page](), "make generate"


def test_each_command_has_a_summary_and_stands_in_the_readme() -> None:
    assert COMMANDS.keys() == SUMMARIES.keys()
    readme = (ROOT / "README.md").read_text()
    assert [name for name in COMMANDS if f"`{name}`" not in readme] == []


def test_each_finding_has_an_alert_or_a_reason_and_a_runbook_either_way() -> None:
    told = {name for alert in every_alert() for name in alert.findings}
    assert {rule.id for rule in RULES} <= told | WITHOUT_ALERT.keys()
    assert told.isdisjoint(WITHOUT_ALERT)
    pages = {alert.full_name for alert in every_alert()} | WITHOUT_ALERT.keys()
    assert [page for page in pages if not (ROOT / "alerts" / "runbooks" / f"{page}.md").is_file()] == []


@pytest.mark.parametrize("text", TEXTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_series_that_a_text_names_exists(text: Path) -> None:
    known = {metric.full_name for metric in METRICS}
    named = set(re.findall(r"\bvllm_length_[a-z_]+[a-z]\b", OTHER_NAMES.sub("", text.read_text())))
    wrong = {
        name for name in named if name not in known and not any(one.startswith(name + "_") for one in known)
    }
    assert wrong == set()


@pytest.mark.parametrize("text", TEXTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_to_a_file_leads_somewhere(text: Path) -> None:
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text.read_text())
    assert [link for link in links if not (text.parent / link).exists()] == []
