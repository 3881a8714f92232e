"""Fences that come, go and change place: against the slow twin, by hand, in a played Spark, and on Spark."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, field, replace
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
import shapely
from hypothesis import given, settings
from hypothesis import strategies as st

import appulse as ap
from appulse.engines.fences.call import FenceSettings
from appulse.engines.fences.changing import ChangingFenceBucket
from appulse.engines.multi_queries.bucket import changes_block
from appulse.engines.spark.fences import changing_call, fence_buckets
from appulse.engines.spark.routing import bucket_keys
from appulse.engines.spark.stage import Stage
from appulse.engines.spark.tiles import TilePlan
from appulse.kernels.fences import NEVER
from appulse.model.batch import field_names
from appulse.model.codec import from_columns, pack_columns, unpack_columns
from appulse.model.strings import Bytes
from appulse.operators.fences import Visits, whole_visits
from tests.fences.test_fence_events import Case, FakeFences, cases, rows_of, table_of
from tests.helpers import naive_fences as naive
from tests.helpers.streaming import drained, read_stream

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from appulse.engines.spark.tiling import Tiling

NAMES = ("a", "b", "c")


class Change(NamedTuple):
    """A name, which of the shapes it gets, or -1 where it goes, until when it holds, and of which readings."""

    name: str
    shape: int
    until: float | None
    tag: str | None


@dataclass(frozen=True)
class Changing:
    """Batches of readings, each with changes."""

    case: Case
    batches: tuple[tuple[naive.Reading, ...], ...]
    changes: tuple[tuple[Change, ...], ...]

    def table(self, batch: int) -> pa.Table:
        own = self.changes[batch]
        shapes = [None if one.shape < 0 else self.case.shapes[one.shape] for one in own]
        columns = {
            "query": pa.array([one.name for one in own], pa.string()),
            "region": pa.array([None if shape is None else shapely.to_wkb(shape) for shape in shapes], pa.binary()),
            "radius": pa.array([self.case.radii[max(0, one.shape)] for one in own], pa.float64()),
            "until": pa.array([one.until for one in own], pa.float64()),
            "condition": pa.array([None if one.tag is None else f"tag = '{one.tag}'" for one in own], pa.string()),
            "change": pa.array(["remove" if one.shape < 0 else "add" for one in own], pa.string()),
        }
        return pa.table(columns)

    def expected(self) -> list[naive.Event]:
        """A fence is a name from when it is added until it is removed, wherever it is in between."""
        came = {row: i for i, batch in enumerate(self.batches) for row in batch}
        fences: list[tuple[str, Any]] = []
        untils: list[Any] = []
        for name in NAMES:
            place: Change | None = None
            spans: list[dict[int, Change | None]] = []  # of each life: what it is, by batch
            for i, changes in enumerate(self.changes):
                for one in changes:
                    if one.name != name:
                        continue
                    if one.shape >= 0 and place is None:
                        spans.append({})
                    elif one.shape < 0 and place is not None:
                        spans[-1][i] = None
                    place = one if one.shape >= 0 else None
                if place is not None:
                    spans[-1][i] = place
            fences += [(name, self._inside(span, came)) for span in spans]
            untils += [self._until(span, came) for span in spans]
        rows = [row for batch in self.batches for row in batch]
        return naive.events(rows, fences, self.case.enter, self.case.leave, self.case.dwell, untils)

    def _inside(self, span: dict[int, Change | None], came: dict[naive.Reading, int]) -> Any:
        def inside(row: naive.Reading) -> float:
            batch = came[row]
            if batch < min(span):
                return naive.NOT_YET
            own = span.get(batch)
            if own is None or (own.until is not None and row.time > own.until):
                return naive.GONE
            if own.tag is not None and own.tag != row.tag:
                return 0.0
            return naive.chance(self.case.shapes[own.shape], self.case.radii[own.shape], row)

        return inside

    def _until(self, span: dict[int, Change | None], came: dict[naive.Reading, int]) -> Any:
        def until(row: naive.Reading) -> float:
            own = span.get(came[row])
            return math.inf if own is None or own.until is None else own.until

        return until


@st.composite
def changing(draw: st.DrawFn) -> Changing:
    case = draw(cases())
    count = draw(st.integers(1, 5))
    at = [draw(st.integers(0, count - 1)) for _ in case.rows]
    batches = [tuple(row for row, i in zip(case.rows, at, strict=True) if i == batch) for batch in range(count)]
    until, tag = st.sampled_from((None, 8.0, 17.5, 30.0)), st.sampled_from((None, None, "u", "v"))
    change = st.builds(Change, st.sampled_from(NAMES), st.integers(-1, len(case.shapes) - 1), until, tag)
    some = st.lists(change, max_size=4).map(tuple)
    # Each name at least once, and of those that repeat the last stands.
    names = [*draw(st.lists(st.sampled_from(NAMES), max_size=3)), *draw(st.permutations(NAMES))]
    begin = tuple(Change(name, draw(st.integers(0, len(case.shapes) - 1)), draw(until), draw(tag)) for name in names)
    return Changing(case, tuple(batches), (begin, *(draw(some) for _ in range(count - 1))))


def _plain(events: Sequence[naive.Event]) -> list[str]:
    return sorted(repr((e.query, e.key, e.event, e.time, round(e.probability, 7), e.since)) for e in events)


def _found(tables: Sequence[pa.Table]) -> list[str]:
    return sorted(
        repr((r["query"], r["key"], r["event"], r["time"], round(r["probability"], 7), r["since"]))
        for table in tables
        for r in table.to_pylist()
    )


@settings(deadline=None)
@given(changing(), st.integers(1, 3), st.sampled_from((-(1 << 40), 1 << 18)))
def test_changes_count_for_the_readings_that_come_with_them(given_: Changing, buckets: int, slack: int) -> None:
    """By hand, and in a played Spark whose workers forget and fail, late readings and all."""
    case = given_.case
    if not case.sure():
        return
    expected = _plain(given_.expected())
    none = given_.table(0).slice(0, 0).drop_columns(["change"])
    watched = ap.FenceEvents(case.stream(None, lateness=100), none, **case.asked)
    found = []
    for i, batch in enumerate(given_.batches):
        watched.change(given_.table(i))
        found.append(watched.push(table_of(batch)))
    found.append(watched.drain())
    assert _found(found) == expected
    assert all(case.is_carried(row, row["time"]) for table in found for row in table.to_pylist())
    first = Changing(case, (case.rows,), given_.changes[:1])
    stays = ap.fence_events(case.stream(case.table), first.table(0).drop_columns(["change"]), **case.asked)
    assert _found([stays]) == _plain(first.expected())
    settings, changes = FenceSettings(**case.asked), given_.table(0).schema
    call = changing_call(case.stream(None, lateness=100), case.table.schema, changes, settings)
    spark = FakeChanges(call, TilePlan(buckets, 1.0, 0.0, 0.0), Random(slack + buckets))
    played: list[pa.Table] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ChangingFenceBucket, "slack", slack)
        for i, batch in enumerate(given_.batches):
            spark.changes = given_.table(i)
            played += spark.batch({call.encoding.name: table_of(batch)})[0]
        spark.changes = None
        played += spark.end()[0]
    assert _found(played) == expected


@dataclass
class FakeChanges(FakeFences):
    """Fences that change, on a played Spark."""

    changes: pa.Table | None = field(default=None, kw_only=True)

    def _stages(self, tiling: Tiling) -> Sequence[Stage]:
        return [Stage(fence_buckets(self.call, bucket_keys(tiling, grouped=self.call.grouped)), "fences")]

    def _shuffled(self, tables: Any) -> dict[int, list[bytes]]:
        blocks = super()._shuffled(tables)
        if self.changes is not None and len(self.changes):
            for key in self.routing.keys:
                blocks[key].append(changes_block(0, self.changes))
        return blocks


def _square(x: float) -> bytes:
    return bytes(shapely.to_wkb(shapely.box(x, 0, x + 10, 10)))


def _day() -> tuple[list[pa.Table], list[pa.Table]]:
    """Vans that go to and fro, and squares of which one moves, one goes, one is wrong, one comes late."""
    chance = np.random.default_rng(5)
    rows, changes = [], []
    names = [["moves", "goes", "wrong"], ["moves"], ["goes", "late"], ["moves"]]
    places: list[list[Any]] = [
        [_square(0), _square(20), b"\0"],
        [_square(10)],
        [None, _square(-10)],
        [_square(0)],
    ]
    for i in range(4):
        time = np.repeat(np.arange(100.0 * i, 100.0 * (i + 1), 5.0), 6)
        van = np.tile(np.arange(6), 20)
        x = 15 + 20 * np.sin(time / 30 + van) + chance.normal(0, 0.5, len(time))
        rows.append(pa.table({"id": van, "at": time, "x": x, "y": np.full(len(time), 5.0)}))
        kinds = ["remove" if place is None else "add" for place in places[i]]
        columns = {"query": names[i], "region": pa.array(places[i], pa.binary()), "change": kinds}
        until = pa.array([305.0 if name == "moves" else None for name in names[i]], pa.float64())
        condition = pa.array(["id <> 3" if name == "late" else None for name in names[i]], pa.string())
        changes.append(pa.table({**columns, "until": until, "condition": condition}))
    return rows, changes


def _vans(frame: Any) -> ap.Stream[Any]:
    return ap.Stream(frame, key="id", time="at", value=ap.Gaussian("x", "y", sigma=1.0), lateness=10)


def test_on_spark_the_fences_may_be_a_stream(spark: SparkSession, tmp_path: Path) -> None:
    """As by hand, each micro-batch with its changes, over the end and a second start."""
    rows, changes = _day()
    asked: dict[str, Any] = {"enter": 0.9, "leave": 0.5, "dwell": 12}
    watched = ap.FenceEvents(_vans(None), changes[0].slice(0, 0).drop_columns(["change"]), **asked)
    expected = []
    for batch, change in zip(rows, changes, strict=True):
        watched.change(change)
        expected.append(watched.push(batch))
    expected.append(watched.drain())
    seen = {(row["query"], row["event"]) for table in expected for row in table.to_pylist()}
    assert {query for query, _ in seen} == {"moves", "goes", "late"}
    assert {event for _, event in seen} == {"enter", "dwell", "exit"}
    for name, parts in (("rows", rows), ("changes", changes)):
        _one_file_each(tmp_path / name, parts)
    result = ap.fence_events(
        _vans(read_stream(spark, tmp_path / "rows")), read_stream(spark, tmp_path / "changes"), **asked
    )
    found, rejects = drained(result, tmp_path / "out")
    assert rows_of([found]) == rows_of(expected)
    assert [(row["stream"], row["reason"]) for row in rejects.to_pylist()] == [("queries", "bad region")]
    assert rejects["detail"].to_pylist() == watched.rejects()["detail"].to_pylist()


def test_conditions_read_categories_as_their_texts() -> None:
    """Of the readings as of the fences."""
    tags = pa.array(["a", "b", "b", None, "b"])
    readings = pa.table({"id": [1] * 5, "t": range(5), "x": [0.0, 5.0, 5.0, 5.0, 50.0], "y": [5.0] * 5, "tag": tags})
    conditions = ["tag = 'b'", "tag <> 'a'", "tag IN ('b')", "tag > 'a'", "tag IS NOT NULL", "tag IS NULL"]
    yards = pa.table({"query": range(6), "region": ["POLYGON ((1 0, 10 0, 10 10, 1 10, 1 0))"] * 6})
    found = []
    for rows, texts in (
        (readings, pa.array(conditions)),
        (readings.set_column(4, "tag", tags.dictionary_encode()), pa.array(conditions).dictionary_encode()),
    ):
        fences = yards.append_column("condition", texts)
        things = ap.Stream(rows, key="id", time="t", value=ap.Exact("x", "y"))
        call = ap.FenceEvents(replace(things, frame=None), fences)
        found += [ap.fence_events(things, fences), pa.concat_tables([call.push(rows), call.drain()])]
    columns = ("query", "time", "event")
    found = [sorted(zip(*(one[name].to_pylist() for name in columns), strict=True)) for one in found]
    assert found[0] == [(q, t, e) for q in range(5) for t, e in ((1, "enter"), (3, "exit"))] + [
        (5, 3, "enter"),
        (5, 4, "exit"),
    ]
    assert found[1:] == [found[0]] * 3


def test_what_changes_cannot_be() -> None:
    """Errors before anything is changed; a fence that is wrong leaves what stood as it was."""
    rows, changes = _day()
    first = changes[0].drop_columns(["change"]).slice(0, 2)
    watched = ap.FenceEvents(_vans(None), first)
    with pytest.raises(ap.BadArgument, match="Column 'until' is string"):
        ap.fence_events(_vans(rows[0]), first.set_column(2, "until", pa.array(["a", "b"])))
    with pytest.raises(ap.BadArgument, match="no column 'query'"):
        watched.change(pa.table({"name": ["a"]}))
    with pytest.raises(ap.BadArgument, match="a column 'colour'"):
        watched.change(first.append_column("colour", pa.array([1.0, 2.0])))
    watched.push(rows[0])
    watched.change(pa.table({"query": ["moves", None, "x"], "region": ["POINT", "POINT (0 0)", "POINT (0 0)"]}))
    watched.change(pa.table({"query": ["moves"], "change": ["moved"]}))
    assert [row["reason"] for row in watched.rejects().to_pylist()][:2] == ["bad region", "bad region"]
    again = ap.FenceEvents(_vans(None), first)
    again.push(rows[0])
    left = [set(rows_of([one.push(rows[1])])) for one in (watched, again)]
    assert left[0] == left[1]
    terms = {"condition": ["id >", "colour = 1", "x > 0", None], "until": [1.0, 1.0, 1.0, math.nan]}
    wrong = pa.table({"query": list("abcd"), "region": ["POINT (0 0)"] * 4, **terms})
    watched.change(wrong)
    stays = ap.fence_events(_vans(rows[0]), wrong)
    for refused in (watched.rejects(), ap.rejects(stays)):
        found = [(row["values"][11], row["reason"], row["detail"]) for row in refused.to_pylist()[-4:]]
        assert [(name, reason) for name, reason, _ in found] == [(name, "bad condition") for name in "abcd"]
        assert "no column 'colour'" in found[1][2]
        assert "no column 'x'" in found[2][2]
        assert "until is not a finite time" in found[3][2]
    bare = ap.FenceEvents(_vans(None), first.select(["query", "region"]))
    bare.push(rows[0])
    with pytest.raises(ap.BadArgument, match="no column 'condition', and this one has"):
        bare.change(first)
    with pytest.raises(ap.BadArgument, match="crossing= is about the way"):
        ap.fence_events(ap.Stream(rows[0], "id", "at", ap.Exact("x", "y"), motion=ap.Straight(60)), first, crossing=0.5)
    with pytest.raises(ap.BadArgument, match="no use for the column 'condition'"):
        ap.fence_advice(_vans(rows[0]), first)
    first = first.select(["query", "region"])
    crossing = ap.FenceEvents(
        ap.Stream(None, "id", "at", ap.Exact("x", "y"), motion=ap.Straight("1 minute")), first, crossing=0.5
    )
    crossing.push(rows[0])
    with pytest.raises(ap.BadArgument, match="crossing="):
        crossing.change(first)


def test_changes_before_the_first_push_are_those_of_one_call() -> None:
    """A copy of a call has those until then, and its own from there on."""
    yard = pa.table({"query": ["yard"], "region": ["POLYGON ((0 0, 9 0, 9 9, 0 9, 0 0))"]})
    call = ap.FenceEvents(_vans(None), yard)
    copied = copy.copy(call)
    copied.change(pa.table({"query": ["yard"], "change": ["remove"]}))
    inside = pa.table({"id": ["a"], "at": [0.0], "x": [5.0], "y": [5.0]})
    assert [len(one.push(inside)) + len(one.drain()) for one in (copied, call)] == [0, 1]


def test_visits_of_earlier_versions_hold_on() -> None:
    """Their snapshots do not say until when."""
    zeros, reals = np.zeros(2, np.int64), np.zeros(2)
    visits = Visits(Bytes.of([b"a", b"b"]), zeros, zeros, zeros, zeros, reals, reals)
    given_ = {name: getattr(visits, name) for name in field_names(Visits)}
    columns, _ = unpack_columns("visits", pack_columns("visits", given_), copied=True)
    found = whole_visits(from_columns(Visits, columns))
    assert found.ends is not None
    assert (found.ends == NEVER).all()


def _one_file_each(folder: Path, tables: Sequence[pa.Table]) -> None:
    import os

    import pyarrow.parquet as pq

    folder.mkdir()
    for i, table in enumerate(tables):
        pq.write_table(table, folder / f"{i}.parquet")
        os.utime(folder / f"{i}.parquet", (1_700_000_000 + i, 1_700_000_000 + i))
