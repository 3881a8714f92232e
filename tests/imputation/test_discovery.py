from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from itertools import combinations_with_replacement
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import csv
from typer.testing import CliRunner

import appulse as ap
from appulse.cli import app
from appulse.imputation.conditions import GAIN, LEAST_PAIRS, PARTS, conditions
from appulse.imputation.dependencies import from_toml
from appulse.imputation.discovery import described, discovered
from appulse.imputation.repository import Repository
from appulse.imputation.scores import below, crps, mask, scored
from tests.helpers import naive_imputation as naive

if TYPE_CHECKING:
    from pathlib import Path


def told_by_others(n: int, seed: int = 0) -> pa.Table:
    """Columns of which c follows from a and b, and d from nothing."""
    chance = np.random.default_rng(seed)
    a, b, d = chance.random((3, n))
    return pa.table({"a": a, "b": b, "c": np.sin(4 * a) + b + 0.02 * chance.normal(size=n), "d": d})


# --- rules ------------------------------------------------------------------------------------------------------


def test_what_tells_an_attribute_is_found() -> None:
    table = told_by_others(3000)
    told: list[str] = []
    rules = ap.discover_dependencies(table, progress=told.append)
    assert len(told) == 4
    of_c = [rule for rule in rules if rule.dependent == "c"]
    assert {name for name, _ in of_c[0].determinants} == {"a", "b"}
    assert of_c[0].tolerance < 0.5
    assert not [rule for rule in rules if rule.dependent == "d"]
    imputer = ap.DependencyImputer(table, rules)  # they hold
    assert all(found.confidence >= 0.95 for found in imputer.verified)
    truth = told_by_others(300, 1).to_pandas().to_numpy()
    masked = truth.copy()
    masked[:, 2] = np.nan
    ours, mean = (scored(one, "abcd", truth, masked) for one in (imputer, ap.MeanImputer(table)))
    assert ours.crps < mean.crps / 8
    assert ours.holes == 300


def test_a_rule_has_pairs_of_close_rows(tmp_path: Path) -> None:
    """Whole hours are an hour apart: no two rows are as close as the narrowest widths that are tried."""
    hour = np.arange(2000)
    table = pa.table({"hour": hour, "v": np.sin(hour / 50) + np.random.default_rng(0).normal(0, 0.01, 2000)})
    found = discovered(table)
    assert {one.rule.dependent for one in found} == {"v"}
    assert ap.discover_dependencies(table) == [one.rule for one in found]
    known = table.to_pandas()
    for one in found:
        close = np.ones((2000, 2000), bool)
        for name, width in one.rule.determinants:
            own = known[name].to_numpy()
            close &= np.abs(own[:, None] - own) <= width + 1e-9 * max(1.0, width)
        assert one.pairs == close.sum() - 2000 >= LEAST_PAIRS
        assert one.support == pytest.approx(one.pairs / (2000 * 1999))
    file, rules = tmp_path / "hours.csv", tmp_path / "rules.toml"
    csv.write_csv(table, file)
    assert CliRunner().invoke(app, ["discover", str(file), "--out", str(rules)]).exit_code == 0
    assert len(from_toml(rules)) == len(found)


numbers = st.integers(-4, 4).map(lambda i: i / 2)


@given(
    st.lists(st.tuples(numbers, numbers), min_size=1, max_size=25),
    st.sampled_from((0.5, 1.0, 2.0)),
    st.sampled_from((0.5, 0.8, 0.95, 1.0)),
)
def test_tolerances_are_the_least_that_hold(rows: list[tuple[float, float]], width: float, confidence: float) -> None:
    table = pa.table({"a": [row[0] for row in rows], "b": [row[1] for row in rows]})
    found = described(Repository(table), {"a": width}, "b", confidence)
    known = table.to_pylist()
    close, good = naive.holds(known, found.rule)
    assert good >= (confidence - 1e-9) * close
    pairs = len(rows) * (len(rows) - 1)
    assert found.support == pytest.approx(close / pairs if pairs else 0.0)
    assert found.confidence == pytest.approx(good / close if close else 1.0)
    differences = {abs(a[1] - b[1]) for a in rows for b in rows}
    less = [value for value in differences if value < found.rule.tolerance]
    if less:
        narrower = ap.DifferentialDependency({"a": width}, "b", max(less), confidence)
        assert naive.holds(known, narrower)[1] < confidence * close


