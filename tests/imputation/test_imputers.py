from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import appulse as ap
from appulse.imputation import time_regression
from appulse.imputation.in_time import LastValueImputer, SpeedImputer
from appulse.imputation.simple import EditingRules, MeanImputer, NearestImputer, PointImputer, ZeroFill
from appulse.kernels import regressions
from tests.helpers import hands

if TYPE_CHECKING:
    from collections.abc import Sequence

    from appulse.model.filled import Fill

R = pa.table({"a": [0.0, 1.0, 1.2, 4.0], "b": [0.0, 10.0, 20.0, 30.0]})


def fills(
    bound: Fill, rows: Sequence[Sequence[float | None]], time: Sequence[int] | None = None, group: Any = None
) -> list[list[tuple[list[float], float]]]:
    values = np.array([[np.nan if value is None else value for value in row] for row in rows], float)
    n = len(rows)
    micros = np.array(range(n) if time is None else time, np.int64) * 1_000_000
    filled = bound.fill(values, micros, np.zeros(n, np.int64) if group is None else np.array(group))
    assert ((filled.way >= 0) == np.isnan(values)).all()
    assert np.isclose(np.add.reduceat(filled.weights, filled.first[:-1]), 1.0).all()
    assert all(bound.describe(way) for way in filled.way[filled.way >= 0].tolist())
    parts = [slice(a, b) for a, b in zip(filled.first[:-1], filled.first[1:], strict=True)]
    return [list(zip(filled.rows[p].tolist(), filled.weights[p].tolist(), strict=True)) for p in parts]


def test_points() -> None:
    rows = [(None, 5.0), (1.0, None), (1.0, 2.0)]
    assert fills(ZeroFill().bind("ab"), rows) == [[([0.0, 5.0], 1.0)], [([1.0, 0.0], 1.0)], [([1.0, 2.0], 1.0)]]
    assert fills(MeanImputer(R).bind("ab"), rows)[:2] == [[([1.55, 5.0], 1.0)], [([1.0, 15.0], 1.0)]]


class Doubled:
    """A model in the manner of scikit-learn: what is missing is twice what is there."""

    def fit(self, matrix: Any) -> Doubled:
        self.columns = matrix.shape[1]
        return self

    def transform(self, matrix: Any) -> Any:
        assert matrix.shape[1] == self.columns
        other = 2.0 * matrix[:, ::-1]
        return np.where(np.isnan(matrix), other, matrix)


def test_any_model_with_transform_fills() -> None:
    imputer = PointImputer(Doubled(), ("b", "a"), R)
    assert fills(imputer.bind("ab"), [(1.5, None), (None, 3.0)]) == [[([1.5, 3.0], 1.0)], [([6.0, 3.0], 1.0)]]
    assert fills(imputer.bind("ab"), [(1.5, 2.0)]) == [[([1.5, 2.0], 1.0)]]
    assert imputer.bind("ab").describe(0) == "Doubled"
    with pytest.raises(ap.BadArgument, match="fitted on b, a"):
        imputer.bind("ac")
    with pytest.raises(ap.BadArgument, match=r"an object that can transform\(matrix\), got int"):
        PointImputer(3, "ab")


def test_nearest_rows_weigh_by_distance() -> None:
    bound = NearestImputer(R, k=2).bind("ab")
    found = fills(bound, [(1.1, None), (1.0, None), (0.25, None)])
    assert sorted((x[1], round(w, 12)) for x, w in found[0]) == [(10.0, 0.5), (20.0, 0.5)]
    assert found[1] == [([1.0, 10.0], 1.0)]
    assert [(x[1], round(w, 12)) for x, w in found[2]] == [(0.0, 0.75), (10.0, 0.25)]
    assert len(fills(NearestImputer(R, k=9).bind("ab"), [(1.1, None)])[0]) == 4
    with pytest.raises(ap.BadArgument, match="k=0"):
        NearestImputer(R, k=0)


def test_editing_rules_want_equal_bins() -> None:
    imputer = EditingRules(R, {"b": ["a"]}, {"a": 0.5})
    bound = imputer.bind("ab")
    found = fills(bound, [(1.4, None), (1.6, None), (None, 1.0), (0.1, None)])
    assert found[0] == [([1.4, 10.0], 0.5), ([1.4, 20.0], 0.5)]
    assert [x[1] for x, _ in found[1]] == [0.0, 10.0, 20.0, 30.0]
    assert [x[0] for x, _ in found[2]] == [0.0, 1.0, 1.2, 4.0]
    assert found[3] == [([0.1, 0.0], 1.0)]
    ways = bound.fill(np.array([[1.4, np.nan], [1.6, np.nan]]), *(np.zeros(2, np.int64),) * 2).way[:, 1]
    assert [bound.describe(way) for way in ways.tolist()] == ["a -> b", "marginal"]
    with pytest.raises(ap.BadArgument, match="no width in bins"):
        EditingRules(R, {"b": ["a"]}, {})
    with pytest.raises(ap.BadArgument, match="no column 'c'"):
        EditingRules(R, {"b": ["c"]}, {"c": 1.0})


