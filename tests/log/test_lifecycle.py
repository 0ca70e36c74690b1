"""Starts, failures and ends as a log tells them: the root cause, once, and nothing of another life."""

from __future__ import annotations

import traceback as python_traceback

import pytest

from vllm_length_exporter.vllm.events import Event, EventName
from vllm_length_exporter.vllm.lines import LogParser, events

STAMP = "11-29 14:35:05"
TOO_SMALL = (
    "To serve at least one request with the model's max seq len (262144), (18.35 GiB KV cache is needed, "
    "which is larger than the available KV cache memory (8.72 GiB). Based on the available memory, the "
    "estimated maximum model length is 121840. Try increasing `gpu_memory_utilization`"
)
ECHO = "Engine core initialization failed. See root cause above. Failed core proc(s): {'EngineCore': 1}"
TOO_LONG = "Input length (9000) exceeds model's maximum context length (8192)."


def said(process: str, text: str, level: str = "INFO", file: str = "core.py:12") -> str:
    prefix = f"({process}) " if process else ""
    return f"{prefix}{level} {STAMP} [{file}] {text}"


def opened(pid: int = 1, **arguments: object) -> list[str]:
    return [
        said(
            f"APIServer pid={pid}",
            f"non-default args: {{'model': 'm', **{arguments}}}".replace("**{", "").replace("}}", "}"),
        ),
        said(f"APIServer pid={pid}", "Using max model len 8192", file="model.py:1"),
    ]


def frames(in_vllm: bool = True) -> list[str]:
    path = "/opt/lib/python3.12/site-packages/" + (
        "vllm/v1/engine/core.py" if in_vllm else "langchain/llm.py"
    )
    return ["Traceback (most recent call last):", f'  File "{path}", line 1, in run', "    raise Error("]


def logged(process: str, first: str, *lines: str, file: str = "core.py:99") -> list[str]:
    return [said(process, text, "ERROR", file) for text in (first, *lines)]


def printed(process: str, *lines: str) -> list[str]:
    prefix = f"({process}) " if process else ""
    return [prefix + line for line in lines]


def failed(pid: int = 2, error: str = f"ValueError: {TOO_SMALL}") -> list[str]:
    """As vLLM fails: logged by the engine, printed by its process, and echoed by the server."""
    engine = f"EngineCore pid={pid}"
    return [
        *logged(engine, "EngineCore failed to start.", *frames(), error),
        *printed(engine, "Process EngineCore:", *frames(), error),
        *printed("APIServer pid=1", *frames(), f"RuntimeError: {ECHO}"),
    ]


def up(process: str = "APIServer pid=1") -> list[str]:
    return printed(process, "INFO:     Application startup complete.")


def names(found: list[Event]) -> list[EventName]:
    return [event.name for event in found]


def of(found: list[Event], name: EventName) -> list[Event]:
    return [event for event in found if event.name is name]


def test_three_tracebacks_are_one_failure() -> None:
    (event,) = of(events([*opened(), *failed()]), EventName.START_FAILED)
    assert event.text("cause") == "kv_cache_too_small"
    assert event.integer("estimated_limit") == 121_840
    assert event.process.name == "EngineCore"


def test_crash_loop_is_a_failure_a_start() -> None:
    lines = [line for pid in (1, 11, 21) for line in (*opened(pid), *failed(pid + 1))]
    assert len(of(events(lines), EventName.START_FAILED)) == 3


def test_crash_loop_of_processes_without_names() -> None:
    start = [
        said("", "non-default args: {'model': 'm'}"),
        said("", "Using max model len 8192", file="m.py:1"),
    ]
    end = logged("", "EngineCore failed to start.", *frames(), f"ValueError: {TOO_SMALL}")
    assert len(of(events([*start, *end, *start, *end]), EventName.START_FAILED)) == 2


def test_root_cause_is_the_first_and_not_its_echo() -> None:
    (event,) = of(
        events([*opened(), *failed(error="TypeError: 'x' is not subscriptable")]), EventName.START_FAILED
    )
    assert (event.text("cause"), event.text("exception")) == ("other", "TypeError")