# --- where an attribute lies in a range -------------------------------------------------------------------------


def tight_ranges(rows: list[dict[str, float]], width: float, confidence: float, tolerance: float) -> list[Any]:
    """By all pairs of rows, over all runs of parts: those with half the tolerance that no other one contains."""
    found = []
    for name in "abc":
        if name == "b":
            continue
        values = sorted(row[name] for row in rows)
        # The least value with k / 8 of the others below or at it, as numpy's "higher" has it.
        ends = sorted({values[math.ceil(Fraction(k * (len(rows) - 1), PARTS))] for k in range(1, PARTS)})
        part = [sum(row[name] >= end for end in ends) for row in rows]
        tight = {}
        for i, j in combinations_with_replacement(range(len(ends) + 1), 2):
            inside = [k for k in range(len(rows)) if i <= part[k] <= j]
            gaps = sorted(
                abs(rows[k]["b"] - rows[m]["b"])
                for k in inside
                for m in inside
                if k != m and abs(rows[k]["a"] - rows[m]["a"]) <= width
            )
            if j - i == len(ends) or len(gaps) < LEAST_PAIRS:
                continue
            least = gaps[math.ceil(Fraction(confidence).limit_denominator(100) * len(gaps)) - 1]
            if least <= GAIN * tolerance:
                own = [rows[k][name] for k in inside]
                tight[i, j] = (name, min(own), max(own), least, len(gaps))
        found += [
            told for (i, j), told in tight.items() if not any(k <= i and j <= m and (k, m) != (i, j) for k, m in tight)
        ]
    return sorted(found)


@given(
    st.lists(st.tuples(numbers, numbers, numbers), min_size=2, max_size=40),
    st.sampled_from((0.0, 0.5, 1.0, 4.0)),
    st.sampled_from((0.5, 0.8, 0.95, 1.0)),
    st.booleans(),
)
def test_ranges_are_those_of_all_pairs(
    drawn: list[tuple[float, float, float]], width: float, confidence: float, split: bool
) -> None:
    # Half of the time b follows from a where c is high, so that there is something to find.
    rows = [{"a": a, "b": a if split and c > 0 else b, "c": c} for a, b, c in drawn]
    table = pa.Table.from_pylist(rows)
    whole = described(Repository(table), {"a": width}, "b", confidence)
    found = conditions(Repository(table), {"a": width}, "b", confidence, whole.rule.tolerance)
    told = sorted((one.name, one.low, one.high, one.tolerance, one.pairs) for one in found)
    expected = tight_ranges(rows, width, confidence, whole.rule.tolerance) if whole.rule.tolerance else []
    assert told == expected
    for one in found:
        rule = described(Repository(table), {"a": width}, "b", confidence, {one.name: (one.low, one.high)}).rule
        assert rule.tolerance == one.tolerance
        close, good = naive.holds(rows, rule)
        assert (close, good >= (confidence - 1e-9) * close) == (one.pairs, True)


def test_a_rule_that_holds_in_a_range_is_found() -> None:
    chance = np.random.default_rng(4)
    a, b, c = chance.random((3, 1500))
    b = np.where(c > 0.5, a + 0.01 * b, a + 0.5 * b)
    table = pa.table({"a": a, "b": b, "c": c})
    plain = ap.discover_dependencies(table, confidence=0.9)
    found = ap.discover_dependencies(table, confidence=0.9, conditional=True)
    assert [rule for rule in found if not rule.where] == plain
    of_b = [rule for rule in found if rule.dependent == "b" and rule.where]
    name, (low, high) = of_b[0].where[0]
    assert name == "c"
    assert low == pytest.approx(0.5, abs=0.02)
    assert high > 0.99
    assert of_b[0].tolerance < 0.25 * min(rule.tolerance for rule in plain if rule.dependent == "b")
    assert max(sum(rule.dependent == name for rule in found) for name in "abc") <= 10
    imputer = ap.DependencyImputer(table, found)  # they hold
    assert {one.rule for one in imputer.verified} == set(found)