# --- in time ----------------------------------------------------------------------------------------------------


def test_the_last_value_goes_on() -> None:
    rows = [(1.0, None), (None, 5.0), (3.0, None), (None, 6.0), (9.0, None)]
    found = fills(LastValueImputer().bind("ab"), rows, [0, 2, 1, 3, 1], [0, 0, 0, 0, 1])
    # In order of time: rows 0, 2, 1, 3 of one partition, row 4 of another.
    assert [own[0][0] for own in found[:4]] == [[1.0, 5.0], [3.0, 5.0], [3.0, 5.0], [3.0, 6.0]]
    assert found[4][0][0] == pytest.approx([9.0, np.nan], nan_ok=True)  # nothing is known: a reject
    assert LastValueImputer().bind("ab").in_order


def test_neighbours_in_time_are_left_out_if_they_cannot_be() -> None:
    rows = [(0.0, 1.0), (None, 1.0), (10.0, 1.0), (None, 1.0)]
    free = fills(SpeedImputer().bind("ab"), rows, [0, 1, 4, 5])
    assert [(x[0], round(w, 12)) for x, w in free[1]] == [(0.0, 0.75), (10.0, 0.25)]
    assert free[3] == [([10.0, 1.0], 1.0)]
    # From 0 one reaches 10 in three seconds; from 10 one cannot have come from 0 in one.
    slow = fills(SpeedImputer({"a": 4.0}).bind("ab"), rows, [0, 1, 4, 5])
    assert slow[1] == [([0.0, 1.0], 1.0)]
    assert fills(SpeedImputer({"a": 1.0}).bind("ab"), rows, [0, 1, 4, 5])[1] == free[1]
    large = [(None if x is None else x * 1e99, 1.0) for x, _ in rows]
    assert fills(SpeedImputer({"a": 4e99}).bind("ab"), large, [0, 1, 4, 5])[1] == [([0.0, 1.0], 1.0)]
    tiny = fills(SpeedImputer().bind("ab"), [(1e-320, 1.0), (None, 1.0), (1e300, 1.0)])
    assert [x[0] for x, _ in tiny[1]] == [1e-320, 1e300]
    with pytest.raises(ap.BadArgument, match="names an attribute 'c'"):
        SpeedImputer({"c": 1.0}).bind("ab")


holed = st.lists(st.tuples(*[st.one_of(st.none(), st.integers(-3, 3))] * 2), max_size=12)


@given(holed, st.data())
def test_neighbours_in_time_are_those_of_a_scan(rows: list[tuple[int | None, ...]], data: st.DataObject) -> None:
    n = len(rows)
    times = data.draw(st.lists(st.integers(0, 5), min_size=n, max_size=n))
    groups = data.draw(st.lists(st.integers(0, 1), min_size=n, max_size=n))
    rows = [row if any(x is not None for x in row) else (0, None) for row in rows]
    if not n:
        nothing = np.zeros(0, np.int64)
        for imputer in (LastValueImputer(), SpeedImputer(), ap.InterpolationImputer()):
            assert len(imputer.bind("ab").fill(np.empty((0, 2)), nothing, nothing).weights) == 0
        return
    last = fills(LastValueImputer().bind("ab"), rows, times, groups)
    near = fills(SpeedImputer().bind("ab"), rows, times, groups)
    for i, row in enumerate(rows):
        order = sorted((j for j in range(n) if groups[j] == groups[i]), key=lambda j: (times[j], j))
        place = order.index(i)
        for k in range(2):
            if row[k] is not None:
                continue
            before = [rows[j][k] for j in order[:place] if rows[j][k] is not None]
            after = [rows[j][k] for j in order[place:] if rows[j][k] is not None]
            if not before and not after:
                assert np.isnan([last[i][0][0][k], *(x[k] for x, _ in near[i])]).all()
                continue
            assert last[i][0][0][k] == (before[-1:] or after[:1])[0]
            assert {x[k] for x, _ in near[i]} == {*before[-1:], *after[:1]}


