"""The command `plan`: from a model's folder, from measured numbers, or from both."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from packaging.version import InvalidVersion, Version

from vllm_length_exporter.planner import document, text
from vllm_length_exporter.planner.cost import Cost, cost
from vllm_length_exporter.planner.error import PlanError
from vllm_length_exporter.planner.measured import Server, server
from vllm_length_exporter.planner.picture import draw
from vllm_length_exporter.planner.plan import Plan, plan_model, plan_server
from vllm_length_exporter.planner.prices import read_prices, read_workload
from vllm_length_exporter.planner.reading import read_document, read_model
from vllm_length_exporter.planner.rules import NEWEST, OLDEST
from vllm_length_exporter.planner.settings import GIB, Device, Settings
from vllm_length_exporter.planner.workload import workload
from vllm_length_exporter.terminal import UnusableInput
from vllm_length_exporter.vllm.numbers import human

ENVIRONMENT_PREFIX = "VLLM_LENGTH_"


@dataclass(frozen=True, slots=True)
class Live:
    """What a live server said: doctor's JSON as an object, its metrics page, and requests refused for length."""

    doctor: dict[str, Any]
    page: str
    refused_requests: int = 0


Ask = Callable[[str], Live]


class Tokens(click.ParamType[int]):
    """Tokens as vLLM takes them: 32768, 32k (32,000), 32K (32,768); `auto` where `automatic`."""

    name = "tokens"

    def __init__(self, *, automatic: bool = False) -> None:
        self._automatic = automatic

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        if self._automatic and value in ("auto", "-1"):
            return -1
        found = human(value)
        if found is None or not 1 <= found <= 2**40:
            self.fail(f"{value!r} is not a number of tokens (32768, 32k or 32K)", param, ctx)
        return found


class VllmVersion(click.ParamType[Version]):
    """A version of vLLM that the accounting is known for."""

    name = "version"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Version:
        if isinstance(value, Version):
            return value
        try:
            version = Version(value)
        except InvalidVersion:
            self.fail(f"{value!r} is not a version, such as {NEWEST}", param, ctx)
        if version < OLDEST:
            self.fail(f"{value}: how vLLM before {OLDEST} counts is not known", param, ctx)
        return version


def _option(flag: str, *names: str, **settings: Any) -> Callable[[Any], Any]:
    variable = ENVIRONMENT_PREFIX + flag.split("/")[0].removeprefix("--").replace("-", "_").upper()
    return click.option(flag, *names, envvar=variable, show_envvar=True, **settings)


AT_LEAST_ONE = click.IntRange(min=1, max=2**40)
SIZE = click.IntRange(min=1, max=4096)
GIBIBYTES = click.FloatRange(min=0, min_open=True, max=2**20)
FILE = click.Path(path_type=Path, dir_okay=False)

OPTIONS = (
    _option("--doctor", "doctor_file", metavar="FILE", help="Doctor's JSON: measured numbers; - is standard input."),
    _option("--name", metavar="SERVER", help="Which server of doctor's JSON, where there are several."),
    _option("--version", type=VllmVersion(), help=f"Of vLLM.  [default: doctor's, else {NEWEST}]"),
    _option("--device", type=click.Choice([str(device) for device in Device]), default="gpu", show_default=True,
            help="What it runs on: blocks and batches differ."),
    _option("--dtype", default="auto", show_default=True, help="As vLLM's."),
    _option("--kv-cache-dtype", default="auto", show_default=True, help="As vLLM's."),
    _option("--block-size", type=AT_LEAST_ONE, help="As vLLM's, in tokens."),
    _option("--tensor-parallel-size", type=SIZE, default=1, show_default=True, help="As vLLM's."),
    _option("--pipeline-parallel-size", type=SIZE, default=1, show_default=True, help="As vLLM's."),
    _option("--data-parallel-size", type=SIZE, default=1, show_default=True, help="As vLLM's: engines."),
    _option("--decode-context-parallel-size", type=SIZE, default=1, show_default=True, help="As vLLM's."),
    _option("--max-model-len", type=Tokens(automatic=True), help="As vLLM's: tokens, 32k, 32K or auto."),
    _option("--max-num-seqs", type=AT_LEAST_ONE, help="As vLLM's."),
    _option("--max-num-batched-tokens", type=Tokens(), help="As vLLM's."),
    _option("--gpu-memory-utilization", type=click.FloatRange(0, 1, min_open=True), help="As vLLM's."),
    _option("--device-memory-gib", type=GIBIBYTES, help="Memory of one device."),
    _option("--kv-cache-memory-bytes", type=AT_LEAST_ONE, help="As vLLM's: memory of one device for the KV cache."),
    _option("--kv-cache-memory-gib", type=GIBIBYTES, help="The same in GiB, as the log's 'Available KV cache memory'."),
    _option("--num-gpu-blocks-override", type=AT_LEAST_ONE, help="As vLLM's."),
    _option("--enable-chunked-prefill/--no-enable-chunked-prefill", default=True, help="As vLLM's."),
    _option("--enable-prefix-caching/--no-enable-prefix-caching", default=True, help="As vLLM's."),
    _option("--async-scheduling/--no-async-scheduling", default=None, help="As vLLM's."),
    _option("--disable-hybrid-kv-cache-manager", is_flag=True, help="As vLLM's."),
    _option("--length", "lengths", type=Tokens(), multiple=True, help="Answer for this length; may be repeated."),
    _option("--concurrency", "concurrencies", type=AT_LEAST_ONE, multiple=True,
            help="Answer for so many requests at once; may be repeated."),
    _option("--prices", "price_file", type=FILE, metavar="FILE", help="Prices in YAML: what a workload costs."),
    _option("--workload", "workload_file", type=FILE, metavar="FILE", help="The workload in YAML."),
    _option("--plot", "picture", type=FILE, metavar="FILE", help="Draw requests over length: .png, .svg or .pdf."),
    _option("--format", "shape", type=click.Choice(["text", "json"]), default="text", show_default=True,
            help="How to answer."),
)  # fmt: skip


