"""One call of the similarity join, resolved: what both engines work from, and how answers become a table."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import numpy as np
import pyarrow as pa

from appulse.arguments import one_of
from appulse.engines.carrying import carried_by, carried_of, of_side, refuse_repeated
from appulse.engines.imputing import filled_columns, fills_of
from appulse.engines.join.few_pairs import FewPairs
from appulse.engines.meaning import of_call, of_stream, of_types
from appulse.engines.objects import ObjectsCall
from appulse.engines.options import CallSettings, Options
from appulse.engines.schemas import (
    check_bursts,
    check_partitions,
    common_key_type,
    common_time_type,
    conditions_of,
    is_joined,
    known_dimensions,
    refuse_bursts,
)
from appulse.engines.thresholds import (
    COSINE,
    as_directions,
    check_margins,
    check_metric,
    check_places,
    groups_of,
    of_epsilon,
    of_groups,
    thresholds,
    units_of,
    within_tolerance,
)
from appulse.errors import BadArgument, NotBuilt
from appulse.model.encoding import Encoding, check_columns, held_as
from appulse.model.few import FEW
from appulse.model.filled import FILLED
from appulse.model.meaning import real
from appulse.model.reach import gaussian_reach, reach_quantile
from appulse.model.scaling import scaled_model
from appulse.model.stream import stream_names
from appulse.model.strings import decode
from appulse.model.times import from_micros, is_time
from appulse.model.uncertainty import Position, in_closed_form, is_certain, read_from
from appulse.model.uncertainty import names as dimension_names
from appulse.model.vectors import all_as_vectors
from appulse.operators.attributes import Attribute, dimension_of
from appulse.operators.numbering import Sequencer
from appulse.operators.partners import HOW
from appulse.operators.plan import JoinPlan
from appulse.windows.definitions import DeltaWindow, TimeWindow, Window
from appulse.windows.frames import in_bursts, meaning_of, rule_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from appulse.engines.carrying import CarriedBy
    from appulse.kernels.arrays import Ints
    from appulse.model.batch import Ragged
    from appulse.model.carried import Columns
    from appulse.model.meaning import Meaning
    from appulse.model.stream import Stream
    from appulse.model.uncertainty import Model
    from appulse.operators.answers import Answers
    from appulse.operators.cost import Choice
    from appulse.operators.estimate import Estimate
    from appulse.operators.pairings import Pairings
    from appulse.windows.definitions import Window

EMITS = ("matches", "changes")
PROBABILITIES = ("exact", "bounds")
_TWO = 2
_SHARED = 1 << 18  # rows up to which columns of one value are kept
#: Samples that match, and what they add to the probability.
PAIRS = pa.list_(
    pa.struct([("left", pa.list_(pa.float64())), ("right", pa.list_(pa.float64())), ("weight", pa.float64())])
)
_DEFAULTS: Meaning = {
    "different": None,
    "imputer": None,
    "emit": "matches",
    "probabilities": "exact",
    "values": False,
    "how": "inner",
    "density": None,
    "k": 1,
    "by": "distance",
    "metric": "euclidean",
    "scale": {},
}
Emit: TypeAlias = Annotated[str, one_of(*EMITS)]
How: TypeAlias = Annotated[str, one_of(*HOW)]
Probabilities: TypeAlias = Annotated[str, one_of(*PROBABILITIES)]


@dataclass(frozen=True)
class Observed:
    """What a join in process did: pairs by what decided them, the indexes it chose, and what it expected."""

    counts: Mapping[str, int]
    choices: Sequence[tuple[str, Choice]]
    estimate: Estimate | None


@dataclass(frozen=True)
class JoinCall(ObjectsCall):
    """A checked call of a join."""

    plan: JoinPlan
    streams: tuple[Encoding, ...]
    options: Options = field(default_factory=Options)
    imputes: bool = False  # whether answers report what was filled
    probability: float = 1.0  # as asked for; that of the plan has its tolerance taken off
    cosine: float | None = None  # epsilon as asked for, where rows are directions
    observed: Observed | None = field(default=None, compare=False)

    @property
    def encodings(self) -> tuple[Encoding, ...]:
        return self.streams

    @cached_property
    def answer_schema(self) -> pa.Schema:
        if self.plan.fewer_than:
            odds = [("expected", pa.float64()), ("probability", pa.float64())]
            return pa.schema([("key", self.key_type), ("time", self.time_type), *odds, *self.carried[0][1]])
        anti = self.plan.how == "left_anti"
        sides = [
            (f"{side}_{what}", kind)
            for side in (("left",) if anti else ("left", "right"))
            for what, kind in (("stream", pa.string()), ("key", self.key_type), ("time", self.time_type))
        ]
        figures = [("distance", pa.float64()), ("probability", pa.float64())]
        figures += [("probability_upper", pa.float64())] if self.plan.bounded else []
        figures += [("log_likelihood_ratio", pa.float64())] if self.plan.density is not None else []
        figures += [("rank", pa.int64())] if self.plan.best else []
        figures += [("margin", pa.float64())] if self.plan.assigned else []
        changes = [("change", pa.int32()), ("time", self.time_type)] if self.plan.changes else []
        pairs = [("pairs", PAIRS)] if self.plan.values else []
        filled = [(f"{side}_filled", FILLED) for side in ("left", "right")] if self.imputes else []
        carried = [(f"{side}_{name}", kind) for side, own in self.carried for name, kind in own]
        if anti:
            kept = [(name, kind) for name, kind in (*filled, *carried) if name.startswith("left_")]
            return pa.schema([*sides, *kept])
        return pa.schema([*sides, *figures, *changes, *pairs, *filled, *carried])

    @cached_property
    def carried(self) -> list[tuple[str, Columns]]:
        """What the rows on each side of pairs carry."""
        may_be = (self.streams, self.streams) if self.plan.self_join else (self.streams[:-1], self.streams[1:])
        return [(side, of_side(streams)) for side, streams in zip(("left", "right"), may_be, strict=True)]

    @cached_property
    def no_answers(self) -> pa.Table:
        """An answer without rows."""
        return self.answer_schema.empty_table()

    @cached_property
    def few_pairs(self) -> FewPairs | None:
        """How few pairs become a table, where there is a short way."""
        two = len(self.streams) == _TWO and not self.plan.self_join and len(set(self.units)) == 1
        if not two or self.encodings[0].kept_apart or self.cosine is not None:
            return None
        return FewPairs.of(self.answer_schema, (self.plan.streams[0], self.plan.streams[1]), self.units[0])

    @cached_property
    def names(self) -> pa.Array:
        """The names of the streams."""
        return pa.array(self.plan.streams, pa.string())

    @cached_property
    def units(self) -> list[str]:
        """The unit of each stream's times."""
        return [encoding.unit for encoding in self.encodings]

    @cached_property
    def _repeated(self) -> dict[int, pa.Array]:
        return {}

    def repeated(self, stream: int, n: int) -> pa.Array:
        """The name of a stream so often; pushes and parts share the column of one of them."""
        column = self._repeated.get(stream)
        if column is None or len(column) < n:
            column = pa.repeat(self.names[stream], n if n > _SHARED else 2 * n)
            if n <= _SHARED:
                self._repeated[stream] = column
        return column[:n]

    @property
    def holds_back(self) -> bool:
        """Whether the end of the streams makes answers that nothing else does: held ticks, or pairs that left."""
        return self.plan.rule is not None or self.plan.changes or any(self.plan.followed)

    @property
    def emits_changes(self) -> bool:
        return self.plan.changes

    @property
    def lag(self) -> int | None:
        """The earlier row of a pair is older than the later one by a window at most; in rows, by any time."""
        return max(self.plan.windows) if self.plan.rule is None else None

    @property
    def _asked_epsilon(self) -> Meaning | float | str:
        plan = self.plan
        return of_epsilon(plan.epsilon, plan.vertical) if self.cosine is None else real(self.cosine)

    def meaning(self) -> Meaning:
        plan, waits = self.plan, zip(self.encodings, self.lateness, self.idle_after, strict=True)
        fills = {one.name: one.fill.meaning() for one in self.encodings if one.fill is not None}
        lengths = dict(zip(plan.streams, plan.windows, strict=True)) if plan.rule is None else {}
        units = self.encodings[0].units
        named = dimension_names(self.encodings[0].model, plan.dimensions or len(units or ()))
        arguments = {
            "streams": [of_stream(*one, arrival=self.arrival) for one in waits],
            "epsilon": of_groups(plan.groups, named) if plan.groups else self._asked_epsilon,
            "metric": plan.metric if self.cosine is None else COSINE,
            "scale": {} if units is None else {n: real(u) for n, u in zip(named, units, strict=True) if u != 1.0},
            "probability": real(self.probability),
            "window": meaning_of(plan.rule, lengths, self.encodings[0].measure),
            "different": self.encodings[0].differ,
            "imputer": fills if self.imputes else None,
            "emit": "changes" if plan.changes else "matches",
            "probabilities": "bounds" if plan.bounded else "exact",
            "values": plan.values,
            "how": plan.how,
            "density": None if plan.density is None else real(plan.density),
            "types": of_types([("key", self.key_type), ("time", self.time_type)]),
        }
        if plan.fewer_than:
            asked = {"fewer_than": plan.fewer_than, "probability": real(self.probability)}
            return of_call("outliers", arguments | asked, _DEFAULTS)
        if plan.best:
            epsilon = None if plan.epsilon == math.inf else arguments["epsilon"]
            return of_call("nearest", arguments | {"k": plan.best, "by": plan.by, "epsilon": epsilon}, _DEFAULTS)
        return of_call("self_join" if plan.self_join else "similarity_join", arguments, _DEFAULTS)

    def figures(self, stream: int) -> Mapping[str, float]:
        """The version of the repository that fills rows, where there are versions."""
        taken = getattr(self.streams[stream].fill, "taken", None)
        return {} if taken is None else {"repository": taken}

    def with_dimensions(self, d: int) -> JoinCall:
        """The same call, once rows have shown their number of dimensions."""
        plan = self.plan if self.plan.euclidean else replace(self.plan, dimensions=d)
        return replace(self, plan=plan, streams=tuple(replace(e, dimensions=d) for e in self.streams))


