"""The one file that a user edits: thresholds, selectors, links and who is told."""

from __future__ import annotations

import re
from typing import Annotated, Literal, get_args

from msgspec import Meta, Struct, field

# Prometheus' durations: units from the largest to the smallest, each at most once.
_DURATION = r"(?:\d+w)?(?:\d+d)?(?:\d+h)?(?:\d+m)?(?:\d+s)?"
_UNITS = {"w": 604800, "d": 86400, "h": 3600, "m": 60, "s": 1}
Hold = Annotated[str, Meta(pattern=f"^(?=.){_DURATION}$")]
Window = Annotated[str, Meta(pattern=f"^(?=.*[1-9]){_DURATION}$")]
Share = Annotated[float, Meta(ge=0, lt=1)]
Part = Annotated[float, Meta(gt=0, le=1)]
Rate = Annotated[float, Meta(ge=0, le=1e6)]
Count = Annotated[int, Meta(ge=1)]
Integration = Literal["webhook", "pagerduty", "slack", "email"]
INTEGRATIONS: tuple[Integration, ...] = get_args(Integration)
# What a name may not hold is special within a query or a template.
ServerName = Annotated[str, Meta(pattern=r'^[^"\\`%\n]+$')]
LabelName = Annotated[str, Meta(pattern="^[a-zA-Z_][a-zA-Z0-9_]*$")]


_MATCHER = r'\s*[a-zA-Z_][a-zA-Z0-9_]*\s*(?:=~|!~|!=|=)\s*(?:"(?:[^"\\`%]|\\[^`%])*"|\'[^\'`\\%]*\')\s*'
_MATCHERS = re.compile(f"{_MATCHER}(?:,{_MATCHER})*,?")
# Shares that the exporter publishes `vllm_length_request_tokens_at_most` for.
SHARES = (0.5, 0.9, 0.95, 0.99, 1.0)


def seconds(duration: str) -> int:
    """A Prometheus duration in seconds."""
    return sum(int(number) * _UNITS[unit] for number, unit in re.findall(r"(\d+)([wdhms])", duration))


class _Section(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    pass


class Links(_Section, frozen=True):
    runbooks: Annotated[str, Meta(pattern="^https?://")]
    grafana: Annotated[str, Meta(pattern="^https?://")]


class Notify(_Section, frozen=True):
    critical: tuple[Integration, ...]
    warning: tuple[Integration, ...]
    info: tuple[Integration, ...]


class Email(_Section, frozen=True):
    to: str
    sender: str = field(name="from")
    smarthost: Annotated[str, Meta(pattern=r":\d+$")]
    username: str


class Slack(_Section, frozen=True):
    channel: str


class Saturation(_Section, frozen=True):
    usage: Part
    queue: Share
    preemptions_per_second: Rate
    hold: Hold = field(name="for")


class SaturationPair(_Section, frozen=True):
    critical: Saturation
    warning: Saturation

    def __post_init__(self) -> None:
        if self.critical.usage < self.warning.usage:
            raise ValueError("critical.usage must not be below warning.usage")


class Preemptions(_Section, frozen=True):
    per_finished: Rate
    per_second: Rate
    window: Window
    hold: Hold = field(name="for")


class PreemptionPair(_Section, frozen=True):
    critical: Preemptions
    warning: Preemptions

    def __post_init__(self) -> None:
        if self.critical.per_finished < self.warning.per_finished:
            raise ValueError("critical.per_finished must not be below warning.per_finished")


class Filling(_Section, frozen=True):
    usage: Part
    window: Window
    horizon: Window
    hold: Hold = field(name="for")


class For(_Section, frozen=True):
    hold: Hold = field(name="for")


class Binding(_Section, frozen=True):
    share: Share
    window: Window
    hold: Hold = field(name="for")


class LimitChanged(_Section, frozen=True):
    told_for: Window
    look_back: Window


class FarAbove(_Section, frozen=True):
    factor: Annotated[float, Meta(gt=1)]
    share: float
    window: Window
    hold: Hold = field(name="for")

    def __post_init__(self) -> None:
        if self.share not in SHARES:
            raise ValueError(
                f"share {self.share:g} is not published; these are: {', '.join(f'{s:g}' for s in SHARES)}"
            )


class Below(_Section, frozen=True):
    share: Share
    window: Window
    min_requests: Count
    hold: Hold = field(name="for")


class Burn(_Section, frozen=True):
    burn_rate: Annotated[float, Meta(gt=0)]
    long: Window
    short: Window

    def __post_init__(self) -> None:
        if seconds(self.short) >= seconds(self.long):
            raise ValueError(f"short ({self.short}) must be shorter than long ({self.long})")


class RejectionsSpike(_Section, frozen=True):
    objective: Annotated[float, Meta(gt=0, lt=1)]
    min_requests: Count
    min_rejections: Count
    critical: Annotated[tuple[Burn, ...], Meta(min_length=1)]
    warning: Annotated[tuple[Burn, ...], Meta(min_length=1)]

    def __post_init__(self) -> None:
        for burn in (*self.critical, *self.warning):
            if burn.burn_rate * (1 - self.objective) >= 1:
                share = f"burn_rate {burn.burn_rate:g} of objective {self.objective:g}"
                raise ValueError(f"{share} is a share of 1 or more: it never fires")


class NewCause(_Section, frozen=True):
    rejections: Count
    window: Window
    look_back: Window
    learned: Window


class ShareOfRequests(_Section, frozen=True):
    share: Share
    window: Window
    min_requests: Count


class Truncation(_Section, frozen=True):
    warning: ShareOfRequests
    info: ShareOfRequests


class StartupFailed(_Section, frozen=True):
    hold: Hold = field(name="for")
    remembered: Window


class CrashLoop(_Section, frozen=True):
    starts: Annotated[int, Meta(ge=2)]
    window: Window


class Disagreement(_Section, frozen=True):
    gap: Share
    hold: Hold = field(name="for")


class LogSilent(_Section, frozen=True):
    window: Window
    finished: Count


class JobFailing(_Section, frozen=True):
    window: Window


class Thresholds(_Section, frozen=True):
    selector: str
    ignored_servers: tuple[ServerName, ...]
    disabled_alerts: tuple[str, ...]
    exporter_selector: str
    labels: dict[LabelName, str]
    links: Links
    notify: Notify
    email: Email
    slack: Slack
    missed_scrapes: Window
    keep_firing_for: Hold
    kv_cache_saturated: SaturationPair
    preemption_storm: PreemptionPair
    kv_cache_filling: Filling
    admission_stall: For
    max_num_seqs_binding: Binding
    limit_changed: LimitChanged
    limit_far_above_workload: FarAbove
    limit_below_workload: Below
    rejections_spike: RejectionsSpike
    rejections_new_cause: NewCause
    client_errors_high: ShareOfRequests
    silent_clamping: ShareOfRequests
    truncation_high: Truncation
    rejections_unobservable: For
    startup_failed: StartupFailed
    crash_loop: CrashLoop
    server_down: For
    server_starting: For
    server_unresponsive: For
    gauges_frozen: For
    sources_disagree: Disagreement
    log_stats_disabled: For
    misconfigured: For
    exporter_down: For
    exporter_absent: For
    source_down: For
    log_lost: For
    log_silent: LogSilent
    config_reload_failed: For
    exporter_job_failing: JobFailing

    def __post_init__(self) -> None:
        for key in ("selector", "exporter_selector"):
            text = getattr(self, key)
            if text and not _MATCHERS.fullmatch(text):
                raise ValueError(
                    f'{key}: expected matchers such as cluster="prod", server=~"llm-.*", got {text!r}'
                )
