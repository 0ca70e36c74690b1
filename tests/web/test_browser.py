"""The status page in a real headless Chromium: as it looks, as it is used, and as it is heard."""

from __future__ import annotations

import math
import re
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Dialog, Page, expect, sync_playwright

from tests.conftest import missing
from tests.recorded import last_view
from tests.web.conftest import Listen
from tests.web.published import Daemon, application
from tests.web.test_page import HOSTILE
from vllm_length_exporter.derive.values import Finding, ServerView, Severity, State
from vllm_length_exporter.web.history import EVERY, SPAN
from vllm_length_exporter.web.watched import Point

pytestmark = pytest.mark.slow

WINDOWS = {
    "light": {"color_scheme": "light", "viewport": {"width": 1280, "height": 900}},
    "dark": {"color_scheme": "dark", "viewport": {"width": 1280, "height": 900}},
    "narrow": {"color_scheme": "light", "viewport": {"width": 360, "height": 740}},
    "narrow dark": {"color_scheme": "dark", "viewport": {"width": 360, "height": 740}},
}
READABLE = 4.5  # WCAG AA


def a_history(view: ServerView) -> dict[str, tuple[Point, ...]]:
    """Half an hour of engines that fill and empty, and preempt where they are full."""
    now, count = time.monotonic(), 0
    points = []
    for step in range(int(SPAN / EVERY)):
        usage = (math.sin(step / 12) + 1) / 2
        count += usage > 0.95
        points.append(Point(now - SPAN + step * EVERY, usage, count))
    return {row.engine: tuple(points) for row in view.pressure}


def many() -> list[ServerView]:
    view = last_view("0.32.0-pressure")
    states = (State.UP, State.UP, State.UP, State.FAILED, State.STARTING)
    return [replace(view, server=f"vllm-{index:03}:8000", state=states[index % 5]) for index in range(500)]


def hostile() -> ServerView:
    finding = Finding("preempting", Severity.WARNING, HOSTILE, HOSTILE, HOSTILE)
    return replace(last_view("0.32.0-pressure"), server=HOSTILE, model_name=HOSTILE, findings=(finding,))


def served(name: str) -> Daemon:
    """What there is to look at, by name."""
    if name == "no server":
        return Daemon()
    if name == "not tried yet":
        return Daemon(untried=["vllm:8000"], is_ready=False)
    if name == "five hundred servers":
        return Daemon(views=many(), untried=["last:8000"], is_ready=False)
    if name == "a hostile name":
        return Daemon(views=[hostile()])
    recordings = {
        "pressure": "0.32.0-pressure",
        "failed start": "0.32.0-kvtoosmall",
        "two engines": "0.32.0-dp2",
    }
    view = last_view(recordings[name])
    return Daemon(views=[view], histories={view.server: a_history(view)})


NAMES = (
    "pressure", "failed start", "two engines", "five hundred servers", "no server", "not tried yet", "a hostile name",
)  # fmt: skip


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    program = shutil.which("chromium")
    if program is None:
        missing("chromium", "apt-get install chromium, or run `make tools`")
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield running
        running.close()


@dataclass
class Seen:
    """What happened besides the page: complaints of the console and of the page's script, and where it asked."""

    complaints: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def note(self, dialog: Dialog) -> None:
        self.complaints.append(f"dialog: {dialog.message}")
        dialog.dismiss()


@contextmanager
def opened(browser: Browser, url: str, **options: object) -> Iterator[tuple[Page, Seen]]:
    context: BrowserContext = browser.new_context(**options)  # type: ignore[arg-type]
    page, seen = context.new_page(), Seen()
    page.on("console", lambda message: seen.complaints.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: seen.complaints.append(f"error: {error}"))
    page.on("dialog", seen.note)
    page.on("request", lambda request: seen.asked.append(request.url))
    try:
        page.goto(url)
        yield page, seen
    finally:
        context.close()


