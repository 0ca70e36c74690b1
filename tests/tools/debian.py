"""`python -m tests.tools.debian`: the Debian programs that the tests run, several releases side by side.

Packages are downloaded with a private apt state and unpacked under `.cache/tools/SUITE`: the machine's own
packages stay as they are. The mirror is the one that the machine's apt already uses. What needs many libraries is
installed the usual way, where it is missing and where this may be done (root).
"""

from __future__ import annotations

import ctypes
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.tools.cache import TOOLS, Stamp

# suite: packages. The newest is what the tests run; the others are older ones that the rules promise to work on.
PACKAGES: dict[str, tuple[str, ...]] = {
    "bookworm": (
        *("prometheus", "bubblewrap"),  # 2.42, promtool inside
        *("systemd", "libsystemd-shared", "systemd-journal-remote", "libmicrohttpd12"),  # 252
    ),
    "trixie": ("prometheus", "promtool", "prometheus-alertmanager"),  # 2.53, 0.28
    "forky": (
        *("prometheus", "promtool", "prometheus-alertmanager", "docker-compose"),  # 3.5, 0.33, 2.40
        "mtail",  # the log bench measures beside it
    ),
}
# program or library: packages, for apt-get install
INSTALLED: dict[str, tuple[str, ...]] = {
    "chromium": ("chromium", "fonts-dejavu-core"),
    "npm": ("npm",),
    "libnuma.so.1": ("libnuma1",),  # vLLM's CPU kernels
}
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
ALERTMANAGER_TEMPLATES = Path("/usr/share/prometheus")  # compiled into Debian's alertmanager


class FetchError(Exception):
    """One line for the user: what could not be fetched, and what to do."""


def main() -> int:
    try:
        fetch_packages()
        link_alertmanager_templates()
        install_missing()
    except FetchError as error:
        print(f"tests.tools.debian: {error}", file=sys.stderr)
        return 1
    return 0


def fetch_packages() -> None:
    """Unpack every package that is not there yet.

    Raises:
        FetchError: apt is missing, knows no Debian mirror, or a download failed.
    """
    stamps = {suite: Stamp(TOOLS / suite, " ".join(packages)) for suite, packages in PACKAGES.items()}
    missing = {suite: PACKAGES[suite] for suite, stamp in stamps.items() if not stamp.valid()}
    if not missing:
        return
    with tempfile.TemporaryDirectory() as scratch:
        apt = PrivateApt(Path(scratch), machine_mirror(), tuple(missing))
        for suite, packages in missing.items():
            root = TOOLS / suite
            shutil.rmtree(root, ignore_errors=True)
            root.mkdir(parents=True)
            archives = apt.download(suite, packages)
            with ThreadPoolExecutor() as pool:  # unpacking is most of the time
                list(
                    pool.map(
                        lambda archive, root=root: run(["dpkg", "-x", str(archive), str(root)]), archives
                    )
                )
            print(f"{suite}: {' '.join(archive.name for archive in archives)}")
            stamps[suite].write()


def machine_mirror() -> str:
    """The URI of the Debian mirror in this machine's own apt sources."""
    release = platform.freedesktop_os_release().get("VERSION_CODENAME", "")
    template = "$(RELEASE)|$(COMPONENT)|$(SITE)"
    for line in run(["apt-get", "indextargets", "--format", template, "Created-By: Packages"]).splitlines():
        suite, component, site = line.split("|", 2)
        if (suite, component) == (release, "main"):
            return site
    raise FetchError(
        f"apt has no Debian mirror for {release or 'this system'}: put promtool, prometheus, alertmanager, amtool and "
        "docker-compose on PATH instead"
    )


class PrivateApt:
    """An apt that shares nothing with the machine's but the keyring."""

    def __init__(self, folder: Path, mirror: str, suites: tuple[str, ...]) -> None:
        self._folder = folder
        (folder / "lists" / "partial").mkdir(parents=True)
        (folder / "archives" / "partial").mkdir(parents=True)
        (folder / "status").touch()
        sources = [f"deb [signed-by={KEYRING}] {mirror} {suite} main\n" for suite in suites]
        (folder / "sources.list").write_text("".join(sources))
        settings = {
            "Dir::Etc::sourcelist": folder / "sources.list",
            "Dir::Etc::sourceparts": "-",
            "Dir::State": folder,
            "Dir::State::lists": folder / "lists",
            "Dir::State::status": folder / "status",
            "Dir::Cache": folder,
            "Acquire::Languages": "none",
            "Acquire::Retries": "5",
            "Acquire::Check-Valid-Until": "false",  # a mirror may be a snapshot; signatures are checked all the same
            "APT::Sandbox::User": "",
        }
        (folder / "apt.conf").write_text("".join(f'{key} "{value}";\n' for key, value in settings.items()))
        self._environment = dict(os.environ, APT_CONFIG=str(folder / "apt.conf"))
        run(["apt-get", "--quiet", "--error-on=any", "update"], env=self._environment)

    def download(self, suite: str, packages: tuple[str, ...]) -> list[Path]:
        target = self._folder / suite
        target.mkdir()
        wanted = [f"{package}/{suite}" for package in packages]
        run(["apt-get", "--quiet", "download", *wanted], env=self._environment, cwd=target)
        return sorted(target.glob("*.deb"))


def link_alertmanager_templates() -> None:
    """Debian's Alertmanager does not start without its templates at a fixed path: point that at ours."""
    ours = TOOLS / "forky" / "usr" / "share" / "prometheus"
    if (ALERTMANAGER_TEMPLATES / "alertmanager" / "default.tmpl").exists():
        return
    try:
        ALERTMANAGER_TEMPLATES.unlink(missing_ok=True)  # a link to a checkout that is gone
        ALERTMANAGER_TEMPLATES.symlink_to(ours)
    except OSError as error:
        raise FetchError(
            f"Alertmanager needs its templates: sudo ln -sfn {ours} {ALERTMANAGER_TEMPLATES} ({error.strerror})"
        ) from error


def install_missing() -> None:
    missing = [package for program, names in INSTALLED.items() if not present(program) for package in names]
    if not missing:
        return
    install = ["apt-get", "--quiet", "--yes", "--no-install-recommends", "install", *missing]
    if os.geteuid() != 0:
        raise FetchError(f"missing on this machine: sudo {' '.join(install)}")
    print("apt-get install", *missing, flush=True)
    environment = dict(os.environ, DEBIAN_FRONTEND="noninteractive")
    run(["apt-get", "--quiet", "-o", "Acquire::Retries=5", "update"], env=environment)
    run([*install, "-o", "Acquire::Retries=5"], env=environment)


def present(name: str) -> bool:
    """Whether this machine has the program, or can load the library."""
    if ".so" not in name:
        return shutil.which(name) is not None
    try:
        ctypes.CDLL(name)
    except OSError:
        return False
    return True


def run(command: list[str], env: dict[str, str] | None = None, cwd: Path | None = None) -> str:
    """The command's standard output.

    Raises:
        FetchError: it is not installed or failed; the last lines of what it said are in the message.
    """
    try:
        done = subprocess.run(
            command, env=env, cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )
    except FileNotFoundError as error:
        raise FetchError(f"{command[0]} is not installed; these tools come from Debian packages") from error
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines()[-5:]
        raise FetchError(f"{' '.join(command)} failed with {done.returncode}: {' / '.join(said)}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
