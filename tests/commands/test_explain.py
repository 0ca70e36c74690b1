"""`explain` as a user calls it: argument, file, standard input; text and JSON; the exit codes."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner, Result

from tests.recorded import FOLDER
from vllm_length_exporter.cli import program

REFUSED = (
    "This model's maximum context length is 8192 tokens. However, your prompt contains 8292 input tokens, which "
    "exceeds this limit even without any output tokens. Please reduce the length of the input prompt."
)


def explain(*arguments: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(program, ["explain", *arguments], input=stdin)


def test_argument_file_and_standard_input_say_the_same(tmp_path: Path) -> None:
    (tmp_path / "error.txt").write_text(REFUSED)
    answers = {
        explain("--format", "json", REFUSED).stdout,
        explain("--format", "json", *REFUSED.split(" ")).stdout,
        explain("--format", "json", "--file", str(tmp_path / "error.txt")).stdout,
        explain("--format", "json", stdin=REFUSED).stdout,
        explain("--format", "json", "--file", "-", stdin=REFUSED).stdout,
    }
    assert len(answers) == 1
    told = json.loads(answers.pop())
    assert set(told) == {"kind", "id", "cause", "numbers", "advice"}
    assert told["kind"] == "request_error"
    assert told["cause"] == "prompt_too_long"
    assert told["numbers"] == {"limit": 8192, "prompt_tokens": 8292}


def test_a_whole_log_of_a_failed_start() -> None:
    told = explain("--format", "json", "--file", str(FOLDER / "0.26.0-kvtoosmall" / "server.log"))
    assert told.exit_code == 0
    answer = json.loads(told.stdout)
    assert answer["kind"] == "startup_error"
    assert answer["cause"] == "kv_cache_too_small"
    assert answer["numbers"]["needed_bytes"] == 32 << 30
    assert any("32640" in advice for advice in answer["advice"]), (
        "one block less than the estimate is really served"
    )


def test_what_is_not_recognised_is_said_so_with_3() -> None:
    unknown = explain("the quick brown fox")
    assert unknown.exit_code == 3
    assert "recognised" in unknown.stdout
    assert json.loads(explain("--format", "json", "the quick brown fox").stdout)["kind"] == "unknown"
    assert explain(stdin="").exit_code == 3
    assert explain(stdin="\x00\x01\xff").exit_code == 3


def test_bad_use() -> None:
    assert explain("--file", "/nowhere/error.txt").exit_code == 2
    assert explain("--file", "x", "message").exit_code == 2
