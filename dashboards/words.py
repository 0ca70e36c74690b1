"""Codes as words with colours, the same on every board."""

from __future__ import annotations

from vllm_length_exporter.collectors.findings import FINDING
from vllm_length_exporter.collectors.startup import STATE
from vllm_length_exporter.derive.values import Severity, State

from .parts import Steps, Word
from .selector import Selector

STATE_COLORS = {
    State.UP: "green",
    State.STARTING: "blue",
    State.SLEEPING: "purple",
    State.STALLED: "orange",
    State.FAILED: "red",
    State.DOWN: "dark-red",
}
# A series can only carry numbers over time, so each state gets one.
STATES = {str(index): Word(str(state), color) for index, (state, color) in enumerate(STATE_COLORS.items(), 1)}
STATE_NAMES = {str(state): Word(str(state), color) for state, color in STATE_COLORS.items()}

SEVERITIES = {
    "0": Word("none", "green"),
    "1": Word(Severity.INFO, "blue"),
    "2": Word(Severity.WARNING, "orange"),
    "3": Word(Severity.CRITICAL, "red"),
}
SEVERITY_NAMES = {word.text: word for word in SEVERITIES.values() if word.text != "none"}
SEVERITY_STEPS = Steps("green", ((1, "blue"), (2, "orange"), (3, "red")))
SOURCE_UP = {"1": Word("read", "green"), "0": Word("lost", "red")}

LIMIT_COLORS = {
    "kv_cache": "red",
    "max_num_seqs": "orange",
    "max_num_batched_tokens": "yellow",
    "nothing": "green",
}


def state_number(select: Selector) -> str:
    """The state of each server as its number in `STATES`."""
    each = (f"{number} * ({select(STATE, state=word.text)} == 1)" for number, word in STATES.items())
    return f"max by (server) ({' or '.join(each)})"


def severity_number(select: Selector, *by: str) -> str:
    """The gravest finding as its number in `SEVERITIES`, by server and further labels."""
    each = (
        f"{number} * {select(FINDING, severity=word.text)}"
        for number, word in SEVERITIES.items()
        if word.text != "none"
    )
    return f"max by ({', '.join(('server', *by))}) ({' or '.join(each)})"
