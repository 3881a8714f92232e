"""Fields of groups: what is over is forgotten, and groups cost what they hold, not what all have."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import appulse as ap
from appulse.operators import properties
from appulse.operators.phenomena import Phenomena
from appulse.operators.phenomena_within import PhenomenaWithin

WAYS: tuple[dict[str, Any], ...] = ({"resolution": 1.0}, {"within": 0.1})


def _stream(**more: Any) -> ap.Stream[Any]:
    return ap.Stream(None, key="id", time="t", value="v", partition_by="g", **more)


def _groups(n: int, first: int = 0, per: int = 4) -> pa.Table:
    """Groups, one after the other, of a few readings each of a sensor of its own."""
    k = np.arange(first * per, (first + n) * per)
    return pa.table({"id": k, "t": k * 0.25, "v": k % 2 * 1.0, "g": k // per})


def _operator(call: ap.Phenomena) -> Phenomena | PhenomenaWithin:
    assert call._engine is not None
    held = vars(call._engine.bucket)["operator"]
    assert isinstance(held, Phenomena | PhenomenaWithin)
    return held


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("regions", [False, True])
def test_memory_goes_by_what_is_held(way: dict[str, Any], regions: bool) -> None:
    """Not by groups times sensors; and where groups end by themselves, by those that have not ended."""
    held = []
    for n in (50, 200):
        call = ap.Phenomena(_stream(), strength=1, span=1, emit="regions" if regions else "events", **way)
        call.push(_groups(n))
        held.append(_operator(call).nbytes)
    assert held[0] < held[1] < 5 * held[0]
    assert held[1] < 200 * 4_000
    ending = ap.Phenomena(_stream(idle_after=2), strength=1, span=1, emit="regions" if regions else "events", **way)
    ending.push(_groups(200))
    assert _operator(ending).nbytes < held[1] / 10


@pytest.mark.parametrize("way", WAYS)
def test_groups_that_are_over_leave_nothing_but_their_numbers(way: dict[str, Any]) -> None:
    call = ap.Phenomena(_stream(), strength=1, span=1, min_sensors=3, **way)
    for k in range(300):
        call.push(_groups(2, 2 * k))
    operator = _operator(call)
    assert len(operator.fields.labels) < 5  # no phenomenon ever stood in any other
    assert not operator.fields.over


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("emit", ["events", "regions"])
def test_a_group_that_was_over_goes_on_with_its_numbers(way: dict[str, Any], emit: str) -> None:
    call = ap.Phenomena(_stream(idle_after=2), strength=1, span=1, emit=emit, **way)
    found = []
    for t in (0, 10, 20, 30):
        ids = ["a", "b", "c"]
        rows = {"id": ids, "t": [t, t, t + 5], "v": [1.0, 1.0, 9.0], "g": ["x", "x", "y"]}
        found += call.push(pa.table(rows)).to_pylist()
        if t:
            assert "x" not in str(_operator(call).fields._fields.keys())
    appeared = [row["phenomenon"] for row in found if row.get("event", "appears") == "appears"]
    assert appeared == [0, 1, 2, 3]


@pytest.mark.parametrize("way", [*WAYS, {}])
def test_sensors_and_words_that_come_and_go_leave_nothing_behind(way: dict[str, Any]) -> None:
    call = ap.Phenomena(ap.Stream(None, key="id", time="t", value="v"), strength=1, span=1, min_sensors=1, **way)
    for t in range(300):
        ids = [f"{t}-{k}" for k in range(4)]
        found = call.push(pa.table({"id": ids, "t": [t] * 4, "v": [t * 1.0] * 4 if way else [f"w{t}"] * 4}))
        if t:
            appeared = [row for row in found.to_pylist() if row["event"] == "appears"]
            assert [len(row["sensors"]) for row in appeared] == [4]
    field = _operator(call).fields[b""]
    assert len(field.roster) < 100
    assert field.room <= 256
    assert len(getattr(field, "labels", ())) < 100


@pytest.mark.parametrize("similar", ["slope", "pattern"])
def test_what_readings_are_judged_by_is_forgotten(similar: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(properties, "_UNITS", 16)
    whole = _groups(200).set_column(0, "id", pa.array(np.repeat(np.arange(200), 4)))
    arguments: dict[str, Any] = {"similar": similar, "over": 2, "strength": 1, "span": 1, "min_sensors": 1}
    call, found = ap.Phenomena(_stream(), **arguments), []
    for begin in range(0, len(whole), 10):
        found += call.push(whole.slice(begin, 10)).to_pylist()
    known = _operator(call)._properties
    assert known is not None
    assert len(known._sensors) < 100
    assert len(known._groups) < 100
    found += call.drain().to_pylist()
    stream = ap.Stream(whole, key="id", time="t", value="v", partition_by="g")
    assert sorted(found, key=str) == sorted(ap.phenomena(stream, **arguments).to_pylist(), key=str)


def test_words_without_letters() -> None:
    table = pa.table({"id": ["a", "b"], "t": [0, 0], "v": ["", ""]})
    events = ap.phenomena(ap.Stream(table, key="id", time="t", value="v"), strength=1, span=1).to_pylist()
    assert [(row["value"], row["sensors"]) for row in events] == [("", ["a", "b"])]


def test_a_field_of_many_phenomena_may_shrink() -> None:
    """Few readings after many, and ever other sensors."""
    call = ap.Phenomena(ap.Stream(None, key="id", time="t", value="v"), strength=1, span=1, min_sensors=1, within=0.1)
    for t in range(80):
        n = 300 if t == 0 else 5
        rows = {"id": [f"{t}-{k}" for k in range(n)], "t": [t * 9] * n, "v": [float(k) for k in range(n)]}
        found = call.push(pa.table(rows)).to_pylist()
        if t > 1:
            assert len([row for row in found if row["event"] == "appears"]) == 5
