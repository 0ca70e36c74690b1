"""The status page as HTML, over a real port: what it shows, what it withholds, and that names stay text."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from importlib.metadata import version

import pytest
import requests

from tests.recorded import last_view
from tests.web.conftest import Listen
from tests.web.published import Daemon, a_view, application
from vllm_length_exporter.derive.values import (
    EngineCapacity,
    Finding,
    Limits,
    Rejections,
    ServerView,
    Severity,
    Startup,
    State,
    Value,
)
from vllm_length_exporter.web import answers
from vllm_length_exporter.web.page import page
from vllm_length_exporter.web.watched import Point, Watched

HEADINGS = ("Findings", "Length budget", "How many requests fit at once", "Refused for length")
HOSTILE = '"><script>alert(1)</script><b onclick="x">'


def text_of(listen: Listen, served: Daemon, path: str = "/") -> str:
    answer = requests.get(listen(application(served)).url + path, timeout=10)
    assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
    assert answer.ok, answer.text
    return answer.text


def words_of(html: str) -> str:
    """What a person reads."""
    return " ".join(re.sub(r"<[^>]+>", " ", html[html.index("<main") :]).split())


def test_it_names_itself_and_links(listen: Listen) -> None:
    text = text_of(listen, Daemon())
    assert version("vllm-length-exporter") in text
    for path in ("/metrics", "/api/v1/status", "/-/healthy", "/-/ready"):
        assert f'<a href="{path}">' in text
    assert "No server is watched" in text


def test_several_servers_are_a_table_with_the_worst_first(listen: Listen) -> None:
    fine = replace(a_view("a:8000"), findings=())
    failed = ServerView(
        "z:8000", State.FAILED, findings=(Finding("startup_no_kv_memory", Severity.CRITICAL, "s", "a", "e"),)
    )
    text = text_of(listen, Daemon(views=[fine, a_view("b:8000"), failed], untried=["c:8000"]))
    assert re.findall(r'<a href="/\?server=([^"]*)">', text) == [
        "z%3A8000",
        "b%3A8000",
        "a%3A8000",
        "c%3A8000",
    ]
    shown = words_of(text)
    assert "4 watched" in shown
    for part in (
        "2 up",
        "1 failed",
        "1 not tried",
        "1 critical",
        "1 warning",
        "8,192",
        "10,240",
        "1.25",
        "not tried yet",
    ):
        assert part in shown


def test_engines_that_agree_are_said_once(listen: Listen) -> None:
    view = a_view()
    (engine,) = view.capacity
    two = replace(view, capacity=(engine, replace(engine, engine="1")))
    other = replace(view, capacity=(engine, replace(engine, engine="1", tokens=None)))
    assert "2 × 10,240" in words_of(text_of(listen, Daemon(views=[two, view])))
    assert "10,240, –" in words_of(text_of(listen, Daemon(views=[other, view])))


def test_one_server_is_shown_in_full_at_once(listen: Listen) -> None:
    text = text_of(listen, Daemon(views=[last_view("0.32.0-pressure")]))
    shown = words_of(text)
    for heading in (
        "Findings",
        "Length budget",
        "How many requests fit at once",
        "Refused for length",
        "Withheld numbers",
    ):
        assert re.search(rf"<h2[^>]*>{heading}</h2>", text), heading
    assert "All servers" not in shown
    assert "8,192 , from the server&#39;s /v1/models" in shown
    assert 'title="from the metrics page (cache_config_info)"' in text
    assert "1 whole request of 8,192 tokens fits at once" in shown


def test_a_failed_start_tells_its_story_before_the_budget(listen: Listen) -> None:
    text = text_of(listen, Daemon(views=[last_view("0.32.0-kvtoosmall")]))
    assert text.index(">The start</h2>") < text.index(">Length budget</h2>")
    shown = words_of(text)
    assert "the KV cache is too small for one request of the limit" in shown
    assert "32.00 GiB" in shown
    assert "A limit of 32,640 , from the start in the log tokens would have fit" in shown


@pytest.mark.parametrize(
    "name", ["0.16.0-pressure", "0.32.0-dp2", "0.32.0-hybrid", "0.32.0-yarn", "0.32.0-kvauto"]
)
def test_every_number_says_where_it_comes_from(listen: Listen, name: str) -> None:
    text = text_of(listen, Daemon(views=[last_view(name)]))
    numbers = re.findall(
        r'<span class="number" title="from ([^"]+)">[^<]+<span class="unseen">, from ([^<]+)</span>', text
    )
    assert len(numbers) > 5
    assert all(hover == heard for hover, heard in numbers)
    assert "None" not in words_of(text)


def test_the_usage_is_told_once_however_old_the_last_sample_is(listen: Listen) -> None:
    view = last_view("0.32.0-pressure")
    (row,) = view.capacity
    view = replace(view, capacity=(replace(row, usage_ratio=Value(0.519, "metrics")),))
    now = time.monotonic()
    points = (Point(now - 9, 0.975, 0), Point(now - 4, 0.924, 1376))
    shown = words_of(text_of(listen, Daemon(views=[view], histories={view.server: {"0": points}})))
    assert "KV cache 51.9% , from the metrics page in use, 97.5% at most; 1,376 preemptions" in shown
    assert "92.4%" not in shown


def test_what_is_withheld_is_a_dash_and_named(listen: Listen) -> None:
    text = text_of(listen, Daemon(views=[ServerView("bare:8000", State.UP)]))
    assert "None" not in text
    budget = text[text.index("Length budget</h2>") : text.index("The start</h2>")]
    assert budget.count('<span class="number withheld"') == 2  # window and limit


def test_names_are_text_wherever_they_stand(listen: Listen) -> None:
    finding = Finding("preempting", Severity.WARNING, HOSTILE, HOSTILE, HOSTILE)
    engine = EngineCapacity(HOSTILE, tokens=Value(1, HOSTILE), usage_ratio=Value(0.5, HOSTILE))
    view = ServerView(
        HOSTILE,
        State.UP,
        model_name=HOSTILE,
        vllm_version=Value(HOSTILE, HOSTILE),
        limits=Limits(effective=Value(8192, HOSTILE), mode=HOSTILE, requested=Value(HOSTILE, HOSTILE)),
        capacity=(engine,),
        rejections=(Rejections(HOSTILE, HOSTILE, 1),),
        rejections_observable="exact",
        startup=Startup("failed", cause=HOSTILE),
        findings=(finding,),
        truncations_by_cause=((HOSTILE, 1),),
    )
    one = Daemon(views=[view])
    for served in (one, Daemon(views=[view, a_view()], untried=[HOSTILE])):
        text = text_of(listen, served)
        assert "<script>" not in text
        assert "<b " not in text
        assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    answer = requests.get(
        listen(application(one)).url, params={"server": HOSTILE + "?", "tokens": HOSTILE}, timeout=10
    )
    assert answer.status_code == 404
    assert "<script>" not in answer.text
    answer = requests.get(listen(application(one)).url, params={"tokens": HOSTILE}, timeout=10)
    assert "<script>alert" not in answer.text
    assert "expected a whole number of tokens" in answer.text


def test_a_server_of_many_is_a_link_away_and_an_unknown_one_is_not_found(listen: Listen) -> None:
    url = listen(application(Daemon(views=[a_view("a:8000"), a_view("b&c:8000")], untried=["d"]))).url
    assert "<h1>b&amp;c:8000 " in requests.get(url, params={"server": "b&c:8000"}, timeout=10).text
    assert "Not tried yet" in requests.get(url, params={"server": "d"}, timeout=10).text
    missing = requests.get(url, params={"server": "nobody"}, timeout=10)
    assert (missing.status_code, "Not watched" in missing.text) == (404, True)


class TestHowManyFit:
    def view(self, **changes: object) -> ServerView:
        engine = EngineCapacity("0", blocks=Value(79, "x"), block_size=Value(128, "x"), one_group=True)
        limits = Limits(effective=Value(8192, "models_api"))
        return ServerView("a", State.UP, limits=limits, capacity=(replace(engine, **changes),))  # type: ignore[arg-type]

    @pytest.mark.parametrize(
        ("asked", "fits"),
        [
            (None, 1),
            ("", 1),
            ("128", 79),
            ("129", 39),
            ("1", 79),
            ("10,112", 1),
            ("10113", 0),
            (" 1_024 ", 9),
        ],
    )
    def test_whole_blocks_are_counted(self, asked: str | None, fits: int) -> None:
        assert answers.fit(self.view(), asked).total == fits

    @pytest.mark.parametrize("asked", ["0", "-1", "1.5", "abc", "1" * 400, "٣", "100000001", "1e3"])
    def test_what_is_no_length_is_said(self, asked: str) -> None:
        answer = answers.fit(self.view(), asked)
        assert "expected a whole number of tokens" in answer.fault
        assert answer.total is None

    def test_beyond_the_limit_is_noted(self) -> None:
        assert "The limit is 8,192" in answers.fit(self.view(), "9000").note

    def test_it_is_withheld_where_a_token_costs_more_than_its_block(self) -> None:
        assert answers.fit(self.view(one_group=False), "100").total is None
        assert answers.fit(self.view(blocks=None), "100").total is None

    def test_engines_are_added_only_if_all_are_known(self) -> None:
        view = self.view()
        (engine,) = view.capacity
        assert answers.fit(replace(view, capacity=(engine, replace(engine, engine="1"))), "128").total == 158
        assert (
            answers.fit(
                replace(view, capacity=(engine, replace(engine, engine="1", blocks=None))), "128"
            ).total
            is None
        )


def fastest(watched: list[Watched], times: int) -> float:
    """CPU seconds of the fastest rendering: others may share the processor."""
    spent = []
    for _ in range(times):
        begun = time.process_time()
        page(watched, lambda server: {}, ready=True, now=0.0, server=None, tokens=None)
        spent.append(time.process_time() - begun)
    return min(spent)


def test_it_is_made_from_memory_in_no_time() -> None:
    view = last_view("0.32.0-pressure")
    assert fastest([Watched("a", view)], 10) < 0.010
    many = [Watched(f"vllm-{index}", replace(view, server=f"vllm-{index}")) for index in range(500)]
    assert fastest(many, 5) < 0.100