def test_echo_alone_is_a_failure_of_unknown_cause() -> None:
    lines = [*opened(), *printed("APIServer pid=1", *frames(), f"RuntimeError: {ECHO}")]
    (event,) = of(events(lines), EventName.START_FAILED)
    assert event.text("cause") == "other"


def test_root_cause_that_comes_after_another_workers_error() -> None:
    worker = [
        *logged("Worker_TP1 pid=5", "WorkerProc failed to start.", *frames(), "RuntimeError: Connection "
        "closed by peer"),
        *logged("Worker_TP0 pid=4", "WorkerProc failed to start.", *frames(), "torch.OutOfMemoryError: "
        "CUDA out of memory. "
                "Tried to allocate 2.00 GiB."),
    ]  # fmt: skip
    (event,) = of(
        events([*opened(), *worker, *failed(error="Exception: WorkerProc initialization failed")]), _FAILED
    )
    assert event.text("cause") == "out_of_memory"
    assert event.process.name == "Worker_TP0"


_FAILED = EventName.START_FAILED


def test_tracebacks_of_two_workers_line_by_line_in_turn() -> None:
    one = logged("Worker_TP0 pid=4", "WorkerProc failed to start.", *frames(), f"ValueError: {TOO_SMALL}")
    other = logged(
        "Worker_TP1 pid=5", "WorkerProc failed to start.", *frames(), "RuntimeError: Connection reset"
    )
    mixed = [line for pair in zip(one, other, strict=True) for line in pair]
    (event,) = of(events([*opened(), *mixed]), EventName.START_FAILED)
    assert event.text("cause") == "kv_cache_too_small"


def test_printed_tracebacks_of_two_processes_in_turn() -> None:
    one = printed("EngineCore_DP0 pid=4", *frames(), f"ValueError: {TOO_SMALL}")
    other = printed("EngineCore_DP1 pid=5", *frames(), "ValueError: something else")
    mixed = [line for pair in zip(other, one, strict=True) for line in pair]
    (event,) = of(events([*opened(), *mixed]), EventName.START_FAILED)
    assert event.text("cause") == "kv_cache_too_small"


def test_progress_bars_within_a_traceback() -> None:
    lines = printed(
        "EngineCore pid=2", *frames(), "Loading shards: 100%|####| 4/4", f"ValueError: {TOO_SMALL}"
    )
    assert len(of(events([*opened(), *lines]), EventName.START_FAILED)) == 1


def test_unnamed_cause_waits_for_a_pause_unless_the_server_ended() -> None:
    parser = LogParser()
    parser.feed_many(
        [*opened(), *logged("EngineCore pid=2", "EngineCore failed to start.", *frames(), "KeyError: 'x'")]
    )
    assert _FAILED not in names(parser.idle())  # the root cause may still come
    assert names(parser.idle()) == [_FAILED]
    assert parser.idle() == []
    parser = LogParser()
    parser.feed_many([*opened(), *failed(error="KeyError: 'x'")])
    assert _FAILED in names(parser.idle())


def test_failure_before_the_next_start_is_told_before_it() -> None:
    lines = [*opened(1), *failed(error="KeyError: 'x'"), *opened(11)]
    found = names(events(lines))
    assert found.index(_FAILED) < len(found) - 1 - found[::-1].index(EventName.ARGUMENTS)


@pytest.mark.parametrize("wrapped", [True, False])
def test_configuration_that_pydantic_refuses(wrapped: bool) -> None:
    text = "  Value error, max_num_batched_tokens (4096) is smaller than max_model_len (8192). This effectively limits"
    head = "pydantic_core._pydantic_core.ValidationError: 1 validation error for "
    lines = [head + "VllmConfig", text] if wrapped else [head + "EngineArgs", "max_num_batched_tokens", text]
    (event,) = of(events([*opened(), *printed("APIServer pid=1", *frames(), *lines)]), _FAILED)
    assert event.text("cause") == "batched_tokens_below_limit"
    assert event.integer("limit") == 8192


