"""Margins: what each row adds to the epsilon of its pairs."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import appulse as ap
from appulse.engines.join.local import LocalJoin
from appulse.jobs.sources import SourceTable
from appulse.operators.plan import BOUNDS
from tests.helpers import naive
from tests.helpers.fake_spark import FakeSpark
from tests.helpers.strategies import ALTITUDES, MODELS, PLACES, Case, cases, pushes
from tests.spark.test_tiles import call_of, plans, rows_of

if TYPE_CHECKING:
    from collections.abc import Callable

WINDOWS = ("time", "count", "delta", "tumble", "uncertain", "uncertain-delta")
EVERYTHING: tuple[dict[str, Any], ...] = (
    {"models": MODELS, "windows": WINDOWS},
    {"models": PLACES, "dimensions": (2,), "windows": WINDOWS[:-1]},
    {"models": ALTITUDES, "dimensions": (3,), "windows": WINDOWS[:-1], "most": 4},
)


def kinds(**settings: Any) -> Any:
    """Cases of planar values, and of places with and without altitude."""
    return st.sampled_from(EVERYTHING).flatmap(lambda kind: cases(**{**kind, **settings}, margins=True))


@settings(max_examples=70)
@given(kinds())
def test_answers_and_rejects_are_those_of_the_twin(case: Case) -> None:
    """Every model under every window; rows with bad margins are rejects."""
    result, expected = case.run(), case.expected()
    naive.assert_same_answers(result, expected.answers)
    naive.assert_same_rejects(ap.rejects(result), expected.rejects)


@settings(max_examples=20)
@given(kinds(bad=False))
def test_bounds_and_index_never_change_an_answer(case: Case) -> None:
    usual = naive.answers_of(case.run())
    for index in ("grid", "dense", "sorted"):
        naive.assert_same_answers(case.run(ap.Options(index=index)), usual)
    for bound in sorted(BOUNDS):
        naive.assert_same_answers(case.run(ap.Options(bounds=BOUNDS - {bound})), usual)
    naive.assert_same_answers(case.run(ap.Options(bounds=frozenset(), index="grid")), usual)


@settings(max_examples=30)
@given(st.data())
def test_pushed_by_hand_in_any_cut(data: st.DataObject) -> None:
    case = data.draw(kinds(lateness=True, windows=("time",)))
    answers, rejects = case.pushed(data.draw(pushes(case)))
    expected = case.expected()
    naive.assert_same_answers(pa.concat_tables(answers), expected.answers)
    naive.assert_same_rejects(rejects, expected.rejects)


@settings(max_examples=40)
@given(st.data())
def test_tiles_answer_as_one_process_does(data: st.DataObject) -> None:
    """Reaches, and so tiles, have room for margins; restarts keep them."""
    case = data.draw(kinds(lateness=True, everywhere=True))
    case = replace(case, emit=data.draw(st.sampled_from(("matches", "changes"))))
    call = call_of(case)
    spark = FakeSpark(call, data.draw(plans(case)), Random(data.draw(st.integers(0, 1 << 30))))
    local, expected, found = LocalJoin(call), [], []
    for push in data.draw(pushes(case)):
        expected.append(local.push(case.frames(push)))
        found += spark.batch(case.frames(push))[0]
    expected.append(local.drain())
    found += spark.end()[0]
    assert rows_of(found) == rows_of(expected)


@pytest.mark.parametrize("index", ["auto", "grid", "dense"])
def test_thousands_of_discs_that_touch(index: str) -> None:
    """Two discs touch where their centres are no farther apart than both radii."""
    chance, n = np.random.default_rng(5), 1500
    x, radius = chance.uniform(0.0, 100.0, (n, 2)), chance.exponential(0.6, n)
    radius[:3] = 30.0
    rows = pa.table({"id": np.arange(n), "ts": np.zeros(n), "x": x[:, 0], "y": x[:, 1], "hull": radius})
    stream = ap.Stream(rows, key="id", time="ts", value=ap.Exact("x", "y"), margin="hull")
    found = ap.self_join(stream, epsilon=0, probability=1, window=1, options=ap.Options(index=index))
    apart = np.linalg.norm(x[:, None] - x[None], axis=2)
    touching = np.triu(apart <= radius[:, None] + radius[None], 1)
    pairs = zip(found["left_key"].to_pylist(), found["right_key"].to_pylist(), strict=True)
    assert sorted(pairs) == sorted(zip(*(side.tolist() for side in np.nonzero(touching)), strict=True))


ROW = {"id": 1, "ts": 0.0, "x": 0.0, "y": 0.0, "hull": 0.5, "region": "POINT (0 0)", "condition": "x > 0"}


def stream(value: Any = None, **settings: Any) -> ap.Stream:
    rows = pa.Table.from_pylist([ROW, ROW | {"id": 2, "x": 2.0, "hull": 1.5}])
    return ap.Stream(rows, key="id", time="ts", value=value or ap.Exact("x", "y"), **{"margin": "hull"} | settings)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: stream(margin=-1.0), "at least 0"),
        (lambda: stream(margin=float("nan")), "at least 0"),
        (lambda: ap.nearest(stream(), stream(), epsilon=None, window=1), "epsilon=None sets no limit"),
        (lambda: ap.encounters(stream(motion=ap.Straight(5)), epsilon=1, probability=0.5), "no use in the call"),
        (lambda: ap.fence_events(stream(), pa.table({"query": [1], "region": ["POINT (0 0)"]})), "in the call"),
        (lambda: ap.match_queries(stream(), pa.table({"query": [1], "condition": ["x > 0"]})), "in the call"),
        (lambda: ap.window_aggregate(stream(), {"x": "sum"}, window=1), "no use in the call"),
        (lambda: ap.sensor_join(stream("x"), resolution=1, window=1), "not places"),
        (lambda: ap.self_join(stream(margin="name"), epsilon=1, probability=1, window=1), "no column 'name'"),
        (
            lambda: ap.self_join(
                stream(ap.Position("x", "y", altitude="hull")),
                epsilon={"horizontal": 1, "vertical": 1},
                probability=1,
                window=1,
            ),
            "added to one epsilon",
        ),
    ],
)
def test_where_margins_mean_nothing_they_are_errors(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(ap.BadArgument, match=message):
        call()


def test_a_job_file_has_margins() -> None:
    source = {"format": "parquet", "path": "p", "key": "id", "time": "ts", "value": "x"}
    assert SourceTable.model_validate(source | {"margin": "hull"}).stream(None, "s").margin == "hull"
    assert SourceTable.model_validate(source | {"margin": 2}).stream(None, "s").margin == 2.0
    with pytest.raises(ValueError, match="margin"):
        SourceTable.model_validate(source | {"margin": -2.0})


def test_margins_are_explained(capsys: pytest.CaptureFixture[str]) -> None:
    one, other = stream().frame.to_pylist()
    text = ap.explain_pair(one, other, left=stream(), epsilon=0.25, probability=0.5, window=1)
    assert "epsilon 0.25, with margins 0.5 and 1.5 it is 2.25" in text
    assert "an answer" in text.splitlines()[-1]
    assert capsys.readouterr().out.strip() == text
