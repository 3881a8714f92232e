"""A call of `phenomena`: its arguments checked, carried out in this process, and its events as tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import numpy as np
import pyarrow as pa

from appulse.arguments import number, one_of
from appulse.engines.carrying import refuse_repeated
from appulse.engines.meaning import READINGS, of_call, of_readings, of_similarity, types_of_readings
from appulse.engines.options import options_of
from appulse.engines.sensors.call import SensorNames, group_columns, property_of
from appulse.engines.sensors.places import linked, places_of, sites_of
from appulse.engines.sensors.readings import ReadingsCall, ReadingsSettings, encoding_of_readings, typed
from appulse.errors import BadArgument
from appulse.kernels.bins import bin_floors
from appulse.kernels.identities import APPEARS, DISAPPEARS
from appulse.kernels.tracks import hulls
from appulse.model.meaning import real, seconds
from appulse.model.readings import values_of
from appulse.model.strings import Labels, is_scalar
from appulse.model.times import duration, from_micros
from appulse.model.uncertainty import columns
from appulse.operators.happenings import PhenomenaPlan, PhenomenonEvents
from appulse.operators.phenomena import Phenomena
from appulse.operators.phenomena_within import PhenomenaWithin

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from appulse.kernels.arrays import Flags, Floats, Ints
    from appulse.model.meaning import Meaning
    from appulse.model.stream import Stream
    from appulse.model.uncertainty import Position
    from appulse.operators.happenings import Sites


EMITS = ("events", "regions")
# Its square has to be a double.
Reach: TypeAlias = Annotated[float, number(least=0.0, most=1e150)]
EmitPhenomena: TypeAlias = Annotated[str, one_of(*EMITS)]
KINDS = ("appears", "moves", "disappears")
_DEFAULTS = {"min_sensors": 2, "locations": None, "reach": None, "idle_after": None, "emit": "events"}
_POINT = pa.list_(pa.float64())


@dataclass(frozen=True)
class PhenomenaCall(ReadingsCall):
    """A checked call without its frame: travels to workers."""

    plan: PhenomenaPlan
    emit: str
    resolution: float | None = None  # as asked for
    within: float | None = None
    reach: float | None = None

    goes_on = True

    @property
    def listens(self) -> bool:
        """Whether regions end for want of readings."""
        return self.plan.silence is not None

    @property
    def value_type(self) -> pa.DataType:
        """Of a phenomenon's value: the lower end of its bin, the mean of what is near, or what the sensors said."""
        return pa.float64() if self.plan.binned or self.plan.within is not None else self.plan.value_type

    @property
    def answer_schema(self) -> pa.Schema:
        numbers = pa.list_(pa.int64())
        event = [("event", pa.string())] if self.emit == "events" else []
        others = [("merged", numbers), ("split", numbers)] if self.emit == "events" else []
        return pa.schema(
            [
                *self.partitions,
                ("phenomenon", pa.int64()),
                *event,
                ("time", self.time_type),
                ("value", self.value_type),
                ("sensors", pa.list_(self.key_type)),
                ("centroid", _POINT),
                ("hull", pa.list_(_POINT)),
                ("velocity", _POINT),
                *others,
            ]
        )

    def operator(self) -> Phenomena | PhenomenaWithin:
        return Phenomena(self.plan) if self.plan.within is None else PhenomenaWithin(self.plan)

    def tables(self, found: Sequence[PhenomenonEvents]) -> Iterator[pa.Table]:
        """Events, or regions."""
        names = SensorNames(self.key_type)
        return (table_of(part, names, self) for part in found)

    def meaning(self) -> Meaning:
        plan = self.plan
        arguments = of_readings(self.encoding, self.lateness[0])
        arguments |= of_similarity(self.resolution, self.within, plan.by)
        arguments |= {
            "strength": plan.strength,
            "span": seconds(plan.span),
            "min_sensors": plan.least,
            "locations": None if plan.sites is None else plan.sites.meaning(),
            "reach": None if self.reach is None else real(self.reach),
            "horizon": seconds(plan.span),  # of a prediction there was: checkpoints made with it go on
            "idle_after": None if plan.silence is None else seconds(plan.silence),
            "emit": self.emit,
            "types": types_of_readings(self.encoding, self.partitions),
        }
        return of_call("phenomena", arguments, READINGS | _DEFAULTS)


@dataclass(frozen=True, kw_only=True)
class PhenomenaSettings(ReadingsSettings):
    """The arguments of phenomena."""

    strength: int
    span: Any
    min_sensors: int = 2
    locations: pa.Table | None = None
    place: Position | None = None
    reach: float | None = None
    neighbours: pa.Table | None = None
    emit: str = "events"
    idle_after: Any = None


