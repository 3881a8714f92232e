"""Jobs in this process, watched: `appulse serve`, its page, and replays.

    python -m benchmarks.operate --quick --json

* ``replay_speed_error``: by how much a replay is slower or faster than it should be, a share; the worst of some speeds.
* ``serve_of_spark_answers``: the answers that one job file gives by both engines, over those that either gives.
* ``serve_p99_ms``: milliseconds from when a row is due to its answer at a browser's socket, 99 % of all answers; 1,000
  rows a second from each of two replays, 10,000 fences in one job and a join in another, in one process.
  ``serve_p50_ms`` is the median; the first seconds, in which code is compiled, are left out.
* ``serve_rss_growth``: memory of that process at its end over that after its first third.

* ``mqtt_lost``, ``mqtt_doubled``: see `benchmarks.mqtt`; ``plan_factor_worst``: see `benchmarks.planning`.

``--only`` names parts: replay, engines, page, mqtt, plan.
"""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import time
from datetime import datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

import appulse as ap
from appulse import jobs
from appulse.jobs.resident import Resident
from benchmarks import mqtt, planning
from benchmarks.harness import arguments, report, say, scratch
from examples.data_folder import data_at

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

THINGS, RATE, FENCES = 1_000, 1_000, 100  # fences along each side
SIDE, SPEED = 30_000.0, 20.0  # metres, and a second
WARM = 15.0  # seconds that are left out: code is compiled, or read from the disk

_SOURCE = """\
engine = "local"
[sources.fixes]
format = "replay"
path = "fixes.parquet"
key = "thing"
time = "t"
value = { model = "Gaussian", columns = ["x", "y"], sigma = 5.0 }
"""
_SINK = '[sink]\nformat = "parquet"\npath = "out-{}"\n'
_FENCES = "[fence_events]\npath = 'fences.parquet'\n" + _SINK.format("fences")
_JOIN = "[self_join]\nepsilon = 100.0\nprobability = 0.5\nwindow = '2 seconds'\ndifferent = 'thing'\n" + _SINK.format(
    "pairs"
)


def replay_part(_: Path, *, quick: bool) -> dict[str, float | None]:
    """Replays of rows that come evenly, one by one, at several speeds."""
    errors = []
    for speed in (1.0, 60.0, 3600.0):
        lasting = (3.0 if quick else 20.0) * speed
        table = pa.table({"t": np.linspace(0.0, lasting, 5_000)})
        begun, count = time.perf_counter(), 0
        for batch in ap.replay(table, time="t", speed=speed):
            count += len(batch)
        taken = time.perf_counter() - begun
        errors.append(abs(taken * speed / lasting - 1.0))
        say(f"replay at {speed:g}: {lasting:,.0f} s in {taken:.4f} s, {count:,} rows")
    return {"replay_speed_error": max(errors)}


def engines_part(folder: Path, *, quick: bool) -> dict[str, float | None]:
    """Encounters of ships, or of a generated twin, by both engines from one job file."""
    path = data_at("solent_ais/solent.parquet")
    if path.exists():
        table = pq.read_table(path, columns=["MMSI", "Time", "Latitude_degrees", "Longitude_degrees"])
        table = table.rename_columns(["ship", "at", "lat", "lon"])
    else:
        say("no solent.parquet: generated tracks")
        table = _twin()
    pq.write_table(table if not quick else table.slice(0, 5_000), folder / "ships.parquet")
    found: dict[str, set[str]] = {}
    for engine in ("local", "spark"):
        (folder / f"{engine}.toml").write_text(
            f"""engine = "{engine}"
checkpoint = "checkpoint"
[sources.ships]
format = "replay"
path = "ships.parquet"
speed = "max"
key = "ship"
time = "at"
value = {{ model = "Position", lat = "lat", lon = "lon", sigma = 10.0 }}
motion = {{ kind = "Straight", max_gap = "5 minutes", max_speed = 30.0 }}
[encounters]
epsilon = 500.0
probability = 0.9
gap = "1 minute"
[sink]
format = "parquet"
path = "{engine}"
"""
        )
        job = jobs.load(folder / f"{engine}.toml")
        begun = time.perf_counter()
        if engine == "local":
            Resident(job).run(drain=True)
        else:
            spark = ap.session(2)
            jobs.run(job, spark, drain=True).awaitTermination()
            spark.stop()
        rows = ds.dataset(sorted((folder / engine).glob("*.parquet"))).to_table().to_pylist()
        found[engine] = {repr(sorted((name, _plain(value)) for name, value in row.items())) for row in rows}
        say(
            f"{engine}: {len(rows):,} encounters, {len(found[engine]):,} different, {time.perf_counter() - begun:.1f} s"
        )
    local, on_spark = found["local"], found["spark"]
    return {"serve_of_spark_answers": len(local & on_spark) / max(1, len(local | on_spark))}


def _plain(value: Any) -> Any:
    """Times without their zone, numbers to what both engines have."""
    if isinstance(value, datetime):
        return value.replace(tzinfo=None).isoformat()
    return float(f"{value:.12g}") if isinstance(value, float) else value


def _twin() -> pa.Table:
    chance = np.random.default_rng(0)
    count = 150
    at = np.arange(count) * 20.0
    parts = []
    for ship in range(80):
        lat = 50.75 + chance.normal(0, 0.02) + chance.normal(0, 1e-5) * at
        lon = -1.1 + chance.normal(0, 0.03) + chance.normal(0, 3e-5) * at
        parts.append(pa.table({"ship": [ship] * count, "at": at, "lat": lat, "lon": lon}))
    return pa.concat_tables(parts)


