"""One rendered example of each message that vLLM was seen to write, with the fields a reader expects.

The examples were rendered from vLLM's own templates, apart from the catalogue that is tested on them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from vllm_length_exporter.vllm.events import Event, EventName, FieldValue


@dataclass(frozen=True, slots=True)
class Example:
    """A message, how vLLM prints it in a log of its own, and what it must become."""

    id: str
    kind: str
    first: str
    last: str
    level: str
    text: str
    fields: Mapping[str, FieldValue]

    def lines(self, stamp: str = "11-29 14:35:05") -> list[str]:
        """The example as a log of vLLM 0.9: no process prefixes, brackets round the file."""
        header = f"{self.level} {stamp} [file.py:12] "
        if self.id == "uvicorn_access":
            return [f"INFO:     {self.text}"]
        if self.id == "uvicorn_asgi_exception":
            return [f"ERROR:    {self.text}"]
        if self.kind == "log":
            return [header + line for line in self.text.split("\n")]
        if self.kind == "startup_error":
            return [header + line for line in ("EngineCore failed to start.", *traceback(self.text))]
        return [header + line for line in ("Error in preprocessing prompt inputs", *traceback(self.text))]

    def is_told_by(self, event: Event) -> bool:
        """Whether the event is this example's, with all the fields that are expected."""
        return all(event.fields.get(key) == value for key, value in self.fields.items())


def traceback(text: str, name: str = "ValueError") -> list[str]:
    """A traceback that ends with `name: text`."""
    return [
        "Traceback (most recent call last):",
        '  File "/opt/vllm/lib/python3.12/site-packages/vllm/v1/engine/core.py", line 10, in run',
        "    raise ValueError(",
        f"{name}: {text}",
    ]


def load() -> list[Example]:
    """All examples, in the order of the releases' messages."""
    path = Path(__file__).with_name("examples.json")
    return [Example(**entry) for entry in json.loads(path.read_text(encoding="utf-8"))]


EXAMPLES = load()
TOLD = {
    "log": None,
    "startup_error": EventName.START_FAILED,
    "request_error": EventName.REFUSED,
}
