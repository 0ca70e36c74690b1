"""The command `plan` as a person uses it: text, JSON, picture, and one line for each mistake."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.planner import models
from tests.planner.test_measured import DOCUMENT
from tests.recorded import pages
from vllm_length_exporter.cli import program
from vllm_length_exporter.planner.command import Live, plan_command

PRICES = str(Path(__file__).with_name("prices.yml"))
# Every key of the answer; what is added is added here, what is renamed breaks somebody's script.
KEYS = {
    "": "subject vllm_version model limit window kv_cache memory capacity starts at_lengths at_concurrencies what_ifs"
    " flags problems notes cost",
    "model": "type attention layers",
    "limit": "value source",
    "window": "tokens default_limit key rope_type rope_rule",
    "kv_cache": "source dtype bytes_per_token bytes_per_token_within_windows bytes_per_request block_size block_bytes"
    " groups",
    "memory": "source kv_cache_bytes taken_before",
    "capacity": "tokens full_length_concurrency engines",
    "cost": "currency workload recomputed_tokens offers break_even",
}


def run(*arguments: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(program, ["plan", *arguments], input=stdin, catch_exceptions=False)


@pytest.fixture
def model(tmp_path: Path) -> str:
    folder = tmp_path / "llama-8b"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(models.LLAMA_3_1_8B))
    return str(folder)


def answer(*arguments: str, stdin: str | None = None) -> dict[str, Any]:
    done = run(*arguments, "--format", "json", stdin=stdin)
    assert done.exit_code == 0, done.output
    parsed: dict[str, Any] = json.loads(done.stdout)
    return parsed


GOLDEN = Path(__file__).parent / "golden" / "llama-8b.txt"


def test_the_text(model: str) -> None:
    done = run(
        model, "--kv-cache-memory-gib", "8", "--max-model-len", "8K", "--length", "4096", "--length", "8192",
        "--concurrency", "10",
    )  # fmt: skip
    assert done.stdout == GOLDEN.read_text()
    assert done.exit_code == 0


def test_the_keys_of_the_json(model: str) -> None:
    found = answer(model, "--device-memory-gib", "80", "--prices", PRICES)
    assert " ".join(found) == KEYS.pop("")
    for key, names in KEYS.items():
        assert " ".join(found[key]) == names
    assert found["at_lengths"][0].keys() == {"tokens", "requests", "needed_bytes"}
    assert found["what_ifs"][0].keys() == {"change", "requests", "longest"}
    assert found["flags"][0].keys() == {"flag", "value", "reason"}
    assert found["cost"]["offers"][0].keys() == {"name", "total", "per_million_tokens", "waste"}


def test_json_and_text_say_the_same(model: str) -> None:
    found = answer(model, "--kv-cache-memory-gib", "8", "--max-model-len", "8192")
    assert found["capacity"]["tokens"] == {"low": 65_536, "high": 65_536}
    assert found["capacity"]["full_length_concurrency"] == {"low": 8.0, "high": 8.0}
    assert found["kv_cache"]["bytes_per_token"] == 131_072
    assert found["starts"] is True


def test_what_is_not_known_is_null_and_never_0(model: str) -> None:
    found = answer(model)
    assert found["capacity"] == {"tokens": None, "full_length_concurrency": None, "engines": None}
    assert (found["memory"], found["starts"], found["cost"]) == (None, None, None)
    assert {row["requests"] for row in found["at_lengths"]} == {None}
    assert all(row["needed_bytes"] > 0 for row in found["at_lengths"])
    assert "?" in run(model).stdout


def test_config_json_alone(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(models.GEMMA_3_27B))
    assert answer(str(path))["kv_cache"]["groups"] == 7
    renamed = path.rename(tmp_path / "gemma.json")
    assert answer(str(renamed))["kv_cache"]["bytes_per_token"] == 81_920


def test_lengths_are_written_as_vllm_writes_them(model: str) -> None:
    assert answer(model, "--max-model-len", "32k")["limit"]["value"] == 32_000
    assert answer(model, "--max-model-len", "32K")["limit"]["value"] == 32_768
    auto = answer(model, "--max-model-len", "auto", "--kv-cache-memory-gib", "8")
    assert auto["limit"] == {"value": 65_520, "source": "auto-fit to the least memory"}


def test_doctor_s_json_from_standard_input() -> None:
    found = answer("--doctor", "-", stdin=json.dumps({"servers": [DOCUMENT]}))
    assert (found["subject"], found["vllm_version"]) == ("gpu-1:8000", "0.32.0")
    assert found["memory"]["kv_cache_bytes"] == {"low": 1 << 30, "high": 1 << 30}
    assert found["at_lengths"][-1] == {
        "tokens": 8192,
        "requests": {"low": 1, "high": 1},
        "needed_bytes": None,
    }
    assert found["starts"] is None


def test_environment_variables_name_flags(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_LENGTH_MAX_MODEL_LEN", "4096")
    assert answer(model)["limit"]["value"] == 4096


def test_the_cost_of_a_workload(model: str, tmp_path: Path) -> None:
    whole = answer(model, "--prices", PRICES, "--tensor-parallel-size", "2", "--data-parallel-size", "2")
    assert whole["cost"]["offers"][0]["total"] == 100  # four devices
    other = tmp_path / "workload.yml"
    other.write_text("{hours: 1, requests: 1, input_tokens: 1000000, output_tokens: 0}")
    found = answer(model, "--prices", PRICES, "--workload", str(other))
    assert [offer["total"] for offer in found["cost"]["offers"]] == [2.5, 3, pytest.approx(0.15)]
    text = run(model, "--prices", PRICES).stdout
    assert "Cost in EUR: 100,000 requests in 10.0 h, 200,000,000 input tokens (50,000,000 cached)" in text
    assert "250 requests were refused for length: no device time, and no answer" in text


def test_a_live_server_is_measured_and_its_workload_priced() -> None:
    asked = []

    def ask(url: str) -> Live:
        asked.append(url)
        return Live({"servers": [DOCUMENT]}, pages("0.32.0-pressure")[-1][1], refused_requests=3)

    done = CliRunner().invoke(
        plan_command(ask),
        ["--server", "http://gpu-1:8000", "--prices", PRICES, "--format", "json"],
        catch_exceptions=False,
    )
    found = json.loads(done.stdout)
    assert asked == ["http://gpu-1:8000"]
    assert found["subject"] == "gpu-1:8000"
    assert found["cost"]["workload"]["refused_requests"] == 3
    assert found["cost"]["workload"]["preemptions"] == 27
    assert "--server" not in run("--help").stdout


@pytest.mark.parametrize(
    ("suffix", "begins"), [("png", b"\x89PNG\r\n"), ("svg", b"<?xml"), ("pdf", b"%PDF-")]
)
def test_the_picture(model: str, tmp_path: Path, suffix: str, begins: bytes) -> None:
    path = tmp_path / f"plan.{suffix}"
    done = run(model, "--device-memory-gib", "80", "--plot", str(path))
    assert done.exit_code == 0
    body = path.read_bytes()
    assert body.startswith(begins)
    if suffix == "svg":
        text = body.decode()
        assert text.count("<path") > 10
        assert "llama-8b: what the KV cache holds, vLLM 0.33.0" in text


def test_the_picture_of_what_does_not_fit_once(model: str, tmp_path: Path) -> None:
    path = tmp_path / "plan.png"
    assert run(model, "--kv-cache-memory-gib", "1", "--plot", str(path)).exit_code == 0
    assert path.stat().st_size > 1000


def test_without_matplotlib_one_line_says_how_to_get_it(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    done = run(model, "--kv-cache-memory-gib", "8", "--plot", str(tmp_path / "plan.png"))
    assert done.stderr == (
        "vllm-length-exporter: --plot needs matplotlib: pip install 'vllm-length-exporter[plot]'\n"
    )
    assert done.exit_code == 2


MISTAKES: list[tuple[list[str], str]] = [
    ([], "nothing to plan: name a model's folder or config.json, or measured numbers with --doctor"),
    (["nowhere"], "nowhere: cannot be read: No such file or directory"),
    (["--doctor", "nowhere"], "nowhere: cannot be read: No such file or directory"),
    (
        ["MODEL", "--kv-cache-memory-gib", "1", "--kv-cache-memory-bytes", "5"],
        "--kv-cache-memory-bytes and --kv-cache-memory-gib say the same: give one of them",
    ),
    (
        ["MODEL", "--gpu-memory-utilization", "0.5"],
        "--gpu-memory-utilization is a share of --device-memory-gib: give both",
    ),
    (
        ["MODEL", "--tensor-parallel-size", "2", "--decode-context-parallel-size", "3"],
        "--decode-context-parallel-size must divide --tensor-parallel-size",
    ),
    (["MODEL", "--workload", PRICES], "--workload has a cost only with --prices"),
    (
        ["MODEL", "--plot", "x.png"],
        "--plot: there is nothing to draw without memory: give --kv-cache-memory-gib",
    ),
    (
        ["MODEL", "--kv-cache-memory-gib", "1", "--plot", "x.gif"],
        "--plot x.gif: the name must end in one of .png, .svg, .pdf",
    ),
    (
        ["MODEL", "--kv-cache-memory-gib", "1", "--plot", "/nowhere/x.png"],
        "--plot /nowhere/x.png: cannot be written: No such file or directory",
    ),
]


@pytest.mark.parametrize(("arguments", "message"), MISTAKES)
def test_each_mistake_is_one_line_and_exit_code_2(model: str, arguments: list[str], message: str) -> None:
    done = run(*[model if argument == "MODEL" else argument for argument in arguments])
    assert done.stderr == f"vllm-length-exporter: {message}\n"
    assert (done.stdout, done.exit_code) == ("", 2)


@pytest.mark.parametrize(
    ("flag", "value", "message"),
    [
        ("--max-model-len", "12x", "'12x' is not a number of tokens (32768, 32k or 32K)"),
        ("--length", "0", "'0' is not a number of tokens"),
        ("--version", "new", "'new' is not a version, such as 0.33.0"),
        ("--version", "0.7.3", "0.7.3: how vLLM before 0.8.5 counts is not known"),
        ("--gpu-memory-utilization", "1.1", "1.1 is not in the range 0<x<=1"),
        ("--tensor-parallel-size", "0", "0 is not in the range 1<=x<=4096"),
        ("--kv-cache-memory-gib", "-1", "-1.0 is not in the range"),
    ],
)
def test_a_value_that_no_flag_can_have(model: str, flag: str, value: str, message: str) -> None:
    done = run(model, flag, value)
    assert message in done.stderr
    assert done.exit_code == 2


def test_a_prices_file_without_a_workload(model: str, tmp_path: Path) -> None:
    path = tmp_path / "prices.yml"
    path.write_text("self_hosted: {gpu_hour: 1}")
    done = run(model, "--prices", str(path))
    assert done.stderr == (
        f"vllm-length-exporter: {path}: the cost is of a workload: name one with the key workload, or with --workload\n"
    )


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"\xff", b'{"servers": 1}', b'{"servers": [{}]}', b"[" * 99_999]
)
def test_no_doctor_s_json_ends_with_a_traceback(tmp_path: Path, body: bytes) -> None:
    path = tmp_path / "doctor.json"
    path.write_bytes(body)
    done = run("--doctor", str(path))
    assert done.exit_code == 2
    assert done.stderr.startswith(f"vllm-length-exporter: {path}: ")
    assert done.stderr.count("\n") == 1