def test_configuration_that_no_row_names() -> None:
    lines = [
        "pydantic_core._pydantic_core.ValidationError: 2 validation errors for ModelConfig",
        "  Value error, `foo` is not a quantization method [type=value_error]",
    ]
    (event,) = of(events([*opened(), *printed("APIServer pid=1", *frames(), *lines)]), _FAILED)
    assert event.text("cause") == "configuration"


def test_option_that_argparse_refuses() -> None:
    lines = [
        "usage: vllm serve [model_tag] [options]",
        "vllm serve: error: unrecognized arguments: --max-modellen 5",
    ]
    (event,) = events(lines)
    assert (event.name, event.text("cause")) == (_FAILED, "configuration")


def test_a_library_that_uses_vllm_may_fail_by_itself() -> None:
    lines = [*opened(), *printed("", *frames(in_vllm=False), "TypeError: 'LLMRunner' object is not callable")]
    assert of(events(lines), _FAILED) == []


def test_healthy_capacity_lines_are_no_success() -> None:
    lines = [
        *opened(),
        said("EngineCore pid=2", "GPU KV cache size: 6,144 tokens", file="kv.py:1"),
        *failed(error="torch.AcceleratorError: CUDA error: out of memory"),
    ]
    found = events(lines)
    assert EventName.STARTED not in names(found)
    assert [event.text("cause") for event in of(found, _FAILED)] == ["out_of_memory"]


def test_tracebacks_while_serving_are_no_failed_start() -> None:
    lines = [*opened(), *up(), *printed("EngineCore pid=2", *frames(), f"ValueError: {TOO_SMALL}")]
    assert _FAILED not in names(events(lines))


def test_two_starts_in_one_file() -> None:
    lines = [*opened(1), *up(), *opened(11), *failed(12)]
    found = names(events(lines))
    assert found.count(EventName.STARTED) == found.count(_FAILED) == 1
    lines = [
        *opened(1),
        *failed(),
        *opened(11),
        said("EngineCore pid=12", "GPU KV cache size: 6,144 tokens"),
        *up(),
    ]
    assert EventName.KV_CAPACITY in names(events(lines))


def test_engine_that_dies_is_told_once() -> None:
    lines = [
        *opened(),
        *up(),
        *logged("EngineCore pid=2", "EngineCore encountered a fatal error.", *frames(), "RuntimeError: CUDA error"),
        *logged("APIServer pid=1", "AsyncLLM output_handler failed.", *frames(), "vllm.v1.engine.exceptions."
                "EngineDeadError: EngineCore encountered an issue. See stack trace (above) for the root cause."),
        *printed("APIServer pid=1", "INFO:     Shutting down", "INFO:     Finished server process [1]"),
    ]  # fmt: skip
    found = names(events(lines))
    assert found.count(EventName.ENGINE_DIED) == 1
    assert found.count(EventName.SHUTDOWN) == 1
    assert found.index(EventName.ENGINE_DIED) < found.index(EventName.SHUTDOWN)


def test_shutdown_during_a_start_is_no_failure() -> None:
    lines = [
        *opened(),
        said("EngineCore pid=2", "[shutdown] EngineCore: trigger received signal=SIGTERM"),
        *failed(error="SystemExit"),
    ]
    found = names(events(lines))
    assert EventName.SHUTDOWN in found
    assert _FAILED not in found


def test_draft_models_length() -> None:
    lines = [*opened(1), said("APIServer pid=1", "Using max model len 1048576", file="model.py:1")]
    lines += [said("EngineCore pid=2", "Using max model len 8192", file="model.py:1")]
    found = of(events(lines), EventName.MODEL_LENGTH)
    assert [(event.integer("max_model_len"), event.fields.get("draft", False)) for event in found] == [
        (8192, False),
        (1_048_576, True),
        (8192, False),
    ]


def test_speculative_decoding_is_named() -> None:
    arguments = "non-default args: {'model': 'm', 'speculative_config': {'method': 'mtp', 'num_speculative_tokens': 3}}"
    config = (
        "Initializing a V1 LLM engine (v0.25.1) with config: model='m', speculative_config=SpeculativeConfig("
    )
    config += (
        "method='mtp', model='d', num_spec_tokens=3), tokenizer='m', max_seq_len=8192, kv_cache_dtype=auto"
    )
    for text in (arguments, config):
        (event,) = events([said("APIServer pid=1", text)])
        assert event.fields["speculative"] is True


