"""Regions in queries: exact membership and probabilities, in process and on a played Spark, however they come."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import shapely
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr

import appulse as ap
from appulse.engines.queries.call import LocalQueries, resolve_queries
from appulse.engines.spark.queries.parts import routed
from appulse.engines.spark.tables import unpacked
from appulse.model.positions import EARTHS, degree_scale
from appulse.operators.output import Output
from appulse.queries.parts import parted
from tests.helpers import naive_fences as naive

PLANE, NORMAL = ap.Exact("x", "y"), ap.Gaussian("x", "y", sigma=("sx", "sy"))
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
@given(st.integers(0, 1 << 30), st.sampled_from((0.05, 0.3, 0.5, 0.9, 1.0)))
def test_normal_rows_have_exact_probabilities(seed: int, least: float) -> None:
    """Ranges, sums of ranges, regions and discs; where the deviation is 0, membership."""
    chance = np.random.default_rng(seed)
    rows = _rows(chance, 25)
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
    queries = pa.table({"query": list(asked), "condition": [text for text, _ in asked.values()]})
    stream = _stream(rows, NORMAL, existence="real")
    expected = {}
    for row in rows.to_pylist():
        for name, (_, how) in asked.items():
            if isinstance(how, list):
                p = sum(_between(row, "x", x) * _between(row, "y", y) * (row["load"] in loads) for x, y, loads in how)
            else:
                p = (row["load"] >= 1 or name in ("in 0", "in 2", "in 4")) * naive.mass(
                    how, row["x"], row["y"], row["sx"], row["sy"]
                )
            if (p := p * row["real"]) >= least - 1e-9:
                expected[name, row["key"]] = p
    _same(_found(ap.match_queries(stream, queries, probability=least)), expected, least)


def _between(row: dict[str, Any], axis: str, bounds: tuple[float, float]) -> float:
    low, high = ((bound - row[axis]) / row[f"s{axis}"] for bound in bounds)
    return float(ndtr(high) - ndtr(low))


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
    across, along = 1.0 / degree_scale(np.array([48.0]), np.array([30.0]), EARTHS["wgs84"])[0]
    assert p == pytest.approx(naive.mass(around, lon, 48.0, across, along), abs=1e-9)
    (event,) = ap.fence_events(stream, queries, enter=0.01, leave=0.001)["probability"].to_pylist()
    assert event == pytest.approx(p, abs=1e-12)
    text = f"lon BETWEEN {lon - 0.0003!r} AND 180 AND lat >= 48"
    (q,) = ap.match_queries(stream, pa.table({"query": [1], "condition": [text]}), probability=0.01)[
        "probability"
    ].to_pylist()
    high = min(180.0, lon + 1.0)
    assert q == pytest.approx(0.5 * (ndtr((high - lon) / across) - ndtr(-0.0003 / across)), abs=1e-9)


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
    told = by_hand.explain_query("a")
    assert (told["region"], told["probability"]) == ({"edges": 4, "box": [0.0, 0.0, 3.0, 3.0]}, "exact")
    told = by_hand.explain_query("b")
    assert (told["region"]["radius"], told["probability"]) == (9.0, "by points")


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
    with pytest.raises(ap.BadArgument, match="is no place"):
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
