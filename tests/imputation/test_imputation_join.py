from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from dataclasses import replace
from fractions import Fraction
from importlib import import_module
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import appulse as ap
from appulse.operators.plan import BOUNDS
from tests.helpers import hands, naive
from tests.helpers import naive_imputation as twin

if TYPE_CHECKING:
    from collections.abc import Sequence

R = pa.table(
    {"A": [0.1, 0.2, 0.2, 0.4, 0.25, 0.6], "B": [0.1, 0.1, 0.2, 0.3, 0.15, 0.6], "C": [0.1, 0.2, 0.2, 0.3, 0.15, 0.7]}
)
RULES = [ap.DifferentialDependency({"A": 0.1}, "C", 0.1), ap.DifferentialDependency({"B": 0.05}, "C", 0.1)]
VALUE = ap.Incomplete("A", "B", "C")
HOLED = pa.table({"id": [1], "at": [0], "A": [0.2], "B": [0.15], "C": pa.array([None], pa.float64())})
WHOLE = pa.table({"id": [2], "at": [0], "A": [0.3], "B": [0.2], "C": [0.25]})


def stream(frame: Any, **settings: Any) -> ap.Stream:
    return ap.Stream(frame, key="id", time="at", value=settings.pop("value", VALUE), **settings)


def plain(table: pa.Table) -> Counter[str]:
    """Answers without what was filled, in no order."""
    return Counter(map(repr, table.drop_columns(["left_filled", "right_filled"]).to_pylist()))


@pytest.mark.parametrize(("epsilon", "probability"), [(0.15, 0.75), (0.13, 0.5), (0.2, 1.0), (0.12, None)])
def test_the_worked_example(epsilon: float, probability: float | None) -> None:
    settings: dict[str, Any] = {"epsilon": epsilon, "probability": 0.1, "window": ap.TimeWindow(0)}
    found = ap.similarity_join(stream(HOLED), stream(WHOLE), imputer=ap.DependencyImputer(R, RULES), **settings)
    assert found["probability"].to_pylist() == ([] if probability is None else [probability])
    if probability is not None:
        assert found["left_filled"].to_pylist() == [[{"attribute": "C", "rule": " and ".join(map(str, RULES))}]]
        assert found["right_filled"].to_pylist() == [[]]


def test_incomplete_values_need_an_imputer() -> None:
    with pytest.raises(ap.BadArgument, match="nothing fills them"):
        ap.similarity_join(stream(HOLED), stream(WHOLE), epsilon=1, probability=0.1, window=ap.TimeWindow(0))
    with pytest.raises(ap.BadArgument, match="nothing fills them"):
        ap.match_queries(stream(HOLED), pa.table({"query": ["q"], "condition": ["A > 0"]}), probability=0.1)
    with pytest.raises(ap.BadArgument, match="an imputer such as"):
        ap.similarity_join(stream(HOLED), stream(WHOLE), epsilon=1, probability=0.1, window=ap.TimeWindow(0), imputer=3)
    with pytest.raises(ap.BadArgument, match="typical rows"):
        hands.similarity_join(
            left=stream(None), right=stream(None), epsilon=1, probability=0.1, window=ap.TimeWindow(0), imputer="auto"
        ).push(left=HOLED, right=WHOLE)
    with pytest.raises(ap.BadArgument, match="Did you mean 'right'"):
        ap.similarity_join(
            stream(HOLED), stream(WHOLE), epsilon=1, probability=0.1, window=ap.TimeWindow(0), imputer={"rigt": None}
        )


def test_an_imputer_needs_incomplete_values() -> None:
    """One for all streams may be idle in some of them, and one that a stream is named for may not."""
    settings: dict[str, Any] = {"epsilon": 1, "probability": 0.1, "window": ap.TimeWindow(0)}
    whole = ap.Exact("A", "B", "C")
    left, right = stream(HOLED, name="a"), stream(WHOLE, name="b", value=whole)
    fill: Any = ap.ZeroFill()
    assert len(ap.similarity_join(left, right, imputer=fill, **settings)) == 1
    assert len(ap.similarity_join(left, right, imputer={"a": fill, "b": None}, **settings)) == 1
    with pytest.raises(ap.BadArgument, match=r"what is missing of ap.Incomplete.*the value of 'b' is none"):
        ap.similarity_join(left, right, imputer={"a": fill, "b": fill}, **settings)
    with pytest.raises(ap.BadArgument, match=r"what is missing of ap.Incomplete.*is none"):
        ap.self_join(stream(HOLED, value=whole), imputer=fill, **settings)


