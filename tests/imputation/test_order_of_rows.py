"""Fills of a frame are the same in whatever order its rows come."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import appulse as ap
from appulse.model.canonical import canonical_places
from tests.imputation.test_imputers import CLOSE, answers, every_imputer

if TYPE_CHECKING:
    from numpy.typing import NDArray

REPOSITORY = pa.table({"a": [0.0, 1.0, 1.2, 4.0], "b": [0.0, 10.0, 20.0, 30.0]})
NAMES = (*sorted(every_imputer(REPOSITORY, "ab")), "space")


def imputer_named(name: str) -> Any:
    if name == "space":
        return ap.SpatialImputer({"a": (0.0, 0.0), "b": (1.0, 0.0)}, k=2)
    return every_imputer(REPOSITORY, "ab")[name]


def series(seed: int, n: int, together: int, partitions: int) -> pa.Table:
    """Rows with holes, ``together`` of them at a time; keys are texts that are not in the order of the rows."""
    rng = np.random.default_rng(seed)
    values = np.cumsum(rng.normal(0, 1, (n, 2)), axis=0)
    missing = rng.random((n, 2)) < 0.25
    missing[missing.all(axis=1), 0] = False
    columns = {name: pa.array(values[:, i], mask=missing[:, i]) for i, name in enumerate("ab")}
    keys = [f"k{i}" for i in rng.permutation(n).tolist()]
    parts = [f"p{i}" for i in (rng.permutation(n) % partitions).tolist()]
    return pa.table({"k": keys, "t": np.arange(n) // together, "p": parts, **columns})


def stream(table: pa.Table, partitions: int) -> Any:
    by = "p" if partitions > 1 else None
    return ap.Stream(table, key="k", time="t", value=ap.Incomplete("a", "b"), partition_by=by)


def filled(table: pa.Table, partitions: int, name: str, *, empty_rows: bool = False) -> dict[str, Any]:
    frame = ap.impute(stream(table, partitions), imputer_named(name), empty_rows=empty_rows).frame
    assert frame["k"].equals(table["k"])
    rows = frame.select(["k", "imputed", "imputed_weights", "filled"]).to_pylist()
    return {row.pop("k"): repr(row) for row in rows}


def shuffled(table: pa.Table, seed: int) -> pa.Table:
    return table.take(pa.array(np.random.default_rng(seed).permutation(len(table))))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("together", "partitions"), [(1, 3), (3, 1), (3, 2)])
def test_a_frame_is_filled_the_same_in_any_order(name: str, together: int, partitions: int) -> None:
    table = series(0, 60, together, partitions)
    assert filled(shuffled(table, 1), partitions, name) == filled(table, partitions, name)


@given(st.integers(0, 2**32 - 1), st.integers(1, 40), st.integers(1, 4), st.integers(1, 3), st.sampled_from(NAMES))
def test_any_frame_is(seed: int, n: int, together: int, partitions: int, name: str) -> None:
    table = series(seed, n, together, partitions)
    assert filled(shuffled(table, seed), partitions, name) == filled(table, partitions, name)


@pytest.mark.parametrize("name", ["interpolation", "in time", "auto"])
def test_rows_that_lack_everything_are(name: str) -> None:
    table = series(2, 60, 2, 2)
    empty = np.arange(60) % 7 == 3
    for column in "ab":
        holed = pa.array(np.where(empty | table[column].is_null().to_numpy(), np.nan, table[column].to_numpy()))
        table = table.set_column(table.schema.get_field_index(column), column, holed)
    expected = filled(table, 2, name, empty_rows=True)
    assert filled(shuffled(table, 1), 2, name, empty_rows=True) == expected


@pytest.mark.parametrize("name", ["interpolation", "in time", "space", "auto"])
@pytest.mark.parametrize("partitions", [1, 2])
def test_a_join_fills_as_impute_does_in_any_order(name: str, partitions: int) -> None:
    table = series(1, 60, 3, partitions)
    found = []
    for frame in (table, shuffled(table, 1)):
        joined = answers(ap.self_join(stream(frame, partitions), imputer=imputer_named(name), **CLOSE))
        imputed = ap.impute(stream(frame, partitions), imputer_named(name))
        assert joined == answers(ap.self_join(imputed, **CLOSE))
        found.append(joined)
    first, second = found
    assert first
    # Sums over samples are rounded in the order of the pair's rows.
    assert [row[:6] for row in second] == [row[:6] for row in first]
    assert np.array([row[6:] for row in second]) == pytest.approx(np.array([row[6:] for row in first]), rel=1e-12)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("lacking", ["k", "t", "p"])
def test_rows_that_are_rejects_fill_no_others(name: str, lacking: str) -> None:
    table = series(4, 60, 1, 2)
    odd = np.arange(60) % 6 == 1
    column = table[lacking].combine_chunks()
    at = table.schema.get_field_index(lacking)
    holed = table.set_column(at, lacking, pa.array(column.to_pylist(), column.type, mask=odd))
    imputer = imputer_named(name)
    given = ap.impute(stream(holed, 2), imputer).frame.filter(~odd)
    expected = ap.impute(stream(table.filter(~odd), 2), imputer).frame
    assert given["imputed"].equals(expected["imputed"])
    joined = answers(ap.self_join(stream(holed, 2), imputer=imputer_named(name), **CLOSE))
    assert joined == answers(ap.self_join(ap.impute(stream(holed, 2), imputer_named(name)), **CLOSE))


def test_what_is_beside_may_come_in_any_order() -> None:
    rng = np.random.default_rng(3)
    beside = rng.integers(0, 9, (60, 2)).astype(float)
    time = 1_000_000 * (np.arange(60) // 2)
    order = rng.permutation(60)
    table = series(3, 60, 1, 1)
    first, second = (
        ap.impute(stream(table, 1), ap.TimeRegressionImputer(k=3, beside=given_beside)).frame["imputed"]
        for given_beside in ((beside, time), (beside[order], time[order]))
    )
    assert first.equals(second)


def scanned(keys: list[str | None], time: list[int], group: list[int], values: NDArray[np.float64]) -> list[int]:
    """The twin of `canonical_places`."""

    def rank(i: int) -> tuple[Any, ...]:
        own = [(np.isnan(value), 0.0 if np.isnan(value) else value) for value in values[i].tolist()]
        return group[i], time[i], (keys[i] or "").encode(), own

    return sorted(range(len(keys)), key=rank)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(("a", "b", "ba", "é", None)),
            st.sampled_from((-(2**62), 0, 2**62)),
            st.integers(0, 1),
            st.sampled_from((np.nan, 0.0, 1.0)),
            st.sampled_from((np.nan, -1.0)),
        ),
        max_size=20,
    )
)
def test_canonical_order_is_that_of_a_scan(rows: list[tuple[Any, ...]]) -> None:
    keys, time, group = ([row[k] for row in rows] for k in range(3))
    values = np.array([row[3:] for row in rows], float).reshape(len(rows), 2)
    found = canonical_places(pa.array(keys, pa.string()), np.array(time, np.int64), np.array(group, np.int64), values)
    assert found.tolist() == scanned(keys, time, group, values)
