"""Incarnations: what ends one, what begins one, and that nothing of the old one is left in the new."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from vllm_length_exporter.derive.evidence import evidence, server_state
from vllm_length_exporter.derive.values import State
from vllm_length_exporter.server import (
    PollFailure,
    ServerState,
    answered_models,
    logged,
    poll_failed,
    polled,
    read_lines,
)
from vllm_length_exporter.story import Story
from vllm_length_exporter.vllm.events import Event, EventName
from vllm_length_exporter.vllm.models import Card
from vllm_length_exporter.vllm.page import Page, read_page

STALE = 15.0
ARGUMENTS = Event(EventName.ARGUMENTS, "non_default_args", {"max_num_seqs": 16})
CAPACITY = Event(EventName.KV_CAPACITY, "kv_cache_size_4", {"capacity_tokens": 10240})
STARTED = Event(EventName.STARTED, "startup_complete")
SHUTDOWN = Event(EventName.SHUTDOWN, "shutdown")
DIED = Event(EventName.ENGINE_DIED, "engine_died")


def failed(cause: str = "kv_cache_too_small", **numbers: int) -> Event:
    fields: Mapping[str, int | str] = {"cause": cause, **numbers}
    return Event(EventName.START_FAILED, "kv_too_small_1", fields)


def page(start: float | None = 100.0, prompt: float = 0.0, running: float = 0.0) -> Page:
    lines = [
        f'vllm:num_requests_running{{engine="0"}} {running}',
        f'vllm:prompt_tokens_total{{engine="0"}} {prompt}',
    ]
    if start is not None:
        lines.append(f"process_start_time_seconds {start}")
    return read_page(("\n".join(lines) + "\n").encode())


def serving() -> ServerState:
    state = read_lines(ServerState("s"), 3, 0.0)
    for event in (ARGUMENTS, CAPACITY, STARTED):
        state = logged(state, event, 0.0)
    state = polled(state, page(prompt=50), 1.0)
    return answered_models(state, (Card("m", 8192),), 1.0)


def test_before_anything_was_tried_there_is_no_state() -> None:
    assert server_state(ServerState("s"), 0.0, STALE) is None


def test_a_server_goes_from_starting_to_up() -> None:
    state = logged(read_lines(ServerState("s"), 1, 0.0), ARGUMENTS, 0.0)
    state = poll_failed(state, PollFailure.REFUSED, 1.0)
    state = poll_failed(state, PollFailure.REFUSED, 6.0)
    assert server_state(state, 6.0, STALE) is State.STARTING
    state = logged(state, STARTED, 7.0)
    state = polled(state, page(), 8.0)
    assert server_state(state, 8.0, STALE) is State.UP


def test_one_refused_connection_is_no_end_two_are() -> None:
    state = poll_failed(serving(), PollFailure.REFUSED, 6.0)
    assert server_state(state, 6.0, STALE) is State.UP
    state = poll_failed(state, PollFailure.REFUSED, 11.0)
    assert server_state(state, 11.0, STALE) is State.DOWN
    assert evidence(state, 11.0, STALE).page is None
    assert evidence(state, 11.0, STALE).story == Story()


def test_a_silent_server_keeps_its_page_until_it_is_stale_and_then_is_stalled() -> None:
    state = serving()
    for at in (6.0, 11.0, 16.0):
        state = poll_failed(state, PollFailure.SILENT, at)
    assert evidence(state, 16.0, STALE).page is not None
    assert evidence(state, 16.1, STALE).page is None
    assert evidence(state, 16.1, STALE).cards is None
    assert server_state(state, 16.1, STALE) is State.STALLED


def test_a_shutdown_that_was_asked_for_is_down_and_the_dead_engines_after_it_no_failure() -> None:
    state = logged(logged(serving(), SHUTDOWN, 5.0), DIED, 5.1)
    assert server_state(state, 5.2, STALE) is State.DOWN
    assert evidence(state, 5.2, STALE).story == Story()
    assert state.counts.startup_failures == {}


def test_a_server_that_drains_after_a_shutdown_stays_down() -> None:
    state = polled(logged(serving(), SHUTDOWN, 5.0), page(prompt=60), 6.0)
    assert server_state(state, 6.0, STALE) is State.DOWN


def test_a_new_start_time_is_a_new_incarnation_with_nothing_of_the_old() -> None:
    state = polled(serving(), page(start=200.0), 6.0)
    assert state.incarnation == 1
    assert state.cards is None
    assert state.story == Story()
    assert len(state.history) == 1


def test_a_counter_that_fell_is_a_restart_where_no_start_time_is_shown() -> None:
    state = polled(ServerState("s"), page(start=None, prompt=50), 0.0)
    state = answered_models(state, (Card("m", 8192),), 0.0)
    assert polled(state, page(start=None, prompt=60), 5.0).cards is not None
    assert polled(state, page(start=None, prompt=10), 5.0).cards is None


def test_the_log_may_tell_of_a_restart_before_the_page_does() -> None:
    state = logged(serving(), ARGUMENTS, 6.0)
    assert state.page is None
    assert state.cards is None
    state = logged(state, CAPACITY, 7.0)
    state = polled(state, page(start=200.0), 8.0)
    assert state.story.capacity_tokens == {"0": 10240}, "the new page belongs to the start that the log told"
    assert state.incarnation == 1


def test_the_page_may_tell_of_a_restart_before_the_log_does() -> None:
    state = polled(serving(), page(start=200.0), 6.0)
    state = logged(state, ARGUMENTS, 7.0)
    assert state.page is not None, "the log caught up with a restart that the page had shown"
    assert state.incarnation == 1


def test_a_failed_start_stays_until_the_next_start() -> None:
    state = logged(read_lines(ServerState("s"), 1, 0.0), ARGUMENTS, 0.0)
    state = logged(state, failed(needed_bytes=32 << 30), 1.0)
    for at in (2.0, 7.0, 12.0, 600.0):
        state = poll_failed(state, PollFailure.REFUSED, at)
    assert server_state(state, 5000.0, STALE) is State.FAILED
    assert state.story.failure is not None
    state = logged(state, ARGUMENTS, 5001.0)
    assert state.story.failure is None


def test_the_first_cause_is_the_root() -> None:
    state = logged(ServerState("s"), ARGUMENTS, 0.0)
    state = logged(logged(state, failed("no_kv_memory"), 1.0), failed("other"), 1.1)
    assert state.story.failure is not None
    assert state.story.failure.cause == "no_kv_memory"
    assert state.counts.startup_failures == {"no_kv_memory": 1}


def test_what_was_in_the_log_before_us_sets_state_and_counts_nothing() -> None:
    state = read_lines(ServerState("s"), 0, 0.0)
    refused = Event(EventName.REFUSED, "sum_gt_len_1", {"cause": "prompt_too_long"})
    for event in (ARGUMENTS, CAPACITY, STARTED, refused):
        state = logged(state, event, 0.0, counted=False)
    assert state.story.capacity_tokens == {"0": 10240}
    assert state.counts.starts == 0
    assert state.counts.refusals == {}
    assert logged(state, refused, 1.0).counts.refusals == {"prompt_too_long": 1}


def test_an_old_end_in_the_log_does_not_take_down_a_server_that_answers() -> None:
    state = polled(ServerState("s"), page(), 0.0)
    for event in (ARGUMENTS, STARTED, SHUTDOWN):
        state = logged(state, event, 0.1, counted=False)
    assert server_state(state, 0.2, STALE) is State.UP
    log_first = ServerState("s")
    for event in (ARGUMENTS, STARTED, SHUTDOWN):
        log_first = logged(log_first, event, 0.1, counted=False)
    assert server_state(polled(log_first, page(), 0.2), 0.2, STALE) is State.UP


def test_our_counters_go_on_over_restarts() -> None:
    state = logged(serving(), Event(EventName.REFUSED, "x", {"cause": "prompt_too_long"}), 2.0)
    state = polled(state, page(start=300.0), 9.0)
    assert state.counts.refusals == {"prompt_too_long": 1}
    assert state.counts.starts == 1


def test_two_starts_in_one_file_leave_only_the_second() -> None:
    state = serving()
    state = logged(state, SHUTDOWN, 2.0)
    state = logged(state, replace(ARGUMENTS, fields={"max_model_len": 4096}), 3.0)
    assert state.story.requested == 4096
    assert state.story.capacity_tokens == {}
    assert not state.story.started


def test_requests_in_the_engine_without_any_progress_are_a_stall() -> None:
    state = polled(ServerState("s"), page(running=3.0, prompt=50), 0.0)
    for at in range(5, 100, 5):
        state = polled(state, page(running=3.0, prompt=50), float(at))
    assert server_state(state, 60.0, STALE) is State.UP
    assert server_state(state, 95.0, STALE) is State.STALLED
    moved = polled(state, page(running=3.0, prompt=51), 96.0)
    assert server_state(moved, 96.0, STALE) is State.UP


def test_a_start_that_falls_silent_is_not_starting_for_ever() -> None:
    state = logged(read_lines(ServerState("s"), 1, 0.0), ARGUMENTS, 0.0)
    state = poll_failed(poll_failed(state, PollFailure.REFUSED, 1.0), PollFailure.REFUSED, 6.0)
    assert server_state(state, 800.0, STALE) is State.STARTING
    assert server_state(state, 901.0, STALE) is State.DOWN