@dataclass(frozen=True, kw_only=True)
class JoinSettings(CallSettings):
    """The arguments of a join, beside its streams."""

    epsilon: float | Mapping[Any, float]
    probability: float
    window: Window
    different: str | None = None
    imputer: Any = None
    metric: str = "euclidean"
    scale: Mapping[str, float] | None = None
    how: str = "inner"
    likelihood: bool = False
    density: float | None = None
    emit: str = "matches"
    probabilities: str = "exact"
    values: bool = False


def resolve(
    streams: Sequence[Stream], schemas: Sequence[pa.Schema], settings: JoinSettings, *, pairs: bool = True
) -> JoinCall:
    """Check a call against the columns there are, and settle all that follows; one stream is joined with itself.

    ``pairs`` says that the answers are the pairs: then their names are checked, too.
    """
    epsilon, metric, window = settings.epsilon, settings.metric, settings.window
    how, values, options = settings.how, settings.values, settings.options
    self_join = len(streams) == 1
    names = stream_names(streams)
    if any(stream.motion is not None for stream in streams):
        raise NotBuilt(
            "motion= is for encounters, similarity_join and self_join, and not built for this call. Leave it out. See "
            "docs/index.md."
        )
    values_of = all_as_vectors([stream.value for stream in streams], schemas)
    streams = [replace(stream, value=value) for stream, value in zip(streams, values_of, strict=True)]
    if values and settings.probabilities == "bounds":
        raise BadArgument(
            "values=True reports the samples that match, whose weights sum to the exact probability. "
            "Leave out probabilities='bounds'."
        )
    if values and any(isinstance(stream.value, Position) for stream in streams):
        raise BadArgument("values=True lists samples that match, and positions have none. Leave out values=True.")
    check_how(settings, names)
    check_places(streams, names)
    if self_join:
        refuse_bursts(streams, "A self-join")
    check_bursts(streams, window)
    arrival = _check_order(streams, names)
    conditions = [conditions_of(stream) for stream in streams]
    d = known_dimensions(names, [stream.value for stream in streams], schemas)
    units = units_of(settings.scale, streams, d)
    models = tuple(held_as(stream.value, where) for stream, where in zip(streams, conditions, strict=True))
    models = models if units is None else tuple(scaled_model(model, units) for model in models)
    threshold = within_tolerance(settings.probability)
    check_metric(metric, streams)
    cosine = None
    if metric == COSINE:
        cosine, epsilon, metric = as_directions(epsilon, streams, settings.scale)
    groups = groups_of(epsilon, streams, d)
    d = sum(len(own) for own, _ in groups) or d
    within, vertical = (groups[0][1], None) if groups else thresholds(epsilon, streams)
    groups = groups if len(groups) > 1 else ()
    margins = check_margins(streams, several=vertical is not None or bool(groups))
    plan = JoinPlan(
        streams=names,
        models=models,
        windows=window.micros(names) if isinstance(window, TimeWindow) else (),
        epsilon=within,
        vertical=vertical,
        threshold=threshold,
        quantile=reach_quantile(threshold),
        self_join=self_join,
        check_differ=settings.different is not None,
        # Rows that are not filled before they may match something are not there to leave alone; they have no margin,
        # and no other units.
        bounds=options.bounds if how == "inner" and not margins and units is None else options.bounds - {"lazy"},
        index=options.index,
        audit=options.audit,
        rule=in_bursts(rule_of(window), [stream.correlation for stream in streams]),
        grouped=bool(streams[0].partitions),
        changes=settings.emit == "changes",
        values=values,
        bounded=settings.probabilities == "bounds",
        how=how,
        density=_density(settings, models),
        withdrawn=any(stream.change is not None for stream in streams),
        margins=margins,
        metric=metric if d != 1 else "euclidean",
        groups=groups,
        dimensions=0 if metric == "euclidean" and not groups else d or 0,
    )
    key_type, time_type = common_key_type(streams, schemas, names), common_time_type(streams, schemas, names)
    check_partitions(streams, schemas, names)
    fills = fills_of(settings.imputer, names, [stream.value for stream in streams])
    encodings = tuple(
        Encoding(
            name=name,
            model=read_from(stream.value, schema.names),
            key=stream.key,
            time=stream.time,
            unit=stream.unit,
            existence=stream.existence_column,
            correlation=stream.correlation,
            partition_by=stream.partitions,
            differ=settings.different,
            key_type=key_type,
            time_type=time_type,
            quantile=plan.quantile,
            gaussian_reach=gaussian_reach(threshold) if plan.closed_form else None,
            dimensions=d,
            measure=window.column if isinstance(window, DeltaWindow) and window.confidence is None else None,
            where=where,
            fill=fill,
            carries_fill_source=any(known is not None for known in fills),
            carry=carried_of(stream, schema, name),
            change=stream.change,
            margin=stream.margin,
            metric=plan.metric,
            units=units,
            directions=cosine is not None,
        )
        for name, stream, where, fill, schema in zip(names, streams, conditions, fills, schemas, strict=True)
    )
    for encoding, schema in zip(encodings, schemas, strict=True):
        check_columns(encoding, schema)
        if plan.rule is not None and plan.rule.column is not None and d is not None:
            dimension_of(encoding.model, plan.rule.column, d)
    call = JoinCall(
        plan,
        encodings,
        options,
        imputes=settings.imputer is not None,
        probability=settings.probability,
        cosine=cosine,
        # Under time windows nothing waits for a tick to be complete, so order of arrival changes nothing.
        arrival=arrival and plan.rule is not None,
        dependent=tuple(name for name, schema in zip(names, schemas, strict=True) if is_joined(schema)),
    ).over(streams, settings)
    if pairs:
        refuse_repeated(call.answer_schema)
    return call


