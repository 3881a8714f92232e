"""Positions given as geometries: the same as their latitudes and longitudes, whatever the format."""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa
import pytest
import shapely

import appulse as ap

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import SparkSession

LAT, LON = [50.76, 50.77, -33.0, 50.761], [-1.14, -1.10, 179.99, -1.141]
POINTS = [shapely.Point(lon, lat) for lat, lon in zip(LAT, LON, strict=True)]
FORMATS: dict[str, Callable[[Sequence[Any]], Any]] = {
    "wkb": lambda points: pa.array([shapely.to_wkb(point) for point in points], pa.binary()),
    "large wkb": lambda points: pa.array([shapely.to_wkb(point, byte_order=0) for point in points], pa.large_binary()),
    "ewkb": lambda points: pa.array(
        [shapely.to_wkb(shapely.set_srid(point, 4326), include_srid=True) for point in points]
    ),
    "wkt": lambda points: pa.array([point.wkt for point in points]),
    "categories": lambda points: pa.array([point.wkt for point in points]).dictionary_encode(),
    "hex wkb": lambda points: pa.array([shapely.to_wkb(point, hex=True) for point in points]),
    "struct": lambda points: pa.array([{"x": point.x, "y": point.y} for point in points]),
    "named struct": lambda points: pa.array([{"latitude": point.y, "longitude": point.x} for point in points]),
    "list": lambda points: pa.array([[point.x, point.y] for point in points], pa.list_(pa.float64(), 2)),
    "spark": lambda points: pa.array([{"srid": 4326, "wkb": shapely.to_wkb(point)} for point in points]),
}


def _table(geometry: Any = None) -> pa.Table:
    table = pa.table({"k": list("abcd"), "t": [0.0, 1.0, 2.0, 3.0], "e": [5.0, 9.0, 1.0, 7.0], "lat": LAT, "lon": LON})
    return table if geometry is None else table.drop_columns(["lat", "lon"]).append_column("geom", geometry)


def _joined(frame: Any, value: ap.Position) -> Any:
    stream: ap.Stream[Any] = ap.Stream(frame, key="k", time="t", value=value)
    return ap.self_join(stream, epsilon=5_000, probability=0.1, window=10)


@pytest.mark.parametrize("form", FORMATS)
def test_points_are_positions(form: str) -> None:
    expected = _joined(_table(), ap.Position("lat", "lon", sigma="e"))
    found = _joined(_table(FORMATS[form](POINTS)), ap.Position(geography="geom", sigma="e"))
    assert len(found) == 3
    assert found.equals(expected)


def test_pandas_holds_geometries_of_shapely() -> None:
    frame = _table().to_pandas().drop(columns=["lat", "lon"]).assign(geom=pd.Series(POINTS, dtype=object))
    expected = _joined(_table(), ap.Position("lat", "lon"))
    assert _joined(frame, ap.Position(geography="geom")).equals(expected)


def test_what_is_no_point_is_a_reject() -> None:
    line = shapely.LineString([(0, 0), (1, 1)])
    mercator = shapely.to_wkb(shapely.set_srid(POINTS[0], 3857), include_srid=True)
    nowhere = struct.pack("<bIdd", 1, 1, float("nan"), float("nan"))
    wkb = [shapely.to_wkb(POINTS[0]), shapely.to_wkb(line), b"no geometry", None, mercator, nowhere]
    wkb += [shapely.to_wkb(shapely.Point(0.0, 91.0)), shapely.to_wkb(POINTS[0].buffer(1.0))]
    rows = pa.table({"k": list("abcdefgh"), "t": [0.0] * 8, "geom": pa.array(wkb, pa.binary())})
    rejects = ap.rejects(_joined(rows, ap.Position(geography="geom"))).sort_by("key").to_pylist()
    assert [(row["key"], row["reason"], row["detail"]) for row in rejects] == [
        ("b", "not a point", "geom is a LineString, not a point"),
        ("c", "not a point", "geom is no geometry that can be read"),
        ("d", "non-finite value", "geom is null"),
        ("e", "not a point", "geom is of SRID 3857, not WGS 84 (4326)"),
        ("f", "not a point", "geom is an empty point"),
        ("g", "latitude outside [-90, 90]", "geom_lat is 91.0, geom_lon is 0.0: they may be swapped"),
        ("h", "not a point", "geom is a Polygon, not a point"),
    ]
    lists = pa.table({"k": ["a", "b"], "t": [0.0, 0.0], "geom": [[1.0, 2.0], [3.0]]})
    (row,) = ap.rejects(_joined(lists, ap.Position(geography="geom"))).to_pylist()
    assert row["detail"] == "geom is a list of 1 numbers"


WEB, LAEA = {"id": {"authority": "EPSG", "code": 3857}}, {"type": "ProjectedCRS", "name": "LAEA"}
DATUM = {"name": "World Geodetic System 1984 ensemble"}


