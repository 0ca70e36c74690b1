"""Every package that comes with the program has a licence that was read and allowed."""

from __future__ import annotations

import tomllib
from pathlib import Path

from packaging.requirements import Requirement

from tests.supply.licences import PAGE, packages, page

ROOT = Path(__file__).parents[2]


def test_all_licences_are_allowed() -> None:
    assert [(package.name, package.stated) for package in packages() if package.licence is None] == []


def test_all_that_is_declared_is_listed() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = [*project["dependencies"], *project["optional-dependencies"]["docker"]]
    names = {package.name for package in packages()}
    assert {Requirement(row).name for row in declared} <= names
    assert len(names) > len(declared)  # what these need in turn


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run `make generate`"


def test_what_the_image_installs_is_pinned_by_hash() -> None:
    text = (ROOT / "exporter" / "requirements.txt").read_text()
    rows = [
        row
        for row in text.replace("\\\n", " ").splitlines()
        if row.strip() and not row.strip().startswith("#")
    ]
    assert len(rows) > 10
    assert all("==" in row and "--hash=sha256:" in row for row in rows)