@pytest.mark.parametrize("hole", [None, math.nan])
def test_readings_of_one_key_and_time_are_in_the_order_of_their_values(hole: float | None) -> None:
    columns: dict[str, list[float | None]] = {"a": [4.0, hole, -2.0, -1.0], "b": [4.0, -0.5, 3.0, hole]}
    for turn in range(4):
        turned = {name: pa.array(np.roll(np.array(column, object), turn)) for name, column in columns.items()}
        table = pa.table({"id": [1] * 4, "at": np.roll([5, 7, 7, 7], turn), **turned})
        stream = ap.Stream(table, key="id", time="at", value=ap.Incomplete("a", "b"))
        found = ap.impute(stream, LastValueImputer()).frame["imputed"].to_pylist()
        assert found[turn:] + found[:turn] == [[[4.0, 4.0]], [[-1.0, -0.5]], [[-2.0, 3.0]], [[-1.0, 3.0]]]


def test_what_looks_around_needs_whole_frames() -> None:
    table = pa.table({"id": [1, 2], "at": [0, 1], "a": [1.0, None], "b": [2.0, 3.0]})
    stream = ap.Stream(table, key="id", time="at", value=ap.Incomplete("a", "b"))
    settings: dict[str, Any] = {"epsilon": 1.0, "probability": 0.5, "window": ap.TimeWindow(5)}
    found = ap.self_join(stream, imputer=LastValueImputer(), **settings)
    assert found["right_filled"].to_pylist() == [[{"attribute": "a", "rule": "last value"}]]
    join = hands.similarity_join(
        left=ap.Stream(None, key="id", time="at", value=stream.value), imputer=ap.InterpolationImputer(), **settings
    )
    with pytest.raises(ap.BadArgument, match="piece by piece"):
        join.push(left=table)


def test_interpolation_gives_its_errors() -> None:
    chance = np.random.default_rng(0)
    time = np.arange(400)
    a = 0.5 * time + chance.normal(size=400)
    a[10] = np.nan
    a[100:103] = np.nan
    rows = list(zip([None if np.isnan(x) else x for x in a.tolist()], [1.0] * 400, strict=True))
    found = fills(ap.InterpolationImputer(k=8).bind("ab"), rows)
    near, far = (np.array([x[0] for x, _ in found[i]]) for i in (10, 101))
    assert len(near) == len(far) == 8
    middle = a[9] + a[11]
    known = np.arange(1, 399)
    errors = a[known] - (a[known - 1] + a[known + 1]) / 2
    errors = errors[np.isfinite(errors)]
    assert near == pytest.approx(middle / 2 + np.quantile(errors, (np.arange(8) + 0.5) / 8))
    assert far.mean() == pytest.approx(50.5, abs=1.5)


def test_interpolation_goes_on_where_there_is_one_neighbour_or_none() -> None:
    rows = [(None, 1.0), (2.0, None), (3.0, 1.0), (None, 1.0)]
    found = fills(ap.InterpolationImputer(k=1).bind("ab"), rows, [0, 1, 2, 3], [0, 0, 0, 0])
    # One step back from 2, and on from 3, by the one step there is.
    assert found[0][0][0] == [1.0, 1.0]
    assert found[3][0][0] == [4.0, 1.0]
    assert found[1] == [([2.0, 1.0], 1.0)]
    alone = fills(ap.InterpolationImputer(k=1).bind("ab"), [(None, 1.0), (5.0, 1.0)], [0, 1], [0, 1])
    assert alone[0][0][0] == pytest.approx([np.nan, 1.0], nan_ok=True)
    with pytest.raises(ap.BadArgument, match="k=0"):
        ap.InterpolationImputer(k=0)


def test_regression_in_time_follows_what_is_there() -> None:
    """Jumps of b that no line through the neighbours of a tells: a is half of b and a trend; calm, then not."""
    chance = np.random.default_rng(0)
    n = 600
    b = chance.normal(size=n) * np.where(np.arange(n) < 300, 1.0, 5.0)
    noise = chance.normal(size=n) * np.where(np.arange(n) < 300, 0.01, 1.0)
    a = 0.1 * np.arange(n) + 0.5 * b + noise
    truth = a.copy()
    gone = np.array([50, 120, 121, 122, 200, 450, 500, 501])
    a[gone] = np.nan
    rows = list(zip([None if np.isnan(x) else x for x in a.tolist()], b.tolist(), strict=True))
    found = fills(ap.TimeRegressionImputer(k=16).bind("ab"), rows)
    samples = {i: np.array([x[0] for x, _ in found[i]]) for i in gone.tolist()}
    line = np.interp(gone, np.flatnonzero(~np.isnan(a)), a[~np.isnan(a)])
    calm = [i for i in gone.tolist() if i < 300]
    assert all(abs(samples[i].mean() - truth[i]) < 0.35 for i in calm)
    assert np.abs(line - truth[gone])[:5].mean() > 2 * np.mean([abs(samples[i].mean() - truth[i]) for i in calm])
    assert np.mean([samples[i].std() for i in calm]) < 0.5 * samples[450].std()


