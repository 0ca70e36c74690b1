"""A real Alertmanager, and an address that it writes to."""

from __future__ import annotations

import contextlib
import http.server
import json
import threading
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.alerts import rendered
from tests.conftest import Tool
from tests.process import Process, free_port
from vllm_length_exporter.mixin.alertmanager import SECRETS, TEMPLATES


@dataclass
class Receiver:
    """An address that Alertmanager writes to, and what it wrote."""

    messages: list[dict[str, Any]] = field(default_factory=list)
    url: str = ""

    @property
    def alerts(self) -> list[dict[str, Any]]:
        return [alert for message in self.messages for alert in message.get("alerts", [message])]


@contextlib.contextmanager
def receiving() -> Iterator[Receiver]:
    """A receiver on a free port of the loopback."""
    kept = Receiver()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            kept.messages.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"ok")

        def log_message(self, *args: object) -> None:
            """Nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    kept.url = f"http://127.0.0.1:{server.server_port}/"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield kept
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


class Alertmanager:
    """A real one, with the configuration of ours, its secrets in a folder, and no waiting."""

    def __init__(
        self, tool: Tool, folder: Path, configuration: dict[str, Any], secrets: dict[str, str]
    ) -> None:
        self.url = f"http://127.0.0.1:{free_port()}"
        (folder / "secrets").mkdir(exist_ok=True)
        for name, text in secrets.items():
            (folder / "secrets" / name).write_text(text, encoding="utf-8")
        text = json.dumps(configuration).replace(SECRETS, str(folder / "secrets"))
        text = text.replace(TEMPLATES, str(rendered.ALERTS / "alertmanager" / "templates" / "*.tmpl"))
        loaded = json.loads(text)
        for route in (loaded["route"], *loaded["route"]["routes"]):
            route.update({"group_wait": "100ms", "group_interval": "1s"})
        (folder / "alertmanager.yml").write_text(json.dumps(loaded), encoding="utf-8")
        self.process = Process(
            [
                tool("alertmanager"), f"--config.file={folder / 'alertmanager.yml'}",
                f"--storage.path={folder / 'data'}", f"--web.listen-address={self.url.removeprefix('http://')}",
                "--cluster.listen-address=",
            ],
            folder / "alertmanager.log",
        )  # fmt: skip

    def ask(self, path: str, body: object = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            self.url + path, data=data, headers={"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=5) as answer:
            return json.loads(answer.read() or b"null")

    def wait(self) -> None:
        def ready() -> bool:
            with urllib.request.urlopen(self.url + "/-/ready", timeout=5) as answer:
                return bool(answer.status == 200)

        self.process.wait_until(ready, seconds=30, what="Alertmanager is ready", ignoring=(OSError,))
