"""Fences of a job: regions in the file, or in one of their own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Literal

import pyarrow as pa
from pydantic import Field, model_validator

from appulse.jobs.fields import CallTable, Duration, Number, Place, Text
from appulse.jobs.regions import GEOJSON, TABLES, ending_of, read_fences
from appulse.model.regions import QUERY, REGION

__all__ = ["FenceEventsTable", "read_fences"]

_Probability = Annotated[Number, Field(gt=0, le=1)]


class FenceEventsTable(CallTable):
    """The arguments of `appulse.fence_events`."""

    _apart = ("regions", "path", "query")

    regions: dict[str, Text] | None = None
    path: Place | None = None
    query: Text = QUERY
    enter: _Probability = 0.9
    leave: _Probability = 0.5
    dwell: Duration | None = None
    crossing: _Probability | None = None
    emit: Literal["events", "visits"] = "events"

    @model_validator(mode="after")
    def _has_fences_once(self) -> FenceEventsTable:
        given = [name for name in ("regions", "path") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(
                f"has {' and '.join(given) or 'no fences'}. Give one of: regions, a table of names and WKT; path, a "
                ".geojson, .parquet or .csv file."
            )
        if self.path is not None:
            ending_of(Path(self.path), (*TABLES, *GEOJSON))
        return self

    def fences(self, place: Callable[[str], str]) -> pa.Table:
        """The fences."""
        if self.regions is not None:
            return pa.table({QUERY: list(self.regions), REGION: list(self.regions.values())})
        return read_fences(Path(place(self.path or "")), self.query)
