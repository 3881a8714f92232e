"""Exact places on the 180th meridian: which regions they lie in, at either end of all longitudes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
import shapely

import appulse as ap

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

_HOLE = shapely.box(178.0, -5.0, 183.0, 5.0)


def _regions(seed: int) -> list[shapely.Geometry]:
    """Triangles over the meridian, some with a hole on it, and boxes at one side of it."""
    corners = np.random.default_rng(seed).uniform((170.0, -20.0), (190.0, 20.0), (40, 3, 2))
    triangles = [shapely.Polygon(three) for three in corners]
    holed = [shapely.box(171.0, -19.0 + k, 189.0, 19.0 - k) - _HOLE for k in range(3)]
    return [*triangles, *holed, shapely.box(180.0, 0.0, 190.0, 9.0), shapely.box(175.0, -9.0, 180.0, 0.0)]


@pytest.mark.parametrize(
    ("call", "condition"),
    [
        (ap.fence_events, None),
        (ap.fence_events, "v > 0"),
        (ap.match_queries, None),
        (ap.match_queries, "v > 0"),
        (ap.match_queries, "lat > -90"),
    ],
)
@pytest.mark.parametrize("earth", ["wgs84", "sky"])
@pytest.mark.parametrize("sigma", [None, 0.0, "error"])
def test_they_lie_in_what_covers_them(call: Callable[..., Any], earth: Any, sigma: Any, condition: str | None) -> None:
    """Not in all of its box; -180 is the same longitude as 180."""
    regions, n = _regions(3), 24
    lat = np.random.default_rng(4).uniform(-20.0, 20.0, n)
    lat[:2] = 0.0, 9.0  # at the boundary
    rows = pa.table(
        {"id": range(n), "t": [0] * n, "lat": lat, "lon": [180.0, -180.0] * (n // 2), "error": [0.0] * n, "v": [1] * n}
    )
    fences = pa.table({"query": range(len(regions)), "region": [shapely.to_wkt(one, 17) for one in regions]})
    if condition is not None:
        fences = fences.append_column("condition", pa.array([condition] * len(regions)))
    expected = {
        (i, q) for i in range(n) for q, one in enumerate(regions) if one.covers(shapely.Point(180.0, float(lat[i])))
    }
    boxes = {(i, q) for i in range(n) for q, one in enumerate(regions) if one.bounds[1] <= lat[i] <= one.bounds[3]}
    assert 50 < len(expected) < len(boxes)
    model: dict[str, Any] = {"earth": earth} if sigma is None else {"earth": earth, "sigma": sigma}
    value = ap.Position("lat", "lon", **model)
    asked = {} if sigma is None or call is ap.fence_events else {"probability": 0.5}
    found = call(ap.Stream(rows, key="id", time="t", value=value), fences, **asked)
    assert set(zip(found["key"].to_pylist(), found["query"].to_pylist(), strict=True)) == expected


@pytest.mark.parametrize("call", [ap.fence_events, ap.match_queries])
def test_so_they_do_on_spark(spark: SparkSession, call: Callable[..., Any]) -> None:
    rows = [(k, 0, lat, lon) for k, (lat, lon) in enumerate([(-14.5, 180.0), (-14.5, -180.0), (-17.0, 180.0)])]
    frame = spark.createDataFrame([*rows, (3, 0, -17.0, -180.0)], "k long, t long, lat double, lon double")
    shapes = [
        "POLYGON ((178 -20, 182 -17, 178 -14, 178 -20))",
        "POLYGON ((180 -18, 190 -18, 190 -16, 180 -16, 180 -18))",
    ]
    fences = spark.createDataFrame(list(enumerate(shapes)), "query long, region string")
    stream: ap.Stream[Any] = ap.Stream(frame, key="k", time="t", value=ap.Position("lat", "lon"))
    for given in (fences, fences.toArrow()):
        found = call(stream, given, options=ap.Options(partitions=2)).collect()
        assert sorted((row.key, row.query) for row in found) == [(2, 0), (2, 1), (3, 0), (3, 1)]
