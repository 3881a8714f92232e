"""Regions of a frame of fences or queries: geometry read by shapely, as arrays."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from appulse.errors import BadArgument
from appulse.kernels.regions import BLOCK, RegionIndex, Regions, entries, fill_slots, rasterise
from appulse.model.meaning import digest_of
from appulse.model.positions import centred

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from appulse.kernels.geodesic import Earth

#: Columns of a frame of fences.
QUERY, REGION, RADIUS = "query", "region", "radius"
#: Metres of a degree of latitude, at the least there is on the Earth.
_METRES = 110_500.0
_AREAS, _POINTS = ("Polygon", "MultiPolygon"), ("Point",)
_HALF_TURN, _POLE, _WGS84 = 180.0, 90.0, 4326
_RINGS = 2  # lists of lists of places


class BadRegion(NamedTuple):
    """A row that is no region, and why."""

    row: int
    why: str


@dataclass(frozen=True)
class RegionSet:
    """Regions as arrays, with an index; ``rows`` are those of the frame that they came in.

    ``digest`` is that of the geometries, whatever format they came in.
    """

    arrays: Regions
    index: RegionIndex
    rows: NDArray[np.int64]
    bad: tuple[BadRegion, ...]
    digest: str


def regions_of(given: Sequence[Any], radii: Sequence[float | None], earth: Earth | None) -> RegionSet:
    """Geometries (WKB, WKT, GeoArrow, or of shapely) as regions: polygons, and points with a radius, which are discs.

    On an Earth coordinates are longitude and latitude, and radii metres.
    """
    shapely = _shapely()
    widths = np.array([np.nan if radius is None else radius for radius in radii], float)
    disc = np.array([radius is not None for radius in radii], bool)
    shapes, wrong = _read(shapely, given)
    wrong |= {row: why for row, why in _troubles(shapely, shapes, disc, widths, earth) if row not in wrong}
    rows = np.setdiff1d(np.arange(len(shapes)), np.array(list(wrong), np.int64))
    shapes, disc, widths = shapes[rows], disc[rows], widths[rows]
    box = shapely.bounds(shapes).reshape(-1, 4)
    centre = np.zeros((len(rows), 3))
    points = np.flatnonzero(disc)
    centre[points, :2] = box[points, :2]
    for i in points:
        box[i] = _around(centre[i, 0], centre[i, 1], widths[i], earth)
    if earth is not None and len(centre):
        centre = centred(centre[:, 1], centre[:, 0], earth)
    first, start, bounds, edges = _edges(shapely, shapes, np.flatnonzero(~disc))
    arrays = Regions(first, start, bounds, edges, box, widths, centre, np.zeros((len(rows), 8), np.uint64))
    rasterise(arrays)
    texts = shapely.to_wkb(shapes, byte_order=1, output_dimension=2)
    digest = digest_of([widths.tobytes(), *texts])
    bad = tuple(BadRegion(row, wrong[row]) for row in sorted(wrong))
    return RegionSet(arrays, index_of(arrays), rows, bad, digest)


def index_of(regions: Regions) -> RegionIndex:
    """Cells of regions: each in those of a size that is the least power of two not below its own."""
    n = len(regions.radius)
    size = np.maximum(regions.box[:, 2] - regions.box[:, 0], regions.box[:, 3] - regions.box[:, 1])
    level = np.ceil(np.log2(np.maximum(size, 1e-9))).astype(np.int64)
    most = 4 * n
    hashes, owners = np.empty(most, np.uint64), np.empty(most, np.int64)
    total = entries(regions, level, hashes, owners)
    hashes, owners = hashes[:total], owners[:total]
    order = np.argsort(hashes, kind="stable")
    slots = 1 << max(1, (2 * total).bit_length())
    cells, begin, end = np.zeros(slots, np.uint64), np.zeros(slots, np.int64), np.zeros(slots, np.int64)
    fill_slots(hashes[order], cells, begin, end)
    return RegionIndex(cells, begin, end, owners[order], np.unique(level))


def _shapely() -> Any:
    try:
        import shapely
    except ImportError as error:
        raise BadArgument("Regions are read by shapely, which is not installed. pip install 'appulse[geo]'") from error
    return shapely


def _read(shapely: Any, given: Sequence[Any]) -> tuple[NDArray[Any], dict[int, str]]:
    """Geometries, null where there is none that can be read, and why."""
    shapes = np.full(len(given), None, object)
    readers: dict[type, Any] = {bytes: shapely.from_wkb, str: shapely.from_wkt}
    for kind, reader in readers.items():
        of_kind = [row for row, one in enumerate(given) if isinstance(one, kind)]
        shapes[of_kind] = reader([given[row] for row in of_kind], on_invalid="ignore")
    wrong = {}
    for row in np.flatnonzero(shapely.is_missing(shapes)).tolist():
        try:
            shapes[row] = _read_one(shapely, given[row], readers)
        except (shapely.errors.ShapelyError, AttributeError, KeyError, TypeError, ValueError) as error:
            wrong[row] = f"no geometry: {error}" if given[row] is not None else "region is null"
    return shapes, wrong


def _read_one(shapely: Any, given: Any, readers: Mapping[type, Any]) -> Any:
    """A geometry in whatever format; raises where it is none."""
    if type(given) in readers:
        return readers[type(given)](given)
    if isinstance(given, Mapping) and "wkb" in given:  # GEOMETRY of Spark
        return shapely.set_srid(shapely.from_wkb(given["wkb"]), given.get("srid") or 0)
    if isinstance(given, Mapping):
        return shapely.Point(*_place(given))
    if isinstance(given, list):  # of GeoArrow
        return _of_rings(shapely, given)
    if not hasattr(given, "geom_type"):
        raise TypeError(f"a {type(given).__name__}")
    return given


def _of_rings(shapely: Any, given: list[Any]) -> Any:
    """Nested lists of places: a point, a polygon as its rings, or several polygons."""
    depth, inner = 0, given
    while isinstance(inner, list) and inner and not isinstance(inner[0], int | float):
        depth, inner = depth + 1, inner[0]
    if depth == 0:
        return shapely.Point(given)
    if depth == _RINGS:
        rings = [[_place(one) for one in ring] for ring in given]
        return shapely.Polygon(rings[0], rings[1:])
    if depth == _RINGS + 1:
        return shapely.MultiPolygon([_of_rings(shapely, part) for part in given])
    raise TypeError("nested lists that are no polygon")


def _place(given: Any) -> tuple[float, float]:
    x, y = (given["x"], given["y"]) if isinstance(given, Mapping) else given[:2]
    return x, y


def _troubles(
    shapely: Any, shapes: NDArray[Any], disc: NDArray[np.bool_], radii: NDArray[np.float64], earth: Earth | None
) -> Iterator[tuple[int, str]]:
    """What keeps geometries from being regions, the first of each."""
    kind, bounds = shapely.get_type_id(shapes), shapely.bounds(shapes)
    areas = np.isin(kind, [shapely.GeometryType[name.upper()] for name in _AREAS])
    point = kind == shapely.GeometryType.POINT
    there, empty = ~shapely.is_missing(shapes), shapely.is_empty(shapes)
    good_radius = np.isfinite(radii) & (radii >= 0.0)
    good = there & ~empty & np.where(disc, point & good_radius, areas) & np.isfinite(bounds).all(axis=1)
    good[good] = shapely.is_valid(shapes[good])
    if earth is not None:
        within = (np.abs(bounds[:, ::2]) <= _HALF_TURN).all(axis=1) & (np.abs(bounds[:, 1::2]) <= _POLE).all(axis=1)
        good &= within & np.isin(shapely.get_srid(shapes), (-1, 0, _WGS84))
    for row in np.flatnonzero(~good):
        if there[row]:
            own = _trouble(shapely, shapes[row], float(radii[row]) if disc[row] else None)
            yield int(row), next(own, "") or next(_trouble_on_earth(shapely, shapes[row]))


def _trouble(shapely: Any, shape: Any, radius: float | None) -> Iterator[str]:
    """What keeps a geometry from being a region."""
    kind = shape.geom_type
    if radius is not None and not (np.isfinite(radius) and radius >= 0.0):
        yield f"radius is {radius}"
    if shape.is_empty:
        yield "an empty geometry"
    if radius is None and kind not in _AREAS:
        yield f"a {kind} has no area" + (": give a radius" if kind in _POINTS else "")
    if radius is not None and kind not in _POINTS:
        yield f"radius widens points, and this is a {kind}: buffer it first"
    if not np.isfinite(shapely.get_coordinates(shape)).all():
        yield "coordinates that are not finite"
    if not shape.is_valid:
        yield f"an invalid geometry: {shapely.is_valid_reason(shape)}"


def _trouble_on_earth(shapely: Any, shape: Any) -> Iterator[str]:
    west, south, east, north = shape.bounds
    if south < -_POLE or north > _POLE or west < -_HALF_TURN or east > _HALF_TURN:
        swapped = max(abs(west), abs(east)) <= _POLE
        hint = ": latitude and longitude may be swapped" if swapped else ""
        yield f"coordinates outside longitude [-180, 180] and latitude [-90, 90]{hint}"
    yield f"SRID {shapely.get_srid(shape)}: positions need 4326, longitude and latitude on WGS 84"


def _edges(shapely: Any, shapes: NDArray[Any], areas: NDArray[np.intp]) -> tuple[NDArray[Any], ...]:
    """Edges of all rings, the inside at their left, in blocks: ``first, start, bounds, edges`` of `Regions`.

    ``areas`` are the shapes that have any.
    """
    polygons, owner = shapely.get_parts(shapely.orient_polygons(shapes[areas]), return_index=True)
    rings, part = shapely.get_rings(polygons, return_index=True)
    corners, ring = shapely.get_coordinates(rings, return_index=True)
    same = np.flatnonzero(ring[1:] == ring[:-1])
    edges, ring = np.hstack([corners[same], corners[same + 1]]).reshape(-1, 4), ring[same]
    place = np.arange(len(edges)) - np.searchsorted(ring, ring)  # within its ring
    start = np.flatnonzero(place % BLOCK == 0)
    first = np.searchsorted(areas[owner[part[ring[start]]]], np.arange(len(shapes) + 1))
    ends = np.stack([np.minimum(edges[:, :2], edges[:, 2:]), np.maximum(edges[:, :2], edges[:, 2:])])
    bounds = np.empty((len(start), 4))
    if len(start):
        bounds[:, :2], bounds[:, 2:] = np.minimum.reduceat(ends[0], start), np.maximum.reduceat(ends[1], start)
    return first.astype(np.int64), np.append(start, len(edges)).astype(np.int64), bounds, edges


def _around(x: float, y: float, radius: float, earth: Earth | None) -> tuple[float, float, float, float]:
    """A box around a disc; on the Earth one that reaches over the 180th meridian has all longitudes."""
    if earth is None:
        return x - radius, y - radius, x + radius, y + radius
    high = radius / _METRES
    south, north = max(-90.0, y - high), min(90.0, y + high)
    # Of a circle the longitudes reach farthest at the latitude of its tangents.
    narrow = np.cos(np.radians(y))
    across = np.sin(min(np.radians(high), np.pi / 2.0))
    if across >= narrow:
        return -180.0, south, 180.0, north
    wide = np.degrees(np.arcsin(across / narrow)) * 1.0001
    if x - wide < -180.0 or x + wide > 180.0:
        return -180.0, south, 180.0, north
    return x - wide, south, x + wide, north


def from_geojson(geometry: Any) -> bytes | None:
    """A geometry of GeoJSON as WKB; null as null."""
    if geometry is None:
        return None
    shapely = _shapely()
    try:
        wkb: bytes = shapely.to_wkb(shapely.from_geojson(json.dumps(geometry)))
    except shapely.errors.ShapelyError as error:
        raise ValueError(str(error)) from error
    return wkb


def with_wkb(frame: Any) -> Any:
    """A pandas frame whose column ``region`` holds geometries of shapely, with these as WKB; others as they are.

    The SRID of a GeoPandas frame comes along.
    """
    column = getattr(frame, "columns", None)
    if column is None or type(frame).__module__.split(".")[0] not in ("pandas", "geopandas"):
        return frame
    if REGION not in column:
        if type(frame).__module__.split(".")[0] == "geopandas":
            raise BadArgument(f"Fences have no column {REGION!r}. Name it: frame.rename_geometry({REGION!r}).")
        return frame
    values = list(frame[REGION])
    if not any(hasattr(value, "geom_type") for value in values):
        return frame
    shapely = _shapely()
    plain = {name: frame[name].to_numpy() for name in frame.columns if name != REGION}
    import pandas as pd

    crs = getattr(frame[REGION], "crs", None)
    srid = (crs.to_epsg() or 0) if crs is not None else None
    wkb = [_as_wkb(shapely, value, srid) if hasattr(value, "geom_type") else value for value in values]
    return pd.DataFrame({**plain, REGION: wkb})


def _as_wkb(shapely: Any, shape: Any, srid: int | None) -> bytes:
    wkb: bytes = shapely.to_wkb(shape if srid is None else shapely.set_srid(shape, srid), include_srid=True)
    return wkb
