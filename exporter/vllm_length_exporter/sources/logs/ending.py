"""How a process ended, in the words that a person knows from `kubectl` and `docker`."""

from __future__ import annotations

import signal

SIGNALLED = 128  # a shell's and a container's exit code for a process that a signal ended is this much more
SAYS_NOTHING = ("", "Error", "Completed")


def ending(code: int, *, out_of_memory: bool = False, reason: str = "") -> str:
    """Such as "OOMKilled (137)", "SIGTERM (143)", "exit code 1", or the reason that was given with the code."""
    if out_of_memory:
        return f"OOMKilled ({code})"
    if reason not in SAYS_NOTHING:
        return f"{reason} ({code})"
    if code > SIGNALLED and code - SIGNALLED in {known.value for known in signal.Signals}:
        return f"{signal.Signals(code - SIGNALLED).name} ({code})"
    return f"exit code {code}"