def test_memory_below_zero_and_rounded_to_nothing() -> None:
    def memory(text: str) -> object:
        (event,) = events([said("EngineCore pid=2", f"Available KV cache memory: {text} GiB")])
        return event.fields.get("available_bytes")

    assert memory("-24.42") == round(-24.42 * 2**30)
    assert memory("0.0") is None
    assert memory("7.0") == 7 * 2**30


def test_need_that_is_rounded_to_nothing_is_withheld() -> None:
    text = TOO_SMALL.replace("18.35", "0.0").replace("8.72", "0.0")
    (event,) = of(events([*opened(), *failed(error=f"ValueError: {text}")]), _FAILED)
    assert "needed_bytes" not in event.fields
    assert "available_bytes" not in event.fields
    assert event.integer("limit") == 262_144


def test_capacities_of_several_workers_keep_their_writer() -> None:
    lines = [
        said(
            f"VllmWorker rank={rank} pid={90 + rank}",
            f"GPU KV cache size: {tokens} tokens",
            file="kv_cache_utils.py:833",
        )
        for rank, tokens in enumerate(("3,650,960", "3,644,816"))
    ]
    lines += [
        said("", f"GPU KV cache size: {tokens} tokens", file="k.py:833")
        for tokens in ("3,650,960", "3,644,816")
    ]
    found = of(events(lines), EventName.KV_CAPACITY)
    assert [event.integer("capacity_tokens") for event in found] == [3_650_960, 3_644_816] * 2
    assert found[0].process != found[1].process


def asgi(*lines: str, process: str = "APIServer pid=1") -> list[str]:
    return printed(process, "ERROR:    Exception in ASGI application", *lines)


def refusal(text: str = TOO_LONG) -> str:
    return f"vllm.exceptions.VLLMValidationError: {text} (parameter=input_tokens, value=9000)"


def test_refusal_with_a_long_traceback_counts_once() -> None:
    long = [
        line
        for number in range(20)
        for line in (f'  File "/a/vllm/b{number}.py", line 1, in f', "    call()")
    ]
    lines = [*opened(), *up(), *asgi("Traceback (most recent call last):", *long, refusal())]
    lines += printed(
        "APIServer pid=1", "", "During handling of the above exception, another exception occurred:", ""
    )
    lines += printed("APIServer pid=1", *frames(), refusal())
    (event,) = of(events(lines), EventName.REFUSED)
    assert (event.integer("prompt_tokens"), event.integer("limit")) == (9000, 8192)


def test_refusals_within_one_second() -> None:
    one = logged("APIServer pid=1", "Error in preprocessing prompt inputs", *frames(), refusal())
    assert len(of(events([*opened(), *up(), *one, *one, *one]), EventName.REFUSED)) == 3
    assert len(of(events([*opened(), *up(), *asgi(*frames(), refusal()) * 3]), EventName.REFUSED)) == 3


def test_refusals_of_two_servers_in_turn() -> None:
    one = asgi(*frames(), refusal(), process="ApiServer_0 pid=4")
    other = asgi(*frames(), refusal(), process="ApiServer_1 pid=5")
    mixed = [line for pair in zip(one, other, strict=True) for line in pair]
    assert len(of(events([*opened(), *up(), *mixed]), EventName.REFUSED)) == 2


def test_access_lines_between_do_not_end_a_traceback() -> None:
    lines = asgi(*frames(), refusal())
    lines.insert(3, '(APIServer pid=1) INFO:     10.0.0.5:1 - "GET /health HTTP/1.1" 200 OK')
    lines.insert(4, said("APIServer pid=1", "Engine 000: Avg prompt throughput: 1.0 tokens/s, Avg "
    "generation throughput: "
                         "1.0 tokens/s, Running: 1 reqs, Waiting: 0 reqs, GPU KV cache usage: 1.0%, Prefix cache hit "
                         "rate: 0.0%"))  # fmt: skip
    assert len(of(events([*opened(), *up(), *lines]), EventName.REFUSED)) == 1


