"""Metrics, groups of dimensions, and units of dimensions: joins equal to their twin."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import appulse as ap
from appulse.jobs.association import OutliersTable
from appulse.jobs.tables import JoinTable
from appulse.operators.plan import BOUNDS
from tests.helpers import naive, normal
from tests.helpers.strategies import Case, measured, pushes
from tests.spark.test_tiles import check_tiles

if TYPE_CHECKING:
    from collections.abc import Callable

WINDOWS = ("time", "count", "delta", "tumble", "uncertain", "uncertain-delta")
SAMPLED = ("exact", "samples", "weighted", "line", "ball")


@settings(max_examples=70)
@given(measured(models=("exact", "samples", "weighted", "line", "ball", "gaussian", "gaussians"), windows=WINDOWS))
def test_answers_and_rejects_are_those_of_the_twin(case: Case) -> None:
    """Every model but those with covariances, under every window."""
    result, expected = case.run(), case.expected()
    naive.assert_same_answers(result, expected.answers)
    naive.assert_same_rejects(ap.rejects(result), expected.rejects)


@settings(max_examples=25)
@given(measured(models=("covariance", "ellipse", "exact", "gaussian"), dimensions=(2, 2, 3), bad=False, most=3))
def test_normal_rows_of_any_covariance_are_those_of_the_twin(case: Case) -> None:
    """The twin integrates over one coordinate after the other."""
    naive.assert_same_answers(case.run(), case.expected().answers)


@settings(max_examples=25)
@given(measured(dimensions=(4, 5), models=("exact", "samples", "ball", "gaussian"), bad=False, most=4))
def test_more_than_three_dimensions(case: Case) -> None:
    naive.assert_same_answers(case.run(), case.expected().answers)
    naive.assert_same_answers(case.run(ap.Options(index="grid")), case.expected().answers)


@settings(max_examples=30)
@given(measured(models=(*SAMPLED, "gaussian", "gaussians"), margins=True, most=4))
def test_with_margins(case: Case) -> None:
    """Chebyshev's metric has one epsilon, to which margins add; groups of epsilons are no sum with them."""
    naive.assert_same_answers(case.run(), case.expected().answers)


@settings(max_examples=20)
@given(measured(bad=False, most=5))
def test_bounds_and_index_never_change_an_answer(case: Case) -> None:
    usual = naive.answers_of(case.run())
    for index in ("grid", "dense", "sorted"):
        naive.assert_same_answers(case.run(ap.Options(index=index)), usual)
    for bound in sorted(BOUNDS):
        naive.assert_same_answers(case.run(ap.Options(bounds=BOUNDS - {bound})), usual)
        naive.assert_same_answers(case.run(ap.Options(bounds=frozenset({bound}), index="grid")), usual)


@settings(max_examples=30)
@given(st.data())
def test_pushed_by_hand_in_any_cut(data: st.DataObject) -> None:
    case = data.draw(measured(models=SAMPLED, lateness=True))
    answers, rejects = case.pushed(data.draw(pushes(case)))
    expected = case.expected()
    naive.assert_same_answers(pa.concat_tables(answers), expected.answers)
    naive.assert_same_rejects(rejects, expected.rejects)


@given(st.data())
def test_tiles_answer_as_one_process_does(data: st.DataObject) -> None:
    case = data.draw(measured(windows=WINDOWS, lateness=True, everywhere=True))
    check_tiles(data, case)


# --- bounds that do not hold ------------------------------------------------------------------------------------------


def counts_of(points: list[list[list[float]]], **asked: Any) -> tuple[list[float], dict[str, int]]:
    """Probabilities of the pairs of a push of samples, and what decided the pairs."""
    rows = pa.table({"id": range(len(points)), "ts": [0.0] * len(points), "s": points})
    join = ap.SimilarityJoin(
        ap.Stream(None, key="id", time="ts", value=ap.Samples("s", names=("x", "y"))), window=1, **asked
    )
    found = join.push(rows)
    assert join._engine is not None
    return found["probability"].to_pylist(), dict(join._engine.operator.counts)


CORNERS = [[[0.0, 0.0]] * 2, [[0.9, 0.9], [0.8, 0.8]]]


def test_samples_within_a_circle_are_not_accepted_for_that() -> None:
    """Of a diamond: they lie within 1.3 of each other, and their differences add up to more."""
    assert counts_of(CORNERS, epsilon=1.3, probability=0.1)[1]["accepted"] == 1
    found, counts = counts_of(CORNERS, epsilon=1.3, probability=0.1, metric="manhattan")
    assert found == []
    assert counts["accepted"] == 0
    found, counts = counts_of(CORNERS, epsilon=2.5, probability=0.1, metric="manhattan")
    assert found == [1.0]
    assert counts["accepted"] == 1  # by a bound of its own


