"""The twin itself: examples worked by hand from the sentences of the contract (api.md, sections 2 and 3).

Rows are written as key, time and, after a colon, the attribute of a delta window: ``b1:5`` is row b at second 1 with
m = 5. All rows are at one place unless said otherwise, so that windows alone decide; ``bx`` is the pair of b and x.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from fractions import Fraction
from itertools import combinations
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import appulse as ap
from tests.helpers import naive, strategies

if TYPE_CHECKING:
    from hypothesis.strategies import DrawFn

STREAM = ap.Stream(None, key="id", time="ts", value=ap.Exact("x"))
GROUPED = replace(STREAM, partition_by=("g",))
DOUBTED = replace(STREAM, existence="m")
SAMPLED = replace(STREAM, value=ap.Samples("s", weights="w"))
QUESTION: dict[str, Any] = {"d": 1, "epsilon": 1.0, "probability": 1.0}
KINDS = ("time", "count", "delta", "tumble", "uncertain", "uncertain-delta")


def _rows(text: str, **columns: Any) -> list[dict[str, Any]]:
    rows = []
    for word in text.split():
        time, _, attribute = word[1:].partition(":")
        rows.append({"id": word[0], "ts": float(time), "m": float(attribute or 0), "x": 0.0, "g": 0} | columns)
    return rows


def _names(answers: list[naive.Answer]) -> str:
    return " ".join(sorted(answer.left_key + answer.right_key for answer in answers))


def _joined(window: Any, *tables: list[dict[str, Any]], stream: ap.Stream = STREAM) -> str:
    return _names(naive.join(tables, [stream] * len(tables), window=window, **QUESTION).answers)


def _changed(window: Any, *tables: list[dict[str, Any]], stream: ap.Stream = STREAM) -> str:
    """Every change as in ``+bx@2``: b and x enter at second 2."""
    found = naive.changes(tables, [stream] * len(tables), window=window, **QUESTION)
    found.sort(key=lambda change: (change.micros, change.change, _names([change.answer])))
    return " ".join(f"{'-+'[c.change > 0]}{_names([c.answer])}@{c.micros / 1e6:g}" for c in found)


# --- time windows -----------------------------------------------------------------------------------------------


def test_a_time_window_keeps_rows_at_most_that_much_older_than_the_tick() -> None:
    """Closed; 0 is the same tick; a stream may have its own."""
    assert _joined(ap.TimeWindow(2), _rows("a0"), _rows("x2 y2.5")) == "ax"
    assert _joined(ap.TimeWindow(0), _rows("a0 b1"), _rows("x1")) == "bx"
    assert _joined(ap.TimeWindow(1, per_stream={"left": "5 seconds"}), _rows("a0 b9"), _rows("x5 y7")) == "ax"


def test_under_a_time_window_a_pair_leaves_when_the_first_of_its_rows_expires() -> None:
    """At row time + window, the earlier of the two sides."""
    assert _changed(ap.TimeWindow(2), _rows("a0"), _rows("x1 y9")) == "+ax@1 -ax@2"
    assert _changed(ap.TimeWindow(5, per_stream={"right": 1}), _rows("a0"), _rows("x1 y9")) == "+ax@1 -ax@2"


def test_a_pair_still_holds_at_the_time_it_leaves() -> None:
    """So nothing leaves at the last tick of the call, which is that of all groups and streams."""
    assert _changed(ap.TimeWindow(2), _rows("a0"), _rows("x1 y2")) == "+ax@1 +ay@2"
    elsewhere = [*_rows("x1"), *_rows("y2.5", g=1)]
    assert _changed(ap.TimeWindow(2), _rows("a0"), elsewhere, stream=GROUPED) == "+ax@1 -ax@2"


# --- count windows ----------------------------------------------------------------------------------------------


def test_a_count_window_keeps_the_newest_rows_of_each_stream() -> None:
    """The newest included; rows of one stream push out none of another."""
    assert _joined(ap.CountWindow(2), _rows("a0 b1 c2"), _rows("x3")) == "bx cx"
    assert _joined(ap.CountWindow(1), _rows("a0"), _rows("x1 y2 z3")) == "ax ay az"


def test_a_row_pushed_out_by_its_own_tick_never_joins() -> None:
    """Not even rows of that tick; and ticks are taken in the order of time, not of the table."""
    assert _joined(ap.CountWindow(1), _rows("a0 b0"), _rows("x0")) == "bx"
    assert _joined(ap.CountWindow(1), _rows("b1 a0"), _rows("x1 y0")) == "ay bx"


def test_rows_of_one_time_are_numbered_by_key_then_by_values() -> None:
    """Text by its bytes; of two rows with one key the one farther right is the newer."""
    assert _joined(ap.CountWindow(2), _rows("z0 ä0 A0 b0"), _rows("x0")) == "zx äx"
    twins = [*_rows("a0", x=5.0), *_rows("a0", x=-5.0)]
    assert _joined(ap.CountWindow(1), twins, _rows("x0 y1", x=5.0)) == "ax ay"
    assert _joined(ap.CountWindow(1), twins, _rows("x0 y1", x=-5.0)) == ""


def test_groups_count_on_their_own() -> None:
    """And what happens in one ends nothing in another."""
    left, right = [*_rows("a0"), *_rows("b1", g=1)], [*_rows("x2"), *_rows("y3", g=1)]
    assert _joined(ap.CountWindow(1), left, right, stream=GROUPED) == "ax by"
    assert _changed(ap.CountWindow(1), left, right, stream=GROUPED) == "+ax@2 +by@3"


def test_under_a_count_window_a_pair_leaves_at_the_tick_that_pushed_a_row_out() -> None:
    """At the end of the call whatever is held stays."""
    assert _changed(ap.CountWindow(1), _rows("a0 b2"), _rows("x1")) == "+ax@1 -ax@2 +bx@2"


# --- delta windows ----------------------------------------------------------------------------------------------


def test_the_oldest_row_goes_while_it_lies_farther_than_the_bound_from_the_last() -> None:
    """In doubles: 1.1 - 0.6 is more than one half."""
    assert _joined(ap.DeltaWindow("m", 1), _rows("a0:0 b1:1"), _rows("x2")) == "ax bx"
    assert _joined(ap.DeltaWindow("m", 1), _rows("a0:0 b1:0.4 c2:1.4"), _rows("x3")) == "bx cx"
    assert _joined(ap.DeltaWindow("m", 0.5), _rows("a0:0.6 b1:1.1"), _rows("x2")) == "bx"


def test_once_gone_never_back_and_what_is_behind_a_near_row_stays() -> None:
    """A suffix: only the oldest row is looked at."""
    assert _joined(ap.DeltaWindow("m", 1), _rows("a0:0 b1:5 c2:0"), _rows("x3")) == "cx"
    assert _joined(ap.DeltaWindow("m", 1), _rows("a0:1 b1:2 c2:0.5"), _rows("x3")) == "ax bx cx"


def test_a_delta_window_looks_once_per_tick_after_its_rows_are_in() -> None:
    """At the last-numbered row alone, not at those on the way to it."""
    assert _joined(ap.DeltaWindow("m", 1), _rows("a0:0 c1:0 b1:9"), _rows("x2")) == "ax bx cx"
    assert _joined(ap.DeltaWindow("m", 1), _rows("a0:0 b1:0 c1:9"), _rows("x1")) == "cx"


def test_under_a_delta_window_a_pair_leaves_at_the_tick_that_pushed_a_row_out() -> None:
    """Each stream by its own rows: m of the other side does not matter."""
    assert _changed(ap.DeltaWindow("m", 1), _rows("a0:0 b2:9"), _rows("x1:99")) == "+ax@1 -ax@2 +bx@2"


@pytest.mark.parametrize("attribute", [None, strategies.NAN, strategies.INF])
def test_a_row_without_its_attribute_is_a_reject(attribute: float | None) -> None:
    """It is not numbered, so it pushes nothing out; other windows do not look."""
    left = [*_rows("a0"), *_rows("b1", m=attribute)]
    tables, streams = [left, _rows("x2")], [STREAM] * 2
    result = naive.join(tables, streams, window=ap.DeltaWindow("m", 1), **QUESTION)
    assert result.rejects == [naive.Reject("left", "b", 1.0, frozenset({"non-finite value"}))]
    assert _names(result.answers) == "ax"
    assert naive.join(tables, streams, window=ap.CountWindow(5), **QUESTION).rejects == []


# --- uncertain delta windows ------------------------------------------------------------------------------------


def _sampled(row: str, samples: list[float], weights: list[float]) -> dict[str, Any]:
    return _rows(row, s=samples, w=weights)[0]


def _standing(window: Any, rows: list[dict[str, Any]], stream: ap.Stream) -> str:
    """The rows held in the end: those that stand beside a row that came first."""
    first = [{**rows[0], "id": "x", "ts": -1.0}]
    streams = [stream, replace(stream, existence=None)]
    question: dict[str, Any] = {"d": 1, "epsilon": 100.0, "probability": 1e-6, "window": window}
    found = naive.standing([rows, first], streams, 1_000_000_000, **question)
    return " ".join(sorted(answer.left_key for answer in found))


def test_the_oldest_row_goes_while_it_probably_lies_farther_than_the_bound() -> None:
    """With at least the confidence; exactly the bound is no farther. Given that both exist: weights 1/4 are a half."""
    rows = [_sampled("a0", [0.0, 4.0], [0.25, 0.25]), _sampled("b1", [1.0, 6.0], [0.5, 0.5])]
    # Of the four pairs that of 0 and 1 alone, and with a bound of 2 that of 4 and 6, is near.
    for bound, confidence, held in ((1, 0.75, "b"), (1, 0.76, "a b"), (2, 0.5, "b"), (2, 0.51, "a b")):
        assert _standing(ap.DeltaWindow("s", bound, confidence), rows, SAMPLED) == held


def test_the_last_row_is_never_compared_with_itself() -> None:
    """However uncertain it is."""
    rows = [_sampled("a0", [0.0, 9.0], [0.5, 0.5])]
    assert _standing(ap.DeltaWindow("s", 1, 0.1), rows, SAMPLED) == "a"


def test_gaussians_are_compared_in_closed_form() -> None:
    """Their difference is normal: Pr(|N(1, 2)| > 1) = 0.5786; of no deviation it is as given."""
    stream = replace(STREAM, value=ap.Gaussian("x", sigma="m"))
    rows = [*_rows("a0:1"), *_rows("b1:1", x=1.0)]
    assert _standing(ap.DeltaWindow("x", 1, 0.578), rows, stream) == "b"
    assert _standing(ap.DeltaWindow("x", 1, 0.579), rows, stream) == "a b"
    rows = [*_rows("a0:0"), *_rows("b1:0", x=1.0), *_rows("c2:0", x=1.5)]
    assert _standing(ap.DeltaWindow("x", 1, 1.0), rows, stream) == "b c"


def test_dimensions_are_called_as_the_models_have_it() -> None:
    """Columns; of samples their names, else the column, numbered if there are several."""
    assert naive.dimension_names(ap.Gaussian("x", "y", sigma=1.0), 2) == ("x", "y")
    assert naive.dimension_names(ap.Samples("s", names=("u", "v")), 2) == ("u", "v")
    assert naive.dimension_names(ap.Samples("s"), 1) == ("s",)
    assert naive.dimension_names(ap.Samples("s"), 2) == ("s_1", "s_2")


@given(
    st.lists(strategies.attributes, min_size=1, max_size=6), st.sampled_from((0.0, 0.5, 1.0)), strategies.confidences
)
def test_numbers_that_are_known_make_an_ordinary_delta_window(values: list[float], bound: float, sure: float) -> None:
    """Whatever the confidence."""
    rows = [row for i, x in enumerate(values) for row in _rows(f"{'abcdef'[i]}{i}:{x}", x=x)]
    certain = _standing(ap.DeltaWindow("m", bound), rows, STREAM)
    assert _standing(ap.DeltaWindow("x", bound, sure), rows, STREAM) == certain


# --- uncertain count windows ------------------------------------------------------------------------------------


def _pairs(
    window: Any, *tables: list[dict[str, Any]], stream: ap.Stream = DOUBTED, **question: Any
) -> dict[str, float]:
    """The probability of each pair that has any."""
    question = {"d": 1, "epsilon": 1.0, "probability": 1e-6, "self_join": len(tables) == 1} | question
    found = naive.join(tables, [stream] * len(tables), window=window, **question)
    return {answer.left_key + answer.right_key: answer.probability for answer in found.answers}


def test_the_oldest_row_goes_while_enough_of_the_others_exist() -> None:
    """The windows of the paper, w = 2 and alpha = .9; the fifth has exactly .9."""
    arrivals = _rows("a1:1 b2:0.9 c3:0.5 d4:0.8 e5:1 f6:0.6 g7:0.7")
    held = ["a", "a b", "a b c", "a b c d", "c d e", "d e f", "d e f g"]
    for n, expected in enumerate(held, start=1):
        assert _standing(ap.UncertainCountWindow(2, 0.9), arrivals[:n], DOUBTED) == expected
    assert _standing(ap.UncertainCountWindow(2, 0.9, max_rows=3), arrivals, DOUBTED) == "e f g"


def test_without_doubt_only_certain_rows_count() -> None:
    """Confidence 1 knows no tolerance."""
    rows = _rows(f"a0:1 b1:{1 - 1e-12} c2:1 d3:1")
    assert _standing(ap.UncertainCountWindow(2, 1.0), rows[:3], DOUBTED) == "a b c"
    assert _standing(ap.UncertainCountWindow(2, 1.0), rows, DOUBTED) == "c d"


def test_the_rows_of_a_tick_go_in_before_any_goes() -> None:
    """In the order of their keys; what they push out never joins, and leaves at their tick."""
    window = ap.UncertainCountWindow(1, 0.9)
    assert _pairs(window, _rows("c0:1 b0:0.5 a0:1"), _rows("x0:1")) == {"cx": 1.0}
    question: dict[str, Any] = {"d": 1, "epsilon": 1.0, "probability": 0.5, "window": window}
    changes = naive.changes([_rows("a0:1 b2:0.5 c3:0.9"), _rows("x1:1")], [DOUBTED] * 2, **question)
    found = [(change.change, change.micros / 1e6, _names([change.answer])) for change in changes]
    assert found == [(1, 1.0, "ax"), (1, 2.0, "bx"), (1, 3.0, "cx"), (-1, 3.0, "ax"), (-1, 3.0, "bx")]


def test_a_pair_is_less_probable_by_the_rows_after_each() -> None:
    """The match of the paper: u meets four rows of an older stream, w = 2."""
    u = [_sampled("u9", [3.0, 5.0], [0.4, 0.4 + 0.1])]
    v = [
        _sampled("a1", [3.2, 9.0], [0.5, 0.5]),
        _sampled("b2", [4.9], [0.6]),
        _sampled("c3", [8.0], [0.9]),
        _sampled("d4", [3.1, 5.2], [0.3, 0.3]),
    ]
    found = _pairs(ap.UncertainCountWindow(2, 0.95), u, v, stream=SAMPLED, epsilon=0.5)
    assert found == pytest.approx({"ua": 0.0416, "ub": 0.138, "ud": 0.27}, abs=1e-15)


def test_both_sides_count_and_the_first_common_tick_decides() -> None:
    """What comes later makes a pair no less probable; a row of the same tick does."""
    window = ap.UncertainCountWindow(1, 0.99)
    assert _pairs(window, _rows("a0:0.5 b2:0.5"), _rows("x1:0.5 y2:0.5")) == pytest.approx(
        {"ax": 0.25, "ay": 0.125, "bx": 0.125, "by": 0.25}
    )


def test_in_a_self_join_the_partner_is_one_of_the_newer_rows() -> None:
    """At most w - 2 of the others: 1/8 where the product would say 3/16."""
    window = ap.UncertainCountWindow(2, 0.99)
    rows = [*_rows("a0:0.5"), *_rows("b1:0.5", x=5.0), *_rows("c2:0.5")]
    assert _pairs(window, rows) == pytest.approx({"ac": 1 / 8})
    far = [*_rows("a0:0.5"), *_rows("b1:0.5"), *_rows("c1:0.5 d1:0.5", x=9.0)]
    assert _pairs(window, far)["ab"] == pytest.approx(1 / 16)
    assert _pairs(ap.UncertainCountWindow(1, 0.99), far) == {}


@st.composite
def _small_streams(draw: DrawFn) -> list[list[dict[str, Any]]]:
    """One stream or two of few rows, with ties, each of one or two samples that are perhaps not there."""
    tables: list[list[dict[str, Any]]] = []
    for n in draw(st.sampled_from(((5,), (3, 3)))):
        rows = []
        for key in "abcde"[: draw(st.integers(1, n))]:
            samples = draw(st.lists(st.sampled_from((0.0, 1.0, 5.0)), min_size=1, max_size=2))
            weights = [draw(st.sampled_from((0.1, 0.2, 0.45, 0.5))) for _ in samples]
            rows.append(_sampled(f"{key}{draw(st.integers(0, 2))}", samples, weights))
        tables.append(rows)
    return tables


@given(_small_streams(), st.integers(1, 3), st.sampled_from((0.5, 0.9, 1.0)))
def test_a_pair_is_as_probable_as_its_possible_worlds(
    tables: list[list[dict[str, Any]]], size: int, confidence: float
) -> None:
    """To the last digit: existing, close, and each among the newest existing rows of its stream."""
    streams = [SAMPLED] * len(tables)
    rows, _ = naive.rows_of(tables, streams, 1)
    window = ap.UncertainCountWindow(size, confidence)
    for a, b, since, _, factor in naive.meetings(rows, naive.stream_names(streams), window, 9_000_000):
        if (a.stream == b.stream) is (len(tables) == 1):
            found = naive.samples_probability(a.value, b.value, 1.0) * factor
            assert found == naive.worlds_in_windows(rows, a, b, since, size, 1.0)


@given(_small_streams(), st.integers(1, 3))
def test_certain_rows_make_an_ordinary_count_window(tables: list[list[dict[str, Any]]], size: int) -> None:
    """Whatever the confidence."""
    streams = [replace(SAMPLED, value=ap.Samples("s"))] * len(tables)
    question: dict[str, Any] = {"d": 1, "epsilon": 1.0, "probability": 0.1, "self_join": len(tables) == 1}
    expected = naive.changes(tables, streams, window=ap.CountWindow(size), **question)
    for confidence in (0.5, 1.0):
        assert naive.changes(tables, streams, window=ap.UncertainCountWindow(size, confidence), **question) == expected


@given(strategies.cases(windows=("uncertain",), bad=False, most=6))
def test_rows_go_only_when_enough_of_the_newer_ones_exist(case: strategies.Case) -> None:
    """Eq. 4: at every tick the window is the shortest suffix that is sure enough."""
    window = replace(case.window, method="exact", max_rows=None)
    rows, _ = naive.rows_of(case.rows, case.streams, case.d)
    for side in {(row.stream, row.group) for row in rows}:
        own = sorted((row for row in rows if (row.stream, row.group) == side), key=lambda row: row.order)
        held = naive.Held(window, "any")
        for tick in sorted({row.micros for row in own}):
            held.insert([row for row in own if row.micros == tick], tick)
            come = [row for row in own if row.micros <= tick]
            sure = [_surely(come[i + 1 :], window) for i in range(len(come))]
            assert [row for _, row in held.rows] == come[sum(sure) :]


def _surely(rows: list[naive.Row], window: ap.UncertainCountWindow) -> bool:
    fewer = naive.at_most(window.size - 1, [row.value.mass for row in rows])
    return 1 - fewer >= (1 if window.confidence == 1.0 else Fraction(window.confidence) - naive.TOLERANCE)


# --- tumbling windows -------------------------------------------------------------------------------------------


def test_blocks_of_rows_begin_anew_when_they_are_full() -> None:
    """Each stream's own; rows of a block that its own tick filled up never join."""
    assert _joined(ap.TumblingWindow(2), _rows("a0 b1"), _rows("x2")) == "ax bx"
    assert _joined(ap.TumblingWindow(2), _rows("a0 b1 c2"), _rows("x3 y4 z5")) == "cx cy cz"
    assert _joined(ap.TumblingWindow(2), _rows("a0 b0 c0"), _rows("x0")) == "cx"
    assert _changed(ap.TumblingWindow(2), _rows("a0 b1 c2"), _rows("x1")) == "+ax@1 +bx@1 -ax@2 -bx@2 +cx@2"


