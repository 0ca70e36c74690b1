"""The file that a user edits: what is accepted, and the one line that each mistake gets."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.alerts.rendered import ALERTS
from vllm_length_exporter.mixin.thresholds import Thresholds, seconds
from vllm_length_exporter.mixin.thresholds_file import DEFAULTS, ThresholdsError, read

# text of a file -> key and what is said of it
MISTAKES = {
    "kv_cache_saturated: {critical: {usgae: 0.9}}": (
        "kv_cache_saturated.critical.usgae: unknown key, did you mean 'usage'?"
    ),
    "kv_cache_saturated: {critical: {usage: 95}}": (
        "kv_cache_saturated.critical.usage: expected float <= 1.0, got 95"
    ),
    "kv_cache_saturated: {critical: {usage: -0.1}}": (
        "kv_cache_saturated.critical.usage: expected float > 0.0, got -0.1"
    ),
    "kv_cache_saturated: {critical: {usage: .nan}}": (
        "kv_cache_saturated.critical.usage: expected a number, got nan"
    ),
    "kv_cache_saturated: {critical: {usage: high}}": (
        "kv_cache_saturated.critical.usage: expected float, got str"
    ),
    "kv_cache_saturated: {critical: {usage: 0.8}}": (
        "kv_cache_saturated: critical.usage must not be below warning.usage"
    ),
    "kv_cache_saturated: {critical: {for: 5 minutes}}": (
        "kv_cache_saturated.critical.for: expected a duration such as 0s, 90s or 5m, got '5 minutes'"
    ),
    "kv_cache_saturated: {critical: {for: 5}}": "kv_cache_saturated.critical.for: expected str, got int",
    "kv_cache_saturated: 3": "kv_cache_saturated: expected keys and values, got 3",
    "missed_scrapes: 0s": (
        "missed_scrapes: expected a duration such as 90s, 5m or 1h30m, longer than 0, got '0s'"
    ),
    "notify: {critical: [pager]}": (
        "notify.critical[0]: expected one of webhook, pagerduty, slack, email, got 'pager'"
    ),
    "severity: {}": "severity: unknown key",
    "selector: cluster=prod": 'selector: expected matchers such as cluster="prod"',
    'selector: \'a="b"} or up{c="d"\'': "selector: expected matchers such as",
    "ignored_servers: ['a\"b']": "ignored_servers[0]: expected str matching regex",
    "disabled_alerts: VLLMLengthServerDown": "disabled_alerts: expected array, got str",
    "rejections_spike: {objective: 1}": "rejections_spike.objective: expected float < 1.0, got 1",
    "rejections_spike: {critical: [{burn_rate: 200, long: 1h, short: 5m}]}": (
        "rejections_spike: burn_rate 200 of objective 0.99 is a share of 1 or more: it never fires"
    ),
    "rejections_spike: {critical: [{burn_rate: 2, long: 1h, short: 5h}]}": (
        "rejections_spike.critical[0]: short (5h) must be shorter than long (1h)"
    ),
    "rejections_spike: {critical: []}": "rejections_spike.critical: expected array of length >= 1",
    "limit_far_above_workload: {share: 0.98}": "limit_far_above_workload: share 0.98 is not published",
    "crash_loop: {starts: 2.5}": "crash_loop.starts: expected int, got float",
    "labels: {a-b: c}": "labels: expected str matching regex",
    "links: {grafana: grafana.example}": (
        "links.grafana: expected str matching regex '^https?://', got 'grafana.example'"
    ),
    "- a": "expected keys and values, got a list",
    "just text": "expected keys and values, got a text",
}


def complaint(path: Path) -> str:
    with pytest.raises(ThresholdsError) as raised:
        read(path)
    return str(raised.value)


@pytest.mark.parametrize("text", MISTAKES, ids=lambda text: text.replace("\n", " ")[:50])
def test_a_mistake_is_one_line_with_file_and_key(text: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.yml"
    path.write_text(text, encoding="utf-8")
    said = complaint(path)
    assert said.startswith(f"{path}: {MISTAKES[text]}")
    assert "\n" not in said
    assert len(said) < 400


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    absent = tmp_path / "none.yml"
    assert complaint(absent) == f"{absent}: cannot be read: No such file or directory"
    assert complaint(tmp_path) == f"{tmp_path}: cannot be read: Is a directory"
    (tmp_path / "latin.yml").write_bytes(b"# caf\xe9\n")
    assert (
        complaint(tmp_path / "latin.yml") == f"{tmp_path / 'latin.yml'}:1: expected UTF-8, got the byte 0xe9"
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: [", "2: expected YAML: while parsing a flow node, did not find expected node content"),
        ("selector: ''\nselector: ''", "2: selector: expected once, is also in line 1"),
        ("[" * 200 + "]" * 200, "1: expected YAML: nested more than 100 deep"),
    ],
    ids=["open list", "key twice", "nested without end"],
)
def test_what_is_no_yaml_is_one_line_with_its_place(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.yml"
    path.write_text(text, encoding="utf-8")
    assert complaint(path).startswith(f"{path}:{words}")
    assert "\n" not in complaint(path)


def test_a_file_may_hold_just_what_differs(tmp_path: Path) -> None:
    path = tmp_path / "mine.yml"
    path.write_text(
        "kv_cache_saturated: {critical: {for: 2m}}\nlabels: {team: inference}\n", encoding="utf-8"
    )
    mine, packaged = read(path), read()
    assert mine.kv_cache_saturated.critical.hold == "2m"
    assert mine.kv_cache_saturated.critical.usage == packaged.kv_cache_saturated.critical.usage
    assert mine.kv_cache_saturated.warning == packaged.kv_cache_saturated.warning
    assert mine.labels == {"team": "inference"}
    path.write_text("", encoding="utf-8")
    assert read(path) == packaged


def test_the_file_in_alerts_is_the_packaged_one() -> None:
    assert (ALERTS / "thresholds.yml").resolve() == DEFAULTS.resolve()


def test_every_key_is_in_the_file() -> None:
    keys = yaml.safe_load(DEFAULTS.read_text(encoding="utf-8"))
    assert list(keys) == list(Thresholds.__struct_fields__)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    [*Thresholds.__struct_fields__, "critical", "warning", "usage", "for", "long", "share"]
                )
                | st.text(max_size=5),
                inner,
                max_size=4,
            )
        ),
        max_leaves=12,
    )
)
def test_whatever_stands_in_it_is_used_or_refused_in_one_line(
    tmp_path_factory: pytest.TempPathFactory, content: object
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.yml"
    path.write_text(yaml.safe_dump(content), encoding="utf-8")
    said = f"{path}: "
    try:
        read(path)
    except ThresholdsError as error:
        said = str(error)
    assert said.startswith(f"{path}: ")
    assert "\n" not in said


@pytest.mark.parametrize(
    ("duration", "expected"), [("0s", 0), ("90s", 90), ("1h30m", 5400), ("1d", 86400), ("1w2d", 777600)]
)
def test_durations(duration: str, expected: int) -> None:
    assert seconds(duration) == expected
