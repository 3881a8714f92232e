"""Real feeds that correct themselves: notices of gamma-ray bursts, and air quality that is revised a day later.

Each has a generated twin, which runs where the data is not there.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa

import appulse as ap

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

DAY = pd.Timedelta("1 day")
WINDOW = ap.TimeWindow("1 day", per_stream={"ztf": 0})
JOINED: dict[str, Any] = {"epsilon": 0.0, "probability": 1.0, "window": WINDOW}
PAIR = ["left_key", "left_time", "right_key"]
BOTH = [*PAIR, "right_time"]


def _sky(folder: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Alerts, and notices with their statuses; notices of LVK have no circle."""
    alerts = pd.read_parquet(folder / "fink_ztf_alerts.parquet")
    alerts["began"] = pd.to_datetime(alerts["jdstarthist"] - 2_440_587.5, unit="D", utc=True).dt.round("us")
    notices = pd.read_parquet(folder / "fink_gcn_notices.parquet")
    notices = notices[notices["observatory"] != "LVK"]
    columns = {"trigger": notices["triggerTimeUTC"], "radius": notices["err_arcmin"] * 60.0}
    return alerts[["candid", "began", "ra", "dec"]], notices.assign(**columns)


def _generated_sky() -> tuple[pd.DataFrame, pd.DataFrame]:
    """Triggers whose circles shrink and move with each update."""
    chance = np.random.default_rng(5)
    first = pd.Timestamp("2024-01-15", tz="UTC")
    alerts = pd.DataFrame(
        {
            "candid": np.arange(300),
            "began": first + pd.to_timedelta(chance.integers(0, 172_800, 300), "s"),
            "ra": chance.uniform(0, 360, 300),
            "dec": np.degrees(np.arcsin(chance.uniform(-1, 1, 300))),
        }
    )
    rows = []
    for trigger in range(12):
        at, ra, dec = first + pd.Timedelta(f"{trigger} h"), chance.uniform(0, 360), chance.uniform(-80, 80)
        for i in range(chance.integers(1, 5)):
            status = f"update_{i - 1}" if i else "initial"
            radius = 60.0 * 1_500.0 / (i + 1)
            when = at + pd.Timedelta(f"{chance.integers(0, 60)} s")
            rows.append((str(trigger), status, (ra + chance.normal(0, 5)) % 360, dec, radius, when))
    return alerts, pd.DataFrame(rows, columns=["triggerId", "gcn_status", "ra", "dec", "radius", "trigger"])


def _check_notices(alerts: pd.DataFrame, notices: pd.DataFrame) -> None:
    """After each round of updates: the pairs that stand are those of a batch over the notices that stand."""
    place = ap.Position("dec", "ra", earth="sky")

    def streams(circles: Any, seen: Any, **more: Any) -> list[ap.Stream]:
        return [
            ap.Stream(circles, key="triggerId", time="trigger", value=place, margin="radius", name="gcn", **more),
            ap.Stream(seen, key="candid", time="began", value=place, name="ztf"),
        ]

    join = ap.SimilarityJoin(*streams(None, None, change="op", lateness="3650 days"), **JOINED, emit="changes")
    stands: Counter[tuple[Any, ...]] = Counter()
    known = notices.iloc[:0]
    rounds = ["initial", *(f"update_{i}" for i in range(20))]
    changed = 0
    for i, status in enumerate(rounds):
        fresh = notices[notices["gcn_status"] == status]
        old = known[known["triggerId"].isin(fresh["triggerId"])]
        known = pd.concat([known.drop(old.index), fresh])
        if not len(fresh):
            continue
        given = pd.concat([old.assign(op="remove"), fresh.assign(op="add")])
        found = join.push(gcn=given, ztf=alerts if i == 0 else alerts.iloc[:0]).to_pandas()
        changed += int((found["change"] < 0).sum())
        for row in found.to_dict("records"):
            stands[tuple(row[name] for name in PAIR)] += row["change"]
        expected = ap.similarity_join(*streams(known, alerts), **JOINED).to_pandas()
        assert +stands == Counter(expected[PAIR].itertuples(index=False, name=None))
        assert Counter(join.current().to_pandas()[PAIR].itertuples(index=False, name=None)) == +stands
    assert changed > 0
    assert sum(stands.values()) > 0


