"""Jobs in this process, with progress and perhaps a page."""

from __future__ import annotations

import json as js
import time
from contextlib import ExitStack
from threading import Thread
from typing import TYPE_CHECKING, Any

import typer

from appulse.cli.console import errors_reported, refused, warnings_shown
from appulse.cli.following import ProgressFile, progress_file
from appulse.cli.progress import Batch
from appulse.cli.running import interrupts, same_command

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rich.console import Console

    from appulse.cli.running import StopSignal, Stretch
    from appulse.jobs import Job
    from appulse.jobs.resident import Resident, Summary

__all__ = ["carry_out_here"]

_LOOK_EVERY = 0.1  # seconds
#: Seconds that rows at hand have to be answered in after a signal; a checkpoint has them for the next run.
_PATIENCE = 10.0
_NOT_KEPT = "The rejects were not written: add a table [rejects] to the job."
_ANEW = 'The next run begins anew: add checkpoint = "folder" to the job to go on from where it was.'


def carry_out_here(
    jobs: Sequence[Job],
    console: Console,
    stretch: Stretch,
    *,
    port: int | None = None,
    json: bool = False,
) -> None:
    """Run jobs in this process to their end, or until asked to stop; ``port`` is that of a page.

    Exits with 130 on Ctrl-C and with 143 on SIGTERM, at the latest after some seconds.
    """
    begun = time.perf_counter()
    with errors_reported(console), warnings_shown(console), interrupts() as asked_to_stop, ExitStack() as stack:
        from appulse.jobs.live import Board
        from appulse.jobs.resident import Resident

        residents = [Resident(job, checkpoint=stretch.checkpoint) for job in jobs]
        if port is not None:
            from appulse.connect.page_server import PageServer
            from appulse.report.live_page import live_page

            title = ", ".join(job.file.stem for job in jobs)
            board = Board(jobs, title)
            for number, resident in enumerate(residents):
                resident.on_step = board.watcher(number, resident)
            server = stack.enter_context(PageServer(live_page(title), board.feed, port))
            console.print(f"The page: {server.address}", soft_wrap=True, markup=False)
        for resident in residents:
            resident.on_write = _shower(resident, console, json=json, several=len(jobs) > 1)
        failed = _run_all(residents, asked_to_stop, stretch, console, stay=port is not None)
        if failed is not None:
            raise failed
    seconds, stopped = time.perf_counter() - begun, asked_to_stop.is_set()
    if not stopped or len(residents) > 1:
        for resident in residents:
            console.print(f"{_sums(resident)}. Answers: {resident.job.answers}", soft_wrap=True, markup=False)
            if resident.reasons and resident.job.table.rejects is None:
                console.print(_NOT_KEPT, soft_wrap=True, markup=False)
    if stopped:
        outcome = f"{_sums(residents[0])}, in {seconds:.1f} s." if len(jobs) == 1 else f"{seconds:.1f} s."
        resume = same_command(jobs, stretch, {"json": json, "port": port})
        then = f"To go on from there:  {resume}" if all(one.checkpoint for one in residents) else _ANEW
        console.print(f"Stopped after {outcome} {then}", soft_wrap=True, markup=False)
        raise typer.Exit(asked_to_stop.exit_code)
    console.print(f"Ended after {seconds:.1f} s.")


def _run_all(
    residents: Sequence[Resident], stop: StopSignal, stretch: Stretch, console: Console, *, stay: bool
) -> BaseException | None:
    """Run each in a thread of its own until all have ended; the first failure stops the others.

    After a signal they have some seconds. Then they are left, and end with the process: at any moment they may be.
    """
    failures: list[BaseException] = []
    once, drain, _ = stretch

    def run(resident: Resident) -> None:
        try:
            resident.run(stop, once=once, drain=drain, stay=stay and not (once or drain))
        except BaseException as error:  # noqa: BLE001 - raised by the thread that waits
            failures.append(error)

    threads = [Thread(target=run, args=(one,), name=f"appulse-{one.job.file.stem}", daemon=True) for one in residents]
    for thread in threads:
        thread.start()
    until: float | None = None
    while any(thread.is_alive() for thread in threads):
        if failures and not stop.is_set():
            stop.set()
        if stop.number and until is None:
            until = time.monotonic() + _PATIENCE
        if until is not None and time.monotonic() > until:
            console.print(f"Rows at hand were not answered within {_PATIENCE:g} s, and are left for the next run.")
            break
        for thread in threads:
            thread.join(_LOOK_EVERY)
    return failures[0] if failures else None


def _shower(resident: Resident, console: Console, *, json: bool, several: bool) -> Callable[[Summary], object]:
    """What shows each write of a job, and notes it beside the checkpoint, if there is one."""
    progress = ProgressFile(progress_file(resident.checkpoint))

    def show(done: Summary) -> None:
        metrics: dict[str, Any] = {"answers": done.answers, "rejected": done.rejected, **done.figures, **done.state}
        rate = done.rows / done.seconds if done.seconds > 0 else None
        batch = Batch(done.number, done.rows, done.seconds, rate, done.newest, done.lag, metrics)
        progress.add(batch)
        if json:
            typer.echo(js.dumps({"job": resident.job.file.stem, **batch.as_dict()}))
        else:
            name = f"{resident.job.file.stem}: " if several else ""
            console.print(f"{name}{batch}", soft_wrap=True, markup=False)

    return show


def _sums(resident: Resident) -> str:
    rows, answers = (f"{resident.totals[what]:,} {what}" for what in ("rows", "answers"))
    return f"{rows}, {answers}, {refused(resident.reasons)}"
