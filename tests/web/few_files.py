"""A listener in a process that may open few files: prints its URL, serves until its standard input ends."""

from __future__ import annotations

import os
import resource
import sys

from tests.web.published import application
from vllm_length_exporter import journal
from vllm_length_exporter.web.listener import Listener

SPARE = 12  # files that may be opened beyond those that are open


def main() -> None:
    journal.set_up("info", "logfmt", sys.stdout)
    listener = Listener(application(), "127.0.0.1:0")
    listener.start()
    limit = max(int(name) for name in os.listdir("/proc/self/fd")) + SPARE  # noqa: PTH208  # numbers, no paths
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    print(listener.url, flush=True)
    sys.stdin.read()
    listener.stop()


main()
