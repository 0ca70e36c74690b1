"""The log of a container, by the Docker Engine's API, over the container's restarts.

Docker's own client connects (socket, TCP with TLS, the environment's settings) and agrees on a version. The
log's frames are read here: the client drops from each whether it is of stdout or of stderr, and a line of
one may stand in the middle of a long line of the other.
"""

from __future__ import annotations

import os
import re
import time
from collections import defaultdict
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import msgspec
import requests
import requests.adapters
import urllib3
import urllib3.exceptions

from vllm_length_exporter.sources.deadline import close_connections
from vllm_length_exporter.sources.logs.assembly import Assembler
from vllm_length_exporter.sources.logs.ending import ending
from vllm_length_exporter.sources.logs.engine import Container, Event, framed_messages, terminal_messages
from vllm_length_exporter.sources.logs.feed import Feed
from vllm_length_exporter.sources.logs.lines import Batch, Line, LogError
from vllm_length_exporter.sources.logs.stamped import NANOSECONDS, Place, Reading, Stamps

if TYPE_CHECKING:
    import docker

PATIENCE = 5.0  # seconds for an answer
IDLE = 60.0  # seconds without a line, after which the connection is made anew: it may be dead
STATUS_INTERVAL = 2.0  # seconds between two looks at a container that does not run
WHOLE = re.compile(rb"[^\n\r\0]{,16384}\n")
BROKEN = (requests.RequestException, urllib3.exceptions.HTTPError, OSError)