def test_the_corner_of_a_square_is_farther_than_epsilon() -> None:
    """What the index takes for out of reach by Euclid's distance has to be that of the corner."""
    found, counts = counts_of(CORNERS, epsilon=0.95, probability=0.9, metric="chebyshev")
    assert found == [1.0]
    assert math.hypot(0.9, 0.9) > 0.95
    assert counts["pruned_reach"] == 0


def test_a_group_of_its_own_decides() -> None:
    far = [[[0.0, 0.0]], [[3.0, 0.2]]]
    assert counts_of(far, epsilon={"x": 4.0, "y": 0.1}, probability=0.5)[0] == []
    assert counts_of(far, epsilon={"x": 4.0, "y": 0.3}, probability=0.5)[0] == [1.0]


# --- normal rows ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_normal_rows_are_integrated_to_a_billionth(seed: int) -> None:
    """Strongly correlated, nearly flat and far-off ones, against nested Gauss-Legendre rules."""
    chance = np.random.default_rng(seed)
    root = chance.normal(size=(3, 3)) * 10.0 ** chance.uniform(-1.5, 0.5, (1, 3))
    covariance, gap = root @ root.T, chance.normal(size=3)
    entries = covariance[np.triu_indices(3)].tolist()
    rows = pa.table({"id": [0, 1], "ts": [0.0, 0.0], **{n: [0.0, x] for n, x in zip("xyz", gap.tolist(), strict=True)}})
    left = ap.Stream(rows.slice(0, 1), key="id", time="ts", value=ap.Gaussian("x", "y", "z", covariance=entries))
    right = ap.Stream(rows.slice(1, 1), key="id", time="ts", value=ap.Exact("x", "y", "z"))
    cases: list[tuple[dict[str, Any], Any, str]] = [
        ({"epsilon": 1.5, "metric": "chebyshev"}, [((0,), 1.5), ((1,), 1.5), ((2,), 1.5)], "chebyshev"),
        ({"epsilon": {("x", "z"): 1.5, "y": 1.0}}, [((0, 2), 1.5), ((1,), 1.0)], "euclidean"),
    ]
    if seed < 2:
        cases.append(({"epsilon": 2.0, "metric": "manhattan"}, [((0, 1, 2), 2.0)], "manhattan"))
    for asked, groups, metric in cases:
        found: Any = ap.similarity_join(left, right, probability=1e-12, window=1, **asked)
        expected = normal.inside(gap.tolist(), covariance, groups, metric)
        probability = found["probability"].to_pylist() or [0.0]
        assert probability[0] == pytest.approx(expected, abs=2e-9)


# --- units ------------------------------------------------------------------------------------------------------------


def test_units_divide_what_is_measured_and_nothing_else() -> None:
    """Distances are in units; samples that match, filters and rejects are as they came."""
    rows = pa.table({"id": [0, 1, 2], "ts": [0.0] * 3, "s": [[[0.0, 0.0]], [[3.0, 0.5]], [[2.0, float("nan")]]]})
    stream = ap.Stream(rows, key="id", time="ts", value=ap.Samples("s", names=("metres", "celsius")))
    asked: Any = {"epsilon": 1.5, "probability": 0.5, "window": 1, "scale": {"metres": 3.0, "celsius": 0.5}}
    found: Any = ap.self_join(stream, values=True, **asked)
    assert found["distance"].to_pylist() == [math.sqrt(2.0)]
    assert found["pairs"].to_pylist() == [[{"left": [0.0, 0.0], "right": [3.0, 0.5], "weight": 1.0}]]
    assert "nan" in ap.rejects(found)["values"].to_pylist()[0]
    assert len(ap.self_join(ap.filter(stream, "metres < 2.5"), **asked)) == 0


# --- arguments --------------------------------------------------------------------------------------------------------


def stream(value: Any = None) -> ap.Stream:
    rows = pa.table(
        {"id": [1, 2], "ts": [0.0, 0.0], "x": [0.0, 2.0], "y": [0.0, 0.0], "z": [1.0, 1.0], "s": [[[0.0]]] * 2}
    )
    return ap.Stream(rows, key="id", time="ts", value=value or ap.Exact("x", "y", "z"))


def joined(value: Any = None, epsilon: Any = 1.0, **asked: Any) -> Any:
    return ap.self_join(stream(value), epsilon=epsilon, probability=0.5, window=1, **asked)


