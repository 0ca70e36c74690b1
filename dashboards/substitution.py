"""A board's variables put into a query, as Grafana does before it asks Prometheus."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

_VARIABLE = re.compile(r"\$([A-Za-z_]\w*)|\$\{(\w+)\}")  # not $1 of label_replace


@dataclass(frozen=True, slots=True)
class Substitution:
    """`chosen` are the values of the board's variables; one that is not named is "All". Times are in seconds."""

    chosen: Mapping[str, str] = field(default_factory=dict)
    rate_interval: int = 60
    span: int = 3600

    def __call__(self, expr: str) -> str:
        """The query as Prometheus gets it.

        Raises:
            KeyError: the query has a variable that boards do not have.
        """
        return _VARIABLE.sub(self._value, expr)

    def _value(self, found: re.Match[str]) -> str:
        name = found[1] or found[2]
        built_in = {"__rate_interval": f"{self.rate_interval}s", "__range": f"{self.span}s"}
        if name in built_in:
            return built_in[name]
        if name not in ("server", "model_name", "engine"):
            raise KeyError(name)
        value = self.chosen.get(name)
        return ".*" if value is None else re.escape(value).replace("\\", "\\\\")
