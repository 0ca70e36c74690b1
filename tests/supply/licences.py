"""The licences of what is installed with the program: `python -m tests.supply.licences` writes the page anew."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PAGE = Path(__file__).parents[2] / "docs" / "licences.md"
PROGRAM, EXTRAS = "vllm-length-exporter", ("", "docker")
# As packages spell them, and what they mean. A licence that is not here fails the build until somebody has read it.
ALLOWED = {
    "MIT": "MIT",
    "MIT License": "MIT",
    "Apache-2.0": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
    "Apache-2.0 AND BSD-2-Clause": "Apache-2.0 AND BSD-2-Clause",
    "Apache-2.0 OR BSD-2-Clause": "Apache-2.0 OR BSD-2-Clause",
    "BSD License": "BSD",
    "BSD-2-Clause": "BSD-2-Clause",
    "BSD-3-Clause": "BSD-3-Clause",
    "PSF-2.0": "PSF-2.0",
    "MPL-2.0": "MPL-2.0",  # certifi: used unchanged, so nothing follows for our own files
}


@dataclass(frozen=True, slots=True)
class Package:
    """An installed package: `licence` is in the words of SPDX, or None where nobody has allowed it."""

    name: str
    licence: str | None
    stated: str
    optional: bool


def packages() -> list[Package]:
    """All that the program needs, and what its optional parts need besides, by name."""
    needed = _closure(("",))
    return [_package(name, optional=name not in needed) for name in sorted(_closure(EXTRAS))]


def _closure(extras: tuple[str, ...]) -> set[str]:
    found: set[str] = set()
    waiting = [(PROGRAM, extras)]
    while waiting:
        name, wanted = waiting.pop()
        for text in metadata.distribution(name).requires or []:
            requirement = Requirement(text)
            marker = requirement.marker
            if marker is not None and not any(marker.evaluate({"extra": extra}) for extra in wanted):
                continue
            canonical = canonicalize_name(requirement.name)
            if canonical not in found:
                found.add(canonical)
                waiting.append((canonical, ("", *requirement.extras)))
    return found


def _package(name: str, *, optional: bool) -> Package:
    about = metadata.distribution(name).metadata
    stated = _said(about, "License-Expression")
    if not stated:
        classifiers = about.get_all("Classifier") or []
        stated = next((row.rpartition(" :: ")[2] for row in classifiers if row.startswith("License ::")), "")
    if stated not in ALLOWED and (short := _said(about, "License")) in ALLOWED:
        stated = short
    return Package(name, ALLOWED.get(stated), stated, optional)


def _said(about: metadata.PackageMetadata, key: str) -> str:
    return about[key].strip() if key in about else ""


def page() -> str:
    """`docs/licences.md`."""
    lines = [
        "# Licences", "",
        "<!-- made from the installed packages by `make generate`; do not edit -->", "",
        "vllm-length-exporter is under Apache-2.0. It is installed with these packages, none of them changed:", "",
        "| package | licence | needed for |", "|---|---|---|",
    ]  # fmt: skip
    for package in packages():
        use = "logs by the Docker API" if package.optional else "the program"
        lines.append(f"| {package.name} | {package.licence or f'NOT ALLOWED: {package.stated}'} | {use} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    sys.stdout.write(f"{PAGE.relative_to(PAGE.parents[1])}\n")
