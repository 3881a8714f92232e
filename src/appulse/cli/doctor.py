"""``appulse doctor``: what was found on this machine, and what is wrong."""

from __future__ import annotations

import json as js
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape

from appulse.cli.console import FAILED, errors_reported

if TYPE_CHECKING:
    from collections.abc import Sequence

    from appulse.engines.spark.doctor import Finding

__all__ = ["doctor"]

_STYLES = {"ok": "green", "advice": "yellow", "wrong": "bold red"}


def doctor(
    *,
    deep: Annotated[bool, typer.Option("--deep", help="Also start Spark and run a small stateful query.")] = False,
    json: Annotated[bool, typer.Option("--json", help="A JSON list of findings on stdout.")] = False,
) -> None:
    """Check the installation: Python, Java, Spark and cores."""
    from appulse.engines.spark.doctor import examine

    console = Console(highlight=False)
    with errors_reported(console):
        findings = examine(deep=deep)
    if json:
        typer.echo(js.dumps([asdict(finding) for finding in findings]))
    else:
        _show(console, findings)
    if any(finding.state == "wrong" for finding in findings):
        raise typer.Exit(FAILED)


def _show(console: Console, findings: Sequence[Finding]) -> None:
    width = max(len(finding.name) for finding in findings)
    for finding in findings:
        state = f"[{_STYLES.get(finding.state, 'default')}]{finding.state:<6}[/]"
        console.print(f"{state}  {escape(finding.name):<{width}}  {escape(finding.found)}", soft_wrap=True)
        if finding.state != "ok" and finding.remedy:
            console.print(f"{'':<{width + 10}}{escape(finding.remedy)}", soft_wrap=True)