def resolve_phenomena(readings: Stream, schema: pa.Schema, settings: PhenomenaSettings) -> PhenomenaCall:
    """Check a call against the columns there are, and settle everything that follows from its arguments."""
    options = options_of(settings.options, "phenomena")
    settings.check()
    reached = duration(settings.span, "span")
    sites = _sites(readings, schema, settings)
    near = settings.apart
    width = near if settings.resolution is None else settings.resolution
    ((_, value_type),) = typed(columns(readings.value), schema, readings)
    over = settings.span if settings.over is None and settings.similar != "value" else settings.over
    by = property_of(settings.similar, over, width, value_type)
    encoding = encoding_of_readings(
        readings,
        schema,
        carry=(),
        width=width if by is None and near is None else None,
        numeric=by is not None or near is not None,
        length=None,
        located=None if sites is None else frozenset(sites.sensors),
    )
    plan = PhenomenaPlan(
        regions=settings.emit == "regions",
        strength=settings.strength,
        span=reached,
        least=settings.min_sensors,
        binned=settings.resolution is not None if by is None else by.binned and near is None,
        width=width or 1.0,
        within=near,
        value_type=value_type if by is None else by.result_type,
        by=by,
        sites=sites,
        silence=None if settings.idle_after is None else max(reached, duration(settings.idle_after, "idle_after")),
    )
    call = PhenomenaCall(
        encoding,
        typed(readings.partitions, schema, readings),
        plan,
        settings.emit,
        *(None if given is None else float(given) for given in (settings.resolution, settings.within, settings.reach)),
        lateness=(readings.lateness_micros,),
        ahead=(readings.ahead_micros,),
        on_reject=settings.on_reject,
        max_output=options.max_output,
    )
    refuse_repeated(call.answer_schema)
    return call


def _sites(readings: Stream, schema: pa.Schema, settings: PhenomenaSettings) -> Sites | None:
    """Where sensors are, if that is known."""
    if settings.place is not None and settings.locations is None:
        raise BadArgument("place= says which columns of locations= are degrees. Give both, or neither.")
    if settings.neighbours is not None and settings.reach is not None:
        raise BadArgument("neighbours= lists the pairs of neighbours, and reach= makes them of distances. Give one.")
    if settings.neighbours is None and (settings.locations is None) != (settings.reach is None):
        raise BadArgument("locations= and reach= go together: where sensors are, and how far neighbours are apart.")
    ((sensor, kind),) = typed((readings.key,), schema, readings)
    sites = None
    if settings.locations is not None and settings.place is None:
        sites = sites_of(settings.locations, sensor, kind, settings.reach)
    elif settings.locations is not None and settings.place is not None:
        sites = places_of(settings.locations, sensor, kind, settings.reach, settings.place)
    return sites if settings.neighbours is None else linked(sites, settings.neighbours, kind)


def table_of(found: PhenomenonEvents, names: SensorNames, call: PhenomenaCall) -> pa.Table:
    """Events in the types the user gave."""
    kinds = pa.array([*KINDS, "stands"]).take(pa.array(found.kind))
    others = pa.array(found.other)
    related = [_some_lists(found.first_other, others, found.kind == kind) for kind in (DISAPPEARS, APPEARS)]
    sensors = _lists(found.first, names.take(found.sensor, found.sensors))
    group = Labels(np.zeros(len(found), np.int32), (found.group,)) if call.partitions else None
    columns = [
        *group_columns(group, call.partitions),
        pa.array(found.number),
        *([] if call.emit == "regions" else [kinds]),
        from_micros(found.time, call.time_type, call.encoding.unit),
        _values(found, call),
        sensors,
        *_places(found, call),
        *([] if call.emit == "regions" else related),
    ]
    return pa.Table.from_arrays(
        [c.cast(f.type) for c, f in zip(columns, call.answer_schema, strict=True)], schema=call.answer_schema
    )


def _values(found: PhenomenonEvents, call: PhenomenaCall) -> pa.Array:
    if call.plan.within is not None:
        return pa.array(found.key.view(np.float64))
    if call.plan.binned:
        floors = np.empty(len(found))
        bin_floors(found.key, floors)
        return pa.array(floors * call.plan.width)
    if is_scalar(call.plan.value_type):
        return values_of(found.key, (), call.plan.value_type)
    used, codes = np.unique(found.key, return_inverse=True)
    return values_of(codes.astype(np.int64), tuple(found.labels.values[n] for n in used.tolist()), call.plan.value_type)


def _places(found: PhenomenonEvents, call: PhenomenaCall) -> Iterator[pa.Array]:
    """Centroid, hull and velocity; null where no locations are known."""
    n, sites = len(found), call.plan.sites
    if sites is None or sites.at.shape[1] == 0:
        for name in ("centroid", "hull", "velocity"):
            yield pa.nulls(n, call.answer_schema.field(name).type)
        return
    at = np.concatenate([np.zeros((1, sites.at.shape[1])), sites.at])
    first, corners = np.empty(n + 1, np.int64), np.empty(len(found.sensor), np.int64)
    hulls(found.first, found.sensor, at, first, corners)
    yield _points(sites.on_map(found.centroid))
    yield _lists(first, _points(sites.on_map(at[corners[: first[-1]]])))
    yield _points(found.velocity)


def _points(points: Floats) -> pa.Array:
    """Rows of coordinates as lists, null where there are none."""
    known = np.isfinite(points).all(axis=1) & (points.shape[1] > 0)
    first = np.concatenate([[0], np.cumsum(known) * points.shape[1]])
    missing: Flags = ~known
    return _lists(first, pa.array(points[known].ravel()), missing)


def _lists(first: Ints, values: pa.Array, null: Flags | None = None) -> pa.Array:
    return pa.ListArray.from_arrays(
        pa.array(first, pa.int32()), values, mask=None if null is None or not null.any() else pa.array(null)
    )


def _some_lists(first: Ints, values: pa.Array, mine: Flags) -> pa.Array:
    """The lists of some rows, and null for the others."""
    counts = np.where(mine, np.diff(first), 0)
    return _lists(
        np.concatenate([[0], np.cumsum(counts)]), values.filter(pa.array(np.repeat(mine, np.diff(first)))), ~mine
    )
