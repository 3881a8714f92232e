"""``appulse warm``: what the first run would have to make, made beforehand."""

from __future__ import annotations

import json as js
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated

import typer
from rich.console import Console

from appulse.cli.console import errors_reported
from appulse.errors import SessionError

__all__ = ["warm"]


def warm(
    *,
    json: Annotated[bool, typer.Option("--json", help="What was made, as one JSON object on stdout.")] = False,
) -> None:
    """Compile the kernels and archive Spark's classes, so that first calls and sessions start fast."""
    from appulse.engines.spark.installation import installed
    from appulse.engines.warm import compile_all

    console = Console(highlight=False, soft_wrap=True, stderr=json)
    made: dict[str, float | str] = {}
    # Java's part takes one core alone, and half of the time waits.
    with errors_reported(console), ThreadPoolExecutor(1) as beside:
        classes = beside.submit(_archived) if installed("pyspark") is not None else None
        begun = time.perf_counter()
        compile_all()
        made["kernels_seconds"] = time.perf_counter() - begun
        console.print(f"kernels compiled in {made['kernels_seconds']:.0f} s")
        if classes is not None:
            try:
                made["classes"], made["classes_seconds"] = classes.result()
                console.print(f"classes of Spark archived in {made['classes_seconds']:.0f} s: {made['classes']}")
            except SessionError as problem:  # sessions start all the same
                console.print(str(problem), markup=False)
    if json:
        typer.echo(js.dumps(made))


def _archived() -> tuple[str, float]:
    """Where Spark's classes are archived, and the seconds that took."""
    from appulse.engines.spark.class_archive import archive_classes

    begun = time.perf_counter()
    return str(archive_classes()), time.perf_counter() - begun
