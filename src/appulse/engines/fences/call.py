"""A call of `fence_events`: its arguments checked, its fences read, and its answers as a table."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, Protocol, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from appulse.arguments import one_of
from appulse.engines.carrying import carried_by, carried_of, refuse_repeated
from appulse.engines.encounters.call import of_motion
from appulse.engines.fences.terms import check_terms, columns_of, terms_of, types_of
from appulse.engines.meaning import of_call, of_stream, of_types
from appulse.engines.objects import ThingsCall
from appulse.engines.options import CallSettings
from appulse.engines.queries.call import CHANGE, CONDITION, UNTIL, refused_queries, until_of
from appulse.engines.schemas import check_partitions, encoding_of, known_dimensions
from appulse.engines.thresholds import check_places, within_tolerance
from appulse.errors import BadArgument, bad_rows, nearest
from appulse.model import defects as why
from appulse.model.columns import plain_values
from appulse.model.covariance import known_size
from appulse.model.geometries import geometries_of
from appulse.model.meaning import digest_of, of_type, real, seconds
from appulse.model.motion import Straight
from appulse.model.positions import earth_of
from appulse.model.regions import QUERY, RADIUS, REGION, most_inside, radii_of, regions_of
from appulse.model.strings import decode
from appulse.model.times import duration, from_micros
from appulse.model.uncertainty import Exact, Gaussian, Position, dimensions, is_certain
from appulse.operators.fences import FencePlan
from appulse.queries.slots import last_of_each

if TYPE_CHECKING:
    from collections.abc import Sequence

    from appulse.engines.fences.terms import TermSet
    from appulse.kernels.arrays import Ints
    from appulse.model.carried import Columns
    from appulse.model.encoding import Encoding
    from appulse.model.meaning import Meaning
    from appulse.model.regions import Regions, RegionSet
    from appulse.model.stream import Stream
    from appulse.model.uncertainty import Model
    from appulse.operators.fences import Happened

EVENTS, VISITS = "events", "visits"
EmitFences: TypeAlias = Annotated[str, one_of(EVENTS, VISITS)]
KINDS = ("enter", "dwell", "exit", "cross")
_PLANE = 2
_DEFAULTS: Meaning = {"dwell": None, "emit": EVENTS, "crossing": None, "motion": None, "carry": []}


class FenceSet(NamedTuple):
    """Regions, their names, and when they hold, where that is not always."""

    regions: RegionSet
    names: pa.Array
    terms: TermSet | None = None


class Held(Protocol):
    """Where fences are found: here, or in a file that all workers see."""

    def get(self) -> FenceSet:
        """The fences."""


@dataclass(frozen=True)
class Own:
    """Fences that are at hand."""

    fences: FenceSet

    def get(self) -> FenceSet:
        """The fences."""
        return self.fences


@dataclass(frozen=True)
class FenceCall(ThingsCall):
    """A checked call without its frame: travels to workers."""

    plan: FencePlan
    encoding: Encoding
    fences: Held
    query_type: pa.DataType
    refused_fences: pa.Table
    enter: float
    leave: float
    emit: str
    digest: str
    crossing: float | None = None
    given_fences: pa.Table = field(default_factory=lambda: pa.table({}))  # where they may change
    types: Columns = ()  # of what conditions may name
    carried: Columns = ()  # what answers have of readings
    threads: int | None = None  # in process; None: all cores

    @property
    def known_rejects(self) -> pa.Table:
        """Fences that are no regions."""
        return self.refused_fences

    @property
    def lag(self) -> int | None:
        """A visit began any time ago."""
        return None

    @property
    def answer_schema(self) -> pa.Schema:
        own = [(QUERY, self.query_type), ("key", self.key_type)]
        if self.emit == VISITS:
            span = [("start", self.time_type), ("end", self.time_type), ("readings", pa.int64())]
            return pa.schema([*own, *span, ("probability", pa.float64()), *self.carried])
        what = [("event", pa.string()), ("time", self.time_type), ("probability", pa.float64())]
        return pa.schema([*own, *what, ("since", self.time_type), *self.carried])

    def meaning(self) -> Meaning:
        arguments = {
            "streams": [of_stream(self.encoding, self.lateness[0], self.idle_after[0])],
            "fences": self.digest,
            "enter": real(self.enter),
            "leave": real(self.leave),
            "dwell": None if self.plan.dwell is None else seconds(self.plan.dwell),
            "emit": self.emit,
            "crossing": None if self.crossing is None else real(self.crossing),
            "motion": None if self.plan.motion is None else of_motion(self.plan.motion),
            "types": of_types([("query", self.query_type), ("key", self.key_type), ("time", self.time_type)]),
            "carry": [[name, of_type(kind)] for name, kind in self.carried],
        }
        return of_call("fence_events", arguments, _DEFAULTS)


@dataclass(frozen=True, kw_only=True)
class FenceSettings(CallSettings):
    """The arguments of `fence_events`, beside its stream and its fences."""

    enter: float = 0.9
    leave: float = 0.5
    dwell: Any = None
    crossing: float | None = None
    emit: str = EVENTS


def resolve_fences(
    stream: Stream,
    schema: pa.Schema,
    fences: pa.Table,
    settings: FenceSettings,
    *,
    changing: bool = False,
    asked_by: str = "fence_events",
) -> FenceCall:
    """Check a call against the columns there are, read its fences, and settle all that follows.

    Where fences are ``changing``, later ones may have conditions of any column. Errors name the call ``asked_by``.
    """
    name, value = stream.name or "stream", stream.value
    enter, leave, crossing = settings.enter, settings.leave, settings.crossing
    plane = isinstance(value, Exact | Gaussian) and dimensions(value) == _PLANE
    if not (plane or isinstance(value, Position)):
        raise BadArgument(
            f"{asked_by}() takes places in a plane or on the Earth, and the value of stream {name!r} is {value!r}. "
            "Use ap.Position(lat, lon), or ap.Exact or ap.Gaussian of two columns."
        )
    if leave > enter:
        raise BadArgument(
            f"leave={leave:g} is above enter={enter:g}: a thing would leave as it enters. Give leave <= enter."
        )
    if stream.order != "time":
        raise BadArgument(f"Stream {name!r} has order={stream.order!r}: visits go by time. Leave order out.")
    check_partitions([stream], [schema], [name])
    check_places([stream], [name])
    known_dimensions([name], [value], [schema])
    motion, waits = _motion_of(stream, name, settings), _waits(settings.dwell)
    encoding = replace(encoding_of(replace(stream, name=name), schema), degrees=True)
    _check_filters(encoding, asked_by)
    earth = earth_of([value])
    check_fences(fences.schema, (QUERY, REGION))
    conditional = CONDITION in fences.column_names
    if crossing is not None and (conditional or UNTIL in fences.column_names):
        raise BadArgument(
            "crossing= is about the way between two readings, and fences with a condition or until are about readings. "
            "Leave crossing out, or these columns."
        )
    types = types_of(encoding, schema) if conditional else ()
    carried = carried_of(stream, schema, name)
    encoding = replace(encoding, carry=_both(types if changing else columns_of(fences, types), carried))
    regions = regions_of(geometries_of(fences), radii_of(fences, "fences"), earth)
    nameless = np.flatnonzero(pc.is_null(plain_values(fences[QUERY]), nan_is_null=True)).tolist()
    wrong = {one.row: one.why for one in regions.bad} | dict.fromkeys(nameless, "query is null")
    regions = _without(regions, nameless)
    names = _names(fences, regions)
    passes = None if crossing is None else within_tolerance(crossing)
    call = FenceCall(
        FencePlan(
            within_tolerance(enter),
            within_tolerance(leave),
            waits,
            settings.emit == VISITS,
            earth,
            passes,
            motion,
            bool(carried),
        ),
        encoding,
        Own(FenceSet(regions, names)),
        names.type,
        fences,
        enter,
        leave,
        settings.emit,
        digest_of([regions.digest.encode(), *(str(name).encode() for name in names.to_pylist())]),
        crossing,
        threads=settings.options.threads,
        types=types,
        carried=carried,
    ).over([stream], settings)
    refuse_repeated(call.answer_schema)
    check_terms(fences.schema, call.time_type, types)
    call = replace(call, digest=_with_terms(call.digest, fences, encoding.unit))
    shown = fences.drop_columns([REGION]) if len(fences.column_names) > 1 else fences
    refused = refused_queries(shown, sorted(wrong.items()), call.reject_schema, why.BAD_REGION)
    terms, odd = terms_of(fences, encoding.unit, types)
    if terms is not None:
        odd = [(row, reason) for row, reason in odd if row not in wrong]
        refused = pa.concat_tables([refused, refused_queries(shown, odd, call.reject_schema)])
        regions = _without(regions, [row for row, _ in odd])
        names = _names(fences, regions)
    last = last_of_each(names)
    if len(last) < len(names):
        regions, names = regions.take(last), names.take(pa.array(last))
        call = replace(call, digest=digest_of([call.digest.encode(), regions.rows.tobytes()]))
    call = replace(call, fences=Own(FenceSet(regions, names, None if terms is None else terms.take(regions.rows))))
    if len(refused) and settings.on_reject == "fail":
        raise bad_rows(refused)
    return replace(
        call, refused_fences=pa.concat_tables([refused, never_entered(regions.arrays, regions.rows, shown, call)])
    )


def _without(regions: RegionSet, rows: Sequence[int]) -> RegionSet:
    """The regions but those of some rows."""
    return regions.take(np.flatnonzero(~np.isin(regions.rows, rows)))


def _names(fences: pa.Table, regions: RegionSet) -> pa.Array:
    """The names of the fences that regions are of."""
    return plain_values(fences[QUERY]).take(pa.array(regions.rows))


def _check_filters(encoding: Encoding, asked_by: str) -> None:
    """Raise `BadArgument` where a filter would leave samples of normal errors."""
    named = [name for where in encoding.where for name in where.columns if encoding.is_dimension(name)]
    if named and not is_certain(encoding.model):
        raise BadArgument(
            f"A filter of stream {encoding.name!r} names {named[0]!r}, which is uncertain: it would leave samples, and "
            f"{asked_by}() takes normal errors. Filter the frame by that column, before the stream is made."
        )


def check_fences(schema: pa.Schema, needed: Sequence[str], more: str = "") -> None:
    """Raise `BadArgument` unless these are the columns of fences."""
    advice = f"Give columns query, region and perhaps radius, condition, until{more}."
    missing = next((name for name in needed if name not in schema.names), None)
    if missing is not None:
        raise BadArgument(f"Fences have no column {missing!r}.{nearest(missing, schema.names)} {advice}")
    known = (QUERY, REGION, RADIUS, CONDITION, UNTIL, *((CHANGE,) if more else ()))
    unknown = [name for name in schema.names if name not in known]
    if unknown:
        raise BadArgument(f"Fences have a column {unknown[0]!r}. {advice}")


def _both(some: Columns, others: Columns) -> Columns:
    """The columns that are among either."""
    return tuple(dict([*some, *others]).items())


def _with_terms(digest: str, fences: pa.Table, unit: str) -> str:
    """The digest of fences that also says under which conditions and until when they hold, where they do."""
    said = []
    if CONDITION in fences.column_names:
        said += [str(text or "").encode() for text in fences[CONDITION].to_pylist()]
    if (until := until_of(fences, unit)[0]) is not None:
        said.append(until.tobytes())
    return digest_of([digest.encode(), *said]) if said else digest


def _waits(dwell: Any) -> int | None:
    """How long a thing is inside until it has dwelt, in microseconds."""
    waits = None if dwell is None else duration(dwell, "dwell")
    if waits == 0:
        raise BadArgument("dwell=0: a thing would dwell as it enters. Give a duration above 0, or leave it out.")
    return waits


def _motion_of(stream: Stream, name: str, settings: FenceSettings) -> Straight | None:
    """How things move between readings, where that is asked for."""
    if settings.crossing is None:
        return None
    if not isinstance(stream.motion, Straight):
        raise BadArgument(
            f"crossing= is about what things do between two readings, and the motion of stream {name!r} is "
            f"{stream.motion!r}. Give motion=ap.Straight(max_gap='5 minutes')."
        )
    if settings.emit == VISITS:
        raise BadArgument("crossing= reports events, and emit='visits' gives visits. Leave one of them out.")
    return stream.motion


def never_entered(regions: Regions, rows: Ints, shown: pa.Table, call: FenceCall) -> pa.Table:
    """Fences too small to be entered, of such ``rows`` of a table, as rejects: they stand all the same."""
    value, enter = call.encoding.model, call.enter
    sigma = known_size(value) if isinstance(value, Gaussian | Position) else None
    if not sigma:
        return call.reject_schema.empty_table()
    most = most_inside(regions, sigma, call.plan.earth)
    reason = f"can never be entered with errors like these: of a reading with {_error_of(value)} at most "
    small = np.flatnonzero(most < call.plan.enter).tolist()
    never = [(int(rows[i]), f"{reason}{most[i]:.3g} lies inside, and enter={enter:g}") for i in small]
    return refused_queries(shown, never, call.reject_schema, why.NEVER_TRUE)


def _error_of(value: Model) -> str:
    """What the user gave as the error, as an argument."""
    given = [(name, getattr(value, name, None)) for name in ("sigma", "ellipse", "covariance")]
    name, error = next(one for one in given if one[1] is not None and (one[1] != 0.0))
    return f"{name}={error:g}" if isinstance(error, float) else f"{name}={error}"


def fence_table(happened: Happened, call: FenceCall, names: pa.Array | None = None) -> pa.Table:
    """Answers in the types that the user gave; ``names`` of the fences, by their places there."""
    names = call.fences.get().names if names is None else names

    def times(micros: Any) -> pa.Array:
        return from_micros(micros, call.time_type, call.encoding.unit)

    over = np.flatnonzero(happened.kind == KINDS.index("exit")) if call.emit == VISITS else slice(None)
    row = happened.row[over]
    carried = list[pa.Array]()
    if call.carried:
        both = happened.key.take(row)
        own, carried = carried_by(both, np.zeros(len(row), np.int64), call.encodings, call.carried)
        key = decode(own, call.key_type)
    elif len(row) > len(happened.key):
        key = decode(happened.key, call.key_type).take(pa.array(row))
    else:
        key = decode(happened.key.take(row), call.key_type)
    if call.emit == VISITS:
        columns = [
            names.take(pa.array(happened.fence[over])),
            key,
            times(happened.since[over]),
            times(happened.time[over]),
            pa.array(happened.readings[over]),
            pa.array(happened.highest[over]),
            *carried,
        ]
        return pa.Table.from_arrays(columns, schema=call.answer_schema)
    since, crossed = times(happened.since), happened.kind == KINDS.index("cross")
    columns = [
        names.take(pa.array(happened.fence)),
        key,
        pa.array(KINDS).take(pa.array(happened.kind)),
        times(happened.time),
        pa.array(happened.probability),
        since if not crossed.any() else pc.if_else(pa.array(crossed), None, since),
        *carried,
    ]
    return pa.Table.from_arrays(columns, schema=call.answer_schema)
