"""What one row with a clock a day ahead costs a stream: the share of the rows after it that come out as late.

``python -m benchmarks.future_row`` counts good rows of real feeds that are refused as from the future.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import appulse as ap
from appulse.model.strings import encode
from appulse.model.times import to_micros
from appulse.windows.future import FutureGuard
from benchmarks.harness import say
from examples.data_folder import data_at

if TYPE_CHECKING:
    from collections.abc import Sequence

_DAY = 86_400.0
_JOIN: dict[str, Any] = {"epsilon": 0.1, "probability": 0.5}


def devices(seed: int, n: int, every: float) -> pa.Table:
    """Rows of 50 devices, one each ``every`` seconds, up to 30 seconds out of order, one of them a day ahead."""
    chance = np.random.default_rng(seed)
    time = 1_700_000_000.0 + np.arange(n) * every + chance.uniform(0.0, 30.0, n)
    time[n // 10] += _DAY
    micros = pa.array((time * 1e6).astype(np.int64)).view(pa.timestamp("us", "UTC"))
    return pa.table({"id": chance.integers(0, 50, n), "t": micros, "x": chance.uniform(0.0, 1e4, n)})


def stream() -> ap.Stream:
    """Such rows, pushed by hand."""
    return ap.Stream(None, key="id", time="t", value=ap.Exact("x"), lateness="2 minutes")


def late_share(tables: Sequence[pa.Table], window: Any, step: int) -> float:
    """The late share of the rows that follow the bad ones, pushed ``step`` rows at a time."""
    names = [f"s{i}" for i in range(len(tables))]
    join = ap.SimilarityJoin(*(replace(stream(), name=name) for name in names), window=window, **_JOIN)
    for begin in range(0, len(tables[0]), step):
        join.push(**{name: table.slice(begin, step) for name, table in zip(names, tables, strict=True)})
    join.drain()
    late = join.rejects()["reason"].to_pylist().count("late")
    return float(late / (0.9 * sum(map(len, tables))))


def worst_late_share(*, quick: bool) -> float:
    """The worst share, over joins of one and of two streams that have such a row, by windows and sizes of pushes."""
    n = 600 if quick else 20_000
    found = {}
    for streams in (1, 2):
        for window in (ap.TimeWindow(5), ap.CountWindow(50)):
            for step in (1, 100, 1_000):
                for every in (0.2, 5.0):
                    tables = [devices(seed, n, every) for seed in range(streams)]
                    found[streams, window, step, every] = late_share(tables, window, step)
    worst = max(found, key=lambda case: found[case])
    say(f"a row a day ahead: {found[worst]:.4f} of the later rows are late, by {worst}")
    return found[worst]


#: Real feeds whose rows are in order: file, column of times, column of keys.
FEEDS = (
    ("solent_ais/solent.parquet", "Time", "MMSI"),
    ("quakes/usgs_week.parquet", "time", "id"),
    ("quakes/isc_origins.parquet", "time", "event_id"),
    ("sf_cabspotting/five_cabs.parquet", "time", "cab"),
    ("swiss_day_adsb/swiss_day.parquet", "timestamp", "icao24"),
    ("swiss_day_adsb/calfire.parquet", "timestamp", "icao24"),
)
_MOST_SINGLE = 30_000


def refused(feed: pa.Table, time: str, key: str, step: int) -> int:
    """Good rows of a feed that are refused as from the future, pushed ``step`` at a time."""
    micros, keys = to_micros(feed[time].combine_chunks(), "s")[0], encode(feed[key].combine_chunks())
    guard, found = FutureGuard(3_600_000_000, wall=False), 0
    for begin in range(0, min(len(feed), _MOST_SINGLE) if step == 1 else len(feed), step):
        rows = np.arange(begin, min(begin + step, len(feed)))
        judged, guard = guard.judge(micros[rows], keys.take(rows))
        found += len(judged)
    return found


def main() -> None:
    """Of each real feed, how many of its rows are refused, by size of push; of single rows the first 30,000."""
    for name, time, key in FEEDS:
        path = data_at(name)
        if path.exists():
            feed = pq.read_table(path, columns=[time, key]).drop_null().sort_by(time)
            print(name, len(feed), {step: refused(feed, time, key, step) for step in (1, 100, 5_000)})


if __name__ == "__main__":
    main()
