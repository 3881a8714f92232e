"""Holes that the rows around fill: over tables, by hand, in a simulated Spark and on Spark, against a slow twin."""

from __future__ import annotations

import math
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import appulse as ap
from appulse.engines.filling import FillingBucket, resolve_filling
from appulse.engines.local import Local
from appulse.engines.options import CallSettings
from appulse.engines.spark.routing import ToGroups, bucket_keys
from appulse.engines.spark.stage import GroupBuckets, Stage
from appulse.engines.spark.tiles import TilePlan
from tests.helpers.fake_spark import FakeQuery
from tests.helpers.streaming import drained, drained_answers, files, read_stream

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from appulse.engines.spark.pipeline import Routing
    from appulse.engines.spark.tiling import Tiling

LATENESS = 3
Row = tuple[int, str, int, float | None, float | None]
SCHEMA = pa.schema(
    [("id", pa.int64()), ("room", pa.string()), ("t", pa.int64()), ("x", pa.float64()), ("y", pa.float64())]
)
numbers = st.none() | st.integers(-3, 3).map(float)
rows = st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 25), numbers, numbers), max_size=25).map(
    lambda found: [(i, *row) for i, row in enumerate(found)]
)
waits = st.none() | st.integers(0, 8)


def imputer_of(kind: str, wait: int | None) -> Any:
    return ap.LastValueImputer(wait=wait) if kind == "last" else ap.SpeedImputer({"x": 0.5}, wait=wait)


def table(found: Sequence[Row]) -> pa.Table:
    columns = list(zip(*found, strict=True)) if found else [()] * 5
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)


def stream(frame: Any, **more: Any) -> ap.Stream[Any]:
    own = {"value": ap.Incomplete("x", "y")} | more
    return ap.Stream(frame, key="id", time="t", partition_by="room", name="left", **own)


def twin(found: Sequence[Row], kind: str, wait: int | None) -> dict[int, Any]:
    """By row what it is filled with, candidates of each hole with their weights; None where a hole has none."""
    ordered = sorted((row for row in found if row[3:] != (None, None)), key=lambda row: (row[2], row[0]))
    filled: dict[int, Any] = {row[0]: None for row in found}
    for place, row in enumerate(ordered):
        known: list[list[tuple[float, float]]] = []
        for k in (3, 4):
            if row[k] is not None:
                known.append([(float(row[k] or 0.0), 1.0)])
                continue
            own = [(other[2], other[k]) for other in ordered[:place] if other[1] == row[1] and other[k] is not None]
            later = [(other[2], other[k]) for other in ordered[place:] if other[1] == row[1] and other[k] is not None]
            before = own[-1] if own else None
            after = later[0] if later and (wait is None or later[0][0] - row[2] <= wait) else None
            known.append(_candidates(kind, row[2], before, after, 0.5 if k == 3 else math.inf))
        if all(known):
            filled[row[0]] = sorted((x, y, round(p * q, 9)) for x, p in known[0] for y, q in known[1])
    return filled


def _candidates(kind: str, at: int, before: Any, after: Any, speed: float) -> list[tuple[float, float]]:
    if before is None and after is None:
        return []
    if kind == "last":
        return [((before or after)[1], 1.0)]
    if before is None or after is None:
        return [((before or after)[1], 1.0)]
    gaps = [max(abs(at - one[0]), 1e-6) for one in (before, after)]
    off = abs(before[1] - after[1])
    plausible = [off <= speed * gaps[1], off <= speed * gaps[0]]
    weights = [0.0 if any(plausible) and not own else 1 / gap for own, gap in zip(plausible, gaps, strict=True)]
    return [(float(one[1]), w / sum(weights)) for one, w in zip((before, after), weights, strict=True) if w > 0.0]


def samples(tables: Sequence[pa.Table], names: Sequence[str] = ("imputed", "imputed_weights")) -> dict[int, Any]:
    found: dict[int, Any] = {}
    for row in [row for one in tables for row in one.to_pylist()]:
        points, weights = (row[name] for name in names)
        assert row["id"] not in found
        found[row["id"]] = (
            None if points is None else sorted((x, y, round(w, 9)) for (x, y), w in zip(points, weights, strict=True))
        )
    return found


def same(found: dict[int, Any], expected: dict[int, Any]) -> bool:
    return repr(sorted(found.items())) == repr(sorted(expected.items()))


@given(rows, st.sampled_from(["last", "speed"]), waits)
def test_a_table_is_filled_as_by_the_twin(found: list[Row], kind: str, wait: int | None) -> None:
    filled = ap.impute(stream(table(found)), imputer_of(kind, wait)).frame
    assert filled["id"].to_pylist() == [row[0] for row in found]
    assert same(samples([filled]), twin(found, kind, wait))


