"""Legs that are held part by part: what pushes find, whatever the parts, and how many legs they look at for it."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest

import appulse as ap
from appulse.engines.encounters.bucket import packed_state, unpacked_state
from appulse.operators import encounters, held_legs, held_parts, legs

_SIDE: dict[str, Any] = {"key": "id", "time": "t", "value": ap.Exact("x", "y")}
_MOTIONS = (ap.Straight(max_gap=20.0), ap.Velocity("vx", "vy", horizon=5.0))


def _rows(n: int, seed: int, side: float, things: int | None = None) -> pa.Table:
    chance = np.random.default_rng(seed)
    columns = {"id": np.arange(n) % (things or n), "t": np.sort(chance.uniform(0.0, 60.0, n).round(2))}
    places = {name: chance.uniform(0.0, side, n) for name in ("x", "y")}
    speeds = {name: chance.normal(0.0, 0.3, n) for name in ("vx", "vy")}
    return pa.table(columns | places | speeds | {"g": chance.integers(0, 2, n)})


def _listed(table: pa.Table) -> list[str]:
    return sorted(map(repr, table.to_pylist()))


@pytest.mark.parametrize("motion", _MOTIONS)
@pytest.mark.parametrize("a_bin", [0, 1, 1 << 30])
@pytest.mark.parametrize("grouped", [False, True])
def test_pushes_find_what_the_whole_finds(
    motion: Any, a_bin: int, grouped: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By bins, one by one and by bins made anew; of parts of all sizes, some of which are over."""
    monkeypatch.setattr(held_legs, "YOUNG", 4)
    monkeypatch.setattr(encounters, "YOUNG", 4)
    monkeypatch.setattr(held_parts, "YOUNG", 4)
    monkeypatch.setattr(held_legs, "_A_BIN", a_bin)
    given: dict[str, Any] = _SIDE | {"motion": motion, "partition_by": "g" if grouped else None}
    tables = [_rows(300, seed, 6.0, 80) for seed in (1, 2)]
    asked: dict[str, Any] = {"epsilon": 0.5, "probability": 1.0}
    streams = [ap.Stream(None, **given) for _ in tables]
    join, alone = ap.SimilarityJoin(*streams, **asked, window=8.0), ap.Encounters(ap.Stream(None, **given), **asked)
    found, met, at = [], [], 0
    for size in (50, 1, 7, 120, 2, 3, 60, 57):
        left, right = (table.slice(at, size) for table in tables)
        found.append(join.push(left=left, right=right))
        met.append(alone.push(left))
        at += size
    whole = [ap.Stream(table, **given) for table in tables]
    expected = ap.similarity_join(*whole, **asked, window=8.0), ap.encounters(whole[0], **asked)
    assert len(expected[0]) > 20
    assert _listed(pa.concat_tables([*found, join.drain()])) == _listed(expected[0])
    assert _listed(pa.concat_tables([*met, alone.drain()])) == _listed(expected[1])


def test_a_push_looks_at_few_of_the_legs_held() -> None:
    looked = []
    for held in (2_000, 32_000):
        given: dict[str, Any] = _SIDE | {"motion": ap.Velocity("vx", "vy", horizon=1.0)}
        streams = [ap.Stream(None, **given) for _ in range(2)]
        join = ap.SimilarityJoin(*streams, epsilon=0.5, probability=1.0, window=1_000.0)
        rows, side = [_rows(held + 200, seed, np.sqrt(held)) for seed in (1, 2)], ("left", "right")
        join.push(**{name: table.slice(0, held) for name, table in zip(side, rows, strict=True)})
        legs: Any = join._engine
        before = sum(own.compared for own in legs.bucket.operator.pairs.held)
        for at in range(held, held + 200, 10):
            join.push(**{name: table.slice(at, 10) for name, table in zip(side, rows, strict=True)})
        looked.append(sum(own.compared for own in legs.bucket.operator.pairs.held) - before)
    assert looked[1] < 3 * looked[0]


def test_a_push_puts_few_of_the_open_encounters_together(monkeypatch: pytest.MonkeyPatch) -> None:
    put, runs = [], encounters._runs

    def counted(parts: Any, gap: int) -> Any:
        put.append(len(parts))
        return runs(parts, gap)

    monkeypatch.setattr(encounters, "_runs", counted)
    rows = _rows(4_000, 3, 15.0, 1_000)
    call = ap.Encounters(ap.Stream(None, **_SIDE, motion=ap.Straight(max_gap=30.0)), epsilon=0.5, probability=1.0)
    call.push(rows.slice(0, 3_000))
    legs: Any = call._engine
    held = len(legs.bucket.operator.runs.open)
    put.clear()
    for at in range(3_000, 3_200, 10):
        call.push(rows.slice(at, 10))
    assert held > 500
    assert max(put) < held / 4


@pytest.mark.parametrize("twice", [False, True])
def test_the_last_readings_held_in_parts_make_the_same_legs(twice: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Readings of things that come back or stay away, some twice at a time; a checkpoint is taken up now and then."""
    chance = np.random.default_rng(int(twice))
    calls = [ap.Encounters(ap.Stream(None, **_SIDE, motion=_MOTIONS[0]), epsilon=0.5, probability=1.0) for _ in "ab"]
    for push in range(60):
        n = 200 if push < 3 else int(chance.integers(0, 6))
        t = np.sort(chance.integers(push, push + 2, n)) if twice else push + np.sort(chance.random(n).round(3))
        ids = chance.integers(0, 900, n) if twice else chance.permutation(900)[:n]
        rows = pa.table({"id": ids, "t": t.astype(float), **{name: chance.uniform(0.0, 9.0, n) for name in "xy"}})
        found = []
        for call, young in zip(calls, (4, 1 << 30), strict=True):
            monkeypatch.setattr(held_parts, "YOUNG", young)
            answers, engine = call.push(rows), cast("Any", call._engine)
            maker = engine.bucket.operator.makers
            held = {name: packed_state(name, batch) for name, batch in maker.pending.items()}
            found.append((answers, call.take_rejects(), held, len(maker)))
            if push % 20 == 19:
                for name, blob in held.items():
                    maker.restore(name, unpacked_state(blob)[1])
        assert found[0] == found[1]


@pytest.mark.parametrize("twice", [False, True])
def test_a_push_looks_at_few_of_the_last_readings_held(twice: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where one thing has two readings at one time."""
    looked: list[int] = []
    in_order = legs._in_order

    def counted(rows: Any, **how: Any) -> Any:
        looked.append(len(rows))
        return in_order(rows, **how)

    monkeypatch.setattr(legs, "_in_order", counted)
    call = ap.Encounters(ap.Stream(None, **_SIDE, motion=ap.Straight(max_gap=1e6)), epsilon=0.1, probability=1.0)
    call.push(_rows(4_000, 1, 1e4))
    for push in range(5):
        some = _rows(10, push, 1e4, 9 if twice else 0)
        call.push(some.set_column(1, "t", pa.array(100.0 * (push + 1) + np.arange(10) % 9)))
    assert len(call.rejects()) == 5 * twice
    assert max(looked[-4:]) <= 40