def page_part(folder: Path, *, quick: bool) -> dict[str, float | None]:
    """A process that serves two jobs, and a browser's socket."""
    seconds = 75.0 if quick else 600.0
    _write_fixes(folder / "fixes.parquet", seconds)
    _write_fences(folder / "fences.parquet")
    for name, operator in (("fences", _FENCES), ("pairs", _JOIN)):
        (folder / f"{name}.toml").write_text(_SOURCE + operator)
    command = [sys.executable, "-m", "appulse.cli", "serve", "fences.toml", "pairs.toml"]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None  # noqa: S101 - it is a pipe
        try:
            address = next(line.split()[-1] for line in process.stdout if line.startswith("The page:"))
            late, memory = _watched(address, psutil.Process(process.pid), seconds)
        finally:
            process.terminate()
            process.communicate(timeout=30)
    for job, name in enumerate(("fences", "pairs")):
        own = np.array([delay for number, delay in late if number == job]) * 1000
        say(
            f"{name}: {len(own):,} answers, {_at(own, 50):.0f} ms, 99 % {_at(own, 99):.0f} ms, most {_at(own, 100):.0f}"
        )
    delays = np.array([delay for _, delay in late]) * 1000
    third = memory[len(memory) // 3]
    say(f"memory: {third / 1e6:.0f} MB after a third, {memory[-1] / 1e6:.0f} MB at the end")
    return {
        "serve_p50_ms": _at(delays, 50),
        "serve_p99_ms": _at(delays, 99),
        "serve_rss_growth": max(memory[-5:]) / third,
    }


def _at(delays: Any, percent: float) -> float:
    return float(np.percentile(delays, percent)) if len(delays) else float("inf")


def _watched(address: str, process: psutil.Process, seconds: float) -> tuple[list[tuple[int, float]], list[int]]:
    """How late each answer came, by job, and the memory of the process once a second."""
    late: list[tuple[int, float]] = []
    memory: list[int] = []
    clocks: list[Any] = []
    end, looked = time.time() + seconds - 3.0, 0.0
    for arrived, message in _messages(address):
        if message["type"] == "hello":
            clocks = [job["clock"] for job in message["jobs"]]
        elif clocks[message["job"]] is None:
            break
        else:
            zero, since, speed = clocks[message["job"]]
            due = [since + (event["time"] * 1000 - zero) / 1000 / speed for event in message["events"]]
            late += [(message["job"], arrived - one) for one in due if one > since + WARM]
        if arrived - looked > 1.0:
            looked = arrived
            if clocks and arrived > (clocks[0] or [0, arrived])[1] + WARM:
                memory.append(process.memory_info().rss)
        if arrived > end:
            break
    return late, memory


def _messages(address: str) -> Iterator[tuple[float, Any]]:
    """What comes at a browser's socket, with when."""
    parts = urlsplit(address)
    connection = http.client.HTTPConnection("127.0.0.1", parts.port or 0, timeout=30)
    connection.request("GET", f"/?{parts.query}")
    came = connection.getresponse()
    came.read()
    cookie = (came.headers["Set-Cookie"] or "").partition(";")[0]
    time.sleep(1.0)  # both jobs have begun
    connection = http.client.HTTPConnection("127.0.0.1", parts.port or 0, timeout=30)
    connection.request("GET", "/feed", headers={"Cookie": cookie})
    stream = connection.getresponse()
    while line := stream.readline():
        arrived = time.time()
        if line.startswith(b"data: "):
            yield arrived, json.loads(line[6:])


def _write_fixes(path: Path, seconds: float) -> None:
    """Things that walk straight, and turn back at the sides; a fix every millisecond."""
    chance = np.random.default_rng(0)
    count = int(seconds * RATE)
    thing, t = np.arange(count) % THINGS, np.arange(count) / RATE
    begin, way = chance.uniform(0, SIDE, (2, THINGS)), chance.uniform(0, 2 * np.pi, THINGS)
    at = begin[:, thing] + SPEED * t * np.array([np.cos(way), np.sin(way)])[:, thing]
    at = SIDE - np.abs(at % (2 * SIDE) - SIDE) + chance.normal(0, 5.0, at.shape)
    pq.write_table(pa.table({"thing": thing, "t": t, "x": at[0], "y": at[1]}), path)


def _write_fences(path: Path) -> None:
    """Squares, 10,000 of them."""
    step = SIDE / FENCES
    names, regions = [], []
    for i in range(FENCES):
        for j in range(FENCES):
            west, south = (i + 0.15) * step, (j + 0.15) * step
            east, north = west + 0.7 * step, south + 0.7 * step
            names.append(f"{i}-{j}")
            regions.append(f"POLYGON(({west} {south}, {east} {south}, {east} {north}, {west} {north}, {west} {south}))")
    pq.write_table(pa.table({"query": names, "region": regions}), path)


def mqtt_part(_: Path, *, quick: bool) -> dict[str, float | None]:
    """Messages over kills of their reader and their broker."""
    return mqtt.figures(quick=quick)


def plan_part(_: Path, *, quick: bool) -> dict[str, float | None]:
    """Plans of eight jobs against what is then measured."""
    found = planning.figures(quick=quick)
    return {name: value for name, value in found.items() if name.startswith("plan_")}


PARTS: dict[str, Callable[..., dict[str, float | None]]] = {
    "replay": replay_part,
    "engines": engines_part,
    "page": page_part,
    "mqtt": mqtt_part,
    "plan": plan_part,
}


def main() -> None:
    """Run the parts asked for."""
    given = arguments(__doc__ or "")
    figures: dict[str, float | None] = {}
    for name in (given.only or ",".join(PARTS)).split(","):
        with scratch() as folder:
            figures |= PARTS[name](folder, quick=given.quick)
    report(figures, as_json=given.json)


if __name__ == "__main__":
    main()