def test_impute_needs_what_it_can_fill() -> None:
    imputer = ap.DependencyImputer(R, RULES)
    with pytest.raises(ap.BadArgument, match=r"value=ap\.Incomplete"):
        ap.impute(stream(HOLED, value=ap.Exact("A")), imputer)
    with pytest.raises(ap.BadArgument, match="has one already"):
        ap.impute(stream(HOLED.append_column("filled", pa.array([1]))), imputer)
    with pytest.raises(ap.BadArgument, match="no column 'C'"):
        ap.impute(stream(HOLED.drop_columns("C")), imputer)
    impute: Any = ap.impute
    with pytest.raises(ap.BadArgument, match=r"Wrap the frame.*got int"):
        impute(3, imputer)


@pytest.mark.parametrize("convert", [lambda t: t, pa.Table.to_pandas, pl.from_arrow], ids=["arrow", "pandas", "polars"])
def test_impute_adds_samples_and_says_how(convert: Any) -> None:
    table = pa.concat_tables([HOLED, WHOLE, HOLED.set_column(0, "id", [[3]])])
    filled = ap.impute(stream(convert(table)), ap.DependencyImputer(R, RULES))
    assert filled.value == ap.Samples("imputed", "imputed_weights", names=("A", "B", "C"))
    rows = filled.frame.to_pylist()
    assert [[x[2] for x in row["imputed"]] for row in rows] == [[0.1, 0.15, 0.2], [0.25], [0.1, 0.15, 0.2]]
    assert rows[0]["imputed_weights"] == [0.25, 0.25, 0.5]
    assert [len(row["filled"]) for row in rows] == [1, 0, 1]
    found = ap.match_queries(filled, pd.DataFrame({"query": ["q"], "condition": ["C >= 0.15"]}), probability=0.1)
    assert found["probability"].to_pylist() == [0.75, 1.0, 0.75]


def test_rows_without_any_attribute_are_rejects() -> None:
    none = pa.array([None, None, math.nan, None], pa.float64(), from_pandas=False)
    table = pa.table({"id": [1, 2, 3, 4], "at": [0] * 4, "A": [0.2, None, math.nan, math.inf], "B": none, "C": none})
    settings: dict[str, Any] = {"epsilon": 9, "probability": 0.1, "window": ap.TimeWindow(0)}
    imputer = ap.DependencyImputer(R, RULES)
    found = ap.similarity_join(stream(table), stream(WHOLE), imputer=imputer, **settings)
    assert found["left_key"].to_pylist() == [1]
    rejected = ap.rejects(found).to_pylist()
    assert [(row["key"], row["reason"]) for row in rejected] == [
        (2, "all attributes missing"),
        (3, "all attributes missing"),
        (4, "non-finite value"),
    ]
    assert "A is inf" in rejected[2]["detail"]
    first = ap.similarity_join(
        ap.impute(stream(table), imputer), stream(WHOLE, value=ap.Exact("A", "B", "C")), **settings
    )
    assert first["left_key"].to_pylist() == [1]
    assert ap.rejects(first)["key"].to_pylist() == [2, 3, 4]


def test_streams_may_have_imputers_of_their_own() -> None:
    by_a, by_b = (ap.DependencyImputer(R, [rule]) for rule in RULES)
    other = HOLED.set_column(0, "id", [[2]])
    settings: dict[str, Any] = {"epsilon": 9, "probability": 0.1, "window": ap.TimeWindow(0)}
    found = ap.similarity_join(stream(HOLED), stream(other), imputer={"left": by_a, "right": by_b}, **settings)
    row = found.to_pylist()[0]
    assert row["left_filled"] == [{"attribute": "C", "rule": str(RULES[0])}]
    assert row["right_filled"] == [{"attribute": "C", "rule": str(RULES[1])}]
    with pytest.raises(ap.BadArgument, match="'right' are Incomplete"):
        ap.similarity_join(stream(HOLED), stream(other), imputer={"left": by_a}, **settings)


