"""Exact length accounting from inside vLLM.

`vllm serve ... --middleware vllm_length_exporter.middleware.LengthAccounting`

A plain ASGI class. It reads requests and answers as they pass and hands on the very same messages; what it counts
appears on vLLM's own /metrics, added up over several API servers. It needs Python 3.9, prometheus_client (vLLM has
it) and nothing else, and imports neither vLLM nor the rest of this package.

Series, all `vllm_length_middleware_*`:

    requests_total{model,endpoint,outcome}  POST requests to a path of `endpoints.ENDPOINTS`, each counted once, when
                                       its answer ends. outcome =
                                         served        answered, and its lengths are known
                                         unknown       answered, and its lengths are not (see unaccounted_total)
                                         refused       refused for its length (see refused_total)
                                         client_error  any other 4xx: not about length
                                         failed        5xx, an exception, or an error inside a stream
                                         disconnected  the client left before the answer ended
    refused_total{model,endpoint,cause}  cause = prompt_too_long, prompt_plus_output_too_long, output_too_long,
                                       no_room_for_output: proven by numbers; else other
    truncated_total{model,cause}       answers (n a request) that ended for length; cause = context_full, max_tokens,
                                       or unknown where the numbers do not tell
    clamped_total{model}               requests that were served although prompt + the max_tokens they sent exceeds
                                       the limit (0.32+; /v1/responses before): their output budget was cut silently
    unaccounted_total{reason}          what could not be read or decided, see `series.UNACCOUNTED`; beside the outcome
    prompt_tokens{model}               histogram, of requests that were answered and had one prompt
    requested_output_tokens{model}     histogram, of these, where the request sent a number itself
    total_tokens{model}                histogram, of these, prompt + completion, where there is one answer
    asked_tokens{model}                histogram, of these, prompt + requested output (16 for /v1/completions without
                                       one); prompt + completion where the request named none
    refused_asked_tokens{model}        histogram, prompt + requested output of refused requests whose prompt was
                                       counted; fewer than refused_total: "at least" is a bound and no size
    limit_tokens{source}               gauge, the limit it compares with; source = app_state, error_text;
                                       absent while unknown
    info{version}                      gauge, 1
    errors_total                       errors of the middleware itself; clients never see one

`model` is a name that this server serves (LoRA adapters included), else "other"; "" where the request's name or the
served names are unknown. `endpoint` is the path, as in vLLM's own `handler` label.
"""

from .accounting import LengthAccounting

__all__ = ["LengthAccounting"]
