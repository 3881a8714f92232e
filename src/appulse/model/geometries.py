"""Geometries as they are given: read by shapely, checked, and widened and cut where they have to be."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from appulse.errors import BadArgument
from appulse.model.crs import WGS84, srid_of, srid_of_geopandas, system_name
from appulse.model.positions import centred, degrees_around

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from appulse.kernels.arrays import Floats
    from appulse.kernels.geodesic import Earth

#: Column of geometries in a frame of fences or queries.
REGION = "region"
_POINT = "Point"
_SIMPLE = ("Point", "LineString", "Polygon", "MultiPoint", "MultiLineString", "MultiPolygon")
_HALF_TURN, _POLE = 180.0, 90.0
_HEX = re.compile(r"(?:[0-9A-Fa-f]{2})+")
# Longitudes are those from -180 to 180, and the same a turn away.
_TURN, _FARTHEST = 2.0 * _HALF_TURN, 3.0 * _HALF_TURN
_RINGS = 2  # lists of lists of places
# A quarter of a circle has so many corners, where a line or polygon is widened: none is off by more than 0.03 %.
_CORNERS = 32
# Radians between places of a line around which there are circles: two kilometres on the Earth.
_STEP = 2_000.0 / 6_378_137.0
# Parts of a great circle to a radian of it, and at most.
_PARTS, _MOST_PARTS = 4_000.0, 8_192.0


def shapely_module() -> Any:
    """shapely, or `BadArgument` where it is not installed."""
    try:
        import shapely
    except ImportError as error:
        raise BadArgument("Regions are read by shapely, which is not installed. pip install 'appulse[geo]'") from error
    return shapely


def parsed(shapely: Any, given: Sequence[Any]) -> NDArray[Any]:
    """Geometries of WKB, also in hexadecimal digits, and WKT; null for what is neither."""
    shapes = np.full(len(given), None, object)
    given = [bytes.fromhex(one) if isinstance(one, str) and _HEX.fullmatch(one) else one for one in given]
    for kind, reader in ((bytes, shapely.from_wkb), (str, shapely.from_wkt)):
        of_kind = [row for row, one in enumerate(given) if isinstance(one, kind)]
        shapes[of_kind] = reader([given[row] for row in of_kind], on_invalid="ignore")
    return shapes


def read(shapely: Any, given: Sequence[Any]) -> tuple[NDArray[Any], dict[int, str]]:
    """Geometries, null where there is none that can be read, and why."""
    shapes, wrong = parsed(shapely, given), {}
    readers: dict[type, Any] = {bytes: shapely.from_wkb, str: shapely.from_wkt}
    for row in np.flatnonzero(shapely.is_missing(shapes)).tolist():
        try:
            shapes[row] = _read_one(shapely, given[row], readers)
        except (shapely.errors.ShapelyError, AttributeError, KeyError, TypeError, ValueError) as error:
            wrong[row] = f"no geometry: {error}" if given[row] is not None else "region is null"
    return shapes, wrong


def _read_one(shapely: Any, given: Any, readers: Mapping[type, Any]) -> Any:
    """A geometry in whatever format; raises where it is none."""
    if isinstance(given, bytes | str) and given.lstrip()[:1] in (b"{", "{"):
        return shapely.from_geojson(given)
    if type(given) in readers:
        return readers[type(given)](given)
    if isinstance(given, Mapping) and "wkb" in given:  # GEOMETRY of Spark
        return shapely.set_srid(shapely.from_wkb(given["wkb"]), given.get("srid") or 0)
    if isinstance(given, Mapping) and "coordinates" in given:  # an object of GeoJSON
        return shapely.geometry.shape(given)
    if isinstance(given, Mapping):
        return shapely.Point(*_place(given))
    if isinstance(given, list):  # of GeoArrow
        return _of_rings(shapely, given)
    if not hasattr(given, "geom_type"):
        raise TypeError(f"a {type(given).__name__}")
    return given


def _of_rings(shapely: Any, given: list[Any]) -> Any:
    """Nested lists of places: a point, a line, a polygon as its rings, or several polygons."""
    depth, inner = 0, given
    while isinstance(inner, list) and inner and not isinstance(inner[0], int | float):
        depth, inner = depth + 1, inner[0]
    if depth == 0:
        return shapely.Point(given)
    if depth == 1:
        return shapely.LineString([_place(one) for one in given])
    if depth == _RINGS:
        rings = [[_place(one) for one in ring] for ring in given]
        return shapely.Polygon(rings[0], rings[1:])
    if depth == _RINGS + 1:
        return shapely.MultiPolygon([_of_rings(shapely, part) for part in given])
    raise TypeError("nested lists that are not a polygon")


def _place(given: Any) -> tuple[float, float]:
    x, y = (given["x"], given["y"]) if isinstance(given, Mapping) else given[:2]
    return x, y


def troubles(shapely: Any, shapes: NDArray[Any], radii: Floats, earth: Earth | None) -> Iterator[tuple[int, str]]:
    """What keeps geometries from being regions, the first of each; a radius that is NaN is none."""
    bounds = shapely.bounds(shapes)
    known = np.isin(shapely.get_type_id(shapes), [shapely.GeometryType[name.upper()] for name in _SIMPLE])
    there = ~shapely.is_missing(shapes)
    good = there & known & ~shapely.is_empty(shapes) & np.isfinite(bounds).all(axis=1) & ~(radii < 0.0)
    good &= ~np.isinf(radii)
    good[good] = shapely.is_valid(shapes[good])
    if earth is not None:
        good &= np.array([not _outside(box) for box in bounds], bool)
        good &= np.isin(shapely.get_srid(shapes), WGS84)
    for row in np.flatnonzero(there & ~good).tolist():
        yield row, next(_trouble(shapely, shapes[row], float(radii[row]), earth))


def _outside(box: Floats) -> bool:
    """Whether a box has a part that is no latitude, or no longitude even a turn away, or goes more than once around."""
    west, south, east, north = box
    return bool(south < -_POLE or north > _POLE or west < -_FARTHEST or east > _FARTHEST or east - west > _TURN)


def _trouble(shapely: Any, shape: Any, radius: float, earth: Earth | None) -> Iterator[str]:
    """What keeps a geometry from being a region."""
    if np.isinf(radius) or radius < 0.0:
        yield f"radius is {radius}"
    if shape.is_empty:
        yield "an empty geometry"
    if shape.geom_type not in _SIMPLE:
        yield f"a {shape.geom_type} is not a point, line or polygon, nor several of one kind"
    if not np.isfinite(shapely.get_coordinates(shape)).all():
        yield "coordinates that are not finite"
    if not shape.is_valid:
        yield f"an invalid geometry: {shapely.is_valid_reason(shape)}"
    if earth is not None and shapely.get_srid(shape) not in WGS84:
        named = system_name(int(shapely.get_srid(shape)))
        yield f"{named}: positions need longitude and latitude on WGS 84 (4326)"
    if earth is not None:
        west, south, east, north = shape.bounds
        if east - west > _TURN:
            yield f"{east - west:g} degrees of longitude are more than a turn"
        swapped = max(abs(west), abs(east)) <= _POLE and max(abs(south), abs(north)) <= _HALF_TURN
        hint = ": latitude and longitude may be swapped" if swapped else ""
        yield f"coordinates outside longitude [-540, 540] and latitude [-90, 90]{hint}"


def widened(shapely: Any, shapes: NDArray[Any], radii: Floats, earth: Earth | None) -> NDArray[Any]:
    """All that is no farther from lines and polygons than a radius, in metres on an Earth, in arc seconds on the sky.

    Where circles come in, they have corners: 128 all around.
    """
    if earth is None:
        found: NDArray[Any] = shapely.buffer(shapes, radii, quad_segs=_CORNERS)
        return found
    wide = [_corridor(shapely, shape, radius, earth) for shape, radius in zip(shapes, radii.tolist(), strict=True)]
    return np.array([*wide, None], object)[:-1]


def _corridor(shapely: Any, shape: Any, radius: float, earth: Earth) -> Any:
    """Hulls of circles around places of the lines of a geometry, each with the next, and what is inside of it."""
    if radius == 0.0:
        return shape
    turn = 2.0 * np.pi * np.arange(4 * _CORNERS) / (4 * _CORNERS)
    circle = radius * np.column_stack([np.cos(turn), np.sin(turn)])
    parts = [shape]
    for part in shapely.get_parts(shape):
        for line in [part] if part.geom_type != "Polygon" else shapely.get_rings(part):
            places = shapely.get_coordinates(line)
            steps = np.radians(np.hypot(*np.diff(places, axis=0).T)) // _STEP + 1
            share = np.concatenate([np.arange(n) / n for n in steps.astype(int).tolist()] + [[1.0]])
            first = np.append(np.repeat(np.arange(len(steps)), steps.astype(int)), max(0, len(steps) - 1))
            last = np.minimum(first + 1, len(places) - 1)
            at = places[first] + share[:, None] * (places[last] - places[first])
            offset = np.broadcast_to(circle, (len(at), *circle.shape))
            around = degrees_around(centred(at[:, 1], at[:, 0], earth), offset, earth)[:, :, ::-1].copy()
            around[..., 0] = at[:, None, 0] + np.remainder(around[..., 0] - at[:, None, 0] + 180.0, 360.0) - 180.0
            hulls = [shapely.convex_hull(shapely.multipoints(np.vstack(two))) for two in pairwise(around)]
            parts += hulls or [shapely.convex_hull(shapely.multipoints(around[0]))]
    areas = [part for part in parts if part.geom_type in ("Polygon", "MultiPolygon")]
    return shapely.union_all(areas)


def turned_back(shapely: Any, shapes: NDArray[Any]) -> NDArray[Any]:
    """Geometries in degrees, those that begin beyond the 180th meridian a turn to where they begin before it."""
    west = shapely.bounds(shapes)[:, 0]
    beyond = np.flatnonzero((west < -_HALF_TURN) | (west >= _HALF_TURN))
    if len(beyond):
        shapes = shapes.copy()
    for row in beyond.tolist():
        turn = _TURN * np.floor((west[row] + _HALF_TURN) / _TURN)
        shapes[row] = shapely.transform(shapes[row], lambda at, turn=turn: at - [turn, 0.0])
    return shapes


def cut(shapely: Any, shapes: NDArray[Any]) -> NDArray[Any]:
    """Geometries in degrees, what lies beyond the 180th meridian as a part at the other side of it."""
    bounds = shapely.bounds(shapes)
    beyond = np.flatnonzero((bounds[:, 0] < -_HALF_TURN) | (bounds[:, 2] > _HALF_TURN))
    if len(beyond):
        shapes = shapes.copy()
    for row in beyond.tolist():
        kind = shapes[row].geom_type.removeprefix("Multi")
        parts = []
        for turn in (-1, 0, 1):
            west = (2 * turn - 1) * _HALF_TURN
            part = shapely.intersection(shapes[row], shapely.box(west, -_POLE, west + _TURN, _POLE))
            moved = shapely.transform(part, lambda at, turn=turn: at - [_TURN * turn, 0.0])
            parts += [one for one in shapely.get_parts(moved) if one.geom_type == kind]
        shapes[row] = shapely.union_all(parts)
    return shapes


def geometries_of(table: pa.Table) -> list[Any]:
    """The geometries of a table of regions, with the SRID of its metadata; edges that are great circles as short ones.

    Edges are great circles if the column says so, as GeoArrow or GEOGRAPHY of Spark, or the table, as GeoParquet.
    """
    given: list[Any] = table[REGION].to_pylist()
    curved, srid = _by_great_circles(table), srid_of(table.schema, REGION, "geometry")
    if not curved and srid in WGS84:
        return given
    shapely = shapely_module()
    shapes, wrong = read(shapely, given)
    for row, shape in enumerate(shapes):
        if row not in wrong and np.isfinite(shapely.get_coordinates(shape)).all():
            one = _along_great_circles(shapely, shape) if curved and srid in WGS84 else shape
            one = one if srid in WGS84 else shapely.set_srid(one, srid)
            given[row] = shapely.to_wkb(one, include_srid=True)
    return given


def _by_great_circles(table: pa.Table) -> bool:
    field = table.schema.field(REGION)
    if pa.types.is_struct(field.type) and any(b"geography" in (part.metadata or {}) for part in field.type):
        return True
    own = field.metadata or {}
    whole = table.schema.metadata or {}
    try:
        arrow = json.loads(own.get(b"ARROW:extension:metadata") or b"{}")
        parquet = json.loads(whole.get(b"geo") or b"{}").get("columns", {})
        found = [arrow, *(parquet.get(name) for name in (REGION, "geometry"))]
        return any(one.get("edges") == "spherical" for one in found if one is not None)
    except (ValueError, AttributeError):
        return False


def _along_great_circles(shapely: Any, shape: Any) -> Any:
    """With so many places on each edge that none is off by more than a few centimetres."""

    def along(places: Floats) -> Floats:
        lon, lat = np.radians(places).T
        unit = np.column_stack([np.cos(lat) * np.cos(lon), np.cos(lat) * np.sin(lon), np.sin(lat)])
        parts = [places[:1]]
        for (a, b), end in zip(pairwise(unit), places[1:], strict=True):
            angle = float(np.arctan2(np.linalg.norm(np.cross(a, b)), a @ b))
            # Of n parts of an arc each is n^2 times closer to its chord than the whole.
            share = np.arange(1, int(min(_MOST_PARTS, 1 + _PARTS * angle))) / int(min(_MOST_PARTS, 1 + _PARTS * angle))
            if len(share):
                at = np.outer(np.sin((1.0 - share) * angle), a) + np.outer(np.sin(share * angle), b)
                turned = np.degrees(np.arctan2(at[:, 1], at[:, 0]))
                turned = parts[-1][-1, 0] + np.remainder(turned - parts[-1][-1, 0] + 180.0, 360.0) - 180.0
                parts.append(np.column_stack([turned, np.degrees(np.arctan2(at[:, 2], np.hypot(at[:, 0], at[:, 1])))]))
            near = parts[-1][-1, 0]
            parts.append(np.array([[near + np.remainder(end[0] - near + 180.0, 360.0) - 180.0, end[1]]]))
        return np.vstack(parts)

    return _with_lines(shapely, shape, along)


def _with_lines(shapely: Any, shape: Any, change: Callable[[Floats], Floats]) -> Any:
    """A geometry, each of its lines and rings changed."""
    if shape.geom_type == "Polygon":
        rings = [change(shapely.get_coordinates(ring)) for ring in (shape.exterior, *shape.interiors)]
        found = shapely.Polygon(rings[0], rings[1:]) if len(rings[0]) else shape
    elif shape.geom_type == "LineString":
        found = shapely.LineString(change(shapely.get_coordinates(shape))) if not shape.is_empty else shape
    elif hasattr(shape, "geoms") and shape.geom_type in _SIMPLE:
        found = type(shape)([_with_lines(shapely, part, change) for part in shape.geoms])
    else:
        found = shape
    return shapely.set_srid(found, shapely.get_srid(shape))


def from_geojson(geometry: Any) -> bytes | None:
    """A geometry of GeoJSON as WKB, or as its text if it is none, for `read` to say why; null as null."""
    if geometry is None:
        return None
    shapely, text = shapely_module(), json.dumps(geometry)
    try:
        wkb: bytes = shapely.to_wkb(shapely.from_geojson(text))
    except shapely.errors.ShapelyError:
        return text.encode()
    return wkb


def with_wkb(frame: Any) -> Any:
    """A pandas frame whose column ``region`` holds geometries of shapely, with these as WKB; others as they are.

    The SRID of a GeoPandas frame comes along.
    """
    made_by = type(frame).__module__.split(".")[0]
    if made_by not in ("pandas", "geopandas") or getattr(frame, "columns", None) is None:
        return frame
    if REGION not in frame.columns:
        if made_by == "geopandas":
            raise BadArgument(f"Fences have no column {REGION!r}. Name it: frame.rename_geometry({REGION!r}).")
        return frame
    values = list(frame[REGION])
    if not any(hasattr(value, "geom_type") for value in values):
        return frame
    shapely = shapely_module()
    plain = {name: frame[name].to_numpy() for name in frame.columns if name != REGION}
    import pandas as pd

    crs = getattr(frame[REGION], "crs", None)
    srid = None if crs is None else srid_of_geopandas(crs)
    wkb = [_as_wkb(shapely, value, srid) if hasattr(value, "geom_type") else value for value in values]
    return pd.DataFrame({**plain, REGION: wkb})


def _as_wkb(shapely: Any, shape: Any, srid: int | None) -> bytes:
    wkb: bytes = shapely.to_wkb(shape if srid is None else shapely.set_srid(shape, srid), include_srid=True)
    return wkb
