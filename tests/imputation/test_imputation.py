from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from appulse.errors import BadArgument
from appulse.imputation.dependencies import DifferentialDependency
from appulse.imputation.imputer import DependencyImputer
from appulse.imputation.lattice import Dimensions, Lattice, by_dimension, correlation_dimension
from appulse.imputation.repository import Constraints, Repository
from appulse.model.filled import column_of
from tests.helpers import naive_imputation as naive

if TYPE_CHECKING:
    from collections.abc import Sequence

    from appulse.model.filled import Fill, Filled

# The worked example of the specification.
R = [(0.1, 0.1, 0.10), (0.2, 0.1, 0.20), (0.2, 0.2, 0.20), (0.4, 0.3, 0.30), (0.25, 0.15, 0.15), (0.6, 0.6, 0.7)]
BY_A, BY_B = DifferentialDependency({"A": 0.1}, "C", 0.1), DifferentialDependency({"B": 0.05}, "C", 0.1)


def table_of(rows: Sequence[Sequence[float]], names: str) -> pa.Table:
    return pa.table({name: pa.array([row[i] for row in rows], pa.float64()) for i, name in enumerate(names)})


def fill(bound: Fill, rows: Sequence[Sequence[float | None]]) -> Filled:
    values = np.array([[np.nan if value is None else value for value in row] for row in rows], float)
    nothing = np.zeros(len(rows), np.int64)
    return bound.fill(values.reshape(len(rows), -1), nothing, nothing)


def samples(filled: Filled, i: int) -> list[tuple[tuple[float, ...], float]]:
    part = slice(filled.first[i], filled.first[i + 1])
    return [(tuple(x), w) for x, w in zip(filled.rows[part].tolist(), filled.weights[part].tolist(), strict=True)]


def close(found: list[tuple[tuple[float, ...], float]], expected: Sequence[naive.Choice]) -> bool:
    return [x for x, _ in found] == [x for x, _ in expected] and all(
        abs(w - float(e)) <= 1e-15 for (_, w), (_, e) in zip(found, expected, strict=True)
    )


@pytest.mark.parametrize("rules", [[BY_A], [BY_B], [BY_A, BY_B]], ids=["A", "B", "AB"])
def test_the_worked_example(rules: list[DifferentialDependency]) -> None:
    imputer = DependencyImputer(table_of(R, "ABC"), rules)
    filled = fill(imputer.bind("ABC"), [(0.2, 0.15, None)])
    assert samples(filled, 0) == [((0.2, 0.15, 0.1), 0.25), ((0.2, 0.15, 0.15), 0.25), ((0.2, 0.15, 0.2), 0.5)]
    told = imputer.explain({"A": 0.2, "B": 0.15, "C": None})
    assert told == [{"attribute": "C", "rule": " and ".join(map(str, rules)), "rows": [0, 1, 2, 4]}]


def test_the_lattice_is_gone_down_where_nothing_matches() -> None:
    near = [DifferentialDependency({name: 0.02}, "C", 0.1) for name in "AB"]
    imputer = DependencyImputer(table_of(R, "ABC"), near)
    filled = fill(imputer.bind("ABC"), [(0.2, 0.15, None), (9.0, 0.15, None), (9.0, 9.0, None)])
    # Of the two rules A's has more matches to expect, 1/3 to 1/3: the tie goes to the first.
    assert samples(filled, 0) == [((0.2, 0.15, 0.2), 1.0)]
    assert samples(filled, 1) == [((9.0, 0.15, 0.15), 1.0)]
    assert [x[2] for x, _ in samples(filled, 2)] == [0.1, 0.15, 0.2, 0.3, 0.7]
    told = column_of(filled.way, "ABC", imputer.bind("ABC")).to_pylist()
    assert told == [[{"attribute": "C", "rule": rule}] for rule in (str(near[0]), str(near[1]), "marginal")]


def test_complete_rows_stay_as_they_are() -> None:
    bound = DependencyImputer(table_of(R, "ABC"), [BY_A]).bind("ABC")
    filled = fill(bound, [(1.0, 2.0, 3.0), (0.2, 0.15, None), (4.0, 5.0, 6.0)])
    assert samples(filled, 0) == [((1.0, 2.0, 3.0), 1.0)]
    assert samples(filled, 2) == [((4.0, 5.0, 6.0), 1.0)]
    assert column_of(filled.way, "ABC", bound).to_pylist()[::2] == [[], []]
    nothing = np.zeros(0, np.int64)
    assert bound.fill(np.empty((0, 3)), nothing, nothing).first.tolist() == [0]


