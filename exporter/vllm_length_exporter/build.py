"""Which build this is: the installed version, and the commit that an image was built from."""

from __future__ import annotations

import os
from functools import cache
from importlib.metadata import PackageNotFoundError, version


@cache
def exporter_version() -> str:
    """The installed version; "unknown" where the package runs from a bare folder."""
    try:
        return version("vllm-length-exporter")
    except PackageNotFoundError:
        return "unknown"


def revision() -> str:
    """The commit, as an image's build sets it."""
    return os.environ.get("VLLM_LENGTH_REVISION", "unknown")