class VLLMValidationError(ValueError):
    """Stands for vLLM's, whose name the traceback shows."""


def refused() -> VLLMValidationError:
    with pytest.raises(VLLMValidationError) as caught:
        raise VLLMValidationError(TOO_LONG)
    return caught.value


@pytest.mark.parametrize("inner", [VLLMValidationError(TOO_LONG), refused()], ids=["bare", "with frames"])
def test_refusal_in_an_exception_group(inner: VLLMValidationError) -> None:
    with pytest.raises(ExceptionGroup) as caught:
        raise ExceptionGroup("unhandled errors in a TaskGroup", [inner])
    lines = "".join(python_traceback.format_exception(caught.value)).splitlines()
    assert any(line.startswith("  | ") for line in lines)
    assert len(of(events([*opened(), *up(), *asgi(*lines)]), EventName.REFUSED)) == 1


def test_refusal_told_at_debug_and_again_by_its_traceback() -> None:
    text = f"{TOO_LONG} (parameter=input_tokens, value=9000)"
    debug = said("APIServer pid=1", f"create_error_response called with VLLMValidationError: {text}", "DEBUG")
    found = events([*opened(), *up(), debug, *asgi(*frames(), refusal())])
    assert len(of(found, EventName.REFUSED)) == 1


def test_other_errors_of_requests_are_no_refusals() -> None:
    lines = logged(
        "APIServer pid=1", "Error in preprocessing prompt inputs", *frames(), "ValueError: Unknown role"
    )
    found = events([*opened(), *up(), *lines, *asgi(*frames(), "KeyError: 'x'")])
    assert EventName.REFUSED not in names(found)
    assert [event.message_id for event in of(found, EventName.OTHER)] == [
        "reject_log_preprocess",
        "uvicorn_asgi_exception",
    ]


def test_text_alone_as_0_6_0_logged_it() -> None:
    text = (
        "This model's maximum context length is 2048 tokens. However, you requested 5418 tokens (3918 in the "
        "messages, "
    )
    text += "1500 in the completion). Please reduce the length of the messages or completion."
    (event,) = events([f"ERROR 09-01 10:00:00 serving_chat.py:157] {text}"])
    assert (event.name, event.text("cause")) == (EventName.REFUSED, "prompt_too_long")


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ('10.0.0.5:1 - "POST /v1/chat/completions HTTP/1.1" 400 Bad Request', True),
        ('10.0.0.5:1 - "POST /v1/completions HTTP/1.1" 500 Internal Server Error', True),
        ('10.0.0.5:1 - "POST /v1/completions HTTP/1.1" 200 OK', False),
        ('10.0.0.5:1 - "GET /v1/models HTTP/1.1" 401 Unauthorized', False),
        ('10.0.0.5:1 - "POST /tokenize HTTP/1.1" 400 Bad Request', False),
        ('2001:db8::1:1 - "POST /v1/responses HTTP/1.1" 400 Bad Request', True),
    ],
)
def test_access_lines_that_may_be_refusals(line: str, told: bool) -> None:
    assert names(events([f"INFO:     {line}"])) == ([EventName.ACCESS] if told else [])


def test_version_where_the_log_has_no_logo() -> None:
    evil = "x, serving model vLLM server version 9.9.9"
    (event,) = events([said("APIServer pid=1", f"vLLM server version 0.32.0, serving model {evil}")])
    assert (event.name, event.text("version")) == (EventName.VERSION, "0.32.0")


def test_statistics_of_several_engines_are_no_engines_own() -> None:
    line = said("APIServer pid=1", "2 Engines Aggregated: Avg prompt throughput: 1.0 tokens/s, Avg "
    "generation throughput: "
                "1.0 tokens/s, Running: 9 reqs, Waiting: 3 reqs, GPU KV cache usage: 50.0%")  # fmt: skip
    (event,) = events([line])
    assert dict(event.fields) == {
        "generation": "V1", "num_engines": 2, "running": 9, "waiting": 3, "mean_kv_cache_usage_ratio": 0.5,
    }  # fmt: skip