# The lowest contrast of a text with what is behind it, and that text.
CONTRAST = """() => {
  const parts = (color) => color.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((c) => c / 255)
    .map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const color = parts(getComputedStyle(at).backgroundColor);
      if (color.length < 4 || color[3] > 0) return color;
    }
    return [255, 255, 255];
  };
  let worst = [21, ""];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const text = walker.currentNode.data.trim(), element = walker.currentNode.parentElement;
    if (!text || element.closest(".unseen, script")) continue;
    const pair = [light(parts(getComputedStyle(element).color)), light(ground(element))].sort((a, b) => b - a);
    const ratio = (pair[0] + 0.05) / (pair[1] + 0.05);
    if (ratio < worst[0]) worst = [ratio, text];
  }
  return worst;
}"""
# Text that is wider than its box and cut, or that lies over other text of the same table row.
OVERLAPS = """() => [...document.querySelectorAll("tr")].flatMap((row) => {
  const cells = [...row.children].filter((cell) => cell.offsetParent);
  const edges = cells.map((cell) => cell.getBoundingClientRect());
  return cells.filter((cell, i) => i && edges[i].left < edges[i - 1].right - 1).map((cell) => cell.textContent);
})"""


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("name", NAMES)
def test_it_is_readable_and_quiet(
    browser: Browser, listen: Listen, tmp_path: Path, name: str, window: str
) -> None:
    url = listen(application(served(name))).url
    with opened(browser, url, **WINDOWS[window]) as (page, seen):
        expect(page.locator("h1")).to_be_visible()
        every = 15 if name == "five hundred servers" else 5
        expect(page.get_by_role("status")).to_have_text(f"Refreshed every {every} s")
        assert page.evaluate("document.scrollingElement.scrollWidth <= innerWidth"), "wider than its window"
        ratio, text = page.evaluate(CONTRAST)
        assert ratio >= READABLE, f"{text!r} has a contrast of {ratio:.2f}"
        assert page.evaluate(OVERLAPS) == []
        page.screenshot(path=tmp_path / "page.png", full_page=True)
        assert seen.complaints == []
        assert all(asked.startswith(url) for asked in seen.asked), seen.asked


def test_every_control_has_a_name_and_headings_are_in_order(browser: Browser, listen: Listen) -> None:
    for name in NAMES:
        with opened(browser, listen(application(served(name))).url) as (page, _):
            assert page.locator("html").get_attribute("lang") == "en"
            for role in ("link", "button", "textbox", "img", "region", "navigation"):
                everything = page.get_by_role(role)
                named = page.get_by_role(role, name=re.compile(r"\S"))
                assert named.count() == everything.count(), f"a {role} of {name} has no name"
            levels = page.evaluate(
                '[...document.querySelectorAll("h1,h2,h3")].map((h) => Number(h.localName[1]))'
            )
            assert levels[0] == 1
            assert all(after <= before + 1 for before, after in pairwise(levels))
            assert page.locator("[style]").count() == 0


def test_from_the_fleet_to_one_server_and_its_answer_by_mouse(browser: Browser, listen: Listen) -> None:
    recorded = {"a:8000": "0.32.0-pressure", "b:8000": "0.32.0-kvtoosmall"}
    views = [replace(last_view(name), server=server) for server, name in recorded.items()]
    with opened(browser, listen(application(Daemon(views=views))).url) as (page, seen):
        rows = page.get_by_role("row")
        expect(rows.nth(1)).to_contain_text("b:8000")  # the failed one is first
        page.get_by_role("link", name="a:8000").click()
        expect(page.get_by_role("heading", level=1)).to_contain_text("a:8000")
        page.get_by_label("Tokens a request").fill("1,024")
        page.get_by_role("button", name="Count").click()
        expect(page.get_by_text("9 whole requests of 1,024 tokens fit at once")).to_be_visible()
        expect(page.get_by_role("heading", level=1)).to_contain_text("a:8000")
        page.get_by_label("Tokens a request").fill("many")
        page.get_by_role("button", name="Count").click()
        expect(page.get_by_role("alert")).to_contain_text("expected a whole number of tokens")
        page.get_by_role("link", name="All servers").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("Servers")
        page.get_by_role("link", name="b:8000").click()
        expect(page.get_by_text("the KV cache is too small for one request of the limit")).to_be_visible()
        assert seen.complaints == []