@pytest.mark.parametrize("told", [True, False])
def test_the_errors_of_a_regression_are_those_without_the_row(told: bool) -> None:
    """For the penalty at which they are least, a weak one if there is something to learn, else a strong."""
    chance = np.random.default_rng(1)
    given = np.column_stack([chance.normal(size=(12, 2)), np.full(12, 7.0)])  # a column that tells nothing
    wanted = chance.normal(size=(12, 2)) + 9.0 * told * given[:, :2]
    columns = np.ascontiguousarray(given.T), 3, np.ascontiguousarray(wanted.T)
    weights, errors = regressions.ridge(*columns, time_regression._PENALTIES)
    full = np.column_stack([given[:, :2], np.ones(12)])
    tried = []
    for penalty in (1e-3, 1e-2, 1e-1, 1.0, 1e9):
        ridge = np.diag(np.append(penalty * 12 * given[:, :2].var(axis=0), 0.0))
        each = []
        for i in range(12):
            kept = np.arange(12) != i
            alone = np.linalg.solve(full[kept].T @ full[kept] + ridge, full[kept].T @ wanted[kept])
            each.append(wanted[i] - full[i] @ alone)
        tried.append(np.array(each))
    costs = [float((each**2).sum()) for each in tried]
    best = int(np.argmin(costs))
    assert (best < 2) == told
    np.testing.assert_allclose(errors.T, tried[best], rtol=1e-4, atol=1e-6)
    assert weights.shape == (4, 2)
    assert weights[2] == pytest.approx(0.0)


def test_regression_in_time_on_several_threads_is_that_on_one() -> None:
    chance = np.random.default_rng(5)
    rows = np.cumsum(chance.normal(size=(300, 4)), axis=0)
    rows[chance.random(rows.shape) < 0.3] = np.nan
    beside = np.cumsum(chance.normal(size=(300, 2)), axis=0), np.arange(300)
    one, three = (ap.TimeRegressionImputer(k=8, beside=beside, threads=n).bind("abcd") for n in (1, 3))
    group = np.zeros(300, np.int64)
    filled, same = (fill.fill(rows, np.arange(300), group) for fill in (one, three))
    for part, same_part in zip(vars(filled).values(), vars(same).values(), strict=True):
        np.testing.assert_array_equal(part, same_part)
    assert one.meaning() == three.meaning()


@pytest.mark.parametrize("lost", [False, True])
def test_regression_in_time_looks_at_what_is_beside(lost: bool) -> None:
    """Another stream tells the value where its row is there, and is left alone where it lacks it."""
    chance = np.random.default_rng(3)
    n = 400
    other = chance.normal(size=(n, 1))
    values = np.column_stack([2.0 * other[:, 0] + 1.0 + chance.normal(0.0, 0.01, n), chance.normal(size=n)])
    truth = values[100, 0]
    values[100, 0] = np.nan
    time, group = np.arange(n) * 1_000_000, np.zeros(n, np.int64)
    seen = np.where((np.arange(n) == 100)[:, None] & lost, np.nan, other)
    beside = seen[::-1], time[::-1] + 1000  # in any order, at about the time
    fill = ap.TimeRegressionImputer(beside=beside).bind("ab").fill(values, time, group)
    alone = ap.TimeRegressionImputer().bind("ab").fill(values, time, group)
    found, plain = (one.rows[one.first[100] : one.first[101], 0] for one in (fill, alone))
    if lost:
        assert found.tolist() == plain.tolist()
    else:
        assert np.abs(found - truth).max() < 0.2 < np.abs(plain - truth).max()
        assert len(found) == 24


def test_regression_in_time_looks_at_what_half_a_row_beside_tells() -> None:
    """Rows of the other stream that lack something tell by the rest; where no row has all of it, too."""
    chance = np.random.default_rng(7)
    n = 400
    other = chance.normal(size=(n, 3))
    values = np.column_stack([2.0 * other[:, 1] + chance.normal(0.0, 0.01, n), chance.normal(size=n)])
    gone = np.arange(20, n, 20)
    truth = values[gone, 0]
    values[gone, 0] = np.nan
    other[np.arange(n) % 2 == 0, 0] = np.nan  # one of two in turn, and the third never
    other[np.arange(n) % 2 == 1, 1], other[:, 2] = np.nan, np.nan
    time, group = np.arange(n) * 1_000_000, np.zeros(n, np.int64)
    fill = ap.TimeRegressionImputer(beside=(other, time)).bind("ab").fill(values, time, group)
    off = [
        np.abs(fill.rows[fill.first[row] : fill.first[row + 1], 0] - true)
        for row, true in zip(gone, truth, strict=True)
    ]
    assert np.max(off) < 0.2


