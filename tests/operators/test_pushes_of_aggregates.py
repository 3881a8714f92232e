"""Aggregates of rows pushed a few at a time: those of whole tables, to the last bit, at the cost of the few."""

from __future__ import annotations

import tracemalloc
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import appulse as ap
from appulse.engines.aggregates.call import AggregateBucket, resolve_aggregate
from appulse.operators import held_parts

if TYPE_CHECKING:
    from collections.abc import Iterator

ASKED = {"x": ["sum", "mean", "count", "min", "max", "std", "median", "p90"]}
#: What goes on of rows that may not exist, and of those that do but have an error.
UNSURE: tuple[tuple[Any, dict[str, Any]], ...] = (
    ({"x": ["sum", "count"]}, {"existence": "e"}),
    ({"x": ["sum", "count"]}, {"value": ap.Gaussian("x", sigma="s"), "existence": "e"}),
    ({"x": ["sum", "mean", "count"]}, {"value": ap.Gaussian("x", sigma="s")}),
)
GIVEN: dict[str, Any] = {"key": "id", "time": "t", "value": "x"}
SCHEMA = pa.schema(
    {"id": pa.int64(), "t": pa.int64(), "x": pa.float64(), "g": pa.int64(), "e": pa.float64(), "s": pa.float64()}
)
WINDOWS = (
    ap.TimeWindow(25.0),
    ap.CountWindow(20),
    ap.DeltaWindow("x", 2.5),
    ap.TumblingWindow("30 seconds"),
    ap.TumblingWindow(20),
)
# Values that tie, rise and fall; of a few sums nothing would be left if they were rounded.
VALUE = st.one_of(st.integers(-2, 2).map(float), st.sampled_from([-0.0, 1e16, -1e16]), st.floats(-1.0, 1.0))
#: How long after the row before it a row comes, its value and its group.
ROWS = st.lists(st.tuples(st.integers(0, 3), VALUE, st.sampled_from([0] * 9 + [1])), min_size=20, max_size=120)


def _resolved(window: Any, asked: Any = ASKED, *, distribution: bool = False, **stream: Any) -> Any:
    named: dict[str, Any] = {"distribution": distribution, "single_valued": False, "on_reject": "drop"}
    return resolve_aggregate(ap.Stream(None, **GIVEN | stream), SCHEMA.empty_table(), asked, window=window, **named)


def _sorted(table: pa.Table) -> pa.Table:
    """In order of group and time; of one tick, blocks in the order of their rows."""
    keys = [(name, "ascending") for name in ("g", "time") if name in table.column_names]
    return table.sort_by(keys)


@pytest.fixture(scope="module", autouse=True)
def few_rows() -> Iterator[None]:
    """Groups that a push is about are looked at alone, however few rows are held."""
    with patch.multiple(held_parts, YOUNG=4, _FEW=1):
        yield


@pytest.mark.parametrize("window", WINDOWS)
@given(rows=ROWS, grouped=st.booleans(), data=st.data())
def test_few_rows_have_the_answers_of_the_whole_table(window: Any, rows: Any, grouped: bool, data: Any) -> None:
    """Also where a bucket goes on from its log, and where rows are only taken in."""
    distribution = not isinstance(window, ap.TumblingWindow) and data.draw(st.booleans())
    _check_pushes(window, rows, data, ASKED, {"partition_by": "g"} if grouped else {}, distribution=distribution)


@pytest.mark.parametrize("window", WINDOWS[:2])
@pytest.mark.parametrize(("asked", "more"), UNSURE)
@given(rows=ROWS, data=st.data())
def test_few_unsure_rows_have_the_answers_of_the_whole_table(
    window: Any, asked: Any, more: dict[str, Any], rows: Any, data: Any
) -> None:
    """Of which some are sure, or all of a time."""
    _check_pushes(window, rows, data, asked, more)


