"""How many requests of a length that a reader chooses fit at once."""

from __future__ import annotations

from dataclasses import dataclass

from vllm_length_exporter.derive.values import EngineCapacity, ServerView

LONGEST = 100_000_000  # tokens: beyond any model


@dataclass(frozen=True, slots=True)
class EngineFit:
    """`requests` of the length fit into one engine at once; None where its blocks do not tell, then `why`."""

    engine: str
    requests: int | None
    why: str = ""


@dataclass(frozen=True, slots=True)
class Fit:
    """The answer to `tokens`. `fault` says what is wrong with what was asked; `note` what to know about it."""

    tokens: int | None
    engines: tuple[EngineFit, ...] = ()
    fault: str = ""
    note: str = ""

    @property
    def total(self) -> int | None:
        """All engines together; None unless every one is known."""
        each = [engine.requests for engine in self.engines]
        known = [count for count in each if count is not None]
        return sum(known) if known and len(known) == len(each) else None


def fit(view: ServerView, asked: str | None) -> Fit:
    """The answer for a length as it was typed; for the limit in force where nothing was."""
    limit = view.limits.effective.value if view.limits.effective is not None else None
    if asked is None or not asked.strip():
        tokens = limit
    else:
        digits = asked.strip().replace(",", "").replace("_", "")
        if (
            not (digits.isascii() and digits.isdigit())
            or not 1 <= int(digits[:12]) <= LONGEST
            or len(digits) > 12
        ):
            return Fit(None, fault=f"expected a whole number of tokens from 1 to {LONGEST:,}")
        tokens = int(digits)
    if tokens is None:
        return Fit(None)
    note = ""
    if limit is not None and tokens > limit:
        note = f"The limit is {limit:,}: a request of {tokens:,} tokens is refused or cut, whatever fits."
    return Fit(tokens, tuple(_engine(row, tokens) for row in view.capacity), note=note)


def _engine(row: EngineCapacity, tokens: int) -> EngineFit:
    if row.blocks is None or row.block_size is None:
        return EngineFit(row.engine, None, "the number or the size of its blocks is not known")
    if not row.one_group:
        return EngineFit(row.engine, None, "what a token costs at another length is not known for this model")
    blocks_each = -(-tokens // row.block_size.value)
    return EngineFit(row.engine, row.blocks.value // blocks_each)