def check_how(settings: JoinSettings, names: Sequence[str]) -> None:
    """Raise `BadArgument` where rows without a partner cannot be reported."""
    how = settings.how
    if how == "inner":
        return
    if len(names) != _TWO:
        raise BadArgument(f"how={how!r} is of two streams, and the join has {len(names)}. Leave it out, or join two.")
    if settings.emit == "changes":
        raise BadArgument(f"how={how!r} reports rows once, emit='changes' pairs that come and go. Give one of them.")
    if settings.values:
        raise BadArgument(f"values=True lists samples that match, how={how!r} rows without any. Give one of them.")


def _density(settings: JoinSettings, models: Sequence[Model]) -> float | None:
    """The density of unrelated rows, where likelihood ratios are asked for."""
    density = settings.density
    if not settings.likelihood:
        if density is not None:
            raise BadArgument(f"density={density:g} is that of likelihood=True. Give both, or neither.")
        return None
    if settings.values or not all(map(in_closed_form, models)) or all(map(is_certain, models)):
        raise BadArgument(
            "likelihood=True takes normal errors: ap.Gaussian, with one sigma or in up to three dimensions, or "
            "ap.Position with sigma= or ellipse=, and exact rows beside them. Leave out values=True and filters of "
            "uncertain values."
        )
    return 1.0 if density is None else density


