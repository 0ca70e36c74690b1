"""A Dockerfile carried out step by step: the instructions that ours uses, and no others."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from dataclasses import dataclass, field
from pathlib import Path

from dockerfile_parse import DockerfileParser

from tests.docker.sandbox import Sandbox

BASE_ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/local/sbin:/usr/bin:/usr/sbin:/bin:/sbin", "HOME": "/root"}
VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")


def assignment(word: str) -> tuple[str, str]:
    key, _, text = word.partition("=")
    return key, text


@dataclass
class Stage:
    """What a stage has become so far."""

    sandbox: Sandbox
    environment: dict[str, str] = field(default_factory=lambda: dict(BASE_ENVIRONMENT))
    arguments: dict[str, str] = field(default_factory=dict)
    folder: str = "/"
    user: int = 0
    entrypoint: list[str] = field(default_factory=list)
    command: list[str] = field(default_factory=list)
    health_check: list[str] = field(default_factory=list)
    ports: list[str] = field(default_factory=list)

    def expand(self, text: str) -> str:
        known = {**self.arguments, **self.environment}
        return VARIABLE.sub(lambda match: known[match[1] or match[2]], text)

    def inside(self, path: str) -> Path:
        """A path of the image, on this machine."""
        return self.sandbox.root / str(Path(self.folder) / path).lstrip("/")

    def run(self, command: list[str], *, read_only: bool = False, network: bool = True) -> str:
        environment = {**self.arguments, **self.environment}
        return self.sandbox.run(
            command,
            environment=environment,
            folder=self.folder,
            user=self.user,
            read_only=read_only,
            network=network,
        )


class Build:
    """Carries out a Dockerfile below `scratch`, with `context` as its build context."""

    def __init__(self, bwrap: Path, context: Path, scratch: Path) -> None:
        self._bwrap, self._context, self._scratch = bwrap, context, scratch
        self._stages: dict[str, Stage] = {}
        self._globals: dict[str, str] = {}  # ARGs before the first FROM

    def carry_out(self, dockerfile: Path) -> Stage:
        """The last stage.

        Raises:
            StepError: a RUN failed.
            ValueError: an instruction that this does not know.
        """
        stage: Stage | None = None
        for step in DockerfileParser(path=str(dockerfile)).structure:
            name, value = step["instruction"], step["value"]
            if name == "COMMENT":
                continue
            if name == "FROM":
                stage = self._begin(value)
            elif stage is None:
                if name != "ARG":
                    raise ValueError(f"{name} before FROM")
                self._globals.update([assignment(value)])
            else:
                self._step(stage, name, value)
        if stage is None:
            raise ValueError("no FROM")
        return stage

    def _begin(self, value: str) -> Stage:
        image, _, name = value.partition(" AS ")
        if image.strip("${}") not in self._globals:
            raise ValueError(f"FROM {image}: the base image is to be an ARG with a pinned tag")
        root = self._scratch / f"stage-{len(self._stages)}"
        root.mkdir(parents=True)
        stage = Stage(Sandbox(self._bwrap, root))
        self._stages[name or "final"] = stage
        return stage

    def _step(self, stage: Stage, name: str, value: str) -> None:
        match name:
            case "ARG":
                stage.arguments.update([assignment(value)])
            case "ENV":
                pairs = [assignment(word) for word in shlex.split(value)]
                stage.environment.update({key: stage.expand(text) for key, text in pairs})
            case "WORKDIR":
                stage.folder = str(Path(stage.folder) / value)
                stage.inside(".").mkdir(parents=True, exist_ok=True)
            case "RUN":
                stage.run(["/bin/sh", "-c", value])
            case "COPY":
                self._copy(stage, value.split())
            case "USER":
                stage.user = int(value.split(":")[0])
            case "EXPOSE":
                stage.ports = value.split()
            case "HEALTHCHECK":
                stage.health_check = json.loads(value.split(" CMD ", 1)[1])
            case "ENTRYPOINT":
                stage.entrypoint = json.loads(value)
            case "CMD":
                stage.command = json.loads(value)
            case "LABEL":
                pass
            case _:
                raise ValueError(f"{name}: the test does not know this instruction")

    def _copy(self, stage: Stage, words: list[str]) -> None:
        origin = self._context
        if words[0].startswith("--from="):
            origin = self._stages[words.pop(0).removeprefix("--from=")].sandbox.root
        *sources, target = words
        for source in sources:
            path = origin / source.lstrip("/")
            goal = stage.inside(target)
            if path.is_dir():
                shutil.copytree(path, goal, symlinks=True, dirs_exist_ok=True)
            else:
                goal = goal / path.name if target.endswith("/") else goal
                goal.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(path, goal)
