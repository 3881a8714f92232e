"""What every command says the same way: errors, exit codes, numbers."""

from __future__ import annotations

import re
import signal
import traceback
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer
from rich.markup import escape

from appulse.errors import AppulseError, BadArgument, GrownFile, JobError, reasons_listed

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Iterator
    from pathlib import Path

    from rich.console import Console

__all__ = ["FAILED", "MISUSED", "NO_ROOM", "errors_reported", "refused", "span", "warnings_shown"]

#: Exit codes. ``NO_ROOM``: a job would not fit, and was not started.
FAILED, MISUSED, NO_ROOM = 1, 2, 3

# An error of ours that a worker raised comes back as text inside Spark's.
_OURS_IN_A_WORKER = re.compile(r"^appulse\.errors\.\w+: (.+)$", re.MULTILINE)

# A line of a trace, of Java or Python, that names a failure.
_CAUSE = re.compile(r"^(?:Caused by: |: )?((?:[\w$]+\.)*[\w$]*(?:Error|Exception): \S.*)$", re.MULTILINE)
# As in the address of a database.
_PASSWORD = re.compile(r"(\bpassword=)[^\s&;,'\"]+", re.IGNORECASE)


@contextmanager
def errors_reported(console: Console, log: Path | None = None) -> Iterator[None]:
    """Turn what goes wrong inside into a message and an exit code; tracebacks go to ``log``."""
    try:
        yield
    except (BadArgument, JobError) as problem:
        _report(console, str(problem))
        raise typer.Exit(MISUSED) from problem
    except AppulseError as problem:
        _report(console, str(problem))
        raise typer.Exit(FAILED) from problem
    except KeyboardInterrupt as interrupt:
        console.print("Stopped. Run it again to go on from where it was.")
        raise typer.Exit(128 + (interrupt.args or (signal.SIGINT,))[0]) from interrupt
    except Exception as problem:
        if log is None:
            raise
        with log.open("a", encoding="utf-8") as file:
            traceback.print_exception(problem, file=file)
        if ours := _OURS_IN_A_WORKER.search(str(problem)):
            _report(console, ours[1])
        else:
            said = str(problem).strip().splitlines() or ["no message"]
            cause = _innermost(str(problem))
            behind = "" if cause is None or cause in said[0] else f"\nThe cause: {cause}"
            _report(console, f"{type(problem).__name__}: {said[0]}{behind}\nThe full log is in {log}.")
        raise typer.Exit(FAILED) from problem


def _innermost(text: str) -> str | None:
    """What the last failure says of those that Spark quotes in an error, before its plan of the query."""
    found = _CAUSE.findall(text.partition("=== Streaming Query ===")[0])
    return found[-1].strip() if found else None


def _report(console: Console, message: str) -> None:
    message = _PASSWORD.sub(r"\1...", message)
    console.print(f"[bold red]Error:[/] {escape(message)}", soft_wrap=True, highlight=False)


def refused(reasons: Counter[str]) -> str:
    """How many rejects there are, and why."""
    return f"{reasons.total():,} rejects" + (f" ({reasons_listed(reasons)})" if reasons else "")


@contextmanager
def warnings_shown(console: Console) -> Iterator[None]:
    """Print the warnings of appulse to the console, each kind once, or once of a file; others go where they went."""
    seen: set[type[Warning] | str] = set()
    with warnings.catch_warnings():
        others = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
            if not category.__module__.startswith("appulse."):
                others(message, category, *where, **more)
            elif (kind := str(message) if category is GrownFile else category) not in seen:
                seen.add(kind)
                console.print(f"[yellow]Warning:[/] {escape(str(message))}", soft_wrap=True, highlight=False)

        warnings.showwarning = show
        yield


def span(seconds: float) -> str:
    """A length of time as people say it: ``3.2 s``, ``14 min``, ``17 years``."""
    for unit, length, until in (("s", 1, 120), ("min", 60, 7200), ("h", 3600, 172_800), ("days", 86_400, 6.3e7)):
        if seconds < until:
            return f"{seconds / length:.1f} {unit}" if unit == "s" else f"{seconds / length:.0f} {unit}"
    return f"{seconds / 31_557_600:.0f} years"
