"""The command line: one file per command, nothing heavy imported before a command needs it."""

from __future__ import annotations

from typing import Annotated

import typer

import appulse
from appulse.cli.compact import compact
from appulse.cli.demo import demo
from appulse.cli.discover import discover
from appulse.cli.doctor import doctor
from appulse.cli.explain import explain
from appulse.cli.match import match
from appulse.cli.pack import pack
from appulse.cli.plan import plan
from appulse.cli.report import report
from appulse.cli.run import run
from appulse.cli.serve import serve
from appulse.cli.top import top
from appulse.cli.validate import validate
from appulse.cli.warm import warm

__all__ = ["app", "main"]

CODES = {
    0: "done",
    1: "failed",
    2: "a wrong argument or job file",
    3: "a job that does not fit",
    130: "stopped by Ctrl-C",
    143: "stopped by SIGTERM",
}

#: How each command is called, shown by its ``--help``.
EXAMPLES = {
    run: ("appulse run job.toml", "appulse run job.toml --drain --json > batches.jsonl"),
    serve: ("appulse serve job.toml", "appulse serve fences.toml encounters.toml --port 8765"),
    validate: ("appulse validate job.toml", "appulse validate job.toml --json"),
    plan: ("appulse plan job.toml", "appulse plan job.toml --rate 5000 --memory '8 GB' --cores 4"),
    top: ("appulse top checkpoint", "appulse top job.toml --once --json", "appulse top http://127.0.0.1:9464/metrics"),
    explain: ("appulse explain job.toml", "appulse explain job.toml --rows 100000"),
    match: (
        "appulse match fences.geojson fixes.parquet --key van --time t --position lat,lon --sigma 15 --probability 0.9",
        "appulse match rules.csv rows.csv --json",
    ),
    discover: ("appulse discover history.parquet --out rules.toml", "appulse discover history.csv --score"),
    report: (
        "appulse report out/cabs/pairs",
        "appulse report out/fences --out page.html --title Harbour",
        "appulse report out/smog --resolution 50 --unit km --value-unit ug/m3",
    ),
    demo: ("appulse demo", "appulse demo aircraft"),
    doctor: ("appulse doctor", "appulse doctor --deep --json"),
    pack: ("appulse pack appulse.tar.gz",),
    compact: ("appulse compact pairs", "appulse compact pairs --size 256 --json"),
    warm: ("appulse warm",),
}

app = typer.Typer(
    name="appulse",
    help="Join moving, uncertain things by distance and time, with exact probabilities.",
    epilog=f"Exit codes: {', '.join(f'{code} {meaning}' for code, meaning in CODES.items())}.\n\n"
    "appulse COMMAND --help shows examples. --install-completion completes commands and options in your shell.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
for command in (run, serve, validate, plan, top, explain, match, discover, report, demo, doctor, pack, compact, warm):
    shown = ["Examples:", *EXAMPLES[command]] if command in EXAMPLES else []
    app.command(epilog="\n\n".join(shown) or None)(command)


def _show_version(asked: bool) -> None:  # noqa: FBT001 - the signature of an option's callback
    if asked:
        typer.echo(f"appulse {appulse.version}")
        raise typer.Exit


@app.callback()
def options(
    *,
    version: Annotated[
        bool, typer.Option("--version", help="Show the version.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """Join moving, uncertain things by distance and time, with exact probabilities."""


def main() -> None:
    """Run the command line."""
    app()
