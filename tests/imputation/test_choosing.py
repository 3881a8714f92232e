"""What "auto" learns from where much is missing, what it leaves out, and what it says of that."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

import appulse as ap
from appulse.imputation.choosing import _copies, _lacking_too, _rows_taken_out, _taken_out
from appulse.imputation.learning import learnable
from appulse.imputation.samples import patterns
from tests.imputation.test_discovery import stream_of


def arguments_of(values: Any, lost: Any) -> tuple[Any, ...]:
    n, d = values.shape
    return "abcdefgh"[:d], np.where(lost, np.nan, values), 1_000_000 * np.arange(n), np.zeros(n, np.int64)


def sums(n: int) -> tuple[Any, Any]:
    """Four attributes that tell each other, and gaps of two fifths that are staggered: no row is complete."""
    chance = np.random.default_rng(2)
    values = chance.normal(size=(n, 2)) @ chance.normal(size=(2, 4)) + 0.05 * chance.normal(size=(n, 4))
    at = np.arange(n)[:, None]
    return values, (at - np.arange(4) * n // 4) % n < 2 * n // 5


def test_staggered_gaps_leave_enough_to_learn_from() -> None:
    values, lost = sums(800)
    assert lost.any(axis=1).all()
    auto = ap.AutoImputer()
    auto.chosen(*arguments_of(values, lost))
    assert "regression" in auto.best()
    assert auto.scores["regression"].crps < 0.85 * auto.scores["interpolation"].crps
    assert "dependencies was not tried: the nearest rows fill worse" in auto.report()
    by_rules = ap.AutoImputer(rules=[ap.DifferentialDependency({"a": 0.5}, "b", 2.0)])
    by_rules.chosen(*arguments_of(values, lost))
    assert "dependencies was not tried: 0 complete rows, and it needs 16" in by_rules.report()


@pytest.mark.parametrize("lost", [slice(400, 1200), slice(0, 800)])
def test_of_an_outage_longer_than_what_is_known_half_of_that_is_masked(lost: slice) -> None:
    chance = np.random.default_rng(0)
    y = np.cumsum(chance.normal(0, 1, 1200))
    truth = np.column_stack([y + chance.normal(0, 0.1, 1200), y])
    missing = np.zeros(truth.shape, bool)
    missing[lost, 0] = True
    auto = ap.AutoImputer()
    filled = ap.impute(stream_of(truth, missing), auto).frame
    assert all(np.isfinite(score.crps) for score in auto.scores.values())
    assert "regression" in auto.best()
    means = [np.average(row, axis=0)[0] for row in filled["imputed"].to_pylist()]
    assert np.sqrt(np.mean((np.array(means) - truth[:, 0])[lost] ** 2)) < 0.2


def test_attributes_that_are_never_known_together_are_filled() -> None:
    i = np.arange(100)
    y = np.cumsum(np.random.default_rng(0).normal(0, 1, 100))
    truth = np.column_stack([y, y + 5, y])
    missing = np.column_stack([i >= 40, i < 60, i < 0])
    filled = ap.impute(stream_of(truth, missing), "auto").frame
    assert filled["imputed"].null_count == 0


def test_rules_are_found_where_the_nearest_rows_fill_best() -> None:
    chance = np.random.default_rng(5)
    x = chance.uniform(-3.0, 3.0, 600)
    values = np.column_stack([x, np.cos(4 * x), np.sin(4 * x)])  # no line tells them, and nothing does in time
    lost = np.zeros(values.shape, bool)
    lost[np.arange(600), chance.integers(0, 3, 600)] = chance.random(600) < 0.2
    auto = ap.AutoImputer()
    auto.chosen(*arguments_of(values, lost))
    assert auto.scores["dependencies"].holes > 0


def test_explain_has_the_scores() -> None:
    values, lost = sums(400)
    settings: dict[str, Any] = {"epsilon": 0.5, "probability": 0.5, "window": ap.CountWindow(3)}
    steps = ap.explain(ap.self_join(stream_of(values, lost), imputer="auto", **settings)).steps
    (report,) = [text for topic, text in steps.items() if topic.startswith("imputer of")]
    assert "by CRPS in deviations: " in report
    assert "dependencies was not tried" in report


def test_a_repository_that_holds_the_streams_own_rows_does_not_leak() -> None:
    chance = np.random.default_rng(4)
    values = chance.normal(size=(600, 3))  # nothing tells anything: the nearest row is as good as any
    lost = np.zeros(values.shape, bool)
    lost[::7, 1] = True
    scores = []
    for rows in (values, chance.normal(size=(600, 3))):
        auto = ap.AutoImputer(pa.table(dict(zip("abc", rows.T, strict=True))))
        auto.chosen(*arguments_of(values, lost))
        scores.append(auto.scores["nearest"].crps)
        assert ("are the stream's own" in auto.report()) == (rows is values)
    assert scores[0] == pytest.approx(scores[1], rel=0.15)
    assert min(scores) > 0.5


def test_a_rows_own_copy_does_not_fill_it() -> None:
    """Fills are those of a repository without the rows that have holes: else each would be what it really was."""
    chance = np.random.default_rng(5)
    values = chance.normal(size=(600, 3))
    lost = np.zeros(values.shape, bool)
    lost[::7, 1] = True
    holed = lost.any(axis=1)
    found = []
    for rows in (values, values[~holed]):
        auto = ap.AutoImputer(pa.table(dict(zip("abc", rows.T, strict=True))))
        fill = auto.chosen(*arguments_of(values, lost)).bind("abc")
        given_rows, *rest = arguments_of(values, lost)[1:]
        found.append(fill.fill(given_rows, *rest).rows)
        assert ("holds the stream's own rows: 86 copies" in auto.report()) == (rows is values)
    np.testing.assert_array_equal(found[0], found[1])


def test_a_table_to_look_up_is_no_copy() -> None:
    """Its rows equal those of the stream, and are what fills them."""
    x = np.arange(500) % 20
    values = np.column_stack([x, 10.0 * (x * 7 % 20)]).astype(float)
    lost = np.zeros(values.shape, bool)
    lost[::9, 1] = True
    table = np.unique(values, axis=0)
    auto = ap.AutoImputer(pa.table(dict(zip("ab", table.T, strict=True))))
    auto.chosen(*arguments_of(values, lost))
    assert "own rows:" not in auto.report()


@given(st.lists(st.integers(0, 3), max_size=12), st.lists(st.integers(0, 3), max_size=12))
def test_as_many_copies_are_left_out_as_were_taken(rows: list[int], taken: list[int]) -> None:
    found = _copies(np.array(rows, float).reshape(-1, 1), np.array(taken, float).reshape(-1, 1))
    left = [value for i, value in enumerate(rows) if i not in found.tolist()]
    assert all(left.count(v) == max(0, rows.count(v) - taken.count(v)) for v in range(4))


@given(st.integers(0, 10_000), st.integers(1, 60), st.integers(1, 5), st.sampled_from((0.0, 0.05, 0.4)))
def test_what_is_taken_out_was_there_and_leaves_rows_like_others(seed: int, n: int, d: int, share: float) -> None:
    missing = np.random.default_rng(seed).random((n, d)) < share
    rounds = _taken_out(missing)
    assert rounds
    for taken, _ in rounds:
        assert not (taken & missing).any()
        lacks = (taken | missing).sum(axis=1)[taken.any(axis=1)]
        assert (lacks <= max(1, missing.sum(axis=1).max())).all()
        assert (lacks < d).all()


@given(st.integers(0, 10_000), st.integers(1, 40), st.integers(-30, 30), st.integers(1, 3))
def test_streams_beside_lack_what_they_lack_where_gaps_come_from(seed: int, n: int, shift: int, every: int) -> None:
    chance = np.random.default_rng(seed)
    time, rows = np.sort(chance.choice(200, n, replace=False)), chance.random(n) < 0.5
    at = chance.permutation(time[::every])
    values = np.where(chance.random((len(at), 2)) < 0.3, np.nan, chance.normal(size=(len(at), 2)))
    found = _lacking_too(values, at, time, rows, shift)[0]
    for i, t in enumerate(at.tolist()):
        row = time.tolist().index(t)
        later = [j for j, other in enumerate(at.tolist()) if other >= time[(row - shift) % n]]
        source = min(later, key=lambda j: at[j]) if later else int(np.argmax(at))
        expected = np.where(rows[row] & np.isnan(values[source]), np.nan, values[i])
        assert np.array_equal(found[i], expected, equal_nan=True)


def test_streams_that_lack_the_same_at_once_help_no_more_than_they_can() -> None:
    """Both measure the same, which nothing else shows, and lack it at the same times: beside is what is no help."""
    chance = np.random.default_rng(7)
    values = chance.normal(size=(800, 2))
    lost = np.zeros(values.shape, bool)
    lost[300:420, 0] = True
    auto = ap.AutoImputer()
    names, own, time, group = arguments_of(values, lost)
    auto.chosen(names, own, time, group, {"other": (own + 0.01, time)})
    assert auto.scores["regression in time, beside other"].crps > 0.4
    auto.chosen(names, own, time, group, {"other": (values + 0.01, time)})
    assert auto.scores["regression in time, beside other"].crps < 0.1


def test_what_was_never_seen_is_a_value_of_the_repository_or_a_reject() -> None:
    chance = np.random.default_rng(6)
    values = np.cumsum(chance.normal(size=(300, 2)), axis=0)
    stream = stream_of(values, np.tile([False, True], (300, 1)))
    settings: dict[str, Any] = {"epsilon": 0.5, "probability": 0.5, "window": ap.CountWindow(3)}
    for imputer in (
        "auto",
        ap.LastValueImputer(),
        ap.SpeedImputer(),
        ap.InterpolationImputer(),
        ap.TimeRegressionImputer(),
    ):
        result = ap.self_join(stream, imputer=imputer, **settings)
        assert result.num_rows == 0
        assert ap.rejects(result).num_rows == 300
    known = chance.normal(50.0, 7.0, 500)
    repository = pa.table({"a": chance.normal(size=500), "b": known})
    auto = ap.AutoImputer(repository)
    filled = ap.impute(stream, auto).frame
    samples = np.array([point[1] for point in filled["imputed"][150].as_py()])
    assert abs(samples.mean() - 50.0) < 3.0
    assert 3.0 < samples.std() < 10.0


def test_in_a_partition_it_is_that_of_the_others() -> None:
    chance = np.random.default_rng(7)
    n = 200
    rows = {
        "id": np.arange(2 * n),
        "at": np.tile(np.arange(n), 2),
        "place": ["x"] * n + ["y"] * n,
        "a": np.cumsum(chance.normal(size=2 * n)),
        "b": pa.array(chance.normal(20.0, 2.0, 2 * n), mask=np.arange(2 * n) >= n),
    }
    value = ap.Incomplete("a", "b")
    stream = ap.Stream(pa.table(rows), key="id", time="at", value=value, partition_by="place")
    filled = ap.impute(stream, "auto").frame
    samples = np.array([point[1] for point in filled["imputed"][n + 5].as_py()])
    assert len(samples) >= 16
    assert abs(samples.mean() - 20.0) < 1.5
    assert samples.std() > 0.5
    alone = ap.impute(stream, ap.InterpolationImputer()).frame
    assert alone["imputed"][n + 5].as_py() is None
    assert alone["filled"][n + 5].as_py() is None


@given(st.integers(0, 10_000), st.integers(1, 90), st.integers(0, 20))
def test_patterns_are_each_set_of_holes_once(seed: int, d: int, n: int) -> None:
    missing = np.random.default_rng(seed).random((n, d)) < (0.5 if seed % 2 else 0.02)
    found = {tuple(holes.tolist()): sorted(rows.tolist()) for holes, rows in patterns(missing)}
    expected: dict[tuple[int, ...], list[int]] = {}
    for i in range(n):
        expected.setdefault(tuple(np.flatnonzero(missing[i]).tolist()), []).append(i)
    assert found == expected


@given(st.integers(0, 10_000), st.floats(0.0, 0.9))
def test_rows_to_learn_from_have_what_is_asked(seed: int, share: float) -> None:
    there = np.random.default_rng(seed).random((60, 5)) >= share
    rows, seen = learnable(there, np.array([0]), np.array([1, 2, 3, 4]))
    assert set(seen.tolist()) <= {1, 2, 3, 4}
    assert rows.tolist() == np.flatnonzero(there[:, [0, *seen.tolist()]].all(axis=1)).tolist()
    if len(seen) < 4:  # something was left out, for too few rows had all
        assert there.all(axis=1).sum() < max(16, 20)


def test_seventy_stations_in_a_row_are_filled() -> None:
    chance = np.random.default_rng(8)
    n, d = 200, 70
    places = chance.random((d, 2))
    wave = np.sin(np.arange(n)[:, None] / 20 + 3 * places[:, 0]) + 0.05 * chance.normal(size=(n, d))
    names = [f"s{k}" for k in range(d)]
    table = pa.table({"id": np.arange(n), "at": np.arange(n), **dict(zip(names, wave.T, strict=True))})
    lost = chance.random((n, d)) < 0.1
    for k, name in enumerate(names):
        table = table.set_column(k + 2, name, pa.array(wave[:, k], mask=lost[:, k]))
    locations = dict(zip(names, places.tolist(), strict=True))
    stream = ap.Stream(table, key="id", time="at", value=ap.Incomplete(*names))
    for imputer in (ap.SpatialImputer(locations), ap.InterpolationImputer(joint=True)):
        filled = ap.impute(stream, imputer).frame
        means = np.array([np.mean(row, axis=0) for row in filled["imputed"].to_pylist()])
        assert np.abs(means - wave)[lost].mean() < 0.15
        assert pc.sum(pc.list_value_length(filled["filled"])).as_py() == lost.sum()


@pytest.mark.parametrize("d", [1, 3])
def test_any_number_of_threads_chooses_and_fills_the_same(d: int) -> None:
    values, lost = sums(600)
    given = arguments_of(values[:, : d + 1], lost[:, : d + 1])
    one, many = ap.AutoImputer(threads=1), ap.AutoImputer(threads=4)
    filled = [auto.chosen(*given).bind(given[0]).fill(*given[1:]) for auto in (one, many)]
    assert (one.weights, one.scores, one.report()) == (many.weights, many.scores, many.report())
    for name in ("first", "rows", "weights", "way"):
        np.testing.assert_array_equal(*(getattr(one, name) for one in filled))


def test_auto_takes_locations() -> None:
    chance = np.random.default_rng(9)
    places = np.array([[0.0, 0.0], [0.1, 0.0], [5.0, 0.0], [5.1, 0.0]])
    field = chance.normal(size=(600, 2))
    values = field[:, [0, 0, 1, 1]] + 0.01 * chance.normal(size=(600, 4))
    lost = chance.random(values.shape) < 0.1
    lost[lost.all(axis=1)] = False
    auto = ap.AutoImputer(locations=dict(zip("abcd", places.tolist(), strict=True)))
    auto.chosen(*arguments_of(values, lost))
    assert auto.scores["inverse distance"].crps < 0.2 * auto.scores["interpolation"].crps


def test_rows_that_come_one_by_one_are_filled_without_a_look_around() -> None:
    values, lost = sums(400)
    auto = ap.AutoImputer()
    imputer = auto.chosen(*arguments_of(values, lost), whole=False)
    assert set(auto.scores) == {"regression", "nearest", "mean"}
    assert not imputer.bind("abcd").in_order


def test_places_that_are_none_are_told() -> None:
    with pytest.raises(ap.BadArgument, match="different numbers of coordinates"):
        ap.SpatialImputer({"a": (1.0, 2.0), "b": (1.0,)})
    with pytest.raises(ap.BadArgument, match="no location of 'c'"):
        ap.SpatialImputer({"a": (1.0, 2.0), "b": (1.0, 1.0)}).bind("ac")


def test_inverse_distances_weigh_as_by_hand() -> None:
    rows = np.array([[1.0, 2.0, 6.0]] * 20 + [[1.0, np.nan, 6.0]])
    imputer = ap.SpatialImputer({"a": (0.0,), "b": (1.0,), "c": (3.0,)}, power=1.0, k=4)
    nothing = np.zeros(21, np.int64)
    filled = imputer.bind("abc").fill(rows, nothing, nothing)
    between = (1.0 * 1.0 + 6.0 / 2.0) / 1.5
    assert filled.rows[-4:, 1] == pytest.approx([between + (2.0 - between)] * 4)


@pytest.mark.parametrize("apart", [1e-8, 1.0, 1e6])
def test_a_station_at_no_distance_leaves_nothing_to_the_others(apart: float) -> None:
    same = np.arange(40.0)
    rows = np.column_stack([same, same, 1e9 * np.random.default_rng(2).normal(size=40)])
    rows[-2:, 1] = rows[-1, 0] = np.nan
    imputer = ap.SpatialImputer({"a": (0.0,), "b": (0.0,), "c": (apart,)}, k=4)
    nothing = np.zeros(40, np.int64)
    filled = imputer.bind("abc").fill(rows, nothing, nothing)
    first, second = filled.rows[filled.first[-3] : filled.first[-2]], filled.rows[filled.first[-2] :]
    assert (first[:, 1] == 38.0).all()
    assert (np.abs(second[:, :2]) > 1e3).all()  # by the third, which tells nothing


def test_errors_of_the_holes_of_a_row_are_those_of_one_row() -> None:
    """Two stations rise together, and the third, by which they are filled, does not: their samples keep together."""
    chance = np.random.default_rng(8)
    n = 300
    together = chance.normal(size=n)
    values = np.column_stack([together, together + 0.01 * chance.normal(size=n), 0.1 * chance.normal(size=n)])
    lost = np.zeros(values.shape, bool)
    lost[::6, :2] = True
    imputer = ap.SpatialImputer({"a": (0.0, 0.0), "b": (1.0, 0.0), "c": (2.0, 1.0)})
    filled = ap.impute(stream_of(values, lost), imputer).frame
    points = np.concatenate([np.array(filled["imputed"][row].as_py()) for row in range(0, n, 6)])
    assert len(points) == 16 * n // 6
    assert np.corrcoef(points[:, 0], points[:, 1])[0, 1] > 0.99
    made = values[~lost.any(axis=1)]
    assert set(np.round(points[:, 0] - points[:, 2], 9)) <= set(np.round(made[:, 0] - made[:, 2], 9))


def test_auto_says_where_nothing_fills() -> None:
    values = np.full((4, 1), np.nan)
    with pytest.raises(ap.BadArgument, match="No imputer has been chosen"):
        ap.AutoImputer().bind("a")
    assert ap.impute(stream_of(values, np.ones((4, 1), bool)), "auto").frame.num_rows == 4


# --- rows that lack everything ----------------------------------------------------------------------------------


def daily(n: int, seed: int = 0) -> tuple[Any, Any]:
    """Two attributes that go with the hour of the day and with each other, and rows that are lost."""
    chance = np.random.default_rng(seed)
    x = 10 * np.sin(np.arange(n) / 24 * 2 * np.pi) + chance.normal(0, 0.3, n)
    return np.column_stack([x, 2 * x + chance.normal(0, 0.3, n)]), chance.random(n) < 0.3


def off_at(stream: Any, imputer: Any, truth: Any, asked: Any) -> float:
    """The mean absolute error of means at the values asked for; empty rows are filled."""
    filled = ap.impute(stream, imputer, empty_rows=True).frame
    rows = zip(filled["imputed"].to_pylist(), filled["imputed_weights"].to_pylist(), strict=True)
    means = np.array([np.average(points, axis=0, weights=weights) for points, weights in rows])
    return float(np.abs(means - truth)[asked].mean())


@pytest.mark.parametrize("d", [1, 2])
def test_empty_rows_are_judged_by_rows_masked_whole(d: int) -> None:
    values, empty = daily(1000)
    values = values[:, :d]
    lost = np.repeat(empty[:, None], d, axis=1)
    stream, auto = stream_of(values, lost), ap.AutoImputer()
    found = off_at(stream, auto, values, lost)
    assert all(score.holes > 0 and score.crps > 0.0 for score in auto.scores.values())
    assert auto.scores["interpolation"].crps < 0.2 * auto.scores["regression"].crps
    assert auto.scores["regression in time"].crps < 0.7 * auto.scores["interpolation"].crps
    assert auto.best() == "regression in time"
    assert (auto.empty_scores, auto.empty_weights) == (auto.scores, auto.weights)
    assert found < 0.8 * off_at(stream, ap.InterpolationImputer(), values, lost)


def test_each_kind_of_rows_has_its_own_imputers() -> None:
    values, empty = daily(1000)
    lost = np.repeat(empty[:, None], 2, axis=1)
    lost[:, 1] |= np.random.default_rng(1).random(1000) < 0.2
    partly = lost & ~empty[:, None]
    stream, auto, alone = stream_of(values, lost), ap.AutoImputer(), ap.AutoImputer()
    filled = ap.impute(stream, auto, empty_rows=True).frame
    rejected = ap.impute(stream, alone).frame
    assert (auto.scores, auto.weights) == (alone.scores, alone.weights)
    assert "regression" in auto.best()
    assert auto.empty_scores["regression in time"].crps < 0.1 * auto.empty_scores["regression"].crps
    assert set(auto.empty_weights) <= {"regression in time", "interpolation", "neighbours in time"}
    assert alone.empty_scores == {}
    chosen: Any = auto.chosen(*arguments_of(values, lost), empty_rows=True)
    assert "; of rows that lack everything: " in chosen.report
    # Rows that lack something are filled as without the others; the others by the rows around.
    kept = pa.array(~empty)
    assert filled.filter(kept).equals(rejected.filter(kept))
    rules = filled["filled"].to_pylist()
    assert {one["rule"] for row in np.flatnonzero(empty) for one in rules[row]} != {
        one["rule"] for row in np.flatnonzero(partly.any(axis=1)) for one in rules[row]
    }
    both = off_at(stream, auto, values, partly), off_at(stream, auto, values, lost & empty[:, None])
    assert both[0] < 0.5
    assert both[1] < 0.6


@given(st.integers(0, 10_000), st.integers(1, 3), st.integers(1, 3))
def test_rows_are_masked_as_they_are_lost_in_partitions(seed: int, d: int, stations: int) -> None:
    chance = np.random.default_rng(seed)
    n, run = 240, int(chance.integers(1, 6))
    group, time = np.arange(n) % stations, np.arange(n) // stations
    missing = np.zeros((n, d), bool)
    own = np.flatnonzero(group == int(chance.integers(0, stations)))
    for begin in range(0, len(own) - run, 8 * run + 8):
        missing[own[begin : begin + run]] = True
    missing[~missing.all(axis=1)] |= chance.random(((~missing.all(axis=1)).sum(), d)) < (0.1 if d > 1 else 0.0)
    empty = missing.all(axis=1)
    for taken, _ in _rows_taken_out(missing, time, group):
        assert not (taken & missing).any()
        rows = taken.any(axis=1)
        assert ((taken | missing)[rows]).all()
        assert (~(taken | missing)).any(axis=0).all()
        assert rows.sum() <= max(empty.sum(), n // 10 + 1)


def test_a_run_of_one_station_is_masked_as_one() -> None:
    n, group, time = 480, np.arange(480) % 2, np.arange(480) // 2
    missing = ((group == 0) & (time >= 50) & (time < 62))[:, None]
    (taken, _), *_ = _rows_taken_out(missing, time, group)
    by_station = taken[np.lexsort((time, group)), 0]
    assert by_station.sum() == 12
    assert np.ptp(np.flatnonzero(by_station)) == 11
    assert len(taken) == n


def test_what_cannot_be_judged_has_no_score() -> None:
    for values in ([1.0, np.nan], [1.0, 2.0, 3.0]):
        rows = np.array(values)[:, None]
        auto = ap.AutoImputer()
        ap.impute(stream_of(rows, np.isnan(rows)), auto, empty_rows=True)
        assert (auto.scores, auto.weights) == ({}, {"interpolation": 1.0})
        assert "interpolation: no value could be masked" in auto.report()
    auto = ap.AutoImputer(pa.table({"a": np.arange(40.0)}))
    auto.chosen("a", np.array([[1.0]]), np.zeros(1, np.int64), np.zeros(1, np.int64), whole=False)
    assert (auto.scores, auto.weights) == ({}, {"mean": 1.0})


def test_empty_rows_that_come_one_by_one_are_judged_without_a_look_around() -> None:
    values, empty = daily(400)
    lost = np.zeros(values.shape, bool)
    lost[::5, 1] = True
    auto = ap.AutoImputer(values_of(values))
    imputer = auto.chosen(*arguments_of(values, lost), whole=False, empty_rows=True)
    assert set(auto.empty_scores) <= {"regression", "regression on own rows", "nearest", "mean", "dependencies"}
    assert all(score.holes for score in auto.empty_scores.values())
    fill = imputer.bind("ab")
    assert not fill.in_order
    rows = np.where(np.repeat(empty[:, None], 2, axis=1), np.nan, values)
    nothing = np.zeros(len(rows), np.int64)
    filled = fill.fill(rows, nothing, nothing)
    assert np.isfinite(filled.rows).all()
    assert np.diff(filled.first)[~empty].tolist() == [1] * int((~empty).sum())


def values_of(values: Any) -> pa.Table:
    return pa.table(dict(zip("abcd", values.T, strict=False)))