PLACE = ap.Position("x", "y")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: joined(metric="haversine"), "ap.Position"),
        (lambda: joined(metric="manhatan"), "Did you mean 'manhattan'"),
        (lambda: joined(PLACE, metric="manhattan"), "metres apart along the Earth"),
        (lambda: joined(PLACE, scale={"x": 2.0}), "scale= divides coordinates"),
        (lambda: joined(PLACE, {("x",): 1.0, "y": 2.0}), "'horizontal' and 'vertical'"),
        (lambda: joined(epsilon={"x": 1.0, "y": 1.0}), "leaves out 'z'"),
        (lambda: joined(epsilon={("x", "y"): 1.0, ("y", "z"): 1.0}), "'y' twice"),
        (lambda: joined(epsilon={("x", "y"): 1.0, "w": 1.0}), "'w', which is not a dimension"),
        (lambda: joined(epsilon={("x", "y", "z"): -1.0}), "epsilon"),
        (lambda: joined(epsilon={}), "epsilon"),
        (lambda: joined(epsilon={"horizontal": 1.0, "vertical": 1.0}), "needs altitudes"),
        (lambda: joined(scale={"w": 1.0}), "'w', which is not a dimension"),
        (lambda: joined(scale={"x": 0.0}), "scale"),
        (lambda: joined(ap.Samples("s"), scale={"x": 2.0}), "Name them"),
    ],
)
def test_what_makes_no_sense_is_an_error_at_the_call(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(ap.BadArgument, match=message):
        call()


def test_rows_that_move_are_measured_by_no_metric_yet() -> None:
    moving = replace(stream(), motion=ap.Straight(5))
    with pytest.raises(ap.NotBuilt, match="metric='manhattan' is not built"):
        ap.self_join(moving, epsilon=1, probability=0.5, window=1, metric="manhattan")


def test_samples_need_no_names_for_a_metric() -> None:
    rows = pa.table({"id": [1, 2], "ts": [0.0, 0.0], "s": [[[0.0, 0.0]], [[0.9, 0.9]]]})
    samples = ap.Stream(rows, key="id", time="ts", value=ap.Samples("s"))
    found: Any = ap.self_join(samples, epsilon=1.0, probability=0.5, window=1, metric="chebyshev")
    assert found["distance"].to_pylist() == [0.9]
    assert len(ap.self_join(samples, epsilon={"s_1": 1.0, "s_2": 0.5}, probability=0.5, window=1)) == 0


def test_a_job_file_has_them() -> None:
    asked = {"window": 1, "probability": 0.5, "metric": "chebyshev", "scale": {"x": 2.0}}
    table = JoinTable.model_validate(asked | {"epsilon": {"x, y": 50.0, "z": 10.0}})
    groups = {("x", "y"): 50.0, "z": 10.0}
    settings = table.settings()
    assert settings["epsilon"] == groups
    assert (settings["metric"], settings["scale"]) == ("chebyshev", {"x": 2.0})
    few = {"window": 1, "probability": 0.5, "fewer_than": 2, "epsilon": {"x, y": 50.0, "z": 10.0}}
    assert OutliersTable.model_validate(few).settings()["epsilon"] == groups
    for wrong in ({"metric": "haversine"}, {"metric": "angle"}, {"scale": {"x": 0.0}}, {"epsilon": {"x": -1.0}}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            JoinTable.model_validate(asked | {"epsilon": 1.0} | wrong)


def test_a_pair_is_explained_group_by_group(capsys: pytest.CaptureFixture[str]) -> None:
    one, other = stream().frame.to_pylist()
    text = ap.explain_pair(
        one, other, left=stream(), epsilon={("x", "y"): 1.5, "z": 1.0}, probability=0.5, window=1, scale={"x": 2.0}
    )
    assert "x, y: 1 apart, epsilon 1.5" in text
    assert "z: 0 apart, epsilon 1" in text
    assert "an answer" in text.splitlines()[-1]
    text = ap.explain_pair(one, other, left=stream(), epsilon=1.5, probability=0.5, window=1, metric="manhattan")
    assert "x, y, z: 2 apart, epsilon 1.5" in text
    assert "no answer" in text.splitlines()[-1]
    assert capsys.readouterr().out
    leaning = stream(ap.Gaussian("x", "y", "z", covariance=(0.5, 0.1, 0.0, 0.5, 0.0, 0.01)))
    asked: dict[str, Any] = {"epsilon": {("x", "y"): 9.0, "z": 1.0}, "probability": 0.5, "window": 1}
    text = ap.explain_pair(one, other | {"z": 2.1}, left=leaning, **asked)
    assert "along each: x, y at most 1, z at most 0.23975; z decides" in text
    assert "probability: 0.239750" in text