def _check_order(streams: Sequence[Stream], names: Sequence[str]) -> bool:
    """Whether rows are taken in order of arrival: on all inputs, or on none."""
    orders = {name: stream.order for name, stream in zip(names, streams, strict=True)}
    if len(set(orders.values())) > 1:
        raise BadArgument(f"order differs over the streams: {orders}. Give every stream the same.")
    return streams[0].order == "arrival"


def to_table(answers: Answers, call: JoinCall, carried: CarriedBy = carried_by) -> pa.Table:
    """Answers as a table in the types the user gave; keys of pairs may be what ``carried`` makes keys of."""
    if call.plan.fewer_than:
        return _outliers_table(answers, call)
    if call.plan.how == "inner":
        return _pairs_table(answers, call, carried)
    left, right = answers.right_stream < 0, answers.left_stream < 0
    parts = [_alone_table(answers.filter(left), call, 0), _alone_table(answers.filter(right), call, 1)]
    if call.plan.how != "left_anti":
        parts.insert(0, _pairs_table(answers.filter(~(left | right)), call))
    return pa.concat_tables(parts)


def _alone_table(answers: Answers, call: JoinCall, side: int) -> pa.Table:
    """Rows without a partner, which stand on one side."""
    if len(answers) == 0:
        return call.no_answers
    name, own = call.carried[side]
    if side == 0:
        stream, key, time = answers.left_stream, answers.left_key, answers.left_time
    else:
        stream, key, time = answers.right_stream, answers.right_key, answers.right_time
    columns: dict[str, pa.Array] = {}
    if call.imputes:
        key, columns[f"{name}_filled"] = filled_columns(key, stream, call.encodings)
    key, brought = carried_by(key, stream, call.encodings, own)
    columns |= {f"{name}_{column}": values for (column, _), values in zip(own, brought, strict=True)}
    columns |= {f"{name}_stream": _named(stream, call), f"{name}_key": decode(key, call.key_type)}
    columns[f"{name}_time"] = times_of(time, stream, call)
    schema = call.answer_schema
    return pa.Table.from_arrays(
        [columns.get(field.name, pa.nulls(len(answers), field.type)) for field in schema], schema=schema
    )


