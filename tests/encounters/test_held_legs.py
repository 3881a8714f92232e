"""Legs that are held part by part: what pushes find, whatever the parts, and how many legs they look at for it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import appulse as ap
from appulse.operators import encounters, held_legs

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
