"""`demo`: a packaged recording of a real server under pressure, played, and the daemon on top."""

from __future__ import annotations

import tempfile
from pathlib import Path

import click

from vllm_length_exporter.commands.option import option
from vllm_length_exporter.commands.replay import player
from vllm_length_exporter.commands.serve import LISTEN_ADDRESS, run
from vllm_length_exporter.config import single_server
from vllm_length_exporter.standin import StandIn

POLL_INTERVAL = 1.0  # seconds: the recording's peaks are short


@click.command()
@option("--recording", default="pressure", show_default=True, help="A packaged recording's name, or a file.")
@option(
    "--listen-address",
    default=LISTEN_ADDRESS,
    show_default=True,
    metavar="HOST:PORT",
    help="Where to serve the exporter.",
)
@option(
    "--speed", type=click.FloatRange(0.01, 1000), default=1.0, show_default=True, help="How fast to play."
)
def demo(recording: str, listen_address: str, speed: float) -> None:
    """Play a recording of a real vLLM, again and again, with the exporter on top.

    The default is vLLM 0.32.0 with a small KV cache under load: limit 8192, 79 usable blocks of 128 tokens, up to 77
    of them in use, 27 preemptions each time round.
    """
    with tempfile.TemporaryDirectory(prefix="vllm-length-demo-") as folder:
        log = Path(folder) / "server.log"
        standin = StandIn(player(recording, loop=True, start=0.0), log=log, speed=speed)
        standin.start()
        try:
            run(
                lambda: single_server(
                    standin.url,
                    log=str(log),
                    name="demo",
                    listen_address=listen_address,
                    poll_interval=POLL_INTERVAL,
                )
            )
        finally:
            standin.stop()
