"""`python -m tests.web.pictures`: the status page of real daemons on played recordings, into docs/pictures/status."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

from playwright.sync_api import sync_playwright

from tests.live.daemon import Daemon
from tests.process import free_port
from tests.recorded import recording
from tests.tools.cache import PROJECT
from tests.web.test_browser import WINDOWS
from vllm_length_exporter.recording import Player
from vllm_length_exporter.standin import StandIn

FOLDER = PROJECT / "docs" / "pictures" / "status"
FLEET = {
    "chat-a:8000": "0.32.0-pressure", "chat-b:8000": "0.32.0-explicit4096", "long:8000": "0.32.0-kvtoosmall",
    "old:8000": "0.16.0-pressure", "two-engines:8000": "0.32.0-dp2",
}  # fmt: skip
PICTURES = {  # name: path and window
    "fleet": ("/", "light"),
    "pressure": ("/?server=chat-a:8000&tokens=3000", "light"),
    "pressure-dark": ("/?server=chat-a:8000", "dark"),
    "two-engines": ("/?server=two-engines:8000", "light"),
    "failed-start-narrow": ("/?server=long:8000", "narrow dark"),
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.web.pictures", description=__doc__)
    parser.add_argument(
        "--minutes", type=float, default=30, help="how long to play before (default: %(default)s)"
    )
    minutes = parser.parse_args().minutes
    program = shutil.which("chromium")
    if program is None:
        print("tests.web.pictures: chromium is missing: apt-get install chromium", file=sys.stderr)
        return 1
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        standins, rows = [], []
        for index, (server, name) in enumerate(FLEET.items()):
            log = folder / f"{index}.log"
            standins.append(StandIn(Player(recording(name), loop=True), log=log, port=free_port()))
            rows.append({"name": server, "url": standins[-1].url, "log": str(log)})
            standins[-1].start()
        config = folder / "exporter.json"
        config.write_text(json.dumps({"poll_interval": "1s", "servers": rows}))
        try:
            with Daemon(folder / "daemon.log", "--config", str(config)) as daemon:
                end = time.monotonic() + minutes * 60
                daemon.wait_until(
                    partial(_has_come, end),
                    seconds=minutes * 60 + 5,
                    what="the recordings have played",
                    every=1,
                )
                take(program, daemon.base_url)
        finally:
            for standin in standins:
                standin.stop()
    return 0


def take(program: str, url: str) -> None:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        for name, (path, window) in PICTURES.items():
            context = browser.new_context(**WINDOWS[window])  # type: ignore[arg-type]
            page = context.new_page()
            page.goto(url + path)
            page.screenshot(path=FOLDER / f"{name}.png", full_page=True)
            context.close()
        browser.close()


def _has_come(moment: float) -> bool:
    return time.monotonic() >= moment


if __name__ == "__main__":
    sys.exit(main())
