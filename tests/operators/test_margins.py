"""Margins: what each row adds to the epsilon of its pairs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import appulse as ap
from appulse.jobs.sources import SourceTable
from appulse.operators.plan import BOUNDS
from tests.helpers import naive
from tests.helpers.strategies import ALTITUDES, MODELS, PLACES, Case, cases, pushes
from tests.spark.test_tiles import check_tiles

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


@given(st.data())
def test_tiles_answer_as_one_process_does(data: st.DataObject) -> None:
    """Reaches, and so tiles, have room for margins; restarts keep them."""
    case = data.draw(kinds(lateness=True, everywhere=True))
    check_tiles(data, case)


@settings(max_examples=30)
@given(st.integers(0, 1000), st.sampled_from(("euclidean", "manhattan", "chebyshev")), st.integers(2, 4), st.booleans())
def test_wide_margins_reach_into_all_corners(seed: int, metric: str, d: int, bounded: bool) -> None:
    """By Chebyshev's metric what is close to a row is a cube, whose corners are farther than its sides."""
    chance, n, names = np.random.default_rng(seed), 60, [*"wxyz"][:d]
    points, radius = chance.uniform(0.0, 10.0, (n, d)), chance.exponential(1.5, n)
    rows = pa.table({"id": np.arange(n), "ts": np.zeros(n), "hull": radius} | dict(zip(names, points.T, strict=True)))
    stream: ap.Stream[Any] = ap.Stream(rows, key="id", time="ts", value=ap.Exact(*names), margin="hull")
    options = ap.Options() if bounded else ap.Options(bounds=frozenset())
    found: Any = ap.self_join(stream, epsilon=0.5, probability=1, window=0, metric=metric, options=options)
    gap = np.abs(points[:, None] - points[None])
    apart = {"euclidean": np.linalg.norm(gap, axis=2), "manhattan": gap.sum(axis=2), "chebyshev": gap.max(axis=2)}
    near = np.triu(apart[metric] <= 0.5 + radius[:, None] + radius, 1)
    pairs = zip(found["left_key"].to_pylist(), found["right_key"].to_pylist(), strict=True)
    assert sorted(tuple(sorted(pair)) for pair in pairs) == [tuple(pair) for pair in np.argwhere(near).tolist()]


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


@pytest.mark.parametrize("sigma", [0.0, 40.0])
def test_on_the_earth_each_pair_of_tracks_has_an_epsilon_of_its_own(sigma: float) -> None:
    """As without margins for each pair alone, with that much more of epsilon; legs that are cut among them."""
    chance, n = np.random.default_rng(3), 4
    radius = dict(zip("abcdef", (0.0, 50.0, 200.0, 900.0, 0.0, 20.0), strict=True))
    rows = pa.Table.from_pylist(
        [
            {"id": name, "ts": 600.0 * step, "lat": 1.2 * step + y, "lon": 179.99 + x, "hull": radius[name]}
            for name in radius
            for step, (x, y) in enumerate(chance.normal(0.0, 0.008, (n, 2)).tolist())
        ]
    )
    value = ap.Position("lat", "lon", sigma=sigma)
    moving: dict[str, Any] = {"key": "id", "time": "ts", "value": value, "motion": ap.Straight("1 hour")}
    asked: dict[str, Any] = {"probability": 0.2, "emit": "legs"}
    found = ap.encounters(ap.Stream(rows, margin="hull", **moving), epsilon=100.0, **asked)
    expected = []
    for i, one in enumerate(radius):
        for other in list(radius)[i + 1 :]:
            both = rows.filter(pa.compute.is_in(rows["id"], pa.array([one, other])))
            within = 100.0 + radius[one] + radius[other]
            expected += ap.encounters(ap.Stream(both, **moving), epsilon=within, **asked).to_pylist()
    assert len(expected) > n
    assert sorted(map(str, found.to_pylist())) == sorted(map(str, expected))


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
        (lambda: ap.fence_events(stream(), pa.table({"query": [1], "region": ["POINT (0 0)"]})), "the call has none"),
        (lambda: ap.match_queries(stream(), pa.table({"query": [1], "condition": ["x > 0"]})), "the call has none"),
        (lambda: ap.window_aggregate(stream(), {"x": "sum"}, window=1), "the call has none"),
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
