"""One partner each on Spark: whichever buckets have the blocks, the choice of one process."""

from __future__ import annotations

import math
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import appulse as ap
from appulse.engines.join.assign import AssignSettings, resolve_assign
from appulse.engines.spark.tiles import TilePlan
from tests.helpers.fake_spark import FakeAssign
from tests.helpers.streaming import assume_rows, drained_answers, few, read_stream
from tests.operators.test_assignment import ASSIGN, arguments, check, of_streams, scans, streams

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

TWO = ap.Options(partitions=2)
# Spark's clock begins in 1970, and so do late rows.
LATER = 1000.0


def later(table: pa.Table) -> pa.Table:
    return table.set_column(1, "t", pa.array([t + LATER for t in table["t"].to_pylist()], pa.float64()))


@given(scans(), st.data())
def test_buckets_choose_what_one_process_does(scan: tuple[list[pa.Table], dict[str, Any]], data: st.DataObject) -> None:
    """Any number of buckets, any cut into batches, lost caches and failed attempts."""
    tables, asked = [later(table) for table in scan[0]], scan[1]
    call = resolve_assign(
        streams([None, None], **of_streams(asked), lateness=100),
        [table.schema for table in tables],
        AssignSettings(**arguments(asked)),
    )
    plan = TilePlan(data.draw(st.integers(1, 4)), 1.0, 0.0, 0.0)
    spark = FakeAssign(call=call, plan=plan, random=Random(data.draw(st.integers(0, 1 << 30))))
    order = data.draw(st.permutations([(side, i) for side, table in enumerate(tables) for i in range(len(table))]))
    found, cut = [call.no_answers], data.draw(st.integers(1, 5))
    for begin in range(0, len(order), cut):
        batch = {}
        for side, name in enumerate(("tracks", "echoes")):
            rows = [i for own, i in order[begin : begin + cut] if own == side]
            batch[name] = tables[side].take(pa.array(rows, pa.int64()))
        found += spark.batch(batch)[0]
    found += spark.end()[0]
    check(pa.concat_tables(found).to_pylist(), tables, asked)


@few
@given(scans(), st.integers(1, 5))
def test_spark_chooses_at_once_and_batch_by_batch(
    spark: SparkSession, tmp_path: Path, scan: tuple[list[pa.Table], dict[str, Any]], cut: int
) -> None:
    tables, asked = [later(table) for table in scan[0]], scan[1]
    assume_rows(tables)
    folders = [tmp_path / name for name in ("tracks", "echoes")]
    for folder, table in zip(folders, tables, strict=True):
        folder.mkdir(exist_ok=True)
        for old in folder.iterdir():
            old.unlink()
        for begin in range(0, max(1, len(table)), cut):
            pq.write_table(table.slice(begin, cut), folder / f"{begin:03d}.parquet")
    own = of_streams(asked)
    frames = streams([spark.read.parquet(str(folder)) for folder in folders], **own)
    whole = ASSIGN(*frames, **arguments(asked), options=TWO).toArrow()
    check(whole.to_pylist(), tables, asked)
    frames = streams([read_stream(spark, folder) for folder in folders], **own, lateness=100)
    answers = drained_answers(ASSIGN(*frames, **arguments(asked), options=TWO), tmp_path / "out")
    check(answers.to_pylist(), tables, asked)
    assert sorted(map(str, answers.to_pylist())) == sorted(map(str, whole.to_pylist()))


def test_exact_rows_at_one_place_are_partners_on_each_engine(spark: SparkSession, tmp_path: Path) -> None:
    rows = [
        {"k": k, "t": LATER, "x": x, "y": 0.0, "s": s} for k, x, s in ((1, 0.0, 0.0), (2, 50.0, 1.0), (3, 9.0, 0.0))
    ]
    tables = [pa.Table.from_pylist(rows), pa.Table.from_pylist([row | {"k": row["k"] + 6} for row in rows[:2]])]
    asked: dict[str, Any] = {"epsilon": 5.0, "probability": 0.5, "window": "tick", "density": 0.001, "how": "full"}
    expected = ASSIGN(*streams(tables, "s", grouped=False), **asked)
    chosen = {row["left_key"]: (row["right_key"], row["margin"]) for row in expected.to_pylist()}
    assert chosen == {1: (7, math.inf), 2: (8, pytest.approx(4.376731, abs=1e-6)), 3: (None, None)}
    assert expected["log_likelihood_ratio"].null_count == 2
    hand = ap.Assign(*streams([None, None], "s", grouped=False), **asked)
    pushed = [hand.push(tracks=tables[0], echoes=tables[1]), hand.drain()]
    for side, table in enumerate(tables):
        (tmp_path / str(side)).mkdir()
        pq.write_table(table, tmp_path / str(side) / "0.parquet")
    batch = [spark.read.parquet(str(tmp_path / str(side))) for side in (0, 1)]
    whole = ASSIGN(*streams(batch, "s", grouped=False), **asked).toArrow()
    streamed = streams([read_stream(spark, tmp_path / str(side)) for side in (0, 1)], "s", grouped=False, lateness=100)
    drained = drained_answers(ASSIGN(*streamed, **asked, options=TWO), tmp_path / "out")
    for found in (pa.concat_tables(pushed), whole, drained):
        assert sorted(map(str, found.to_pylist())) == sorted(map(str, expected.to_pylist()))


def test_types_of_spark_and_carried_columns_come_back(spark: SparkSession) -> None:
    rows = spark.sql("SELECT 'a' k, timestamp'2024-05-01 12:00:00' t, 0.0D x, 0.0D y, struct(1 n, 'b' s) note")
    both = streams([rows, rows], 1.0, grouped=False)
    found = ap.assign(
        replace(both[0], carry=["note"]), both[1], epsilon=3, probability=0.1, window=ap.TumblingWindow("1 minute")
    )
    assert dict(found.dtypes)["left_note"] == "struct<n:int,s:string>"
    (row,) = found.collect()
    assert (row.left_key, row.left_note.s, row.left_time, row.margin > 0) == ("a", "b", row.right_time, True)
