"""What a workload costs on our own devices and at an API, and how much of that is waste."""

from __future__ import annotations

from dataclasses import dataclass

from vllm_length_exporter.planner.prices import Api, Prices, SelfHosted, Workload
from vllm_length_exporter.planner.weights import Span

MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class PerMillion:
    """Cost of a million tokens of each kind; None where nothing says how to share the cost out."""

    input: float | None
    cached_input: float | None
    output: float | None
    all: float | None  # of whatever kind


@dataclass(frozen=True, slots=True)
class Waste:
    """Cost of what served nobody, from at least to at most. Refused requests cost no device any time."""

    recomputation: tuple[float, float]
    truncation: float  # of requests whose answer was cut: input and output of the mean request


@dataclass(frozen=True, slots=True)
class Offer:
    """The workload at one place."""

    name: str
    total: float
    per_million: PerMillion
    waste: Waste


@dataclass(frozen=True, slots=True)
class Cost:
    """The workload at every place that has a price, and from what volume on our own devices are cheaper."""

    currency: str
    workload: Workload
    offers: tuple[Offer, ...]
    recomputed_tokens: Span
    break_even: tuple[tuple[str, float], ...]  # API -> share of this workload at which both cost the same


def cost(prices: Prices, workload: Workload, devices: int) -> Cost:
    """The workload's cost; `devices` is how many GPUs serve it."""
    recomputed = recomputed_tokens(workload)
    offers, break_even = [], []
    own = None
    if prices.self_hosted is not None:
        own = _own(prices.self_hosted, workload, devices, recomputed)
        offers.append(own)
    for api in prices.apis:
        offer = _api(api, workload)
        offers.append(offer)
        if own is not None and offer.total > 0:
            break_even.append((api.name, own.total / offer.total))
    return Cost(prices.currency, workload, tuple(offers), recomputed, tuple(break_even))


def recomputed_tokens(workload: Workload) -> Span:
    """Tokens computed again after preemptions: as counted, else at most the mean request for each preemption."""
    if workload.recomputed_tokens is not None:
        return Span(workload.recomputed_tokens, workload.recomputed_tokens)
    if not workload.preemptions or not workload.requests:
        return Span(0, 0)
    mean = (workload.input_tokens + workload.output_tokens) / workload.requests
    return Span(0, int(workload.preemptions * mean))


def _own(hosted: SelfHosted, workload: Workload, devices: int, recomputed: Span) -> Offer:
    total = hosted.gpu_hour * devices * workload.hours
    fresh = workload.input_tokens - workload.cached_input_tokens
    tokens = workload.input_tokens + workload.output_tokens
    each = _shared_out(hosted, workload, total)
    # A token computed again is an input token: its prompt is processed once more.
    computed = fresh + workload.output_tokens
    per_input = (total / computed if computed else 0.0) if each.input is None else each.input / MILLION
    waste = Waste(
        (min(recomputed.low * per_input, total), min(recomputed.high * per_input, total)),
        total * _truncated_share(workload),
    )
    whole = total / tokens * MILLION if tokens else None
    return Offer("self-hosted", total, PerMillion(each.input, each.cached_input, each.output, whole), waste)


def _shared_out(hosted: SelfHosted, workload: Workload, total: float) -> PerMillion:
    """The cost by the weights of the price file; without them, no kind has a price of its own."""
    if hosted.output_weight is None:
        return PerMillion(None, None, None, None)
    cached_weight = 1.0 if hosted.cached_input_weight is None else hosted.cached_input_weight
    fresh = workload.input_tokens - workload.cached_input_tokens
    weighed = (
        fresh + workload.cached_input_tokens * cached_weight + workload.output_tokens * hosted.output_weight
    )
    if not weighed:
        return PerMillion(None, None, None, None)
    one = total / weighed * MILLION
    return PerMillion(one, one * cached_weight, one * hosted.output_weight, None)


def _api(api: Api, workload: Workload) -> Offer:
    cached_price = api.input if api.cached_input is None else api.cached_input
    fresh = workload.input_tokens - workload.cached_input_tokens
    total = (
        fresh * api.input + workload.cached_input_tokens * cached_price + workload.output_tokens * api.output
    ) / MILLION
    tokens = workload.input_tokens + workload.output_tokens
    whole = total / tokens * MILLION if tokens else None
    waste = Waste((0.0, 0.0), total * _truncated_share(workload))
    return Offer(api.name, total, PerMillion(api.input, cached_price, api.output, whole), waste)


def _truncated_share(workload: Workload) -> float:
    return workload.truncated_requests / workload.requests if workload.requests else 0.0
