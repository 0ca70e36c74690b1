"""`serve`: the daemon."""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path

import click

from vllm_length_exporter import report
from vllm_length_exporter.build import exporter_version
from vllm_length_exporter.commands.option import option
from vllm_length_exporter.config import (
    Config,
    ConfigError,
    LogFormat,
    LogLevel,
    load,
    missing_files,
    single_server,
)
from vllm_length_exporter.daemon import Daemon
from vllm_length_exporter.journal import set_up
from vllm_length_exporter.memory import give_back_large_buffers, share_one_heap
from vllm_length_exporter.resume import ResumeError
from vllm_length_exporter.terminal import UnusableInput
from vllm_length_exporter.watches import make_watches
from vllm_length_exporter.web.application import Application
from vllm_length_exporter.web.listener import Listener, ListenError

LISTEN_ADDRESS = "0.0.0.0:9832"

# Flags of the one server; with --config they are keys of each server in the file.
OF_A_SERVER = (
    "log", "name", "bearer_token_file", "bearer_token_env", "ca_file", "client_cert_file", "client_key_file",
    "timeout", "model_config",
)  # fmt: skip

logger = logging.getLogger(__name__)


@click.command()
@option(
    "--config",
    "config_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Watch the servers of a YAML file.",
)
@option("--server", "url", metavar="URL", help="Watch one server, for example http://127.0.0.1:8000.")
@option("--log", metavar="PATH", help="That server's log; - is standard input.")
@option("--name", metavar="NAME", help="What to call that server; default: its host:port.")
@option("--bearer-token-file", metavar="FILE", help="File with that server's API key.")
@option("--bearer-token-env", metavar="NAME", help="Environment variable with that server's API key.")
@option("--ca-file", metavar="FILE", help="CA certificates to trust for that server.")
@option("--client-cert-file", metavar="FILE", help="Client certificate to show that server.")
@option("--client-key-file", metavar="FILE", help="Its key, where it is not in the same file.")
@option("--timeout", metavar="DURATION", help="How long an answer of that server may take.  [default: 5s]")
@option("--model-config", metavar="FILE", help="The model's config.json, for its window.")
@option("--listen-address", metavar="HOST:PORT", help=f"Where to serve.  [default: {LISTEN_ADDRESS}]")
@option("--poll-interval", metavar="DURATION", help="How often to ask each server.  [default: 5s]")
@option("--window", metavar="DURATION", help="What rates and shares cover.  [default: 5m]")
@option("--workload-window", metavar="DURATION", help="What workload quantiles cover.  [default: 1h]")
@option(
    "--state-dir",
    metavar="DIR",
    help="Keep log positions and log counters here over restarts of the exporter.",
)
@option(
    "--web-config-file",
    metavar="FILE",
    help="TLS and authentication of our own port.",
)
@option("--web-enable-lifecycle/--no-web-enable-lifecycle", default=None, help="Allow POST /-/reload.")
@option(
    "--log-level",
    type=click.Choice([str(level) for level in LogLevel]),
    help="What of our own log to write.  [default: info]",
)
@option(
    "--log-format",
    type=click.Choice([str(shape) for shape in LogFormat]),
    help="How to write it.  [default: logfmt]",
)
@click.option("--check-config", is_flag=True, help="Check the configuration and end.")
def serve(config_file: str | None, url: str | None, *, check_config: bool, **flags: object) -> None:
    """Watch vLLM servers and serve their length series at /metrics.

    Give --server for one server, or --config for many. SIGHUP reads the configuration again.
    """
    if (config_file is None) == (url is None):
        raise UnusableInput("give either --server URL or --config FILE")
    if config_file is not None:
        alone = next((name for name in OF_A_SERVER if flags[name] is not None), None)
        if alone is not None:
            raise UnusableInput(
                f"--{alone.replace('_', '-')} goes with --server; in {config_file} it is a key of each server"
            )
        general = {name: value for name, value in flags.items() if name not in OF_A_SERVER}
        read: Callable[[], Config] = partial(load, Path(config_file), **general)
    else:
        assert url is not None
        read = partial(single_server, url, **flags)  # type: ignore[arg-type]  # checked there, flag by flag
    if check_config:
        check(read)
    else:
        run(read)


def check(read: Callable[[], Config]) -> None:
    """Say whether the configuration can be used."""
    try:
        config = read()
    except ConfigError as error:
        raise UnusableInput(str(error)) from error
    faults = missing_files(config)
    if faults:
        raise UnusableInput(faults[0])
    click.echo(f"the configuration is good: {len(config.servers)} server(s)")


def run(read: Callable[[], Config]) -> None:
    """The daemon with its web surface, until SIGTERM or SIGINT."""
    give_back_large_buffers()
    share_one_heap()
    try:
        config = read()
        set_up(config.log_level, config.log_format)
        daemon = Daemon(
            partial(make_watches, read), poll_interval=config.poll_interval, state_dir=config.state_dir
        )
        application = Application(
            daemon,
            status_json=lambda: report.as_json(daemon.statuses()),
            lifecycle=config.web_enable_lifecycle,
        )
        listener = Listener(application, config.listen_address, config.web_config_file)
    except (ConfigError, ResumeError, ListenError) as error:
        raise UnusableInput(str(error)) from error
    signal.signal(signal.SIGHUP, lambda *_: daemon.ask_reload())
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: daemon.stop())
    listener.start()
    logger.info(
        "serving",
        extra={"address": listener.address, "version": exporter_version(), "servers": len(config.servers)},
    )
    try:
        daemon.run()
    finally:
        listener.stop()
