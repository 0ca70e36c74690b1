"""Alerts on requests that are refused or answered short, for length."""

from __future__ import annotations

from collections.abc import Iterator

from vllm_length_exporter.collectors.limits import MAX_MODEL_LEN
from vllm_length_exporter.collectors.metric import Metric
from vllm_length_exporter.collectors.rejections import CLIENT_ERRORS, OBSERVABLE, REJECTIONS
from vllm_length_exporter.collectors.requests import TRUNCATIONS
from vllm_length_exporter.collectors.workload import CLAMPED, TRUNCATIONS_BY_CAUSE
from vllm_length_exporter.derive.values import Severity, State

from .query import Query
from .records import finished_rate, rejections_rate, rejections_ratio, requests_rate
from .rule import Alert, Dashboard
from .thresholds import Burn, ShareOfRequests, seconds

SERVER = "{{ $labels.server }}"
SHARE = "{{ $value | humanizePercentage }}"


def alerts(query: Query) -> Iterator[Alert]:
    thresholds = query.thresholds
    yield _spike(query, Severity.CRITICAL, thresholds.rejections_spike.critical, "2m")
    yield _spike(query, Severity.WARNING, thresholds.rejections_spike.warning, "15m")
    yield _new_cause(query)
    yield _client_errors(query)
    yield _clamping(query)
    yield _truncation(
        query,
        Severity.WARNING,
        thresholds.truncation_high.warning,
        query(TRUNCATIONS_BY_CAUSE, 'cause="context_full"'),
        "model_name, cause",
        "Answers are cut because prompt and answer fill the whole limit.",
        "ran into the limit",
        "Shorten the prompts or raise --max-model-len.",
    )
    yield _truncation(
        query,
        Severity.INFO,
        thresholds.truncation_high.info,
        query(TRUNCATIONS),
        "model_name, engine",
        "Most answers are cut for length.",
        "finished for length, by vLLM's own count: for the limit or for the client's own max_tokens",
        "Let clients compute max_tokens from what the limit leaves; the middleware tells which of the two it was.",
    )
    yield _unobservable(query)


def _spike(query: Query, severity: Severity, burns: tuple[Burn, ...], hold: str) -> Alert:
    limit = query.thresholds.rejections_spike

    def windows(burn: Burn) -> str:
        bound, whole = burn.burn_rate * (1 - limit.objective), seconds(burn.long)
        return (
            f"(\n"
            f"  {rejections_ratio(burn.short)} > {bound:.4g}\n"
            f"  and\n"
            f"  {rejections_ratio(burn.long)} > {bound:.4g}\n"
            f"  and  # so much traffic that a share says something\n"
            f"  {requests_rate(burn.long)} * {whole} >= {limit.min_requests}\n"
            f"  and\n"
            f"  {rejections_rate(burn.long)} * {whole} >= {limit.min_rejections}\n"
            f")"
        )

    longest = max((burn.long for burn in burns), key=seconds)
    by_cause = f"sum by (cause) (increase({query(REJECTIONS, 'server=%q')}[{longest}])) > 0.5"
    return Alert(
        "RejectionsSpike",
        severity,
        "\nor\n".join(windows(burn) for burn in burns),
        "Requests are refused for their length.",
        f"{SERVER}: {SHARE} of the requests are refused; the objective leaves "
        f"{(1 - limit.objective) * 100:.3g} %. The limit is {query.shown(MAX_MODEL_LEN)} tokens. "
        f"Causes in the last {longest}:{{{{ range {query.by_cause(by_cause)} }}}} "
        f'{{{{ .Labels.cause }}}} {{{{ .Value | printf "%.0f" }}}}{{{{ else }}}} unknown{{{{ end }}}}.',
        "Find the client: its prompt, or prompt plus max_tokens, is above the limit (`vllm-length-exporter explain`).",
        hold,
        dashboard=Dashboard.WORKLOAD,
        findings=("length_rejections",),
    )


