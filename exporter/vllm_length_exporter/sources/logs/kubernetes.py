"""The log of a container in a pod, by the Kubernetes API, over the container's restarts.

No client library: the official one takes 126 MB of disk, 38 MB of memory and 1.6 s of start to offer the two
GETs that are needed here, and the light ones cannot ask for a previous container's log.

The service account must be allowed to `get` `pods` and `pods/log`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Generator
from contextlib import closing
from pathlib import Path
from urllib.parse import quote, urlencode

import msgspec

from vllm_length_exporter.sources.endpoint import Endpoint
from vllm_length_exporter.sources.failure import FetchError, FetchFailure
from vllm_length_exporter.sources.http import HttpSource
from vllm_length_exporter.sources.logs.assembly import Assembler
from vllm_length_exporter.sources.logs.feed import Feed
from vllm_length_exporter.sources.logs.lines import Batch, Line, LogError
from vllm_length_exporter.sources.logs.pod import Container, Pod, Status, Terminated
from vllm_length_exporter.sources.logs.stamped import OtherLogError, Place, Reading, Stamps, digest

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
IDLE = 60.0  # seconds without a line, after which the connection is made anew: it may be dead
STATUS_INTERVAL = 2.0  # seconds between two looks at a container that has ended
STRANGE_INTERVAL = 1.0  # seconds between two tries where the log is another container's
PATIENCE = 15.0  # seconds for the API to show the container whose log the kubelet gives
HINTS = {
    403: "the service account must be allowed to get pods and pods/log in this namespace",
    404: "there is no such pod",
}


class _Position(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`ended` says that the end of this container was told."""

    container: str
    origin: int
    place: Place | None
    ended: bool


