"""One look at a server, live or from files that belong together: what `doctor` reports from."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import islice

from vllm_length_exporter.derive.evidence import Evidence, server_state
from vllm_length_exporter.derive.values import ServerView, State
from vllm_length_exporter.derive.view import Horizon, assemble
from vllm_length_exporter.server import (
    PollFailure,
    ServerState,
    answered_models,
    answered_version,
    logged,
    poll_failed,
    polled,
    read_lines,
)
from vllm_length_exporter.sources.http import FetchError, FetchFailure, HttpSource
from vllm_length_exporter.story import Story
from vllm_length_exporter.vllm.lines import LogParser
from vllm_length_exporter.vllm.model_config import Config, checked_config
from vllm_length_exporter.vllm.models import AnswerError, read_models, read_version
from vllm_length_exporter.vllm.page import Page, read_page

CHUNK_LINES = 20_000


class NothingRecognisedError(Exception):
    """Nothing in the input is of vLLM; one line."""


class Inspection:
    """Collects what there is and puts it together once. Files are taken as of one moment, time 0."""

    def __init__(self, name: str) -> None:
        self._state = ServerState(name)
        self._page: Page | None = None
        self._live = False
        self._config: Config | None = None
        self.has_log = False
        self.complaints: list[str] = []

    def read_log(self, lines: Iterable[str]) -> None:
        """Fold a whole log; its refusals count, whenever they were."""
        parser, rows = LogParser(), iter(lines)
        while chunk := list(islice(rows, CHUNK_LINES)):
            self.has_log = True
            self._state = read_lines(self._state, len(chunk), 0.0)
            for event in parser.feed_many(chunk):
                self._state = logged(self._state, event, 0.0)
        for event in parser.end():
            self._state = logged(self._state, event, 0.0)

    def read_page(self, body: bytes) -> None:
        """Take a saved page. Raises PageError."""
        self._page = read_page(body)

    def read_models(self, body: bytes) -> None:
        """Take a saved answer of /v1/models. Raises AnswerError."""
        self._state = answered_models(self._state, read_models(body), 0.0)

    def read_model_config(self, body: bytes, name: str) -> None:
        """Take the model's config.json, for its window. Raises ModelConfigError."""
        self._config = checked_config(body, name)

    def ask(self, source: HttpSource) -> None:
        """Read page, models and version of a live server.

        Raises:
            FetchError, PageError: there is no page; what else failed is in `complaints`.
        """
        self._live = True
        try:
            page = read_page(source.get("/metrics", "text/plain; version=0.0.4").body)
        except FetchError as error:
            refused = error.kind is FetchFailure.REFUSED
            # One look decides: a closed port is a server that is down.
            for _ in range(2 if refused else 1):
                self._state = poll_failed(
                    self._state, PollFailure.REFUSED if refused else PollFailure.UNREACHABLE, 0.0
                )
            raise
        self._state = polled(self._state, page, 0.0)
        try:
            self._state = answered_models(
                self._state, read_models(source.get("/v1/models", "application/json").body), 0.0
            )
            self._state = answered_version(
                self._state, read_version(source.get("/version", "application/json").body)
            )
        except (FetchError, AnswerError) as error:
            self.complaints.append(str(error))

    def view(self) -> ServerView:
        """What all of it says.

        Raises:
            NothingRecognisedError: no line, page or answer was of vLLM.
        """
        state, story = self._state, self._state.story
        if not self._live:
            if (
                self._page is None
                and state.cards is None
                and story == Story()
                and not state.counts.log_events
            ):
                raise NothingRecognisedError("nothing of vLLM was recognised in the input")
            if self._page is not None:
                state = replace(state, page=self._page, page_at=0.0, first_page_at=0.0)
        # The files are of one life: its numbers are told even where the log tells its end as well.
        sources = Evidence(state.page, state.cards, state.version, story)
        return assemble(state, sources, self._condition(state), Horizon(), 0.0, self._config)

    def _condition(self, state: ServerState) -> State:
        condition = server_state(state, 0.0, Horizon().stale_after)
        if not self._live and not state.story.is_over and state.story.started:
            return condition if condition is State.SLEEPING else State.UP
        return condition or State.DOWN
