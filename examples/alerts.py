"""Alerts of a telescope inside the error circles of gamma-ray notices: the exact join, in process or as two streams.

    python examples/alerts.py [--data FOLDER] [--spark]

Fink joins the alerts of ZTF with notices of gamma-ray bursts by cells of the sky, 14.7 degrees wide. A notice has a
circle of error, from seconds of arc to 26 degrees: here the circle is the margin of its row, and a pair is an alert
within it that began at most a day after the trigger. ``--spark`` reads both as streams of files and joins them in one
call. Where the files are not there, generated ones are taken.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from data_folder import data_at

import appulse as ap
from appulse.lab.results import read_results

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ALERTS, NOTICES, CELLS = "fink_ztf_alerts.parquet", "fink_gcn_notices.parquet", "fink_expected_join.parquet"
NONE = -999.0  # in columns of alerts
# The day of the alerts, by the triggers of notices (Julian dates).
BEGIN, END = 2_460_324.5 - 7.0 / 24.0, 2_460_324.5 + 17.0 / 24.0
EPOCH = 2_440_587.5  # 1970 as a Julian date
ARC_SECONDS = 60.0  # of an arc minute


def main() -> None:
    """Join, and say what the cells had besides."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, default=data_at("sky"))
    parser.add_argument("--spark", action="store_true")
    asked = parser.parse_args()
    real = (asked.data / ALERTS).exists()
    alerts, notices = read(asked.data) if real else twin()
    print(f"{len(alerts):,} alerts, {len(notices):,} notices" + ("" if real else ", both generated"))
    if asked.spark:
        with tempfile.TemporaryDirectory() as folder:
            found = on_spark(ap.session(), alerts, notices, Path(folder))
    else:
        found = coincidences(alerts, notices).to_pandas()
    print(f"within the circle: {len(found):,} pairs of {found['right_key'].nunique()} alerts")
    print(by_notice(found, notices).to_string())
    if real:
        print(against_cells(found, pd.read_parquet(asked.data / CELLS)))


def coincidences(alerts: Any, notices: Any) -> Any:
    """Notices and the alerts within their circles that began at most a day after: frames of pandas, Arrow or Spark."""
    place = ap.Position("dec", "ra", earth="sky")
    circles = ap.Stream(
        notices, key="notice", time="trigger", value=place, margin="radius", carry=["radius"], name="gcn"
    )
    seen = ap.Stream(alerts, key="candid", time="began", value=place, carry=["objectId"], name="ztf")
    # A pair is as far apart as the circle is wide, at most: there is no more to epsilon.
    return ap.similarity_join(
        circles, seen, epsilon=0.0, probability=1.0, window=ap.TimeWindow("1 day", per_stream={"ztf": 0})
    )


def on_spark(spark: SparkSession, alerts: pd.DataFrame, notices: pd.DataFrame, folder: Path) -> pd.DataFrame:
    """The same of two streams of files."""
    streams = [_stream(spark, rows, folder / name) for name, rows in (("alerts", alerts), ("notices", notices))]
    sink = ("parquet", {"path": str(folder / "pairs")})
    query = ap.start(coincidences(*streams), sink, checkpoint=str(folder / "checkpoint"), drain=True)
    query.awaitTermination()
    return pd.DataFrame(read_results(folder / "pairs"))


def _stream(spark: SparkSession, rows: pd.DataFrame, folder: Path) -> DataFrame:
    folder.mkdir(parents=True)
    rows.to_parquet(folder / "rows.parquet", index=False, coerce_timestamps="us", allow_truncated_timestamps=True)
    schema = spark.read.parquet(str(folder)).schema
    return spark.readStream.schema(schema).parquet(str(folder))


