"""One mistake in what a person wrote: which key, and what is expected there."""

from __future__ import annotations

from vllm_length_exporter.terminal import escaped

KeyPath = tuple[str | int, ...]


class ConfigError(ValueError):
    """A configuration that cannot be used; the message is one line: where, which key, what is expected."""


class KeyedError(ValueError):
    """A mistake at `key` of the object that is being checked."""

    def __init__(self, key: str, expected: str) -> None:
        super().__init__(expected)
        self.key = key


def dotted(path: KeyPath) -> str:
    """`("servers", 0, "url")` as a person writes it: `servers[0].url`; on one line, whatever the keys are."""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return escaped(text)