class _Position(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`run` is when the container was started last that was seen, `ended` that this run's end was told."""

    container: str
    run: str
    origin: int
    place: Place | None
    ended: bool


class DockerLog(Feed):
    """Follows a container by name or id: the one of a name that is there now, if it was made anew.

    Nothing is read twice or left out over a lost connection, a restart of the container or of the exporter,
    as long as Docker keeps it.
    """

    def __init__(
        self,
        container: str,
        position: dict[str, object] | None = None,
        *,
        base_url: str | None = None,
        idle: float = IDLE,
    ) -> None:
        """`base_url` such as unix:///var/run/docker.sock; without it, DOCKER_HOST and its companions hold.

        Raises:
            LogError: Docker's client is not installed.
        """
        super().__init__()
        try:
            import docker
            import docker.utils
        except ImportError:
            wanted = "pip install 'vllm-length-exporter[docker]'"
            raise LogError(f"container {container}: its log needs Docker's client: {wanted}") from None
        self._docker = docker
        self._name = container
        self._base_url = base_url
        self._idle = idle
        self._client: docker.APIClient | None = None
        self._response: requests.Response | None = None
        self._stamps = Stamps()
        kept = _understood(position)
        self._container = kept.container if kept else ""
        self._run = kept.run if kept else ""
        self._ended = kept.ended if kept else False
        self._origin = kept.origin if kept else time.time_ns()
        self._reading = Reading(self._origin, kept.place if kept else None)
        self._place = kept.place if kept else None  # behind the lines that were handed on
        self._assemblers: dict[int, Assembler] = defaultdict(Assembler)

    def cancel(self) -> None:
        """Make the reading of the log end."""
        response = self._response
        if response is not None:
            with suppress(OSError, ValueError):  # it has ended by itself
                response.raw.shutdown()

    def close(self) -> None:
        """End the thread and the connection."""
        super().close()
        self._forget_client()

    def follow(self) -> None:
        """Read what is new until the connection, or the container, ends."""
        container = self._inspected()
        state = container.state
        if self._container != container.id:
            if self._container:
                self.hand_on(Batch((), restarted=True))
            self._container, self._run, self._ended = container.id, state.started_at, False
            self._reading, self._place = Reading(self._origin), None
            self._assemblers.clear()
        if state.runs or self._run != state.started_at or not self._ended:
            whole = self._read(container)
            if whole and self._run != state.started_at:  # it was started again, and has said nothing yet
                self._started_again(state.started_at)
            if whole and not state.runs and not self._ended:
                self._hand_on_unfinished()
                self._tell_end(ending(state.exit_code, out_of_memory=state.out_of_memory))
        else:
            self.connected()
            self.stopping.wait(STATUS_INTERVAL)

    # --- the container's runs

    def _started_again(self, started_at: str) -> None:
        """The container's log goes on with another run; how the one before ended, Docker's events may tell."""
        self._hand_on_unfinished()
        if not self._ended:
            self._tell_end(self._past_ending(self._run, started_at))
        self._run, self._ended = started_at, False
        self.hand_on(Batch((), self._position(), restarted=True))

    def _tell_end(self, how: str) -> None:
        self._ended = True
        self.hand_on(Batch((), self._position(), ended=how))

    def _past_ending(self, begin: str, end: str) -> str:
        since, until = self._stamps.split(begin), self._stamps.split(end)
        unknown = "ended, and Docker no longer tells how"
        if since is None or until is None:
            return unknown
        filters = {"container": [self._container], "event": ["die", "oom"], "type": ["container"]}
        query = {
            "since": since[0] // NANOSECONDS,
            "until": until[0] // NANOSECONDS + 1,
            "filters": msgspec.json.encode(filters).decode(),
        }
        out_of_memory, how = False, unknown
        try:
            events = msgspec.json.Decoder(Event).decode_lines(self._get("/events", query).content)
        except (*BROKEN, msgspec.DecodeError, LogError):
            return unknown
        for event in events:
            if event.time > until[0]:
                break
            if event.action == "die":
                code = event.actor.attributes.get("exitCode", "")
                how = ending(int(code), out_of_memory=out_of_memory) if code.isdecimal() else unknown
            out_of_memory = event.action == "oom"
        return how

    # --- the log

    def _read(self, container: Container) -> bool:
        """The messages that are new, until the log's end (True) or that of the connection."""
        query = {"stdout": 1, "stderr": 1, "timestamps": 1, "follow": int(container.state.runs)}
        since = self._reading.reconnected()
        if since is not None:
            query["since"] = since
        again = self._stamps.split(container.state.started_at)
        try:
            self._response = self._get(f"/containers/{container.id}/logs", query, stream=True)
            messages = terminal_messages if container.config.tty else framed_messages
            for group in messages(self._response.raw):
                self.connected()
                self._hand_on(group, None if again is None else again[0], container.state.started_at)
        except BROKEN:
            return False
        finally:
            if self._response is not None:
                self._response.close()
            self._response = None
        return True

    def _hand_on(self, messages: list[tuple[int, bytes]], again: int | None, started_at: str) -> None:
        lines: list[Line] = []
        for stream, message in messages:
            stamp, _, text = message.partition(b" ")
            stamped = self._stamps.split(stamp.decode("ascii", "replace"))
            if stamped is None:  # the daemon's own word
                continue
            other_run = self._run != started_at and again is not None and stamped[0] >= again
            place = self._reading.place if other_run else None
            counted = self._reading.take(stamped[0], text)
            if counted is None:
                continue
            if other_run:
                self._place = place
                self._hand_on_lines(lines)
                lines = []
                self._started_again(started_at)
            assembler = self._assemblers[stream]
            if assembler.holds or not WHOLE.fullmatch(text):
                lines += [Line(line, counted) for line in assembler.feed(text)]
            else:  # nearly always: one line, which needs no assembling
                lines.append(Line(text[:-1].decode("utf-8", "replace"), counted))
        self._place = self._reading.place
        self._hand_on_lines(lines)

    def _hand_on_lines(self, lines: list[Line]) -> None:
        if lines:
            self.hand_on(Batch(tuple(lines), self._position()))

    def _hand_on_unfinished(self) -> None:
        texts = [text for held in self._assemblers.values() for text in held.finish(sure=False)]
        self._hand_on_lines([Line(text) for text in texts])

    def _position(self) -> dict[str, object]:
        kept = _Position(self._container, self._run, self._origin, self._place, self._ended)
        found: dict[str, object] = msgspec.to_builtins(kept)
        return found

    # --- the API

    def _inspected(self) -> Container:
        try:
            answer = self._get(f"/containers/{quote(self._name, safe='')}/json", {})
            return msgspec.json.decode(answer.content, type=Container)
        except BROKEN as error:
            self._forget_client()
            raise LogError(f"container {self._name}: Docker does not answer ({error})") from None
        except msgspec.DecodeError as error:
            raise LogError(f"container {self._name}: what Docker answers is no container ({error})") from None

    def _get(self, path: str, query: dict[str, Any], *, stream: bool = False) -> requests.Response:
        client = self._connected_client()
        url = f"{client.base_url}/v{client.api_version}{path}"
        timeout = (PATIENCE, self._idle if stream else PATIENCE)
        response: requests.Response = client.get(url, params=query, stream=stream, timeout=timeout)
        if response.status_code == 200:
            return response
        try:
            said = str(response.json().get("message", ""))
        except (ValueError, AttributeError):
            said = ""
        response.close()
        said = said or response.reason
        raise LogError(f"container {self._name}: Docker answers {response.status_code}: {said}")

    def _connected_client(self) -> docker.APIClient:
        if self._client is None:
            where = self._base_url or os.environ.get("DOCKER_HOST") or "the usual socket"
            try:
                settings = (
                    {"base_url": self._base_url} if self._base_url else self._docker.utils.kwargs_from_env()
                )
                self._client = self._docker.APIClient(**settings, version="auto", timeout=int(PATIENCE))
            except (self._docker.errors.DockerException, requests.RequestException) as error:
                reason = f"container {self._name}: Docker does not answer at {where} ({error})"
                advice = "the socket must be there, and the exporter allowed to use it"
                raise LogError(f"{reason}; {advice}") from None
        return self._client

    def _forget_client(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            for adapter in client.adapters.values():
                if isinstance(adapter, requests.adapters.HTTPAdapter):
                    close_connections(adapter)
            client.close()


def _understood(position: dict[str, object] | None) -> _Position | None:
    try:
        return msgspec.convert(position, _Position)
    except msgspec.ValidationError:
        return None
