"""The log of a real vLLM 0.33.0 whose draft model takes shorter requests than its own: 4096 instead of 8192."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner

from vllm_length_exporter.cli import program
from vllm_length_exporter.explain import explain
from vllm_length_exporter.vllm.events import EventName
from vllm_length_exporter.vllm.lines import events

LOG = Path(__file__).with_name("draft_limit_0.33.0.log")


def test_the_start_tells_both_lengths_and_the_reduction() -> None:
    found = [event for event in events(LOG.read_text(encoding="utf-8").splitlines()) if event.name != "other"]
    assert [event.name for event in found] == [
        EventName.VERSION,
        EventName.ARGUMENTS,
        EventName.MODEL_LENGTH,
        EventName.MODEL_LENGTH,
        EventName.DRAFT_LIMIT,
        EventName.ENGINE_CONFIG,
    ]
    assert [(event.integer("max_model_len"), event.fields.get("draft", False)) for event in found[2:4]] == [
        (8192, False),
        (4096, True),
    ]
    assert (found[4].integer("max_model_len"), found[4].integer("reduced_from")) == (4096, 8192)


def test_doctor_says_why_and_what_would_lift_it() -> None:
    answer = CliRunner().invoke(program, ["doctor", "--log", str(LOG)])
    assert answer.exit_code == 0, answer.output
    shown = " ".join(answer.stdout.split())
    assert "window (the model) 8,192 engine_log" in shown
    assert "effective (enforced now) 4,096 engine_log" in shown
    assert "draft 4,096 reduced from 8192: the draft model takes no more (engine_log)" in shown
    assert "takes 4096, because the draft model of speculative decoding takes no more." in shown
    assert "raise --max-model-len" not in shown  # it would change nothing
    assert "rejections - needs the middleware: this version logs none" in shown


def test_explain_takes_the_limit_from_it() -> None:
    told = explain(LOG.read_text(encoding="utf-8"))
    assert (told.id, told.numbers) == ("draft_lt_target", {"limit": 4096})
    assert told.summary.startswith("The limit is 4,096 instead of 8,192: the draft model")
    assert any("VLLM_USE_V2_MODEL_RUNNER=0" in advice for advice in told.advice)