def test_a_column_that_the_repository_lacks_is_told() -> None:
    with pytest.raises(BadArgument, match="no column 'D'"):
        DependencyImputer(table_of(R, "ABC"), []).bind("ABD")


@pytest.mark.parametrize("setting", [{"marginal": 0}, {"instances": 0}, {"marginal": 1.5}, {"rules": ["A -> B"]}])
def test_what_cannot_be_an_imputer_is_told(setting: dict[str, Any]) -> None:
    with pytest.raises(BadArgument, match=next(iter(setting)).removesuffix("s")):
        DependencyImputer(table_of(R, "ABC"), setting.pop("rules", []), **setting)


def test_too_many_rules_are_told() -> None:
    rules = [DifferentialDependency({"A": k / 100}, "C", 9.0) for k in range(11)]
    with pytest.raises(BadArgument, match="11 rules fill C"):
        fill(DependencyImputer(table_of(R, "ABC"), rules).bind("ABC"), [(0.2, 0.15, None)])
    with pytest.raises(BadArgument, match="at most 62"):
        DependencyImputer(table_of(R, "ABC"), rules * 6)


# --- against the twin -------------------------------------------------------------------------------------------

grid = st.integers(-3, 3).map(lambda i: i / 2)
tolerances = st.sampled_from((0.0, 0.5, 1.0, 0.25, 3.0))


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[tuple[float, ...]], list[DifferentialDependency], list[list[float | None]]]:
    """A repository, rules that hold on it, and rows with holes."""
    d = draw(st.integers(2, 4))
    names = "abcd"[:d]
    coordinate = draw(st.sampled_from((grid, st.floats(-2, 2))))
    repository = draw(st.lists(st.tuples(*[coordinate] * d), min_size=1, max_size=draw(st.sampled_from((3, 20, 200)))))
    rules = []
    for _ in range(draw(st.integers(0, 5))):
        dependent = draw(st.sampled_from(names))
        others = [name for name in names if name != dependent]
        determinants = draw(st.dictionaries(st.sampled_from(others), tolerances, min_size=1))
        where = draw(st.dictionaries(st.sampled_from(others), st.just((-0.5, 1.0)), max_size=1))
        if draw(st.booleans()):
            where = {}
        rules.append(DifferentialDependency(determinants, dependent, 100.0, 1.0, where))
    value = st.one_of(coordinate, st.none(), st.just(50.0))
    row = st.lists(value, min_size=d, max_size=d).filter(lambda values: any(value is not None for value in values))
    return repository, rules, draw(st.lists(row, min_size=1, max_size=6))


@given(cases(), st.booleans(), st.sampled_from((1, 2, 5, 256)))
def test_fills_are_those_of_a_scan(
    case: tuple[list[tuple[float, ...]], list[DifferentialDependency], list[list[float | None]]],
    joint: bool,
    marginal: int,
) -> None:
    repository, rules, rows = case
    names = "abcd"[: len(rows[0])]
    table = table_of(repository, names)
    imputer = DependencyImputer(table, rules, joint=joint, marginal=marginal)
    bound = imputer.bind(names)
    values = np.array([[np.nan if value is None else value for value in row] for row in rows])
    kept = [i for i, row in enumerate(rows) if np.prod([8.0 if v is None else 1.0 for v in row]) <= 64]
    assume(kept)
    filled = fill(bound, [rows[i] for i in kept])
    told = column_of(filled.way, names, bound).to_pylist()
    known = table.to_pylist()
    low, high = bound.boxes(values[kept])
    for place, i in enumerate(kept):
        holed = dict(zip(names, rows[i], strict=True))
        expected, ways = naive.filled(holed, known, rules, joint=joint, marginal=marginal)
        found = samples(filled, place)
        assert close(found, expected)
        assert [(one["attribute"], one["rule"]) for one in told[place]] == ways
        points = np.array([x for x, _ in found])
        assert (low[place] <= points).all()
        assert (points <= high[place]).all()
        if any(value is None for value in rows[i]):
            for one in imputer.explain(holed):
                assert {known[r][one["attribute"]] for r in one["rows"]} >= {
                    x[names.index(one["attribute"])] for x, _ in found
                }


