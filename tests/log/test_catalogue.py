"""The catalogue: every message that vLLM was seen to write has its row, its fields and its releases."""

from __future__ import annotations

import re

import pytest

from tests.log.examples import EXAMPLES, Example
from vllm_length_exporter.vllm.catalogue import CATALOGUE, row
from vllm_length_exporter.vllm.events import EventName
from vllm_length_exporter.vllm.lines import events
from vllm_length_exporter.vllm.messages import KINDS, Index, Kind, Message
from vllm_length_exporter.vllm.refusals import refusal
from vllm_length_exporter.vllm.release import release

# One line each, read as one: the error that stands in a DEBUG line is told as the error.
TOLD_AS_ANOTHER = {"reject_log_debug": "prompt_gt_len_5", "v0_memory_profile": "v0_memory_profile_rest"}
INDEX = {kind: Index(message for message in CATALOGUE if message.kind is kind) for kind in Kind}


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.id)
def test_text_has_its_row_and_fields(example: Example) -> None:
    found = INDEX[Kind(example.kind)].find(example.text.split("\n")[0])
    assert found is not None
    assert example.id in (found.message.id, *found.message.also)
    assert found.whole
    assert str(found.message.kind) == example.kind
    if example.id in TOLD_AS_ANOTHER:
        return
    fields = dict(found.fields)
    if found.message.event is EventName.REFUSED:
        fields = refusal(found.message.id, fields)
    assert {key: fields.get(key) for key in example.fields} == dict(example.fields)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.id)
def test_log_with_it_tells_one_event(example: Example) -> None:
    told = events(example.lines())
    if example.id == "v0_memory_profile":
        told = [event for event in told if event.name is not EventName.OTHER]
    assert len(told) == 1
    told_as, expected = row(told[0].message_id), TOLD_AS_ANOTHER.get(example.id, example.id)
    assert told_as is not None
    assert expected in (told_as.id, *told_as.also)
    assert told[0].name is told_as.event
    assert example.is_told_by(told[0])


def test_there_are_253_examples_and_each_id_is_known() -> None:
    ids = [example.id for example in EXAMPLES]
    assert len(set(ids)) == len(ids) == 253
    assert [id_ for id_ in ids if row(id_) is None] == []


def test_ids_are_unique() -> None:
    ids = [message.id for message in CATALOGUE]
    assert sorted(set(ids)) == sorted(ids)


@pytest.mark.parametrize("message", CATALOGUE, ids=lambda message: message.id)
def test_row_is_well_formed(message: Message) -> None:
    first, last = release(message.first), release(message.last)
    assert first is not None
    assert last is not None
    assert (0, 2, 7) <= first <= last <= (0, 33, 0)
    kinds = re.findall(r"\{\w*:(\w+)\}", message.template)
    assert set(kinds) <= set(KINDS)
    assert message.template.count("[[") == message.template.count("]]")
    assert message.template.count("‖") <= 1


def test_ranges_of_the_rows_hold_those_of_their_texts() -> None:
    for example in EXAMPLES:
        rows = [message for message in CATALOGUE if example.id in (message.id, *message.also)]
        first = min(known(message.first) for message in rows)
        last = max(known(message.last) for message in rows)
        assert first <= known(example.first), example.id
        assert known(example.last) <= last, example.id


def known(text: str) -> tuple[int, int, int]:
    found = release(text)
    assert found is not None
    return found
