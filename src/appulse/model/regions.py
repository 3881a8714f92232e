"""Regions of a frame of fences or queries: geometry read by shapely, as arrays."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from appulse.errors import BadArgument
from appulse.kernels.outlines import areas, outlines
from appulse.kernels.plain_polygons import boxes_of, read_corners, ring_ends, stars
from appulse.kernels.regions import RASTER, Regions, rasterise
from appulse.model.batch import Batch, Ragged
from appulse.model.geometries import REGION, cut, read, shapely_module, troubles, turned_back, widened
from appulse.model.growing_regions import GrowingRegions, search_of
from appulse.model.meaning import digest_of
from appulse.model.positions import centred, metres_of_degrees

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from appulse.kernels.arrays import Flags, Floats, Hashes, Ints
    from appulse.kernels.geodesic import Earth
    from appulse.kernels.near_regions import Search

#: Columns of a frame of fences.
QUERY, RADIUS = "query", "radius"
# Geometries are read so many at a time: what is made of them on the way then stays in the caches.
_PIECE = 2_000
# Of polygons with an area below this, by the squares of their corners' distances, rounding may turn the sign.
_THIN = 1e-9
# No polygon is cut that keeps within these degrees.
_WHOLE = np.array([180.0, 90.0, 180.0, 90.0])
# A little more than 1: what rounding takes, and what flattening adds to the width of a disc.
_MORE = 1.0007
__all__ = [
    "NO_REGIONS",
    "QUERY",
    "RADIUS",
    "REGION",
    "BadRegion",
    "RegionSet",
    "Regions",
    "joined",
    "most_inside",
    "radii_of",
    "regions_of",
    "taken",
]


class BadRegion(NamedTuple):
    """A row that is no region, and why."""

    row: int
    why: str


@dataclass(eq=False)
class RegionSet:
    """Regions as arrays; ``rows`` are those of the frame that they came in.

    ``digest`` is that of the geometries, whatever format they came in; empty where none was asked for.
    """

    arrays: Regions
    rows: Ints
    bad: tuple[BadRegion, ...] = ()
    digest: str = ""
    found_by: Search | None = field(default=None, repr=False)
    _growing: GrowingRegions | None = field(default=None, init=False, repr=False)

    @property
    def search(self) -> Search:
        """What finds them, made once it is asked for."""
        if self.found_by is None:
            self.found_by = search_of(self.arrays) if self._growing is None else self._growing.search
        return self.found_by

    def take(self, at: Ints) -> RegionSet:
        """Some of them, in their order; their rows are those of the same frame."""
        if len(at) == len(self.rows):
            return self
        some = _Numbered(_Rows.of(self.arrays), self.rows).take(at)
        return replace(self, arrays=some.regions.arrays(), rows=some.number, found_by=None)

    def growing(self) -> GrowingRegions:
        """These, to be added to: the first who asks has the room behind them, others a copy once they add."""
        given, self._growing = self._growing, None
        return GrowingRegions(self.arrays) if given is None else given

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_growing": None}


class _Piece(NamedTuple):
    """Some of the geometries of a frame, read: ``rows`` and those that are ``wrong`` are counted from the first."""

    arrays: Regions
    rows: Ints
    wrong: dict[int, str]
    radii: Floats
    texts: Sequence[bytes]


def regions_of(
    given: Sequence[Any],
    radii: Sequence[float | None],
    earth: Earth | None,
    *,
    digested: bool = True,
    rasterised: bool = True,
) -> RegionSet:
    """Geometries (WKB, WKT, GeoArrow, or of shapely) as regions; a radius widens one, and makes a disc of a point.

    On an Earth coordinates are longitude and latitude, and radii metres; on the sky arc seconds. The digest is
    empty unless they are ``digested``, and so are rasters unless they are ``rasterised``.
    """
    starts = range(0, max(1, len(given)), _PIECE)
    pieces = [_piece(given[at : at + _PIECE], radii[at : at + _PIECE], earth, digested=digested) for at in starts]
    if rasterised:
        for piece in pieces:
            rasterise(piece.arrays, 0)
    digest = ""
    if digested:
        texts = (text for piece in pieces for text in piece.texts)
        digest = digest_of([np.concatenate([piece.radii for piece in pieces]).tobytes(), *texts])
    rows = np.concatenate([at + piece.rows for at, piece in zip(starts, pieces, strict=True)])
    bad = tuple(
        BadRegion(at + row, piece.wrong[row])
        for at, piece in zip(starts, pieces, strict=True)
        for row in sorted(piece.wrong)
    )
    if len(pieces) == 1 or not rasterised:  # many at first have room for changes, and changes need none
        return RegionSet(joined([piece.arrays for piece in pieces]), rows, bad, digest)
    growing = GrowingRegions.joined([piece.arrays for piece in pieces])
    found = RegionSet(growing.arrays, rows, bad, digest)
    found._growing = growing  # noqa: SLF001 - of its own kind
    return found


def _piece(given: Sequence[Any], radii: Sequence[float | None], earth: Earth | None, *, digested: bool) -> _Piece:
    shapely = shapely_module()
    if set(map(type, radii)) == {type(None)} and (plain := _plain_polygons(shapely, given, earth)) is not None:
        texts = given if digested else ()
        return _Piece(plain, np.arange(len(given)), {}, np.full(len(given), np.nan), texts)
    widths = np.array([np.nan if radius is None else radius for radius in radii], float)
    shapes, wrong = read(shapely, given)
    nans = {row: "radius is nan" for row, radius in enumerate(radii) if radius is not None and np.isnan(radius)}
    wrong = nans | wrong
    wrong |= {row: why for row, why in troubles(shapely, shapes, widths, earth) if row not in wrong}
    rows = np.setdiff1d(np.arange(len(shapes)), np.array(list(wrong), np.int64))
    shapes, widths = shapes[rows], widths[rows]
    wide = ~np.isnan(widths)
    disc = wide & (shapely.get_type_id(shapes) == shapely.GeometryType.POINT)
    texts = shapely.to_wkb(shapes, byte_order=1, output_dimension=2) if digested else ()
    known = widths.copy()
    wide &= ~disc
    if earth is not None:
        shapes = turned_back(shapely, shapes)
    if wide.any():
        shapes[wide], widths[wide] = widened(shapely, shapes[wide], widths[wide], earth), np.nan
    if earth is not None:
        shapes = cut(shapely, shapes)
    return _Piece(_arrays(shapely, shapes, disc, widths, earth), rows, wrong, known, texts)


def _plain_polygons(shapely: Any, given: Sequence[Any], earth: Earth | None) -> Regions | None:
    """The same of valid polygons of one ring in WKB, little endian and without an SRID; None if any is something else.

    shapely reads only those that are not valid at first sight.
    """
    if set(map(type, given)) != {bytes}:
        return None
    data, ends = np.frombuffer(b"".join(given), np.uint8), np.cumsum(np.fromiter(map(len, given), np.int64, len(given)))
    begin = ring_ends(data, ends)
    if not len(begin):
        return None
    corners = np.empty((begin[-1], 2), "<f8")
    read_corners(data, ends, begin, corners.reshape(-1).view(np.uint8))
    box, good = boxes_of(corners, begin)
    if not good.all() or (earth is not None and (np.abs(box) > _WHOLE).any()):
        return None
    area, size = areas(corners, begin)
    turned, sure = area < 0.0, stars(corners, begin)
    thin = np.abs(area) <= _THIN * size
    asked = np.flatnonzero(thin | ~sure)
    if len(asked):
        shapes = shapely.from_wkb([given[i] for i in asked.tolist()])
        if not shapely.is_valid(shapes).all():
            return None
        turned[asked] = ~shapely.is_ccw(shapely.get_exterior_ring(shapes))
    n = len(given)
    outline = outlines(corners, begin, np.arange(n), turned, n)
    centre = np.zeros((n, 3)) if earth is None else centred(np.zeros(n), np.zeros(n), earth)
    return Regions(*outline, box, np.full(n, np.nan), centre, np.zeros((n, RASTER), np.uint64))


def radii_of(table: pa.Table, what: str) -> list[float | None]:
    """By how much each region of a table is widened, which holds ``what``."""
    if RADIUS not in table.column_names:
        return [None] * len(table)
    try:
        found: list[float | None] = table[RADIUS].cast(pa.float64()).to_pylist()
    except pa.ArrowException as error:
        raise BadArgument(f"The column radius of the {what} holds {table[RADIUS].type}. Give numbers.") from error
    return found


def _arrays(shapely: Any, shapes: NDArray[Any], disc: Flags, radius: Floats, earth: Earth | None) -> Regions:
    box = shapely.bounds(shapes).reshape(-1, 4)
    centre = np.zeros((len(shapes), 3))
    points = np.flatnonzero(disc)
    centre[points, :2] = box[points, :2]
    for i in points:
        box[i] = _around(centre[i, 0], centre[i, 1], radius[i], earth)
    if earth is not None and len(centre):
        centre = centred(centre[:, 1], centre[:, 0], earth)
    first, start, bounds, edges = _edges(shapely, shapes, np.flatnonzero(~disc))
    return Regions(first, start, bounds, edges, box, radius, centre, np.zeros((len(shapes), RASTER), np.uint64))


def most_inside(regions: Regions, sigma: float, earth: Earth | None) -> Floats:
    """The most that Pr{inside} of each region can be for normal errors, wherever the mean is.

    ``sigma`` is their deviation, or the geometric mean of both axes. No set of an area holds more of a normal
    distribution than the disc, or the ellipse, of that area around its mean.
    """
    radius = np.where(np.isnan(regions.radius), 0.0, regions.radius)
    a, b = regions.edges[:, :2], regions.edges[:, 2:]
    owner = np.repeat(np.arange(len(radius)), np.diff(regions.start[regions.first]))
    origin = regions.box[owner, :2]  # so that nothing large cancels
    twice = (a - origin)[:, 0] * (b - origin)[:, 1] - (a - origin)[:, 1] * (b - origin)[:, 0]
    area = 0.5 * np.bincount(owner, twice, len(radius))
    if earth is not None:
        # A degree of longitude is longest where the region is nearest to the equator, one of latitude near a pole.
        south, north = regions.box[:, 1], regions.box[:, 3]
        near = np.where((south <= 0.0) & (north >= 0.0), 0.0, np.minimum(np.abs(south), np.abs(north)))
        area *= metres_of_degrees(near, earth)[:, 0] * metres_of_degrees(np.full(len(near), 90.0), earth)[:, 1]
    square = np.where(np.isnan(regions.radius), area / np.pi, radius**2)
    most: Floats = -np.expm1(-square / (2.0 * sigma**2))
    return most


def taken(regions: Regions, rows: Ints) -> Regions:
    """Some of the regions, in this order."""
    return _Rows.of(regions).take(rows).arrays()


def joined(parts: Sequence[Regions]) -> Regions:
    """The regions of several sets, one after the other."""
    if len(parts) == 1:
        return parts[0]
    return _Rows.concat([_Rows.of(part) for part in parts]).arrays() if parts else _NOTHING


@dataclass(frozen=True, slots=True)
class _Block(Batch):
    bounds: Floats
    edges: Ragged[Floats]


@dataclass(frozen=True, slots=True)
class _Rows(Batch):
    """Regions, row by row."""

    blocks: Ragged[_Block]
    box: Floats
    radius: Floats
    centre: Floats
    raster: Hashes

    @staticmethod
    def of(regions: Regions) -> _Rows:
        blocks = Ragged(regions.first, _Block(regions.bounds, Ragged(regions.start, regions.edges)))
        return _Rows(blocks, regions.box, regions.radius, regions.centre, regions.raster)

    def arrays(self) -> Regions:
        block = self.blocks.values
        outline = self.blocks.offsets, block.edges.offsets, block.bounds, block.edges.values
        return Regions(*outline, self.box, self.radius, self.centre, self.raster)


@dataclass(frozen=True, slots=True)
class _Numbered(Batch):
    """Regions, with the rows of the frame that they came in."""

    regions: _Rows
    number: Ints


def _edges(shapely: Any, shapes: NDArray[Any], outlined: NDArray[np.intp]) -> tuple[NDArray[Any], ...]:
    """Edges of all rings, the inside at their left, in blocks: ``first, start, bounds, edges`` of `Regions`.

    ``outlined`` are the shapes that have any. A line is a ring there and back, which holds nothing but its boundary; so
    is a point.
    """
    rings, owner, turned = _rings(shapely, shapes[outlined])
    corners = shapely.get_coordinates(rings)
    begin = np.concatenate([[0], np.cumsum(shapely.get_num_coordinates(rings))])
    if turned is None:
        turned = _turned(shapely, rings, corners, begin)
    return outlines(corners, begin, outlined[owner], turned, len(shapes))


def _rings(shapely: Any, shapes: NDArray[Any]) -> tuple[NDArray[Any], Ints, Flags | None]:
    """All rings, the shape of each, and which have the inside at their right; None: polygons, of which it is open."""
    plain = shapely.get_type_id(shapes) == shapely.GeometryType.POLYGON
    if plain.all() and not shapely.get_num_interior_rings(shapes).any():
        return shapes, np.arange(len(shapes)), None
    parts, owner = shapely.get_parts(shapes, return_index=True)
    kind = shapely.get_type_id(parts)
    polygons = np.flatnonzero(kind == shapely.GeometryType.POLYGON)
    rings, part = shapely.get_rings(shapely.orient_polygons(parts[polygons]), return_index=True)
    thin = np.flatnonzero(kind != shapely.GeometryType.POLYGON)
    if len(thin):
        rings = np.append(rings, [_there_and_back(shapely, line) for line in parts[thin]])
        whose = np.append(polygons[part], thin)
        order = np.argsort(whose, kind="stable")
        rings, part = rings[order], whose[order]
    else:
        part = polygons[part]
    return rings, owner[part], np.zeros(len(rings), bool)


def _turned(shapely: Any, shapes: NDArray[Any], corners: Floats, begin: Ints) -> Flags:
    """Which polygons without holes have the inside at their right."""
    area, size = areas(corners, begin)
    turned: Flags = area < 0.0
    thin = np.flatnonzero(np.abs(area) <= _THIN * size)
    turned[thin] = ~shapely.is_ccw(shapely.get_exterior_ring(shapes[thin]))
    return turned


def _there_and_back(shapely: Any, line: Any) -> Any:
    places = shapely.get_coordinates(line)
    return shapely.LineString(np.vstack([places, places[-2::-1]]) if len(places) > 1 else np.vstack([places, places]))


def _around(x: float, y: float, radius: float, earth: Earth | None) -> tuple[float, float, float, float]:
    """A box around a disc; on the Earth one that reaches over the 180th meridian has all longitudes."""
    if earth is None:
        return x - radius, y - radius, x + radius, y + radius
    # A degree of latitude is shortest at the equator.
    high = np.degrees(radius * earth.a / earth.b**2) * _MORE
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


_NOTHING = Regions(
    np.zeros(1, np.int64),
    np.zeros(1, np.int64),
    np.empty((0, 4)),
    np.empty((0, 4)),
    np.empty((0, 4)),
    np.empty(0),
    np.empty((0, 3)),
    np.empty((0, RASTER), np.uint64),
)
#: None at all.
NO_REGIONS = RegionSet(_NOTHING, np.empty(0, np.int64))
