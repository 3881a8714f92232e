"""Rows that are withdrawn from `nearest` and `outliers`: rows that leave later are answered without them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import appulse as ap
from appulse.engines.join.local import LocalJoin
from appulse.engines.join.nearest import NearestSettings, resolve_nearest
from appulse.engines.join.outliers import OutlierSettings, resolve_outliers
from tests.helpers import naive_withdrawals as twin
from tests.operators import test_nearest, test_outliers

if TYPE_CHECKING:
    from appulse.engines.join.call import JoinCall
    from tests.helpers.strategies import Case

Row = dict[str, Any]
KINDS = {"k": pa.int64(), "t": pa.int64(), "x": pa.float64(), "p": pa.float64(), "op": pa.string()}
SIDES = ("a", "b")
ASKED: dict[str, Any] = {"epsilon": 1.0, "window": 3}
CALLS: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "outliers": (ap.outliers, ap.Outliers, {"fewer_than": 2, "probability": 0.3}),
    "nearest": (ap.nearest, ap.Nearest, {"k": 2}),
    "left": (ap.nearest, ap.Nearest, {"k": 1, "how": "left"}),
    "likeliest": (ap.nearest, ap.Nearest, {"k": 1, "by": "probability"}),
}


def table(rows: list[Row], op: str) -> pa.Table:
    return pa.table({name: pa.array([{**row, "op": op}[name] for row in rows], kind) for name, kind in KINDS.items()})


def stream(name: str, frame: pa.Table | None = None, **more: Any) -> ap.Stream:
    return ap.Stream(frame, key="k", time="t", value="x", existence="p", name=name, **more)


def rows_of(found: pa.Table) -> list[tuple[Any, ...]]:
    """Numbers but for rounding."""
    rows = [tuple(row.values()) for row in found.to_pylist()]
    return sorted((tuple(round(v, 6) if isinstance(v, float) else v for v in row) for row in rows), key=str)


@st.composite
def stories(draw: st.DrawFn, sides: int, first: int = 0) -> list[dict[str, tuple[list[Row], list[Row]]]]:
    """Rows of some streams in order of time, some a push, and some of them withdrawn, with their push or later."""
    pushes = draw(st.integers(1, 5))
    story: list[dict[str, tuple[list[Row], list[Row]]]] = [
        {name: ([], []) for name in SIDES[:sides]} for _ in range(pushes + 3)
    ]
    t = first
    for k, push in enumerate(sorted(draw(st.lists(st.integers(0, pushes - 1), min_size=2, max_size=10)))):
        t += draw(st.integers(0, 2))
        name, x = draw(st.sampled_from(SIDES[:sides])), draw(st.sampled_from((0.0, 0.5, 1.0, 2.0)))
        # Some rows are alike in all that they hold.
        row = {"k": draw(st.sampled_from((k, 99))), "t": t, "x": x, "p": draw(st.sampled_from((1.0, 0.5)))}
        story[push][name][0].append(row)
        if draw(st.booleans()):
            story[push + draw(st.integers(0, 3))][name][1].append(row)
    return story


def frames_of(push: dict[str, tuple[list[Row], list[Row]]]) -> dict[str, pa.Table]:
    """A push of rows that are added, and rows that are withdrawn."""
    return {side: pa.concat_tables([table(own[0], "add"), table(own[1], "remove")]) for side, own in push.items()}


@settings(max_examples=80)
@given(st.sampled_from([*CALLS, "reference"]), st.integers(0, 3), st.data())
def test_rows_that_leave_are_answered_by_those_that_stand(name: str, lateness: int, data: st.DataObject) -> None:
    """The twin: after each push, of the rows that leave with it, a batch over the rows that stand."""
    call, by_hand, more = CALLS["outliers" if name == "reference" else name]
    sides = SIDES[: 1 if name == "outliers" else 2]
    story = data.draw(stories(len(sides)))
    engine = by_hand(*(stream(side, change="op", lateness=lateness) for side in sides), **ASKED, **more)
    stand: dict[str, list[Row]] = {side: [] for side in sides}
    newest, over = dict.fromkeys(sides, -1), -1
    for push in [*story, None]:
        if push is None:
            found, over_now = engine.drain(), 1 << 40
        else:
            found = engine.push(**frames_of(push))
            for side, (added, gone) in push.items():
                stand[side] += added
                newest[side] = max([newest[side], *(row["t"] for row in added)])
                for row in gone:
                    if row["t"] + 3 >= over:  # else it has left its window
                        stand[side].remove(row)
            over_now = max(over, min(newest.values()) - lateness)
        expected = call(*(stream(side, table(stand[side], "add")) for side in sides), **ASKED, **more)
        time = 1 if name in ("outliers", "reference") else 2
        assert rows_of(found) == [row for row in rows_of(expected) if over <= row[time] + 3 < over_now]
        over = over_now


@pytest.mark.parametrize("name", CALLS)
def test_a_call_on_tables_is_that_of_the_rows_that_stand(name: str) -> None:
    call, _, more = CALLS[name]
    rows = [{"k": k, "t": k, "x": float(k % 3), "p": 1.0} for k in range(9)]
    frame = pa.concat_tables([table(rows, "add"), table(rows[3:5], "remove")])
    stand = table(rows[:3] + rows[5:], "add")
    sides = SIDES[: 1 if name == "outliers" else 2]
    found = call(*(stream(side, frame, change="op") for side in sides), **ASKED, **more)
    assert rows_of(found) == rows_of(call(*(stream(side, stand) for side in sides), **ASKED, **more))


def call_of(name: str, case: Case, asked: dict[str, Any]) -> JoinCall:
    """The resolved call of a corrected case."""
    op = pa.array([], pa.string())
    schemas = [table.slice(0, 0).append_column("op", op).schema for table in case.tables]
    if name == "outliers":
        return resolve_outliers(twin.corrected(case), schemas, OutlierSettings(**asked), tiled=False)
    return resolve_nearest(twin.corrected(case), schemas, NearestSettings(**asked), whole=False)


BY_ROWS = ("count", "count", "delta", "tumble", "uncertain")


@given(st.sampled_from(("nearest", "outliers")), st.data())
def test_under_windows_of_rows_those_behind_move_up(name: str, data: st.DataObject) -> None:
    """The twin: tick by tick, what a row that leaves has met and was not withdrawn."""
    module = test_nearest if name == "nearest" else test_outliers
    case, asked = data.draw(module.questions(windows=BY_ROWS, lateness=True, bad=False, most=8))
    assume(isinstance(case.epsilon, float))
    steps = data.draw(twin.steps(case, share=1, sure=True))
    _check_by_rows(name, case, asked, steps)


@settings(max_examples=60)
@given(st.sampled_from((1, 2)), st.data())
def test_rows_of_a_window_are_withdrawn_one_by_one(fewer_than: int, data: st.DataObject) -> None:
    """Withdrawals of rows that windows hold, with rows before and after them."""
    case = data.draw(twin.small().filter(lambda case: not isinstance(case.window, ap.TimeWindow)))
    asked = {"epsilon": case.epsilon, "window": case.window, "fewer_than": fewer_than, "probability": 0.3}
    _check_by_rows("outliers", case, asked, data.draw(twin.one_by_one(case)))


def _check_by_rows(name: str, case: Case, asked: dict[str, Any], steps: list[twin.Step]) -> None:
    engine = LocalJoin(call_of(name, case, asked))
    tables = [*(engine.push(twin.frames(case, step)) for step in steps), engine.drain()]
    rows, meetings = twin.held(case, steps)
    if name == "nearest":
        expected = test_nearest.expected_of(rows, meetings, asked)
        assert test_nearest.reported(tables, case, asked["by"]) == expected
    else:
        assert test_outliers.reported(tables, case) == test_outliers.expected_of(rows, meetings, case, asked)
    assert engine.bucket.pairs is None or not len(engine.bucket.pairs)
