"""A stand-in for a pager: prints what Alertmanager's webhook sends, one line an alert."""

from __future__ import annotations

import json
import os
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

PORT = int(os.environ.get("PAGER_PORT", "9833"))
LARGEST = 1 << 20  # bytes


class Pager(BaseHTTPRequestHandler):
    """POST / takes a message, GET / says that somebody is there."""

    def do_GET(self) -> None:
        self._answer(200)

    def do_POST(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        try:
            message = json.loads(self.rfile.read(min(length, LARGEST)))
            lines = [line(alert) for alert in message["alerts"]]
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            print(f"not a message of Alertmanager: {error!r}", file=sys.stderr, flush=True)
            self._answer(400)
            return
        print("\n".join(lines), flush=True)
        self._answer(200)

    def _answer(self, status: int) -> None:
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class calls it so
        """Health checks are no news."""


def line(alert: dict[str, Any]) -> str:
    """`PAGE firing VLLMLengthServerDown: ...`, with the numbers and the first thing to do."""
    labels, notes = alert["labels"], alert["annotations"]
    how = {"critical": "PAGE", "warning": "TICKET"}.get(labels.get("severity", ""), "NOTE")
    parts = (
        notes.get("description", ""),
        notes.get("context", ""),
        f"First: {notes.get('action', '')}",
        notes.get("runbook_url", ""),
    )
    return (
        f"{how} {alert['status']} {labels.get('alertname', '')}: {' '.join(part for part in parts if part)}"
    )


if __name__ == "__main__":
    server = ThreadingHTTPServer(("0.0.0.0", PORT), Pager)  # noqa: S104 - within the compose network only
    print(f"pager listens on {server.server_port}", flush=True)
    server.serve_forever()