def test_notices_and_their_updates_join_as_those_that_stand(data: Callable[[str], Path]) -> None:
    _check_notices(*_sky(data("sky")))


def test_generated_notices_and_their_updates_join_as_those_that_stand() -> None:
    _check_notices(*_generated_sky())


def _check_revised(readings: pd.DataFrame) -> None:
    """A twentieth of the readings is revised a day later: as a batch over the revised ones."""
    chance = np.random.default_rng(11)
    at = np.sort(chance.choice(len(readings), len(readings) // 20, replace=False))
    factor = np.ones(len(readings))
    factor[at] = chance.uniform(0.5, 1.5, len(at))
    revised = readings.assign(pm=readings["pm"].to_numpy() * factor)
    asked: dict[str, Any] = {
        "epsilon": 3.0,
        "probability": 0.5,
        "window": "90 minutes",
    }  # pairs leave later than they come
    aggregates: dict[str, Any] = {"pm": ["mean", "max"]}

    def stream(frame: Any, **more: Any) -> ap.Stream:
        return ap.Stream(frame, key="station", time="at", value=ap.Gaussian("pm", sigma=2.0), name="air", **more)

    corrected = stream(None, change="op", lateness="2 days")
    calls: list[Any] = [
        ap.SimilarityJoin(corrected, **asked, emit="changes"),
        ap.WindowAggregate(corrected, aggregates, window="6 hours"),
        ap.Outliers(corrected, fewer_than=3, **asked),
    ]
    found: list[list[pa.Table]] = [[], [], []]
    when = readings["at"].to_numpy()
    for day in pd.date_range(readings["at"].min().floor("D"), readings["at"].max() + 2 * DAY, freq="D"):
        new = readings[(when >= day) & (when < day + DAY)].assign(op="add")
        before = (when[at] >= day - DAY) & (when[at] < day)
        old, now = readings.iloc[at[before]].assign(op="remove"), revised.iloc[at[before]].assign(op="add")
        push = pd.concat([new, old, now])
        for call, tables in zip(calls, found, strict=True):
            tables.append(call.push(air=push))
    for call, tables in zip(calls, found, strict=True):
        tables.append(call.drain())
    assert _rows(found[1]) == _rows([ap.window_aggregate(stream(revised), aggregates, window="6 hours")])
    alone = _rows([ap.outliers(stream(revised), fewer_than=3, **asked)])
    assert _rows(found[2]) == alone
    assert 0 < len(alone) < len(readings)
    pairs: Counter[tuple[Any, ...]] = Counter()
    for row in pa.concat_tables(found[0]).to_pylist():
        over = row["change"] < 0 and row["time"] > max(row["left_time"], row["right_time"])  # by its window
        pairs[tuple(row[name] for name in BOTH)] += 0 if over else row["change"]
    expected = ap.self_join(stream(revised), **asked).select(BOTH).to_pylist()
    assert +pairs == Counter(tuple(row.values()) for row in expected)


def _rows(tables: list[pa.Table]) -> list[tuple[Any, ...]]:
    rows = [tuple(row.values()) for row in pa.concat_tables(tables).to_pylist()]
    return sorted((tuple(round(v, 6) if isinstance(v, float) else v for v in row) for row in rows), key=str)


def test_air_that_is_revised_a_day_later_is_as_the_revised_one(data: Callable[[str], Path]) -> None:
    frame = pd.read_parquet(data("beijing_multisite_air/prsa_2013_2017.parquet"))
    frame["at"] = pd.to_datetime(frame[["year", "month", "day", "hour"]])
    some = frame[frame["at"] < "2013-03-15"].rename(columns={"PM2.5": "pm"}).dropna(subset=["pm"])
    _check_revised(some.sort_values(["at", "station"])[["station", "at", "pm"]].reset_index(drop=True))


def test_generated_air_that_is_revised_a_day_later_is_as_the_revised_one() -> None:
    chance = np.random.default_rng(4)
    hours = pd.date_range("2020-01-01", periods=96, freq="h")
    level = 60.0 + 30.0 * np.sin(np.arange(96) / 15.0)
    pm = level[:, None] + chance.normal(0.0, 6.0, (96, 8))
    names = [f"s{i}" for i in range(8)]
    frame = pd.DataFrame({"station": names * 96, "at": hours.repeat(8), "pm": pm.ravel()})
    _check_revised(frame)
