"""exporter/Dockerfile, each step carried out on a clean root file system, and what comes out of it."""

from __future__ import annotations

import hashlib
import re
import stat
import subprocess
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.conftest import Tool
from tests.docker.build import Build, Stage
from tests.tools.cache import PROJECT

DOCKERFILE = PROJECT / "exporter" / "Dockerfile"
REQUIREMENTS = PROJECT / "exporter" / "requirements.txt"
LARGEST = 60_000_000  # bytes on top of the base image


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project as git knows it: what a build on a fresh clone would see."""
    folder = tmp_path_factory.mktemp("context")
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=PROJECT, check=True, capture_output=True, text=True
    )
    for name in filter(None, listed.stdout.split("\0")):
        if (PROJECT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes((PROJECT / name).read_bytes())
    return folder


def build(tool: Tool, context: Path, scratch: Path) -> Stage:
    return Build(tool("bwrap", suite="bookworm"), context, scratch).carry_out(DOCKERFILE)


@pytest.fixture(scope="module")
def image(tool: Tool, context: Path, tmp_path_factory: pytest.TempPathFactory) -> Stage:
    return build(tool, context, tmp_path_factory.mktemp("image"))


def files(image: Stage) -> dict[str, Path]:
    root = image.inside("/opt/exporter")
    return {str(path.relative_to(root)): path for path in root.rglob("*") if not path.is_dir()}


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_program_runs_as_nobody_on_a_read_only_root(image: Stage) -> None:
    assert image.user > 0
    said = image.run([*image.entrypoint, "--version"], read_only=True, network=False)
    assert re.search(r"\d+\.\d+\.\d+", said)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_health_check_follows_the_program(image: Stage) -> None:
    assert image.ports == ["9832"]  # the port that the check asks, in a network of its own
    follow = """
        "$1" -c 'import sys' && ! "$@" 2>/dev/null || { echo healthy before the start; exit 1; }
        vllm-length-exporter demo >/tmp/said 2>&1 & daemon=$!
        for _ in $(seq 100); do "$@" 2>/dev/null && healthy=yes && break; kill -0 $daemon || break; sleep 0.1; done
        kill -TERM $daemon; wait $daemon; code=$?
        [ "$healthy" = yes ] && [ $code = 0 ] || { echo "exit code $code"; cat /tmp/said; exit 1; }
    """
    image.run(["/bin/sh", "-c", follow, "sh", *image.health_check], read_only=True, network=False)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_every_user_may_read_it_and_none_needs_to_write(image: Stage) -> None:
    for name, path in files(image).items():
        if not path.is_symlink():
            mode = path.stat().st_mode
            assert mode & stat.S_IROTH, f"{name} is not readable"
            assert not mode & stat.S_IWOTH, f"{name} is writable by all"


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_it_is_small_and_holds_no_build_tools(image: Stage) -> None:
    found = files(image)
    assert sum(path.lstat().st_size for path in found.values()) < LARGEST
    packages = {name.split("/")[3] for name in found if name.startswith("lib/python")}
    assert "vllm_length_exporter" in packages
    assert not packages & {"pip", "hatchling", "pytest", "grafanalib"}


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_same_commit_gives_the_same_files(
    tool: Tool, context: Path, image: Stage, tmp_path: Path
) -> None:
    again = build(tool, context, tmp_path)

    def digests(stage: Stage) -> dict[str, str]:
        return {
            name: hashlib.sha256(path.read_bytes()).hexdigest()
            for name, path in files(stage).items()
            if not path.is_symlink()
        }

    assert digests(again) == digests(image)


def test_the_build_context_is_what_is_copied_and_no_more() -> None:
    copied = {
        source
        for line in re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILE.read_text(), re.MULTILINE)
        for source in line.split()
    }
    allowed = {
        line[1:] for line in (PROJECT / ".dockerignore").read_text().splitlines() if line.startswith("!")
    }
    assert copied == allowed


def test_the_lock_serves_what_the_project_asks_for() -> None:
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    locked = dict(re.findall(r"^([\w.-]+)==([\w.]+)", REQUIREMENTS.read_text(), re.MULTILINE))
    for line in (*project["dependencies"], *project["optional-dependencies"]["docker"]):
        wanted = Requirement(line)
        version = locked.get(wanted.name.lower())
        assert version, f"{wanted.name} is not locked: make lock"
        assert wanted.specifier.contains(version), f"{wanted} is locked at {version}: make lock"
