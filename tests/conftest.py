"""Fixtures that all tests share."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest
from hypothesis import settings

from tests.real.tiny_model import make_tiny_model
from tests.tools import binaries, vllm_cpu

# Several tests may share two cores: time says nothing of a property. CI tries the same examples each time, so that
# what it refuses can be run again; a contributor's machine tries new ones.
settings.register_profile("exporter", deadline=None, derandomize=bool(os.environ.get("CI")))
settings.load_profile("exporter")

Tool = Callable[..., Path]


def missing(what: str, how: str) -> NoReturn:
    """A test cannot run for want of a tool: skipped on a contributor's machine, a failure in CI."""
    message = f"{what} is missing: {how}"
    if os.environ.get("CI"):
        pytest.fail(message)
    pytest.skip(message)


@pytest.fixture(scope="session")
def tool() -> Tool:
    """`tool("promtool")` or `tool("promtool", suite="trixie")`: the path of a program that tests run."""

    def find(name: str, suite: str = binaries.NEWEST) -> Path:
        program = binaries.find(name, suite)
        if program is None:
            missing(f"{name} ({suite})", binaries.HOW)
        return program

    return find


@pytest.fixture(scope="session")
def vllm_home() -> Path:
    """The virtual environment with a real vLLM."""
    home = vllm_cpu.home()
    if home is None:
        missing(
            f"vLLM {vllm_cpu.VERSION}", f"{binaries.HOW}, or set {vllm_cpu.OVERRIDE_VARIABLE}=/path/to/venv"
        )
    return home


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small Llama with a window of 8,192 tokens and no weights."""
    return make_tiny_model(tmp_path_factory.mktemp("tiny"))
