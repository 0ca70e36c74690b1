"""The reference pages, made from the code: `python -m tests.docs.reference` writes them anew."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from vllm_length_exporter.cli import COMMANDS, program
from vllm_length_exporter.collectors.registry import METRICS, SUBJECTS
from vllm_length_exporter.derive.findings import RULES
from vllm_length_exporter.mixin.catalogue import WITHOUT_ALERT, every_alert

FOLDER = Path(__file__).parent.parent.parent / "docs"
MADE = "<!-- made from the code by `make generate`; do not edit -->\n"
WIDTH = 100


def metrics() -> str:
    """Every series with its type, labels and meaning, by subject."""
    lines = ["# Series", "", MADE]
    lines += [
        (
            f"{len(METRICS)} series, all with the prefix `vllm_length_`; all but `exporter_*` carry `server`. "
            "A number that its inputs do not determine is absent, and `vllm_length_unknown` names what is missing."
        ),
        "",
    ]
    for subject in SUBJECTS:
        lines += [
            f"## {(subject.__doc__ or '').split(chr(10))[0]}",
            "",
            "| series | type | labels | meaning |",
            "|---|---|---|---|",
        ]
        for metric in subject.METRICS:
            labels = ", ".join(f"`{label}`" for label in metric.label_names)
            lines.append(f"| `{metric.full_name}` | {metric.kind} | {labels} | {metric.help} |")
        lines.append("")
    return "\n".join(lines)


def commands() -> str:
    """Every command's own help."""
    lines = ["# Commands", "", MADE]
    # as `main` makes it, so that -h is shown whether or not a test ran the program before
    settings = {**program.context_settings, "max_content_width": WIDTH, "terminal_width": WIDTH}
    context = click.Context(program, info_name="vllm-length-exporter", **settings)
    for name in COMMANDS:
        command = program.get_command(context, name)
        assert command is not None, name
        inner = click.Context(
            command, info_name=name, parent=context, max_content_width=WIDTH, terminal_width=WIDTH
        )
        lines += [f"## {name}", "", "```", command.get_help(inner), "```", ""]
    return "\n".join(lines)


def findings() -> str:
    """Every finding with its severity, its alert or why it has none, and its runbook page."""
    of_finding: dict[str, dict[str, list[str]]] = {}
    for alert in every_alert():
        for name in alert.findings:
            of_finding.setdefault(name, {}).setdefault(alert.full_name, []).append(str(alert.severity))
    lines = ["# Findings", "", MADE, "| finding | severity | alert | runbook |", "|---|---|---|---|"]
    for name in dict.fromkeys(rule.id for rule in RULES):
        severities = ", ".join(dict.fromkeys(str(rule.severity) for rule in RULES if rule.id == name))
        pages = list(of_finding.get(name, ())) or [name]
        alerts = ", ".join(
            f"{alert} ({', '.join(dict.fromkeys(levels))})"
            for alert, levels in of_finding.get(name, {}).items()
        )
        links = ", ".join(f"[{page}](../alerts/runbooks/{page}.md)" for page in pages)
        lines.append(f"| `{name}` | {severities} | {alerts or f'none: {WITHOUT_ALERT[name]}'} | {links} |")
    return "\n".join([*lines, ""])


PAGES = {"metrics.md": metrics, "commands.md": commands, "findings.md": findings}

if __name__ == "__main__":
    for page, make in PAGES.items():
        (FOLDER / page).write_text(make())
        sys.stdout.write(f"docs/{page}\n")
