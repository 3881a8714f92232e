"""What calls mean: the parts that several of them share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from appulse.model.meaning import VERSION, Meaning, of_model, of_type, real, seconds, without_defaults
from appulse.model.uncertainty import dimensions

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import pyarrow as pa

    from appulse.model.encoding import Encoding
    from appulse.model.readings import ReadingsEncoding
    from appulse.operators.properties import Property


def of_call(call: str, arguments: Meaning, defaults: Mapping[str, Any]) -> Meaning:
    """A call of a function of the public interface, by the function's name."""
    return {"call": call, "version": VERSION, **without_defaults(arguments, defaults)}


def of_stream(
    encoding: Encoding, lateness: int = 0, idle_after: int | None = None, *, arrival: bool = False
) -> Meaning:
    """A stream as its call has it; lateness and silence in microseconds."""
    known = dimensions(encoding.model) is not None
    return without_defaults(
        {
            "name": encoding.name,
            "key": encoding.key,
            "time": encoding.time,
            "value": of_model(encoding.model),
            "dimensions": None if known else encoding.dimensions,  # the rest is in the value
            "existence": encoding.existence,
            "correlation": real(encoding.correlation),
            "partition_by": list(encoding.partition_by),
            "lateness": seconds(lateness),
            "idle_after": None if idle_after is None else seconds(idle_after),
            "order": "arrival" if arrival else "time",
            "unit": encoding.unit,
            "where": [where.text for where in encoding.where],
            "carry": [[name, of_type(kind)] for name, kind in encoding.carry],
            "change": encoding.change,
            "margin": encoding.margin if isinstance(encoding.margin, str) else real(encoding.margin),
        },
        {
            "dimensions": None,
            "existence": None,
            "correlation": real(0.0),
            "partition_by": [],
            "lateness": seconds(0),
            "idle_after": None,
            "order": "time",
            "unit": "s",
            "where": [],
            "carry": [],
            "change": None,
            "margin": 0.0,
        },
    )


def of_types(own: Iterable[tuple[str, pa.DataType]], columns: Iterable[tuple[str, pa.DataType]] = ()) -> Meaning:
    """Types by what they are of, and those of further columns by name."""
    further = {name: of_type(kind) for name, kind in columns}
    return {name: of_type(kind) for name, kind in own} | without_defaults({"columns": further}, {"columns": {}})


#: The defaults of calls over readings.
READINGS: Meaning = {
    "partition_by": [],
    "where": [],
    "carry": [],
    "unit": "s",
    "lateness": seconds(0),
    "resolution": None,
    "within": None,
    "similar": "value",
    "over": None,
}


def of_readings(encoding: ReadingsEncoding, lateness: int) -> Meaning:
    """The arguments that say what the columns of readings are."""
    return {
        "sensor": encoding.sensor,
        "time": encoding.time,
        "value": encoding.value,
        "unit": encoding.unit,
        "partition_by": list(encoding.partition_by),
        "where": [where.text for where in encoding.where],
        "lateness": seconds(lateness),
    }


def of_similarity(resolution: float | None, within: float | None, by: Property | None) -> Meaning:
    """The arguments that say which readings are similar."""
    return {
        "resolution": None if resolution is None else real(resolution),
        "within": None if within is None else real(within),
        "similar": "value" if by is None else by.kind,
        "over": None if by is None else seconds(by.over),
    }


def types_of_readings(encoding: ReadingsEncoding, others: Iterable[tuple[str, pa.DataType]]) -> Meaning:
    """The types of their columns, by what these are."""
    own = [("sensor", encoding.key_type), ("time", encoding.time_type), ("value", encoding.value_type)]
    return of_types(own, others)
