"""How a record of vLLM's is printed, and how its lines reach a reader: the envelopes of the tests."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from tests.log.examples import Example

Lines = list[str]
Style = Callable[[Example], Lines]
Shipping = Callable[[Lines], Lines]
MONTH_DAY, CLOCK = "11-29", "14:35:05"


def _record(example: Example) -> tuple[str, str, Lines]:
    """Logger, level and the lines of the record."""
    lines = example.lines()
    if example.id in ("uvicorn_access", "uvicorn_asgi_exception"):
        level, _, text = lines[0].partition(":")
        return "uvicorn.error" if level == "ERROR" else "uvicorn.access", level, [text.strip()]
    level = lines[0].split(" ")[0]
    return "vllm.v1.engine.core", level, [line.partition("] ")[2] for line in lines]


def _printed(example: Example, header: str, process: str = "") -> Lines:
    """Every line with the header, as vLLM's own formatter prints a record."""
    logger, level, lines = _record(example)
    if logger.startswith("uvicorn"):
        return [f"{process}{level}:{' ' * (9 - len(level))}{line}" for line in lines]
    return [process + header.format(level=level) + line for line in lines]


def bracketed(example: Example) -> Lines:
    return _printed(example, "{level} 11-29 14:35:05 [file.py:12] ")


def oldest(example: Example) -> Lines:
    return _printed(example, "{level} 11-29 14:35:05 file.py:12] ")


def deep_path(example: Example) -> Lines:
    return _printed(
        example, "{level} 11-29 14:35:05 [v1/core/kv_cache_utils.py:1087] ", "(EngineCore pid=7) "
    )


def undated(example: Example) -> Lines:
    return _printed(example, "{level} [file.py:12] ")


def of_a_process(name: str) -> Style:
    return lambda example: _printed(example, "{level} 11-29 14:35:05 [file.py:12] ", f"({name} pid=4711) ")


def coloured(example: Example) -> Lines:
    return _printed(
        example,
        "\x1b[32m{level}\x1b[0m \x1b[90m11-29 14:35:05\x1b[0m \x1b[90m[file.py:12]\x1b[0m ",
        "\x1b[1;36m(APIServer pid=1)\x1b[0;0m ",
    )


def nested_in_ray(example: Example) -> Lines:
    prefix = "\x1b[36m(EngineCore_DP0 pid=1)\x1b[0m \x1b[36m(RayWorkerWrapper pid=2, ip=10.0.0.2)\x1b[0m "
    return _printed(example, "{level} 11-29 14:35:05 [file.py:12] ", prefix)


def configured(example: Example) -> Lines:
    logger, level, lines = _record(example)
    return [f"2026-11-29 14:35:05,123 - {logger} - {level} - {lines[0]}", *lines[1:]]


def configured_otherwise(example: Example) -> Lines:
    logger, level, lines = _record(example)
    return [f"[2026-11-29 14:35:05,123] [{level}] {logger}: {lines[0]}", *lines[1:]]


def _json(example: Example, make: Callable[[str, str, str, str | None], Mapping[str, object]]) -> Lines:
    logger, level, lines = _record(example)
    traceback = "\n".join(lines[1:]) or None
    if example.id == "v0_memory_profile":
        return [json.dumps(make(logger, level, "\n".join(lines), None))]
    return [json.dumps(make(logger, level, lines[0], traceback))]


def json_of_vllm(example: Example) -> Lines:
    """The formatter of 0.31: `--logging-config.formatter json`."""
    return _json(
        example,
        lambda logger, level, message, traceback: {
            "asctime": "2026-11-29 14:35:05,123",
            "levelname": level,
            "name": logger,
            "processName": "EngineCore_DP0",
            "process": 4711,
            "message": message,
            **({"exc_info": traceback} if traceback else {}),
        },
    )


def json_of_a_config(example: Example) -> Lines:
    return _json(
        example,
        lambda logger, level, message, traceback: {
            "timestamp": "2026-11-29T14:35:05.123Z",
            "level": level.lower(),
            "logger": logger,
            "filename": "core.py",
            "lineno": 12,
            "msg": message,
            "traceback": traceback,
        },
    )


def json_of_elastic(example: Example) -> Lines:
    return _json(
        example,
        lambda logger, level, message, traceback: {
            "@timestamp": "2026-11-29T14:35:05.123Z",
            "log.level": level.lower(),
            "log.logger": logger,
            "message": message,
            "error.stack_trace": traceback,
        },
    )


def json_of_loguru(example: Example) -> Lines:
    return _json(
        example,
        lambda logger, level, message, traceback: {
            "text": f"{level} {message}",
            "record": {
                "level": {"name": level, "no": 20},
                "name": logger,
                "message": message,
                "process": {"id": 4711, "name": "EngineCore"},
                "exception": traceback,
            },
        },
    )


