"""Labels of groups whose rows are gone: sessions that meet ever new ones know those of the rows they hold."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import appulse as ap
from appulse.model.readings import Readings
from appulse.model.strings import Bytes, Labels
from appulse.operators import join_windows, relational

GROUPS = 300


def test_joined_columns_have_the_labels_of_their_rows() -> None:
    """A column of a few rows left of many, and rows of another: as a session does push after push."""
    held = Labels(np.arange(3, dtype=np.int32), (b"a", b"b", b"c"))
    for k in range(1, 500):
        new = Labels(np.arange(3, dtype=np.int32), tuple(b"%d-%d" % (k, i) for i in range(3)))
        joined = Labels.concat([held, new])
        assert [joined.values[code] for code in joined.codes[-3:]] == list(new.values)
        assert [joined.values[code] for code in joined.codes[:3]] == [held.values[code] for code in held.codes]
        assert len(joined.values) < 50
        held = joined.slice(3, 6)


def test_joined_readings_have_the_labels_of_their_rows() -> None:
    def readings(k: int) -> Readings:
        time, sensor = np.full(2, k, np.int64), Bytes.of([b"s", b"t"])
        return Readings(time, sensor, np.array([1, 0]), label=(b"%d" % k, b"same"))

    held = readings(0)
    for k in range(1, 500):
        joined = Readings.concat([held, readings(k)])
        assert [joined.label[bits] for bits in joined.bits[-2:]] == [b"same", b"%d" % k]
        assert len(joined.label) < 50
        held = joined.slice(2, 4)


def _rows(n: int, side: float) -> pa.Table:
    """Groups of four rows, of which those near each other match, in order of time."""
    draw, k = np.random.default_rng(5), np.arange(n)
    return pa.table({"id": k, "t": k * 0.1, "x": draw.uniform(0, side, n), "g": [f"g{i}" for i in k // 4]})


@pytest.mark.parametrize("index", ["auto", "grid", "dense"])
@pytest.mark.parametrize("more", [{}, {"how": "left"}, {"emit": "changes"}, {"self": True}])
def test_a_join_knows_the_groups_it_holds(index: Any, more: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(join_windows, "_LABELS", 16)
    rows, sides = (
        _rows(4 * GROUPS, 3.0),
        ({"left": ap.Exact("x")} if more.get("self") else {"left": None, "right": None}),
    )
    more = {name: given for name, given in more.items() if name != "self"}

    def streams(frame: Any) -> list[ap.Stream[Any]]:
        return [ap.Stream(frame, key="id", time="t", value=ap.Exact("x"), partition_by="g") for _ in sides]

    arguments: dict[str, Any] = {
        "epsilon": 1.0,
        "probability": 0.5,
        "window": 3.0,
        "options": ap.Options(index=index),
        **more,
    }
    call, found = ap.SimilarityJoin(*streams(None), **arguments), []
    for begin in range(0, len(rows), 7):
        part = rows.slice(begin, 7)
        found += (call.push(part) if len(sides) == 1 else call.push(left=part, right=part)).to_pylist()
        assert call._engine is not None
        known: Any = call._engine.bucket
        assert len(known.operator._groups) <= 64
    found += call.drain().to_pylist()
    whole = ap.self_join if len(sides) == 1 else ap.similarity_join
    assert sorted(found, key=str) == sorted(whole(*streams(rows), **arguments).to_pylist(), key=str)


@pytest.mark.parametrize("window", [3.0, ap.TumblingWindow("3 seconds")])
def test_an_aggregate_knows_the_groups_it_holds(window: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relational, "_LABELS", 16)
    rows = _rows(4 * GROUPS, 3.0)

    def stream(frame: Any) -> ap.Stream[Any]:
        return ap.Stream(frame, key="id", time="t", value=ap.Exact("x"), partition_by="g")

    call, found = ap.WindowAggregate(stream(None), {"x": "sum"}, window=window), []
    for begin in range(0, len(rows), 7):
        found += call.push(rows.slice(begin, 7)).to_pylist()
        known: Any = call._engine
        assert len(known.bucket.operator._groups) <= 64
    found += call.drain().to_pylist()
    whole = ap.window_aggregate(stream(rows), {"x": "sum"}, window=window)
    assert sorted(found, key=str) == sorted(whole.to_pylist(), key=str)
