"""What calls hold in parts: the same answers whatever the parts, and pushes that go through little of it."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest

import appulse as ap
from appulse.engines.multi_queries.queries import WindowQueries
from appulse.operators import fences, held_parts, legs
from appulse.operators.answers import Answers
from appulse.operators.query_windows import StreamView

_SIDE: dict[str, Any] = {"key": "id", "time": "t", "value": ap.Exact("x", "y")}
_FENCES = pa.table(
    {
        "query": np.arange(16),
        "region": [
            f"POLYGON (({x} {y}, {x + 2} {y}, {x + 2} {y + 2}, {x} {y + 2}, {x} {y}))"
            for x in range(0, 8, 2)
            for y in range(0, 8, 2)
        ],
    }
)


def _rows(n: int, begin: int, seed: int, side: float) -> pa.Table:
    chance = np.random.default_rng([seed, begin])
    columns = {"id": np.arange(begin, begin + n), "t": 0.01 * np.arange(begin, begin + n)}
    return pa.table(columns | {name: chance.uniform(0.0, side, n) for name in ("x", "y")})


def _things(push: int) -> pa.Table:
    """Readings of things that come back now and then, about fences."""
    chance = np.random.default_rng(push)
    n = 400 if push < 2 else int(chance.integers(0, 6))
    columns = {"id": chance.integers(0, 500, n), "t": push + np.sort(chance.random(n).round(3))}
    return pa.table(columns | {name: chance.uniform(-1.0, 10.0, n) for name in ("x", "y")})


def _change(call: ap.FenceEvents, of: slice, word: str) -> None:
    places = list(range(16)[of])
    call.change(_FENCES.take(places).append_column("change", pa.array([word] * len(places))))


@pytest.mark.parametrize("asked", [{}, {"dwell": "7 seconds"}, {"motion": ap.Straight(max_gap="9 seconds")}])
@pytest.mark.parametrize("changing", [False, True])
def test_visits_in_parts_are_those_of_one(
    changing: bool, asked: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where fences come and go, under which readings pass nothing."""
    if changing and "motion" in asked:
        return
    given = _SIDE | ({"motion": asked["motion"]} if "motion" in asked else {})
    further = {"crossing": 0.5} if "motion" in asked else asked
    calls = [ap.FenceEvents(ap.Stream(None, **given), fences=_FENCES, **further) for _ in range(2)]
    for push in range(60):
        found: list[Any] = []
        for call, young in zip(calls, (4, 1 << 30), strict=True):
            monkeypatch.setattr(held_parts, "YOUNG", young)
            if changing and push % 8 == 5:
                _change(call, slice(push % 3, None, 7), "remove" if push % 16 == 5 else "add")
            answers, engine = call.push(_things(push)), cast("Any", call._engine)
            visits = engine.bucket.operator.visits
            columns = [visits.fence, visits.since, visits.dwelt, visits.readings, visits.last, visits.key.data]
            found.append((answers, len(engine.bucket.operator), engine.bucket.due, [own.tolist() for own in columns]))
            if push % 20 == 19:
                engine.bucket.operator.visits = visits
        assert found[0] == found[1]
    assert len(found[0][3][0]) > 100


@pytest.mark.parametrize("call", [ap.Nearest, ap.Outliers])
def test_pairs_in_parts_give_what_whole_tables_give(call: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_parts, "YOUNG", 4)
    streams = [_rows(600, 0, seed, 8.0) for seed in range(2 if call is ap.Nearest else 1)]
    asked: dict[str, Any] = {"epsilon": 1.0, "window": "2 seconds"}
    asked |= {"how": "left", "k": 2} if call is ap.Nearest else {"probability": 0.5, "fewer_than": 70}
    names = ("left", "right") if call is ap.Nearest else ("rows",)
    by_hand = call(*(ap.Stream(None, **_SIDE, name=name) for name in names), **asked)
    found = [
        by_hand.push(**{name: table.slice(at, 20) for name, table in zip(names, streams, strict=True)})
        for at in range(0, 600, 20)
    ]
    function: Any = ap.nearest if call is ap.Nearest else ap.outliers
    whole = function(*(ap.Stream(table, **_SIDE, name=n) for n, table in zip(names, streams, strict=True)), **asked)
    together = pa.concat_tables([*found, by_hand.drain()])
    assert sorted(map(repr, together.to_pylist())) == sorted(map(repr, whole.to_pylist()))


def test_a_push_copies_few_of_the_pairs_that_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    copied, take = [0], Answers.take

    def counted(pairs: Answers, index: Any) -> Answers:
        copied[0] += len(index)
        return take(pairs, index)

    call = ap.Nearest(ap.Stream(None, **_SIDE), ap.Stream(None, **_SIDE), epsilon=1.0, window="50 seconds")
    call.push(left=_rows(5_000, 0, 1, 70.0), right=_rows(5_000, 0, 2, 70.0))
    monkeypatch.setattr(Answers, "take", counted)
    for push in range(10):
        begin = 5_000 + 10 * push
        call.push(left=_rows(10, begin, 1, 70.0), right=_rows(10, begin, 2, 70.0))
    engine = cast("Any", call._engine)
    assert len(engine.bucket.pairs) > 5_000
    assert copied[0] < 20_000


