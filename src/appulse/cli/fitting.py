"""Whether a job fits what its file says is there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from appulse.cli.console import NO_ROOM

if TYPE_CHECKING:
    from rich.console import Console

    from appulse.jobs import Job

__all__ = ["must_fit"]


def must_fit(job: Job, console: Console) -> None:
    """Exit where the limits of a job are less than it will need; warn where that cannot be known."""
    limits = job.table.limits
    if limits is None:
        return
    from appulse.jobs.planning import plan_job, untried

    if names := untried(job):
        most, samples = limits.state_rows, " ".join(f"--sample {name}=FILE" for name in names)
        holds = (
            "no limit holds without state_rows" if most is None else f"only the hard limit state_rows = {most:,} holds"
        )
        console.print(
            f"Warning: {job.file} is not planned, since sources.{names[0]} has no rows yet that can be tried. Of its "
            f"[limits] {holds}. Plan it on files of typical rows: appulse plan {job.file} {samples}",
            markup=False,
            soft_wrap=True,
        )
        return
    plan = plan_job(job)
    console.print(str(plan), markup=False, soft_wrap=True)
    if not plan.fits:
        console.print(f"Not started: {job.file} needs more than its [limits].", markup=False, soft_wrap=True)
        raise typer.Exit(NO_ROOM)