def test_small_and_odd_tables_have_few_rules() -> None:
    assert discovered(pa.table({"a": [1.0, 2.0], "b": [1.0, 2.0]})) == []
    assert discovered(pa.table({"a": [1.0] * 50, "b": np.arange(50.0)})) == []
    with pytest.raises(ap.BadArgument, match="at least two columns"):
        discovered(pa.table({"a": [1.0]}))
    with pytest.raises(ap.BadArgument, match="confidence=0"):
        discovered(told_by_others(10), confidence=0)


# --- scores -----------------------------------------------------------------------------------------------------


def test_scores_are_those_of_the_definition() -> None:
    chance = np.random.default_rng(0)
    sizes = [1, 3, 1, 7]
    first = np.concatenate([[0], np.cumsum(sizes)])
    values, shares, truth = chance.random(12), chance.random(12), chance.random(4)
    for i in range(4):
        shares[first[i] : first[i + 1]] /= shares[first[i] : first[i + 1]].sum()
    for i, (found, lower) in enumerate(
        zip(crps(values, shares, first, truth), below(values, shares, first, truth)[0], strict=True)
    ):
        x, w = values[first[i] : first[i + 1]], shares[first[i] : first[i + 1]]
        pairs = np.abs(x[:, None] - x[None, :])
        assert found == pytest.approx(float(w @ np.abs(x - truth[i]) - w @ pairs @ w / 2))
        assert lower == pytest.approx(float(w[x < truth[i]].sum()))


def test_masks_leave_something() -> None:
    truth = np.ones((200, 3))
    masked = mask(truth, 1.0, 3, 0)
    holes = np.isnan(masked).sum(axis=1)
    assert set(holes.tolist()) == {1, 2}
    assert np.isnan(mask(truth, 0.1, 1, 0)).any(axis=1).mean() == pytest.approx(0.1, abs=0.05)


# --- choosing ---------------------------------------------------------------------------------------------------


def stream_of(values: Any, lost: Any) -> ap.Stream:
    n, d = values.shape
    names = "abcd"[:d]
    columns = {name: pa.array(values[:, k], mask=lost[:, k]) for k, name in enumerate(names)}
    table = pa.table({"id": np.arange(n), "at": np.arange(n), **columns})
    return ap.Stream(table, key="id", time="at", value=ap.Incomplete(*names))


@pytest.mark.parametrize("kind", ["walk", "sums"])
def test_the_imputer_that_suits_is_chosen(kind: str) -> None:
    chance = np.random.default_rng(1)
    values = chance.normal(size=(1500, 3))
    if kind == "walk":  # each on its own, slowly
        values = np.cumsum(values, axis=0)
    else:
        values[:, 2] = values[:, 0] + 2 * values[:, 1] + 0.01 * values[:, 2]
    lost = np.zeros(values.shape, bool)
    lost[::10, 2] = True
    stream = stream_of(values, lost)
    rules = {row[0]["rule"] for row in ap.impute(stream, "auto").frame["filled"].to_pylist() if row}
    (mixture,) = rules  # "0.43 interpolation + ...", the heaviest first
    assert mixture.split(" + ")[0].lstrip("0123456789. ") == ("interpolation" if kind == "walk" else "regression")
    settings: dict[str, Any] = {"epsilon": 0.5, "probability": 0.5, "window": ap.CountWindow(10)}
    found = ap.self_join(stream, imputer="auto", **settings)
    expected = ap.self_join(ap.impute(stream, "auto"), **settings)
    assert found.num_rows == expected.num_rows > 0


