"""Column batches: cut and joined, they are the lists of rows that they stand for, whatever their columns."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from appulse.model.batch import SHARED, Batch, Ragged
from appulse.model.strings import Bytes, Labels
from appulse.model.uncertainty import Form

if TYPE_CHECKING:
    from numpy.typing import NDArray

WORDS = [b"", b"a", b"bc", b"long enough"]


@dataclass(frozen=True, slots=True)
class Inner(Batch):
    """Two columns of one's own."""

    left: NDArray[np.float64]
    name: Bytes


@dataclass(frozen=True, slots=True)
class Table(Batch):
    """A column of each kind that can be packed."""

    form: Form = field(metadata=SHARED)
    number: NDArray[np.int64]
    wide: NDArray[np.float64]
    flag: NDArray[np.bool_]
    key: Bytes
    label: Labels
    points: Ragged[NDArray[np.float64]]
    weight: NDArray[np.float32]
    carried: pa.Table
    nothing: NDArray[np.float64] | None = None


@dataclass(frozen=True)
class Nested(Batch):
    """The other kinds."""

    missing: Bytes | None
    some: list[NDArray[np.int64]]
    inner: Inner
    many: Ragged[Inner]
    column: pa.Array


row = st.tuples(
    st.integers(-2, 2),
    st.booleans(),
    st.sampled_from(WORDS),
    st.sampled_from(WORDS),
    st.lists(st.tuples(st.sampled_from([0.0, -0.0, 1.5, float("inf")]), st.integers(0, 3)), max_size=3),
    st.one_of(st.none(), st.text(max_size=3)),
)


def rows_of(least: int = 0) -> st.SearchStrategy[list[Any]]:
    return st.lists(row, min_size=least, max_size=8)


def at_places(data: st.DataObject, rows: list[Any]) -> NDArray[np.int64]:
    """Rows of three times as many."""
    return np.array(data.draw(st.lists(st.integers(0, 3 * len(rows) - 1), min_size=1, max_size=12)), np.int64)


def ragged(rows: list[Any]) -> NDArray[np.int64]:
    return np.cumsum([0] + [len(one[4]) for one in rows])


def made(rows: list[Any]) -> Table:
    n = len(rows)
    points = np.array([point for one in rows for point in one[4]], np.float64).reshape(-1, 2)
    numbers = np.array([one[0] for one in rows], np.int64)
    return Table(
        Form.SAMPLES,
        numbers,
        np.repeat(numbers[:, None] * 0.5, 3, axis=1),
        np.array([one[1] for one in rows], bool),
        Bytes.of([one[2] for one in rows]),
        Labels(np.array([WORDS.index(one[3]) for one in rows], np.int32), tuple(WORDS)),
        Ragged(ragged(rows), points),
        np.zeros(n, np.float32),
        pa.table({"text": pa.array([one[5] for one in rows], pa.string())}),
    )


def nested(rows: list[Any]) -> Nested:
    flat = [point for one in rows for point in one[4]]
    numbers = np.array([one[0] for one in rows], np.int64)
    inner = Inner(numbers.astype(np.float64), Bytes.of([one[2] for one in rows]))
    values = Inner(np.array([point[0] for point in flat]), Bytes.of([WORDS[point[1]] for point in flat]))
    texts = pa.array([one[5] for one in rows], pa.string())
    return Nested(None, [numbers, -numbers], inner, Ragged(ragged(rows), values), texts)


def listed(batch: Table) -> list[Any]:
    """The rows, by other means than those under test."""
    parts = zip(batch.points.offsets[:-1].tolist(), batch.points.offsets[1:].tolist(), strict=True)
    columns = (
        batch.number.tolist(),
        batch.wide.tolist(),
        batch.flag.tolist(),
        batch.key.to_list(),
        [batch.label.values[code] for code in batch.label.codes],
        [str(batch.points.values[a:b].tolist()) for a, b in parts],
        batch.weight.tolist(),
        batch.carried["text"].to_pylist(),
    )
    return [batch.form, *zip(*columns, strict=True)]


