"""A client that hangs up before it has read its answer is no error, whenever the connection is closed."""

from __future__ import annotations

import socket

import pytest
from cheroot.makefile import StreamReader

from vllm_length_exporter.web.streams import make_file


def test_what_cannot_be_written_any_more_is_lost_in_silence() -> None:
    here, there = socket.socketpair()
    with here, there:
        there.close()
        writer = make_file(here, "wb")
        with pytest.raises(OSError, match="Broken pipe"):
            writer.write(b"an answer")
        writer.close()  # flushes once more; Python 3.13 also does so when it is collected, and prints a traceback
        assert writer.closed


def test_what_is_read_is_read_by_cheroot() -> None:
    here, there = socket.socketpair()
    with here, there:
        reader = make_file(here)
        assert isinstance(reader, StreamReader)
        there.sendall(b"line\n")
        assert reader.readline() == b"line\n"
        reader.close()