@dataclass
class FakeFilling(FakeQuery):
    def _routing(self, tiling: Tiling) -> Routing:
        return ToGroups(bucket_keys(tiling, grouped=True))

    def _stages(self, tiling: Tiling) -> Sequence[Stage]:  # noqa: ARG002 - whatever the tiling
        return [Stage(GroupBuckets(self.call, FillingBucket), "filling")]


@pytest.mark.filterwarnings("ignore::appulse.LateRows")  # most rows may be late, by chance
@given(
    rows,
    st.sampled_from(["last", "speed"]),
    waits,
    st.integers(1, 9),
    st.integers(1, 3),
    st.sampled_from((-(1 << 40), 1 << 18)),
)
def test_pushes_and_a_simulated_spark_are_as_the_table(
    found: list[Row], kind: str, wait: int | None, cut: int, buckets: int, slack: int
) -> None:
    """Late rows, workers that forget, attempts that fail, logs that begin anew: each row comes once, filled alike."""
    fill: Any = imputer_of(kind, wait).bind(("x", "y"))
    own: dict[str, Any] = {"added": ("imputed", "imputed_weights", "filled")}
    call = resolve_filling(stream(None, lateness=LATENESS), SCHEMA, CallSettings(), fill=fill, **own)
    local, spark = Local(FillingBucket(call)), FakeFilling(call, TilePlan(buckets, 1.0, 0.0, 0.0), Random(len(found)))
    by_hand: list[pa.Table] = []
    answers: list[pa.Table] = []
    refused: list[pa.Table] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FillingBucket, "slack", slack)
        for at in range(0, len(found), cut):
            part = table(found[at : at + cut])
            by_hand.append(local.push({"left": part}))
            some, bad = spark.batch({"left": part})
            answers += some
            refused += bad
        answers += spark.end()[0]
    by_hand.append(local.drain())
    for given_back, late in ((by_hand, [local.rejects()]), (answers, refused)):
        gone = {row["key"] for one in late for row in one.to_pylist()}
        kept = [row for row in found if row[0] not in gone]
        assert same(samples(given_back), twin(kept, kind, wait))
    times = [row["t"] for one in by_hand for row in one.to_pylist()]
    assert times == sorted(times)


def pairs_of(*tables: pa.Table) -> list[str]:
    return sorted(repr(tuple(row.values())) for one in tables for row in one.to_pylist())


CLOSE: dict[str, Any] = {"epsilon": 1.5, "probability": 0.2, "window": 6}


@pytest.mark.filterwarnings("ignore::appulse.LateRows")
@given(rows, rows, st.sampled_from(["last", "speed"]), waits, st.integers(1, 9), st.sampled_from([0.0, 0.3]))
def test_a_join_by_hand_is_as_over_the_tables(
    left: list[Row], right: list[Row], kind: str, wait: int | None, cut: int, sigma: float
) -> None:
    """And both are as the join over what was filled beforehand, with what was filled by what."""
    imputer, value = imputer_of(kind, wait), ap.Incomplete("x", "y", sigma=sigma)
    sides = {"left": sorted(left, key=lambda row: row[2]), "right": sorted(right, key=lambda row: row[2])}
    whole = ap.similarity_join(
        stream(table(sides["left"]), value=value),
        ap.Stream(table(sides["right"]), key="id", time="t", value=value, partition_by="room"),
        imputer=imputer,
        **CLOSE,
    )
    bare = [ap.Stream(None, key="id", time="t", value=value, partition_by="room", name=name) for name in sides]
    join = ap.SimilarityJoin(*bare, imputer=imputer, **CLOSE)
    times = sorted({row[2] for own in sides.values() for row in own})
    parts = [join.push(**{name: table([]) for name in sides})]
    for i in range(0, len(times), cut):
        ticks = times[i : i + cut]
        parts.append(join.push(**{name: table([row for row in own if row[2] in ticks]) for name, own in sides.items()}))
    parts.append(join.drain())
    assert pairs_of(*parts) == pairs_of(whole)
    assert pairs_of(join.rejects()) == pairs_of(ap.rejects(whole))
    filled = [ap.impute(stream(table(own), value=value), imputer) for own in sides.values()]
    filled[1] = ap.Stream(filled[1].frame, key="id", time="t", value=filled[1].value, partition_by="room")
    expected = ap.similarity_join(*filled, **CLOSE)
    assert pairs_of(whole.drop_columns(["left_filled", "right_filled"])) == pairs_of(expected)


def test_withdrawn_rows_fill_nothing() -> None:
    given_rows = pa.table(
        {
            "id": [1, 2, 2, 3],
            "t": [0, 1, 1, 2],
            "x": [1.0, 5.0, 5.0, None],
            "y": [0.0, 0.0, 0.0, 0.0],
            "op": ["add", "add", "remove", "add"],
        }
    )
    told = ap.Stream(given_rows, key="id", time="t", value=ap.Incomplete("x", "y"), change="op")
    filled = ap.impute(told, ap.LastValueImputer())
    assert filled.change is None
    assert filled.frame.select(["id", "imputed"]).to_pylist() == [
        {"id": 1, "imputed": [[1.0, 0.0]]},
        {"id": 3, "imputed": [[1.0, 0.0]]},
    ]


