"""The files beside the pages: read once, and served by exact name, so that no name leads elsewhere."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent / "static"
TYPES = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


@dataclass(frozen=True, slots=True)
class StaticFile:
    body: bytes
    content_type: str
    etag: str


class StaticFiles:
    """All files of the static folder whose type is known."""

    def __init__(self, folder: Path = FOLDER) -> None:
        self._files = {
            path.name: _read(path)
            for path in sorted(folder.iterdir())
            if path.suffix in TYPES and path.is_file()
        }

    def get(self, name: str) -> StaticFile | None:
        return self._files.get(name)


def _read(path: Path) -> StaticFile:
    body = path.read_bytes()
    return StaticFile(body, TYPES[path.suffix], hashlib.sha256(body).hexdigest()[:20])
