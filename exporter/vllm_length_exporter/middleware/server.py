"""What is known about the server: its limit and the names it serves, without importing or asking vLLM."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping, MutableMapping
from typing import Any

from . import series
from .answer import count
from .endpoints import ENDPOINTS, GENERATING
from .request import Request

_CONFIGS = (  # where the application's state holds the model's configuration, 0.6 to 0.33
    ("openai_serving_models", "model_config"),
    ("vllm_config", "model_config"),
    ("engine_client", "model_config"),
    ("engine_client", "vllm_config", "model_config"),
)
_AUTO = -1  # model_config.original_max_model_len under --max-model-len auto
_AUTO_TOLD_SINCE = (0, 20)  # before, the API server does not learn what the engine fitted
_NAMES_AT_MOST = 50


class Server:
    """The limit and the served names, read from the application's state; the limit else from a refusal's text."""

    def __init__(self) -> None:
        self.limit: int | None = None
        self._names: tuple[str, ...] = ()
        self._adapters: object = None
        self._adapters_seen: set[str] = set()
        self.asked = False  # the application's state, for what it knows

    def learn(self, scope: MutableMapping[str, Any]) -> None:
        """Read the application's state, once it is there. Every step may be missing."""
        app = scope.get("app")
        state = getattr(app, "state", None)
        models, arguments = getattr(state, "openai_serving_models", None), getattr(state, "args", None)
        if models is None and arguments is None:
            return
        self.asked = True
        for path in _CONFIGS:
            if self.limit is None:
                self._limit_from(_at(state, path))
        self._names = _names(models, arguments)
        self._adapters = getattr(models, "lora_requests", None)
        self._show_zeros(getattr(app, "routes", None))

    def learn_limit(self, limit: int | None) -> None:
        """A refusal named this limit."""
        if self.limit is None and limit is not None:
            self.limit = limit
            series.LIMIT.labels("error_text").set(limit)

    def model(self, request: Request) -> str:
        """The label for a request: a name that is served, "other", or "" where its name or these are unknown."""
        if not self._names or not request.read:
            return ""
        requested = request.model
        if not requested:
            return self._names[0]
        if requested in self._names:
            return requested
        adapters, seen = self._adapters, self._adapters_seen
        if isinstance(adapters, Mapping) and requested in adapters and len(seen) < _NAMES_AT_MOST:
            seen.add(requested)
        return requested if requested in seen else "other"

    def _limit_from(self, config: object) -> None:
        limit = count(getattr(config, "max_model_len", None))
        auto = getattr(config, "original_max_model_len", None) == _AUTO
        if limit and (not auto or _auto_told()):
            self.limit = limit
            series.LIMIT.labels("app_state").set(limit)

    def _show_zeros(self, routes: object) -> None:
        """Series that alerts look at are there from the start: only from a zero on does a rate see the first one."""
        paths = {getattr(route, "path", None) for route in routes} if isinstance(routes, Iterable) else set()
        shown = [path for path, style in ENDPOINTS.items() if path in paths and not style.opaque]
        for model in (self._names or ("",))[:_NAMES_AT_MOST]:
            series.of(model)
            for endpoint in shown or GENERATING:
                for cause in series.CAUSES:
                    series.REFUSED.labels(model, endpoint, cause)


def _at(state: object, path: tuple[str, ...]) -> object:
    for name in path:
        state = getattr(state, name, None)
    return state


def _names(models: object, arguments: object) -> tuple[str, ...]:
    """The names of the base model, the first one first."""
    paths = getattr(models, "base_model_paths", None)
    names: object = (
        [getattr(path, "name", None) for path in paths] if isinstance(paths, (list, tuple)) else None
    )
    if not names:
        names = getattr(arguments, "served_model_name", None) or getattr(arguments, "model", None)
    if isinstance(names, str):
        names = [names]
    if not isinstance(names, (list, tuple)):
        return ()
    return tuple(name for name in names if isinstance(name, str))


def _auto_told() -> bool:
    """Whether this vLLM tells its API servers what the engine fitted. The module that runs us is looked at only."""
    version = getattr(sys.modules.get("vllm"), "__version__", None)
    match = re.match(r"(\d+)\.(\d+)", version) if isinstance(version, str) else None
    return match is not None and (int(match.group(1)), int(match.group(2))) >= _AUTO_TOLD_SINCE