def test_regression_in_time_goes_on_where_little_is_there() -> None:
    rows = [(None, 1.0), (2.0, None), (3.0, 1.0), (None, 1.0)]
    found = fills(ap.TimeRegressionImputer(k=2).bind("ab"), rows, [0, 1, 2, 3], [0, 0, 0, 0])
    assert found[1] == [([2.0, 1.0], 0.5)] * 2
    assert all(np.isfinite(x).all() for row in found for x, _ in row)
    alone = fills(ap.TimeRegressionImputer(k=1).bind("ab"), [(None, 1.0), (5.0, 1.0)], [0, 1], [0, 1])
    assert alone[0][0][0] == pytest.approx([np.nan, 1.0], nan_ok=True)
    with pytest.raises(ap.BadArgument, match="k=0"):
        ap.TimeRegressionImputer(k=0)


@given(st.integers(0, 2**32 - 1), st.integers(1, 40))
def test_regression_in_time_goes_by_no_order_of_rows(seed: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    values = np.where(rng.random((n, 3)) < 0.3, np.nan, rng.integers(0, 9, (n, 3)))
    values[np.isnan(values).all(axis=1), 0] = 1.0
    time, group = rng.permutation(n) * 1_000_000, rng.integers(0, 2, n)
    fill = ap.TimeRegressionImputer(k=3).bind("abc")
    whole = fill.fill(values, time, group)
    again = fill.fill(values[::-1], time[::-1], group[::-1])
    mean, other = (np.add.reduceat(one.rows * one.weights[:, None], one.first[:-1]) for one in (whole, again))
    assert other[::-1] == pytest.approx(mean, nan_ok=True)


# --- any repository, any imputer --------------------------------------------------------------------------------

plain = st.sampled_from((0.0, 0.1, 0.5, 1.0, 7.0, -3.0))
extreme = st.sampled_from((1e12, 1e12 + 0.5, 1e-300, 5e-324, 1e155, -1e200, 1.7e308, -1.7e308))


@st.composite
def repositories(draw: st.DrawFn, names: str, values: st.SearchStrategy[float]) -> pa.Table:
    """Small repositories: of one row, with columns that never vary, with rows that are there twice."""
    n = draw(st.sampled_from((1, 1, 2, 3, 8)))
    columns = {}
    for name in names:
        column = draw(st.lists(values, min_size=n, max_size=n))
        columns[name] = column[:1] * n if draw(st.booleans()) else column
    table = pa.table(columns)
    return pa.concat_tables([table, table]) if draw(st.booleans()) else table


@st.composite
def incomplete(draw: st.DrawFn, names: str, values: st.SearchStrategy[float]) -> pa.Table:
    n = draw(st.integers(1, 6))
    row = st.tuples(st.integers(0, 3), *(st.one_of(values, values, st.none()) for _ in names))
    rows = draw(st.lists(row, min_size=n, max_size=n))
    kinds = [pa.int64()] + [pa.float64()] * len(names)
    columns = [pa.array(column, kind) for column, kind in zip(zip(*rows, strict=True), kinds, strict=True)]
    return pa.table([pa.array(range(n)), *columns], names=["k", "t", *names])


def every_imputer(repository: pa.Table, names: str) -> dict[str, Any]:
    by = {name: [other for other in names if other != name] for name in names}
    rules = [ap.DifferentialDependency(dict.fromkeys(others, 0.5), name, 1e6) for name, others in by.items()]
    return {
        "mean": MeanImputer(repository),
        "nearest": NearestImputer(repository, k=3),
        "regression": ap.RegressionImputer(repository, k=4),
        "rules": EditingRules(repository, by, dict.fromkeys(names, 0.5)),
        "dependencies": ap.DependencyImputer(repository, rules, verified=()),
        "jointly": ap.DependencyImputer(repository, rules, joint=True, verified=()),
        "last value": LastValueImputer(),
        "speed": SpeedImputer(),
        "interpolation": ap.InterpolationImputer(k=3),
        "in time": ap.TimeRegressionImputer(k=4),
        "auto": ap.AutoImputer(repository),
        "auto, on its own": ap.AutoImputer(),
    }


@given(st.data(), st.sampled_from(("ab", "abc")), st.sampled_from((plain, st.one_of(plain, extreme))))
def test_a_row_is_filled_or_a_reject_whatever_the_repository(
    data: st.DataObject, names: str, values: st.SearchStrategy[float]
) -> None:
    repository, table = data.draw(repositories(names, values)), data.draw(incomplete(names, values))
    stream = ap.Stream(table, key="k", time="t", value=ap.Incomplete(*names))
    imputers = every_imputer(repository, names)
    name = data.draw(st.sampled_from(sorted(imputers)))
    imputed = ap.impute(stream, imputers[name])
    assert imputed.frame is not None
    bad = {row["key"]: row["reason"] for row in ap.rejects(ap.self_join(imputed, **CLOSE)).to_pylist()}
    for row in imputed.frame.to_pylist():
        if row["k"] in bad:
            assert bad[row["k"]]
            continue
        assert np.isfinite(row["imputed"]).all()
        assert np.isfinite(row["imputed_weights"]).all()
        assert abs(sum(row["imputed_weights"]) - 1.0) < 1e-9
        for k, attribute in enumerate(names):
            assert row[attribute] is None or {sample[k] for sample in row["imputed"]} == {row[attribute]}
    joined = ap.self_join(stream, imputer=imputers[name], **CLOSE)
    assert answers(joined) == answers(ap.self_join(imputed, **CLOSE))
    assert {row["key"]: row["reason"] for row in ap.rejects(joined).to_pylist()} == bad


CLOSE: dict[str, Any] = {"epsilon": 1.0, "probability": 0.25, "window": ap.TimeWindow(2)}


def answers(pairs: pa.Table) -> list[tuple[Any, ...]]:
    return sorted(tuple(row[name] for name in pairs.column_names[:8]) for row in pairs.to_pylist())


def test_what_never_varies_tells_nothing_apart() -> None:
    never = pa.table({"a": [1.0, 2.0, 3.0], "b": [0.1, 0.1, 0.1]})
    assert fills(NearestImputer(never, k=3).bind("ab"), [(2.0, None)]) == [[([2.0, 0.1], 1.0)]]
    near = fills(NearestImputer(never, k=3).bind("ab"), [(None, 9.0)])[0]
    assert sorted(near) == [([a, 9.0], 1 / 3) for a in (1.0, 2.0, 3.0)]
    by_regression = fills(ap.RegressionImputer(never, k=1).bind("ab"), [(None, 9.0), (5.0, None)])
    assert by_regression == [[([2.0, 9.0], 1.0)], [([5.0, 0.1], 1.0)]]
    one = pa.table({"a": [1.0], "b": [2.0]})
    for imputer in (NearestImputer(one), ap.RegressionImputer(one)):
        assert fills(imputer.bind("ab"), [(4.0, None), (None, 4.0)]) == [[([4.0, 2.0], 1.0)], [([1.0, 4.0], 1.0)]]


def test_what_cannot_be_filled_with_a_double_is_a_reject() -> None:
    doubled = pa.table({"a": [1.0, 2.0, 4.0], "b": [2.0, 4.0, 8.0]})
    table = pa.table({"k": [1, 2], "t": [0, 0], "a": [1.5e308, 3.0], "b": pa.array([None, None], pa.float64())})
    stream = ap.Stream(table, key="k", time="t", value=ap.Incomplete("a", "b"))
    imputer = ap.RegressionImputer(doubled)
    for pairs in (ap.self_join(stream, imputer=imputer, **CLOSE), ap.self_join(ap.impute(stream, imputer), **CLOSE)):
        (reject,) = ap.rejects(pairs).to_pylist()
        assert (reject["key"], reject["reason"]) == (1, "non-finite value")
        assert "cannot be filled" in reject["detail"]
    with pytest.raises(ap.BadInput, match="cannot be filled"):
        ap.self_join(stream, imputer=imputer, on_reject="fail", **CLOSE)


def test_rows_that_lack_everything_are_filled_where_asked_for() -> None:
    """From the rows around, or by a repository; what knows neither leaves a reject."""
    xs = [float(i) for i in range(40)]
    doubled = {"a": xs, "b": [2 * x for x in xs]}
    holed = {name: pa.array(of, mask=np.arange(40) == 20) for name, of in doubled.items()}
    stream = ap.Stream(
        pa.table({"k": range(40), "t": range(40), **holed}), key="k", time="t", value=ap.Incomplete("a", "b")
    )
    repository = pa.table(doubled)
    rule = ap.DifferentialDependency({"a": 1.0}, "b", 5.0)
    expected: list[tuple[Any, list[list[float]]]] = [
        (LastValueImputer(), [[19.0, 38.0]]),
        (ap.InterpolationImputer(k=1), [[20.0, 40.0]]),
        (ap.TimeRegressionImputer(k=1), [[20.0, 40.0]]),
        (MeanImputer(repository), [[19.5, 39.0]]),
        (NearestImputer(repository, k=2), [[10.0, 20.0], [30.0, 60.0]]),
        (ap.DependencyImputer(repository, [rule], marginal=1), [[20.0, 40.0]]),
    ]
    for imputer, samples in expected:
        assert ap.impute(stream, imputer).frame["imputed"][20].as_py() is None
        filled = ap.impute(stream, imputer, empty_rows=True)
        assert filled.frame["imputed"][20].as_py() == samples
        assert filled.frame["imputed"].null_count == 0
        assert ap.rejects(ap.self_join(filled, **CLOSE)).num_rows == 0
    unknown = ap.impute(stream, ap.SpatialImputer({"a": (0.0,), "b": (1.0,)}), empty_rows=True)
    assert unknown.frame["imputed"][20].as_py() is unknown.frame["imputed_weights"][20].as_py() is None
    assert ap.rejects(ap.self_join(unknown, **CLOSE))["key"].to_pylist() == [20]
    chosen = ap.impute(stream, "auto", empty_rows=True).frame["imputed"][20].as_py()
    assert np.mean(chosen, axis=0) == pytest.approx([20.0, 40.0], abs=3.0)


def test_rejects_of_filled_rows_are_those_of_a_join_that_fills_them() -> None:
    table = pa.table(
        {"k": [1, 2, 3, 4], "t": [0] * 4, "a": [float("inf"), None, 3.0, None], "b": [1.0, None, 3.0, 2.0]}
    )
    stream = ap.Stream(table, key="k", time="t", value=ap.Incomplete("a", "b"))
    imputer = MeanImputer(pa.table({"a": [1.0], "b": [2.0]}))
    kept = ["key", "reason", "detail"]
    expected = [(1, "non-finite value", "a is inf"), (2, "all attributes missing", "none of a, b is there")]
    for pairs in (ap.self_join(stream, imputer=imputer, **CLOSE), ap.self_join(ap.impute(stream, imputer), **CLOSE)):
        found = ap.rejects(pairs).to_pylist()
        assert [tuple(row[name] for name in kept) for row in found] == expected
        assert json.loads(found[0]["values"]).items() >= {"a": "inf", "b": 1.0}.items()


def test_filled_rows_may_leave_what_they_were_filled_from() -> None:
    table = pa.table({"k": [1, 2, 3], "t": [0] * 3, "a": [1.0, None, float("inf")], "b": [1.0, 2.0, 3.0]})
    stream = ap.Stream(table, key="k", time="t", value=ap.Incomplete("a", "b"))
    filled = ap.impute(stream, MeanImputer(pa.table({"a": [1.0], "b": [2.0]})))
    samples = filled.frame.select(["k", "t", "imputed", "imputed_weights"])
    rows = ap.Stream(samples, key="k", time="t", value=filled.value)
    found = ap.self_join(rows, **CLOSE)
    assert found.num_rows == ap.self_join(filled, **CLOSE).num_rows
    assert ap.rejects(found)["reason"].to_pylist() == ["empty samples"]
    by_hand = ap.SimilarityJoin(ap.Stream(None, key="k", time="t", value=filled.value), **CLOSE)
    assert by_hand.push(samples).num_rows == len(found)


@pytest.mark.parametrize("empty_rows", [False, True])
@pytest.mark.parametrize("name", sorted(every_imputer(pa.table({"a": [1.0, 2.0], "b": [1.0, 2.0]}), "ab")))
def test_what_cannot_be_filled_is_null(name: str, empty_rows: bool) -> None:
    """Never NaN with a weight: rows whose attributes nobody has, with and without others."""
    nothing = pa.nulls(30, pa.float64())
    table = pa.table({"k": range(30), "t": range(30), "a": [None, *range(1, 30)], "b": nothing})
    stream = ap.Stream(table, key="k", time="t", value=ap.Incomplete("a", "b"))
    imputer = every_imputer(pa.table({"a": [1.0, 2.0], "b": [1.0, 2.0]}), "ab")[name]
    found = ap.impute(stream, imputer, empty_rows=empty_rows).frame
    for row in found.select(["imputed", "imputed_weights", "filled"]).to_pylist():
        assert len({value is None for value in row.values()}) == 1
        assert row["imputed"] is None or np.isfinite(row["imputed"]).all()


def test_dependencies_fill_rows_that_lack_everything_from_whole_rows() -> None:
    """Independently of each other three attributes would have 256 values each, and a row 16,777,216 samples."""
    chance = np.random.default_rng(0)
    known = pa.table({name: chance.normal(20, 1, 500) for name in "abc"})
    rows = pa.table({"k": [0, 1], "t": [0, 1], **{name: pa.array([None, 20.0]) for name in "abc"}})
    stream = ap.Stream(rows, key="k", time="t", value=ap.Incomplete(*"abc"))
    rule = ap.DifferentialDependency({"a": 0.1}, "b", 10.0)
    apart, jointly = (
        ap.impute(stream, ap.DependencyImputer(known, [rule], joint=joint), empty_rows=True).frame
        for joint in (False, True)
    )
    assert apart.select(["imputed", "imputed_weights", "filled"]).equals(
        jointly.select(["imputed", "imputed_weights", "filled"])
    )
    samples = apart["imputed"][0].as_py()
    assert len(samples) == 256
    assert {tuple(sample) for sample in samples} <= set(zip(*known.to_pydict().values(), strict=True))
    fill = ap.DependencyImputer(known, [rule]).bind("abc")
    lows, highs = fill.boxes(np.full((1, 3), np.nan))
    assert (lows[0] <= np.min(samples, axis=0)).all()
    assert (highs[0] >= np.max(samples, axis=0)).all()


def own_gaps(n: int, seed: int = 5) -> tuple[Any, Any]:
    """Four attributes that go up and down each day and measure the same; each is lost in runs of its own."""
    chance = np.random.default_rng(seed)
    truth = 10 * np.sin(np.arange(n) / 24 * 2 * np.pi)[:, None] + chance.normal(0, 0.4, (n, 4))
    lost = np.zeros((n, 4), bool)
    for k in range(4):
        at = 0
        while at < n:
            at += int(chance.exponential(14))
            length = int(chance.exponential(6)) + 1
            lost[at : at + length, k] = True
            at += length
    return truth, lost & ~lost.all(axis=1, keepdims=True)


@pytest.mark.parametrize("n", [900, 1500, 4000])
def test_regression_in_time_knows_that_the_holes_of_a_row_have_unequal_gaps(n: int) -> None:
    truth, lost = own_gaps(n)
    values, nothing = np.where(lost, np.nan, truth), np.zeros(n, np.int64)
    rows = values[~lost.any(axis=1)]
    off = {}
    for imputer in (ap.TimeRegressionImputer(), ap.RegressionImputer(pa.table(dict(zip("abcd", rows.T, strict=True))))):
        filled = imputer.bind("abcd").fill(values, 3_600_000_000 * np.arange(n), nothing)
        mean = np.add.reduceat(filled.rows * filled.weights[:, None], filled.first[:-1])
        off[type(imputer).__name__] = np.abs(mean - truth)[lost]
    ours, theirs = off["TimeRegressionImputer"], off["RegressionImputer"]
    assert ours.mean() < 1.06 * theirs.mean()
    assert ours.max() < 2 * theirs.max()


def test_regression_in_time_leaves_long_gaps_to_the_other_attributes() -> None:
    """A gap of a third of the stream: the line across it says little, and few rows show how little."""
    chance = np.random.default_rng(3)
    n = 3000
    season = 5 * np.sin(np.arange(n) / n * 2 * np.pi) + np.cumsum(chance.normal(0, 0.2, n))
    truth = np.column_stack([season, season, season]) + chance.normal(0, 0.3, (n, 3))
    lost = np.zeros((n, 3), bool)
    lost[1000:2000, 0] = True
    values = np.where(lost, np.nan, truth)
    filled = ap.TimeRegressionImputer().bind("abc").fill(values, 1_000_000 * np.arange(n), np.zeros(n, np.int64))
    mean = np.add.reduceat(filled.rows * filled.weights[:, None], filled.first[:-1])
    assert np.abs(mean - truth)[lost].mean() < 0.4


@given(st.integers(0, 2**32 - 1), st.integers(20, 120))
def test_regression_in_time_fills_a_row_the_same_whatever_others_are_wanted(seed: int, n: int) -> None:
    chance = np.random.default_rng(seed)
    truth, lost = own_gaps(n, seed)
    values, time, nothing = np.where(lost, np.nan, truth), 1_000_000 * np.arange(n), np.zeros(n, np.int64)
    wanted = chance.random(n) < 0.5
    fill: Any = ap.TimeRegressionImputer(k=3).bind("abcd")
    every, some = fill.fill(values, time, nothing), fill.fill_some(values, time, nothing, wanted)
    for row in np.flatnonzero(wanted):
        one, other = (found.rows[found.first[row] : found.first[row + 1]] for found in (every, some))
        assert np.array_equal(one, other, equal_nan=True)