def test_without_holes_it_is_the_ordinary_join() -> None:
    exact = ap.Exact("A", "B", "C")
    settings: dict[str, Any] = {"epsilon": 0.2, "probability": 0.5, "window": ap.TimeWindow(0)}
    rows = R.append_column("id", pa.array(range(6))).append_column("at", pa.array([0] * 6))
    imputer = ap.DependencyImputer(R, RULES)
    found = ap.similarity_join(stream(rows), stream(rows), imputer=imputer, **settings)
    expected = ap.similarity_join(stream(rows, value=exact), stream(rows, value=exact), **settings)
    assert plain(found) == Counter(map(repr, expected.to_pylist()))
    assert set(map(repr, found["left_filled"].to_pylist())) == {"[]"}
    half = ap.similarity_join(stream(rows), stream(rows, value=exact), imputer=imputer, **settings)
    assert half.to_pylist() == found.to_pylist()


# --- against the twin -------------------------------------------------------------------------------------------

grid = st.integers(-2, 2).map(lambda i: i / 2)
WINDOWS = (ap.TimeWindow(0), ap.TimeWindow(2), ap.CountWindow(1), ap.CountWindow(3), ap.TimeWindow(100))


@st.composite
def rows_(draw: st.DrawFn, d: int, first: int) -> list[dict[str, Any]]:
    found = []
    for i in range(draw(st.integers(0, 6))):
        values = draw(st.lists(st.one_of(grid, grid, st.none(), st.just(math.nan)), min_size=d, max_size=d))
        found.append({"id": first + i, "at": draw(st.integers(0, 3)), **dict(zip("abc", values, strict=False))})
    return found


@st.composite
def cases(draw: st.DrawFn) -> dict[str, Any]:
    d = draw(st.integers(1, 3))
    names = "abc"[:d]
    rules = []
    for _ in range(draw(st.integers(0, 4)) if d > 1 else 0):
        dependent = draw(st.sampled_from(names))
        others = st.sampled_from([name for name in names if name != dependent])
        determinants = draw(st.dictionaries(others, st.sampled_from((0.0, 0.5, 1.0)), min_size=1))
        rules.append(ap.DifferentialDependency(determinants, dependent, 9.0))
    return {
        "names": names,
        "repository": draw(st.lists(st.fixed_dictionaries(dict.fromkeys(names, grid)), min_size=1, max_size=12)),
        "rules": rules,
        "joint": draw(st.booleans()),
        "streams": [draw(rows_(d, 10 * s)) for s in range(draw(st.sampled_from((1, 2, 2, 3))))],
        "epsilon": draw(st.sampled_from((0.0, 0.5, 1.0, math.sqrt(2.0)))),
        "probability": draw(st.sampled_from((0.1, 0.25, 1 / 3, 0.5, 1.0))),
        "window": draw(st.sampled_from(WINDOWS)),
        "emit": draw(st.sampled_from(("matches", "matches", "changes"))),
    }


def tables_of(case: dict[str, Any]) -> list[pa.Table]:
    schema = pa.schema([("id", pa.int64()), ("at", pa.int64()), *((name, pa.float64()) for name in case["names"])])
    return [pa.Table.from_pylist(rows, schema) for rows in case["streams"]]


def run(case: dict[str, Any], streams: Sequence[ap.Stream], **more: Any) -> pa.Table:
    settings = {name: case[name] for name in ("epsilon", "probability", "window", "emit")}
    call: Any = ap.self_join if len(streams) == 1 else ap.similarity_join
    return call(*streams, **settings, **more)


@given(cases())
def test_answers_are_those_of_imputing_everything_first(case: dict[str, Any]) -> None:
    imputer = ap.DependencyImputer(pa.Table.from_pylist(case["repository"]), case["rules"], joint=case["joint"])
    holed = [stream(table, value=ap.Incomplete(*case["names"])) for table in tables_of(case)]
    found = run(case, holed, imputer=imputer)
    eager = run(case, [ap.impute(one, imputer) for one in holed])
    assert plain(found) == Counter(map(repr, eager.to_pylist()))


