"""Reads doctor's JSON: measured numbers instead of theory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from vllm_length_exporter.planner.capacity import Measured
from vllm_length_exporter.planner.error import PlanError

Document = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Server:
    """What doctor says of one server that a plan can start from. Bytes are of one device."""

    name: str
    vllm_version: str | None
    limit: int
    capacity: Measured
    reported_tokens: int | None
    memory_bytes: int | None
    bytes_per_token: float | None
    max_num_seqs: int | None
    max_num_batched_tokens: int | None
    window: int | None


def server(document: Document, source: str, name: str | None = None) -> Server:
    """The server in doctor's JSON; `name` chooses where there are several.

    Raises:
        PlanError: it is no such document, or the numbers that a plan needs were withheld; one line.
    """
    servers = document.get("servers")
    if not isinstance(servers, list) or not all(isinstance(item, dict) for item in servers):
        raise PlanError(f"{source}: not doctor's JSON: it has no list of servers")
    names = [str(item.get("server")) for item in servers]
    chosen = [item for item in servers if name is None or item.get("server") == name]
    if name is not None and not chosen:
        raise PlanError(f"{source}: no server {name}; there is {', '.join(names) or 'none'}")
    if len(chosen) != 1:
        raise PlanError(f"{source}: {len(chosen)} servers: choose one by its name")
    return _server(chosen[0], source)


def _server(item: Document, source: str) -> Server:
    limits = item.get("limits")
    limits = limits if isinstance(limits, dict) else {}
    listed = item.get("capacity")
    engines = [engine for engine in listed if isinstance(engine, dict)] if isinstance(listed, list) else []
    limit = _count(limits, "effective")
    if limit is None or not engines:
        raise PlanError(
            f"{source}: {'limits.effective' if limit is None else 'capacity'} is missing: {_withheld(item)}"
        )
    # What one engine cannot hold, none can be counted on for: the smallest speaks for all.
    smallest = min(engines, key=lambda engine: _count(engine, "blocks") or 2**62)
    blocks, concurrency = _count(smallest, "blocks"), _number(smallest, "full_length_concurrency")
    if blocks is None or concurrency is None or concurrency <= 0:
        absent = "blocks" if blocks is None else "full_length_concurrency"
        raise PlanError(f"{source}: capacity: {absent} is missing: {_withheld(item)}")
    block_size = _count(smallest, "block_size")
    at_limit = _blocks_at_limit(smallest, limit, blocks + 1, concurrency, block_size)
    version = item.get("vllm_version")
    if isinstance(version, dict):
        version = version.get("value")
    return Server(
        name=str(item.get("server")),
        vllm_version=version if isinstance(version, str) else None,
        limit=limit,
        capacity=Measured(
            usable_blocks=blocks,
            blocks_at_limit=max(at_limit, 1),
            limit=limit,
            block_size=block_size,
            one_group=_is_one_group(smallest, limit, blocks + 1, at_limit, block_size),
            engines=len(engines),
        ),
        reported_tokens=_count(smallest, "tokens"),
        memory_bytes=_count(smallest, "memory_bytes"),
        bytes_per_token=_number(smallest, "bytes_per_token"),
        max_num_seqs=_count(limits, "max_num_seqs"),
        max_num_batched_tokens=_count(limits, "max_num_batched_tokens"),
        window=_count(limits, "window"),
    )


def _blocks_at_limit(
    engine: Document, limit: int, total_blocks: int, concurrency: float, block_size: int | None
) -> int:
    """Blocks of one request of the limit's length. vLLM's concurrency counts the null block.

    The log rounds it to two decimals; the tokens, where they are concurrency x limit, are more precise. Where they
    are something else (until 0.19), the plain number of blocks counts if it rounds to the same.
    """
    tokens = _count(engine, "tokens")
    if tokens is not None and abs(tokens / limit - concurrency) <= ROUNDING:
        concurrency = (tokens + 0.5) / limit
    elif block_size is not None:
        plain = -(-limit // block_size)
        if abs(total_blocks / plain - concurrency) <= ROUNDING:
            return plain
    return round(total_blocks / concurrency)


ROUNDING = 0.00501


def _is_one_group(
    engine: Document, limit: int, total_blocks: int, at_limit: int, block_size: int | None
) -> bool:
    """Whether the reported tokens are what plain blocks hold; groups of several kinds report other numbers."""
    tokens = _count(engine, "tokens")
    if tokens is None or block_size is None or at_limit != -(-limit // block_size):
        return False
    return tokens in (total_blocks * block_size, int(total_blocks / at_limit * limit))


def _number(item: Document, key: str) -> float | None:
    value = item.get(key)
    if isinstance(value, dict):
        value = value.get("value")
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 2**62:
        return None
    return float(value)


def _count(item: Document, key: str) -> int | None:
    value = _number(item, key)
    return int(value) if value is not None and value == int(value) and value > 0 else None


def _withheld(item: Document) -> str:
    unknown = item.get("unknown")
    missing = [
        str(entry.get("missing"))
        for entry in (unknown if isinstance(unknown, list) else [])
        if isinstance(entry, dict)
    ]
    return f"doctor needs {missing[0]}" if missing else "doctor withheld it"