def listed_nested(batch: Nested) -> list[Any]:
    names = batch.many.values.name.to_list()
    parts = zip(batch.many.offsets[:-1].tolist(), batch.many.offsets[1:].tolist(), strict=True)
    columns = (
        batch.inner.left.tolist(),
        batch.inner.name.to_list(),
        [(str(batch.many.values.left[a:b].tolist()), names[a:b]) for a, b in parts],
        batch.some[0].tolist(),
        batch.some[1].tolist(),
        batch.column.to_pylist(),
    )
    return list(zip(*columns, strict=True))


KINDS = pytest.mark.parametrize(("make", "told"), [(made, listed), (nested, listed_nested)])


@KINDS
@given(rows=rows_of(least=1), data=st.data())
def test_rows_at_places(make: Any, told: Any, rows: list[Any], data: st.DataObject) -> None:
    places = np.array(data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=12)), np.int64)
    batch = make(rows)
    assert told(batch.take(places)) == told(make([rows[i] for i in places]))
    assert told(batch.take(places.astype(np.int32))) == told(batch.take(places))


@KINDS
@given(rows=rows_of(), data=st.data())
def test_rows_from_to(make: Any, told: Any, rows: list[Any], data: st.DataObject) -> None:
    begin = data.draw(st.integers(0, len(rows)))
    end = data.draw(st.integers(begin, len(rows)))
    batch = make(rows).slice(begin, end)
    assert len(batch) == end - begin
    assert told(batch) == told(make(rows[begin:end]))
    assert told(batch.take(np.arange(len(batch))[::-1])) == told(make(rows[begin:end][::-1]))


@KINDS
@given(parts=st.lists(rows_of(), min_size=1, max_size=4), data=st.data())
def test_parts_one_after_the_other(make: Any, told: Any, parts: list[list[Any]], data: st.DataObject) -> None:
    every = [one for part in parts for one in part]
    joined = type(make([])).concat([make(part) for part in parts])
    assert told(joined) == told(make(every))
    cut = data.draw(st.integers(0, len(every)))
    assert told(joined.slice(cut, len(every))) == told(make(every[cut:]))


@KINDS
@given(rows=rows_of(), data=st.data())
def test_rows_that_a_mask_keeps(make: Any, told: Any, rows: list[Any], data: st.DataObject) -> None:
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=len(rows), max_size=len(rows))), bool)
    assert told(make(rows).filter(mask)) == told(make([one for one, kept in zip(rows, mask, strict=True) if kept]))


@given(rows_of())
def test_ragged_columns_know_their_rows(rows: list[Any]) -> None:
    points = made(rows).points
    assert (len(points), len(nested(rows))) == (len(rows), len(rows))
    assert points.counts.tolist() == [len(one[4]) for one in rows]
    assert points.owner.tolist() == [i for i, one in enumerate(rows) for _ in one[4]]


@given(rows_of())
def test_bytes_are_those_of_the_columns(rows: list[Any]) -> None:
    batch = made(rows)
    arrays = [batch.number, batch.wide, batch.flag, batch.weight, batch.label.codes, batch.key.data, batch.key.offsets]
    held = sum(array.nbytes for array in [*arrays, batch.points.offsets, batch.points.values])
    assert batch.nbytes == held + batch.carried.nbytes


@given(rows_of())
def test_labels_in_use_in_order(rows: list[Any]) -> None:
    labels = Labels(made(rows).label.codes, tuple(reversed(WORDS)))
    compact = labels.compact()
    assert [compact.values[code] for code in compact.codes] == [labels.values[code] for code in labels.codes]
    assert list(compact.values) == sorted({labels.values[code] for code in labels.codes})


def test_a_column_that_some_parts_lack_is_an_error() -> None:
    whole = nested([(0, True, b"", b"", [], None)])
    other = Nested(whole.inner.name, whole.some, whole.inner, whole.many, whole.column)
    with pytest.raises(ValueError, match=r"Nested\.missing is missing in some of the batches"):
        Nested.concat([whole, other])


def test_a_column_of_no_known_type_is_an_error() -> None:
    wrong: Any = (1, 2)
    with pytest.raises(TypeError, match=r"column of tuple.*SHARED"):
        Inner(wrong, Bytes.of([])).take(np.arange(0))
