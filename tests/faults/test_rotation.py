"""A log that is rotated while it is read, again and again: every line once."""

from __future__ import annotations

import threading
from pathlib import Path

from tests.deadline import wait_for
from vllm_length_exporter.sources.logs.file import FileLog
from vllm_length_exporter.sources.logs.lines import LogError

ROTATIONS = 120


def test_no_line_is_lost_or_doubled_by_rotations_without_a_pause(tmp_path: Path) -> None:
    path = tmp_path / "vllm.log"
    path.write_text("")
    log = FileLog(path)
    seen: list[str] = []
    counted: list[bool] = []
    done = threading.Event()

    def write() -> None:
        for number in range(ROTATIONS):
            with path.open("a") as out:
                out.writelines(f"{number} {line}\n" for line in range(5))
            for kept in range(number, 0, -1):  # as logrotate does: each file gets the next number
                path.with_name(f"vllm.log.{kept}").rename(path.with_name(f"vllm.log.{kept + 1}"))
            path.rename(path.with_name("vllm.log.1"))
            path.touch()
        with path.open("a") as out:
            out.write("the end\n")
        done.set()

    def read() -> bool:
        try:
            batch = log.read()
        except LogError:  # the moment without a file
            return False
        seen.extend(line.text for line in batch.lines)
        counted.extend(line.counted for line in batch.lines)
        return "the end" in seen

    writer = threading.Thread(target=write)
    writer.start()
    wait_for(read, seconds=60, what="all is read", every=0.0005)
    writer.join()
    log.close()
    assert all(counted)
    assert seen == [f"{number} {line}" for number in range(ROTATIONS) for line in range(5)] + ["the end"]