def test_rows_in_order_of_arrival_are_refused() -> None:
    told = ap.Stream(
        pa.table({"id": [1], "t": [0], "x": [None], "y": [1.0]}),
        key="id",
        time="t",
        value=ap.Incomplete("x", "y"),
        order="arrival",
    )
    with pytest.raises(ap.BadArgument, match="order='arrival'"):
        ap.self_join(told, epsilon=1, probability=0.5, window=ap.CountWindow(3), imputer=ap.LastValueImputer())


def cases() -> list[Row]:
    chance = Random(3)
    one: list[Row] = []
    for i in range(160):
        x, y = (None if chance.random() < 0.4 else float(chance.randint(-3, 3)) for _ in range(2))
        one.append((i, chance.choice("abc"), 100 + i // 2, x, y))
    return one


def test_spark_in_batch_and_streaming_is_as_in_process(spark: SparkSession, tmp_path: Path) -> None:
    found = cases()
    left, right = table(found[::2]), table(found[1::2])
    speed = imputer_of("speed", 10)
    imputer = {"left": speed, "right": imputer_of("last", 5)}
    expected = twin(found[::2], "speed", 10)
    folders = [files(tmp_path / name, one, 40) for name, one in (("a", left), ("b", right))]
    frames = [spark.read.parquet(str(folder)) for folder in folders]
    assert same(samples([ap.impute(stream(frames[0]), speed).frame.toArrow()]), expected)
    streaming = ap.impute(stream(read_stream(spark, folders[0])), speed).frame
    answers, rejects = drained(streaming, tmp_path / "out")
    assert same(samples([answers]), expected)
    assert len(rejects) == 0
    whole = ap.similarity_join(*sides(left, right), imputer=imputer, **CLOSE)
    assert len(whole) > 20
    batch_pairs = ap.similarity_join(*sides(*frames), imputer=imputer, **CLOSE)
    assert pairs_of(batch_pairs.toArrow()) == pairs_of(whole)
    assert pairs_of(ap.rejects(batch_pairs).toArrow()) == pairs_of(ap.rejects(whole))
    pairs = ap.similarity_join(*sides(*(read_stream(spark, folder) for folder in folders)), imputer=imputer, **CLOSE)
    assert pairs_of(drained_answers(pairs, tmp_path / "pairs")) == pairs_of(whole)


def sides(*frames: Any) -> list[ap.Stream[Any]]:
    return [
        ap.Stream(frame, key="id", time="t", value=ap.Incomplete("x", "y"), partition_by="room", name=name)
        for frame, name in zip(frames, ("left", "right"), strict=True)
    ]


def test_errors_of_attributes_are_on_spark_as_in_process(spark: SparkSession, tmp_path: Path) -> None:
    found = table(cases()[:60])
    frame = spark.read.parquet(str(files(tmp_path / "in", found, 100)))
    for imputer in (imputer_of("speed", 10), ap.ZeroFill()):
        told = [
            ap.Stream(one, key="id", time="t", value=ap.Incomplete("x", "y", sigma=0.4), partition_by="room")
            for one in (found, frame)
        ]
        here, there = (ap.impute(one, imputer).frame for one in told)
        assert same(samples([there.toArrow()]), samples([here]))


def test_rows_that_fill_no_others_are_rejects_of_the_next_call(spark: SparkSession) -> None:
    """What has no partition does not get to the call on Spark, and is not lost."""
    found = table(cases()[:9])
    found = found.set_column(1, "room", pa.array([None, *found["room"].to_pylist()[1:]], pa.string()))
    here, there = (
        ap.self_join(ap.impute(stream(one), ap.LastValueImputer()), **CLOSE)
        for one in (found, spark.createDataFrame(found))
    )
    rejects, others = (one.drop_columns("values") for one in (ap.rejects(here), ap.rejects(there).toArrow()))
    assert "null partition" in rejects["reason"].to_pylist()
    assert pairs_of(others) == pairs_of(rejects)


def test_an_unbounded_wait_has_no_call_behind_it_in_a_stream(spark: SparkSession, tmp_path: Path) -> None:
    folder = files(tmp_path / "in", table(cases()), 200)
    left = stream(read_stream(spark, folder))
    with pytest.raises(ap.BadArgument, match="wait="):
        ap.self_join(left, imputer=ap.LastValueImputer(), **CLOSE)


def test_whole_frames_alone_are_interpolated(spark: SparkSession, tmp_path: Path) -> None:
    folder = files(tmp_path / "in", table(cases()), 200)
    with pytest.raises(ap.BadArgument, match="LastValueImputer"):
        ap.impute(stream(spark.read.parquet(str(folder))), ap.InterpolationImputer())