def test_blocks_of_time_are_counted_from_the_epoch() -> None:
    """Before it too."""
    assert _joined(ap.TumblingWindow("2 seconds"), _rows("a1 b2"), _rows("x2 y3.5 z4")) == "bx by"
    assert _joined(ap.TumblingWindow("2 seconds"), _rows("a-2 b-1"), _rows("x-0.5 y0")) == "ax bx"


def test_a_block_of_time_ends_with_the_first_tick_of_its_group_beyond() -> None:
    """And stands while its group is silent."""
    assert _changed(ap.TumblingWindow("2 seconds"), _rows("a2"), _rows("x3 y9")) == "+ax@3 -ax@9"
    elsewhere = [*_rows("x3"), *_rows("y9", g=1)]
    assert _changed(ap.TumblingWindow("2 seconds"), _rows("a2"), elsewhere, stream=GROUPED) == "+ax@3"


# --- joins of a stream with itself, and what stands -------------------------------------------------------------


def test_a_self_join_pairs_the_rows_of_one_window() -> None:
    """Each two once, the earlier on the left."""
    pairs = naive.join([_rows("c2 a0 b1")], [STREAM], window=ap.CountWindow(2), self_join=True, **QUESTION)
    assert _names(pairs.answers) == "ab bc"


@pytest.mark.parametrize(
    ("window", "standing"),
    [(ap.CountWindow(1), ["", "ax", "bx"]), (ap.TimeWindow(1), ["", "ax", "bx"])],
)
def test_pairs_stand_until_they_leave(window: Any, standing: list[str]) -> None:
    """Under a time window at the very time they leave, too."""
    tables = [_rows("a0 b2"), _rows("x1")]
    for second, expected in enumerate(standing):
        found = naive.standing(tables, [STREAM] * 2, second * 1_000_000, window=window, **QUESTION)
        assert _names(found) == expected