class KubernetesLog(Feed):
    """Follows a container of a pod: by default of the pod that the exporter runs in, as a sidecar.

    The log of the container before is read first where it is still there, and how it ended is told. Nothing
    is read twice or left out over a lost connection, a restart of the container or one of the exporter; what
    the kubelet rotated away meanwhile its API no longer has.
    """

    def __init__(
        self,
        container: str | None = None,
        pod: str | None = None,
        namespace: str | None = None,
        position: dict[str, object] | None = None,
        *,
        api: Endpoint | None = None,
        idle: float = IDLE,
    ) -> None:
        """Raises LogError where the exporter is in no pod and nothing else was said."""
        super().__init__()
        self._http = HttpSource(api or _own_cluster())
        self._namespace = namespace or _own_namespace()
        self._pod = pod or os.environ.get("POD_NAME") or os.environ.get("HOSTNAME") or ""
        self._name = container
        self._idle = idle
        self._stamps = Stamps()
        self._strange_since: float | None = None
        self._ahead: Reading | None = None  # of the latest container, while the one before is read to its end
        kept = _understood(position)
        self._container = kept.container if kept else ""
        self._ended = kept.ended if kept else False
        self._origin = kept.origin if kept else time.time_ns()
        self._reading = Reading(self._origin, kept.place if kept else None)

    def cancel(self) -> None:
        """End the request in hand."""
        self._http.cancel()

    def close(self) -> None:
        """End the thread and the connection."""
        super().close()
        self._http.close()

    def follow(self) -> None:
        """Read what there is of the container before, then the present one until the connection ends."""
        container = self._status()
        latest, before = container.latest, container.before
        if latest is None:
            reason = container.state.waiting.reason if container.state.waiting else "no state"
            raise LogError(f"{self._where}: container {container.name} has not started ({reason})")
        latest_id = latest if isinstance(latest, str) else latest.container
        if self._container != latest_id:
            if self._ahead is None and self._is_of_the_latest(container.name):
                self._ahead, self._reading = self._reading, Reading(self._origin)
            if before is not None:
                self._begin(before.container)
                if not (self._ended or self._read_to_end(container.name, before, previous=True)):
                    return
            self._begin(latest_id)
            self._reading, self._ahead = self._ahead or self._reading, None
        if isinstance(latest, str):
            self._read(container.name, follow=True)
        elif self._ended:
            self.connected()
            self.stopping.wait(STATUS_INTERVAL)
        else:
            self._read_to_end(container.name, latest)

    # --- one container

    def _begin(self, container: str) -> None:
        if self._container == container:
            return
        if self._container:
            self.hand_on(Batch((), restarted=True))
        self._container, self._ended = container, False
        self._reading = Reading(self._origin)

    def _is_of_the_latest(self, name: str) -> bool:
        """Whether the log that was read is the latest container's already.

        The kubelet knows of a new container before the API does, and gives its log.
        """
        if self._reading.beginning is None:
            return False
        query = {"container": name, "timestamps": "true", "limitBytes": "100000"}
        assembler = Assembler()
        with closing(self._stream(query)) as stream:
            for text in (text for data in stream for text in assembler.feed(data)):
                stamped = self._stamps.split(text)
                return stamped is not None and digest(*stamped) == self._reading.beginning
        return False

    def _read_to_end(self, name: str, terminated: Terminated, *, previous: bool = False) -> bool:
        """The rest of a container that has ended, and how it did; False where the connection broke before."""
        if not self._read(name, previous=previous):
            return False
        self._ended = True
        self.hand_on(Batch((), self._position(), ended=terminated.ending))
        return True

    def _read(self, name: str, *, follow: bool = False, previous: bool = False) -> bool:
        """The lines that are new, until the log's end (True) or that of the connection."""
        strict = time.monotonic() - (self._strange_since or time.monotonic()) < PATIENCE
        since = self._reading.reconnected(strict=strict)
        query = {"container": name, "timestamps": "true"}
        if follow:
            query["follow"] = "true"
        if previous:
            query["previous"] = "true"
        if since is not None:
            query["sinceTime"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(since))
        assembler = Assembler()
        try:
            with closing(self._stream(query)) as stream:
                for data in stream:
                    self.connected()
                    self._hand_on(assembler.feed(data))
        except OtherLogError:  # of a container that the API does not show yet
            self._strange_since = self._strange_since or time.monotonic()
            self.stopping.wait(STRANGE_INTERVAL)
            return False
        except FetchError as error:
            # A follower that heard nothing, and a connection that broke, are made anew without a word.
            if error.kind in (FetchFailure.TIMEOUT, FetchFailure.CUT):
                return False
            raise self._said(error) from None
        self._strange_since = None
        if not follow:
            self._hand_on(assembler.finish(sure=False))
        return True

    def _stream(self, query: dict[str, str]) -> Generator[bytes, None, None]:
        yield from self._http.stream(f"{self._path}/log?{urlencode(query)}", "*/*", self._idle)

    def _hand_on(self, texts: list[str]) -> None:
        lines = []
        for text in texts:
            stamped = self._stamps.split(text)
            if stamped is None:  # the kubelet's own word on why it cannot read on
                continue
            counted = self._reading.take(*stamped)
            if counted is not None:
                lines.append(Line(stamped[1], counted))
        if lines:
            self.hand_on(Batch(tuple(lines), self._position()))

    def _position(self) -> dict[str, object]:
        kept = _Position(self._container, self._origin, self._reading.place, self._ended)
        found: dict[str, object] = msgspec.to_builtins(kept)
        return found

    # --- the API

    @property
    def _where(self) -> str:
        return f"pod {self._namespace}/{self._pod}"

    @property
    def _path(self) -> str:
        return f"/api/v1/namespaces/{quote(self._namespace)}/pods/{quote(self._pod)}"

    def _status(self) -> Container:
        try:
            body = self._http.get(self._path, "application/json").body
        except FetchError as error:
            raise self._said(error) from None
        try:
            status = msgspec.json.decode(body, type=Pod).status
        except msgspec.DecodeError as error:
            raise LogError(f"{self._where}: the API's answer is no pod ({error})") from None
        return self._chosen(status)

    def _chosen(self, status: Status) -> Container:
        found = [*status.containers, *status.initial]
        if self._name is None and len(status.containers) == 1:
            return status.containers[0]
        for container in found:
            if container.name == self._name:
                return container
        names = ", ".join(sorted(container.name for container in found)) or "none yet"
        wanted = "name the container" if self._name is None else f"there is no container {self._name!r}"
        raise LogError(f"{self._where}: {wanted}; its containers: {names}")

    def _said(self, error: FetchError) -> LogError:
        hint = f"; {HINTS[error.status]}" if error.status in HINTS else ""
        return LogError(f"{self._where}: {error}{hint}")


def _own_cluster() -> Endpoint:
    host = os.environ.get("KUBERNETES_SERVICE_HOST", "")
    port = os.environ.get("KUBERNETES_SERVICE_PORT_HTTPS") or os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        raise LogError("log of a pod: the exporter runs in no pod (KUBERNETES_SERVICE_HOST is not set)")
    if ":" in host:
        host = f"[{host}]"
    return Endpoint(f"https://{host}:{port}", token_file=ACCOUNT / "token", ca_file=ACCOUNT / "ca.crt")


def _own_namespace() -> str:
    namespace = os.environ.get("POD_NAMESPACE", "")
    if namespace:
        return namespace
    try:
        return (ACCOUNT / "namespace").read_text(encoding="utf-8").strip()
    except OSError:
        return "default"


def _understood(position: dict[str, object] | None) -> _Position | None:
    try:
        return msgspec.convert(position, _Position)
    except msgspec.ValidationError:
        return None
