"""``appulse top``: what a running job does, in the terminal."""

from __future__ import annotations

import json as js
import re
import sys
import time
from collections.abc import Sequence
from io import StringIO
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import typer
from rich.columns import Columns
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from appulse.cli.console import errors_reported, span
from appulse.cli.following import Run, followed
from appulse.errors import StorageError
from appulse.model.sizes import size

__all__ = ["figures", "top", "view"]

_BARS = "▁▂▃▄▅▆▇█"
_DRAWN = 40
_FONTS = re.compile(r"@font-face\s*\{.*?\}\s*", re.DOTALL)
_SILENT = 60.0  # seconds without a micro-batch after which that is said in red
_BOUNDS = ("reach", "mass", "cantelli", "markov", "square", "sample", "projection", "window")


def top(
    place: Annotated[
        str,
        typer.Argument(
            metavar="CHECKPOINT|JOB.toml|URL",
            help="The checkpoint of a job, its job file, or the URL of its metrics, http://host:port/metrics.",
            show_default=False,
        ),
    ],
    *,
    once: Annotated[bool, typer.Option("--once", help="Print once, then end.")] = False,
    every: Annotated[float, typer.Option(min=0.1, help="Seconds between updates.")] = 1.0,
    json: Annotated[bool, typer.Option("--json", help="One JSON object per update on stdout.")] = False,
    picture: Annotated[
        Path | None, typer.Option(metavar="FILE.svg", help="With --once: also draw it to a file.", show_default=False)
    ] = None,
) -> None:
    """Show what a running job is doing: micro-batches, rates, lag, state, pruning, answers and rejects."""
    console = Console(file=sys.stderr if json else sys.stdout, highlight=False)
    with errors_reported(console):
        found = followed(place)
        run = found.look()
        if json:
            _as_json(found, run, once=once, every=every)
        elif picture is not None:
            _draw(run, picture)
        elif once:
            console.print(view(run))
        else:
            with Live(view(run), console=console, screen=console.is_terminal, auto_refresh=False) as live:
                while True:
                    time.sleep(every)
                    live.update(view(found.look()), refresh=True)


def _draw(run: Run, file: Path) -> None:
    canvas = Console(record=True, width=112, file=StringIO(), force_terminal=True)
    canvas.print(view(run))
    drawn = _FONTS.sub("", canvas.export_svg(title="appulse top"))  # which come from another host
    try:
        file.write_text(drawn, encoding="utf-8")
    except OSError as error:
        raise StorageError(f"{file} cannot be written: {error.strerror}. Name another with --picture.") from error


def _as_json(found: Any, run: Run, *, once: bool, every: float) -> None:
    typer.echo(js.dumps(figures(run)))
    while not once:
        time.sleep(every)
        typer.echo(js.dumps(figures(found.look())))


def figures(run: Run) -> dict[str, Any]:
    """What is known of a run: of the latest micro-batch, of the last ones, and of all."""
    if not run.batches:
        return {"name": run.name, "batches": 0}
    last, some = run.batches[-1], list(run.batches)[-20:]
    seconds = sum(one.get("busy_seconds", one["batch_seconds"]) or 0.0 for one in some)
    metrics = last["metrics"]
    standing: dict[str, float] = next(
        (one["metrics"] for one in reversed(run.batches) if "state_rows" in one["metrics"]), {}
    )
    answers = sum(one["metrics"].get("answers", 0.0) for one in some)
    return {
        "name": run.name,
        "batches": run.count,
        "batch": last["batch"],
        "seconds_ago": None if run.age is None else round(run.age, 3),
        "batch_seconds": last["batch_seconds"],
        "median_batch_seconds": median(one["batch_seconds"] for one in some),
        "input_rows": last["input_rows"],
        "rows_per_second": sum(one["input_rows"] or 0 for one in some) / seconds if seconds else None,
        "event_time": next((at for one in reversed(run.batches) if (at := one.get("event_time"))), None),
        "lag_seconds": last.get("lag_seconds"),
        "state_rows": standing.get("state_rows"),
        "state_bytes": standing.get("state_bytes"),
        "answers_per_second": answers / seconds if seconds else None,
        "answers": run.sums.get("answers", 0.0),
        "rejected": run.sums.get("rejected", 0.0),
        "late": run.sums.get("late", 0.0),
        "rows": run.sums.get("input_rows", 0.0),
        "pruning": pruning(some),
        "metrics": metrics,
    }


