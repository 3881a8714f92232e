"""Columns as numbers."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from appulse.model.columns import floats

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
