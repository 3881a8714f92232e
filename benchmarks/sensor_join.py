"""The sensor join against what papers and users have, on one core in process, and on Spark against an empty operator.

Figures (``vs_`` is their time a reading / ours, the same readings in the same batches, the same factorised answers):

* ``vs_mjoin, vs_hmj, vs_duckdb``: outer MJoin, a balanced tree of symmetric hash outer joins, and a self-join of DuckDB
  by micro-batches, at 2,000 sensors (Ali et al. 2007, section 7: Zipf, a reading a second each, a window of 10 s).
* ``sensor_growth``: our time a reading at the costliest of 200 to 100,000 sensors over that at the cheapest; the total
  rate and the selectivity are the same: 2,000 readings a second of values drawn evenly from 1,000, so that a reading
  meets 20 readings, of 18 to 20 sensors. (Values by Zipf's law are told, too: there a reading meets as many readings
  of 15 sensors if there are 2,000, and of five times as many if there are 100,000, so that answers are not alike.)
* ``spark_of_empty``: our throughput on Structured Streaming over that of the same rows, by value, through a stateful
  operator that counts them; of values drawn evenly from 10,000, so that a reading meets two others. (More of it is what
  Spark takes to write longer lists: with the 73 readings of 15 sensors that a reading of the paper's field meets, most
  of the time goes there.)

Part ``claims`` measures S1 to S4 and S9 of Ali et al., and what conditions by phenomena save.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

import appulse as ap
from benchmarks.harness import arguments, read_stream, report, say, scratch, timed, write_stream
from benchmarks.mjoin import DistributedMJoin, Factorised, FlinkMultiJoin, JoinTree, MJoin
from benchmarks.sensor_claims import measure
from benchmarks.sensor_fields import DOMAIN, SECOND, WINDOW, dealt, ordered, synthetic
from benchmarks.sensor_ours import Ours
from benchmarks.sensor_rivals import DuckDB

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray
    from pyspark.sql import SparkSession

    from benchmarks.sensor_fields import Readings

    Ints = NDArray[np.int64]

SENSORS = 2_000
# Before anything is timed: the window is full, and everything compiled.
WARM = 12.0
SPARK_ROWS = {True: 1_000_000, False: 4_000_000}


@dataclass(frozen=True)
class Lap:
    """Seconds a reading, and the answers to one batch in the middle."""

    seconds: float
    told: Any


def lap(contestant: Any, field: Readings, seconds: float, batch: float = 1.0) -> Lap:
    """Push a field batch by batch; the first ``WARM`` seconds of it are not timed, and ``seconds`` after that are."""
    edges = np.searchsorted(field.time, np.arange(0.0, WARM + seconds + batch / 2, batch) * SECOND)
    bins = field.bins()
    spent, readings, told = 0.0, 0, None
    for k in range(len(edges) - 1):
        mine = slice(int(edges[k]), int(edges[k + 1]))
        given = field.time[mine], field.sensor[mine], bins[mine]
        begun = time.perf_counter()
        found = contestant.push(*given)
        took = time.perf_counter() - begun
        if k == round(WARM / batch):
            told = contestant.factorised(found) if isinstance(contestant, Ours) else found
        if k >= round(WARM / batch):
            spent, readings = spent + took, readings + mine.stop - mine.start
    return Lap(spent / readings, told)


def agree(name: str, ours: Factorised, theirs: Factorised) -> None:
    """Raise unless the answers are the same."""
    for part, mine, other in zip(Factorised._fields, ours, theirs, strict=True):
        if not np.array_equal(mine, other):
            raise RuntimeError(f"{name} tells other answers: {part}, {len(mine)} against {len(other)}")


def contestants(*, quick: bool) -> dict[str, float]:
    """Ours and theirs at 2,000 sensors."""
    field = synthetic(SENSORS, 200 if quick else 1_000, 1)
    ends = float(field.time[-1]) / SECOND - WARM
    ours = min((lap(Ours(WINDOW), field, 60.0) for _ in range(3)), key=lambda done: done.seconds)
    met = ours.told.first[-1] / SENSORS
    say(f"2,000 sensors: ours {ours.seconds * 1e9:.0f} ns a reading, which meets {met:.1f} sensors")
    figures = {}
    clusters = np.arange(SENSORS) // 20
    for name, make, seconds in (
        ("mjoin", lambda: MJoin(SENSORS, WINDOW), min(ends, 20.0)),
        ("hmj", lambda: JoinTree(SENSORS, WINDOW, DOMAIN), min(ends, 10.0)),
        ("duckdb", lambda: DuckDB(SENSORS, WINDOW), min(ends, 10.0)),
        ("clusters", lambda: DistributedMJoin(SENSORS, WINDOW, clusters), min(ends, 10.0)),
        ("flink", lambda: FlinkMultiJoin(SENSORS, WINDOW), min(ends, 10.0)),
    ):
        theirs = lap(make(), field, seconds)
        agree(name, ours.told, theirs.told)
        say(f"{name}: {theirs.seconds * 1e9:,.0f} ns a reading, {theirs.seconds / ours.seconds:.1f} times ours")
        figures[name] = theirs.seconds / ours.seconds
    return {f"vs_{name}": figures[name] for name in ("mjoin", "hmj", "duckdb")}


def even(sensors: int, readings: int, seed: int, domain: int = DOMAIN) -> Readings:
    """Readings of sensors and values drawn evenly, 2,000 a second in all."""
    random = np.random.default_rng([seed, sensors])
    when = np.cumsum(random.exponential(SECOND / SENSORS, readings)).astype(np.int64)
    value = random.integers(0, domain, readings).astype(np.float64)
    return ordered(sensors, random.integers(0, sensors, readings), when, value)


def growth() -> float:
    """Our time a reading at 200 to 100,000 sensors."""
    _laps("by Zipf's law", dealt)
    each = _laps("drawn evenly", even)
    return max(each) / min(each)


def _laps(name: str, make: Callable[[int, int, int], Readings]) -> list[float]:
    """Medians of five laps, taken by turns."""
    counts = (200, 2_000, 20_000, 100_000)
    fields = {sensors: make(sensors, 120_000, 2) for sensors in counts}
    laps: dict[int, list[float]] = {sensors: [] for sensors in counts}
    for _ in range(5):
        for sensors in counts:
            laps[sensors].append(lap(Ours(WINDOW), fields[sensors], 40.0).seconds)
    each = {sensors: float(np.median(some)) for sensors, some in laps.items()}
    told = ", ".join(f"{sensors:,} sensors {seconds * 1e9:.0f} ns" for sensors, seconds in each.items())
    say(f"values {name}: {told}")
    return list(each.values())


def on_spark(spark: SparkSession, folder: Path, rows: int) -> float:
    """Our throughput over that of an operator that counts the same rows, by value."""
    from benchmarks.recipes import counted

    field = even(SENSORS, rows, 3, 10_000)
    ts = pa.array(field.time + 10**9 * SECOND).cast(pa.timestamp("us", "UTC"))
    table = pa.table({"sensor": field.sensor, "ts": ts, "value": field.bins()})
    source = write_stream(folder / "in", table, 4)

    def ours() -> Any:
        frame = read_stream(spark, source)
        return ap.sensor_join(ap.Stream(frame, key="sensor", time="ts", value="value"), window=10)

    def theirs() -> Any:
        return counted(read_stream(spark, source), "value", "ts", 2)

    seconds: dict[str, list[float]] = {"ours": [], "empty": []}
    for k in range(3):
        for name, make in (("ours", ours), ("empty", theirs)):
            run = timed(make(), folder / f"{name}-{k}")
            seconds[name].append(sum(run.batches[1:]))
            if name == "ours" and k == 0:
                _check_spark(spark, run.out, table)
    taken = {name: float(np.median(some)) for name, some in seconds.items()}
    say(f"Spark: ours {taken['ours']:.1f} s, an operator that counts {taken['empty']:.1f} s (but for the first batch)")
    return taken["empty"] / taken["ours"]


def _check_spark(spark: SparkSession, out: Path, table: pa.Table) -> None:
    """The streaming answers of the first tenth are those in process."""
    until = table.slice(0, len(table) // 10)
    inside = ap.sensor_join(ap.Stream(until, key="sensor", time="ts", value="value"), window=10)
    last = until["ts"][-1].as_py()
    found = spark.read.parquet(str(out)).where(f"time < timestamp'{last.isoformat()}'").toArrow()
    mine = inside.filter(pa.compute.less(inside["time"], last))
    met = [pa.compute.sum(pa.compute.list_value_length(t["matches"])).as_py() for t in (found, mine)]
    if len(found) != len(mine) or met[0] != met[1] or not len(found):
        raise RuntimeError(f"Spark tells {len(found)} answers of {met[0]} groups, in process {len(mine)} of {met[1]}")


def main() -> None:
    """Run the parts asked for."""
    given = arguments(__doc__ or "")
    only = set((given.only or "contestants,growth,spark").split(","))
    figures: dict[str, float] = {}
    if "contestants" in only:
        figures |= contestants(quick=given.quick)
    if "growth" in only:
        figures["sensor_growth"] = growth()
    if "spark" in only:
        spark = ap.session(2)
        with scratch() as folder:
            figures["spark_of_empty"] = on_spark(spark, folder, SPARK_ROWS[bool(given.quick)])
        spark.stop()
    if "claims" in only:
        measure(Path(given.plots) if given.plots else None, quick=given.quick)
    report(figures, as_json=given.json)


if __name__ == "__main__":
    main()
