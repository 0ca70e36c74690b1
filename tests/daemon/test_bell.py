"""Signals that come at any moment of a waiting loop: none blocks it for ever, and none is lost."""

from __future__ import annotations

import signal
import time

from vllm_length_exporter.bell import Bell

SECONDS = 3.0
EVERY = 0.0003


def test_a_storm_of_signals_does_not_stop_the_loop() -> None:
    """With `threading.Event` in the place of the bell this hangs within a second."""
    bell, rung = Bell(), 0

    def ring(*_: object) -> None:
        nonlocal rung
        rung += 1
        bell.ring()

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, EVERY, EVERY)
    try:
        end, turns = time.monotonic() + SECONDS, 0
        while time.monotonic() < end:
            bell.wait(0.0001)
            turns += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert rung > 100
    assert turns > 100


def test_it_is_heard_once_however_often_it_rang() -> None:
    bell = Bell()
    assert not bell.wait(0.01)
    for _ in range(3):
        bell.ring()
    assert bell.wait(0)
    assert not bell.wait(0)