def test_the_same_by_keyboard_alone_and_without_a_script(browser: Browser, listen: Listen) -> None:
    views = [replace(last_view("0.32.0-pressure"), server=name) for name in ("a:8000", "b:8000")]
    url = listen(application(Daemon(views=views))).url
    with opened(browser, url, java_script_enabled=False) as (page, seen):
        for _ in range(20):
            page.keyboard.press("Tab")
            if page.locator(":focus").inner_text() == "b:8000":
                break
        outline = page.locator(":focus")
        expect(outline).to_have_text("b:8000")
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", level=1)).to_contain_text("b:8000")
        page.get_by_label("Tokens a request").focus()
        page.keyboard.press("Control+A")
        page.keyboard.type("2048")
        page.keyboard.press("Enter")
        expect(page.get_by_text("4 whole requests of 2,048 tokens fit at once")).to_be_visible()
        expect(page.get_by_role("status")).to_have_text("")
        assert not any(asked.endswith(".js") for asked in seen.asked)


def test_a_hostile_name_stays_text(browser: Browser, listen: Listen) -> None:
    with opened(browser, listen(application(served("a hostile name"))).url) as (page, seen):
        expect(page.get_by_role("heading", level=1)).to_contain_text(HOSTILE)
        page.clock.install()
        page.reload()
        page.clock.run_for(6000)  # what the script puts in place is text too
        expect(page.get_by_role("heading", level=1)).to_contain_text(HOSTILE)
        assert page.locator("main script, main b").count() == 0
        assert seen.complaints == []


class TestRefresh:
    """The page's clock is the test's: a refresh takes no waiting."""

    @pytest.fixture
    def daemon(self) -> Daemon:
        return Daemon(
            views=[replace(last_view("0.32.0-pressure"), server=name) for name in ("a:8000", "b:8000")]
        )

    @contextmanager
    def watched(self, browser: Browser, url: str) -> Iterator[tuple[Page, Callable[[], None]]]:
        with opened(browser, "about:blank") as (page, seen):
            page.clock.install()
            page.goto(url)

            def later() -> None:
                page.clock.run_for(5100)

            yield page, later
            assert [text for text in seen.complaints if "ERR_CONNECTION" not in text] == []

    def test_what_changed_is_shown_and_the_focus_is_kept(
        self, browser: Browser, listen: Listen, daemon: Daemon
    ) -> None:
        with self.watched(browser, listen(application(daemon)).url) as (page, later):
            page.get_by_role("link", name="b:8000").focus()
            first, second = daemon.views
            daemon.views = [replace(first, state=State.FAILED), second]
            later()
            expect(page.get_by_role("row").filter(has_text="a:8000")).to_contain_text("failed")
            expect(page.get_by_role("link", name="b:8000")).to_be_focused()

    def test_who_types_is_not_disturbed(self, browser: Browser, listen: Listen, daemon: Daemon) -> None:
        url = listen(application(daemon)).url + "/?server=a:8000"
        with self.watched(browser, url) as (page, later):
            page.get_by_label("Tokens a request").fill("30")
            later()
            page.keyboard.type("00")
            expect(page.get_by_label("Tokens a request")).to_have_value("3000")

    def test_an_exporter_that_is_gone_is_said(self, browser: Browser, listen: Listen, daemon: Daemon) -> None:
        listener = listen(application(daemon))
        with self.watched(browser, listener.url) as (page, later):
            listener.stop()
            later()
            expect(page.get_by_role("status")).to_contain_text("Not reachable; as of")
            expect(page.get_by_role("link", name="a:8000")).to_be_visible()