@given(strategies.cases(windows=KINDS, bad=False, most=6))
def test_what_stands_is_what_entered_and_has_not_left(case: strategies.Case) -> None:
    """At every tick of the call; and whatever enters is an answer, once."""
    changes = case.expected_changes()
    entered = [change.answer for change in changes if change.change > 0]
    naive.assert_same_answers(entered, case.expected().answers)
    rows, _ = naive.rows_of(case.rows, case.streams, case.d)
    holds_on = isinstance(case.window, ap.TimeWindow)  # a pair leaves after the time of its change
    for tick in sorted({row.micros for row in rows}):
        count: Counter[Any] = Counter()
        for change in changes:
            if change.micros < tick + (change.change > 0 or not holds_on):
                count[change.answer.identity] += change.change
        assert +count == Counter(answer.identity for answer in case.expected_standing(tick))


@given(strategies.cases(most=6))
def test_time_windows_are_what_their_formula_says(case: strategies.Case) -> None:
    """The later row is at most the earlier row's window after it."""
    rows, _ = naive.rows_of(case.rows, case.streams, case.d)
    own = case.window.per_stream or {}
    lengths = [1e6 * own.get(name, case.window.length) for name in case.names]
    last = max((row.micros for row in rows), default=0)
    met = {frozenset(pair[:2]) for pair in naive.meetings(rows, case.names, case.window, last)}
    for a, b in combinations(rows, 2):
        first, second = sorted((a, b), key=lambda row: row.micros)
        near = second.micros - first.micros <= lengths[first.stream]
        assert (frozenset((a, b)) in met) is (near and a.group == b.group)


