"""Errors of any covariance: what arguments they take, what they reject, and how a pair of them is explained."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import appulse as ap
from appulse.jobs.sources import GaussianTable, PositionTable
from appulse.model.covariance import _extremes, moved, of_ellipses
from appulse.model.meaning import of_model
from tests.helpers import geodesics

if TYPE_CHECKING:
    from collections.abc import Callable


def joined(rows: list[dict[str, Any]], value: Any, epsilon: float = 1.0, **settings: Any) -> Any:
    stream = ap.Stream(pa.Table.from_pylist(rows), key="id", time="at", value=value)
    return ap.self_join(stream, epsilon=epsilon, probability=1e-9, window=1, **settings)


HERE: dict[str, Any] = {
    "id": 1,
    "at": 0,
    "x": 0.0,
    "y": 0.0,
    "a": 2.0,
    "b": 0.5,
    "angle": 90.0,
    "xx": 4.0,
    "xy": 0.0,
    "yy": 0.25,
}
THERE = HERE | {"id": 2, "x": 2.0}


NUMBERS = st.one_of(st.sampled_from([0.0, 1.0, -2.0, 1e150, 1e-150]), st.floats(-1e3, 1e3))


@given(st.lists(st.tuples(NUMBERS, NUMBERS, NUMBERS), min_size=1, max_size=8))
def test_two_dimensions_have_the_eigenvalues_of_a_solver(rows: list[tuple[float, float, float]]) -> None:
    triangles = np.array(rows)
    expected = np.linalg.eigvalsh(triangles[:, [0, 1, 1, 2]].reshape(-1, 2, 2))
    found = np.column_stack(_extremes(triangles, 2))
    size = np.abs(triangles).max(axis=1, keepdims=True)
    assert (np.abs(found - expected) <= 1e-14 * size).all()


def test_an_ellipse_is_its_covariance() -> None:
    """At 90 degrees from the second dimension the first semi-axis lies along the first one."""
    expected = joined([HERE, THERE], ap.Gaussian("x", "y", covariance=("xx", "xy", "yy")))
    (probability,) = expected["probability"].to_pylist()
    for value in (
        ap.Gaussian("x", "y", ellipse=("a", "b", "angle")),
        ap.Gaussian("x", "y", ellipse=("b", "a", 0.0)),
        ap.Gaussian("x", "y", sigma=("a", 0.5)),
        ap.Gaussian("x", "y", covariance=(4.0, 0.0, 0.25)),
    ):
        assert joined([HERE, THERE], value)["probability"].to_pylist() == [pytest.approx(probability, abs=1e-12)]
    across = joined([HERE, THERE], ap.Gaussian("x", "y", ellipse=("a", "b", 0.0)))
    assert across["probability"].to_pylist()[0] < 0.9 * probability


def test_exact_rows_meet_normal_ones_in_closed_form() -> None:
    """A point and a Gaussian: the integral, not 64 points."""
    exact = ap.Stream(pa.Table.from_pylist([HERE]), key="id", time="at", value=ap.Exact("x", "y"))
    normal = ap.Stream(pa.Table.from_pylist([THERE]), key="id", time="at", value=ap.Gaussian("x", "y", sigma=1))
    found = ap.similarity_join(exact, normal, epsilon=1.5, probability=0.01, window=1)
    from scipy.stats import ncx2

    assert found["probability"].to_pylist() == [pytest.approx(ncx2.cdf(2.25, 2, 4.0), abs=1e-12)]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: ap.Gaussian("x", "y"), "got no error"),
        (lambda: ap.Gaussian("x", "y", sigma=1, ellipse=(1, 1, 0)), "got sigma and ellipse"),
        (
            lambda: ap.Gaussian("x", "y", covariance=("xx", "yy")),
            "2 columns and 2 entries.*the 3 of its",
        ),
        (lambda: ap.Gaussian("x", ellipse=(1, 1, 0)), "two dimensions, and this has 1"),
        (lambda: ap.Gaussian("x", "y", ellipse=(1, 1)), "has 2 entries"),
        (lambda: ap.Gaussian("x", "y", ellipse=(1, -1, 0)), "negative axis"),
        (lambda: ap.Gaussian("x", "y", sigma=(1, 2, 3)), "2 columns and 3 sigmas"),
        (lambda: ap.Position("x", "y", sigma=1, ellipse=(1, 1, 0)), "sigma and ellipse"),
        (lambda: ap.Position("x", "y", ellipse=(1, 2e5, 0)), "above 100000 metres"),
    ],
)
def test_errors_that_make_no_sense_are_errors(make: Callable[[], Any], words: str) -> None:
    with pytest.raises(ap.BadArgument, match=words):
        make()


def test_rows_whose_error_is_none_are_rejects() -> None:
    rows: list[dict[str, Any]] = [
        HERE,
        HERE | {"xy": 3.0},
        HERE | {"yy": -1.0},
        HERE | {"xx": None},
        HERE | {"xy": 1.0 + 1e-12, "yy": 0.25},
    ]
    rejects = ap.rejects(joined(rows, ap.Gaussian("x", "y", covariance=("xx", "xy", "yy"))))
    assert rejects["reason"].to_pylist() == ["not a covariance", "not a covariance", "non-finite value"]
    assert "[4.0, 3.0, 0.25]" in rejects["detail"][0].as_py()
    rows = [HERE | {"b": -1.0}, HERE | {"angle": math.inf}, HERE]
    rejects = ap.rejects(joined(rows, ap.Gaussian("x", "y", ellipse=("a", "b", "angle"))))
    assert rejects["reason"].to_pylist() == ["negative sigma or radius", "non-finite value"]


def test_points_of_a_distribution_follow_its_covariance() -> None:
    """Where conditions or models without a closed form ask for points; also where the covariance has no full rank."""
    chance = np.random.default_rng(0)
    points = chance.normal(size=(20_000, 3))
    root = np.array([[1.0, 0.0, 0.0], [2.0, 0.0, 0.0], [-1.0, 0.5, 0.3]])
    covariance = root @ root.T
    found = moved(points, covariance[np.triu_indices(3)][None, :])[0]
    assert np.cov(found.T) == pytest.approx(covariance, abs=0.15)
    assert of_ellipses(np.array([[2.0, 0.5, 90.0]]))[0] == pytest.approx([4.0, 0.0, 0.25], abs=1e-15)
    queries = pa.table({"query": [0], "condition": ["x > 1.0"]})
    stream = ap.Stream(pa.Table.from_pylist([HERE]), key="id", time="at", value=ap.Gaussian("x", "y", sigma=(2, 0.5)))
    turned = ap.Stream(
        pa.Table.from_pylist([HERE]), key="id", time="at", value=ap.Gaussian("x", "y", ellipse=("a", "b", "angle"))
    )
    first, second = (
        ap.match_queries(s, queries, probability=0.01)["probability"].to_pylist() for s in (stream, turned)
    )
    assert first == pytest.approx([0.5 * math.erfc(0.5 / math.sqrt(2.0))], abs=1e-12)
    assert second == pytest.approx(first, abs=1 / 64)


def test_an_ellipse_on_the_earth_keeps_its_angle_to_the_geodesic() -> None:
    """200 km apart at 70 degrees north, where meridians converge: covariances turn with the azimuths of pyproj."""
    pytest.importorskip("pyproj")
    one = {"id": 1, "at": 0, "lat": 70.0, "lon": 10.0, "a": 40_000.0, "b": 3_000.0, "angle": 70.0}
    other = one | {"id": 2, "lat": 70.5, "lon": 15.0, "angle": 150.0}
    value = ap.Position("lat", "lon", ellipse=("a", "b", "angle"))
    (found,) = joined([one, other], value, epsilon=190_000.0)["probability"].to_pylist()
    chance = np.random.default_rng(5)
    leaves, back, metres = geodesics.geod("wgs84").inv(10.0, 70.0, 15.0, 70.5)
    gap = np.zeros((1_000_000, 2))
    gap[:, 0] = metres
    for azimuth, own, sign in ((leaves, one, -1.0), (back + 180.0, other, 1.0)):
        along = chance.normal(size=len(gap)) * own["a"]
        across = chance.normal(size=len(gap)) * own["b"]
        turn = math.radians(own["angle"] - azimuth)
        gap[:, 0] += sign * (along * math.cos(turn) + across * math.sin(turn))
        gap[:, 1] += sign * (along * math.sin(turn) - across * math.cos(turn))
    assert found == pytest.approx(float((np.linalg.norm(gap, axis=1) <= 190_000.0).mean()), abs=2e-3)


def test_a_pair_of_ellipses_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    stream = ap.Stream(None, key="id", time="at", value=ap.Gaussian("x", "y", ellipse=("a", "b", "angle")))
    text = ap.explain_pair(HERE, THERE, left=stream, epsilon=1.0, probability=0.1)
    assert "half-space (deviation 2.82843): at most" in text
    assert "ellipse of the difference: semi-axes 2.82843 and 0.707107, the first at 0 degrees to the line" in text
    assert "along its axes: at most first" in text
    row = {"id": 1, "at": 0, "lat": 50.0, "lon": 10.0, "a": 200.0, "b": 50.0, "angle": 30.0}
    place = ap.Stream(None, key="id", time="at", value=ap.Position("lat", "lon", ellipse=("a", "b", "angle")))
    text = ap.explain_pair(row, row | {"lat": 50.001, "id": 2}, left=place, epsilon=100.0, probability=0.1)
    assert "ellipse 200 by 50 at 30 degrees metres" in text
    assert "semi-axes 282.843 and 70.7107, the first at 30 degrees to the line of centres" in text
    capsys.readouterr()


def test_meanings_and_job_files_have_the_error_as_it_was_given() -> None:
    value = ap.Gaussian("x", "y", covariance=("xx", 0.0, "yy"))
    assert of_model(value) == {"kind": "Gaussian", "columns": ["x", "y"], "covariance": ["xx", 0.0, "yy"]}
    assert of_model(ap.Gaussian("x", "y", ellipse=(2, 1, "angle")))["ellipse"] == [2.0, 1.0, "angle"]
    assert of_model(ap.Gaussian("x", "y", sigma=(2, 1)))["sigmas"] == [2.0, 1.0]
    assert of_model(ap.Gaussian("a", "b", "c", "d", sigma=(1, 2, 3, 4)))["sigma"] == [1.0, 2.0, 3.0, 4.0]
    table = GaussianTable.model_validate({"model": "Gaussian", "columns": ["x", "y"], "covariance": ["xx", 0.0, "yy"]})
    assert table.build() == value
    place = PositionTable.model_validate({"model": "Position", "lat": "a", "lon": "b", "ellipse": ["x", "y", 30.0]})
    assert place.build() == ap.Position("a", "b", ellipse=("x", "y", 30.0))


def test_likelihood_ratios_are_those_of_scipy() -> None:
    """The density of the difference under the sum of the errors, over that of unrelated rows."""
    from scipy.stats import multivariate_normal

    chance = np.random.default_rng(2)
    n, d = 12, 3
    roots = chance.normal(size=(2 * n, d, d))
    whole = roots @ roots.transpose(0, 2, 1)
    rows = pa.table(
        {"k": np.arange(2 * n), "t": np.zeros(2 * n)}
        | {f"x{i}": chance.normal(size=2 * n) for i in range(d)}
        | {f"c{i}": whole[:, a, b] for i, (a, b) in enumerate(zip(*np.triu_indices(d), strict=True))}
    )
    names = [f"x{i}" for i in range(d)]
    normal = ap.Gaussian(*names, covariance=[f"c{i}" for i in range(6)])
    asked: Any = {"epsilon": 3.0, "probability": 1e-9, "window": 1, "likelihood": True, "density": 0.25}
    none, half = np.zeros((n, d, d)), np.tile(0.25 * np.eye(d), (n, 1, 1))
    for other, errors in ((normal, whole[n:]), (ap.Exact(*names), none), (ap.Gaussian(*names, sigma=0.5), half)):
        left = ap.Stream(rows.slice(0, n), key="k", time="t", value=normal)
        right = ap.Stream(rows.slice(n), key="k", time="t", value=other)
        found = ap.similarity_join(left, right, **asked)
        assert found.column_names[-1] == "log_likelihood_ratio"
        at = np.column_stack([rows[name] for name in names])
        for row in found.to_pylist():
            i, j = row["left_key"], row["right_key"]
            truth = multivariate_normal.logpdf(at[i] - at[j], cov=whole[i] + errors[j - n]) - math.log(0.25)
            assert row["log_likelihood_ratio"] == pytest.approx(truth, abs=1e-9)


def test_likelihood_ratios_on_the_earth_and_without_a_partner() -> None:
    here = {"id": 1, "at": 0, "lat": 50.0, "lon": 10.0, "up": 100.0, "a": 80.0, "b": 20.0, "angle": 30.0}
    there = here | {"id": 2, "lat": 50.001, "up": 130.0}
    value = ap.Position("lat", "lon", ellipse=("a", "b", "angle"), altitude="up", altitude_sigma=10)
    left, right = (ap.Stream(pa.Table.from_pylist([row]), key="id", time="at", value=value) for row in (here, there))
    asked: Any = {"epsilon": 1000.0, "probability": 0.01, "window": 1, "likelihood": True}
    (row,) = ap.similarity_join(left, right, **asked).to_pylist()
    turn = math.radians(30.0)
    root = np.array([[math.cos(turn), math.sin(turn)], [math.sin(turn), -math.cos(turn)]])  # along is north
    error = 2.0 * root @ np.diag([80.0**2, 20.0**2]) @ root.T
    metres = math.sqrt(row["distance"] ** 2 - 30.0**2)
    flat = -0.5 * metres**2 * np.linalg.inv(error)[0, 0] - 0.5 * math.log(np.linalg.det(error)) - math.log(2 * math.pi)
    steep = -0.5 * (30.0**2 / 200.0 + math.log(200.0) + math.log(2 * math.pi))
    assert row["log_likelihood_ratio"] == pytest.approx(flat + steep, abs=1e-9)
    (row,) = ap.similarity_join(left, right, **(asked | {"epsilon": 1.0, "how": "left"})).to_pylist()
    assert row["log_likelihood_ratio"] is None


@pytest.mark.parametrize(
    ("value", "settings"),
    [
        (ap.Ball("x", "y", radius=1), {"likelihood": True}),
        (ap.Exact("x", "y"), {"likelihood": True}),
        (ap.Gaussian("x", "y", sigma=1), {"likelihood": True, "values": True}),
        (ap.Gaussian("x", "y", sigma=1), {"density": 2.0}),
    ],
)
def test_what_has_no_likelihood_is_an_error(value: Any, settings: dict[str, Any]) -> None:
    streams = [ap.Stream(pa.Table.from_pylist([HERE]), key="id", time="at", value=value) for _ in range(2)]
    call: Any = ap.similarity_join
    with pytest.raises(ap.BadArgument, match="likelihood=True"):
        call(*streams, epsilon=1, probability=0.5, window=1, **settings)
