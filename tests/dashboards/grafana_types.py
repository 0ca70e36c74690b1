"""Grafana's own published types as JSON Schema: what a board of each version is made of.

npm fetches `@grafana/schema` of each version under `.cache/grafana-types`, once, and `typescript-json-schema` makes
a schema of the types. An object takes no key that its type does not name: so leftovers of old Grafanas are found.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jsonschema import Draft7Validator

from tests.tools.cache import CACHE, Stamp

RECIPE = Path(__file__).parent / "schema"
FOLDER = CACHE / "grafana-types"
VERSIONS = ("11", "12", "13")
NPM_SECONDS = 300
# without strict nulls a type that allows null looks like one that does not
FLAGS = ("--ignoreErrors", "--required", "--strictNullChecks")

# Types that a data source extends with keys of its own.
_OPEN = ("DataQuery", "AnnotationQuery", "AnnotationTarget")
# Keys of the Prometheus data source, whose types are in no package of their own version.
TARGET_KEYS = {
    "refId", "datasource", "expr", "legendFormat", "format", "instant", "range", "interval", "editorMode", "exemplar",
}  # fmt: skip


class TypesError(Exception):
    """The types cannot be had; the message says why."""


@dataclass(frozen=True)
class Types:
    """The schema of one Grafana version."""

    version: str
    schema: dict[str, Any]

    def faults(self, board: dict[str, Any]) -> list[str]:
        """What Grafana's types say against a board: `panels[3] "Waiting": options.graph: ...`."""
        found = [f"board: {fault}" for fault in self._against({**board, "panels": []}, "board")]
        for index, panel in enumerate(board["panels"]):
            where = f'panels[{index}] "{panel.get("title", "")}"'
            found += [f"{where}: {fault}" for fault in self._of_panel(panel)]
        return found

    def _of_panel(self, panel: dict[str, Any]) -> list[str]:
        kind = str(panel.get("type"))
        if kind == "row":
            return self._against(panel, "row")
        known = self.schema["properties"]["options"]["properties"]
        if kind not in known:
            return [f"type {kind!r} is not one of {', '.join(sorted(known))}"]
        found = self._against(panel, "panel")
        found += [f"options.{fault}" for fault in self._against(panel.get("options", {}), "options", kind)]
        custom = panel.get("fieldConfig", {}).get("defaults", {}).get("custom", {})
        if kind in self.schema["properties"]["custom"]["properties"]:
            found += [f"custom.{fault}" for fault in self._against(custom, "custom", kind)]
        elif custom:
            found.append(f"custom: {kind} takes none")
        for target in panel.get("targets", []):
            found += [
                f"target {target.get('refId')}: unknown key {key}" for key in target.keys() - TARGET_KEYS
            ]
        return found

    def _against(self, part: object, *path: str) -> list[str]:
        wanted = self.schema
        for name in path:
            wanted = wanted["properties"][name]
        checker = Draft7Validator({**wanted, "definitions": self.schema["definitions"]})
        return [
            f"{'.'.join(str(step) for step in error.absolute_path)}: {error.message[:300]}"
            for error in checker.iter_errors(part)
        ]


def types(version: str) -> Types:
    """The types of a Grafana version, fetched at the first time.

    Raises:
        TypesError: npm is missing or failed.
    """
    recipe = " ".join(FLAGS) + "".join(
        path.read_text() for path in sorted(RECIPE.rglob("*")) if path.is_file()
    )
    stamp = Stamp(FOLDER, recipe)
    if not stamp.valid():
        _make()
        stamp.write()
    schema = json.loads((FOLDER / f"{version}.json").read_text())
    return Types(version, _closed(schema))


def _make() -> None:
    shutil.rmtree(FOLDER, ignore_errors=True)
    shutil.copytree(RECIPE, FOLDER)
    _run(["npm", "ci"], FOLDER)
    for version in VERSIONS:
        place = FOLDER / f"grafana-{version}"
        shutil.copy(FOLDER / "board.ts", place)
        made = _run(
            ["npx", "--no-install", "typescript-json-schema", "board.ts", "Root", *FLAGS],
            place,
        )
        (FOLDER / f"{version}.json").write_text(made)


def _run(command: list[str], folder: Path) -> str:
    program = shutil.which(command[0])
    if program is None:
        raise TypesError(f"{command[0]} is not installed (Debian: apt-get install npm)")
    done = subprocess.run(
        [program, *command[1:]],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=NPM_SECONDS,
        check=False,
    )
    if done.returncode:
        raise TypesError(f"{' '.join(command)}: {(done.stderr or done.stdout).strip()[-500:]}")
    return done.stdout


def _closed(schema: dict[str, Any]) -> dict[str, Any]:
    """Every object with named keys takes no others, but those that a data source extends."""

    def close(node: Any, name: str = "") -> None:
        if isinstance(node, list):
            for item in node:
                close(item)
        elif isinstance(node, dict):
            if "properties" in node and "additionalProperties" not in node and not name.startswith(_OPEN):
                node["additionalProperties"] = False
            for key, item in node.items():
                if key == "definitions":
                    for definition, body in item.items():
                        close(body, definition)
                elif key not in ("enum", "default", "required"):
                    close(item)

    close(schema)
    return schema