def _new_cause(query: Query) -> Alert:
    limit = query.thresholds.rejections_new_cause

    def grown(window: str, offset: str = "") -> str:
        return f"sum without (model_name, evidence) (increase({query(REJECTIONS)}[{window}]{offset}))"

    return Alert(
        "RejectionsNewCause",
        Severity.WARNING,
        f"{grown(limit.window)} >= {limit.rejections}\n"
        f"unless\n"
        f"{grown(limit.look_back, f' offset {limit.window}')} > 0\n"
        f"and  # in the first hours of the exporter every cause is new\n"
        f"sum without (model_name, evidence) (last_over_time({query(REJECTIONS)}[1h] offset {limit.learned})) >= 0",
        "Requests are refused for a cause that was not seen before.",
        f'{SERVER}: {{{{ $value | printf "%.0f" }}}} requests refused in the last {limit.window} for '
        f"{{{{ $labels.cause }}}}, none in the {limit.look_back} before. "
        f"The limit is {query.shown(MAX_MODEL_LEN)} tokens.",
        "Ask what was deployed: a client with longer prompts or another max_tokens, or this server with another limit.",
        keep="1h",
        dashboard=Dashboard.WORKLOAD,
        findings=("length_rejections",),
    )


def _client_errors(query: Query) -> Alert:
    limit = query.thresholds.client_errors_high
    errors = f"sum without (evidence) (rate({query(CLIENT_ERRORS)}[{limit.window}]))"
    finished, whole = finished_rate(limit.window), seconds(limit.window)
    return Alert(
        "ClientErrorsHigh",
        Severity.WARNING,
        f"{errors}\n/\n({errors} + {finished}) > {limit.share:g}\n"
        f"and\n({errors} + {finished}) * {whole} >= {limit.min_requests}",
        "Many requests end in a client error, and refusals for length may be among them.",
        f"{SERVER}: {SHARE} of the requests of the last {limit.window} ended in a client error. "
        f"How many of them are refused for length cannot be told here; "
        f"the limit is {query.shown(MAX_MODEL_LEN)} tokens.",
        "Look at the body of such an answer; add the middleware, which counts refusals exactly.",
        dashboard=Dashboard.WORKLOAD,
        findings=("length_rejections",),
    )


def _share(query: Query, part: str, without: str, limit: ShareOfRequests) -> str:
    finished = finished_rate(limit.window)
    return (
        f"sum without ({without}) (rate({part}[{limit.window}]))\n"
        f"/\n"
        f"({finished} > 0) > {limit.share:g}\n"
        f"and\n"
        f"{finished} * {seconds(limit.window)} >= {limit.min_requests}"
    )


def _clamping(query: Query) -> Alert:
    limit = query.thresholds.silent_clamping
    return Alert(
        "SilentClamping",
        Severity.WARNING,
        _share(query, query(CLAMPED), "model_name", limit),
        "Answers get less room than clients asked for, and nobody tells them.",
        f"{SERVER}: {SHARE} of the requests of the last {limit.window} got a smaller output budget than they "
        f"asked for, because prompt and max_tokens exceed the limit of {query.shown(MAX_MODEL_LEN)} tokens.",
        "Let clients compute max_tokens from what the limit leaves, or raise --max-model-len.",
        dashboard=Dashboard.WORKLOAD,
        findings=("silent_clamping",),
    )


def _truncation(
    query: Query,
    severity: Severity,
    limit: ShareOfRequests,
    part: str,
    without: str,
    summary: str,
    what: str,
    action: str,
) -> Alert:
    return Alert(
        "TruncationHigh",
        severity,
        _share(query, part, without, limit),
        summary,
        f"{SERVER}: {SHARE} of the requests of the last {limit.window} {what}; "
        f"the limit is {query.shown(MAX_MODEL_LEN)} tokens.",
        action,
        dashboard=Dashboard.WORKLOAD,
        findings=("truncation_high",),
    )


def _unobservable(query: Query) -> Alert:
    return Alert(
        "RejectionsUnobservable",
        Severity.INFO,
        f"{_level(query, OBSERVABLE)} == 0\nand ignoring (level, state)\n{query.state(State.UP)}",
        "Requests refused for length cannot be counted on this server.",
        f"{SERVER}: vLLM counts no refusals, and this version's log does not tell them. "
        f"Alerts on refusals are blind here.",
        "Add --middleware vllm_length_exporter.middleware.LengthAccounting to vLLM's command line.",
        query.thresholds.rejections_unobservable.hold,
        dashboard=Dashboard.EXPORTER,
        findings=("rejections_unobservable",),
    )


def _level(query: Query, metric: Metric) -> str:
    return query.recent(metric, 'level="exact"')
