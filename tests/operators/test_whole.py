"""Whole tables in order of cells: the answers of rows one after the other, whatever the layout and the threads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import appulse as ap
from appulse.kernels.cells import CellRows, CloseRule, close_rows, packed_order, wide_order
from appulse.model.uncertainty import in_closed_form
from appulse.model.workers import Workers
from appulse.operators import cell_order, whole
from appulse.operators.cell_order import in_order
from tests.helpers import naive, strategies

NORMAL = ("exact", "gaussian", "gaussians", "covariance")
CASES = st.one_of(
    strategies.cases(models=NORMAL, bad=False),
    strategies.cases(models=NORMAL, dimensions=(2, 5)),
    strategies.cases(models=strategies.PLACES, dimensions=(2,), most=3),
    strategies.cases(models=strategies.ALTITUDES, dimensions=(3,), most=3),
)


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Every table is large enough, and has many parts; the joins that were made of whole tables."""
    made: list[Any] = []
    original = whole.WholeJoin._parts

    def parts(self: Any, do: Any) -> Any:
        made.append(self)
        return original(self, do)

    monkeypatch.setattr(whole, "_FROM", 1)
    monkeypatch.setattr(whole, "_PART", 2)
    monkeypatch.setattr(whole.WholeJoin, "_parts", parts)
    return made


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(CASES, st.booleans(), st.booleans(), st.booleans())
def test_answers_are_those_of_the_twin(
    small_parts: list[Any], case: strategies.Case, slots: bool, plain: bool, moved: bool
) -> None:
    """Exact and normal rows and places, groups, existence, ties, with and without slots of time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(whole, "_PLAIN_FROM", 0.0 if plain else np.inf)
        patch.setattr(whole, "_MOVED_FROM", 0.0 if moved else np.inf)
        if slots:
            patch.setattr(cell_order, "_pays", lambda *_: True)
        result, expected = case.run(), case.expected()
    naive.assert_same_answers(result, expected.answers)
    naive.assert_same_rejects(ap.rejects(result), expected.rejects)
    joined = case.emit == "matches" and all(len(t) for t in case.tables) and not expected.rejects
    joined = joined and all(in_closed_form(stream.value) for stream in case.streams)
    assert small_parts or not joined
    small_parts.clear()


def tables(n: int, d: int, seed: int, *, keys: str = "int", spread: float = 10.0) -> list[pa.Table]:
    """Two tables of clustered rows, at times in no order."""
    chance = np.random.default_rng(seed)
    made, middle = [], chance.uniform(-spread, spread, (8, d))
    for first in (0, n):
        centre = middle[chance.integers(0, 8, n)] + chance.normal(0.0, 0.4, (n, d))
        names = [f"x{k}" for k in range(d)]
        ids = np.arange(first, first + n)
        own = {"k": ids if keys == "int" else pa.array([f"row {i}" for i in ids])}
        own |= {"t": chance.uniform(0.0, 100.0, n).round(0), "g": chance.integers(0, 3, n)}
        own |= {"s": chance.uniform(0.01, 0.4, n), "p": chance.uniform(0.3, 1.0, n)}
        made.append(pa.table(own | dict(zip(names, centre.T, strict=True))))
    return made


def rows_of(table: pa.Table) -> pa.Table:
    """The rows in an order of their own."""
    names = [name for name in table.column_names if name not in ("distance", "probability", "log_likelihood_ratio")]
    return table.sort_by([(name, "ascending") for name in names])


def assert_same(one: pa.Table, other: pa.Table) -> None:
    """The same rows in any order; numbers but for rounding."""
    assert one.schema == other.schema
    one, other = rows_of(one), rows_of(other)
    for name in one.column_names:
        if pa.types.is_floating(one.schema.field(name).type) and not name.endswith("time"):
            a, b = (np.asarray(table[name].fill_null(-1.0)) for table in (one, other))
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)
        else:
            assert one[name].equals(other[name]), name


@pytest.mark.parametrize("d", [1, 2, 3, 4])
@pytest.mark.parametrize(
    ("window", "settings"),
    [
        (3, {}),
        (1000, {"how": "full"}),
        (ap.TimeWindow(2, per_stream={"left": 4}), {"how": "left_anti"}),
        (0, {}),
        (30, {"keys": "text"}),
        (5, {"likelihood": True, "sigma": "s", "probability": 0.2}),
        (20, {"sigma": 0.2, "probability": 0.6, "by": "g"}),
        (7, {"existence": "p", "probability": 0.4, "keys": "text"}),
    ],
)
def test_cells_answer_as_a_scan_does(
    small_parts: list[Any], monkeypatch: pytest.MonkeyPatch, d: int, window: Any, settings: dict[str, Any]
) -> None:
    """Rows in clusters, in no order of time, in windows of one length and of two."""
    asked: dict[str, Any] = {"epsilon": 0.7, "probability": 1.0, "window": window} | settings
    sigma, by, existence = (asked.pop(name, None) for name in ("sigma", "by", "existence"))
    rows = tables(400, d, seed=d, keys=asked.pop("keys", "int"))
    names = [f"x{k}" for k in range(d)]
    value = ap.Exact(*names) if sigma is None else ap.Gaussian(*names, sigma=sigma)
    streams = [ap.Stream(t, key="k", time="t", value=value, partition_by=by, existence=existence) for t in rows]
    dense = ap.similarity_join(*streams, **asked, options=ap.Options(index="dense"))
    assert len(dense) > 10
    for enough in (0.0, np.inf):  # pairs of points are written at once, or evaluated as any others
        monkeypatch.setattr(whole, "_PLAIN_FROM", enough)
        monkeypatch.setattr(whole, "_MOVED_FROM", enough)
        found = [ap.similarity_join(*streams, **asked, options=ap.Options(threads=n)) for n in (1, 3)]
        assert found[0].equals(found[1])
        assert_same(found[0], dense)
    assert len(small_parts) == 4


@pytest.mark.parametrize("moved", [0.0, np.inf])
@pytest.mark.parametrize("keys", ["int", "text"])
@pytest.mark.parametrize("more", [{}, {"partition_by": "g"}, {"carry": ["p"]}], ids=str)
def test_the_smaller_key_of_rows_of_one_time_is_on_the_left(
    small_parts: list[Any], monkeypatch: pytest.MonkeyPatch, moved: float, keys: str, more: dict[str, Any]
) -> None:
    """Whether keys stay where they were or not, with rows in the order of cells."""
    monkeypatch.setattr(whole, "_MOVED_FROM", moved)
    rows = tables(400, 2, seed=7, keys=keys)[0]
    rows = rows.take(np.random.default_rng(1).permutation(len(rows)))
    stream = ap.Stream(rows, key="k", time="t", value=ap.Exact("x0", "x1"), **more)
    asked: dict[str, Any] = {"epsilon": 0.7, "probability": 1.0, "window": 2}
    found = ap.self_join(stream, **asked)
    tied = pc.equal(found["left_time"], found["right_time"])
    assert len(small_parts) == 1
    assert pc.sum(tied).as_py() > 10
    assert pc.all(pc.less(found["left_key"], found["right_key"]).filter(tied)).as_py()
    assert_same(found, ap.self_join(stream, **asked, options=ap.Options(index="dense")))


@pytest.mark.parametrize("probability", [0.02, 0.5, 0.98])
@pytest.mark.parametrize("d", [1, 2, 3])
@pytest.mark.parametrize("sigmas", [(0.1, 0.3), (None, 0.2), (0.5, 0.5)])
def test_rows_of_one_deviation_are_looked_for_as_far_as_they_can_match(
    sigmas: tuple[float | None, float], d: int, probability: float
) -> None:
    """And no farther, be that nearer than epsilon or beyond; without that bound there are the same pairs."""
    names = [f"x{k}" for k in range(d)]
    values = [ap.Exact(*names) if sigma is None else ap.Gaussian(*names, sigma=sigma) for sigma in sigmas]
    rows = zip(tables(400, d, seed=d), values, strict=True)
    streams = [ap.Stream(table, key="k", time="t", value=value) for table, value in rows]
    asked: dict[str, Any] = {"epsilon": 1.0, "probability": probability, "window": 30}
    found = ap.similarity_join(*streams, **asked)
    within, wider = ap.explain(found), ap.similarity_join(*streams, **asked, options=ap.Options(bounds=frozenset()))
    assert_same(found, wider)
    assert within.counts.get("refined", 0) == len(found)
    assert within.counts["candidates"] < ap.explain(wider).counts["candidates"]


PLACES = [ap.Position("x1", "x0", earth=earth) for earth in ("wgs84", "sphere", "sky")]


@pytest.mark.parametrize(
    ("value", "settings"),
    [
        (ap.Exact("x0", "x1"), {}),
        (ap.Exact("x0", "x1"), {"how": "left"}),
        (ap.Gaussian("x0", "x1", sigma="s"), {}),
        (ap.Gaussian("x0", "x1", sigma="s"), {"likelihood": True}),
        *((place, {}) for place in PLACES),
        (ap.Position("x1", "x0", sigma="s"), {}),
        (ap.Position("x1", "x0", sigma=30_000.0), {}),
    ],
)
def test_plain_joins_and_joins_of_positions_take_cells(
    small_parts: list[Any], value: ap.Exact | ap.Position, settings: dict[str, Any]
) -> None:
    """Whatever a plan may come to ask for besides: a field of it that this path does not know switches it off."""
    streams = [ap.Stream(table, key="k", time="t", value=value) for table in tables(100, 2, seed=4)]
    asked: dict[str, Any] = {"epsilon": 0.5, "probability": 0.1, "window": 1000}
    for found in (ap.similarity_join(streams[0], streams[1], **asked, **settings), ap.self_join(streams[0], **asked)):
        assert "cells in order" in str(ap.explain(found))
    assert len(small_parts) == 2


@pytest.mark.parametrize(
    ("middle", "dims"),
    [((0.0, 0.0), [1, 2]), ((10.0, 85.0), [0, 2]), ((-80.0, 20.0), [0, 1]), ((30.0, 179.9), [1, 2])],
)
@pytest.mark.parametrize("earth", ["wgs84", "sphere", "sky"])
def test_places_of_one_side_of_the_earth_need_two_coordinates(
    small_parts: list[Any], middle: tuple[float, float], dims: list[int], earth: str
) -> None:
    """Up to 25 degrees from the middle, over the 180th meridian and the pole; those all over the Earth need three."""
    chance, n = np.random.default_rng(8), 600
    rows = []
    for first in (0, n):
        away = chance.normal(0.0, 8.0, (n, 2)).clip(-25.0, 25.0)
        lat = np.clip(middle[0] + away[:, 0], -90.0, 90.0)
        lon = middle[1] + away[:, 1]
        rows.append(pa.table({"k": np.arange(first, first + n), "t": np.zeros(n), "lat": lat, "lon": lon}))
    streams = [ap.Stream(table, key="k", time="t", value=ap.Position("lat", "lon", earth=earth)) for table in rows]
    asked: dict[str, Any] = {"epsilon": 3600.0 if earth == "sky" else 111_000.0, "probability": 1.0, "window": 1}
    found = ap.similarity_join(streams[0], streams[1], **asked)
    assert small_parts[0]._laid.layout.dims.tolist() == dims
    dense = ap.similarity_join(streams[0], streams[1], **asked, options=ap.Options(index="dense"))
    assert len(dense) > 300
    assert_same(found, dense)
    far = rows[1].set_column(3, "lon", pa.array(np.linspace(-180.0, 180.0, n)))
    everywhere = ap.Stream(far, key="k", time="t", value=ap.Position("lat", "lon", earth=earth))
    ap.similarity_join(streams[0], everywhere, **asked)
    assert len(small_parts[1]._laid.layout.dims) == 3 or dims == [0, 1]


@pytest.mark.parametrize("different", [None, "g"])
def test_a_table_with_itself(small_parts: list[Any], different: str | None) -> None:
    """Each pair comes once, the earlier row on the left, and rows of one time by their keys."""
    stream = ap.Stream(tables(500, 2, seed=3)[0], key="k", time="t", value=ap.Exact("x0", "x1"))
    asked: dict[str, Any] = {"epsilon": 0.5, "probability": 1.0, "window": 10, "different": different}
    found = [ap.self_join(stream, **asked, options=ap.Options(threads=n)) for n in (1, 2)]
    assert small_parts
    assert found[0].equals(found[1])
    assert_same(found[0], ap.self_join(stream, **asked, options=ap.Options(index="dense")))


def test_cells_are_slots_of_time_where_windows_are_short(small_parts: list[Any]) -> None:
    """Many rows in one place, few of them in a window."""
    rows = [table.slice(0, 3_000) for table in tables(3_000, 2, seed=5, spread=0.0)]
    streams = [ap.Stream(table, key="k", time="t", value=ap.Exact("x0", "x1")) for table in rows]
    asked: dict[str, Any] = {"epsilon": 3.0, "probability": 1.0, "window": 0.2}
    found = ap.similarity_join(*streams, **asked)
    assert small_parts[0]._laid.layout.slot > 0
    assert ap.explain(found).counts["candidates"] < 3_000 * 3_000 / 20
    assert_same(found, ap.similarity_join(*streams, **asked, options=ap.Options(index="dense")))


def test_rows_that_cells_do_not_suit_are_taken_one_after_the_other(small_parts: list[Any]) -> None:
    """One row a thousand times as large as the others that may match; changes; a single row of the other table."""
    rows = tables(300, 2, seed=6)
    wide = rows[0].set_column(3, "s", pa.array(np.r_[1e3, rows[0]["s"].to_numpy()[1:]]))
    value = ap.Gaussian("x0", "x1", sigma="s")
    streams = [ap.Stream(table, key="k", time="t", value=value) for table in (wide, rows[1])]
    asked: dict[str, Any] = {"epsilon": 0.5, "probability": 1e-8, "window": 10}
    ap.similarity_join(*streams, **asked)
    ap.similarity_join(*streams, **asked, emit="changes")
    ap.similarity_join(ap.Stream(rows[0].slice(0, 0), key="k", time="t", value=value), streams[1], **asked)
    assert not small_parts


def test_a_call_of_whole_tables_says_what_it_did_and_stops_at_the_limit() -> None:
    """The estimate, the candidates and the index; `OutputLimit` before memory is full."""
    rows = tables(2_000, 2, seed=7)
    streams = [ap.Stream(table, key="k", time="t", value=ap.Exact("x0", "x1")) for table in rows]
    asked: dict[str, Any] = {"epsilon": 0.5, "probability": 1.0, "window": 1000}
    found = ap.similarity_join(*streams, **asked)
    text = str(ap.explain(found))
    assert f"{len(found):,} answers" in text
    assert "index of 'left': cells in order" in text
    expected = float(text.split("of them near, ")[1].split(" answers", maxsplit=1)[0].replace(",", ""))
    assert expected == pytest.approx(len(found), rel=0.4)
    with pytest.raises(ap.OutputLimit):
        ap.similarity_join(*streams, **asked, options=ap.Options(max_output=len(found) - 1, threads=2))
    assert len(ap.similarity_join(*streams, **asked, options=ap.Options(max_output=len(found)))) == len(found)


@given(st.lists(st.integers(0, (1 << 30) - 1), min_size=1, max_size=300))
def test_codes_are_sorted_as_numpy_sorts_them(codes: list[int]) -> None:
    """Radix sort, stable."""
    given = np.array(codes, np.int64)
    expected = np.argsort(given, kind="stable")
    for found, order in (packed_order(given, 30, len(codes).bit_length()), wide_order(given, 30)):
        assert order.tolist() == expected.tolist()
        assert found.tolist() == given[expected].tolist()
    wider, order = wide_order(given << 30, 60)
    assert order.tolist() == expected.tolist()
    assert wider.tolist() == (given[expected] << 30).tolist()
    for shape in ((), (1,), (2,), (3,), (4,)):
        rows = np.random.default_rng(0).random((len(codes), *shape))
        assert in_order(rows, order).tolist() == rows[expected].tolist()


def test_candidates_go_on_where_there_was_no_room() -> None:
    """The pairs are the same however little room there is."""
    chance = np.random.default_rng(0)
    code = np.sort(chance.integers(1, 40, 60))
    rows = CellRows(code, np.zeros(60, np.int64), chance.random((60, 2)), np.zeros(60), np.zeros(60, np.int64))
    rule, strips = CloseRule(0.5, 0, 0, False, True, False), np.array([0])
    whole_room = np.empty(10_000, np.int64), np.empty(10_000, np.int64)
    _, n, _ = close_rows(0, 60, strips, rule, rows, rows, *whole_room)
    left, right = list[int](), list[int]()
    begin: Any = 0
    while begin < 60:
        room = np.empty(20, np.int64), np.empty(20, np.int64)
        begin, m, _ = close_rows(begin, 60, strips, rule, rows, rows, *room)
        left += room[0][:m].tolist()
        right += room[1][:m].tolist()
    assert (left, right) == (whole_room[0][:n].tolist(), whole_room[1][:n].tolist())
    near = np.square(rows.centre[:, None] - rows.centre[None]).sum(axis=2) <= 0.25 * (1.0 + 1e-12)
    near &= np.abs(code[:, None] - code[None]) <= 1
    assert sorted(zip(left, right, strict=True)) == sorted(zip(*(i.tolist() for i in np.nonzero(near)), strict=True))


def test_workers_keep_the_order_of_parts_and_raise_what_a_part_raises() -> None:
    """As without threads."""
    assert Workers(3).map(lambda i: i * i, range(20)) == [i * i for i in range(20)]
    with pytest.raises(ZeroDivisionError):
        Workers(2).map(lambda i: 1 // i, [1, 0, 2])


@pytest.mark.parametrize(
    ("value", "settings"),
    [
        (ap.Gaussian("x0", "x1", sigma=0.2), {}),
        (ap.Gaussian("x0", "x1", sigma=0.2), {"reference": ap.Exact("x0", "x1"), "existence": "p"}),
        (ap.Gaussian("x0", "x1", sigma=0.9), {"window": 50, "by": "g", "epsilon": 1.2}),
        (ap.Gaussian("x0", "x1", sigma="s"), {"reference": ap.Gaussian("x0", "x1", sigma=0.3)}),
        (ap.Gaussian("x0", "x1", sigma="s"), {"window": ap.TimeWindow(2), "existence": "p"}),
        (ap.Gaussian("x0", sigma=0.1), {"fewer_than": 40}),
        (ap.Exact("x0", "x1", "x2"), {"existence": "p"}),
        (ap.Exact("x0", "x1", "x2"), {"reference": ap.Exact("x0", "x1", "x2"), "window": 6}),
        (ap.Position("x1", "x0", sigma="s"), {}),
    ],
)
@pytest.mark.parametrize("slots", [False, True])
def test_rows_with_few_partners_are_those_of_a_scan(
    small_parts: list[Any], monkeypatch: pytest.MonkeyPatch, value: Any, settings: dict[str, Any], slots: bool
) -> None:
    """Partners that count for both rows of a pair, near ones first, and partners of other parts."""
    monkeypatch.setattr(whole, "PART", 16)
    if slots:
        monkeypatch.setattr(cell_order, "_pays", lambda *_: True)
    asked: dict[str, Any] = {"fewer_than": 3, "window": 20, "probability": 0.3, "epsilon": 0.7} | settings
    reference, by, existence = (asked.pop(name, None) for name in ("reference", "by", "existence"))
    streams = [
        ap.Stream(table, key="k", time="t", value=kind, partition_by=by, existence=existence)
        for table, kind in zip(tables(300, 3, seed=9), (value, reference), strict=True)
        if kind is not None
    ]
    for sure in (asked.pop("probability"), 0.95):
        few: dict[str, Any] = asked | {"probability": sure}
        found = [ap.outliers(*streams, **few, options=ap.Options(threads=n)) for n in (1, 3)]
        assert small_parts
        assert "cells in order" in str(ap.explain(found[0]))
        assert found[0].equals(found[1])
        dense = ap.outliers(*streams, **few, options=ap.Options(index="dense"))
        assert 0 < len(dense) <= 300
        order = [("key", "ascending")]
        for name, atol in (("key", 0.0), ("time", 0.0), ("expected", 1e-9), ("probability", 1e-9)):
            one, other = (np.asarray(table.sort_by(order)[name], float) for table in (found[0], dense))
            np.testing.assert_allclose(one, other, rtol=1e-9, atol=atol)