@pytest.mark.parametrize(
    ("crs", "named"),
    [
        (None, None),
        ({"id": {"authority": "EPSG", "code": 4326}}, None),
        ({"id": {"authority": "OGC", "code": "CRS84"}}, None),
        ({"type": "GeographicCRS", "datum_ensemble": DATUM}, None),
        ("OGC:CRS84", None),
        ("4326", None),
        ('GEOGCRS["WGS 84", ID["EPSG",4326]]', None),
        (WEB, "SRID 3857"),
        (json.dumps(WEB), "SRID 3857"),
        ("EPSG:3857", "SRID 3857"),
        ('PROJCRS["WGS 84 / Pseudo-Mercator", BASEGEOGCRS["WGS 84", ID["EPSG",4326]], ID["EPSG",3857]]', "SRID 3857"),
        (LAEA, "a coordinate system without an EPSG number"),
    ],
)
def test_metadata_that_name_another_system_make_rejects(crs: Any, named: str | None) -> None:
    """Of points and of regions, as GeoArrow has it at columns and GeoParquet at tables; in a plane all are taken."""
    table = _table(FORMATS["struct"](POINTS))
    fence = pa.table({"query": ["f"], "region": ["POLYGON ((-2 50, 0 50, 0 51, -2 51, -2 50))"]})

    def with_column(table: pa.Table, name: str) -> pa.Table:
        field = pa.field(name, table[name].type, metadata={"ARROW:extension:metadata": json.dumps({"crs": crs})})
        return table.set_column(table.schema.get_field_index(name), field, table[name])

    def with_table(table: pa.Table, name: str) -> pa.Table:
        return table.replace_schema_metadata({"geo": json.dumps({"columns": {name: {"crs": crs}}})})

    stream: ap.Stream[Any] = ap.Stream(_table(), key="k", time="t", value=ap.Position("lat", "lon"))
    flat: ap.Stream[Any] = ap.Stream(_table(), key="k", time="t", value=ap.Exact("lon", "lat"))
    for marked in with_column, with_table:
        rejects = ap.rejects(_joined(marked(table, "geom"), ap.Position(geography="geom"))).to_pylist()
        whole = {row["detail"] for row in rejects}
        assert whole == (set() if named is None else {f"geom is of {named}, not WGS 84 (4326)"})
        found = ap.rejects(ap.match_queries(stream, marked(fence, "region"))).to_pylist()
        wrong = f"{named}: positions need longitude and latitude on WGS 84 (4326)"
        assert [row["detail"] for row in found] == ([] if named is None else [wrong])
        assert len(ap.match_queries(flat, marked(fence, "region"))) == 3


def test_encounters_fences_conditions_and_nearest_take_them() -> None:
    given, plain = _table(FORMATS["wkb"](POINTS)), _table()
    both = [(given, ap.Position(geography="geom", sigma=3.0)), (plain, ap.Position("lat", "lon", sigma=3.0))]
    fences = pd.DataFrame({"query": ["f"], "region": ["POLYGON ((-2 50, 0 50, 0 51, -2 51, -2 50))"]})
    motion = ap.Straight(max_gap=100)

    def answers(frame: pa.Table, value: ap.Position) -> list[Any]:
        stream = ap.Stream(frame, key="k", time="t", value=value)
        moving = ap.Stream(frame, key="k", time="t", value=value, motion=motion)
        other = ap.Stream(plain, key="k", time="t", value=ap.Position("lat", "lon"), name="other")
        found = [
            ap.fence_events(stream, fences),
            ap.encounters(moving, epsilon=3_000, probability=0.1),
            ap.nearest(stream, other, epsilon=1e6, window=10).drop_columns(["left_stream"]),
        ]
        return [sorted(map(str, table.to_pylist())) for table in found]

    ours, theirs = (answers(*one) for one in both)
    assert ours == theirs
    assert all(ours[i] for i in (0, 2))
    queries = pd.DataFrame({"query": ["north"], "condition": ["geom_lat > 0 AND geom_lon < -1.12"]})
    stream = ap.Stream(given, key="k", time="t", value=ap.Position(geography="geom", sigma=3.0))
    assert ap.match_queries(stream, queries, probability=0.9)["key"].to_pylist() == ["a", "d"]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (ap.Position, "names no place"),
        (lambda: ap.Position("lat"), "names no place"),
        (lambda: ap.Position("lat", "lon", geography="geom"), "Give one of them"),
        (lambda: _joined(_table(), ap.Position(geography="lat")), "is double. Give points as WKB"),
        (lambda: _joined(_table(), ap.Position(geography="gone")), "no column 'gone'"),
    ],
)
def test_what_makes_no_sense_is_an_error(make: Callable[[], Any], words: str) -> None:
    with pytest.raises(ap.BadArgument, match=words):
        make()


def test_spark_takes_them_as_bytes_and_as_geometries(spark: SparkSession) -> None:
    rows = _table(FORMATS["wkb"](POINTS)).to_pandas()
    value, expected = ap.Position(geography="geom"), _joined(_table(), ap.Position("lat", "lon"))
    frame = spark.createDataFrame(rows)
    made = ("ST_GeomFromWKB(geom, 4326)", "ST_GeogFromWKB(geom)")
    frames = [frame, *(frame.selectExpr("k", "t", f"{function} AS geom") for function in made)]
    for one in frames:
        found = _joined(one, value).toArrow()
        assert sorted(map(str, found.to_pylist())) == sorted(map(str, expected.to_pylist()))