# --- comparing changes ------------------------------------------------------------------------------------------


def _table(changes: list[naive.Change], kind: pa.DataType) -> pa.Table:
    sides = [f"{side}_{what}" for side in ("left", "right") for what in ("stream", "key", "time")]
    names = [*sides, "distance", "probability"]
    columns = {name: [getattr(change.answer, name) for change in changes] for name in names}
    seconds = pa.array([change.micros / 1e6 for change in changes], pa.float64())
    columns["change"] = pa.array([change.change for change in changes], pa.int8())
    return pa.table(columns | {"time": seconds.cast(kind, safe=False)})


@given(st.data())
def test_changes_are_compared_by_sign_pair_and_time(data: st.DataObject) -> None:
    """In any order, as often; what their type cannot hold is floored."""
    tables, streams = [_rows("a0 b2 b2"), _rows("x1 y7")], [STREAM] * 2
    changes = naive.changes(tables, streams, window=ap.TimeWindow(2.5), **QUESTION)
    assert Counter(change.change for change in changes) == {1: 3, -1: 3}
    shuffled = data.draw(st.permutations(changes))
    for kind in (pa.float64(), pa.int64()):
        naive.assert_same_changes(_table(shuffled, kind), changes)
    one = shuffled[0]
    wrong = [
        replace(one, change=-one.change),
        replace(one, micros=one.micros + 1),
        replace(one, answer=one.answer.swapped),
    ]
    for others in ([], [one, one], *([other] for other in wrong)):
        with pytest.raises(AssertionError):
            naive.assert_same_changes(_table(others + shuffled[1:], pa.float64()), changes)
