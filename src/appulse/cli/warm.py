"""``appulse warm``: what the first run would have to make, made beforehand."""

from __future__ import annotations

import json as js
import time
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
    with errors_reported(console):
        begun = time.perf_counter()
        compile_all()
        made["kernels_seconds"] = time.perf_counter() - begun
        console.print(f"kernels compiled in {made['kernels_seconds']:.0f} s")
        if installed("pyspark") is not None:
            from appulse.engines.spark.class_archive import archive_classes

            begun = time.perf_counter()
            try:
                made["classes"] = str(archive_classes())
                made["classes_seconds"] = time.perf_counter() - begun
                console.print(f"classes of Spark archived in {made['classes_seconds']:.0f} s: {made['classes']}")
            except SessionError as problem:  # sessions start all the same
                console.print(str(problem), markup=False)
    if json:
        typer.echo(js.dumps(made))
