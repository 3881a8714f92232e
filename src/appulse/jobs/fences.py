"""Fences of a job: regions in the file, or in one of their own; and how files of them are read."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import pyarrow as pa
from pydantic import Field, model_validator

from appulse.errors import BadArgument, JobError, nearest
from appulse.jobs.fields import Duration, Number, Place, Table, Text
from appulse.jobs.queries import TABLES, ending_of, read_table
from appulse.model.regions import QUERY, RADIUS, REGION, from_geojson

__all__ = ["FenceEventsTable", "read_fences"]

_GEOJSON = (".geojson", ".json")
_GEOMETRY = "geometry"
_Probability = Annotated[Number, Field(gt=0, le=1)]


class FenceEventsTable(Table):
    """The arguments of `appulse.fence_events`."""

    regions: dict[str, Text] | None = None
    path: Place | None = None
    query: Text = QUERY
    enter: _Probability = 0.9
    leave: _Probability = 0.5
    dwell: Duration | None = None
    emit: Literal["events", "visits"] = "events"
    on_reject: Literal["collect", "fail"] = "collect"

    @model_validator(mode="after")
    def _has_fences_once(self) -> FenceEventsTable:
        given = [name for name in ("regions", "path") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(
                f"has {' and '.join(given) or 'no fences'}. Give one of: regions, a table of names and WKT; path, a "
                ".geojson, .parquet or .csv file."
            )
        if self.path is not None:
            ending_of(Path(self.path), (*TABLES, *_GEOJSON))
        return self

    def fences(self, place: Callable[[str], str]) -> pa.Table:
        """The fences."""
        if self.regions is not None:
            return pa.table({QUERY: list(self.regions), REGION: list(self.regions.values())})
        return read_fences(Path(place(self.path or "")), self.query)

    def settings(self) -> dict[str, Any]:
        """The keyword arguments of a call."""
        return self.model_dump(exclude={"regions", "path", "query"})


def read_fences(file: Path, name: str = QUERY) -> pa.Table:
    """The fences of a GeoJSON, GeoParquet or CSV file; ``name`` is the column or property that names them.

    Geometries are in the column ``region`` or ``geometry``, in CSV as WKT. A ``radius`` is read, too, if there is one.

    Raises:
        JobError: The file cannot be read.
        BadArgument: It lacks a column.
    """
    table = _of_geojson(file, name) if file.suffix.lower() in _GEOJSON else read_table(file, (REGION, _GEOMETRY))
    region = REGION if REGION in table.column_names else _GEOMETRY
    for column in (name, region):
        if column not in table.column_names:
            raise BadArgument(f"{file} has no column {column!r}.{nearest(column, table.column_names)}")
    columns = {QUERY: table[name], REGION: table[region]}
    if RADIUS in table.column_names:
        columns[RADIUS] = table[RADIUS]
    return pa.table(columns)


def _of_geojson(file: Path, name: str) -> pa.Table:
    try:
        whole = json.loads(file.read_text(encoding="utf-8"))
        features = whole["features"]
        rows = []
        for number, feature in enumerate(features):
            known = feature.get("properties") or {}
            named = known.get(name, feature.get("id", number + 1))
            rows.append((str(named), from_geojson(feature["geometry"]), known.get(RADIUS)))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise JobError(f"{file} cannot be read as a GeoJSON FeatureCollection: {error!r}") from error
    names, regions, radii = zip(*rows, strict=True) if rows else ((), (), ())
    columns = {name: pa.array(names, pa.string()), REGION: pa.array(regions, pa.binary())}
    if any(radius is not None for radius in radii):
        columns[RADIUS] = pa.array(radii, pa.float64())
    return pa.table(columns)
