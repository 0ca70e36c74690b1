"""`replay`: a stand-in vLLM that plays a recording."""

from __future__ import annotations

import signal
from pathlib import Path

import click

from vllm_length_exporter.bell import Bell
from vllm_length_exporter.commands.option import option
from vllm_length_exporter.recording import Player, RecordingError, load
from vllm_length_exporter.standin import Faults, StandIn
from vllm_length_exporter.terminal import UnusableInput
from vllm_length_exporter.web.address import Address

PACKAGED = Path(__file__).parent.parent / "recordings"


def player(recording: str, *, loop: bool, start: float) -> Player:
    """A player of a packaged recording, by name, or of a file.

    Raises:
        UnusableInput: there is no such recording.
    """
    packaged = PACKAGED / f"{recording}.jsonl.gz"
    try:
        return Player(load(packaged if packaged.is_file() else Path(recording)), loop=loop, start=start)
    except RecordingError as error:
        names = ", ".join(sorted(path.name.removesuffix(".jsonl.gz") for path in PACKAGED.glob("*.jsonl.gz")))
        raise UnusableInput(f"{error}; packaged recordings: {names}") from error


@click.command()
@click.argument("recording")
@option(
    "--listen-address",
    default="127.0.0.1:8000",
    show_default=True,
    metavar="HOST:PORT",
    help="Where to serve; port 0 is any.",
)
@option(
    "--log", type=click.Path(path_type=Path, dir_okay=False), help="Append the server's log to this file."
)
@option(
    "--speed", type=click.FloatRange(0.01, 1000), default=1.0, show_default=True, help="How fast to play."
)
@option(
    "--start",
    type=click.FloatRange(0),
    default=0.0,
    show_default=True,
    help="Second to begin at.",
)
@option(
    "--loop/--once", default=True, show_default=True, help="Begin again at the end, with counters carried on."
)
@option(
    "--fault",
    "faults",
    multiple=True,
    metavar="KIND=VALUE",
    help="Let something go wrong: drop=SHARE of the answers, delay=DURATION of each, restart=DURATION; repeatable.",
)
def replay(
    recording: str,
    listen_address: str,
    log: Path | None,
    speed: float,
    start: float,
    loop: bool,
    faults: tuple[str, ...],
) -> None:
    """Play RECORDING (a file, or the name of a packaged one) as a stand-in vLLM."""
    try:
        wrong = Faults.parse(faults)
    except ValueError as error:
        raise UnusableInput(f"--fault: {error}") from error
    try:
        listen = Address.parse(listen_address)
        standin = StandIn(
            player(recording, loop=loop, start=start), listen.host, listen.port, log, speed, wrong
        )
    except (OSError, ValueError) as error:
        raise UnusableInput(
            f"--listen-address {listen_address}: {getattr(error, 'strerror', None) or error}"
        ) from error
    done = Bell()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: done.ring())
    standin.start()
    pages = len(standin.player.recording.pages)
    click.echo(
        f"playing {recording} on {standin.url}"
        if pages
        else f"playing {recording}: the server did not start, nothing listens",
        err=True,
    )
    done.wait()
    standin.stop()
