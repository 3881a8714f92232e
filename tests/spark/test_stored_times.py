"""Times in Parquet files: microseconds of UTC on all engines, also beside files of versions that wrote INT96."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import appulse as ap
from appulse.cli import app
from appulse.connect.compacting import Compacted, compact
from appulse.connect.sinks import FolderSink
from appulse.engines.spark import file_sink
from appulse.engines.spark.file_sink import FileSink
from appulse.engines.spark.settings import TIME_TYPE
from appulse.model.stored_times import as_stored

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

ZONED, PLAIN = pa.timestamp("us", "UTC"), pa.timestamp("us")
STORED = {"left_time": ZONED, "left_plain": PLAIN, "left_many": pa.list_(ZONED)}
_ALL = 10**9


@pytest.fixture
def own(spark: SparkSession) -> Iterator[SparkSession]:
    """A session with Spark's default, as users have it."""
    before = spark.conf.get(TIME_TYPE)
    spark.conf.set(TIME_TYPE, "INT96")
    yield spark
    spark.conf.set(TIME_TYPE, before or "")


def types(folder: Path) -> list[dict[str, pa.DataType]]:
    schemas = [pq.read_schema(file) for file in sorted(folder.glob("*.parquet"))]
    return [{name: schema.field(name).type for name in STORED if name in schema.names} for schema in schemas]


def is_stored(found: dict[str, pa.DataType]) -> bool:
    """Lists by what they hold, whatever its name."""
    return found.keys() == STORED.keys() and all(
        found[name] == kind or found[name].value_type == kind.value_type for name, kind in STORED.items()
    )


def rows() -> pa.Table:
    times = [datetime(2026, 1, 1, 9, second, 0, 125_000, tzinfo=UTC) for second in range(4)]
    zoned = pa.array(times, pa.timestamp("ms", "Europe/Berlin"))
    plain = pa.array([time.replace(tzinfo=None) for time in times], pa.timestamp("ms"))
    many = pa.array([[time] for time in times], pa.list_(zoned.type))
    return pa.table({"id": range(4), "t": zoned, "x": [0.0, 1.0, 2.0, 3.0], "plain": plain, "many": many})


def joined(frame: Any) -> Any:
    given = ap.Stream(frame, key="id", time="t", value="x", carry=["plain", "many"], lateness=10)
    return ap.self_join(given, epsilon=1, probability=1, window=300)


def test_a_sink_of_a_session_of_the_user(own: SparkSession, tmp_path: Path) -> None:
    """The session stays as it is, and what lies in the files has its zone."""
    schema = "id long, t timestamp, x double, plain timestamp_ntz, many array<timestamp>"
    (tmp_path / "in").mkdir()
    pq.write_table(rows(), tmp_path / "in" / "rows.parquet")
    found = joined(own.readStream.schema(schema).parquet(str(tmp_path / "in")))
    seen: list[str | None] = []

    def rejects(frame: DataFrame, _: int) -> None:
        seen.append(frame.sparkSession.conf.get(TIME_TYPE))

    out, checkpoint = tmp_path / "out", str(tmp_path / "checkpoint")
    ap.start(found, ("parquet", {"path": str(out)}), rejects, checkpoint=checkpoint, drain=True).awaitTermination()
    assert types(out)
    assert all(map(is_stored, types(out)))
    assert own.conf.get(TIME_TYPE) == "INT96"
    assert set(seen) == {"INT96"}
    local = tmp_path / "local"
    FolderSink("parquet", str(local), "run").write(0, joined(rows()))
    assert all(map(is_stored, types(local)))
    both = [pl.read_parquet(str(folder / "*.parquet")).sort("left_key", "right_key") for folder in (out, local)]
    assert both[0].equals(both[1])
    assert len(both[0]) == 3


def test_a_setting_that_another_query_sets_back(own: SparkSession, tmp_path: Path) -> None:
    """Queries of one client of Spark Connect share its session."""
    real, written = own.range(1).write, []

    def write() -> None:
        written.append(own.conf.get(TIME_TYPE))
        if len(written) == 1:
            own.conf.set(TIME_TYPE, "INT96")
        real.mode("overwrite").parquet(str(tmp_path / "out"))

    file_sink._with_zones(own, write)
    assert written == ["TIMESTAMP_MICROS"] * 2
    assert own.conf.get(TIME_TYPE) == "INT96"


