"""Stands in for journalctl where a real journal would take minutes: a million entries, from a cursor on."""

from __future__ import annotations

import sys
import time

ENTRIES = 1_000_000
KNOWN = {
    "--output",
    "--all",
    "--no-pager",
    "--output-fields",
    "--unit",
    "--follow",
    "--no-tail",
    "--boot",
    "--cursor",
}


def main(options: list[str]) -> int:
    given = dict(option.partition("=")[::2] for option in options)
    unknown = given.keys() - KNOWN
    if unknown or given["--output"] != "json" or given["--unit"] != "vllm.service":
        print(f"journalctl: unrecognized option {unknown or options}", file=sys.stderr)
        return 1
    first = int(given.get("--cursor", "i=0").removeprefix("i="))
    for begin in range(first, ENTRIES, 1000):
        sys.stdout.write("".join(map(entry, range(begin, min(begin + 1000, ENTRIES)))))
    sys.stdout.flush()
    while "--follow" in given:
        time.sleep(60)
    return 0


def entry(number: int) -> str:
    return (
        f'{{"__CURSOR":"i={number}","__REALTIME_TIMESTAMP":"{1_700_000_000_000_000 + number}","_BOOT_ID":"a",'
        f'"_SYSTEMD_UNIT":"vllm.service","_SYSTEMD_INVOCATION_ID":"1","_PID":"77","MESSAGE":"{number}"}}\n'
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