@given(cases())
def test_answers_are_those_of_all_possible_worlds(case: dict[str, Any]) -> None:
    case["emit"] = "matches"
    names = case["names"]
    model = ap.Samples("samples", "weights", names=tuple(names))
    rows: list[list[dict[str, Any]]] = []
    told = {}
    for own in case["streams"]:
        rows.append([])
        for row in own:
            value = {name: None if row[name] is None or math.isnan(row[name]) else row[name] for name in names}
            if all(x is None for x in value.values()):
                continue
            samples, ways = twin.filled(value, case["repository"], case["rules"], joint=case["joint"])
            told[row["id"]] = [{"attribute": name, "rule": rule} for name, rule in ways]
            exact = {"samples": [list(x) for x, _ in samples], "weights": [w for _, w in samples]}
            rows[-1].append({"id": row["id"], "at": row["at"], **exact})
    streams = [stream(None, value=model) for _ in rows]
    expected = naive.join(
        rows,
        streams,
        d=len(names),
        self_join=len(rows) == 1,
        different=None,
        **{name: case[name] for name in ("epsilon", "probability", "window")},
    )
    imputer = ap.DependencyImputer(pa.Table.from_pylist(case["repository"]), case["rules"], joint=case["joint"])
    holed = [stream(table, value=ap.Incomplete(*names)) for table in tables_of(case)]
    found = run(case, holed, imputer=imputer)
    naive.assert_same_answers(found.drop_columns(["left_filled", "right_filled"]), expected.answers)
    for row in found.to_pylist():
        assert row["left_filled"] == told[row["left_key"]]
        assert row["right_filled"] == told[row["right_key"]]


def test_the_sum_over_worlds_is_one_over_pairs_of_instances() -> None:
    # Ren et al. 2019, Eqs. 1 to 3: the worlds of two windows, enumerated.
    known = R.to_pylist()
    holed = [(0.2, 0.15, None), (0.4, None, 0.25), (None, 0.15, 0.15)]
    left = [twin.filled(dict(zip("ABC", row, strict=True)), known, RULES)[0] for row in holed]
    right = [twin.filled({"A": 0.3, "B": None, "C": 0.25}, known, RULES)[0], [((0.2, 0.2, 0.2), Fraction(1))]]
    sums: defaultdict[tuple[int, int], Fraction] = defaultdict(Fraction)
    for world in product(*left, *right):
        weight = math.prod((w for _, w in world), start=Fraction(1))
        for i, j in product(range(3), range(2)):
            if naive.is_close(world[i][0], world[3 + j][0], 0.2):
                sums[i, j] += weight
    values: list[Any] = [*holed, (0.3, None, 0.25), (0.2, 0.2, 0.2)]
    rows = [{"id": i, "at": 0, **dict(zip("ABC", row, strict=True))} for i, row in enumerate(values)]
    found = ap.similarity_join(
        stream(pa.Table.from_pylist(rows[:3])),
        stream(pa.Table.from_pylist(rows[3:])),
        epsilon=0.2,
        probability=1e-9,
        window=ap.CountWindow(3),
        imputer=ap.DependencyImputer(R, RULES),
    )
    told = {(row["left_key"], row["right_key"] - 3): row["probability"] for row in found.to_pylist()}
    assert told == pytest.approx({pair: float(total) for pair, total in sums.items()})


# --- by hand ----------------------------------------------------------------------------------------------------


@given(cases(), st.integers(1, 4))
def test_pushes_answer_as_one(case: dict[str, Any], pushes: int) -> None:
    case["window"], case["emit"] = ap.TimeWindow(2), "matches"
    case["streams"] = case["streams"][:2] if len(case["streams"]) > 1 else case["streams"] * 2
    imputer = ap.DependencyImputer(pa.Table.from_pylist(case["repository"]), case["rules"], joint=case["joint"])
    tables = tables_of(case)
    holed = [stream(table, value=ap.Incomplete(*case["names"])) for table in tables]
    expected = run(case, holed, imputer=imputer)
    sides: Any = {name: replace(s, frame=None, lateness=10) for name, s in zip(("left", "right"), holed, strict=True)}
    settings = {name: case[name] for name in ("epsilon", "probability", "window")}
    join = hands.similarity_join(**sides, **settings, imputer=imputer)
    found = []
    for k in range(pushes):
        part = {
            name: table.take(pa.array(range(k, len(table), pushes), pa.int64()))
            for name, table in zip(sides, tables, strict=True)
        }
        found += join.push(**part).to_pylist()
    assert Counter(map(repr, found)) == Counter(map(repr, expected.to_pylist()))