def test_streams_that_are_joined_help_to_fill_each_other() -> None:
    """Both measure the same, which neither's past tells; in partitions of their own they do not."""
    chance = np.random.default_rng(5)
    world = chance.normal(size=(800, 2))
    lost = np.zeros(world.shape, bool)
    lost[5::10, 0] = True
    left = stream_of(world + chance.normal(0.0, 0.01, world.shape), lost)
    right = stream_of(world + chance.normal(0.0, 0.01, world.shape), np.roll(lost, 3, axis=0))
    settings: dict[str, Any] = {"epsilon": 0.1, "probability": 0.5, "window": ap.TimeWindow(0)}
    found = ap.similarity_join(left, right, imputer="auto", **settings)
    filled = found.filter(pc.greater(pc.list_value_length(found["left_filled"]), 0))
    assert {one[0]["rule"] for one in filled["left_filled"].to_pylist()} == {"regression in time and on another stream"}
    assert filled.num_rows == 80
    assert pc.min(filled["probability"]).as_py() > 0.9
    place = pa.array(["x"] * 800)
    apart = [replace(one, frame=one.frame.append_column("place", place), partition_by="place") for one in (left, right)]
    alone = ap.similarity_join(*apart, imputer="auto", **settings)
    assert alone.num_rows < found.num_rows


def test_what_cannot_be_chosen_is_told() -> None:
    stream = stream_of(np.ones((3, 2)), np.zeros((3, 2), bool))
    with pytest.raises(ap.BadArgument, match=r"imputer='aut'.*Did you mean 'auto'"):
        ap.impute(stream, "aut")
    with pytest.raises(ap.BadArgument, match="No imputer has been chosen"):
        ap.AutoImputer().bind("ab")
    assert ap.impute(stream, "auto").frame.num_rows == 3


def test_regression_foretells_with_its_errors() -> None:
    chance = np.random.default_rng(0)
    a = chance.random(2000)
    noise = chance.normal(size=2000) * np.where(a > 0.5, 0.5, 0.01)
    imputer = ap.RegressionImputer(pa.table({"a": a, "b": 3 * a + 1 + noise}), k=50)
    filled = imputer.bind("ab").fill(np.array([[0.2, np.nan], [0.8, np.nan]]), *(np.zeros(2, np.int64),) * 2)
    low, high = filled.rows[:50, 1], filled.rows[50:, 1]
    assert low.mean() == pytest.approx(1.6, abs=0.05)
    assert high.mean() == pytest.approx(3.4, abs=0.25)
    assert low.std() < 0.05
    assert high.std() > 0.3
    with pytest.raises(ap.BadArgument, match="k=0"):
        ap.RegressionImputer(pa.table({"a": a}), k=0)


# --- on the command line ----------------------------------------------------------------------------------------


def test_rules_of_a_file(tmp_path: Path) -> None:
    table = told_by_others(400)
    table = table.set_column(0, "a", pa.array([None, *table["a"].to_pylist()[1:]]))
    csv.write_csv(table.append_column("name", pa.array(["x"] * 400)), tmp_path / "rows.csv")
    run = CliRunner()
    done = run.invoke(app, ["discover", str(tmp_path / "rows.csv"), "--out", str(tmp_path / "rules.toml"), "--score"])
    assert done.exit_code == 0, done.output
    assert "1 of 400 rows lack a value" in done.stderr
    assert "dependencies" in done.stderr
    rules = from_toml(tmp_path / "rules.toml")
    assert {rule.dependent for rule in rules} >= {"c"}
    told = run.invoke(app, ["discover", str(tmp_path / "rows.csv"), "--columns", "b,c"])
    assert from_toml(told.stdout)
    chance = np.random.default_rng(1).random((2, 400))
    b = np.where(chance[0] < 0.5, chance[0], chance[1])
    csv.write_csv(pa.table({"a": chance[0], "b": b}), tmp_path / "ranges.csv")
    ranges = run.invoke(app, ["discover", str(tmp_path / "ranges.csv"), "--conditional"])
    plain = run.invoke(app, ["discover", str(tmp_path / "ranges.csv")])
    assert [rule for rule in from_toml(ranges.stdout) if not rule.where] == from_toml(plain.stdout)
    assert "where = {" in ranges.stdout
    for wrong, message in (
        (["rows.txt"], "Known: .csv, .parquet"),
        (["none.csv"], "cannot be read"),
        (["rows.csv", "--columns", "z"], "no column 'z'"),
        (["rows.csv", "--out", "rules.json"], "does not end in .toml"),
    ):
        failed = run.invoke(app, ["discover", str(tmp_path / wrong[0]), *wrong[1:]])
        assert failed.exit_code == 2
        assert message in failed.stderr
