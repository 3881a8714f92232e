"""``appulse serve``: jobs with a page that shows what happens while it happens."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from appulse.cli.console import errors_reported
from appulse.cli.fitting import must_fit
from appulse.cli.here import carry_out_here
from appulse.cli.run import carry_out, must_have_input
from appulse.cli.running import Stretch
from appulse.engines.spark.installation import need_spark
from appulse.errors import JobError

__all__ = ["serve"]


def serve(
    jobs: Annotated[list[Path], typer.Argument(metavar="JOB.toml...", help="Job files.", show_default=False)],
    *,
    port: Annotated[int, typer.Option(help="Port of the page; 0 for any free port.")] = 0,
    page: Annotated[bool, typer.Option("--page/--no-page", help="Whether to serve the page.")] = True,
    once: Annotated[bool, typer.Option("--once", help="Process the rows that are available now, then end.")] = False,
    drain: Annotated[
        bool, typer.Option("--drain", help="The same, and end the streams: the checkpoint is closed.")
    ] = False,
    checkpoint: Annotated[
        str | None, typer.Option(help="Checkpoint folder, in place of the job's.", show_default=False)
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object per write on stdout.")] = False,
) -> None:
    """Run jobs with a live page: several in this process, or one on Spark. Ctrl-C stops them."""
    console = Console(file=sys.stderr if json else sys.stdout, highlight=False)
    with errors_reported(console):
        from appulse.jobs import load

        checked = [load(path) for path in jobs]
        if checkpoint is not None and len(checked) > 1:
            raise JobError(
                f"--checkpoint is of one job, and there are {len(checked)}. Name checkpoints in their files."
            )
        on_spark = next((job for job in checked if job.table.engine != "local"), None)
        if on_spark is not None and len(checked) > 1:
            raise JobError(f"{on_spark.file} runs on Spark, and is served alone. Serve it by a command of its own.")
        for job in checked:
            must_fit(job, console)
    own, stretch = port if page else None, Stretch(once, drain, checkpoint)
    if on_spark is not None:
        with errors_reported(console):
            need_spark()
            must_have_input(on_spark)
        carry_out(on_spark, console, {}, stretch, json=json, port=own)
        return
    carry_out_here(checked, console, stretch, port=own, json=json)
