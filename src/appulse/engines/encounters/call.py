"""A call of `encounters`: its arguments checked, and its answers as a table."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa

from appulse.arguments import one_of
from appulse.engines.carrying import carried_of, refuse_repeated
from appulse.engines.meaning import of_call, of_stream, of_types
from appulse.engines.objects import ObjectsCall
from appulse.engines.options import CallSettings
from appulse.engines.schemas import check_partitions, common_key_type, common_time_type, encoding_of, known_dimensions
from appulse.engines.thresholds import (
    check_margins,
    check_places,
    groups_of,
    of_epsilon,
    of_groups,
    thresholds,
    within_tolerance,
)
from appulse.errors import BadArgument
from appulse.kernels.capsule import MOST_DIMENSIONS
from appulse.model.carried import carried_columns
from appulse.model.meaning import real, seconds
from appulse.model.motion import Course, Still, Straight, Velocity
from appulse.model.positions import earth_of
from appulse.model.reach import gaussian_reach, reach_quantile
from appulse.model.stream import stream_names
from appulse.model.strings import decode
from appulse.model.times import duration, from_micros, is_time
from appulse.model.uncertainty import Exact, Gaussian, Incomplete, Position
from appulse.model.uncertainty import names as dimension_names
from appulse.operators.leg_pairs import EncounterPlan
from appulse.operators.plan import tolerated

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from appulse.kernels.arrays import Ints
    from appulse.model.encoding import Encoding
    from appulse.model.meaning import Meaning
    from appulse.model.motion import Motion
    from appulse.model.stream import Stream
    from appulse.operators.encounters import Found
    from appulse.operators.leg_pairs import Approaches

CLOSED, CHANGES, LEGS, PAIRS = "closed", "changes", "legs", "pairs"
EmitEncounters: TypeAlias = Annotated[str, one_of(CLOSED, CHANGES, LEGS)]
_DEFAULTS: Meaning = {"gap": seconds(0), "min_seconds": seconds(0), "emit": CLOSED, "expected_seconds": False}


@dataclass(frozen=True)
class EncounterCall(ObjectsCall):
    """A checked call without its frames: travels to workers."""

    plan: EncounterPlan
    streams: tuple[Encoding, ...]
    probability: float
    threads: int | None = None  # in process; None: all cores

    @property
    def encodings(self) -> tuple[Encoding, ...]:
        return self.streams

    @property
    def holds_back(self) -> bool:
        """Legs and encounters wait for what may follow."""
        return True

    @property
    def emits_changes(self) -> bool:
        return self.plan.emit == CHANGES

    @property
    def lag(self) -> int | None:
        """An encounter began any time ago."""
        return None

    @property
    def moment_type(self) -> pa.DataType:
        """Of times between readings: fine enough for microseconds."""
        kind = self.time_type
        if is_time(kind):
            return pa.timestamp("us", kind.tz if pa.types.is_timestamp(kind) else None)
        return kind if pa.types.is_null(kind) else pa.float64()

    @property
    def overlap_type(self) -> pa.DataType:
        """Of the begin and the end of overlaps: those of readings, unless legs end by a horizon."""
        straight = all(isinstance(motion, Straight) for motion in self.plan.motions)
        return self.time_type if straight else self.moment_type

    @property
    def answer_schema(self) -> pa.Schema:
        key, real_number = self.key_type, pa.float64()
        closest = [("closest_time", self.moment_type), ("closest_distance", real_number)]
        expected = [("expected_seconds", real_number)] if self.plan.expected else []
        if self.plan.emit == LEGS:
            legs = [(f"{side}_{what}", kind) for side in ("left", "right") for what, kind in self.own]
            overlap = [("overlap_start", self.overlap_type), ("overlap_end", self.overlap_type)]
            return pa.schema([*legs, *overlap, *closest, *expected, ("probability", real_number), *self.carried])
        span = [("start", self.overlap_type), ("end", self.overlap_type)]
        figures = [("seconds_within", real_number), *expected, ("probability", real_number), ("legs", pa.int64())]
        change = [("change", pa.int32())] if self.plan.emit == CHANGES else []
        return pa.schema([("left_key", key), ("right_key", key), *span, *closest, *figures, *change, *self.carried])

    @property
    def sides(self) -> tuple[Encoding, Encoding]:
        """How the columns of the left and of the right stream are read."""
        return self.streams[0], self.streams[-1]

    @property
    def carried(self) -> list[tuple[str, pa.DataType]]:
        """Columns of what readings carry."""
        sides = zip(("left", "right"), self.sides, strict=True)
        return [(f"{side}_{name}", kind) for side, one in sides for name, kind in one.carry]

    @property
    def own(self) -> list[tuple[str, pa.DataType]]:
        """Columns of a reading."""
        return [("key", self.key_type), ("time", self.time_type)]

    def meaning(self) -> Meaning:
        plan = self.plan
        arguments: Meaning = {"gap": seconds(plan.gap), "min_seconds": seconds(plan.least), "emit": plan.emit}
        arguments = arguments | {"expected_seconds": plan.expected}
        return of_call("encounters", self.asked | arguments, _DEFAULTS)

    @property
    def asked(self) -> Meaning:
        """The arguments that all calls over legs have, in plain JSON."""
        plan = self.plan
        streams = [
            of_stream(one, late, idle) | ({} if isinstance(motion, Still) else {"motion": of_motion(motion)})
            for one, late, idle, motion in zip(self.streams, self.lateness, self.idle_after, plan.motions, strict=True)
        ]
        named = dimension_names(plan.models[0], sum(len(own) for own, _ in plan.groups))
        return {
            "streams": streams,
            "epsilon": of_groups(plan.groups, named) if plan.groups else of_epsilon(plan.epsilon, plan.vertical),
            "probability": real(self.probability),
            "types": of_types(self.own),
        }


def of_motion(motion: Motion) -> Meaning:
    """A motion in plain JSON."""
    if isinstance(motion, Straight):
        fastest = {} if motion.max_speed is None else {"max_speed": real(motion.max_speed)}
        return {"kind": "Straight", "max_gap": seconds(motion.longest)} | fastest
    said = {"kind": type(motion).__name__, "columns": list(motion.columns), "horizon": seconds(motion.longest)}
    unit = {"unit": motion.unit} if isinstance(motion, Course) else {}
    return said | unit | {"noise": real(motion.noise)}


@dataclass(frozen=True, kw_only=True)
class EncounterSettings(CallSettings):
    """The arguments of encounters, beside their streams."""

    epsilon: float | Mapping[str, float]
    probability: float
    gap: Any = 0
    min_seconds: Any = 0
    emit: str = CLOSED
    expected_seconds: bool = False


def resolve_encounters(
    streams: Sequence[Stream], schemas: Sequence[pa.Schema], settings: EncounterSettings
) -> EncounterCall:
    """Check a call against the columns there are, and settle everything that follows from its arguments."""
    return resolve_legs(EncounterCall, streams, schemas, settings)


C = TypeVar("C", bound=EncounterCall)


def resolve_legs(
    kind: type[C],
    streams: Sequence[Stream],
    schemas: Sequence[pa.Schema],
    settings: EncounterSettings,
    windows: tuple[int, ...] | None = None,
) -> C:
    """A call of a kind over legs, checked; joins have ``windows``, and streams that need not move."""
    names = stream_names(streams)
    for stream, name in zip(streams, names, strict=True):
        if isinstance(stream.value, Incomplete):
            raise BadArgument(
                f"Things that move need whole values, and those of stream {name!r} are {stream.value!r}. Fill holes "
                "(ap.impute) before the call."
            )
    check_places(streams, names)
    check_partitions(streams, schemas, names)
    d = known_dimensions(names, [stream.value for stream in streams], schemas)
    if d is None:
        raise BadArgument(
            "The columns do not say how many dimensions the values have. Name the dimensions: "
            "ap.Samples(..., names=['x', 'y'])."
        )
    for stream, name in zip(streams, names, strict=True):
        _check_stream(stream, name, d, needed=windows is None)
    motions = tuple(Still() if stream.motion is None else stream.motion for stream in streams)
    earth = earth_of([stream.value for stream in streams])
    groups = groups_of(settings.epsilon, streams, d)
    within, vertical = (groups[0][1], None) if groups else thresholds(settings.epsilon, streams)
    groups = groups if len(groups) > 1 else ()
    check_margins(streams, several=vertical is not None or bool(groups))
    closed = earth is not None or (d <= MOST_DIMENSIONS and all(_has_closed_form(stream) for stream in streams))
    if not closed and any(motion.noise for motion in motions):
        raise BadArgument(
            "noise= widens normal errors in up to 3 dimensions, and the values are others. Use ap.Exact or "
            "ap.Gaussian, or leave noise out."
        )
    threshold = within_tolerance(settings.probability)
    plan = EncounterPlan(
        models=tuple(stream.value for stream in streams),
        motions=motions,
        epsilon=within,
        limit=math.hypot(*(tolerated(distance) for _, distance in groups)) if groups else tolerated(within),
        threshold=threshold,
        quantile=reach_quantile(threshold),
        reach=gaussian_reach(threshold) if closed else None,
        gap=duration(settings.gap, "gap"),
        least=duration(settings.min_seconds, "min_seconds"),
        emit=settings.emit,
        earth=earth,
        vertical=vertical,
        groups=groups,
        carried=tuple(bool(stream.carry) for stream in streams),
        windows=windows,
        expected=settings.expected_seconds,
    )
    key_type, time_type = common_key_type(streams, schemas, names), common_time_type(streams, schemas, names)
    encodings = tuple(
        replace(
            encoding_of(replace(stream, name=name), schema, motion=stream.motion, margins=True),
            key_type=key_type,
            time_type=time_type,
            quantile=plan.quantile,
            gaussian_reach=plan.reach,
            carry=carried_of(stream, schema, name),
        )
        for stream, schema, name in zip(streams, schemas, names, strict=True)
    )
    call = kind(plan, encodings, settings.probability, settings.options.threads).over(streams, settings)
    refuse_repeated(call.answer_schema)
    return call


def _check_stream(stream: Stream, name: str, d: int, *, needed: bool) -> None:
    if stream.motion is None and needed:
        raise BadArgument(
            f"Stream {name!r} does not say how its things move between readings. Give motion=: "
            "ap.Straight(max_gap='5 minutes'), ap.Velocity(...) or ap.Course(...)."
        )
    if stream.order != "time":
        raise BadArgument(f"Stream {name!r} has order={stream.order!r}: motion goes by time. Leave order out.")
    on_earth = isinstance(stream.value, Position)
    d = len(stream.value.columns) if isinstance(stream.value, Position) else d
    if isinstance(stream.motion, Velocity) and len(stream.motion.columns) != d:
        raise BadArgument(
            f"Velocity has {len(stream.motion.columns)} columns, and values of stream {name!r} have {d} dimensions. "
            "Name a velocity for each" + (": east, north, and up if there is an altitude." if on_earth else ".")
        )
    if isinstance(stream.motion, Course) and d != 2 and not on_earth:
        raise BadArgument(f"A Course is of two dimensions, and values of stream {name!r} have {d}. Use ap.Velocity.")


def _has_closed_form(stream: Stream) -> bool:
    model = stream.value
    return not stream.where and isinstance(model, Exact | Gaussian)


def encounter_tables(found: Found, call: EncounterCall) -> list[pa.Table]:
    """Answers in the types the user gave: what is final, and before it what entered, where changes are asked for."""
    if call.plan.emit == PAIRS:
        return [_pairs_table(found.final, call)] if len(found.final) else []
    if call.plan.emit == LEGS:
        return [_legs_table(found.final, call)] if len(found.final) else []
    if call.plan.emit == CLOSED:
        given: list[tuple[Approaches, int | None]] = [(found.final, None)]
    else:
        given = [(found.entered, 1), (found.final, -1)]
    return [_table(runs, call, change) for runs, change in given if len(runs)]


def _legs_table(legs: Approaches, call: EncounterCall) -> pa.Table:
    columns = [
        decode(legs.left_key, call.key_type),
        _times(legs.left_time, call.time_type, call),
        decode(legs.right_key, call.key_type),
        _times(legs.right_time, call.time_type, call),
        _times(legs.begin, call.overlap_type, call),
        _times(legs.end, call.overlap_type, call),
        *_closest(legs, call),
        *_expected(legs),
        pa.array(legs.probability),
        *_carried(legs, call),
    ]
    return pa.Table.from_arrays(columns, schema=call.answer_schema)


def _pairs_table(pairs: Approaches, call: EncounterCall) -> pa.Table:
    columns = []
    for one, key, time in zip(
        call.sides, (pairs.left_key, pairs.right_key), (pairs.left_time, pairs.right_time), strict=True
    ):
        columns += [pa.repeat(pa.scalar(one.name), len(pairs)), decode(key, call.key_type)]
        columns.append(from_micros(time, call.time_type, one.unit))
    columns += [pa.array(pairs.distance), pa.array(pairs.probability), *_carried(pairs, call)]
    return pa.Table.from_arrays(columns, schema=call.answer_schema)


def _table(runs: Approaches, call: EncounterCall, change: int | None = None) -> pa.Table:
    columns = [
        decode(runs.left_key, call.key_type),
        decode(runs.right_key, call.key_type),
        _times(runs.begin, call.overlap_type, call),
        _times(runs.end, call.overlap_type, call),
        *_closest(runs, call),
        pa.array(runs.within / 1e6),
        *_expected(runs),
        pa.array(runs.probability),
        pa.array(runs.legs),
    ]
    columns += [] if change is None else [pa.array(np.full(len(runs), change, np.int32))]
    columns += _carried(runs, call)
    return pa.Table.from_arrays(columns, schema=call.answer_schema)


def _carried(runs: Approaches, call: EncounterCall) -> list[pa.Array]:
    """What the readings carry that the legs of the closest approach start with."""
    sides = zip((runs.left_carried, runs.right_carried), call.sides, strict=True)
    kinds = [(tail, [kind for _, kind in one.behind]) for tail, one in sides if tail is not None and one.behind]
    return [column for tail, own in kinds for column in carried_columns(tail, own)]


def _closest(runs: Approaches, call: EncounterCall) -> list[pa.Array]:
    moment = np.rint(runs.closest_time).astype(np.int64)
    return [_times(moment, call.moment_type, call), pa.array(runs.distance)]


def _expected(runs: Approaches) -> list[pa.Array]:
    return [] if runs.expected is None else [pa.array(runs.expected / 1e6)]


def _times(micros: Ints, kind: pa.DataType, call: EncounterCall) -> pa.Array:
    return from_micros(micros, kind, call.streams[0].unit)
