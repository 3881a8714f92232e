"""``appulse run``: a job file on Spark, with progress."""

from __future__ import annotations

import json as js
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.live import Live
from rich.text import Text

from appulse.cli.console import errors_reported, warnings_shown
from appulse.cli.fitting import must_fit
from appulse.cli.following import ProgressFile, progress_file
from appulse.cli.here import carry_out_here
from appulse.cli.running import Stretch, gone_with_its_jvm, interrupts, log_file, same_command, stderr_to, watch
from appulse.engines.spark.installation import need_spark
from appulse.errors import BadArgument, JobError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql import SparkSession

    from appulse.cli.progress import Batch, Totals
    from appulse.jobs import Job
    from appulse.jobs.watching import Watcher

__all__ = ["carry_out", "must_have_input", "run"]


def run(
    job: Annotated[Path, typer.Argument(metavar="JOB.toml", help="The job file.", show_default=False)],
    *,
    once: Annotated[bool, typer.Option("--once", help="Process the rows that are available now, then end.")] = False,
    drain: Annotated[
        bool, typer.Option("--drain", help="The same, and end the streams: the checkpoint is closed.")
    ] = False,
    master: Annotated[str | None, typer.Option(help="Spark master; default: this machine.", show_default=False)] = None,
    checkpoint: Annotated[
        str | None, typer.Option(help="Checkpoint folder, in place of the job's.", show_default=False)
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object per micro-batch on stdout.")] = False,
    prometheus: Annotated[
        str | None,
        typer.Option(metavar="PORT", help="On Spark: serve metrics to Prometheus on this port, or on host:port."),
    ] = None,
    conf: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="A setting of Spark; may be repeated.")
    ] = None,
    packages: Annotated[
        str | None, typer.Option(help="Maven packages that Spark loads, separated by commas.", show_default=False)
    ] = None,
    jars: Annotated[
        str | None, typer.Option(help="Jar files that Spark loads, separated by commas.", show_default=False)
    ] = None,
) -> None:
    """Run a job, with progress. Ctrl-C and SIGTERM stop it; the same command continues it."""
    console = Console(file=sys.stderr if json else sys.stdout, highlight=False)  # named now: stderr is the log later
    with errors_reported(console):
        from appulse.jobs import load

        checked = load(job)
        here = checked.table.engine == "local"
        of_spark = {"master": master, "conf": conf, "packages": packages, "jars": jars, "prometheus": prometheus}
        if not here:
            need_spark()
        elif given := [name for name, value in of_spark.items() if value]:
            raise BadArgument(f"--{given[0]} is for Spark, and {job} has engine = 'local'. Leave it out.")
        must_have_input(checked)
        must_fit(checked, console)
        settings = _settings(conf or [], {"master": master, "jars.packages": packages, "jars": jars})
    if here:
        carry_out_here([checked], console, Stretch(once, drain, checkpoint), json=json)
        return
    carry_out(checked, console, settings, Stretch(once, drain, checkpoint), json=json, prometheus=prometheus)


