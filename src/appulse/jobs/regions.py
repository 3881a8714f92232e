"""Files of tables, and of regions: CSV, Parquet, GeoParquet and GeoJSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow as pa

from appulse.errors import BadArgument, JobError, nearest
from appulse.model.geometries import from_geojson
from appulse.model.regions import QUERY, RADIUS, REGION

if TYPE_CHECKING:
    from pathlib import Path

TABLES = (".csv", ".parquet")
GEOJSON = (".geojson", ".json")
GEOMETRY = "geometry"
_CONDITION, _UNTIL = "condition", "until"


def read_fences(file: Path, name: str = QUERY) -> pa.Table:
    """The regions of a GeoJSON, GeoParquet or CSV file; ``name`` is the column or property that names them.

    Geometries are in the column ``region`` or ``geometry``, in CSV as WKT. A ``radius`` and a ``condition`` are read,
    too, if there are any, and of tables ``until``.

    Raises:
        JobError: The file cannot be read.
        BadArgument: It lacks a column.
    """
    table = _of_geojson(file, name) if file.suffix.lower() in GEOJSON else read_table(file, (REGION, GEOMETRY))
    region = REGION if REGION in table.column_names else GEOMETRY
    for column in (name, region):
        if column not in table.column_names:
            raise BadArgument(f"{file} has no column {column!r}.{nearest(column, table.column_names)}")
    fields = [table.schema.field(name).with_name(QUERY), table.schema.field(region).with_name(REGION)]
    columns = [table[name], table[region]]
    for more in (RADIUS, _CONDITION, _UNTIL):
        if more in table.column_names:
            fields.append(table.schema.field(more))
            columns.append(table[more])
    return pa.Table.from_arrays(columns, schema=pa.schema(fields, table.schema.metadata))


def _of_geojson(file: Path, name: str) -> pa.Table:
    try:
        whole = json.loads(file.read_text(encoding="utf-8"))
        features = whole["features"]
        properties = {str(key) for feature in features for key in feature.get("properties") or ()}
        rows = []
        for number, feature in enumerate(features):
            known = feature.get("properties") or {}
            names_of = (known.get(name), feature.get("id"), number + 1)
            named = next(one for one in names_of if one is not None)
            rows.append((str(named), from_geojson(feature.get("geometry")), known.get(RADIUS), known.get(_CONDITION)))
        names, regions, *more = zip(*rows, strict=True) if rows else ((), (), (), ())
        columns = {name: pa.array(names, pa.string()), REGION: pa.array(regions, pa.binary())}
        for column, values, kind in zip((RADIUS, _CONDITION), more, (pa.float64(), pa.string()), strict=True):
            if any(value is not None for value in values):
                columns[column] = pa.array(values, kind)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, pa.ArrowException) as error:
        raise JobError(f"{file} cannot be read as a GeoJSON FeatureCollection: {error!r}") from error
    if name != QUERY and features and name not in properties:
        raise BadArgument(f"No feature of {file} has the property {name!r}.{nearest(name, properties)}")
    return pa.table(columns)


def read_table(file: Path, texts: tuple[str, ...] = ()) -> pa.Table:
    """A CSV or Parquet file; ``texts`` are columns that are text, whatever stands in them."""
    from pyarrow import csv, parquet

    ending = ending_of(file, TABLES)
    try:
        if ending == ".parquet":
            return parquet.read_table(file)
        convert = csv.ConvertOptions(
            column_types=dict.fromkeys(texts, pa.string()),
            strings_can_be_null=True,
            null_values=[""],
        )
        return csv.read_csv(file, convert_options=convert, parse_options=csv.ParseOptions(newlines_in_values=True))
    except (OSError, pa.ArrowException) as error:
        raise JobError(f"{file} cannot be read: {error}") from error


def ending_of(file: Path, known: tuple[str, ...]) -> str:
    """The ending of a file's name; `BadArgument` if it is none of those known."""
    ending = file.suffix.lower()
    if ending not in known:
        raise BadArgument(f"{file} ends in {ending or 'nothing'!r}. Known: {', '.join(known)}.")
    return ending
