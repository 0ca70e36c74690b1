"""Write the recordings that are packaged with the program (the demo's): `python -m tests.package_recordings`."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.recorded import recording
from vllm_length_exporter.recording import save

PACKAGED = {"pressure": "0.32.0-pressure", "failed-start": "0.32.0-kvtoosmall"}
FOLDER = Path(__file__).parent.parent / "exporter" / "vllm_length_exporter" / "recordings"

if __name__ == "__main__":
    for packaged, name in PACKAGED.items():
        save(recording(name), FOLDER / f"{packaged}.jsonl.gz")
        sys.stdout.write(f"{packaged}: {name}\n")