def carry_out(
    job: Job,
    console: Console,
    settings: dict[str, Any],
    stretch: Stretch,
    *,
    json: bool = False,
    prometheus: str | None = None,
    port: int | None = None,
) -> Totals:
    """Run a job to its end on a session with some settings, showing each batch; ``port`` is that of a page.

    Exits with 130 on Ctrl-C and with 143 on SIGTERM, once the query has stopped.
    """
    once, drain, _ = stretch
    checkpoint = stretch.checkpoint or job.checkpoint
    with errors_reported(console):
        if checkpoint is None:
            raise JobError(f'{job.file} names no checkpoint. Add checkpoint = "folder" to it, or give --checkpoint.')
        log = log_file(checkpoint)
    line = Live(console=console, transient=True, redirect_stdout=False, redirect_stderr=False)
    _say(line, "starting Spark")
    begin = time.perf_counter()
    progress = ProgressFile(progress_file(checkpoint))

    def show(batch: Batch) -> None:
        progress.add(batch)
        if watcher is not None:
            watcher.measured(batch.rows, batch.metrics)
        if json:
            typer.echo(js.dumps(batch.as_dict()))
        elif console.is_terminal:
            _say(line, str(batch))
        else:
            console.print(str(batch), soft_wrap=True, markup=False)

    with (
        errors_reported(console, log),
        stderr_to(log),
        line,
        warnings_shown(console),
        _session(settings) as spark,
        interrupts() as asked_to_stop,
    ):
        from appulse.jobs import run as start

        with _served(spark, prometheus, console, job.file.stem), _page(job, port, console) as watcher:
            _say(line, "starting the query")
            query = start(job, spark, once=once, drain=drain, checkpoint=checkpoint, watcher=watcher)
            if not (once or drain):
                console.print("Running until Ctrl-C; new files are taken as they come.")
            totals = watch(query, show, asked_to_stop)
    outcome = f"{totals}, in {time.perf_counter() - begin:.1f} s."
    if asked_to_stop.is_set():
        resume = same_command([job], stretch, {"json": json, "prometheus": prometheus, "port": port}, settings)
        console.print(f"Stopped after {outcome} To go on from there:  {resume}", soft_wrap=True, markup=False)
        raise typer.Exit(asked_to_stop.exit_code)
    console.print(f"Done: {outcome} Answers: {job.answers}", soft_wrap=True, markup=False)
    return totals


def _settings(conf: Sequence[str], options: Mapping[str, str | None]) -> dict[str, Any]:
    """Settings of Spark from NAME=VALUE, and from options that have a short name."""
    settings = {f"spark.{name}": value for name, value in options.items() if value is not None}
    for given in conf:
        name, equals, value = given.partition("=")
        if not equals:
            raise BadArgument(f"--conf {given} has no value. Give --conf NAME=VALUE, such as spark.executor.memory=4g.")
        if settings.setdefault(name.strip(), value) != value:
            raise BadArgument(f"--conf {given}: {name.strip()} is given twice, also as {settings[name.strip()]}.")
    return settings


def _say(line: Live, text: str) -> None:
    line.update(Text(text, no_wrap=True, overflow="ellipsis"))


@contextmanager
def _session(settings: dict[str, Any]) -> Iterator[SparkSession]:
    """The session that runs already, or one for as long as it is needed."""
    import appulse as ap
    from appulse.engines.spark.session import is_running

    ours = not is_running()
    spark: SparkSession = ap.session(**settings)
    try:
        yield spark
    finally:
        if ours:
            with gone_with_its_jvm():
                spark.stop()


@contextmanager
def _page(job: Job, port: int | None, console: Console) -> Iterator[Watcher | None]:
    """The page of a job while it runs, if it has a port, and what shows the job there."""
    if port is None:
        yield None
        return
    from appulse.connect.page_server import PageServer
    from appulse.jobs.live import Board
    from appulse.jobs.watching import Watcher
    from appulse.report.live_page import live_page

    title = job.file.stem
    board = Board([job], title)
    with PageServer(live_page(title), board.feed, port) as server:
        console.print(f"The page: {server.address}", soft_wrap=True, markup=False)
        yield Watcher(board, 0, job)


@contextmanager
def _served(spark: SparkSession, prometheus: str | None, console: Console, name: str) -> Iterator[None]:
    """Figures for Prometheus while a job runs, if a port was given."""
    from appulse.engines.spark.metrics import listen

    if prometheus is None:
        yield
        return
    with listen(spark, prometheus=prometheus, name=name) as listening:
        console.print(f"Figures for Prometheus: {listening.address}", soft_wrap=True)
        yield


def must_have_input(job: Job) -> None:
    """Raise `JobError` where a source has no files and cannot wait for any, or the environment lacks what it takes."""
    if problems := job.unset():
        raise JobError(f"{job.file} cannot run:" + "".join(f"\n  {problem}" for problem in problems))
    if missing := [one for one in job.missing() if not job.waits_for(one.where.removesuffix(".path"))]:
        listed = "".join(f"\n  {problem}" for problem in missing)
        hint = f"\nPrepare it first:  {job.table.prepare}" if job.table.prepare else ""
        raise JobError(f"{job.file} has no input:{listed}{hint}")
