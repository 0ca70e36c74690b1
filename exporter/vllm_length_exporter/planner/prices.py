"""The price file: what a GPU costs an hour, an API a million tokens, and a workload. No price is built in."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import msgspec

from vllm_length_exporter.planner.error import PlanError
from vllm_length_exporter.settings.document import read
from vllm_length_exporter.settings.mistake import ConfigError, KeyedError
from vllm_length_exporter.settings.strict import convert

Price = Annotated[float, msgspec.Meta(ge=0, le=1e9)]
Count = Annotated[int, msgspec.Meta(ge=0, le=2**60)]


class SelfHosted(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Our own devices. The weights share the cost out among kinds of tokens: an input token has weight 1."""

    gpu_hour: Price
    cached_input_weight: Price | None = None
    output_weight: Price | None = None


class Api(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Prices of an API for a million tokens of each kind; cached input costs as input where it is not named."""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=100)]
    input: Price
    output: Price
    cached_input: Price | None = None


class Workload(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """What was served in so many hours. Input tokens include the cached ones."""

    hours: Annotated[float, msgspec.Meta(gt=0, le=1e6)]
    requests: Count
    input_tokens: Count
    output_tokens: Count
    cached_input_tokens: Count = 0
    recomputed_tokens: Count | None = None  # after preemptions; None: bounded by the preemptions
    preemptions: Count = 0
    refused_requests: Count = 0
    truncated_requests: Count = 0

    def __post_init__(self) -> None:
        if self.cached_input_tokens > self.input_tokens:
            raise KeyedError("cached_input_tokens", f"expected at most input_tokens ({self.input_tokens})")
        if self.truncated_requests > self.requests:
            raise KeyedError("truncated_requests", f"expected at most requests ({self.requests})")


class Prices(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A whole price file."""

    currency: Annotated[str, msgspec.Meta(min_length=1, max_length=10)] = "USD"
    self_hosted: SelfHosted | None = None
    apis: tuple[Api, ...] = ()
    workload: Workload | None = None


def read_prices(path: Path) -> Prices:
    """The prices in a YAML file.

    Raises:
        PlanError: the file cannot be read, or a key in it is unknown, missing or impossible; one line.
    """
    try:
        document = read(path)
        prices = convert(document.content, Prices, _no_other_types, document.place)
    except ConfigError as error:
        raise PlanError(str(error)) from None
    if prices.self_hosted is None and not prices.apis:
        raise PlanError(f"{path}: expected self_hosted or apis: there is no price")
    names = [api.name for api in prices.apis]
    twice = next((name for i, name in enumerate(names) if name in names[:i]), None)
    if twice is not None:
        raise PlanError(f"{path}: apis: the name {twice!r} stands twice")
    return prices


def read_workload(path: Path) -> Workload:
    """A workload in a YAML file of its own. Raises PlanError as `read_prices`."""
    try:
        document = read(path)
        return convert(document.content, Workload, _no_other_types, document.place)
    except ConfigError as error:
        raise PlanError(str(error)) from None


def _no_other_types(kind: type, value: Any) -> Any:
    raise NotImplementedError(f"{kind} {value}")
