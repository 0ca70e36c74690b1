"""Folds pages, answers and log events into one `ServerState`, one incarnation (process start) at a time.

Every function takes a state and returns the next one; nothing here reads a clock or does input or output.
Times are monotonic seconds that the caller passes in.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from vllm_length_exporter.moments import Lengths, Moment, moment_of, since, with_lengths
from vllm_length_exporter.story import Story, opens, told
from vllm_length_exporter.vllm.events import Event, EventName, RefusalCause
from vllm_length_exporter.vllm.models import Card
from vllm_length_exporter.vllm.names import Quantity
from vllm_length_exporter.vllm.page import Page
from vllm_length_exporter.vllm.refusals import may_be_refusal

# A server that drains answers for a while after it was asked to end; after that, a page that still comes
# without a start time of its process is a new server whose log we do not see.
DRAIN_SECONDS = 120.0
# One refused connection can be a full backlog; two in a row are a closed port.
REFUSALS_THAT_PROVE_AN_END = 2

_GROWING = (
    Quantity.PREEMPTIONS,
    Quantity.PROMPT_TOKENS,
    Quantity.GENERATION_TOKENS,
    Quantity.ITERATIONS,
    Quantity.PROMPT_COUNT,
)


class PollFailure(StrEnum):
    """Why a poll brought no page."""

    REFUSED = "refused"  # nobody listens on the port
    SILENT = "silent"  # a connection, and no whole answer in time
    UNREACHABLE = "unreachable"  # no such host, or no way to it: says nothing of the process
    BROKEN = "broken"  # an answer, but no metrics page of vLLM


@dataclass(frozen=True, slots=True)
class Counts:
    """Our own counters. They go on over every restart of the server."""

    starts: int = 0
    startup_failures: Mapping[str, int] = field(default_factory=dict)
    refusals: Mapping[str, int] = field(default_factory=dict)  # by cause, from the server's log
    client_errors: int = 0  # answers in the access log that can be refusals
    log_lines: int = 0
    log_events: Mapping[str, int] = field(default_factory=dict)
    poll_failures: int = 0


@dataclass(frozen=True, slots=True)
class ServerState:
    """All that is known of one server. `None` is "not seen in this incarnation"."""

    name: str
    incarnation: int = 0
    page: Page | None = None
    page_at: float | None = None
    first_page_at: float | None = None
    cards: tuple[Card, ...] | None = None
    cards_at: float | None = None
    version: str | None = None
    story: Story = field(default_factory=Story)
    log_seen: bool = False
    access_log_seen: bool = False
    log_at: float | None = None  # when the log last brought a line
    log_start_at: float | None = None  # when the newest start was seen in it
    over_at: float | None = None  # when the log told the end of this incarnation
    restart_awaits_log: bool = False
    failure: PollFailure | None = None
    failures_in_a_row: int = 0
    ended_reason: str | None = None  # what the container's status says of the last end
    progress_at: float | None = None
    progress: tuple[float, ...] = ()
    history: tuple[Moment, ...] = ()
    lengths: tuple[Lengths, ...] = ()
    start_times: tuple[float, ...] = ()  # starts seen in the last hour, for crash loops
    counts: Counts = field(default_factory=Counts)

    @property
    def is_gone(self) -> bool:
        """The process is provably no more: its port is closed, or its own log told its end."""
        refused = self.failure is PollFailure.REFUSED and self.failures_in_a_row >= REFUSALS_THAT_PROVE_AN_END
        return self.over_at is not None or (
            refused and (self.story.started or self.first_page_at is not None)
        )


def polled(
    state: ServerState, page: Page, at: float, *, window: float = 300.0, workload_window: float = 3600.0
) -> ServerState:
    """A good page was read at `at`; the windows are how many seconds of history to keep."""
    if _is_restart(state, page, at):
        state = _new_incarnation(state, at)
    counters = tuple(sum(s.value for s in page.of(quantity)) for quantity in _GROWING)
    moved = counters != state.progress
    return replace(
        state,
        page=page,
        page_at=at,
        first_page_at=at if state.first_page_at is None else state.first_page_at,
        failure=None,
        failures_in_a_row=0,
        ended_reason=None,
        progress=counters,
        progress_at=at if moved or state.progress_at is None else state.progress_at,
        history=(*since(state.history, at - window), _moment(state, page, at)),
        lengths=with_lengths(state.lengths, page, at, at - workload_window),
    )


def poll_failed(state: ServerState, failure: PollFailure, at: float) -> ServerState:
    """A poll brought nothing; what was known stays until it is too old or the end is proven."""
    del at
    return replace(
        state,
        failure=failure,
        failures_in_a_row=state.failures_in_a_row + 1,
        counts=replace(state.counts, poll_failures=state.counts.poll_failures + 1),
    )


def answered_models(state: ServerState, cards: tuple[Card, ...], at: float) -> ServerState:
    return replace(state, cards=cards, cards_at=at)


def answered_version(state: ServerState, version: str) -> ServerState:
    return replace(state, version=version)


def read_lines(state: ServerState, counted: int, at: float) -> ServerState:
    """The log brought lines, `counted` of them new since the exporter's start or resume point."""
    counts = replace(state.counts, log_lines=state.counts.log_lines + counted)
    return replace(state, log_seen=True, log_at=at, counts=counts)


