"""``appulse warm``: what the first run would have to make, made beforehand."""

from __future__ import annotations

import time

from rich.console import Console

from appulse.cli.console import errors_told
from appulse.errors import SessionError

__all__ = ["warm"]


def warm() -> None:
    """Compile the kernels and archive Spark's classes, so that first calls and sessions start fast."""
    from appulse.engines.spark.installation import installed
    from appulse.engines.warm import compile_all

    console = Console(highlight=False)
    with errors_told(console):
        begun = time.perf_counter()
        compile_all()
        console.print(f"kernels compiled in {time.perf_counter() - begun:.0f} s")
        if installed("pyspark") is not None:
            from appulse.engines.spark.class_archive import archive_classes

            begun = time.perf_counter()
            try:
                place = archive_classes()
            except SessionError as problem:  # sessions start all the same
                console.print(str(problem), soft_wrap=True, markup=False)
                return
            console.print(f"classes of Spark archived in {time.perf_counter() - begun:.0f} s: {place}", soft_wrap=True)
