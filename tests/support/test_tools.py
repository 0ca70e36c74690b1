"""What the tests run is there, in the versions that they speak of; and its absence is never silent in CI."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from packaging.version import Version

from tests import conftest
from tests.conftest import Tool
from tests.real.tiny_model import VOCABULARY, byte_alphabet, byte_tokenizer
from tests.tools import binaries
from tests.tools.cache import Stamp


@pytest.mark.parametrize(
    ("suite", "oldest", "below"),
    [("bookworm", "2.42", "2.43"), ("trixie", "2.53", "2.54"), ("forky", "3.5", "4")],
)
@pytest.mark.parametrize("name", ["prometheus", "promtool"])
def test_three_generations_of_prometheus(tool: Tool, name: str, suite: str, oldest: str, below: str) -> None:
    said = subprocess.run([tool(name, suite), "--version"], check=True, capture_output=True, text=True)
    words = (said.stdout or said.stderr).split()
    version = Version(words[words.index("version") + 1].partition("+")[0])
    assert Version(oldest) <= version < Version(below)


@pytest.mark.parametrize("name", ["alertmanager", "amtool", "docker-compose", "chromium"])
def test_the_other_programs_start(tool: Tool, name: str) -> None:
    subprocess.run(
        [tool(name), "version" if name == "docker-compose" else "--version"], check=True, capture_output=True
    )


def test_the_path_serves_only_for_the_newest(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "sometool"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert binaries.find("sometool") == program
    assert binaries.find("sometool", "trixie") is None


def test_a_missing_tool_fails_in_ci_and_skips_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="amtool is missing: run `make tools`"):
        conftest.missing("amtool", binaries.HOW)
    monkeypatch.delenv("CI")
    with pytest.raises(pytest.skip.Exception, match="amtool is missing: run `make tools`"):
        conftest.missing("amtool", binaries.HOW)


def test_a_stamp_holds_for_one_recipe_only(tmp_path: Path) -> None:
    assert not Stamp(tmp_path, "a").valid()
    Stamp(tmp_path, "a").write()
    assert Stamp(tmp_path, "a").valid()
    assert not Stamp(tmp_path, "b").valid()


def test_the_tiny_model_has_a_token_for_each_byte() -> None:
    vocabulary = byte_tokenizer()["model"]["vocab"]
    assert len(set(byte_alphabet())) == 256
    assert sorted(vocabulary.values()) == list(range(258))
    assert len(vocabulary) <= VOCABULARY
