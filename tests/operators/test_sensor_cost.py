"""How much work sensor joins do, by counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

import appulse as ap
from appulse.model import readings as model
from appulse.model.strings import decode, encode

if TYPE_CHECKING:
    from appulse.model.strings import Bytes


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many labels are decoded, by call."""
    counts: list[int] = []

    def counted(strings: Bytes, kind: pa.DataType) -> pa.Array:
        counts.append(len(strings))
        return decode(strings, kind)

    monkeypatch.setattr(model, "decode", counted)
    return counts


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.string(), [f"word {i}" for i in range(100)]),
        (pa.struct([("mean", pa.float64())]), [{"mean": i / 4} for i in range(100)]),
        (pa.dictionary(pa.int32(), pa.string()), [f"word {i}" for i in range(100)]),
    ],
)
def test_few_values_of_many_labels(decoded: list[int], kind: pa.DataType, values: list[object]) -> None:
    plain = kind.value_type if pa.types.is_dictionary(kind) else kind
    label = tuple(encode(pa.array(values, plain)).to_list())
    codes = np.array([70, 3, 70, 99, 0], np.int64)
    found = model.values_of(codes, label, kind)
    assert found.type == plain
    assert found.to_pylist() == [values[code] for code in codes]
    assert decoded == [4]
    assert len(model.values_of(codes[:0], label, kind)) == 0
    assert model.values_of(np.arange(200) % 100, label, kind).to_pylist() == 2 * values
    assert decoded == [4, 0, 100]


def test_summaries_are_decoded_where_they_are_named(decoded: list[int]) -> None:
    """Answers come in slices of the readings; each decoded the summaries of all of them."""
    chance, n = np.random.default_rng(0), 30_000
    value = chance.uniform(0, 100, n)
    table = pa.table({"id": chance.integers(0, 200, n), "t": np.arange(n) * 0.01, "v": value})
    readings = ap.Stream(table, key="id", time="t", value="v")
    found = ap.sensor_join(readings, window="1 second", resolution=0.5, similar="summary", over="10 seconds")
    assert found.num_rows > 500
    assert sum(decoded) <= found.num_rows
