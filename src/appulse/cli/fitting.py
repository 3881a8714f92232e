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
    """Exit where the limits of a job are less than it will need."""
    if job.table.limits is None:
        return
    from appulse.jobs.planning import plan_job

    plan = plan_job(job)
    console.print(str(plan), markup=False, soft_wrap=True)
    if not plan.fits:
        console.print(f"Not started: {job.file} needs more than its [limits].", markup=False, soft_wrap=True)
        raise typer.Exit(NO_ROOM)