@given(st.integers(0, 2**32 - 1), st.sampled_from((1, 63, 64, 65, 129, 1000)), st.booleans())
def test_the_index_counts_as_a_scan(seed: int, n: int, rounded: bool) -> None:
    chance = np.random.default_rng(seed)
    rows = chance.normal(0, 1, (n, 3))
    rows = np.round(rows, 1) if rounded else rows
    rules = [
        DifferentialDependency({"a": 0.3, "b": 0.5}, "c", 99.0),
        DifferentialDependency({"b": 0.1}, "c", 99.0, 1.0, {"a": (-0.5, 0.5)}),
    ]
    lattice = Lattice(Repository(table_of(rows.tolist(), "abc")), rules, (0, 1), ("c",))
    probes = chance.normal(0, 1, (6, 3))
    for v in range(len(lattice.combined)):
        found = lattice.index.count(probes[:, [0, 1]], lattice.constraints, v)
        members = [rules[k] for k in lattice.combined[v]]
        known = [dict(zip("abc", row, strict=True)) for row in rows.tolist()]
        expected = [
            sum(naive.matches(members, dict(zip("abc", probe, strict=True)), other) for other in known)
            for probe in probes.tolist()
        ]
        assert found.tolist() == expected


def test_appended_rows_fill_as_if_they_had_always_been_there() -> None:
    chance = np.random.default_rng(3)
    rows = chance.random((300, 3)).round(2).tolist()
    rules = [DifferentialDependency({"a": 0.1}, "c", 1.0), DifferentialDependency({"b": 0.05}, "c", 1.0)]
    grown, whole = (DependencyImputer(table_of(part, "abc"), rules) for part in (rows[:100], rows))
    holed = [(a, b, None) for a, b, _ in chance.random((50, 3)).tolist()]
    before = fill(grown.bind("abc"), holed)
    grown.append(table_of(rows[100:], "abc"))
    after, expected = fill(grown.bind("abc"), holed), fill(whole.bind("abc"), holed)
    assert grown.version == whole.version
    assert after.rows.tolist() == expected.rows.tolist() != before.rows.tolist()
    assert after.weights.tolist() == expected.weights.tolist()


def test_samples_of_a_row_can_be_capped() -> None:
    chance = np.random.default_rng(3)
    rows = chance.random((2000, 3))
    imputer = DependencyImputer(table_of(rows.tolist(), "abc"), [], instances=100, marginal=2000)
    filled = fill(imputer.bind("abc"), [(0.5, None, None), (0.5, 0.5, None), (0.1, 0.2, 0.3)])
    assert np.diff(filled.first).tolist() == [100, 100, 1]
    assert np.isclose(np.add.reduceat(filled.weights, filled.first[:-1]), 1.0).all()
    assert abs(filled.rows[:100, 1].mean() - rows[:, 1].mean()) < 0.02
    rows = chance.random((5000, 3))
    bound = DependencyImputer(table_of(rows.tolist(), "abc"), [], marginal=8000).bind("abc")
    assert fill(bound, [(0.5, None, None)]).first[-1] == 5000  # together