def _outliers_table(answers: Answers, call: JoinCall) -> pa.Table:
    """Rows with few partners: how many are expected stands for the distance."""
    if len(answers) == 0:
        return call.no_answers
    key, brought, own = answers.left_key, list[pa.Array](), call.carried[0][1]
    if own or call.encodings[0].kept_apart:
        key, brought = carried_by(key, answers.left_stream, call.encodings, own)
    time = times_of(answers.left_time, answers.left_stream, call)
    columns = [decode(key, call.key_type), time, pa.array(answers.distance), pa.array(answers.probability), *brought]
    return pa.Table.from_arrays(columns, schema=call.answer_schema)


def _pairs_table(answers: Answers, call: JoinCall, carry: CarriedBy = carried_by) -> pa.Table:
    if len(answers) == 0:
        return call.no_answers
    if call.few_pairs is not None and len(answers) <= FEW:
        return call.few_pairs.table(answers)
    columns, filled, carried = [], [], []
    sides = (
        (answers.left_stream, answers.left_key, answers.left_time),
        (answers.right_stream, answers.right_key, answers.right_time),
    )
    for (stream, keys, time), (_, own) in zip(sides, call.carried, strict=True):
        key, brought = keys, list[pa.Array]()
        if call.imputes:
            key, column = filled_columns(key, stream, call.encodings)
            filled.append(column)
        if own or call.encodings[0].kept_apart or carry is not carried_by:
            key, brought = carry(key, stream, call.encodings, own)
        carried += brought
        columns.append(_named(stream, call))
        columns.append(decode(key, call.key_type))
        columns.append(times_of(time, stream, call))
    distance = answers.distance if call.cosine is None else answers.distance**2 / 2.0
    columns += [pa.array(distance), pa.array(answers.probability, from_pandas=True)]
    if call.plan.bounded:
        columns.append(pa.array(answers.probability if answers.upper is None else answers.upper))
    if answers.ratio is not None:
        columns.append(pa.array(answers.ratio, from_pandas=True))
    if answers.place is not None:
        columns.append(pa.array(answers.place))
    if answers.margin is not None:
        columns.append(pa.array(answers.margin, from_pandas=True))
    if call.plan.changes and answers.change is not None and answers.at is not None and answers.at_stream is not None:
        columns += [pa.array(answers.change.astype(np.int32)), times_of(answers.at, answers.at_stream, call)]
    if answers.pairings is not None:
        columns.append(_pairs_column(answers.pairings, call.encodings[0].units))
    return pa.Table.from_arrays([*columns, *filled, *carried], schema=call.answer_schema)


