"""The middleware runs in vLLM's own Python, from a folder that is only mounted."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import prometheus_client
import pytest

import vllm_length_exporter
from vllm_length_exporter.middleware import series

PROJECT = Path(__file__).parents[2]
FOLDER = PROJECT / "exporter" / "vllm_length_exporter" / "middleware"
MODULES = sorted(FOLDER.glob("*.py"))


@pytest.mark.parametrize("module", MODULES, ids=lambda path: path.name)
def test_it_is_python_3_9_and_imports_nothing_else(module: Path) -> None:
    tree = ast.parse(module.read_text(), feature_version=(3, 9))
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    for node in imports:
        if isinstance(node, ast.ImportFrom) and node.level == 1:
            continue  # of this folder
        names = (
            [node.module or ""] if isinstance(node, ast.ImportFrom) else [name.name for name in node.names]
        )
        for name in names:
            assert name.partition(".")[0] in {*sys.stdlib_module_names, "prometheus_client"}, name
    if any(isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr) for node in ast.walk(tree)):
        assert any(isinstance(node, ast.ImportFrom) and node.module == "__future__" for node in imports)


def test_the_package_around_it_imports_nothing() -> None:
    assert (Path(vllm_length_exporter.__file__)).read_text() == ""


def test_it_is_found_by_its_path_alone(tmp_path: Path) -> None:
    """With prometheus_client beside it and nothing else: neither this project nor its other dependencies."""
    beside = tmp_path / "beside"
    beside.mkdir()
    (beside / "prometheus_client").symlink_to(Path(prometheus_client.__file__).parent)
    code = "import importlib, inspect; name, _, attribute = '{}'.rpartition('.'); "
    code += "print(inspect.isclass(getattr(importlib.import_module(name), attribute)))"
    found = subprocess.run(
        [sys.executable, "-S", "-c", code.format("vllm_length_exporter.middleware.LengthAccounting")],
        env={**os.environ, "PYTHONPATH": f"{FOLDER.parents[1]}:{beside}", "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (found.stdout, found.stderr) == ("True\n", "")


def test_its_version_is_the_project_s() -> None:
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    assert project["version"] == series.VERSION
