"""Memory that is given back: the C library keeps large buffers that were freed, unless it is told."""

from __future__ import annotations

import contextlib
import ctypes

M_MMAP_THRESHOLD = -3  # of mallopt(3), in glibc
M_ARENA_MAX = -8
LARGE = 256 * 1024  # bytes: pages and log chunks of usual size are smaller


def give_back_large_buffers() -> None:
    """From here on, a buffer larger than `LARGE` goes back to the system when it is freed.

    glibc raises that border to the largest buffer that it saw: after a few answers of 8 MiB from a hostile server, in
    a thread each, the process held 157 MB for ever, instead of 49 MB. Other C libraries need no telling.
    """
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, LARGE)


def share_one_heap() -> None:
    """From here on, all threads take memory from one heap; before any thread is made.

    glibc gives threads heaps of their own, eight for each processor, and each keeps what its largest page took:
    30 kB for each of 200 servers. Threads that share an interpreter lock gain nothing by it.
    """
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).mallopt(M_ARENA_MAX, 1)