def read(folder: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Alerts that are no known star, galaxy or asteroid, and notices of that day that have a circle."""
    alerts, notices = pd.read_parquet(folder / ALERTS), pd.read_parquet(folder / NOTICES)
    galaxy = (alerts["distpsnr1"] > 2.0) | (alerts["distpsnr1"] == NONE) | (alerts["sgscore1"] < 0.0)
    alerts = alerts[_apart(alerts["ssdistnr"]) & galaxy & _apart(alerts["neargaia"])]
    notices = notices[
        (notices["observatory"] != "LVK") & notices["triggerTimejd"].between(BEGIN, END, inclusive="left")
    ]
    return (
        alerts.assign(began=_time(alerts["jdstarthist"]))[["candid", "objectId", "began", "ra", "dec"]],
        notices.assign(
            notice=notices["triggerId"] + " " + notices["gcn_status"],
            trigger=_time(notices["triggerTimejd"]),
            radius=notices["err_arcmin"] * ARC_SECONDS,
        )[["notice", "observatory", "trigger", "ra", "dec", "radius"]],
    )


def _apart(seconds: pd.Series) -> pd.Series:
    """Whether there is nothing known within five arc seconds."""
    return (seconds > 5.0) | (seconds == NONE)


def _time(julian: pd.Series) -> pd.Series:
    """Julian dates as times, to the microsecond."""
    return pd.to_datetime(((julian - EPOCH) * 86_400e6).round(), unit="us", utc=True)


def twin(n: int = 300, seed: int = 0) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Alerts all over the sky and around a few bursts, one of them at the pole, and notices of these."""
    chance, begin = np.random.default_rng(seed), pd.Timestamp("2024-01-15", tz="UTC")
    bursts = pd.DataFrame(
        {"ra": [10.0, 359.9, 200.0, 80.0], "dec": [20.0, -5.0, 89.5, -60.0], "hour": [2.0, 5.0, 9.0, 20.0]}
    )
    near = bursts.iloc[chance.integers(0, len(bursts), n)].reset_index(drop=True)
    # Half of the alerts are somewhere else.
    far = chance.random(n) < 0.5
    ra = np.where(far, chance.uniform(0.0, 360.0, n), near["ra"] + chance.normal(0.0, 4.0, n)) % 360.0
    dec = np.where(far, np.degrees(np.arcsin(chance.uniform(-1.0, 1.0, n))), near["dec"] + chance.normal(0.0, 3.0, n))
    alerts = pd.DataFrame(
        {
            "candid": np.arange(n),
            "objectId": [f"ZTF{i}" for i in range(n)],
            "began": begin + pd.to_timedelta((chance.uniform(-3.0, 30.0, n) * 3600.0).round(), "s"),
            "ra": ra,
            "dec": np.clip(dec, -90.0, 90.0),
        }
    )
    rows = [
        {
            "notice": f"{number} {status}",
            "observatory": "Fermi",
            "trigger": begin + pd.Timedelta(hours=burst["hour"]),
            "ra": (burst["ra"] + chance.normal(0.0, 0.3)) % 360.0,
            "dec": min(burst["dec"] + chance.normal(0.0, 0.2), 90.0),
            "radius": radius * 3600.0,
        }
        for number, burst in bursts.iterrows()
        for status, radius in (("initial", 8.0), ("update_0", 4.0), ("update_1", 0.5))
    ]
    return alerts, pd.DataFrame(rows)


def by_notice(found: pd.DataFrame, notices: pd.DataFrame) -> pd.DataFrame:
    """Each notice's circle in degrees, how many alerts lie in it, and how far away the farthest is."""
    own = found.groupby("left_key")["distance"].agg(["size", "max"])
    table = notices.set_index("notice")[["observatory", "radius"]].join(own)
    table[["radius", "max"]] /= 3600.0
    table["size"] = table["size"].fillna(0).astype(int)
    return table.rename(columns={"radius": "circle", "size": "alerts", "max": "farthest"}).round(3)


def against_cells(found: pd.DataFrame, cells: pd.DataFrame) -> str:
    """What Fink's join by cells has besides."""
    cells = cells[cells["observatory"] != "LVK"]
    theirs = set(zip(cells["objectId"], cells["triggerId"] + " " + cells["gcn_status"], strict=True))
    ours = set(zip(found["right_objectId"], found["left_key"], strict=True))
    return (
        f"Fink's join by cells: {len(theirs)} pairs, {len(theirs & ours)} of them within the circle and "
        f"{len(theirs - ours)} outside; it misses {len(ours - theirs)}"
    )


if __name__ == "__main__":
    main()
