"""Numbers as vLLM prints them: thousands separators, GiB with one or two decimals, percent."""

from __future__ import annotations

GIB = 2**30


def integer(text: str) -> int | None:
    """`1,048,576` and `8192.0` as a whole number; None where it is none ("None", "auto", "8192.5")."""
    digits = text.replace(",", "")
    whole, point, fraction = digits.partition(".")
    if point and fraction.strip("0"):
        return None
    try:
        return int(whole)
    except ValueError:
        return None


def decimal(text: str) -> float | None:
    """`325.03` or `1,024.5` as a number, or None."""
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return None


def gib(text: str) -> int | None:
    """GiB as printed, in bytes. A figure rounded to zero is no figure: None. It may be negative.

    vLLM rounds to two decimals, so the result is right to about 5 MiB.
    """
    number = decimal(text)
    return None if number is None or number == 0 else round(number * GIB)


def percent(text: str) -> float | None:
    """`97.4` per cent as a ratio of 0 to 1."""
    number = decimal(text)
    return None if number is None else round(number / 100, 6)


def human(text: str) -> int | None:
    """Human-readable integers of vLLM's: `32k` is 32,000, `32K` is 32,768, `1.5m` is 1,500,000 (0.8.5+)."""
    factor = _FACTORS.get(text[-1:])
    if factor is None:
        return integer(text)
    number = decimal(text[:-1])
    return None if number is None else int(number * factor)


_FACTORS = {
    "k": 10**3,
    "m": 10**6,
    "g": 10**9,
    "t": 10**12,
    "K": 2**10,
    "M": 2**20,
    "G": 2**30,
    "T": 2**40,
}
