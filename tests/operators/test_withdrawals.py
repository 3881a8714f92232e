"""Rows that are withdrawn: whatever comes when, the pairs are those of the twin."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import appulse as ap
from appulse.errors import BadArgument, BadInput
from tests.helpers import hands, naive, strategies
from tests.helpers import naive_withdrawals as twin

WINDOWS = ("time", "count", "delta", "tumble", "uncertain", "uncertain-delta")


def _by_hand(case: strategies.Case, emit: str) -> Any:
    named = dict(zip(case.names, twin.corrected(case), strict=True))
    return hands.similarity_join(**replace(case, emit=emit).settings, **named)


def _check(case: strategies.Case, steps: list[twin.Step], *, bare: bool) -> None:
    expected = twin.changes(case, steps)
    entering = [change.answer for change in expected if change.change > 0]
    for emit in ("matches", "changes"):
        join = _by_hand(case, emit)
        found = [join.push(**twin.frames(case, step, bare=bare)) for step in steps]
        found.append(join.drain())
        answers = pa.concat_tables(found)
        if emit == "matches":
            naive.assert_same_answers(answers, entering)
        else:
            naive.assert_same_changes(answers, expected)


@settings(max_examples=50)
@given(st.data())
def test_pairs_are_those_of_the_twin(data: st.DataObject) -> None:
    """Withdrawals before their row, with it and after it, by key and time or by values, under every window."""
    case = data.draw(strategies.cases(windows=WINDOWS, lateness=True, bad=False, most=8))
    _check(case, data.draw(twin.steps(case)), bare=data.draw(st.booleans()))


@settings(max_examples=80)
@given(st.data())
def test_rows_behind_a_withdrawn_one_move_up(data: st.DataObject) -> None:
    """Withdrawals of rows that windows hold, with rows before and after them."""
    case = data.draw(twin.small())
    steps = data.draw(twin.one_by_one(case))
    _check(case, steps, bare=data.draw(st.booleans()))


# --- single cases -------------------------------------------------------------------------------------------------


def _rows(*rows: tuple[Any, Any, Any, Any]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) or [(), (), (), ()]
    kinds = (pa.int64(), pa.int64(), pa.float64(), pa.string())
    names = ("k", "t", "x", "op")
    return pa.table({name: pa.array(own, kind) for name, own, kind in zip(names, columns, kinds, strict=True)})


def _self_join(table: pa.Table | None = None, **settings: Any) -> Any:
    stream = ap.Stream(table, key="k", time="t", value="x", change="op", lateness=settings.pop("lateness", 5))
    asked = {"epsilon": 1.0, "probability": 0.5, "window": 10} | settings
    return ap.SimilarityJoin(stream, **asked) if table is None else ap.self_join(stream, **asked)


def _pairs(table: pa.Table) -> list[tuple[int, int]]:
    return sorted(zip(table["left_key"].to_pylist(), table["right_key"].to_pylist(), strict=True))


def test_a_call_on_tables_is_the_join_of_the_rows_that_stand() -> None:
    table = _rows((1, 1, 0.0, "add"), (2, 1, 0.0, "add"), (3, 2, 0.0, "add"), (2, 1, None, "remove"))
    found = _self_join(table)
    assert _pairs(found) == [(1, 3)]
    assert len(ap.rejects(found)) == 0


@pytest.mark.parametrize(
    ("added", "removed"), [("insert", "delete"), ("update_postimage", "update_preimage"), ("c", "d")]
)
def test_words_of_delta_and_debezium(added: str, removed: str) -> None:
    table = _rows((1, 1, 0.0, added), (2, 1, 0.0, added.upper()), (3, 2, 0.0, added), (2, 1, 0.0, removed))
    assert _pairs(_self_join(table)) == [(1, 3)]


def test_an_update_of_debezium_takes_the_place_of_its_row() -> None:
    join = _self_join()
    join.push(_rows((1, 1, 0.0, "c"), (2, 1, 0.5, "r")))
    join.push(_rows((2, 1, 7.0, "u"), (3, 2, 7.5, "c")))
    assert _pairs(join.current()) == [(2, 3)]
    # In one push, too: what an update withdraws is not the row that it brings.
    assert _pairs(_self_join(_rows((1, 1, 7.0, "c"), (2, 1, 0.0, "c"), (2, 1, 7.0, "u")))) == [(1, 2)]
    assert len(join.rejects()) == 0


@pytest.mark.parametrize("word", ["drop", "", None])
def test_a_word_that_is_not_known_is_a_reject(word: str | None) -> None:
    found = _self_join(_rows((1, 1, 0.0, "add"), (2, 1, 0.0, word), (3, 1, 0.0, "add")))
    assert _pairs(found) == [(1, 3)]
    (reject,) = ap.rejects(found).to_pylist()
    assert (reject["key"], reject["reason"]) == (2, "bad change")


def test_the_values_say_which_of_several_rows_is_meant() -> None:
    """Two rows of one key and time: the one with the values goes, else the last in canonical order."""
    both = (1, 1, 0.0, "add"), (1, 1, 5.0, "add")
    near = (2, 2, 0.0, "add"), (3, 2, 5.0, "add")
    assert _pairs(_self_join(_rows(*both, *near, (1, 1, 0.0, "remove")))) == [(1, 3)]
    assert _pairs(_self_join(_rows(*both, *near, (1, 1, 5.0, "remove")))) == [(1, 2)]
    assert _pairs(_self_join(_rows(*both, *near, (1, 1, None, "remove")))) == [(1, 2)]


def test_a_correction_in_one_push_withdraws_the_row_that_was_there() -> None:
    join = _self_join()
    join.push(_rows((1, 1, 9.0, "add"), (2, 1, 0.0, "add")))
    assert _pairs(join.push(_rows((1, 1, None, "remove"), (1, 1, 0.0, "add")))) == [(1, 2)]


def test_a_correction_withdraws_the_row_of_before_though_its_tick_waits() -> None:
    join = _self_join(window=ap.CountWindow(5))
    join.push(_rows((1, 1, 0.0, "add"), (2, 1, 0.0, "add")))
    join.push(_rows((1, 1, None, "remove"), (1, 1, 9.0, "add")))
    assert len(join.drain()) == 0


def test_a_withdrawal_waits_for_its_row_within_the_lateness() -> None:
    join = _self_join()
    join.push(_rows((1, 10, 0.0, "add"), (2, 8, None, "remove"), (9, 8, None, "remove")))
    assert len(join.push(_rows((2, 8, 0.0, "add"), (3, 9, 0.0, "add")))) == 1
    assert len(join.rejects()) == 0
    join.push(_rows((4, 30, 0.0, "add")))
    (reject,) = join.rejects().to_pylist()
    assert (reject["key"], reject["time"], reject["reason"]) == (9, 8, "no such row")


def test_rows_that_have_left_are_withdrawn_in_vain() -> None:
    join = _self_join()
    join.push(_rows((1, 1, 0.0, "add")))
    join.push(_rows((2, 40, 0.0, "add")))
    join.push(_rows((1, 1, None, "remove"), (7, 31, None, "remove")))
    assert [row["key"] for row in join.rejects().to_pylist()] == [7]  # it would still be held


def test_withdrawals_are_never_late_and_move_no_frontier() -> None:
    join = _self_join(lateness=0, emit="changes")
    join.push(_rows((1, 1, 0.0, "add"), (2, 5, 0.0, "add")))
    left = join.push(_rows((1, 1, None, "remove"), (3, 900, None, "remove")))
    assert [(row["left_key"], row["change"]) for row in left.to_pylist()] == [(1, -1)]
    assert _pairs(join.push(_rows((4, 6, 0.0, "add")))) == [(2, 4)]
    assert len(join.rejects()) == 0


def test_a_count_window_does_not_take_back_what_it_pushed_out() -> None:
    join = _self_join(window=ap.CountWindow(2), lateness=0)
    join.push(_rows((1, 1, 0.0, "add"), (2, 2, 0.0, "add"), (3, 3, 0.0, "add"), (4, 4, 0.0, "add")))
    join.push(_rows((3, 3, None, "remove")))  # windows hold 2 and 3, and 4 waits
    assert _pairs(join.drain()) == [(2, 4)]


def test_rows_that_a_filter_leaves_out_are_withdrawn_in_vain() -> None:
    table = _rows((1, 1, 0.0, "add"), (2, 1, 5.0, "add"), (3, 1, 0.0, "add"), (2, 1, 5.0, "remove"))
    stream = ap.filter(ap.Stream(table, key="k", time="t", value="x", change="op"), "x < 3")
    found = ap.self_join(stream, epsilon=1.0, probability=0.5, window=10)
    assert _pairs(found) == [(1, 3)]
    assert len(ap.rejects(found)) == 0


def test_withdrawals_with_null_keys_are_rejects_and_rejects_may_fail() -> None:
    table = _rows((1, 1, 0.0, "add"), (None, 1, 0.0, "remove"), (1, None, 0.0, "remove"))
    assert [row["reason"] for row in ap.rejects(_self_join(table)).to_pylist()] == ["null key", "null time"]
    with pytest.raises(BadInput):
        _self_join(_rows((1, 1, 0.0, "add"), (5, 1, 0.0, "remove")), on_reject="fail")


def test_a_column_of_changes_has_to_be_text() -> None:
    table = _rows((1, 1, 0.0, "add"))
    with pytest.raises(BadArgument, match="not text"):
        _self_join(table.set_column(3, "op", pa.array([1])))