def _named(stream: Ints, call: JoinCall) -> pa.Array:
    """The name of each row's stream; of two streams, one is always on the left."""
    first, n = int(stream[0]), len(stream)
    if not (stream == first).all():
        return call.names.take(pa.array(stream))
    return call.repeated(first, n)


def _pairs_column(pairings: Ragged[Pairings], units: Sequence[float] | None) -> pa.Array:
    found = pairings.values
    m, d = found.left.shape
    by = np.ones(d) if units is None else np.array(units)
    offsets = pa.array(np.arange(m + 1) * d, pa.int32())
    sides = [pa.ListArray.from_arrays(offsets, pa.array((side * by).ravel())) for side in (found.left, found.right)]
    pairs = pa.StructArray.from_arrays([*sides, pa.array(found.weight)], fields=list(PAIRS.value_type))
    return pa.ListArray.from_arrays(pa.array(pairings.offsets, pa.int32()), pairs).cast(PAIRS)


def times_of(micros: Ints, stream: Ints, call: JoinCall) -> pa.Array:
    """Times of the rows of some streams, in the type they came in."""
    units = call.units
    if len(set(units)) == 1 or is_time(call.time_type):
        return from_micros(micros, call.time_type, units[0])
    # Each in its own unit; the times of the others might not fit the type in it.
    parts = [from_micros(np.where(stream == i, micros, 0), call.time_type, unit) for i, unit in enumerate(units)]
    return pa.concat_arrays(parts).take(pa.array(stream * len(micros) + np.arange(len(micros))))


def numbering_of(call: JoinCall, *, standing: bool = False, tabled: bool = False) -> Sequencer:
    """What numbers the rows of a call whose windows go by rows; ``tabled`` as a `Sequencer` has it.

    Where the ``standing`` answer may be asked for, rows stay in their windows although no new row can match them.
    """
    rule, plan = call.plan.rule, call.plan
    assert rule is not None  # noqa: S101 - else there is nothing to number
    return Sequencer(
        len(plan.streams),
        rule,
        tabled=tabled,
        every_tick=plan.changes,
        in_order=not call.arrival,
        least=0.0 if standing else plan.least_inside,
        attribute=None if rule.column is None else Attribute(rule.column, plan.models, call.encodings[0].units),
    )
