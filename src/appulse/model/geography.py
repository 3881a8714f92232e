"""Points as geometries: WKB, WKT, shapely, GeoArrow and Spark's own, as columns of latitudes and longitudes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from appulse.errors import BadArgument
from appulse.model import defects as why
from appulse.model.columns import chunk, decoded_type, floats, is_bytes, is_list, is_numeric, nulls
from appulse.model.crs import WGS84, srid_of, srid_of_geopandas, system_name
from appulse.model.geometries import parsed

if TYPE_CHECKING:
    from appulse.kernels.arrays import Floats
    from appulse.model.defects import Defects
    from appulse.model.uncertainty import Position

_POINT = 0
_NAMES = (("x", "y"), ("lon", "lat"), ("longitude", "latitude"))


def check(kind: pa.DataType, column: str, stream: str) -> None:
    """Raise `BadArgument` where a column of this type holds no points."""
    kind = decoded_type(kind)
    if pa.types.is_null(kind) or is_bytes(kind) or _is_text(kind) or _fields(kind) is not None:
        return
    if is_list(kind) and is_numeric(kind.value_type):
        return
    raise BadArgument(
        f"Position(geography={column!r}) of stream {stream!r} is {kind}. Give points as WKB, WKT, GeoArrow (structs of "
        "x and y, or lists of two numbers), geometries of shapely, or Spark's GEOGRAPHY or GEOMETRY."
    )


def opened(table: pa.Table, model: Position, defects: Defects) -> pa.Table:
    """The table with columns ``model.lat`` and ``model.lon``; rows that are no points are marked."""
    column = model.geography
    if column is None:
        return table
    given = chunk(table[column])
    lon, lat, wrong = _coordinates(given)
    missing, srid = nulls(given), srid_of(table.schema, column)
    if srid not in WGS84:
        wrong |= dict.fromkeys(np.flatnonzero(~missing).tolist(), f"of {system_name(srid)}, not WGS 84 (4326)")
    defects.mark(missing, why.NON_FINITE, f"{column} is null")
    bad = np.zeros(len(table), bool)
    bad[list(wrong)] = True
    defects.mark(bad, why.NOT_A_POINT, why.each(lambda i: f"{column} is {wrong[i]}"))
    for name, values in ((model.lat, lat), (model.lon, lon)):
        if name in table.column_names:
            raise BadArgument(
                f"Position(geography={column!r}) reads into a column {name!r}, which is there. Rename it."
            )
        table = table.append_column(name, pa.array(values))
    return table


def _coordinates(given: pa.Array) -> tuple[Floats, Floats, dict[int, str]]:
    """Longitudes and latitudes, and what is wrong with rows that have none."""
    given = given.dictionary_decode() if pa.types.is_dictionary(given.type) else given
    kind, n = given.type, len(given)
    fields = _fields(kind)
    if pa.types.is_null(kind):
        return np.full(n, np.nan), np.full(n, np.nan), {}
    if fields is not None and "wkb" not in fields:
        x, y = (floats(pc.struct_field(given, name)) for name in fields)
        return x, y, {}
    if is_list(kind):
        return _of_lists(given)
    srid = None
    if fields is not None:
        names = [kind.field(i).name for i in range(kind.num_fields)]
        srid = floats(pc.struct_field(given, "srid")) if "srid" in names else None
        given = pc.struct_field(given, "wkb")
    return _of_texts(given, srid)


def _of_lists(given: pa.Array) -> tuple[Floats, Floats, dict[int, str]]:
    rows = given.to_pylist()
    wrong = {i: f"a list of {len(row)} numbers" for i, row in enumerate(rows) if row is not None and len(row) < 2}
    places = np.array([(np.nan, np.nan) if row is None or len(row) < 2 else row[:2] for row in rows], float)
    places = places.reshape(-1, 2)
    return places[:, 0], places[:, 1], wrong


def _of_texts(given: pa.Array, srid: Floats | None) -> tuple[Floats, Floats, dict[int, str]]:
    """Of WKB or WKT, by shapely."""
    try:
        import shapely
    except ImportError as error:
        raise BadArgument(
            "Geometries are read by shapely, which is not installed. pip install 'appulse[geo]'"
        ) from error
    shapes = parsed(shapely, given.to_pylist())
    there = ~nulls(given)
    missing, kinds, own = shapely.is_missing(shapes), shapely.get_type_id(shapes), shapely.get_srid(shapes)
    own = own if srid is None else np.where(np.isnan(srid), own, srid)
    wrong = dict.fromkeys(np.flatnonzero(there & missing).tolist(), "no geometry that can be read")
    for i in np.flatnonzero(there & ~missing & (kinds != _POINT)).tolist():
        wrong[i] = f"a {shapes[i].geom_type}, not a point"
    for i in np.flatnonzero(there & ~missing & ~np.isin(own, WGS84)).tolist():
        wrong.setdefault(i, f"of {system_name(int(own[i]))}, not WGS 84 (4326)")
    for i in np.flatnonzero(there & ~missing & shapely.is_empty(shapes)).tolist():
        wrong.setdefault(i, "an empty point")
    shapes[list(wrong)] = None
    return shapely.get_x(shapes), shapely.get_y(shapes), wrong


def with_points(frame: Any) -> Any:
    """A pandas or GeoPandas frame whose columns of shapely geometries are WKB; others as they are."""
    if type(frame).__module__.split(".")[0] not in ("pandas", "geopandas"):
        return frame
    columns = getattr(frame, "columns", None)
    if columns is None or not columns.is_unique:
        return frame
    held = [name for name in columns if _holds_shapes(frame[name])]
    if not held:
        return frame
    import pandas as pd
    import shapely

    found = {name: frame[name] for name in columns}
    for name in held:
        crs = getattr(frame[name], "crs", None)
        shapes = np.array([value if hasattr(value, "geom_type") else None for value in frame[name]], object)
        if crs is not None:
            shapes = shapely.set_srid(shapes, srid_of_geopandas(crs))
        found[name] = pd.Series(shapely.to_wkb(shapes, include_srid=True), frame.index, object)
    return pd.DataFrame(found)


def _holds_shapes(column: Any) -> bool:
    if str(column.dtype) not in ("object", "geometry"):
        return False
    return any(hasattr(value, "geom_type") for value in column.head(100))


def _fields(kind: pa.DataType) -> tuple[str, ...] | None:
    """The names of the coordinates in a struct, or ``wkb``; None of what is no such struct."""
    if not pa.types.is_struct(kind):
        return None
    names = [kind.field(i).name for i in range(kind.num_fields)]
    if "wkb" in names:
        return ("wkb",)
    return next((pair for pair in _NAMES if set(pair) <= set(names)), None)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))
