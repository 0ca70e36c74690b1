"""Inputs made from good ones by a seed: cut, doubled, swapped, with bytes and numbers that hurt."""

from __future__ import annotations

import random
import re

HOSTILE = (
    b"\x00", b"\xff\xfe", b"\r", b"\n\n", b"{", b"}", b'"', b"\\", b"\\n", b"'", b"#", b" ", b"\t", b"\xe2\x80\xa8",
    b"NaN", b"+Inf", b"-Inf", b"-1", b"0", b"1e999", b"9" * 400, b"0x10", b"1_000", b"\xd9\xa1\xd9\xa2", b"null",
    b"true", b"[[[[", b'{"a":' * 50, b"&a [*a]", b"!!python/object:os.system", b"<<: *x", b"\x1b[31m", b"(" * 2000,
    b"A" * 70_000,
)  # fmt: skip
NUMBER = re.compile(rb"\d+(?:\.\d+)?")


def mutated(seed: bytes, chance: random.Random) -> bytes:
    """`seed` after one to six changes."""
    data = seed
    for _ in range(chance.randint(1, 6)):
        at = chance.randint(0, len(data))
        end = min(len(data), at + chance.choice((1, 8, 80, 800)))
        match chance.randrange(8):
            case 0:
                data = data[:at]
            case 1:
                data = data[:at] + data[end:]
            case 2:
                data = data[:at] + data[at:end] * 2 + data[end:]
            case 3:
                data = data[:at] + bytes(chance.randrange(256) for _ in range(3)) + data[end:]
            case 4 | 5:
                data = data[:at] + chance.choice(HOSTILE) + data[end:]
            case 6:
                numbers = list(NUMBER.finditer(data))
                if numbers:
                    number = chance.choice(numbers)
                    data = data[: number.start()] + chance.choice(HOSTILE) + data[number.end() :]
            case 7:
                lines = data.split(b"\n")
                one, other = chance.randrange(len(lines)), chance.randrange(len(lines))
                lines[one], lines[other] = lines[other], lines[one]
                data = b"\n".join(lines)
    return data