def process_ended(state: ServerState, reason: str, at: float) -> ServerState:
    """Whoever runs the process says that it ended, for example "OOMKilled (137)"."""
    return replace(state, ended_reason=reason, over_at=state.over_at if state.over_at is not None else at)


def logged(state: ServerState, event: Event, at: float, *, counted: bool = True) -> ServerState:
    """The log told an event; one that is not `counted` is from before our time and sets state only."""
    begins = opens(state.story, event)
    if begins:
        state = _new_story(state, at, counted=counted)
    if event.name is EventName.ARGUMENTS:
        state = replace(state, log_start_at=at)
        if counted:
            state = replace(
                state,
                counts=replace(state.counts, starts=state.counts.starts + 1),
                start_times=(*(t for t in state.start_times if t > at - 3600.0), at),
            )
    if event.name is EventName.ACCESS and not state.access_log_seen:
        state = replace(state, access_log_seen=True)
    story = told(state.story, event)
    if not counted and story.is_over and state.first_page_at is not None:
        # A page was read after the log was written: what ended was an older life, or another server's.
        return replace(state, story=Story())
    failed = story.failure is not None and state.story.failure is None
    ended = story.is_over and not state.story.is_over
    state = replace(state, story=story, over_at=at if ended and state.over_at is None else state.over_at)
    if not counted:
        return state
    counts = state.counts
    if failed and story.failure is not None:
        counts = replace(counts, startup_failures=_plus_one(counts.startup_failures, story.failure.cause))
    if event.name is EventName.REFUSED:
        cause = event.text("cause") or RefusalCause.OTHER
        counts = replace(counts, refusals=_plus_one(counts.refusals, str(cause)))
    if event.name is EventName.ACCESS and may_be_refusal(
        event.text("path") or "", event.integer("status") or 0
    ):
        counts = replace(counts, client_errors=counts.client_errors + 1)
    counts = replace(counts, log_events=_plus_one(counts.log_events, str(event.name)))
    return replace(state, counts=counts)


def _is_restart(state: ServerState, page: Page, at: float) -> bool:
    before = state.page
    if before is not None:
        old, new = before.process_start, page.process_start
        if old is not None and new is not None:
            if abs(old - new) > 1.0:
                return True
        elif _fell(before, page):
            return True
    if state.over_at is not None:
        # The log told an end, and yet there is a page: it drains, or the log is another server's.
        told_before_us = before is None
        return told_before_us or at - state.over_at > DRAIN_SECONDS
    # The port was closed, and now it is open again: nothing else tells it where no start time is shown.
    return (
        state.failure is PollFailure.REFUSED
        and state.first_page_at is not None
        and (before is None or before.process_start is None or page.process_start is None)
        and state.failures_in_a_row >= REFUSALS_THAT_PROVE_AN_END
    )


def _fell(before: Page, after: Page) -> bool:
    for quantity in _GROWING:
        old, new = before.by_engine(quantity), after.by_engine(quantity)
        if any(engine in new and new[engine] < value for engine, value in old.items()):
            return True
    return False


def _new_incarnation(state: ServerState, at: float) -> ServerState:
    """A page shows another process than before: forget the old one, but not a log that ran ahead."""
    log_ran_ahead = (
        state.log_start_at is not None
        and not state.story.is_over
        and (state.page_at is None or state.log_start_at > state.page_at)
    )
    counts = state.counts
    if not state.log_seen and state.first_page_at is not None:
        counts = replace(counts, starts=counts.starts + 1)
        state = replace(state, start_times=(*(t for t in state.start_times if t > at - 3600.0), at))
    return replace(
        state,
        incarnation=state.incarnation + (0 if log_ran_ahead else 1),
        page=None,
        page_at=None,
        first_page_at=None,
        cards=None,
        cards_at=None,
        version=None,
        story=state.story if log_ran_ahead else Story(),
        over_at=None,
        restart_awaits_log=state.log_seen and not log_ran_ahead,
        progress=(),
        progress_at=None,
        history=(),
        lengths=(),
        counts=counts,
    )


def _new_story(state: ServerState, at: float, *, counted: bool) -> ServerState:
    """The log shows a new start: what the page said was another process's, unless it got there first."""
    del at
    state = replace(state, story=Story(), over_at=None, ended_reason=None)
    if not counted or state.restart_awaits_log:
        return replace(state, restart_awaits_log=False)
    return replace(
        state,
        incarnation=state.incarnation + 1,
        page=None,
        page_at=None,
        first_page_at=None,
        cards=None,
        cards_at=None,
        version=None,
        failure=None,
        failures_in_a_row=0,
        progress=(),
        progress_at=None,
        history=(),
        lengths=(),
    )


def _moment(state: ServerState, page: Page, at: float) -> Moment:
    return moment_of(page, state.counts.refusals, at, state.history[-1] if state.history else None)


def _plus_one(counts: Mapping[str, int], key: str) -> Mapping[str, int]:
    return {**counts, key: counts.get(key, 0) + 1}
