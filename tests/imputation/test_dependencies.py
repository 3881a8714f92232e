from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from appulse.errors import BadArgument
from appulse.imputation.dependencies import DifferentialDependency, from_toml, to_toml
from appulse.imputation.imputer import DependencyImputer
from appulse.imputation.repository import Repository
from appulse.imputation.verification import check, verified
from tests.helpers import naive_imputation as naive

if TYPE_CHECKING:
    from pathlib import Path

TINY = pa.table({"a": [0.0, 0.5, 1.0], "b": [0.0, 1.0, 5.0]})


def test_a_rule_says_what_it_is() -> None:
    rule = DifferentialDependency({"t": 0.5, "l": 40}, "h", 2, where={"l": (0, 100)})
    assert rule.determinants == (("t", 0.5), ("l", 40.0))
    assert rule.reads == ("t", "l")
    assert str(rule) == "t(0.5), l(40) -> h(2) where l in [0, 100]"
    assert rule == DifferentialDependency({"t": 0.5, "l": 40.0}, "h", 2.0, 1.0, {"l": (0.0, 100.0)})
    assert len({rule, rule}) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (({}, "h", 1), "at least one attribute"),
        ((["t"], "h", 1), "at least one attribute"),
        (({"t": -1}, "h", 1), "'t': -1"),
        (({"t": True}, "h", 1), "'t': True"),
        (({"t": math.inf}, "h", 1), "'t': inf"),
        (({"t": 1}, "h", math.nan), "tolerance=nan"),
        (({"h": 1}, "h", 1), "fills 'h' from itself"),
        (({"t": 1}, "h", 1, 1.0, {"h": (0, 1)}), "fills 'h' from itself"),
        (({"t": 1}, "", 1), "the name is empty"),
        (({"t": 1}, "h", 1, 0.0), r"confidence=0.0"),
        (({"t": 1}, "h", 1, 1.5), r"confidence=1.5"),
        (({"t": 1}, "h", 1, 1.0, {"l": (2, 1)}), "no number lies in there"),
        (({"t": 1}, "h", 1, 1.0, {"l": 3}), "a pair"),
    ],
)
def test_what_is_no_rule_is_told(arguments: tuple[object, ...], message: str) -> None:
    make: object = DifferentialDependency
    assert callable(make)
    with pytest.raises(BadArgument, match=message):
        make(*arguments)


names = st.sampled_from(("a", "b", 'with "quotes"', "ümlaut", "a.b"))
lengths = st.floats(0, 1e6)


@st.composite
def rules_(draw: st.DrawFn) -> DifferentialDependency:
    determinants = draw(st.dictionaries(names, lengths, min_size=1, max_size=3))
    ends = st.tuples(st.floats(allow_nan=False), st.floats(allow_nan=False)).map(lambda pair: (min(pair), max(pair)))
    where = draw(st.dictionaries(names, ends, max_size=2))
    return DifferentialDependency(determinants, "z", draw(lengths), draw(st.floats(0.01, 1.0)), where)


@given(st.lists(rules_(), max_size=3))
def test_rules_travel_as_toml(rules: list[DifferentialDependency]) -> None:
    assert from_toml(to_toml(rules)) == rules


def test_rules_come_from_a_file(tmp_path: Path) -> None:
    rule = DifferentialDependency({"t": 0.5}, "h", 2.0, 0.9, {"l": (0, math.inf)})
    file = tmp_path / "rules.toml"
    file.write_text(to_toml([rule]))
    assert from_toml(file) == [rule]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[dependency]\n", "cannot be read"),
        ("[[dependencies]]\n", "Did you mean 'dependency'"),
        ("[dependency]\n", "once for each rule"),
        ("[[dependency]]\ndeterminants = {a = 1}\n", "has no 'dependent'"),
        ("[[dependency]]\nconfidenze = 1\n", "Did you mean 'confidence'"),
        ("[[dependency]]\ndeterminants = {a = 1}\ndependent = 'b'\ntolerance = 1\nwhere = 3\n", "Give a table"),
    ],
)
def test_toml_that_is_no_rule_is_told(text: str, message: str) -> None:
    with pytest.raises(BadArgument, match=message):
        from_toml(text)


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(BadArgument, match="cannot be read"):
        from_toml(tmp_path / "none.toml")


# --- on a repository --------------------------------------------------------------------------------------------


def test_a_rule_that_does_not_hold_shows_two_rows_against_it() -> None:
    rule = DifferentialDependency({"a": 0.5}, "b", 2.0)
    found = verified(Repository(TINY), rule)
    assert (found.close, found.good, found.sampled, found.holds) == (4, 2, None, False)
    with pytest.raises(BadArgument, match=r"2 of 4 pairs .* 0.5, .* row 1: a 0.5, b 1; row 2: a 1, b 5"):
        check(Repository(TINY), rule)
    with pytest.raises(BadArgument, match="does not hold"):
        DependencyImputer(TINY, [rule])