@given(st.integers(0, 2**32 - 1), st.booleans(), st.sampled_from((0.3, 0.6, 1.0)))
def test_one_look_along_an_axis_adds_up_to_all_pairs_of_samples(seed: int, rounded: bool, epsilon: float) -> None:
    chance = np.random.default_rng(seed)
    repository = chance.random((60, 3))
    rows = chance.random((2, 20, 3))
    if rounded:
        repository, rows = repository.round(1), rows.round(1)
    rows[:, :15][chance.random((2, 15, 3)).argsort(axis=2) < 1] = np.nan
    known = pa.table(dict(zip("abc", repository.T, strict=True)))
    rules = [ap.DifferentialDependency({by: 0.4}, name, 9.0) for name in "abc" for by in "abc" if by != name]
    sides = []
    for s, values in enumerate(rows):
        columns = {name: pa.array(values[:, k], from_pandas=True) for k, name in enumerate("abc")}
        table = pa.table({"id": np.arange(20) + 100 * s, "at": np.zeros(20, np.int64), **columns})
        sides.append(stream(table, value=ap.Incomplete("a", "b", "c")))
    settings: dict[str, Any] = {"epsilon": epsilon, "probability": chance.choice([1e-6, 0.2, 0.5])}
    imputer = ap.DependencyImputer(known, rules)
    found, plain_ = (
        ap.similarity_join(
            *sides, window=ap.TimeWindow(0), imputer=imputer, options=ap.Options(bounds=bounds), **settings
        )
        for bounds in (BOUNDS, BOUNDS - {"axes"})
    )
    assert found["left_filled"] == plain_["left_filled"]
    assert found["left_key"] == plain_["left_key"]
    assert found["right_key"] == plain_["right_key"]
    assert np.allclose(found["probability"], plain_["probability"], atol=1e-12)


def test_two_routers_one_hole(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Example 1.1 and Table 1 of Ren et al. 2019."""
    monkeypatch.syspath_prepend(Path(__file__).resolve().parents[2] / "examples")
    routers: Any = import_module("routers")
    told = routers.similar()
    assert list(zip(told["left_key"], told["right_key"], strict=True)) == [(1, 1), (1, 2), (2, 1), (2, 2), (3, 3)]
    assert [len(row) for row in told["left_filled"]] == [0, 0, 0, 0, 1]
    # By a scan: the log's rows within reach of 0.4 thousand connections of 0.3 minutes.
    known = routers.log().to_dict("records")
    hole = {"connections": 0.4, "duration": 0.3, "gigabytes": None}
    samples, _ = twin.filled(hole, known, routers.rules())
    close = [w for x, w in samples if naive.is_close(x, (0.3, 0.3, 0.2), 0.2)]
    assert told["probability"].to_list()[-1] == pytest.approx(float(sum(close)))
    routers.main()
    assert "0.25 GB with probability 0.50" in capsys.readouterr().out


# --- not filled at all ------------------------------------------------------------------------------------------


@given(cases())
def test_rows_that_nothing_can_match_need_no_filling(case: dict[str, Any]) -> None:
    imputer = ap.DependencyImputer(pa.Table.from_pylist(case["repository"]), case["rules"], joint=case["joint"])
    holed = [stream(table, value=ap.Incomplete(*case["names"])) for table in tables_of(case)]
    found, eager = (
        run(case, holed, imputer=imputer, options=ap.Options(bounds=bounds)) for bounds in (BOUNDS, BOUNDS - {"lazy"})
    )
    assert Counter(map(repr, found.to_pylist())) == Counter(map(repr, eager.to_pylist()))


def test_rows_far_from_all_others_are_spared() -> None:
    chance = np.random.default_rng(0)
    known = chance.random((2000, 3))
    known[:, 2] = known[:, :2].sum(axis=1) + 0.01 * chance.normal(size=2000)
    repository = pa.table(dict(zip("abc", known.T, strict=True)))
    rules = [ap.DifferentialDependency({"a": 0.05, "b": 0.05}, "c", 0.5)]
    tables = []
    for s in range(2):
        rows = known[500 * s : 500 * (s + 1)].copy()
        rows[::2, 2] = np.nan
        columns = {name: pa.array(rows[:, k], from_pandas=True) for k, name in enumerate("abc")}
        tables.append(pa.table({"id": np.arange(500), "at": np.arange(500), **columns}))
    streams = [stream(table, value=ap.Incomplete("a", "b", "c")) for table in tables]
    settings: dict[str, Any] = {"epsilon": 0.05, "probability": 0.3, "window": ap.TimeWindow(5)}
    imputer = ap.DependencyImputer(repository, rules)
    found = ap.similarity_join(*streams, imputer=imputer, **settings)
    told = [int(n) for n in re.findall(r"never filled ([0-9,]+)", str(ap.explain(found)))]
    assert told[0] > 300  # of 500
    eager = ap.similarity_join(*streams, imputer=imputer, options=ap.Options(bounds=BOUNDS - {"lazy"}), **settings)
    assert Counter(map(repr, found.to_pylist())) == Counter(map(repr, eager.to_pylist()))
    assert len(found) > 5
