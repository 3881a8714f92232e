"""Regions in queries: exact membership and probabilities, in process and on a played Spark, however they come."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pyproj
import pytest
import shapely
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr

import appulse as ap
from appulse.engines.queries.call import LocalQueries, resolve_queries
from appulse.engines.spark.queries.parts import routed
from appulse.engines.spark.tables import unpacked
from appulse.model.covariance import of_ellipses
from appulse.model.positions import EARTHS, degree_scale
from appulse.operators.output import Output
from appulse.queries.parts import parted
from tests.helpers import naive_fences as naive

PLANE, NORMAL = ap.Exact("x", "y"), ap.Gaussian("x", "y", sigma=("sx", "sy"))
LEANING = ap.Gaussian("x", "y", covariance=("sxx", "sxy", "syy"))
SQUARE = "POLYGON ((0 0, 3 0, 3 3, 0 3, 0 0))"


def _shapes(chance: np.random.Generator, n: int) -> list[Any]:
    """Polygons with holes, several parts, lines and points, with corners on a raster."""
    found: list[Any] = []
    while len(found) < n:
        angles = np.sort(chance.uniform(0, 2 * math.pi, 7))
        corners = np.round(chance.uniform(-6, 6, 2) + 3 * np.column_stack([np.cos(angles), np.sin(angles)]), 1)
        shell = shapely.Polygon(corners)
        if not shell.is_valid or shell.area < 0.5:
            continue
        hole = shapely.affinity.scale(shell, 0.3, 0.3)
        kinds = [
            shell,
            shapely.union(shell, shapely.box(8, 8, 9, 9)),
            shapely.LineString(corners),
            shapely.Point(corners[0]),
        ]
        kinds += [shell.difference(hole) if shell.contains(hole) else shell]
        found.append(kinds[len(found) % len(kinds)])
    return found


def _rows(chance: np.random.Generator, n: int) -> pa.Table:
    x, y = np.round(chance.uniform(-9, 9, (2, n)), 1)
    sx, sy = chance.choice([0.2, 1.0, 3.0], (2, n))
    columns = {"x": x, "y": y, "sx": sx, "sy": sy, "load": chance.integers(0, 5, n), "real": chance.uniform(0.3, 1, n)}
    return pa.table({"key": np.arange(n), "time": np.arange(n) * 1.0, **columns})


def _stream(frame: Any, value: Any = PLANE, **changes: Any) -> ap.Stream[Any]:
    return ap.Stream(frame, key="key", time="time", value=value, **changes)


def _found(table: pa.Table) -> dict[tuple[Any, int], float]:
    pairs = zip(*(table[name].to_pylist() for name in ("query", "key", "probability")), strict=True)
    return {(query, key): p for query, key, p in pairs}


def _same(ours: dict[Any, float], theirs: dict[Any, float], least: float, within: float = 2e-9) -> None:
    """The same answers but for those at the threshold, with the same probabilities."""
    for pair in ours.keys() | theirs.keys():
        assert ours.get(pair, least) == pytest.approx(theirs.get(pair, least), abs=within), pair
    assert {pair for pair, p in theirs.items() if p >= least + within} <= ours.keys()


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 1 << 30), st.booleans())
def test_exact_rows_lie_in_what_covers_them(seed: int, conditioned: bool) -> None:
    """Regions that change place push by push, with a condition or none; corners lie on the raster of rows."""
    chance = np.random.default_rng(seed)
    by_hand = ap.QueryMatch(_stream(None))
    standing: dict[int, tuple[Any, str | None]] = {}
    rows = _rows(chance, 60)
    points, loads = shapely.points(rows["x"], rows["y"]), rows["load"].to_numpy()
    for _ in range(4):
        names, shapes = chance.permutation(12)[:6].tolist(), _shapes(chance, 6)
        texts = [["load > 1", None][k % 2] if conditioned else None for k in range(6)]
        standing |= {name: (shape, text) for name, shape, text in zip(names, shapes, texts, strict=True)}
        gone = int(chance.integers(0, 12))
        standing.pop(gone, None)
        changes = {
            "query": [*names, gone],
            "region": pa.array([*shapely.to_wkb(shapes), None], pa.binary()),
            "condition": pa.array([*texts, None], pa.string()),
            "change": ["add"] * 6 + ["remove"],
        }
        by_hand.change(pa.table(changes))
        expected = {
            (name, int(key))
            for name, (shape, text) in standing.items()
            for key in np.flatnonzero(shapely.covers(shape, points))
            if text is None or loads[key] > 1
        }
        assert set(_found(by_hand.push(rows))) == expected


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 1 << 30), st.sampled_from((0.05, 0.3, 0.5, 0.9, 1.0)), st.sampled_from((NORMAL, LEANING)))
def test_normal_rows_have_exact_probabilities(seed: int, least: float, value: ap.Gaussian) -> None:
    """Ranges, sums of ranges, regions and discs, of independent errors and of any covariance."""
    chance = np.random.default_rng(seed)
    rows = _rows(chance, 25)
    lean = chance.choice([0.0, -0.5, 0.99], 25) * (value is LEANING)
    sx, sy = rows["sx"].to_numpy(), rows["sy"].to_numpy()
    for name, column in {"lean": lean, "sxx": sx**2, "sxy": lean * sx * sy, "syy": sy**2}.items():
        rows = rows.append_column(name, pa.array(column))
    a, b = np.sort(np.round(chance.uniform(-6, 6, 2), 1)).tolist()
    shapes = [shape for shape in _shapes(chance, 5) if shape.area]
    # What each asks for: boxes of x and y that are apart, the loads at which, or a shape.
    asked: dict[str, tuple[str, Any]] = {
        "box": (f"x > {a} AND y BETWEEN {a} AND {b}", [((a, 99), (a, b), range(9))]),
        "apart": (
            f"x < {a} OR x > {b} AND load > 2",
            [((-99, a), (-99, 99), range(9)), ((b, 99), (-99, 99), range(3, 9))],
        ),
        "not": (f"NOT y BETWEEN {a} AND {b}", [((-99, 99), (-99, a), range(9)), ((-99, 99), (b, 99), range(9))]),
        "certain": ("load IN (1, 2)", [((-99, 99), (-99, 99), range(1, 3))]),
    }
    for k, shape in enumerate(shapes):
        asked[f"in {k}"] = (f"ST_Within(x, y, '{shape.wkt}')" + " AND load >= 1" * (k % 2), shape)
    ranges = {
        f"x > {a} AND y < {b} AND load < 3": (shapely.box(a, -99, 99, b), range(3)),
        f"NOT x BETWEEN {a} AND {b}": (shapely.box(-99, -99, a, 99) | shapely.box(b, -99, 99, 99), range(9)),
    }
    cut = {
        f"cut {k} {i}": (f"ST_Within(x, y, '{shape.wkt}') AND {text}", (_area(shape & box), loads))
        for k, shape in enumerate(shapes)
        for i, (text, (box, loads)) in enumerate(ranges.items())
    }
    asked |= cut
    around = {
        f"around {i}": (f"ST_DWithin(x, y, 'POINT ({b} {a})', 4) AND {text}", found)
        for i, (text, found) in enumerate(ranges.items())
    }
    asked |= around
    asked["near"] = (f"ST_DWithin(x, y, 'POINT ({a} {b})', 2.5)", 2.5)
    queries = pa.table({"query": list(asked), "condition": [text for text, _ in asked.values()]})
    stream = _stream(rows, value, existence="real")
    expected = {}
    for row in rows.to_pylist():
        for name, (_, how) in asked.items():
            error = naive.ellipse(row["sxx"], row["sxy"], row["syy"])
            if isinstance(how, list):
                p = sum(_in_box(row, x, y, error) * (row["load"] in loads) for x, y, loads in how)
            elif name in cut:
                p = naive.mass(how[0], row["x"], row["y"], *error) * (row["load"] in how[1])
            elif name in around:
                parts = [np.subtract(part.bounds, (b, a, b, a)) for part in shapely.get_parts(how[0])]
                masses = [naive.disc_mass(row["x"] - b, row["y"] - a, 4.0, *error, part.tolist()) for part in parts]
                p = sum(masses) * (row["load"] in how[1])
            elif name == "near":
                p = naive.disc_mass(row["x"] - a, row["y"] - b, how, *error)
            else:
                p = (row["load"] >= 1 or name in ("in 0", "in 2", "in 4")) * naive.mass(how, row["x"], row["y"], *error)
            if (p := p * row["real"]) >= least - 1e-9:
                expected[name, row["key"]] = p
    _same(_found(ap.match_queries(stream, queries, probability=least)), expected, least)


def _area(shape: Any) -> Any:
    """What of a shape has an area."""
    return shapely.MultiPolygon([part for part in shapely.get_parts(shape) if part.area > 0.0])


def _in_box(row: dict[str, Any], x: tuple[float, float], y: tuple[float, float], error: Any) -> float:
    return naive.mass(shapely.box(x[0], y[0], x[1], y[1]), row["x"], row["y"], *error)


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 1 << 30))
def test_ranges_of_three_coordinates_have_the_mass_of_quadrature(seed: int) -> None:
    """Of a covariance of any rank; ranges with one end, and coordinates that nothing is asked of."""
    chance = np.random.default_rng(seed)
    root = chance.normal(0, 1, (3, 3)) * chance.choice([0.1, 1.0], (3, 1))
    root[:, 2] *= seed % 3 > 0
    matrix, mean = root @ root.T, chance.normal(0, 1, 3)
    columns = {f"c{k}": [entry] for k, entry in enumerate(matrix[np.triu_indices(3)].tolist())}
    rows = pa.table({"key": [0], "time": [0.0], "x": [mean[0]], "y": [mean[1]], "z": [mean[2]], **columns})
    x, y, z = (np.sort(chance.normal(0, 1.5, 2)) for _ in range(3))
    x[0] = x[0] if seed % 2 else -60.0
    text = f"x <= {x[1]} AND y BETWEEN {y[0]} AND {y[1]}" + f" AND x >= {x[0]}" * (seed % 2)
    queries = pa.table({"query": [3, 2], "condition": [f"{text} AND z BETWEEN {z[0]} AND {z[1]}", text]})
    stream = _stream(rows, ap.Gaussian("x", "y", "z", covariance=tuple(columns)))
    found = dict.fromkeys([("p", 3), ("p", 2)], 0.0) | {
        ("p", query): p for (query, _), p in _found(ap.match_queries(stream, queries, probability=1e-9)).items()
    }
    # Given z, the others are normal, and their mean moves with it.
    slope, s = matrix[:2, 2] / matrix[2, 2], math.sqrt(matrix[2, 2])
    rest = matrix[:2, :2] - np.outer(slope, slope) * matrix[2, 2]
    rest += 1e-9 * np.trace(rest) * np.eye(2) * (seed % 3 == 0)  # a line, as thin as the twin can have it
    box, error = shapely.box(x[0], y[0], x[1], y[1]), naive.ellipse(rest[0, 0], rest[0, 1], rest[1, 1])
    for number, (low, high) in ((3, z), (2, (-99.0, 99.0))):
        edges = np.linspace(max(low, mean[2] - 9 * s), min(high, mean[2] + 9 * s), 33)
        if edges[0] >= edges[-1]:
            continue
        half = 0.5 * np.diff(edges)[:, None]
        nodes, weights = np.polynomial.legendre.leggauss(12)
        at, weight = (edges[:-1, None] + half * (nodes + 1)).ravel(), (half * weights).ravel()
        inside = [naive.mass(box, x, y, *error) for x, y in mean[:2] + np.outer(at - mean[2], slope)]
        expected = np.sum(weight * np.exp(-0.5 * ((at - mean[2]) / s) ** 2) * inside) / s / math.sqrt(2 * math.pi)
        assert found["p", number] == pytest.approx(expected, abs=1e-8 if seed % 3 else 1e-4)


def test_normal_rows_without_a_deviation_are_exact_ones() -> None:
    chance = np.random.default_rng(8)
    rows, shapes = _rows(chance, 200), _shapes(chance, 20)
    queries = pa.table({"query": np.arange(20), "region": pa.array(shapely.to_wkb(shapes), pa.binary())})
    flat = ap.match_queries(_stream(rows, ap.Gaussian("x", "y", sigma=0.0)), queries, probability=0.9)
    assert _found(flat) == _found(ap.match_queries(_stream(rows), queries))


@pytest.mark.parametrize("lon", [2.0, 179.9999])
def test_positions_have_the_mass_of_their_tangent_plane(lon: float) -> None:
    """Also where it lies on both sides of the 180th meridian, and the region does."""
    rows = pa.table({"key": [0], "time": [0.0], "lat": [48.0], "lon": [lon], "e": [30.0]})
    east = lon + 0.0005
    around = shapely.box(lon - 0.0003, 47.9999, east, 48.0004)
    stream = _stream(rows, ap.Position("lat", "lon", sigma="e"))
    queries = pa.table({"query": ["a"], "region": [around.wkt]})
    (p,) = ap.match_queries(stream, queries, probability=0.01)["probability"].to_pylist()
    across, along = 1.0 / degree_scale(np.array([48.0]), np.array([[30.0]]), EARTHS["wgs84"])[0, :2]
    assert p == pytest.approx(naive.mass(around, lon, 48.0, across, along), abs=1e-9)
    (event,) = ap.fence_events(stream, queries, enter=0.01, leave=0.001)["probability"].to_pylist()
    assert event == pytest.approx(p, abs=1e-12)
    # An ellipse; in metres, and in degrees.
    ellipse = _stream(rows, ap.Position("lat", "lon", ellipse=("e", 8.0, 30.0)))
    metres, degrees = of_ellipses(np.array([[30.0, 8.0, 30.0]]))[0], np.array([across, along]) / 30.0
    error = naive.ellipse(*(metres * degrees[[0, 0, 1]] * degrees[[0, 1, 1]]))
    disc = pa.table({"query": ["d"], "region": [f"POINT ({(east + 180) % 360 - 180} 48.0001)"], "radius": [50.0]})
    azimuth, _, apart = pyproj.Geod(ellps="WGS84").inv(lon, 48.0, east, 48.0001)
    x, y = -apart * np.sin(np.radians(azimuth)), -apart * np.cos(np.radians(azimuth))
    for asked, expected in (
        (queries, naive.mass(around, lon, 48.0, *error)),
        (disc, naive.disc_mass(x, y, 50.0, *naive.ellipse(*metres))),
    ):
        (p,) = ap.match_queries(ellipse, asked, probability=0.01)["probability"].to_pylist()
        assert p == pytest.approx(expected, abs=1e-9)
        (event,) = ap.fence_events(ellipse, asked, enter=0.01, leave=0.001)["probability"].to_pylist()
        assert event == pytest.approx(p, abs=1e-12)
        beside = asked.append_column("condition", pa.array(["time >= 0 OR time < -1"]))
        (p,) = ap.match_queries(ellipse, beside, probability=0.01)["probability"].to_pylist()
        assert p == pytest.approx(expected, abs=1e-9)
    text = f"lon BETWEEN {lon - 0.0003!r} AND 180 AND lat >= 48"
    (q,) = ap.match_queries(stream, pa.table({"query": [1], "condition": [text]}), probability=0.01)[
        "probability"
    ].to_pylist()
    high = min(180.0, lon + 1.0)
    assert q == pytest.approx(0.5 * (ndtr((high - lon) / across) - ndtr(-0.0003 / across)), abs=1e-9)
    both = queries.append_column("condition", pa.array([text]))
    part = around & shapely.box(lon - 0.0003, 48.0, high, 90.0)
    for value, own in ((stream, (across, along)), (ellipse, error)):
        (p,) = ap.match_queries(value, both, probability=0.01)["probability"].to_pylist()
        assert p == pytest.approx(naive.mass(part, lon, 48.0, *own), abs=1e-9)


def test_a_function_may_stand_anywhere_in_a_condition() -> None:
    rows = _rows(np.random.default_rng(3), 200)
    points = shapely.points(rows["x"], rows["y"])
    inside = shapely.covers(shapely.from_wkt(SQUARE), points)
    near = shapely.dwithin(shapely.Point(-2, 1), points, 2.5)
    texts = {
        "not": f"NOT ST_Within(x, y, '{SQUARE}')",
        "either": f"st_within(x, y, '{SQUARE}') OR ST_DWithin(x, y, 'POINT (-2 1)', 2.5)",
        "other": f"ST_Within(y, x, '{SQUARE}')",
        "moved": f"ST_Within(x - 1, y, '{SQUARE}')",
    }
    expected = {
        "not": ~inside,
        "either": inside | near,
        "other": shapely.covers(shapely.from_wkt(SQUARE), shapely.points(rows["y"], rows["x"])),
        "moved": shapely.covers(shapely.from_wkt(SQUARE), shapely.points(rows["x"].to_numpy() - 1, rows["y"])),
    }
    queries = pa.table({"query": list(texts), "condition": list(texts.values())})
    found = set(_found(ap.match_queries(_stream(rows), queries)))
    assert found == {(name, int(key)) for name, holds in expected.items() for key in np.flatnonzero(holds)}
    anything = pa.table({"query": ["any"], "condition": ["TRUE"]})
    kept = ap.match_queries(ap.filter(_stream(rows), texts["either"]), anything)
    assert len(kept) == expected["either"].sum()


def test_a_distance_of_positions_is_in_metres_wherever_it_stands() -> None:
    rows = pa.table({"key": [1, 2], "time": [0.0, 1.0], "lat": [48.0, 48.0], "lon": [2.0, 2.02]})  # 1.49 km apart
    queries = pa.table(
        {
            "query": ["alone", "not"],
            "condition": [f"{no}ST_DWithin(lon, lat, 'POINT (2 48)', 1000)" for no in ("", "NOT ")],
        }
    )
    assert set(_found(ap.match_queries(_stream(rows, ap.Position("lat", "lon")), queries))) == {
        ("alone", 1),
        ("not", 2),
    }


@pytest.mark.parametrize("ra", [10.0, 179.999])
@pytest.mark.parametrize("dec", [0.0, 60.0, -89.99])
def test_cones_on_the_sky_are_in_arc_seconds(ra: float, dec: float) -> None:
    """Discs as queries, conditions and fences, of places at known distances."""
    rng = np.random.default_rng(4)
    far, turn = rng.uniform(0, 60, 200), rng.uniform(0, 2 * np.pi, 200)
    centre, angle = np.radians(dec), np.radians(far / 3600.0)
    lat = np.arcsin(np.sin(centre) * np.cos(angle) + np.cos(centre) * np.sin(angle) * np.cos(turn))
    across = np.sin(turn) * np.sin(angle) * np.cos(centre)
    lon = ra + np.degrees(np.arctan2(across, np.cos(angle) - np.sin(centre) * np.sin(lat)))
    lon = (lon + 180.0) % 360.0 - 180.0
    rows = pa.table({"key": np.arange(200), "time": np.arange(200.0), "lat": np.degrees(lat), "lon": lon})
    stream = _stream(rows, ap.Position("lat", "lon", earth="sky"))
    near = set(np.flatnonzero(far <= 30.0).tolist())
    point = f"POINT ({ra} {dec})"
    cone = pa.table({"query": ["cone"], "region": [point], "radius": [30.0]})
    asked = pa.table({"query": ["asked"], "condition": [f"ST_DWithin(lon, lat, '{point}', 30)"]})
    for queries in (cone, asked):
        assert {key for _, key in _found(ap.match_queries(stream, queries))} == near
    events = ap.fence_events(stream, cone, emit="events")
    assert {row["key"] for row in events.to_pylist() if row["event"] == "enter"} == near


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 1 << 30), st.integers(1, 4))
def test_parts_answer_as_the_whole_set(seed: int, many: int) -> None:
    """Rows with normal errors go to every part that they reach."""
    chance = np.random.default_rng(seed)
    rows, shapes = _rows(chance, 40), _shapes(chance, 10)
    table = pa.table({"query": np.arange(10), "region": pa.array(shapely.to_wkb(shapes), pa.binary())})
    call = resolve_queries(_stream(rows, NORMAL), rows, table.schema, probability=0.1, on_reject="collect")

    def engine(own: pa.Table) -> LocalQueries:
        made = LocalQueries(call)
        made.change(own)
        return made

    whole = engine(table)
    parts, members = parted(whole.queries, many)
    found: dict[tuple[Any, int], float] = {}
    for key, blob in routed(call, parts, list(range(max(1, len(members)))), rows.select(call.columns)):
        if blob[:1] == b"r":
            found |= _found(engine(table.take(pa.array(members[key]))).judge(unpacked(blob[1:]), Output())[0])
    assert found == pytest.approx(_found(whole.push(rows)), abs=1e-12)


def test_regions_end_by_until_and_are_explained() -> None:
    rows = pa.table({"key": [1, 1], "time": [0.0, 10.0], "x": [1.0, 1.0], "y": [1.0, 1.0]})
    by_hand = ap.QueryMatch(_stream(None, ap.Gaussian("x", "y", sigma=1.0)), probability=0.5)
    by_hand.change(
        pa.table(
            {
                "query": ["a", "b"],
                "region": [SQUARE, "POINT (1 1)"],
                "radius": [None, 9.0],
                "condition": [None, "x > -1"],
                "until": [5.0, None],
            }
        )
    )
    assert [(row["query"], row["time"]) for row in by_hand.push(rows).to_pylist()] == [
        ("a", 0.0),
        ("b", 0.0),
        ("b", 10.0),
    ]
    shown = by_hand.explain_query("a")
    assert (shown["region"], shown["probability"]) == ({"edges": 4, "box": [0.0, 0.0, 3.0, 3.0]}, "exact")
    shown = by_hand.explain_query("b")
    assert (shown["region"]["radius"], shown["probability"]) == (9.0, "exact")
    by_hand.change(pa.table({"query": ["c"], "region": [SQUARE], "condition": ["x > -1"]}))
    assert by_hand.explain_query("c")["probability"] == "exact"


def test_moving_fences_are_forgotten() -> None:
    """Ten thousand changes of place leave room for as many regions as stand."""
    by_hand = ap.QueryMatch(_stream(None))
    corner = np.zeros((200, 2))
    row = pa.table({"key": [1], "time": [0.0], "x": [0.5], "y": [0.5]})
    for k in range(60):
        boxes = shapely.box(corner[:, 0], corner[:, 1], corner[:, 0] + 1, corner[:, 1] + 1)
        by_hand.change(pa.table({"query": np.arange(200), "region": pa.array(shapely.to_wkb(boxes), pa.binary())}))
        assert len(by_hand.push(row)) == (200 if k == 0 else 0)
        corner += 2.0
    engine = by_hand._engine
    assert isinstance(engine, LocalQueries)
    assert len(engine.queries) == 200
    assert len(engine.queries.regions.arrays.radius) < 10_000


@pytest.mark.parametrize(
    ("row", "reason", "reported"),
    [
        ({"region": "POLYGON ((0 0, 2 2, 2 0, 0 2, 0 0))"}, "bad region", "Self-intersection"),
        ({"region": "POLYGON EMPTY"}, "bad region", "empty"),
        ({"region": SQUARE, "radius": -1.0}, "bad region", "radius is -1.0"),
        ({"region": None}, "bad condition", "the condition is null"),
        ({"condition": f"ST_Within(x, y, '{SQUARE[:-1]}')"}, "bad condition", "ParseException"),
        ({"condition": "ST_Within(x, y)"}, "bad condition", "takes 3 arguments"),
        ({"condition": "ST_Within(x, y, load)"}, "bad condition", "takes constants"),
        ({"condition": f"ST_Within(key, 'a', '{SQUARE}')"}, "bad condition", "coordinate is expected"),
        ({"condition": f"ST_DWithin(x, y, '{SQUARE}')"}, "bad condition", "takes 4 arguments"),
        ({"condition": f"ST_Within(x, y, '{SQUARE}') + 1 > 0"}, "bad condition", "truth value"),
    ],
)
def test_what_is_no_region_is_a_reject(row: dict[str, Any], reason: str, reported: str) -> None:
    columns = {"region": None, "radius": None, "condition": None} | row
    kinds = {"region": pa.string(), "radius": pa.float64(), "condition": pa.string()}
    queries = pa.table({"query": ["q"], **{name: pa.array([columns[name]], kind) for name, kind in kinds.items()}})
    rows = _rows(np.random.default_rng(1), 3)
    (reject,) = ap.rejects(ap.match_queries(_stream(rows), queries)).to_pylist()
    assert (reject["reason"], reported in reject["detail"]) == (reason, True), reject
    with pytest.raises(ap.BadInput, match=reason):
        ap.match_queries(_stream(rows), queries, on_reject="fail")


def test_bad_arguments() -> None:
    rows = _rows(np.random.default_rng(1), 3)
    with pytest.raises(ap.BadArgument, match="is not a place"):
        ap.match_queries(_stream(rows, ap.Exact("x")), pa.table({"query": [1], "region": [SQUARE]}))
    with pytest.raises(ap.BadArgument, match="no column 'region' that it widens"):
        ap.match_queries(_stream(rows), pa.table({"query": [1], "condition": ["x > 1"], "radius": [1.0]}))
    two = [_stream(rows, name=name) for name in "ab"]
    with pytest.raises(ap.BadArgument, match="for queries over one stream"):
        ap.match_queries(*two, queries=pa.table({"query": [1], "region": [SQUARE], "condition": ["a.x > 1"]}), window=1)
    (reject,) = ap.rejects(
        ap.match_queries(
            *two, queries=pa.table({"query": [1], "condition": ["ST_DWithin(a.x, a.y, 'POINT (0 0)', 1)"]}), window=1
        )
    ).to_pylist()
    assert "over one stream" in reject["detail"]