def test_a_rule_need_only_hold_for_its_confidence() -> None:
    rule = DifferentialDependency({"a": 0.5}, "b", 2.0, confidence=0.5)
    assert DependencyImputer(TINY, [rule]).verified[0].confidence == 0.5


def test_a_rule_need_only_hold_in_its_range() -> None:
    rule = DifferentialDependency({"a": 0.5}, "b", 2.0, where={"a": (0.0, 0.9)})
    found = check(Repository(TINY), rule)
    assert (found.close, found.good) == (2, 2)


def test_a_rule_without_close_pairs_holds() -> None:
    assert check(Repository(TINY), DifferentialDependency({"a": 0.1}, "b", 0.0)).confidence == 1.0


def test_rules_are_checked_again_when_rows_come() -> None:
    imputer = DependencyImputer(TINY, [DifferentialDependency({"a": 0.1}, "b", 1.0)])
    version = imputer.version
    with pytest.raises(BadArgument, match=r"row 0: a 0, b 0; row 3: a 0\.05, b 9"):
        imputer.append(pd.DataFrame({"a": [0.05], "b": [9.0]}))
    assert (imputer.version, len(imputer.repository)) == (version, 3)
    imputer.append(pl.DataFrame({"b": [0.5], "a": [0.05], "more": ["x"]}))
    assert (len(imputer.repository), imputer.verified[0].close) == (4, 2)
    assert imputer.version != version


numbers = st.integers(-4, 4).map(lambda i: i / 2)


@given(
    st.lists(st.tuples(numbers, numbers, numbers), min_size=1, max_size=25),
    st.sampled_from((0.0, 0.5, 1.0)),
    st.sampled_from((0.0, 0.5, 2.0)),
    st.sampled_from((None, (-1.0, 1.0), (3.0, 4.0))),
)
def test_pairs_are_counted_as_by_hand(
    rows: list[tuple[float, float, float]], near: float, of: float, ends: tuple[float, float] | None
) -> None:
    table = pa.table({name: [row[i] for row in rows] for i, name in enumerate("abc")})
    rule = DifferentialDependency({"a": near, "b": 0.5}, "c", of, where=None if ends is None else {"b": ends})
    found = verified(Repository(table), rule)
    assert (found.close, found.good) == naive.holds(table.to_pylist(), rule)
    assert (found.against is None) == (found.close == found.good)


def test_many_pairs_are_sampled_and_that_is_said() -> None:
    chance = np.random.default_rng(1)
    a = chance.random(5000)
    table = pa.table({"a": a, "b": a + chance.normal(0, 0.1, len(a))})
    rule = DifferentialDependency({"a": 0.05}, "b", 0.2)
    exact, sampled = verified(Repository(table), rule), verified(Repository(table), rule, most=1_000_000)
    assert exact.sampled is None
    assert sampled.sampled is not None
    assert 1024 <= sampled.sampled < 5000
    assert abs(exact.confidence - sampled.confidence) < 0.01


def test_a_repository_has_complete_rows_of_numbers() -> None:
    assert Repository(pa.table({"a": [1, 2], "name": ["x", "y"], "b": [0.5, -0.0]})).names == ("a", "b")
    with pytest.raises(BadArgument, match=r"2 of 3 rows .* no finite 'a'"):
        Repository(pa.table({"a": [1.0, None, math.nan]}))
    with pytest.raises(BadArgument, match=r"no column 'a2'\. Known: a1"):
        Repository(pa.table({"a1": [1.0]}), ["a2"])
    with pytest.raises(BadArgument, match="no number"):
        Repository(pa.table({"a": ["x"]}), ["a"])
    with pytest.raises(BadArgument, match="has no rows"):
        Repository(pa.table({"a": pa.array([], pa.float64())}))
    with pytest.raises(BadArgument, match=r"no column of numbers: 'a' is string, 'b' is bool\. Convert"):
        Repository(pa.table({"a": ["x"], "b": [True]}))
    with pytest.raises(BadArgument, match="'e' is string, 2 more"):
        Repository(pa.table({name: ["x"] for name in "abcdefg"}))
    with pytest.raises(BadArgument, match=r"no column of numbers\. Give"):
        Repository(pa.table({}))
    with pytest.raises(BadArgument, match="Column 'b' of the repository is string, no number"):
        Repository(pa.table({"a": [1], "b": ["x"]}))["b"]
    with pytest.raises(BadArgument, match=r"builtins\.int"):
        Repository(3)