def pruning(batches: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Of the pairs that were looked at, the share that each step decided; empty where there were none."""

    def total(name: str) -> float:
        return float(sum(one["metrics"].get(name, 0.0) for one in batches))

    candidates = total("candidates")
    if not candidates:
        return {}
    found = {name: total(f"pruned_{name}") / candidates for name in _BOUNDS}
    found |= {name: total(name) / candidates for name in ("accepted", "refined")}
    return {name: share for name, share in found.items() if share}


def view(run: Run) -> RenderableType:
    """The figures of a run, drawn."""
    known = figures(run)
    title = Text(f"appulse top  {run.name}", style="bold", overflow="ellipsis", no_wrap=True)
    if not run.batches:
        return Group(title, Text("No micro-batch so far."))
    said = Text(f"batch {known['batch']} of {known['batches']} seen")
    if (ago := known["seconds_ago"]) is not None:
        said.append(f", {span(ago)} ago", style="bold red" if ago > _SILENT else "green")
    if known["event_time"]:
        said.append(f"; events up to {str(known['event_time'])[:19].replace('T', ' ')}")
    if known["lag_seconds"] is not None:
        said.append(f", {span(known['lag_seconds'])} behind")
    panels = [_rates(run, known), _held(known), _decided(known)]
    return Group(title, said, Columns([panel for panel in panels if panel is not None], padding=(0, 1)))


def _rates(run: Run, known: dict[str, Any]) -> Panel:
    some = list(run.batches)[-_DRAWN:]
    table = Table.grid(padding=(0, 1))
    lines: list[tuple[str, str, list[float]]] = [
        ("rows/s", _count(known["rows_per_second"]), [one["rows_per_second"] or 0.0 for one in some]),
        ("seconds", f"{known['batch_seconds']:.2f}", [one["batch_seconds"] for one in some]),
        ("answers/s", _count(known["answers_per_second"]), [one["metrics"].get("answers", 0.0) for one in some]),
        ("rejects", _count(known["rejected"]), [one["metrics"].get("rejected", 0.0) for one in some]),
    ]
    for name, value, drawn in lines:
        table.add_row(name, Text(value, justify="right", style="bold"), Text(spark(drawn), style="cyan"))
    return Panel(table, title="each micro-batch", border_style="dim")


def _held(known: dict[str, Any]) -> Panel:
    table = Table.grid(padding=(0, 1))
    bytes_held = known["state_bytes"]
    lines = (
        ("state rows", _count(known["state_rows"])),
        ("state", "-" if bytes_held is None else size(bytes_held)),
        ("rows in all", _count(known["rows"])),
        ("answers in all", _count(known["answers"])),
        ("late in all", _count(known["late"])),
    )
    for name, value in lines:
        table.add_row(name, Text(value, justify="right", style="bold"))
    return Panel(table, title="held, and so far", border_style="dim")


def _decided(known: dict[str, Any]) -> Panel | None:
    shares = known["pruning"]
    if not shares:
        return None
    table = Table.grid(padding=(0, 1))
    for name, share in sorted(shares.items(), key=lambda item: -item[1]):
        table.add_row(
            name, Text(f"{share:.1%}", justify="right", style="bold"), Text("█" * round(20 * share), "magenta")
        )
    return Panel(table, title="pairs decided by", border_style="dim")


def spark(values: Sequence[float]) -> str:
    """Values as small bars, the greatest full."""
    most = max(values, default=0.0)
    return "".join(_BARS[min(int(8 * value / most), 7)] if most > 0 else _BARS[0] for value in values)


def _count(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.2f}"