STYLES: Mapping[str, Style] = {
    "bracketed": bracketed,
    "oldest": oldest,
    "deep_path": deep_path,
    "undated": undated,
    "api_server": of_a_process("APIServer"),
    "second_api_server": of_a_process("ApiServer_1"),
    "engine": of_a_process("EngineCore_DP0"),
    "engine_of_0_9": of_a_process("EngineCore_0"),
    "worker_of_0_9": of_a_process("VllmWorker rank=0"),
    "worker_of_0_10": of_a_process("VllmWorker TP0"),
    "worker": of_a_process("Worker_DP0_PP0_TP1_EP0"),
    "coloured": coloured,
    "nested_in_ray": nested_in_ray,
    "configured": configured,
    "configured_otherwise": configured_otherwise,
    "json_of_vllm": json_of_vllm,
    "json_of_a_config": json_of_a_config,
    "json_of_elastic": json_of_elastic,
    "json_of_loguru": json_of_loguru,
}


def _each(prefix: str, suffix: str = "") -> Shipping:
    return lambda lines: [f"{prefix}{line}{suffix}" for line in lines]


def json_file(lines: Lines) -> Lines:
    stamp = "2026-11-29T14:35:05.123456789Z"
    return [json.dumps({"log": f"{line}\n", "stream": "stdout", "time": stamp}) for line in lines]


def json_file_in_pieces(lines: Lines) -> Lines:
    stamp = "2026-11-29T14:35:05.123456789Z"
    pieces = []
    for line in lines:
        half = len(line) // 2
        pieces += [line[:half], f"{line[half:]}\n"]
    return [json.dumps({"log": text, "stream": "stderr", "time": stamp}) for text in pieces]


def cri_in_pieces(lines: Lines) -> Lines:
    pieces = []
    for line in lines:
        third = len(line) // 3
        for tag, text in (("P", line[:third]), ("P", line[third : 2 * third]), ("F", line[2 * third :])):
            pieces.append(f"2026-11-29T14:35:05.123456789Z stderr {tag} {text}")
    return pieces


def journald_json(lines: Lines) -> Lines:
    return [
        json.dumps({"MESSAGE": line, "_PID": "12", "__REALTIME_TIMESTAMP": "1795963745"}) for line in lines
    ]


def journald_bytes(lines: Lines) -> Lines:
    return [json.dumps({"MESSAGE": list(line.encode()), "_PID": "12"}) for line in lines]


def wrapped_by_a_shipper(lines: Lines) -> Lines:
    return [json.dumps({"message": line, "kubernetes": {"pod_name": "vllm-0"}}) for line in lines]


def one_json_string(lines: Lines) -> Lines:
    return [json.dumps("\n".join(lines))]


def a_json_string_a_line(lines: Lines) -> Lines:
    return [f'    "text": {json.dumps(line + chr(10))},' for line in lines]


def one_python_string(lines: Lines) -> Lines:
    return [repr("\n".join(lines))]


def quotes_doubled(lines: Lines) -> Lines:
    return [line.replace("'", "''") for line in lines]


def escape_spelt_out(lines: Lines) -> Lines:
    return [line.replace("\x1b", "#033") for line in lines]


SHIPPINGS: Mapping[str, Shipping] = {
    "plain": list,
    "crlf": _each("", "\r\n"),
    "compose": _each("vllm-1  | "),
    "compose_coloured": _each("\x1b[36mvllm-1  | \x1b[0m"),
    "compose_with_times": _each("vllm-1  | 2026-11-29T14:35:05.123456789Z "),
    "json_file": json_file,
    "json_file_in_pieces": json_file_in_pieces,
    "cri": _each("2026-11-29T14:35:05.123456789Z stdout F "),
    "cri_in_pieces": cri_in_pieces,
    "kubectl_times": _each("2026-11-29T14:35:05.123456789+01:00 "),
    "kubectl_prefix": _each("[pod/vllm-0/vllm] "),
    "journald_short": _each("Nov 29 14:35:05 gpu-host vllm[12]: "),
    "journald_short_precise": _each("Nov  9 14:35:05.123456 gpu-host python3.12[12]: "),
    "journald_short_iso": _each("2026-11-29T14:35:05+0000 gpu-host vllm[12]: "),
    "journald_short_full": _each("Sun 2026-11-29 14:35:05 UTC gpu-host vllm[12]: "),
    "journald_monotonic": _each("[ 1234.567890] gpu-host vllm[12]: "),
    "journald_json": journald_json,
    "journald_bytes": journald_bytes,
    "syslog": _each("<14>1 2026-11-29T14:35:05.003Z gpu-host vllm 12 - - "),
    "shipper": wrapped_by_a_shipper,
    "grep_numbers": _each("1234:"),
    "notebook": _each("402.6s 397 "),
    "one_json_string": one_json_string,
    "a_json_string_a_line": a_json_string_a_line,
    "one_python_string": one_python_string,
    "quotes_doubled": quotes_doubled,
    "escape_spelt_out": escape_spelt_out,
}
