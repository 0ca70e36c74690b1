"""The folder that fetched tools live in, and the stamps that say a fetch is complete."""

from __future__ import annotations

import hashlib
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
CACHE = PROJECT / ".cache"
TOOLS = CACHE / "tools"


class Stamp:
    """Says that a folder was made by exactly this recipe, to the end."""

    def __init__(self, folder: Path, recipe: str) -> None:
        self._file = folder / ".complete"
        self._digest = hashlib.sha256(recipe.encode()).hexdigest()

    def valid(self) -> bool:
        return self._file.is_file() and self._file.read_text() == self._digest

    def write(self) -> None:
        self._file.write_text(self._digest)
