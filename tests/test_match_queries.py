"""Continuous queries in process: answers are those of the slow twin, however rows and queries come."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

import appulse as ap
from tests import naive_queries, query_strategies


@settings(max_examples=200)
@given(st.data())
def test_rows_match_the_queries_of_the_slow_twin(data: st.DataObject) -> None:
    """Any condition over any columns, certain rows and uncertain ones."""
    case = data.draw(query_strategies.selections())
    found = ap.match_queries(*case.framed(), case.query_table, probability=case.probability)
    naive_queries.assert_same(found, case.expected())


@settings(max_examples=100)
@given(st.data())
def test_a_set_that_changes_answers_push_by_push(data: st.DataObject) -> None:
    """Queries come and go between pushes, and see all rows of the push that brings them."""
    case = data.draw(query_strategies.selections())
    changing = data.draw(query_strategies.changing(case))
    join = ap.QueryMatch(case.streams[0], probability=case.probability)
    join.change(case.query_table)
    for i, (push, expected) in enumerate(zip(changing.cut, case.expected_pushes(changing), strict=True)):
        if changing.changes[i]:
            join.change(changing.change_table(i))
        name = case.streams[0].name or "stream"
        frames = case.frames(push)
        naive_queries.assert_same(join.push(frames.get(name, next(iter(frames.values())))), expected)


@settings(max_examples=200)
@given(st.data())
def test_window_joins_match_the_queries_of_the_slow_twin(data: st.DataObject) -> None:
    """Two to four streams, a window per query in time or in rows, certain rows and uncertain ones."""
    case = data.draw(query_strategies.joins(arity=(2, 3, 4)))
    found = ap.match_queries(*case.framed(), case.query_table, probability=case.probability, window=case.window)
    naive_queries.assert_same(found, case.expected())
