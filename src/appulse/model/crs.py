"""Coordinate reference systems that tables name in the metadata of GeoArrow and GeoParquet, as SRIDs."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

#: SRIDs of longitude and latitude on WGS 84: no SRID, EPSG's number, and that with heights.
WGS84 = (-1, 0, 4326, 4979)
#: A system that has no number of EPSG.
UNNAMED = 999_999
_NUMBER = re.compile(r'EPSG["\s:,]+(\d+)[\s"\]]*$|^(\d+)$')


def system_name(srid: int) -> str:
    """How messages name a system."""
    return f"SRID {srid}" if srid != UNNAMED else "a coordinate system without an EPSG number"


def srid_of(schema: pa.Schema, column: str, *others: str) -> int:
    """The SRID that metadata name for a column, or for one of ``others`` of GeoParquet; 0 if none.

    GeoArrow has it at the column, GeoParquet at the table.
    """
    own, whole = schema.field(column).metadata or {}, schema.metadata or {}
    for text, path in (
        (own.get(b"ARROW:extension:metadata"), ()),
        *((whole.get(b"geo"), ("columns", name)) for name in (column, *others)),
    ):
        crs = _under(text, (*path, "crs"))
        if crs is not None:
            return srid_of_crs(crs)
    return 0


def srid_of_geopandas(crs: Any) -> int:
    """The SRID of the system of a GeoPandas column."""
    return int(crs.to_epsg() or srid_of_crs(crs.to_json_dict()))


def of_geoparquet(schema: pa.Schema) -> dict[bytes, bytes]:
    """The metadata of GeoParquet alone: without those of pandas, its index is a column, as on Spark."""
    found = (schema.metadata or {}).get(b"geo")
    return {} if found is None else {b"geo": found}


def _under(text: bytes | None, path: tuple[str, ...]) -> Any:
    """What JSON has at a path; None if nothing."""
    try:
        found = json.loads(text or b"null")
    except ValueError:
        return None
    for name in path:
        found = found.get(name) if isinstance(found, Mapping) else None
    return found


def srid_of_crs(crs: Any) -> int:
    """The SRID of a system given as PROJJSON, WKT or ``authority:code``; 0 for longitude and latitude on WGS 84."""
    if isinstance(crs, str) and crs.lstrip().startswith("{"):
        crs = _under(crs.encode(), ())
    if isinstance(crs, Mapping):
        return _of_projjson(crs)
    text = str(crs).strip()
    if "CRS84" in text:
        return 0
    number = _NUMBER.search(text)
    return int(number[1] or number[2]) if number else UNNAMED


def _of_projjson(crs: Mapping[str, Any]) -> int:
    named = crs.get("id")
    if isinstance(named, Mapping):
        return srid_of_crs(f"{named.get('authority')}:{named.get('code')}")
    datum = crs.get("datum_ensemble") or crs.get("datum")
    known = isinstance(datum, Mapping) and str(datum.get("name")).startswith("World Geodetic System 1984")
    return 0 if known and crs.get("type") == "GeographicCRS" else UNNAMED