def plan_command(ask: Ask | None = None) -> click.Command:
    """The command. With `ask`, which asks a live server, it has the flag --server as well."""

    def callback(model: Path | None, *, url: str | None = None, **given: Any) -> None:
        try:
            live = ask(url) if ask is not None and url is not None else None
            made, priced = _make(model, live, given)
            if given["picture"] is not None:
                draw(made, given["picture"])
        except PlanError as error:
            raise UnusableInput(str(error)) from error
        answer = (
            document.as_json(made, priced) + "\n" if given["shape"] == "json" else text.as_text(made, priced)
        )
        click.echo(answer, nl=False)

    callback.__doc__ = """Say what fits: how many requests of a length, how long at a concurrency, and what it costs.

    MODEL is a model's folder, or its config.json. Flags that vLLM has are named and meant as vLLM's.
    """
    for option in reversed(OPTIONS):
        callback = option(callback)
    if ask is not None:
        callback = _option("--server", "url", metavar="URL", help="Measure this live server.")(callback)
    argument = click.argument("model", metavar="[MODEL]", required=False, type=click.Path(path_type=Path))
    return click.command("plan")(argument(callback))


def _make(model: Path | None, live: Live | None, given: dict[str, Any]) -> tuple[Plan, Cost | None]:
    measured = _measured(live, given)
    settings = _settings(given, measured)
    asked = {"lengths": given["lengths"], "concurrencies": given["concurrencies"]}
    if model is not None:
        subject = model.resolve().name if model.is_dir() else str(model)
        made = plan_model(read_model(model), settings, subject=subject, measured=measured, **asked)
    elif measured is not None:
        made = plan_server(measured, settings, **asked)
    else:
        raise PlanError(
            "nothing to plan: name a model's folder or config.json, or measured numbers with --doctor"
        )
    return made, _cost(made, live, given)


def _measured(live: Live | None, given: dict[str, Any]) -> Server | None:
    source = given["doctor_file"]
    if live is not None:
        if source is not None:
            raise PlanError("--server asks doctor itself: drop --doctor")
        return server(live.doctor, "--server", given["name"])
    if source is None:
        return None
    try:
        body = sys.stdin.buffer.read() if source == "-" else Path(source).read_bytes()
    except OSError as error:
        raise PlanError(f"{source}: cannot be read: {error.strerror}") from error
    return server(dict(read_document(source, body)), source, given["name"])


def _settings(given: dict[str, Any], measured: Server | None) -> Settings:
    memory = given["kv_cache_memory_bytes"]
    if given["kv_cache_memory_gib"] is not None:
        if memory is not None:
            raise PlanError(
                "--kv-cache-memory-bytes and --kv-cache-memory-gib say the same: give one of them"
            )
        memory = math.floor(given["kv_cache_memory_gib"] * GIB)
    device_memory = given["device_memory_gib"]
    if given["gpu_memory_utilization"] is not None and device_memory is None:
        raise PlanError("--gpu-memory-utilization is a share of --device-memory-gib: give both")
    length = given["max_model_len"]
    same = (
        "dtype", "kv_cache_dtype", "block_size", "tensor_parallel_size", "pipeline_parallel_size",
        "data_parallel_size", "decode_context_parallel_size", "max_num_seqs", "max_num_batched_tokens",
        "gpu_memory_utilization", "num_gpu_blocks_override", "enable_chunked_prefill", "enable_prefix_caching",
        "async_scheduling", "disable_hybrid_kv_cache_manager",
    )  # fmt: skip
    return Settings(
        version=given["version"] or _version_of(measured) or NEWEST,
        device=Device(given["device"]),
        max_model_len=None if length in (None, -1) else length,
        auto_fit=length == -1,
        kv_cache_memory_bytes=memory,
        device_memory=None if device_memory is None else math.floor(device_memory * GIB),
        **{name: given[name] for name in same},
    )


def _version_of(measured: Server | None) -> Version | None:
    try:
        return Version(measured.vllm_version) if measured is not None and measured.vllm_version else None
    except InvalidVersion:
        return None


def _cost(made: Plan, live: Live | None, given: dict[str, Any]) -> Cost | None:
    if given["price_file"] is None:
        if given["workload_file"] is not None:
            raise PlanError("--workload has a cost only with --prices")
        return None
    prices = read_prices(given["price_file"])
    if given["workload_file"] is not None:
        work = read_workload(given["workload_file"])
    elif live is not None:
        work = workload(live.page, time.time(), live.refused_requests)
    elif prices.workload is not None:
        work = prices.workload
    else:
        raise PlanError(
            f"{given['price_file']}: the cost is of a workload: name one with the key workload, or with --workload"
        )
    return cost(prices, work, made.settings.devices * made.settings.data_parallel_size)


plan = plan_command()
