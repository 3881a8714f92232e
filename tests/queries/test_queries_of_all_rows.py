"""Conditions that bound nothing, or little: they are asked of all rows, and never are all pairs held at once."""

from __future__ import annotations

import tracemalloc
from typing import TYPE_CHECKING
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest

import appulse as ap
from appulse.queries import holding, index, sets
from appulse.queries.condition import parse
from appulse.queries.index import BoxIndex
from appulse.queries.parts import parted
from appulse.queries.rows import Rows
from appulse.queries.sets import QuerySet
from appulse.queries.templates import Template

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from appulse.queries.columns import Values

_FREE = "sqrt((x - {a}) * (x - {a}) + (y - {b}) * (y - {b})) < 2"
_FORMS = (_FREE, "x * y < {a}", "x > -1 AND x * y > {b}", "x > {a}", "x IS NULL OR x / y > {b}", "x < y OR y * y > {a}")
_TYPES = {"x": pa.float64(), "y": pa.float64()}
_MIB = 1 << 20


def _rows(n: int, seed: int = 0) -> dict[str, pa.Array]:
    random = np.random.default_rng(seed)
    return {name: pa.array(random.uniform(0, 100, n), mask=random.random(n) < 0.05) for name in _TYPES}


def _set(texts: Sequence[str]) -> QuerySet:
    queries = QuerySet(_TYPES, pa.int64())
    assert not queries.add(pa.array(range(len(texts))), pa.array(texts)).refused
    return queries


def _texts(forms: Sequence[str], n: int, seed: int = 0) -> list[str]:
    at = np.random.default_rng(seed).uniform(0, 100, (n, 2)).round(2).tolist()
    return [forms[i % len(forms)].format(a=a, b=b) for i, (a, b) in enumerate(at)]


def _expected(texts: Sequence[str], rows: dict[str, pa.Array]) -> set[tuple[int, int]]:
    found = set()
    for i, text in enumerate(texts):
        condition = parse(text)
        own = {name: rows[name] for name in condition.columns}
        found |= {(row, i) for row in np.flatnonzero(condition.holds(own, len(rows["x"]))).tolist()}
    return found


def _found(queries: QuerySet, rows: dict[str, pa.Array]) -> list[tuple[int, int]]:
    at, slots = queries.match(rows, len(rows["x"]))
    return sorted(zip(at.tolist(), queries.keys(slots).to_pylist(), strict=True))


@pytest.mark.parametrize("form", [_FREE, "x > -1 AND " + _FREE])
def test_the_pairs_of_wide_conditions_are_never_held_at_once(form: str) -> None:
    """Of 300 queries and 20,000 rows they alone would be 46 MiB, as two numbers of four bytes."""
    rows, queries = _rows(20_000), _set(_texts([form], 300))
    queries.match({name: column[:10] for name, column in rows.items()}, 10)
    tracemalloc.start()
    queries.match(rows, 20_000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 60 * _MIB


@pytest.mark.parametrize("n", [1, 255, 256, 3000])
@pytest.mark.parametrize("parts", [64, 1 << 20])
def test_in_parts_of_any_size_they_match_what_they_match(n: int, parts: int) -> None:
    rows, texts = _rows(n), _texts(_FORMS, 60)
    with (
        mock.patch.object(index, "_MOST_ROOM", parts),
        mock.patch.multiple(holding, _ROWS=100, _ROOM=min(parts, holding._ROOM)),
    ):
        assert _found(_set(texts), rows) == sorted(_expected(texts, rows))


def test_they_come_and_go_as_others() -> None:
    """Removed, made anew, and by other slots when the set is made smaller; counted as rows that came to them."""
    rows, texts = _rows(500), _texts(_FORMS, 60)
    queries, every = _set(texts), _expected(texts, rows)
    with mock.patch.object(sets, "_LEAST_DEAD", 3):
        gone = [*range(0, 60, 2), 1, 7]
        queries.remove(pa.array(gone))
        queries.settle()
        assert _found(queries, rows) == sorted(pair for pair in every if pair[1] not in gone)
        queries.add(pa.array([0, 6]), pa.array([texts[0], texts[6]]))
        assert _found(queries, rows) == sorted(pair for pair in every if pair[1] not in gone or pair[1] in (0, 6))
    slot = int(queries.find(pa.array([6]))[0])
    assert queries.described(slot)["candidates"] == 500
    parts, members = parted(queries, 3)
    assert sorted(np.concatenate(members).tolist()) == sorted(queries.find(pa.array(range(60))).tolist())
    assert parts.met(Rows(rows), 500)[[slot in own for own in members]].all()


def test_one_that_cannot_be_evaluated_is_a_reject_and_leaves_no_answer() -> None:
    """In whichever part of the rows it fails, it answers in none, and the others do."""
    texts = [_FREE.format(a=1, b=1), "x * y < 50", "x * y < 7", "x > -1 AND x * y < 9"]
    rows, queries = _rows(1000), _set(texts)
    holds, calls = Template.holds, 0

    def failing(made: Template, columns: Mapping[str, Values], given: Sequence[Values]) -> NDArray[np.bool_]:
        nonlocal calls
        if any(7.0 in one.data.reshape(-1) for one in given):
            calls += 1
            if calls > 1:
                raise OverflowError("too far")
        return holds(made, columns, given)

    with mock.patch.object(Template, "holds", failing), mock.patch.object(holding, "_ROWS", 300):
        found = _found(queries, rows)
    assert found == sorted(pair for pair in _expected(texts, rows) if pair[1] != 2)
    assert ["too far" in one.reason for one in queries.failed()] == [True]


def test_a_part_of_the_pairs_is_no_larger_than_asked_for() -> None:
    """Also where one group of clusters has more: the order of pairs is the same."""
    n, points = 600, 2000
    part = np.full((1, n), 0), np.full((1, n), 9), np.arange(n, dtype=np.int32)
    boxes = BoxIndex()
    boxes.add(*part)
    keys = np.full((1, points), 5)
    for cluster in (1, 16):
        whole = boxes.match(keys, cluster=cluster)
        with mock.patch.object(index, "_MOST_ROOM", 20_000):
            parts = list(boxes.parts(keys, cluster=cluster))
        assert max(len(rows) for rows, _ in parts) <= 20_000
        assert all((np.concatenate([one[i] for one in parts]) == whole[i]).all() for i in range(2))


def test_answers_are_in_the_order_of_rows_and_queries() -> None:
    """Whether queries are asked of all rows or by their boxes."""
    rows, texts = _rows(3000), _texts(_FORMS, 12)
    table = pa.table({"id": range(3000), "t": np.arange(3000.0), "v": np.zeros(3000), **rows})
    stream = ap.Stream(table, key="id", time="t", value="v")
    found = ap.match_queries(stream, queries=pa.table({"query": range(12), "condition": texts}))
    pairs = list(zip(found["key"].to_pylist(), found["query"].to_pylist(), strict=True))
    assert pairs == sorted(_expected(texts, rows))
