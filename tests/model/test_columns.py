"""Columns as numbers."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from appulse.imputation.repository import Repository
from appulse.model import structs
from appulse.model.columns import floats
from appulse.model.uncertainty import Samples

_KINDS = [
    pa.decimal128(9, 2),
    pa.decimal128(15, 15),
    pa.decimal128(15, -2),
    pa.decimal128(38, 18),
    pa.decimal256(50, 4),
]


@pytest.mark.parametrize("kind", [*_KINDS, pa.decimal32(7, 2), pa.decimal64(15, 3)], ids=str)
@given(st.data())
def test_a_decimal_is_the_nearest_double(kind: pa.DataType, data: st.DataObject) -> None:
    """As Python rounds it, whatever its scale; null is NaN, and a slice is read from where it begins."""
    most = 10**kind.precision - 1
    whole = data.draw(st.lists(st.none() | st.integers(-most, most), max_size=9))
    values = [None if number is None else Decimal(f"{number}e{-kind.scale}") for number in whole]
    begin = data.draw(st.integers(0, len(values)))
    wanted = [np.nan if value is None else float(value) for value in values]
    assert np.array_equal(floats(pa.array(values, kind)), wanted, equal_nan=True)
    assert np.array_equal(floats(pa.array(values, kind)[begin:]), wanted[begin:], equal_nan=True)


def test_decimals_in_samples_and_in_repositories_are_the_nearest_doubles() -> None:
    chance = np.random.default_rng(0)
    values = [Decimal(whole) / 10**9 for whole in chance.integers(0, 10**17, 200).tolist()]
    nearest, kind = [float(value) for value in values], pa.decimal128(30, 9)
    samples = [[{"x": value, "weight": value}] for value in values]
    column = pa.array(samples, pa.list_(pa.struct([("x", kind), ("weight", kind)])))
    opened, model = structs.opened(pa.table({"s": column}), Samples("s"))
    assert opened["s"].to_pylist() == [[[value]] for value in nearest]
    assert opened[model.weights].to_pylist() == [[value] for value in nearest]
    known = Repository(pa.table({"x": pa.array(values, kind)})).matrix(("x",))
    assert known.ravel().tolist() == nearest
