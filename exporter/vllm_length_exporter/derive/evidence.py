"""Which sources still speak for the server: what is stale, or of a life that is over, is left out."""

from __future__ import annotations

from dataclasses import dataclass, field

from vllm_length_exporter.server import PollFailure, ServerState
from vllm_length_exporter.story import Story
from vllm_length_exporter.vllm.models import Card
from vllm_length_exporter.vllm.names import Quantity
from vllm_length_exporter.vllm.page import Page

from .values import State

# A start that says nothing for so long has died without a word (killed, out of memory).
STARTING_SILENCE_SECONDS = 900.0
# Requests are there, and no counter of the engine has moved for so long.
STALL_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Evidence:
    """The sources that count now; what is missing is None (the story is empty)."""

    page: Page | None = None
    cards: tuple[Card, ...] | None = None
    version: str | None = None  # from /version
    story: Story = field(default_factory=Story)

    @property
    def engines(self) -> tuple[str, ...]:
        """The engines that the page shows, else those that the log named."""
        if self.page is not None and self.page.engines:
            return self.page.engines
        named = {
            *self.story.capacity_tokens,
            *self.story.concurrency,
            *self.story.blocks,
            *self.story.override,
        }
        return tuple(sorted(named, key=lambda engine: (len(engine), engine)))

    @property
    def vllm_version(self) -> tuple[str, str] | None:
        """The version and where it comes from."""
        if self.version is not None:
            return self.version, "version_api"
        if self.story.version is not None:
            return self.story.version, "engine_log"
        return None

    @property
    def model_name(self) -> str | None:
        """The served name as vLLM labels its series, else the first base card's, else the operator's."""
        if self.page is not None and self.page.model_names:
            return self.page.model_names[0]
        if self.cards:
            return self.cards[0].name
        served = self.story.argument("served_model_name")
        if isinstance(served, str) and served:
            return served
        model = self.story.argument("model")
        return model if isinstance(model, str) and model else None


def evidence(state: ServerState, now: float, stale_after: float) -> Evidence:
    """What counts at `now`: nothing of a process that is gone, no page older than `stale_after` seconds."""
    if state.is_gone:
        return Evidence()
    fresh = state.page_at is not None and now - state.page_at <= stale_after
    return Evidence(
        page=state.page if fresh else None,
        cards=state.cards if fresh else None,
        version=state.version if fresh else None,
        story=state.story,
    )


def server_state(state: ServerState, now: float, stale_after: float) -> State | None:
    """What the server does now, or None before anything was tried."""
    story = state.story
    if state.failure is None and state.page_at is None and not state.log_seen and state.ended_reason is None:
        return None
    if story.failure is not None:
        return State.FAILED
    if state.is_gone:
        return State.DOWN
    fresh = state.page_at is not None and now - state.page_at <= stale_after
    if fresh and state.page is not None:
        return _serving(state, state.page, now)
    if _is_starting(state, now):
        return State.STARTING
    if state.failure is PollFailure.BROKEN or (
        state.failure is PollFailure.SILENT and state.first_page_at is not None
    ):
        return State.STALLED  # somebody is there, and does not answer as a server that serves
    return State.DOWN


def _serving(state: ServerState, page: Page, now: float) -> State:
    awake = page.by_engine(Quantity.SLEEP_STATE, sleep_state="awake")
    if awake and not any(awake.values()):
        return State.SLEEPING
    busy = any(page.by_engine(Quantity.RUNNING).values()) or any(page.by_engine(Quantity.WAITING).values())
    if busy and state.progress_at is not None and now - state.progress_at > STALL_SECONDS:
        return State.STALLED
    return State.UP


def _is_starting(state: ServerState, now: float) -> bool:
    story = state.story
    told = state.log_at is not None and now - state.log_at <= STARTING_SILENCE_SECONDS
    return told and not story.started and (story.arguments is not None or not story.is_untold)