def _check_pushes(
    window: Any, rows: Any, data: Any, asked: Any, more: dict[str, Any], *, distribution: bool = False
) -> None:
    chance = np.random.default_rng(len(rows))
    exist = np.where(chance.random(len(rows)) < 0.5, 1.0, chance.random(len(rows)) + 1e-9)
    exist[: data.draw(st.integers(0, len(rows)))] = 1.0
    columns = [
        range(len(rows)),
        np.cumsum([row[0] for row in rows]),
        [row[1] for row in rows],
        [row[2] for row in rows],
        exist.clip(max=1.0),
        chance.integers(0, 3, len(rows)) / 4.0,
    ]
    table = pa.table(dict(zip(SCHEMA.names, columns, strict=True)), schema=SCHEMA)
    call = _resolved(window, asked, distribution=distribution, **more)
    bucket, behind = AggregateBucket(call), AggregateBucket(call)
    found, begin = [call.answer_schema.empty_table()], 0
    while begin < len(table):
        end = begin + data.draw(st.integers(1, 3))
        bucket.admit([(0, call.encode(0, table.slice(begin, end - begin))[0])])
        found += bucket.advance()
        begin = end
        delta = bucket.delta()
        assert delta is not None
        behind.restore(delta[0])
        if data.draw(st.integers(0, 9)) == 0:
            logs = [bucket.snapshot(), behind.snapshot()]
            assert logs[0] == logs[1]
            bucket, behind = AggregateBucket(call), AggregateBucket(call)
            bucket.restore(logs[0])
            behind.restore(logs[1])
    bucket.admit([])
    found += bucket.advance(None, bucket.clock.now)
    whole = ap.window_aggregate(ap.Stream(table, **GIVEN | more), asked, window=window, distribution=distribution)
    assert _sorted(pa.concat_tables(found)).equals(_sorted(whole))


HELD = 50_000


def _rows(begin: int, n: int) -> pa.Table:
    at = np.arange(begin, begin + n)
    columns = {"id": at, "t": at.astype(float), "x": at % 7.0, "op": ["add"] * n, "g": at % (HELD // 10)}
    return pa.table(columns | {"e": 1.0 - at % 3 / 4.0, "s": np.full(n, 0.5)})


@pytest.mark.parametrize(
    "window", [ap.TimeWindow(HELD), ap.CountWindow(HELD), ap.TumblingWindow(f"{3 * HELD} seconds")]
)
@pytest.mark.parametrize("more", [{}, {"change": "op"}])
def test_a_push_goes_through_the_rows_that_it_brings(window: Any, more: dict[str, Any]) -> None:
    """And not through those that are held: half the pushes take less memory than a number of each of them would."""
    assert _peak(window, **more) < HELD


@pytest.mark.parametrize("window", [ap.TimeWindow(HELD), ap.CountWindow(HELD)])
@pytest.mark.parametrize(("asked", "more"), [(ASKED, {"distribution": True}), *UNSURE])
def test_a_push_of_unsure_rows_goes_through_those_that_it_brings(window: Any, asked: Any, more: dict[str, Any]) -> None:
    assert _peak(window, asked, **more) < HELD


@pytest.mark.parametrize("window", [ap.TimeWindow(HELD), ap.CountWindow(20), ap.TumblingWindow(20)])
@pytest.mark.parametrize("more", [{}, {"change": "op"}])
def test_a_push_goes_through_the_groups_that_it_is_about(window: Any, more: dict[str, Any]) -> None:
    assert _peak(window, partition_by="g", **more) < 4 * HELD


def _peak(window: Any, asked: Any = ASKED, *, distribution: bool = False, **more: Any) -> int:
    """Bytes of memory that half the pushes of ten rows take at most, where many are held."""
    call = ap.WindowAggregate(ap.Stream(None, **GIVEN | more), asked, window=window, distribution=distribution)
    call.push(_rows(0, HELD))
    peaks = []
    for push in range(9):
        rows = _rows(HELD + 10 * push, 10)
        tracemalloc.start()
        call.push(rows)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    return sorted(peaks)[4]