def test_digits_are_never_lost() -> None:
    schema = pa.schema(
        {
            "fine": pa.timestamp("ns", "Asia/Tokyo"),
            "within": pa.struct({"of": pa.map_(pa.string(), pa.list_(pa.timestamp("s", "+01:00"), 2))}),
            "large": pa.large_list(pa.timestamp("ms")),
            "day": pa.date32(),
        }
    )
    expected = {
        "fine": pa.timestamp("ns", "UTC"),
        "within": pa.struct({"of": pa.map_(pa.string(), pa.list_(ZONED, 2))}),
        "large": pa.large_list(PLAIN),
        "day": pa.date32(),
    }
    assert as_stored(schema) == pa.schema(expected)


def write(spark: SparkSession, folder: Path, number: int) -> None:
    columns = "id", "timestamp_micros(id * 1000001) AS left_time", "array(timestamp_seconds(id)) AS left_many"
    plain = "CAST(timestamp_seconds(id) AS TIMESTAMP_NTZ) AS left_plain"
    frame = spark.range(number * 10, number * 10 + 10).repartition(2).selectExpr(*columns, plain)
    FileSink("parquet", {}, str(folder), "q").write(frame, number, lambda: True, frame.count)


def test_files_of_earlier_versions(own: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers have them beside new ones, and `appulse compact` makes one type of both."""
    monkeypatch.setattr(file_sink, "MICROS", "INT96")
    for number in range(3):
        write(own, tmp_path, number)
    kept = compact(tmp_path, _ALL)
    assert kept == Compacted(0, 0, 0, 0, 4)  # merged ones would be of another type than the latest batch
    said = CliRunner().invoke(app, ["compact", str(tmp_path)]).stdout
    assert "4 Parquet files stay: an earlier version wrote them" in said
    before = sorted(own.read.parquet(str(tmp_path)).collect())
    monkeypatch.undo()
    write(own, tmp_path, 3)
    assert {str(kinds["left_time"]) for kinds in types(tmp_path)} == {"timestamp[ns]", "timestamp[us, tz=UTC]"}
    mixed = sorted(own.read.parquet(str(tmp_path)).collect())
    assert mixed[:30] == before
    pandas = pd.read_parquet(tmp_path).sort_values("id").reset_index(drop=True)
    assert pd.to_datetime(pandas["left_time"], utc=True).astype("int64").map(lambda n: n % 1_000).eq(0).all()
    wanted: Any = {
        "id": pl.Int64(),
        **dict.fromkeys(("left_time", "left_many", "left_plain"), pl.Datetime("us", "UTC")),
    }
    wanted |= {"left_many": pl.List(pl.Datetime("us", "UTC")), "left_plain": pl.Datetime("us")}
    polars = pl.read_parquet(str(tmp_path / "*.parquet"), schema=wanted).sort("id")
    assert polars["left_time"].dt.epoch("us").to_list() == [i * 1_000_001 for i in range(40)]

    assert compact(tmp_path, 1) == Compacted(6, 6, 30)  # each is large enough
    assert all(map(is_stored, types(tmp_path)))
    assert compact(tmp_path, _ALL) == Compacted(6, 1, 30)
    write(own, tmp_path, 4)
    assert all(map(is_stored, types(tmp_path)))
    assert sorted(own.read.parquet(str(tmp_path)).collect())[:40] == mixed
    for found in (pl.read_parquet(str(tmp_path / "*.parquet")), pl.from_pandas(pd.read_parquet(tmp_path))):
        sure = found.sort("id")
        assert sure["id"].to_list() == list(range(50))
        assert sure["left_time"].dt.epoch("us").to_list() == [i * 1_000_001 for i in range(50)]
    assert pl.read_parquet_schema(next(tmp_path.glob("*-compacted-*")))["left_plain"] == pl.Datetime("us")
