"""What `appulse plan` says of eight jobs, against what is then measured.

    python -m benchmarks.planning --quick --json

Each job has files of its own and is planned from them, by a trial on some of their rows; then all rows are pushed in
order of time, in process. Compared are the most rows and bytes held at any time, as the calls report them, and answers
for each second of the streams. Data are real where they are there (aircraft above Switzerland, cabs in San Francisco),
else generated ones like them.

* ``plan_factor_worst``: the largest of the 24 factors by which an estimate is off, either way.
* ``plan_seconds``: the longest that a plan took; ``plan_rows_share``: the rows that were tried of all rows, the most of
  any job that has 60,000 rows or more.
* ``NAME_rows``, ``NAME_bytes``, ``NAME_answers``: estimate over measured, of each job.
* ``cores_factor``: the seconds of a core that the plans expect for all jobs over those that were measured.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from appulse.jobs import load
from appulse.jobs.by_hand import by_hand
from appulse.jobs.files import files_at
from appulse.jobs.planning import plan_job
from benchmarks.harness import arguments, report, say, scratch
from examples.data_folder import data_at

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_FILES = 100
_ROWS = {True: 120_000, False: 480_000}
_SOURCE = """
[sources.{name}]
format = "parquet"
path = "{name}"
max_files_per_trigger = 1
key = "k"
time = "t"
{more}
"""
_PLANE = 'value = { model = "Gaussian", columns = ["x", "y"], sigma = 2.0 }'
_EARTH = 'value = {{ model = "Position", lat = "lat", lon = "lon", sigma = {sigma} }}'
_STRAIGHT = '\nmotion = { kind = "Straight", max_gap = "1 minute" }'


def crowd(chance: np.random.Generator, rows: int, keys: int, seconds: float) -> pa.Table:
    """Things that gather around a few places in a plane, and report more often in the middle of the time."""
    places = chance.uniform(0, 2_000, (12, 2))
    home = places[chance.integers(0, 12, keys)] + chance.normal(0, 60, (keys, 2))
    t = np.sort((chance.beta(2, 2, rows) * seconds * 1e6).astype(np.int64))
    key = chance.integers(0, keys, rows)
    x, y = (home[key] + chance.normal(0, 20, (rows, 2))).T
    times = pa.array(t).cast(pa.timestamp("us"))
    return pa.table({"k": key, "t": times, "x": x, "y": y, "p": chance.uniform(0.3, 1.0, rows)})


def cabs() -> pa.Table:
    """Cabs of San Francisco in order of time."""
    path = data_at("sf_cabspotting/cabs.parquet")
    path = path if path.exists() else next(iter(sorted(path.parent.glob("*.parquet"))), path)
    if not path.exists():
        say("no sf_cabspotting: generated cabs")
        chance = np.random.default_rng(7)
        made = crowd(chance, 110_000, 5, 24 * 86_400.0)
        return _on_earth(made)
    table = pq.read_table(path)
    seconds = np.asarray(table["time"].cast(pa.int64()))
    lat, lon = (table[name].to_numpy() for name in ("latitude", "longitude"))
    return _sorted(table["cab"].to_pylist(), seconds * 1_000_000, lat, lon)


def aircraft() -> pa.Table:
    """A day of aircraft in order of time."""
    path = data_at("swiss_day_adsb/swiss_day.parquet")
    if not path.exists():
        say("no swiss_day.parquet: generated aircraft")
        return _on_earth(crowd(np.random.default_rng(8), 139_000, 800, 61_000.0))
    table = pq.read_table(path)
    micros = np.asarray(table["timestamp"].cast(pa.timestamp("us", "UTC")).cast(pa.int64()))
    return _sorted(table["icao24"].to_pylist(), micros, table["latitude"].to_numpy(), table["longitude"].to_numpy())


def _on_earth(plane: pa.Table) -> pa.Table:
    lat, lon = 46.5 + plane["y"].to_numpy() / 2_000, 8.0 + plane["x"].to_numpy() / 1_000
    return _sorted(plane["k"].to_pylist(), np.asarray(plane["t"].cast(pa.int64())), lat, lon)


def _sorted(key: list[Any], micros: Any, lat: Any, lon: Any) -> pa.Table:
    times = pa.array(micros).cast(pa.timestamp("us"))
    return pa.table({"k": key, "t": times, "lat": lat, "lon": lon}).sort_by("t")


def fences(chance: np.random.Generator, table: pa.Table, number: int) -> str:
    """Boxes around where things were, as a table of a job file."""
    some = table.take(chance.integers(0, len(table), number))
    lines = []
    for i, row in enumerate(some.select(["lat", "lon"]).to_pylist()):
        west, south = row["lon"] - 0.02, row["lat"] - 0.015
        east, north = row["lon"] + 0.02, row["lat"] + 0.015
        ring = f"{west} {south}, {east} {south}, {east} {north}, {west} {north}, {west} {south}"
        lines.append(f"f{i} = 'POLYGON(({ring}))'")
    return "\n".join(lines)


def conditions(chance: np.random.Generator, number: int) -> str:
    """Boxes in the plane, as a table of a job file."""
    corner, width = chance.uniform(0, 2_000, (number, 2)), chance.uniform(5, 60, (number, 2))
    return "\n".join(
        f"q{i} = 'x BETWEEN {x:.2f} AND {x + w:.2f} AND y BETWEEN {y:.2f} AND {y + h:.2f}'"
        for i, ((x, y), (w, h)) in enumerate(zip(corner, width, strict=True))
    )


def cases(rows: int) -> dict[str, Callable[[], tuple[dict[str, pa.Table], str, str]]]:
    """The jobs: tables by source, what sources have in common, and the operator."""
    chance = np.random.default_rng(1)

    def two(window: str, more: str = _PLANE) -> tuple[dict[str, pa.Table], str, str]:
        tables = {name: crowd(chance, rows // 2, 5_000, 3_600.0) for name in ("near", "far")}
        return tables, more, f"[similarity_join]\nepsilon = 5.0\nprobability = 0.5\nwindow = {window}\n"

    def self_join() -> tuple[dict[str, pa.Table], str, str]:
        text = '[self_join]\nepsilon = 200.0\nprobability = 0.5\nwindow = "20 minutes"\ndifferent = "k"\n'
        return {"cabs": cabs()}, _EARTH.format(sigma=20.0), text

    def queries() -> tuple[dict[str, pa.Table], str, str]:
        text = f"[match_queries]\nprobability = 0.5\n[match_queries.conditions]\n{conditions(chance, 3_000)}\n"
        return {"rows": crowd(chance, rows, 5_000, 3_600.0)}, _PLANE, text

    def fenced() -> tuple[dict[str, pa.Table], str, str]:
        table = cabs()
        text = f'[fence_events]\ndwell = "2 minutes"\n[fence_events.regions]\n{fences(chance, table, 300)}\n'
        return {"cabs": table}, _EARTH.format(sigma=20.0) + '\nlateness = "5 minutes"', text

    def encounters() -> tuple[dict[str, pa.Table], str, str]:
        text = '[encounters]\nepsilon = 9260.0\nprobability = 0.9\ngap = "1 minute"\n'
        return {"aircraft": aircraft()}, _EARTH.format(sigma=50.0) + _STRAIGHT, text

    def nearest() -> tuple[dict[str, pa.Table], str, str]:
        tables = {name: crowd(chance, rows // 2, 5_000, 3_600.0) for name in ("near", "far")}
        return tables, _PLANE, '[nearest]\nk = 3\nepsilon = 20.0\nwindow = "30 seconds"\n'

    return {
        "join": lambda: two('"5 minutes"'),
        "self_join": self_join,
        "count_window": lambda: two("{ count = 2000 }"),
        "uncertain_window": lambda: two("{ uncertain_count = 1000, confidence = 0.95 }", _PLANE + '\nexistence = "p"'),
        "queries": queries,
        "fences": fenced,
        "encounters": encounters,
        "nearest": nearest,
    }


def written(folder: Path, tables: dict[str, pa.Table], more: str, operator: str) -> Path:
    """A job with its files, a micro-batch each."""
    text = "".join(_SOURCE.format(name=name, more=more) for name in tables)
    for name, table in tables.items():
        (folder / name).mkdir(parents=True)
        size = -(-len(table) // _FILES)
        for i in range(_FILES):
            pq.write_table(table.slice(i * size, size), folder / name / f"{i:03}.parquet")
    file = folder / "job.toml"
    file.write_text(f'{text}\n{operator}\n[sink]\nformat = "parquet"\npath = "out"\n')
    return file


def measured(file: Path) -> dict[str, float]:
    """What a job holds at most, answers for each second of its streams, and seconds of a core."""
    job = load(file)
    call = by_hand(job)
    files = {name: files_at(job.place(name)) for name in job.table.sources}
    span: list[int] = []
    held = size = answers = 0
    begun = time.process_time()
    for several in zip(*files.values(), strict=True):
        part = {name: pq.read_table(file) for name, file in zip(files, several, strict=True)}
        for table in part.values():
            span += table["t"].cast(pa.int64()).to_pylist()[:: max(1, len(table) - 1)]
        answers += len(call.push(**part))
        now = call.state()
        held, size = max(held, now["state_rows"]), max(size, now["state_bytes"])
    took = time.process_time() - begun
    return {"rows": held, "bytes": size, "answers": answers / ((max(span) - min(span)) / 1e6), "seconds": took}


def figures(*, quick: bool) -> dict[str, float | None]:
    """All figures."""
    found: dict[str, float | None] = {}
    factors, seconds, shares, expected, spent = [], [], [0.0], 0.0, 0.0
    for name, make in cases(_ROWS[quick]).items():
        with scratch() as folder:
            tables, more, operator = make()
            file = written(folder / name, tables, more, operator)
            begun = time.perf_counter()
            plan = plan_job(load(file), engine="process")
            seconds.append(time.perf_counter() - begun)
            truth = measured(file)
        rows = sum(map(len, tables.values()))
        if rows >= 60_000:
            shares.append(plan.sample_rows / rows)
        expected, spent = expected + rows / plan.rows_per_core, spent + truth["seconds"]
        guess = {"rows": plan.state_rows, "bytes": plan.state_bytes, "answers": plan.answers_per_second}
        for what, value in guess.items():
            ratio = value / truth[what] if truth[what] else float("inf" if value else 1)
            found[f"{name}_{what}"] = ratio
            factors.append(max(ratio, 1 / ratio if ratio else float("inf")))
        say(f"{name}: plan {guess}, then {truth}, {plan.sample_rows} of {rows} rows; {plan.notes}")
    return {
        "plan_factor_worst": max(factors),
        "plan_seconds": max(seconds),
        "plan_rows_share": max(shares),
        "cores_factor": expected / spent,
        **found,
    }


def main() -> None:
    """Print the figures."""
    given = arguments(__doc__ or "")
    report(figures(quick=given.quick), as_json=given.json)


if __name__ == "__main__":
    main()
