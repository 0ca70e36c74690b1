"""From one board to another, with the time and the data source kept."""

from __future__ import annotations

from vllm_length_exporter.mixin.rule import Dashboard

_KEPT = "${__url_time_range}&${datasource:queryparam}"


def to_server(value: str = "${__value.raw}") -> tuple[str, str]:
    return "Open this server", f"/d/{Dashboard.SERVER}?{_KEPT}&var-server={value}"


def to_server_of_series() -> tuple[str, str]:
    return to_server("${__field.labels.server}")
