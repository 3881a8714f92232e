"""Encounters against their slow twin: in process, by pushes in any order, in a played Spark, and on Spark."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import appulse as ap
from appulse.engines.encounters.bucket import EncounterBucket
from appulse.engines.encounters.call import resolve_encounters
from appulse.engines.options import Options
from appulse.engines.spark.routing import ToGroups, bucket_keys
from appulse.engines.spark.stage import GroupBuckets, Stage
from appulse.engines.spark.tiles import TilePlan
from tests.helpers import naive_encounters as naive
from tests.helpers.fake_spark import FakeQuery
from tests.helpers.streaming import drained, files, read_stream

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from appulse.engines.spark.pipeline import Routing
    from appulse.engines.spark.tiling import Tiling

MODELS = ("exact", "gaussian", "samples")
DIMENSIONS = ("x", "y", "z")


@dataclass(frozen=True)
class Case:
    """Readings of one or two streams, and what is asked of them."""

    streams: tuple[tuple[naive.Reading, ...], ...]
    asked: naive.Asked
    model: str
    d: int
    grouped: bool

    def stream(self, frame: Any, name: str, **changes: Any) -> ap.Stream[Any]:
        names = DIMENSIONS[: self.d]
        values: dict[str, Any] = {
            "exact": ap.Exact(*names),
            "gaussian": ap.Gaussian(*names, sigma="sigma"),
            "samples": ap.Samples("samples", weights="weights", names=names),
        }
        speeds = [f"v{name}" for name in names]
        motion: Any = ap.Straight(self.asked.longest, max_speed=self.asked.fastest)
        if not self.asked.straight:
            motion = ap.Velocity(*speeds, horizon=self.asked.longest, noise=self.asked.noise)
        changes |= {"partition_by": "group"} if self.grouped else {}
        return ap.Stream(frame, key="key", time="time", value=values[self.model], motion=motion, name=name, **changes)

    @property
    def tables(self) -> list[pa.Table]:
        return [self.table(rows) for rows in self.streams]

    def table(self, rows: Sequence[naive.Reading]) -> pa.Table:
        samples = pa.list_(pa.list_(pa.float64()))
        columns: dict[str, Any] = {
            "key": pa.array([row.key for row in rows], pa.string()),
            "time": pa.array([row.time for row in rows], pa.float64()),
            "group": pa.array([row.group for row in rows], pa.string()),
            "sigma": pa.array([row.sigma for row in rows], pa.float64()),
            "samples": pa.array([[_plus(row.mean, x) for x, _ in row.errors] for row in rows], samples),
            "weights": pa.array([[w for _, w in row.errors] for row in rows], pa.list_(pa.float64())),
        }
        for k, name in enumerate(DIMENSIONS[: self.d]):
            columns[name] = pa.array([row.mean[k] for row in rows], pa.float64())
            columns[f"v{name}"] = pa.array([row.velocity[k] for row in rows], pa.float64())
        return pa.table(columns)

    @property
    def settings(self) -> dict[str, Any]:
        asked = self.asked
        return {
            "epsilon": asked.epsilon,
            "probability": asked.probability,
            "gap": asked.gap,
            "min_seconds": asked.least,
        }

    def found(self, **settings: Any) -> pa.Table:
        streams = [self.stream(table, "ab"[i]) for i, table in enumerate(self.tables)]
        return ap.encounters(*streams, **self.settings | settings)

    def answers(self) -> list[dict[str, Any]]:
        legs = [naive.legs_of(_in_order(rows), self.asked) for rows in self.streams]
        return naive.answers(legs[0], legs[1] if len(legs) > 1 else None, self.asked)


def _plus(mean: Sequence[float], error: Sequence[float]) -> list[float]:
    return [m + e for m, e in zip(mean, error, strict=True)]


def _in_order(rows: Sequence[naive.Reading]) -> list[naive.Reading]:
    """Canonical: by time, key, value."""
    spread = [(row.time, row.key.encode(), row.mean, row.sigma or 0.0, row.errors) for row in rows]
    return [rows[i] for i in sorted(range(len(rows)), key=spread.__getitem__)]


HALVES = st.integers(-4, 4).map(lambda i: i / 2)


@st.composite
def cases(draw: st.DrawFn, most: int = 14) -> Case:
    d = draw(st.integers(1, 3))
    model = draw(st.sampled_from(MODELS))
    straight = draw(st.booleans())
    grouped = draw(st.booleans())
    errors = st.tuples(st.tuples(*[HALVES.map(lambda v: v / 4)] * d))

    def reading() -> st.SearchStrategy[naive.Reading]:
        return st.builds(
            naive.Reading,
            key=st.sampled_from("abc"),
            time=st.integers(0, 10).map(float),
            mean=st.tuples(*[HALVES] * d),
            group=st.sampled_from("pq") if grouped else st.just("p"),
            sigma=st.sampled_from((0.0, 0.5, 2.0)) if model == "gaussian" else st.none(),
            # Balanced, so that their mean is the reading's.
            errors=errors.map(lambda e: ((e[0], 0.5), (tuple(-x for x in e[0]), 0.5)))
            if model == "samples"
            else st.just(()),
            velocity=st.tuples(*[st.integers(-2, 2).map(float)] * d),
        )

    streams = draw(
        st.lists(
            st.lists(reading(), min_size=draw(st.sampled_from((6, 0))), max_size=most).map(tuple),
            min_size=1,
            max_size=2,
        ).map(tuple)
    )
    asked = naive.Asked(
        epsilon=draw(st.sampled_from((2.5, 1.0, 0.3, 0.0))),
        probability=draw(st.sampled_from((0.3, 0.7, 0.01, 1.0))),
        gap=draw(st.sampled_from((0.0, 1.0, 3.0))),
        least=draw(st.sampled_from((0.0, 0.0, 0.5))),
        longest=draw(st.sampled_from((6.0, 3.0, 1.0))),
        straight=straight,
        fastest=draw(st.sampled_from((None, 0.8))),
        noise=0.0 if straight or model == "samples" else draw(st.sampled_from((0.0, 0.4))),
    )
    return Case(streams, asked, model, d, grouped)


def _unambiguous(case: Case) -> bool:
    """Whether no probability is so near the threshold that rounding decides."""
    found = [one["probability"] for one in replace(case, asked=replace(case.asked, probability=1e-9)).answers()]
    return all(abs(probability - case.asked.probability) > 1e-7 or probability == 1.0 for probability in found)


@given(cases())
def test_pairs_of_legs_are_those_of_the_twin(case: Case) -> None:
    expected = case.answers()
    found = case.found(emit="legs").to_pylist()
    if not _unambiguous(case):
        return

    def place(row: dict[str, Any]) -> tuple[Any, ...]:
        return row["left_key"], row["left_time"], row["right_key"], row["right_time"], row["overlap_start"]

    wanted = {
        (m["left"].key, m["left"].time, m["right"].key, m["right"].time, m["start"], m["left"].group): m
        for m in expected
    }
    assert sorted(map(place, found)) == sorted(key[:5] for key in wanted)
    for row in found:
        close = [m for key, m in wanted.items() if key[:5] == place(row)]
        assert any(
            row["overlap_end"] == pytest.approx(m["end"])
            and row["closest_distance"] == pytest.approx(m["closest"][0], abs=1e-9)
            and row["probability"] == pytest.approx(m["probability"], abs=1e-8)
            for m in close
        )


@given(cases())
def test_encounters_are_those_of_the_twin(case: Case) -> None:
    case = replace(case, asked=replace(case.asked, least=0.0))
    answers = case.answers()
    if not _unambiguous(case):
        return
    runs = naive.encounters(answers, case.asked)
    found = case.found().to_pylist()
    assert sorted((row["left_key"], row["right_key"], row["start"]) for row in found) == sorted(
        (left, right, start) for _, left, right, start in runs
    )
    for row in found:
        close = [run for key, run in runs.items() if key[1:] == (row["left_key"], row["right_key"], row["start"])]
        assert any(
            row["end"] == pytest.approx(run.end)
            and row["closest_distance"] == pytest.approx(run.closest[0], abs=1e-9)
            and row["seconds_within"] == pytest.approx(run.within, abs=0.01 + 0.001 * run.within)
            and row["probability"] == pytest.approx(run.probability, abs=1e-8)
            and row["legs"] == run.legs
            for run in close
        )


@given(cases(), st.integers(1, 7), st.sampled_from(("closed", "changes", "legs")), st.randoms(use_true_random=False))
@pytest.mark.filterwarnings("ignore::appulse.LateRows")
def test_pushes_in_any_order_give_what_whole_tables_give(case: Case, cut: int, emit: str, chance: Random) -> None:
    expected = case.found(emit=emit)
    join = ap.Encounters(
        *(case.stream(None, "ab"[i], lateness=100) for i in range(len(case.streams))), **case.settings, emit=emit
    )
    rows = [(i, row) for i, own in enumerate(case.streams) for row in own]
    chance.shuffle(rows)
    parts = []
    for at in range(0, len(rows), cut):
        push = rows[at : at + cut]
        frames = {"ab"[i]: case.table([row for s, row in push if s == i]) for i in range(len(case.streams))}
        parts.append(join.push(**frames))
    last = join.drain()
    if rows:
        assert _rows([*parts, last]) == _rows([expected])


@given(cases())
def test_changes_add_up_to_what_is_closed(case: Case) -> None:
    """A pair enters once and is final once; what is final is what is reported without changes."""
    changes = case.found(emit="changes").to_pylist()
    final = [{k: v for k, v in row.items() if k != "change"} for row in changes if row["change"] == -1]
    assert sorted(map(repr, final)) == sorted(map(repr, case.found().to_pylist()))
    assert len(final) * 2 == len(changes)


@dataclass
class FakeEncounters(FakeQuery):
    """Encounters on a played Spark."""

    def _routing(self, tiling: Tiling) -> Routing:
        return ToGroups(bucket_keys(tiling, grouped=self.call.grouped))

    def _stages(self, tiling: Tiling) -> Sequence[Stage]:  # noqa: ARG002 - whatever the tiling
        return [Stage(GroupBuckets(self.call, EncounterBucket), "encounters")]


@given(cases(), st.integers(1, 9), st.integers(1, 3), st.sampled_from((-(1 << 40), 1 << 18)))
def test_a_played_spark_answers_as_in_process(case: Case, cut: int, buckets: int, slack: int) -> None:
    """Workers that forget, attempts that fail, logs that begin anew."""
    expected = case.found()
    streams = [case.stream(None, "ab"[i], lateness=100) for i in range(len(case.streams))]
    settings = case.settings | {"emit": "closed", "on_reject": "collect", "options": Options()}
    call = resolve_encounters(streams, [table.schema for table in case.tables], **settings)
    spark = FakeEncounters(call, TilePlan(buckets, 1.0, 0.0, 0.0), Random(cut))
    found: list[pa.Table] = []
    rows = [(i, row) for i, own in enumerate(case.streams) for row in own]
    Random(cut).shuffle(rows)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(EncounterBucket, "slack", slack)
        for at in range(0, len(rows), cut):
            push = rows[at : at + cut]
            names = [encoding.name for encoding in call.encodings]
            found += spark.batch({n: case.table([row for s, row in push if s == i]) for i, n in enumerate(names)})[0]
        found += spark.end()[0]
    assert _rows(found) == _rows([expected])


def _rows(tables: Sequence[pa.Table]) -> list[str]:
    return sorted(repr(row) for table in tables for row in table.to_pylist())


def _tracks(n: int, things: int, seed: int) -> pa.Table:
    """Things that wander, each with readings at times of its own."""
    chance = np.random.default_rng(seed)
    key = chance.integers(0, things, n)
    time = np.sort(chance.uniform(0, 600, n)).round(3)
    start, speed = chance.uniform(0, 40, (things, 2)), chance.normal(0, 0.03, (things, 2))
    place = start[key] + speed[key] * time[:, None] + chance.normal(0, 0.1, (n, 2))
    micros = pa.array((time * 1e6).astype(np.int64)).cast(pa.timestamp("us", "UTC"))
    names = [f"t{i}" for i in key]
    return pa.table({"id": names, "at": micros, "x": place[:, 0], "y": place[:, 1], "room": [i % 3 for i in key]})


def _moving(frame: Any, **changes: Any) -> ap.Stream[Any]:
    value, motion = ap.Gaussian("x", "y", sigma=0.3), ap.Straight("2 minutes")
    return ap.Stream(frame, key="id", time="at", value=value, motion=motion, **changes)


SETTINGS: dict[str, Any] = {"epsilon": 3.0, "probability": 0.3, "gap": "20 seconds"}


@pytest.mark.parametrize("grouped", [False, True])
def test_spark_answers_as_in_process(spark: SparkSession, tmp_path: Path, grouped: bool) -> None:
    table = _tracks(800, 60, 1)
    changes: dict[str, Any] = {"partition_by": "room"} if grouped else {}
    expected = ap.encounters(_moving(table, **changes), **SETTINGS)
    assert len(expected) > (5 if grouped else 20)
    folder = files(tmp_path / "in", table, 300)
    batch = ap.encounters(_moving(spark.read.parquet(str(folder)), **changes), **SETTINGS).toArrow()
    assert batch.schema.names == expected.schema.names
    assert _rows([batch]) == _rows([expected])
    streamed = ap.encounters(_moving(read_stream(spark, folder), lateness=5, **changes), **SETTINGS)
    found, rejects = drained(streamed, tmp_path / "out")
    assert _rows([found]) == _rows([expected])
    assert len(rejects) == 0


def test_many_legs_in_many_cells_are_those_of_the_twin() -> None:
    """Enough of them at once that cells of space are used."""
    table = _tracks(600, 120, 2)
    settings = SETTINGS | {"epsilon": 4.0}
    found = ap.encounters(_moving(table), **settings, emit="legs").to_pylist()
    rows = table.to_pylist()
    readings = [naive.Reading(row["id"], row["at"].timestamp(), (row["x"], row["y"]), sigma=0.3) for row in rows]
    asked = naive.Asked(4.0, 0.3, longest=120.0)
    expected = naive.answers(naive.legs_of(readings, asked), None, asked)
    assert len(found) == len(expected) > 200
    keys = sorted((m["left"].key, m["right"].key, m["start"], m["probability"]) for m in expected)
    own = sorted(
        (row["left_key"], row["right_key"], row["overlap_start"].timestamp(), row["probability"]) for row in found
    )
    assert [row[:3] for row in own] == [row[:3] for row in keys]
    assert [row[3] for row in own] == pytest.approx([row[3] for row in keys], abs=1e-7)


def test_two_ships_that_pass_between_their_readings() -> None:
    """Readings are never nearer than 5, the ships pass within 1 of each other at 30 seconds."""
    table = pa.table(
        {
            "id": ["a", "a", "b", "b"],
            "at": [0.0, 60.0, 10.0, 50.0],
            "x": [0.0, 60.0, 50.0, 10.0],
            "y": [0.0, 0.0, 1.0, 1.0],
        }
    )
    stream = ap.Stream(table, key="id", time="at", value=ap.Exact("x", "y"), motion=ap.Straight("5 minutes"))
    (row,) = ap.encounters(stream, epsilon=2.0, probability=1.0).to_pylist()
    assert (row["start"], row["end"], row["closest_time"], row["closest_distance"]) == (10.0, 50.0, 30.0, 1.0)
    assert row["seconds_within"] == pytest.approx(math.sqrt(3.0))


def test_bad_motion_and_bad_arguments() -> None:
    table = pa.table({"id": ["a", "b", "c"], "at": [0.0, 0.0, 0.0], "x": [0.0] * 3, "y": [0.0] * 3})
    table = table.append_column("sog", pa.array([10.0, 10_000.0, None]))
    table = table.append_column("cog", pa.array([400.0, 10.0, 10.0]))
    course = ap.Course("sog", "cog", horizon="1 minute", unit="knots")
    stream = ap.Stream(table, key="id", time="at", value=ap.Exact("x", "y"), motion=course)
    refused = ap.rejects(ap.encounters(stream, epsilon=1.0, probability=1.0)).to_pylist()
    assert [row["reason"] for row in refused] == ["bad motion"] * 3
    assert "400" in refused[0]["detail"]
    twice = pa.table({"id": ["a", "a"], "at": [0.0, 0.0], "x": [0.0, 1.0], "y": [0.0, 0.0]})
    stream = replace(stream, frame=twice, motion=ap.Straight(60))
    (row,) = ap.rejects(ap.encounters(stream, epsilon=1.0, probability=1.0)).to_pylist()
    assert (row["reason"], row["key"]) == ("same time", "a")
    for motion, message in (
        (None, "does not say how its things move"),
        (ap.Velocity("x", horizon=5), "Velocity has 1 columns"),
    ):
        with pytest.raises(ap.BadArgument, match=message):
            ap.encounters(replace(stream, motion=motion), epsilon=1.0, probability=1.0)
    with pytest.raises(ap.BadArgument, match="needs whole values"):
        ap.encounters(replace(stream, value=ap.Incomplete("x", "y")), epsilon=1.0, probability=1.0)
    with pytest.raises(ap.BadArgument, match="above 0"):
        ap.Straight(0)
    with pytest.raises(ap.BadArgument, match="above 0"):
        ap.Course("sog", "cog", horizon=0)
