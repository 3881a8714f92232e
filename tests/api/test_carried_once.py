"""What rows carry is taken apart once a row, be the row in one answer or in many."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import appulse as ap
from appulse.engines import carrying
from appulse.model.carried import carried_columns
from appulse.model.strings import Bytes, distinct

if TYPE_CHECKING:
    from collections.abc import Callable

_N = 1500


def _table(seed: int, n: int = _N) -> pa.Table:
    random = np.random.default_rng(seed)
    values = random.integers(0, 4, n)
    columns = {
        "id": [f"row {i}" for i in range(n)],
        "t": np.arange(n) * 0.01,
        "x": random.uniform(0, 10, n),
        "text": [None if v == 0 else "é" * v for v in values.tolist()],
        "list": [None if v == 1 else list(range(v)) for v in values.tolist()],
        "none": pa.nulls(n),
        "view": pa.array([f"w{v}" for v in values.tolist()], pa.string_view()),
        "of": pa.array([f"v{v}" for v in values.tolist()]).dictionary_encode(),
        "zero": np.where(values < 2, -0.0, np.nan),
    }
    return pa.table(columns)


def _stream(seed: int, carry: list[str], **more: Any) -> ap.Stream:
    return ap.Stream(_table(seed), key="id", time="t", value="x", carry=carry, **more)


def _joined(carry: list[str]) -> pa.Table:
    return ap.similarity_join(_stream(0, carry), _stream(1, carry[:1]), epsilon=0.5, probability=1, window=3)


def _self_joined(carry: list[str]) -> pa.Table:
    return ap.self_join(_stream(0, carry), epsilon=0.5, probability=1, window=3)


def _pushed(carry: list[str]) -> pa.Table:
    sides = [ap.Stream(None, key="id", time="t", value="x", carry=own) for own in (carry, carry[:1])]
    join = ap.SimilarityJoin(*sides, epsilon=0.5, probability=1, window=3)
    return join.push(left=_table(0), right=_table(1))


@pytest.mark.parametrize("call", [_joined, _self_joined, _pushed])
def test_rows_in_many_answers_are_taken_apart_once(call: Callable[[list[str]], pa.Table]) -> None:
    """Left and right rows; and every answer has what its rows carry."""
    taken, apart = [], carried_columns

    def counted(rows: Bytes, kinds: Any) -> list[pa.Array]:
        taken.append(len(rows))
        return apart(rows, kinds)

    carry = ["text", "list", "none", "of", "zero"]
    with mock.patch.object(carrying, "carried_columns", counted):
        found = call(carry)
    assert len(found) > 10 * _N
    assert sum(taken) <= 2 * _N
    rows = [{row["id"]: row for row in _table(seed).to_pylist()} for seed in (0, 0 if call is _self_joined else 1)]
    for side, known in zip(("left", "right"), rows, strict=True):
        for name in [name for name in carry if f"{side}_{name}" in found.column_names]:
            keys, values = found[f"{side}_key"].to_pylist(), found[f"{side}_{name}"].to_pylist()
            assert list(map(repr, values)) == [repr(known[key][name]) for key in keys]


def test_types_that_arrow_does_not_take_again_are_carried_as_before() -> None:
    found = _joined(["view"])
    known = dict(zip(_table(0)["id"].to_pylist(), _table(0)["view"].to_pylist(), strict=True))
    assert found["left_view"].to_pylist() == [known[key] for key in found["left_key"].to_pylist()]


@given(st.lists(st.sampled_from([b"", b"a", b"a\0", b"8 bytes.", b"9 bytes..", *(bytes([i]) * 40 for i in range(30))])))
def test_equal_strings_have_one_number(values: list[bytes]) -> None:
    first, which = distinct(Bytes.of(values), 1.0)
    assert [values[i] for i in first[which].tolist()] == values
    assert len(first) == len(set(values))


def test_strings_that_look_the_same_are_told_apart() -> None:
    """Their length, and the bytes that are looked at first, are those of all others; some are the same."""
    values = [b"x" * 20 + i.to_bytes(2, "big") + b"x" * 50 for i in range(500)] * 4
    first, which = distinct(Bytes.of(values), 1.0)
    assert [values[i] for i in first[which].tolist()] == values


def test_strings_that_are_seldom_the_same_are_not_looked_for() -> None:
    values = [i.to_bytes(16, "big") for i in range(10_000)]
    first, which = distinct(Bytes.of(values), 0.7)
    assert (first == np.arange(10_000)).all()
    assert (which == np.arange(10_000)).all()
