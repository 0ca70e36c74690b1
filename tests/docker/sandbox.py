"""A root file system of its own for one command: bubblewrap stands in for a container engine."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pip

# what a build may know of the machine: how to reach a package index
PASSED_ON = ("PIP_", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy")
SYSTEM_LINKS = ("bin", "lib", "lib64")
MOUNT_POINTS = ("usr", "etc", "proc", "dev", "tmp")


class StepError(AssertionError):
    """A command failed in the sandbox; the text is the end of what it said."""


class Sandbox:
    """The machine's system files and Python, read-only, below a root of the caller's."""

    def __init__(self, bwrap: Path, root: Path) -> None:
        self.root = root
        self._bwrap = bwrap
        self._python = Path(sys.base_prefix)
        for name in MOUNT_POINTS:
            (root / name).mkdir(exist_ok=True)
        for name in SYSTEM_LINKS:
            if not (root / name).is_symlink():
                (root / name).symlink_to(f"usr/{name}")

    def run(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str],
        folder: str = "/",
        user: int = 0,
        read_only: bool = False,
        network: bool = True,
    ) -> str:
        """The command's standard output.

        Raises:
            StepError: it did not exit with 0.
        """
        done = subprocess.run(
            [*self._command(environment, folder, user, read_only, network), *command],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            said = "\n".join((done.stdout + done.stderr).splitlines()[-30:])
            raise StepError(f"{' '.join(command)}\nexit code {done.returncode}\n{said}")
        return done.stdout

    def _command(
        self, environment: Mapping[str, str], folder: str, user: int, read_only: bool, network: bool
    ) -> list[str]:
        command = [str(self._bwrap), "--unshare-all", "--die-with-parent", "--clearenv"]
        command += ["--share-net"] if network else []
        command += ["--uid", str(user), "--gid", str(user)]
        command += ["--ro-bind" if read_only else "--bind", str(self.root), "/"]
        command += ["--ro-bind", "/usr", "/usr", "--ro-bind", "/etc", "/etc"]
        if self._python == Path("/usr"):  # Debian's own, which has its pip in another package
            packages = f"/usr/local/lib/python{sys.version_info.major}.{sys.version_info.minor}/dist-packages"
            command += ["--tmpfs", "/usr/local", "--symlink", "/usr/bin/python3", "/usr/local/bin/python"]
            command += ["--ro-bind", str(Path(pip.__file__).parent), f"{packages}/pip"]
        else:  # where the official image has it: venvs look for the standard library beside the interpreter
            command += [
                "--ro-bind",
                str(self._python),
                "/usr/local",
                "--setenv",
                "LD_LIBRARY_PATH",
                "/usr/local/lib",
            ]
        command += ["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--chdir", folder]
        passed_on = (
            {key: value for key, value in os.environ.items() if key.startswith(PASSED_ON)} if network else {}
        )
        for key, value in {**passed_on, **environment}.items():
            command += ["--setenv", key, value]
        return [*command, "--"]
