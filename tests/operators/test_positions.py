"""Positions on the Earth: joins in process equal to their twin, whose distances are those of pyproj."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr

import appulse as ap
from appulse.jobs.sources import SourceTable
from appulse.jobs.tables import JoinTable
from appulse.model.meaning import of_model
from appulse.model.points import normal_points
from appulse.model.positions import EARTHS, degree_scale
from appulse.operators.plan import BOUNDS
from tests.helpers import geodesics, naive
from tests.helpers.naive_places import likely_places
from tests.helpers.strategies import ALTITUDES, PLACES, Case, cases, pushes

if TYPE_CHECKING:
    from collections.abc import Callable

pytest.importorskip("pyproj")

WINDOWS = ("time", "time", "count", "delta", "tumble", "uncertain")
places: Any = cases(models=PLACES, dimensions=(2,), windows=WINDOWS)


# --- equal to the twin ------------------------------------------------------------------------------------------------


@settings(max_examples=60)
@given(places)
def test_answers_and_rejects_are_those_of_the_twin(case: Case) -> None:
    """Exact places and circles of error, over the poles and the 180th meridian, under every window."""
    result, expected = case.run(), case.expected()
    naive.assert_same_answers(result, expected.answers)
    naive.assert_same_rejects(ap.rejects(result), expected.rejects)


@settings(max_examples=20)
@given(cases(models=PLACES, dimensions=(2,), bad=False, most=6))
def test_bounds_and_index_never_change_an_answer(case: Case) -> None:
    usual = naive.answers_of(case.run())
    for index in ("grid", "dense"):
        naive.assert_same_answers(case.run(ap.Options(index=index)), usual)
    for bound in sorted(BOUNDS):
        naive.assert_same_answers(case.run(ap.Options(bounds=BOUNDS - {bound})), usual)
        naive.assert_same_answers(case.run(ap.Options(bounds=frozenset({bound}), index="grid")), usual)


@given(st.data())
def test_pushed_by_hand_in_any_cut_the_answers_are_those_of_one_call(data: st.DataObject) -> None:
    case = data.draw(cases(models=PLACES, dimensions=(2,), lateness=True))
    cut = data.draw(pushes(case))
    answers, rejects = case.pushed(cut)
    expected = case.expected()
    naive.assert_same_answers(pa.concat_tables(answers), expected.answers)
    naive.assert_same_rejects(rejects, expected.rejects)


# --- with an altitude -------------------------------------------------------------------------------------------------


@settings(max_examples=50)
@given(cases(models=ALTITUDES, dimensions=(3,), windows=WINDOWS, most=4))
def test_places_with_an_altitude_are_those_of_the_twin(case: Case) -> None:
    """In a ball or a cylinder; the twin integrates by adaptive quadrature."""
    result, expected = case.run(), case.expected()
    naive.assert_same_answers(result, expected.answers)
    naive.assert_same_rejects(ap.rejects(result), expected.rejects)


@settings(max_examples=15)
@given(cases(models=ALTITUDES, dimensions=(3,), bad=False, most=6))
def test_bounds_and_index_never_change_an_answer_with_an_altitude(case: Case) -> None:
    usual = naive.answers_of(case.run())
    for index in ("grid", "dense"):
        naive.assert_same_answers(case.run(ap.Options(index=index)), usual)
    for bound in ("reach", "projection"):
        naive.assert_same_answers(case.run(ap.Options(bounds=BOUNDS - {bound})), usual)
    naive.assert_same_answers(case.run(ap.Options(bounds=frozenset(), index="grid")), usual)


@settings(max_examples=15)
@given(st.data())
def test_places_with_an_altitude_pushed_by_hand(data: st.DataObject) -> None:
    case = data.draw(cases(models=ALTITUDES, dimensions=(3,), lateness=True, most=4))
    answers, rejects = case.pushed(data.draw(pushes(case)))
    naive.assert_same_answers(pa.concat_tables(answers), case.expected().answers)
    naive.assert_same_rejects(rejects, case.expected().rejects)


AIR = {"id": 1, "at": 0.0, "lat": 51.0, "lon": 0.5, "alt": 3000.0}


def airborne(**sigmas: Any) -> ap.Stream:
    """A stream of one aircraft."""
    value = ap.Position("lat", "lon", altitude="alt", **sigmas)
    return ap.Stream(pa.Table.from_pylist([AIR]), key="id", time="at", value=value)


def test_a_cylinder_is_of_positions_with_an_altitude() -> None:
    cylinder: Any = {"horizontal": 9260, "vertical": 305}
    for stream, epsilon, words in (
        (position(), cylinder, "needs altitudes"),
        (airborne(), {"horizontal": 9260}, "give 'horizontal' and 'vertical'"),
        (airborne(), {"horizontal": 1, "up": 2}, "give 'horizontal' and 'vertical'"),
        (airborne(), {"horizontal": 1, "vertical": -2}, "give a finite number"),
    ):
        with pytest.raises(ap.BadArgument, match=words):
            ap.self_join(stream, epsilon=epsilon, probability=0.5, window=1)
    with pytest.raises(ap.BadArgument, match="Name its column by altitude="):
        ap.Position("lat", "lon", altitude_sigma=3)
    with pytest.raises(ap.BadArgument, match="have an altitude, but not 'left'"):
        ap.similarity_join(position(), airborne(), epsilon=1, probability=0.5, window=1)


def test_a_pair_with_an_altitude_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    text = ap.explain_pair(
        AIR,
        AIR | {"alt": 3200.0, "lat": 51.05},
        left=airborne(sigma=50, altitude_sigma=30),
        epsilon={"horizontal": 9260, "vertical": 305},
        probability=0.5,
    )
    assert "altitude 3000, exists with 1, sigma 50 and 30 metres" in text
    assert "geodesic 5562.44, difference of altitudes 200; epsilon 9260 and 305" in text
    assert "probability: 0.993" in text
    assert capsys.readouterr().out == text + "\n"


def test_conditions_see_uncertain_altitudes_as_well() -> None:
    stream = airborne(sigma=50, altitude_sigma=30)
    queries = pa.table({"query": [0, 1], "condition": ["alt > 3000", "lat > 51 AND alt < 2000"]})
    (found,) = ap.match_queries(stream, queries, probability=1e-9).to_pylist()
    assert (found["query"], found["probability"]) == (0, pytest.approx(0.5, abs=1e-12))


# --- far apart --------------------------------------------------------------------------------------------------------


def scattered(n: int, seed: int) -> pa.Table:
    """Places all over the Earth, a third of them near the poles, and pairs that are nearly opposite."""
    chance = np.random.default_rng(seed)
    lat = np.degrees(np.arcsin(chance.uniform(-1.0, 1.0, n)))
    lat[: n // 3] = np.copysign(90.0 - chance.uniform(0.0, 3.0, n // 3), lat[: n // 3])
    lon = chance.uniform(-540.0, 540.0, n)
    lat[1::7], lon[1::7] = -lat[::7][: len(lat[1::7])], lon[::7][: len(lon[1::7])] + 180.0 + chance.normal(0.0, 0.2)
    return pa.table({"id": np.arange(n), "at": np.zeros(n), "lat": lat, "lon": lon})


@pytest.mark.parametrize("earth", ["wgs84", "sphere"])
@pytest.mark.parametrize("epsilon", [5e3, 1.9e5, 2.1e5, 9e5, 6e6, 1.99e7, 2.1e7])
def test_pairs_at_any_distance_are_those_of_pyproj(earth: str, epsilon: float) -> None:
    """To a tenth of a millimetre; pairs within that of epsilon may be there or not."""
    table = scattered(300, int(epsilon))
    stream = ap.Stream(table, key="id", time="at", value=ap.Position("lat", "lon", earth=earth))
    found = ap.self_join(stream, epsilon=epsilon, probability=1.0, window=1.0)
    lat, lon = (table[name].to_numpy() for name in ("lat", "lon"))
    left, right = np.triu_indices(len(table), 1)
    exact = geodesics.geod(earth).inv(lon[left], lat[left], lon[right], lat[right])[2]
    expected = dict(zip(zip(left.tolist(), right.tolist(), strict=True), exact.tolist(), strict=True))
    got = {
        tuple(sorted((row["left_key"], row["right_key"]))): row["distance"]
        for row in found.select(["left_key", "right_key", "distance"]).to_pylist()
    }
    assert len(got) == len(found)
    assert all(expected[pair] == pytest.approx(metres, rel=1e-11, abs=1e-4) for pair, metres in got.items())
    missing = [pair for pair, metres in expected.items() if metres <= epsilon - 1e-4 and pair not in got]
    assert missing == []
    assert all(expected[pair] <= epsilon + 1e-4 + 2e-9 * epsilon for pair in got)


# --- what is refused --------------------------------------------------------------------------------------------------


def position(**columns: Any) -> ap.Stream:
    """A stream of one row."""
    row = {"id": 1, "at": 0.0, "lat": 1.0, "lon": 2.0, "sigma": 1.0} | columns
    return ap.Stream(pa.Table.from_pylist([row]), key="id", time="at", value=ap.Position("lat", "lon", sigma="sigma"))


def test_swapped_coordinates_are_suspected() -> None:
    found = ap.self_join(position(lat=151.2, lon=-33.9), epsilon=1, probability=0.5, window=1)
    (reject,) = ap.rejects(found).to_pylist()
    assert reject["reason"] == "latitude outside [-90, 90]"
    assert reject["detail"] == "lat is 151.2, lon is -33.9: they may be swapped"
    (reject,) = ap.rejects(ap.self_join(position(lat=200.0), epsilon=1, probability=0.5, window=1)).to_pylist()
    assert reject["detail"] == "lat is 200.0"


def test_large_errors_are_rejected_in_their_unit() -> None:
    for earth, unit in (("wgs84", "100 km"), ("sphere", "100 km"), ("sky", "100,000 arc seconds")):
        for value in (
            ap.Position("lat", "lon", sigma="sigma", earth=earth),
            ap.Position("lat", "lon", ellipse=("sigma", 1.0, 0.0), earth=earth),
        ):
            row = replace(position(sigma=100_001.0), value=value)
            (reject,) = ap.rejects(ap.self_join(row, epsilon=1, probability=0.5, window=1)).to_pylist()
            assert reject["reason"] == f"error above {unit}"


def test_a_late_row_is_rejected_with_its_degrees() -> None:
    join = ap.SimilarityJoin(replace(position(), frame=None, name="a"), epsilon=1, probability=0.5, window=1)
    join.push(pa.table({"id": [1], "at": [9.0], "lat": [1.0], "lon": [2.0], "sigma": [1.0]}))
    join.push(pa.table({"id": [2], "at": [1.0], "lat": [-33.5], "lon": [200.25], "sigma": [1.0]}))
    (late,) = [reject for reject in join.rejects().to_pylist() if reject["reason"] == "late"]
    assert json.loads(late["values"]) == pytest.approx({"lat": -33.5, "lon": -159.75}, rel=1e-12)


def test_arguments_that_make_no_sense_are_errors() -> None:
    sure = ap.DeltaWindow("lat", 1, confidence=0.9)
    settings: Any = {"epsilon": 1, "probability": 0.5, "window": 1}
    flat = ap.Stream(position().frame, key="id", time="at", value=ap.Exact("lat", "lon"))
    sphere = ap.Stream(position().frame, key="id", time="at", value=ap.Position("lat", "lon", earth="sphere"))
    high = ap.Stream(position().frame, key="id", time="at", value=ap.Position("lat", "lon", altitude="at"))
    calls: list[tuple[Callable[[], Any], str]] = [
        (lambda: ap.Position("lat", "lon", sigma=100_001), "above 100000 metres"),
        (
            lambda: ap.Position("lat", "lon", sigma=100_001, earth="sky"),
            "above 100000 arc seconds, 27.8 degrees.*in arc",
        ),
        (lambda: ap.Position("lat", "lon", sigma=-1), "at least 0"),
        (lambda: ap.Position("lat", "lat"), "names a column twice"),
        (lambda: ap.Position("lat", "lon", earth="flat"), "give one of 'wgs84', 'sphere', 'sky'"),
        (lambda: ap.Position("lat", "lon", altitude="up", earth="sky"), "no meaning on the sky"),
        (lambda: ap.similarity_join(position(), high, **settings), "have an altitude, but not 'left'"),
        (lambda: ap.similarity_join(position(), flat, **settings), "needs ap.Position on both sides"),
        (lambda: ap.similarity_join(position(), sphere, **settings), "differ in their Earth"),
        (lambda: ap.self_join(position(), **settings, values=True), "positions have none"),
        (lambda: ap.self_join(ap.filter(position(), "lat > 3"), **settings), "names 'lat', which is uncertain"),
        (lambda: ap.self_join(flat, **settings, metric="haversine"), "ap.Position"),
        (lambda: ap.window_aggregate(position(), {"lat": ["mean"]}, window=1), "is a position"),
        (
            lambda: ap.self_join(position(), epsilon=1, probability=0.5, window=sure),
            "a position has none to go by",
        ),
    ]
    for call, words in calls:
        with pytest.raises(ap.BadArgument, match=words):
            call()


def test_certain_coordinates_may_be_filtered_and_measured_by() -> None:
    """They are columns like others, as those of `Exact` are."""
    table = pa.table({"id": range(4), "at": [0.0, 1.0, 2.0, 3.0], "lat": [0.0, 0.1, 0.2, 5.0], "lon": [0.0] * 4})
    stream = ap.Stream(table, key="id", time="at", value=ap.Position("lat", "lon"))
    found = ap.self_join(ap.filter(stream, "lat < 0.15"), epsilon=1e6, probability=1, window=10)
    assert found.select(["left_key", "right_key"]).to_pylist() == [{"left_key": 0, "right_key": 1}]
    found = ap.self_join(stream, epsilon=1e6, probability=1, window=ap.DeltaWindow("lat", 1.0))
    assert len(found) == 3


# --- explained --------------------------------------------------------------------------------------------------------


def test_a_pair_is_explained_in_degrees_and_metres(capsys: pytest.CaptureFixture[str]) -> None:
    row = {"id": 1, "at": 0.0, "sigma": 20.0}
    text = ap.explain_pair(
        row | {"lat": 89.9999, "lon": 179.0},
        row | {"lat": 89.9999, "lon": -60.0},
        left=position(),
        epsilon=50,
        probability=0.5,
    )
    assert "latitude 89.9999, longitude 179, exists with 1, sigma 20 metres" in text
    assert "chord, through the Earth: 19.4427 metres" in text
    assert "half-space (deviation 28.2843): at most" in text
    assert text.endswith("the closed form")
    assert capsys.readouterr().out == text + "\n"


# --- conditions -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("earth", ["wgs84", "sphere"])
def test_conditions_over_uncertain_coordinates(earth: str) -> None:
    """In degrees: by the normal distribution, over the 180th meridian too; near poles as pyproj has places."""
    lat, lon = np.array([0.0, 52.0, -89.95, 89.99, 10.0, 12.0]), np.array([0.0, 13.0, 70.0, -100.0, 179.99, -180.0])
    sigma = np.array([5e3, 100.0, 2e4, 1e3, 5e3, 0.0])
    table = pa.table({"id": range(6), "at": [0.0] * 6, "lat": lat, "lon": lon, "s": sigma})
    stream = ap.Stream(table, key="id", time="at", value=ap.Position("lat", "lon", sigma="s", earth=earth))
    points = normal_points(64, 2)
    azimuth, far = np.degrees(np.arctan2(points[:, 0], points[:, 1])), np.hypot(points[:, 0], points[:, 1])
    with np.errstate(divide="ignore"):
        across, along, _ = 1.0 / degree_scale(lat, sigma[:, None], EARTHS[earth]).T
    conditions, expected, by_points = [], {}, {}
    for i in range(6):
        metres = far * max(sigma[i], 1e-3)
        lons, lats, _ = geodesics.geod(earth).fwd(np.full(64, lon[i]), np.full(64, lat[i]), azimuth, metres)
        # Between points, so that which lie on which side does not hang on the last digit.
        north, east = (float(np.sort(values)[[20, 21]].mean()) for values in (lats, lons))
        conditions.append(f"lat > {north:.12f} AND lon <= {east:.12f}")
        if i in (2, 3):
            by_points[i] = float(((lats > north) & (lons <= east)).mean())
            x, y = likely_places(lat[i], lon[i], (sigma[i], sigma[i], 0.0), 1000, earth)
            expected[i] = float(((y > north) & (x <= east)).mean())
        elif i < 5:
            turns = [
                ndtr((east + t - lon[i]) / across[i]) - ndtr((t - 180.0 - lon[i]) / across[i]) for t in (0.0, 360.0)
            ]
            expected[i] = float(ndtr((lat[i] - north) / along[i]) * sum(turns))
    queries = pa.table({"query": range(6), "condition": conditions})
    found = ap.match_queries(stream, queries, probability=1e-9).to_pylist()
    own = {row["query"]: row["probability"] for row in found if row["query"] == row["key"] and row["key"] < 5}
    for i in (2, 3):
        assert own[i] == pytest.approx(expected.pop(i), abs=5e-4)
    assert {i: own[i] for i in expected if i in own} == pytest.approx({i: p for i, p in expected.items() if p > 0.0})
    assert len(own) > 3
    # What compares coordinates with each other is asked of points.
    apart = [f"{conditions[i]} AND lon + 0 * lat < 400" for i in by_points]
    queries = pa.table({"query": list(by_points), "condition": apart})
    found = ap.match_queries(stream, queries, probability=1e-9).to_pylist()
    assert {row["query"]: row["probability"] for row in found if row["query"] == row["key"]} == by_points
    # Without a bound of the longitude, what lies beyond a meridian counts once.
    alone = pa.table({"query": [0], "condition": ["lat > 10"]})
    (p,) = [
        row["probability"] for row in ap.match_queries(stream, alone, probability=0.1).to_pylist() if row["key"] == 4
    ]
    assert p == pytest.approx(0.5, abs=1e-9)
    kept = ap.filter(stream, conditions[0])
    left = ap.match_queries(kept, pa.table({"query": [0], "condition": ["lat > -90"]}), probability=1e-9).to_pylist()
    assert {row["key"]: row["probability"] for row in left}[0] == pytest.approx(expected[0], abs=2 / 64)


def test_conditions_over_exact_places_are_of_their_columns() -> None:
    table = pa.table({"id": [1, 2], "at": [0.0, 0.0], "lat": [10.0, 20.0], "lon": [190.0, 0.0]})
    stream = ap.Stream(table, key="id", time="at", value=ap.Position("lat", "lon"))
    queries = pa.table({"query": ["a", "b"], "condition": ["lon = 190", "lat > 15 AND lat < 90"]})
    found = ap.match_queries(stream, queries).to_pylist()
    assert [(row["query"], row["key"], row["probability"]) for row in found] == [("a", 1, 1.0), ("b", 2, 1.0)]


# --- kept and written -------------------------------------------------------------------------------------------------


def test_the_words_that_checkpoints_keep() -> None:
    assert of_model(ap.Position("lat", "lon")) == {"kind": "Position", "columns": ["lat", "lon"]}
    assert of_model(ap.Position("a", "b", altitude="c", altitude_sigma=2)) == {
        "kind": "Position",
        "columns": ["a", "b", "c"],
        "altitude_sigma": 2.0,
    }
    assert of_model(ap.Position("a", "b", sigma="s", earth="sphere")) == {
        "kind": "Position",
        "columns": ["a", "b"],
        "sigma": "s",
        "earth": "sphere",
    }


def test_a_job_file_has_positions() -> None:
    table: Any = {"model": "Position", "lat": "lat", "lon": "lon", "sigma": "accuracy"}
    source: Any = {"format": "parquet", "path": "in", "key": "id", "time": "at"}
    assert SourceTable(**source, value=table).value.build() == ap.Position("lat", "lon", sigma="accuracy")
    above: Any = table | {"altitude": "alt", "altitude_sigma": 30}
    assert SourceTable(**source, value=above).value.build() == ap.Position(
        "lat", "lon", sigma="accuracy", altitude="alt", altitude_sigma=30.0
    )
    cylinder: Any = {"horizontal": 9260, "vertical": 305}
    join: Any = {"epsilon": cylinder, "probability": 0.5, "window": "1 minute"}
    assert JoinTable(**join).settings()["epsilon"] == cylinder
    sphere = SourceTable(**source, value=table | {"sigma": 5, "earth": "sphere"}).value.build()
    assert sphere == ap.Position("lat", "lon", sigma=5.0, earth="sphere")


@given(st.integers(0, 1 << 32), st.sampled_from([0.0, 0.3]))
def test_the_sky_is_a_sphere_in_arc_seconds(seed: int, sigma: float) -> None:
    """The pairs of a sphere whose distances and errors are as many metres as there are to the arc seconds."""
    second, rng, n = math.radians(1 / 3600) * 6_371_008.8, np.random.default_rng(seed), 30
    dec = rng.choice([-89.9999, 0.0, 45.0, 90.0], n) + np.where(rng.random(n) < 0.5, 0.0, -1.0 / 3600)
    ra = np.mod(rng.choice([0.0, 83.0], n) + rng.normal(size=n) / 3600, 360.0)
    rows = pa.table({"k": range(n), "t": [0.0] * n, "dec": dec, "ra": ra})
    asked: Any = {"probability": 0.2, "window": 1}
    found = [
        ap.self_join(
            ap.Stream(rows, key="k", time="t", value=ap.Position("dec", "ra", sigma=sigma * scale, earth=earth)),
            epsilon=1.5 * scale,
            **asked,
        ).sort_by([("left_key", "ascending"), ("right_key", "ascending")])
        for earth, scale in (("sky", 1.0), ("sphere", second))
    ]
    assert found[0].select(["left_key", "right_key"]).equals(found[1].select(["left_key", "right_key"]))
    assert np.allclose(found[0]["distance"], np.asarray(found[1]["distance"]) / second, atol=1e-7)
    assert np.allclose(found[0]["probability"], found[1]["probability"], atol=1e-6)
