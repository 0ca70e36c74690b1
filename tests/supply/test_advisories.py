"""No version that we pin, allow or run is one with a known vulnerability; `make audit` asks for what is newer."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from tests.supply.licences import packages

ROOT = Path(__file__).parents[2]
TABLE: dict[str, dict[str, str]] = yaml.safe_load((Path(__file__).parent / "advisories.yml").read_text())
MENDED = {
    package: {advisory: Version(str(version)) for advisory, version in rows.items()}
    for package, rows in TABLE.items()
}


def pinned() -> dict[str, Version]:
    """What the image installs."""
    rows = (ROOT / "exporter" / "requirements.txt").read_text().splitlines()
    requirements = (Requirement(row.rstrip(" \\")) for row in rows if "==" in row and not row.startswith(" "))
    return {
        canonicalize_name(found.name): Version(next(iter(found.specifier)).version) for found in requirements
    }


def lowest() -> dict[str, Version]:
    """The oldest version of each package that `pip install` may leave in place."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    rows = [*project["dependencies"], *project["optional-dependencies"]["docker"]]
    return {canonicalize_name(found.name): lower for found, lower in map(_bound, rows)}


def _bound(row: str) -> tuple[Requirement, Version]:
    found = Requirement(row)
    (lower,) = [Version(bound.version) for bound in found.specifier if bound.operator in (">=", "==")]
    return found, lower


def installed() -> dict[str, Version]:
    """What these tests run with."""
    return {
        canonicalize_name(package.name): Version(metadata.version(package.name)) for package in packages()
    }


def affected(versions: dict[str, Version]) -> Iterator[str]:
    """The advisories that speak of one of these versions."""
    for name, version in versions.items():
        for advisory, mended in MENDED.get(name, {}).items():
            if version < mended:
                yield f"{name} {version} has {advisory}, mended in {mended}"


@pytest.mark.parametrize("versions", [pinned, lowest, installed])
def test_no_version_has_a_known_vulnerability(versions: object) -> None:
    assert callable(versions)
    found = versions()
    assert len(found) > 10
    assert list(affected(found)) == []


def test_an_old_version_is_found() -> None:
    assert list(affected({"urllib3": Version("2.7.0"), "requests": Version("2.33.0")})) == [
        f"urllib3 2.7.0 has CVE-2026-{number}, mended in 2.8.0" for number in (97687, 97688, 97689)
    ]


def test_the_table_speaks_of_what_is_installed() -> None:
    assert set(TABLE) <= set(installed())
