"""The command line: one group, its subcommands loaded when they are called."""

from __future__ import annotations

import importlib
import sys

import click

from vllm_length_exporter.build import exporter_version

# Each command's module is imported when it is used: `serve` need not wait for what `plan` needs.
COMMANDS = {
    "serve": "vllm_length_exporter.commands.serve:serve",
    "demo": "vllm_length_exporter.commands.demo:demo",
    "doctor": "vllm_length_exporter.commands.doctor:doctor",
    "explain": "vllm_length_exporter.commands.explain:explain",
    "plan": "vllm_length_exporter.planner.command:plan",
    "rules": "vllm_length_exporter.mixin.command:rules",
    "record": "vllm_length_exporter.commands.record:record",
    "replay": "vllm_length_exporter.commands.replay:replay",
}
SUMMARIES = {
    "serve": "Watch vLLM servers and serve their length series to Prometheus.",
    "demo": "Play a packaged recording of a real server, with the exporter on top.",
    "doctor": "The whole picture of one server, live or from files.",
    "explain": "An error message or log excerpt: cause, numbers, and what to change.",
    "plan": "What fits a model and a memory, and what it costs.",
    "rules": "Render alert rules from a file of thresholds.",
    "record": "Write a server's pages, answers and log to one file.",
    "replay": "Play a recording as a stand-in vLLM.",
}


class LazyGroup(click.Group):
    """A group that knows its commands' names and summaries without importing them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        target = COMMANDS.get(cmd_name)
        if target is None:
            return None
        module, _, name = target.partition(":")
        command: click.Command = getattr(importlib.import_module(module), name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl(list(SUMMARIES.items()))


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Every flag has an environment variable: --listen-address is VLLM_LENGTH_LISTEN_ADDRESS.",
)
@click.version_option(exporter_version(), prog_name="vllm-length-exporter")
def program() -> None:
    """How long a request a vLLM server takes, how many such requests fit, what it refuses or cuts, and why."""


def main() -> None:
    """Run the program; bad use ends with 2, and never with a traceback."""
    program.main(prog_name="vllm-length-exporter", args=sys.argv[1:])