def test_the_order_depends_on_the_matches_to_expect() -> None:
    # a: 20 rows within reach each, b: one in ten has one, c: one has nine others.
    rows = [(i % 5, i, i // 10, 0.0) for i in range(100)]
    rules = [
        DifferentialDependency({"a": 0.1}, "d", 1.0),
        DifferentialDependency({"b": 0.1}, "d", 1.0),
        DifferentialDependency({"c": 0.1}, "d", 1.0),
    ]
    lattice = Lattice(Repository(table_of(rows, "abcd")), rules, (0, 1, 2), ("d",))
    assert lattice.expected.tolist() == [0.0, 1.0, 0.0, 0.0, 9.0, 19.0, 0.0]
    assert lattice.combined == [(0, 1, 2), (0, 2), (0, 1), (1, 2), (2,), (0,), (1,)]


# --- the cost model ---------------------------------------------------------------------------------------------


def test_the_correlation_dimension_of_known_shapes() -> None:
    chance = np.random.default_rng(0)
    square, line = chance.random((20000, 2)), np.repeat(chance.random((20000, 1)), 2, axis=1)
    assert abs(correlation_dimension(square) - 2.0) < 0.1
    assert abs(correlation_dimension(line) - 1.0) < 0.1


def test_the_power_law_counts_neighbours() -> None:
    rows = np.random.default_rng(0).random((20000, 2))
    nodes = Constraints(2, "ab")
    nodes.add(0, {"a": 0.05, "b": 0.02}, {})
    nodes.add(1, {"a": 0.05}, {"b": (0.0, 0.5)})
    found = by_dimension(rows, nodes)
    assert found[0] == pytest.approx(80.0, rel=0.1)  # 76.8 in truth, for boxes at the rim
    assert found[1] == pytest.approx(500.0, rel=0.1)  # half of the rows have half of the neighbours
    assert Dimensions(rows).of((0,)) == pytest.approx(1.0, abs=0.1)


def test_whichever_tells_matches_better_is_taken() -> None:
    chance = np.random.default_rng(0)
    a = chance.random(5000)
    diagonal = Repository(table_of(np.column_stack([a, a, a]).tolist(), "abc"))
    rules = [DifferentialDependency({"a": 0.05, "b": 0.02}, "c", 1.0)]
    lattice = Lattice(diagonal, rules, (0,), ("c",))
    assert lattice.method == "count"
    assert lattice.expected[0] == pytest.approx(200.0, rel=0.05)


def test_weights_are_shares_of_matches() -> None:
    imputer = DependencyImputer(table_of([(0.0, k % 3) for k in range(7)], "ab"), [])
    filled = fill(imputer.bind("ab"), [(0.0, None)])
    assert [Fraction(w).limit_denominator(100) for w in filled.weights.tolist()] == [
        Fraction(3, 7),
        Fraction(2, 7),
        Fraction(2, 7),
    ]


def test_of_many_rules_together_the_first_of_each_attribute_count() -> None:
    chance = np.random.default_rng(0)
    rules = [DifferentialDependency({"a": (k + 1) / 100}, name, 9.0) for name in "bc" for k in range(7)]
    imputer = DependencyImputer(table_of(chance.random((300, 3)).tolist(), "abc"), rules, joint=True)
    filled = fill(imputer.bind("abc"), [(0.5, None, None)])
    assert {rule.dependent for k, rule in enumerate(rules) if filled.way[0, 1] >> k & 1} == {"b", "c"}
    told = imputer.describe(int(filled.way[0, 1]))
    assert told.count("->") == 10
    assert "a(0.05) -> c" in told
    assert "a(0.06) -> b" not in told


# --- how much of it ---------------------------------------------------------------------------------------------


def test_more_samples_than_memory_is_for_are_refused_with_their_number() -> None:
    size, rows = 600, 400
    known = pa.table({name: np.arange(size) / size for name in "abc"})
    wide = {"a": 9.0}
    rules = [DifferentialDependency(wide, "b", 9.0), DifferentialDependency(wide, "c", 9.0)]
    holed = [(0.5, None, None)] * rows
    with pytest.raises(BadArgument, match="400 rows have") as failure:
        fill(DependencyImputer(known, rules).bind("abc"), holed)
    assert "joint=True" in str(failure.value)
    assert "144,000,000 samples once they are filled, which takes 4.6 GB; one with 2 holes" in str(failure.value)
    assert fill(DependencyImputer(known, rules, joint=True).bind("abc"), holed).first[-1] == rows * size
    assert fill(DependencyImputer(known, rules, instances=900).bind("abc"), holed).first[-1] == rows * 900


def test_a_row_with_too_many_combinations_is_filled_together_and_that_is_said() -> None:
    size = 5000
    a = np.arange(size) / size
    known = pa.table({"a": a, "b": a + 1.0, "c": 2.0 * a})
    rules = [DifferentialDependency({"a": 9.0}, "b", 9.0), DifferentialDependency({"a": 9.0}, "c", 9.0)]
    bound = DependencyImputer(known, rules).bind("abc")
    holed = [(0.5, None, None), (0.5, 1.5, None), (0.5, None, None)]
    filled = fill(bound, holed)
    joint = fill(DependencyImputer(known, rules, joint=True).bind("abc"), holed)
    assert filled.first.tolist() == joint.first.tolist()
    assert np.sort(filled.rows, axis=0).tolist() == np.sort(joint.rows, axis=0).tolist()
    assert bound.report.startswith("holes of 2 rows were filled together")
    values = np.array([[np.nan if x is None else x for x in row] for row in holed])
    lows, highs = bound.boxes(values)
    owner = np.repeat(np.arange(3), np.diff(filled.first))
    assert (filled.rows >= lows[owner]).all()
    assert (filled.rows <= highs[owner]).all()
