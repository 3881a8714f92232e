"""The command line: one file per command, nothing heavy imported before a command needs it."""

from __future__ import annotations

from typing import Annotated

import typer

import appulse
from appulse.cli.demo import demo
from appulse.cli.discover import discover
from appulse.cli.doctor import doctor
from appulse.cli.match import match
from appulse.cli.pack import pack
from appulse.cli.plan import plan
from appulse.cli.report import report
from appulse.cli.run import run
from appulse.cli.validate import validate

__all__ = ["app", "main"]

app = typer.Typer(
    name="appulse",
    help="Exact probabilistic joins over streams nobody can fully trust.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for command in (run, validate, plan, match, discover, report, demo, doctor, pack):
    app.command()(command)


def _tell_version(asked: bool) -> None:  # noqa: FBT001 - the signature of an option's callback
    if asked:
        typer.echo(f"appulse {appulse.version}")
        raise typer.Exit


@app.callback()
def options(
    *,
    version: Annotated[
        bool, typer.Option("--version", help="Say which version this is.", callback=_tell_version, is_eager=True)
    ] = False,
) -> None:
    """Exact probabilistic joins over streams nobody can fully trust."""


def main() -> None:
    """Run the command line."""
    app()