@pytest.mark.parametrize("changed", [False, True])
def test_a_push_looks_at_few_of_the_visits_held(changed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    looked, things = [0], legs.things

    def counted(keys: Any, group: Any) -> Any:
        looked[0] += len(keys)
        return things(keys, group)

    call = ap.FenceEvents(ap.Stream(None, **_SIDE), fences=_FENCES)
    call.push(_rows(5_000, 0, 1, 8.0))
    if changed:
        _change(call, slice(0, 1), "add")
    call.push(_rows(10, 5_000, 1, 8.0))
    monkeypatch.setattr(fences, "things", counted)  # as fences know it
    for push in range(1, 11):
        call.push(_rows(10, 5_000 + 10 * push, 1, 8.0))
    assert 0 < looked[0] < 500


_LINKED = ("left.x = right.y", "left.name = right.name", "left.id = right.id AND left.name = right.name")


def _named(push: int, side: int, kind: pa.DataType) -> pa.Table:
    """Rows with values that are null, not a number or minus zero here and there."""
    chance = np.random.default_rng([push, side])
    n = 150 if push < 2 else int(chance.integers(0, 5))
    columns = {"id": chance.integers(0, 9, n), "t": push + np.sort(chance.integers(0, 3, n)).astype(float)}
    values = [[None, float("nan"), -0.0, 0.0, 1.0, 2.0][i] for i in chance.integers(0, 6, n)]
    names = pa.array([[None, "a", "é", "bb"][i] for i in chance.integers(0, 4, n)], pa.string())
    whole = [3.0 if value is not None and np.isnan(value) else value for value in values]
    numbers = {"x": pa.array(values, pa.float64()), "y": pa.array(whole, pa.float64()).cast(kind)}
    return pa.table(columns | numbers | {"name": names, "g": columns["id"] % 2})


@pytest.mark.parametrize("condition", _LINKED)
@pytest.mark.parametrize("grouped", [False, True])
def test_rows_that_are_linked_make_the_answers_of_all(
    condition: str, grouped: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of queries that come and go, and of windows that grow."""
    monkeypatch.setattr(held_parts, "YOUNG", 4)
    given: dict[str, Any] = {"key": "id", "time": "t", "lateness": 2.0, "partition_by": "g" if grouped else None}
    values = {"left": ap.Exact("t"), "right": ap.Exact("t")}
    calls = [ap.QueryMatch(*(ap.Stream(None, **given, value=v, name=n) for n, v in values.items())) for _ in range(2)]
    links, answered = WindowQueries.links, 0
    for push in range(40):
        found: list[Any] = []
        for call, own in zip(calls, (links, property(lambda _: None)), strict=True):
            monkeypatch.setattr(WindowQueries, "links", own)
            for at, length, more in ((0, 5, ""), (20, 9, " AND left.id = right.id"), (30, 7, " AND left.g < 1")):
                if push == at:
                    asked = f"{condition}{more} WITHIN {length} SECONDS"
                    call.change(pa.table({"query": [f"q{at}"], "condition": [asked]}))
            rows = {name: _named(push, side, pa.int64() if side else pa.float64()) for side, name in enumerate(values)}
            found.append((call.push(**rows).to_pylist(), call.take_rejects()))
            engine = cast("Any", call._engine)
            found[-1] += (repr([(own.table.to_pylist(), tick.tolist()) for own, tick in engine.bucket.held.all()]),)
        assert found[0] == found[1]
        answered += len(found[0][0])
    assert answered > 1_000


def test_a_push_looks_at_few_of_the_rows_of_two_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    looked, made = [0], StreamView.__init__

    def counted(view: StreamView, samples: Any, *rest: Any) -> None:
        looked[0] += samples.n
        made(view, samples, *rest)

    call = ap.QueryMatch(*(ap.Stream(None, **_SIDE, name=name) for name in ("left", "right")))
    call.change(pa.table({"query": ["near"], "condition": ["left.id = right.id WITHIN 50 SECONDS"]}))
    call.push(left=_rows(5_000, 0, 1, 70.0), right=_rows(5_000, 0, 2, 70.0))
    monkeypatch.setattr(StreamView, "__init__", counted)
    for push in range(10):
        begin = 5_000 + 10 * push
        call.push(left=_rows(10, begin, 1, 70.0), right=_rows(10, begin, 2, 70.0))
    assert len(cast("Any", call._engine).bucket.held) > 9_000
    assert 0 < looked[0] < 1_000


def test_rows_that_leave_are_found_by_time_unless_late_ones_are_held() -> None:
    asked: dict[str, Any] = {"epsilon": 1.0, "probability": 0.5, "fewer_than": 3, "window": "5 seconds"}
    call = ap.Outliers(ap.Stream(None, **_SIDE, lateness="9 seconds"), **asked)
    looked = []
    for push, t in enumerate((1.0, 2.0, 3.0, 0.5, 4.0, 12.0, 13.0, 14.0, 40.0, 41.0)):
        call.push(_rows(1, push, 1, 4.0).set_column(1, "t", pa.array([t])))
        (store,) = cast("Any", call._engine).bucket.operator._stores
        some = store.between(int(3e6), int(16e6))
        wanted = [i for i, own in enumerate(store.time.view.tolist()) if 3e6 <= own < 16e6]
        assert set(wanted) <= set(range(some.start, some.stop))
        looked.append(some.stop - some.start == len(wanted))
    assert looked[2]
    assert not any(looked[3:5])
    assert looked[-1]
