"""A call of `window_aggregate`: its arguments checked, carried out in this process, and its answers as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import numpy as np
import pyarrow as pa

from appulse.arguments import NAME, mapping, one_of, several
from appulse.engines.bucket import NEVER, ROWS
from appulse.engines.carrying import refuse_carry, refuse_repeated
from appulse.engines.meaning import of_call, of_stream, of_types
from appulse.engines.objects import ObjectsBucket, ObjectsCall, packed
from appulse.engines.options import CallSettings, Options, options_of
from appulse.engines.schemas import check_bursts, column_type, encoding_of, group_columns, is_joined, known_dimensions
from appulse.engines.spark.codec import unpack
from appulse.engines.withdrawing import WAITING, Corrections
from appulse.errors import BadArgument, NotBuilt, nearest
from appulse.model.columns import is_list
from appulse.model.encode import infer_dimensions
from appulse.model.objects import Objects
from appulse.model.times import from_micros
from appulse.model.uncertainty import Form, Position, Samples, is_certain, names
from appulse.operators.aggregate_plan import AggregatePlan, AggregateSpec
from appulse.operators.attributes import dimension_of
from appulse.operators.percentiles import least_share
from appulse.operators.relational import AGGREGATES, UNCONDITIONAL, AggregateState, WindowAggregate
from appulse.windows.definitions import DeltaWindow, TimeWindow, Window
from appulse.windows.frames import meaning_of, rule_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from appulse.engines.bucket import Blobs
    from appulse.kernels.arrays import Floats
    from appulse.model.encoding import Encoding
    from appulse.model.meaning import Meaning
    from appulse.model.stream import Stream
    from appulse.operators.relational import Aggregates as Found
    from appulse.operators.window_answers import Answer, Distribution
    from appulse.windows.definitions import Window

_ONE = one_of(*AGGREGATES, shown=(*AGGREGATES[:7], "p1", "... p99", "frequent1", "... frequent99"))
_GIVEN = several(_ONE, "at least one aggregate", least=1, single=str)
_MAPPED = mapping(NAME, _GIVEN, "a mapping such as {'load': ['sum', 'max']}", least=1)
Aggregates: TypeAlias = Annotated[Mapping[str, str | Sequence[str]], _MAPPED]
#: A distribution in an answer.
DISTRIBUTION = pa.list_(pa.struct([("value", pa.float64()), ("probability", pa.float64())]))

#: Values and how many rows have them, in an answer.
FREQUENT_VALUES = pa.list_(pa.struct([("value", pa.float64()), ("count", pa.float64())]))

_DEFAULTS = {"distribution": False, "single_valued": False}
# Models whose values may be equal.
_LISTED = (Form.POINT, Form.SAMPLES)
# The lanes of blocks in a snapshot.
_WAITS, _HELD = 0, 1


@dataclass(frozen=True)
class AggregateCall(ObjectsCall):
    """A checked call without its frame: travels to workers."""

    plan: AggregatePlan
    encoding: Encoding
    partitions: tuple[tuple[str, pa.DataType], ...]

    @property
    def encodings(self) -> tuple[Encoding, ...]:
        """Those of the streams: one."""
        return (self.encoding,)

    def meaning(self) -> Meaning:
        plan, stream = self.plan, self.encoding
        arguments = {
            "stream": of_stream(stream, self.lateness[0], self.idle_after[0], arrival=self.arrival),
            "aggregates": [[asked.column, asked.aggregate] for asked in plan.asked],
            "window": meaning_of(plan.rule, {stream.name: plan.length}, stream.measure),
            "distribution": plan.distribution,
            "single_valued": plan.single_valued,
            "types": of_types([("key", self.key_type), ("time", self.time_type)], self.partitions),
        }
        return of_call("window_aggregate", arguments, _DEFAULTS)

    @cached_property
    def answer_schema(self) -> pa.Schema:
        fields = [*self.partitions, ("time", self.encoding.time_type)]
        for asked in self.plan.asked:
            name = f"{asked.column}_{asked.aggregate}"
            if least_share(asked.aggregate) is not None:
                fields.append((name, FREQUENT_VALUES))
                continue
            fields += [(name, pa.float64()), (f"{name}_std", pa.float64())]
            if asked.aggregate not in UNCONDITIONAL:
                fields.append((f"{name}_exists", pa.float64()))
            if self.plan.distribution:
                fields += [(f"{name}_distribution", DISTRIBUTION), (f"{name}_distribution_error", pa.float64())]
        return pa.schema(fields)


def resolve_aggregate(
    stream: Stream,
    table: pa.Table,
    aggregates: Mapping[str, Sequence[str]],
    *,
    window: Window,
    distribution: bool,
    single_valued: bool,
    on_reject: str,
    options: Options | None = None,
) -> AggregateCall:
    """Check a call against the columns there are, and settle everything that follows from its arguments.

    ``table`` may be a sample of the rows, or have none: it is asked for the dimensions where nothing else tells them.
    """
    name, schema = stream.name or "stream", table.schema
    refuse_carry([stream], "window_aggregate", "an aggregate is about many rows")
    measure = window.column if isinstance(window, DeltaWindow) and window.confidence is None else None
    encoding = encoding_of(stream, schema, measure, bursts=True)
    check_bursts([stream], window)
    model = encoding.held_as
    if isinstance(stream.value, Position):
        raise BadArgument(
            f"The value of stream {name!r} is a position, and an aggregate of latitudes or longitudes is not a place. "
            "Give the column to aggregate as value=, e.g. value=ap.Gaussian('speed', sigma=0.5)."
        )
    d = encoding.dimensions or infer_dimensions(table, stream.value) or 1
    rule = rule_of(window)
    if rule is not None and rule.column is not None:
        dimension_of(model, rule.column, d)
    plan = AggregatePlan(
        model=model,
        asked=tuple(_asked(_MAPPED(aggregates, "aggregates="), names(model, d))),
        rule=rule,
        length=window.micros((name,))[0] if isinstance(window, TimeWindow) else 0,
        distribution=distribution,
        single_valued=single_valued,
        in_order=stream.order != "arrival",
        correlation=stream.correlation,
    )
    _check_chains(plan)
    if single_valued and (distribution or any(asked.aggregate != "sum" for asked in plan.asked)):
        raise BadArgument(
            "single_valued=True is for sums, as single values: without distribution= and other aggregates."
        )
    if any(asked.aggregate == "std" for asked in plan.asked) and not (is_certain(model) and encoding.existence is None):
        raise BadArgument(
            f"'std' is of rows that are certain, and those of stream {name!r} are not. Ask for 'p16' and 'p84', which "
            "are over all possible worlds."
        )
    if any(least_share(asked.aggregate) is not None for asked in plan.asked) and model.form not in _LISTED:
        raise BadArgument(
            f"Frequent values are of rows whose values are listed, and those of stream {name!r} are spread: "
            f"{stream.value!r}. Give ap.Exact or ap.Samples, or ask for percentiles."
        )
    partitions = tuple((column, column_type(schema, column, name)) for column in stream.partitions)
    call = AggregateCall(
        plan,
        replace(encoding, dimensions=d),
        partitions,
        arrival=stream.order == "arrival",
        dependent=(name,) if is_joined(schema) else (),
    ).over([stream], CallSettings(on_reject=on_reject, options=options_of(options, "window_aggregate")))
    refuse_repeated(call.answer_schema)
    return call


def _check_chains(plan: AggregatePlan) -> None:
    """Raise `NotBuilt` for what is not known of rows that exist in bursts."""
    known = all(asked.aggregate in UNCONDITIONAL or least_share(asked.aggregate) is not None for asked in plan.asked)
    if plan.correlation and (not known or plan.distribution or plan.size):
        raise NotBuilt(
            f"Of rows in bursts (correlation={plan.correlation:g}), window_aggregate has 'sum', 'count' and "
            "'frequent...' without distribution=, and not over an UncertainCountWindow. Ask for these, or give the "
            "column of existence itself. See docs/index.md."
        )


def first_dimensions(stream: Stream, tables: Sequence[pa.Table]) -> pa.Table | None:
    """The first of some tables, with the same columns, from which the dimensions of the value are known."""
    name, model = stream.name or "stream", stream.value

    def shows_dimensions(table: pa.Table) -> bool:
        if known_dimensions([name], [model], [table.schema]) is not None or not isinstance(model, Samples):
            return True
        kind = table.schema.field(model.column).type
        return is_list(kind) and is_list(kind.value_type) and infer_dimensions(table, model) is not None

    return next((table for table in tables if shows_dimensions(table)), None)


def resolve_unseen(stream: Stream, schema: pa.Schema, aggregates: Mapping[str, Any], **settings: Any) -> AggregateCall:
    """As `resolve_aggregate`, of columns whose rows are not at hand: they have to tell the dimensions themselves."""
    name = stream.name or "stream"
    if known_dimensions([name], [stream.value], [schema]) is None:
        raise BadArgument(
            f"The columns of stream {name!r} do not say how many dimensions its value has, and its rows are not there "
            "yet. Name the dimensions: ap.Samples(..., names=['x', 'y'])."
        )
    return resolve_aggregate(stream, schema.empty_table(), aggregates, **settings)


def _asked(aggregates: Mapping[str, Sequence[str]], dimensions: Sequence[str]) -> Iterator[AggregateSpec]:
    for column, given in aggregates.items():
        if column not in dimensions:
            raise BadArgument(f"The value has no dimension {column!r}.{nearest(str(column), dimensions)}")
        if len(set(given)) < len(given):
            raise BadArgument(f"The aggregates of {column!r} are {given!r}. Name each once.")
        for aggregate in given:
            yield AggregateSpec(column, dimensions.index(column), aggregate)


class AggregateBucket(ObjectsBucket):
    """The state of some groups: what waits, and what windows hold."""

    call: AggregateCall

    def __init__(self, call: AggregateCall) -> None:
        super().__init__(call)
        self.operator = WindowAggregate(call.plan)
        self.corrections = Corrections.of(call, call.plan.spans, self.counts)
        self.behind: int | None = None  # rows of the step at hand before this are late
        self._ended = False

    def __len__(self) -> int:
        return len(self.operator)

    @property
    def nbytes(self) -> int:
        return self.operator.nbytes

    @property
    def due(self) -> int | None:
        """The least time that ticks have to be complete beyond for anything to be answered, or withdrawals to lapse."""
        waits = None if self.corrections is None else self.corrections.ledger.oldest_waiting
        return min((time for time in (self.operator.due, waits) if time is not None), default=None)

    def answer(self, *, ended: bool) -> list[pa.Table]:
        """The aggregates of windows whose ticks are complete."""
        self._ended, capped = ended, self.operator.capped
        self.operator.output = self.output
        found = self.operator.push(self._standing(), self.complete, ended=ended)
        self.counts["capped"] += self.operator.capped - capped
        if self.corrections is not None:
            self.rejected += self.corrections.lapse(self.complete)
        return [aggregate_table(found, self.call)] if len(found.time) else []

    def late_before(self, limit: int | None) -> int | None:
        """Rows before this are late; None where none can be."""
        self.behind = super().late_before(limit)
        return self.behind

    def _standing(self) -> list[Objects]:
        """The rows that came and stay; those that are withdrawn are in no window from now on."""
        came = [rows for _, rows in self.came]
        if self.corrections is None:
            return came
        self.corrections.ask(self.asked, self.behind)
        held = self.operator.rows() if self.corrections.ledger.waiting() else []
        stands = self.corrections.stands_of(0, held, came)
        if stands is None:
            return came
        self.operator.keep(stands[: len(held)])
        return [rows.filter(mask) for rows, mask in zip(came, stands[len(held) :], strict=True) if mask.any()]

    def step(self) -> tuple[list[int], Mapping[str, NDArray[Any]]]:
        """All ticks before ``complete`` were there."""
        return [self.complete, self._ended, NEVER if self.behind is None else self.behind], {}

    def redo(self, numbers: list[int], _: Mapping[str, NDArray[Any]], given: Blobs) -> None:
        """Take the same step without aggregating."""
        complete, ended, *behind = numbers  # logs of versions without withdrawals end there
        self.behind = next((time for time in behind if time > NEVER), None)
        rows = [(stream, objects) for stream, _, objects in map(unpack, given[ROWS])]
        self.came = [(stream, part) for stream, part in rows if part.change is None]
        self.asked = [(stream, part) for stream, part in rows if part.change is not None]
        self.operator.apply(self._standing(), complete, ended=bool(ended))
        if self.corrections is not None:
            self.corrections.lapse(complete)

    def whole(self) -> tuple[list[int], Mapping[str, NDArray[Any]], list[bytes]]:
        """Rows that wait, and rows that windows hold."""
        state = self.operator.state()
        held = [] if state.held is None else [state.held]
        parts = [(part, _WAITS) for part in state.waiting] + [(part, _HELD) for part in held]
        blocks = [block for part, lane in parts for block, _ in packed(part, 0, lane)]
        if self.corrections is not None:
            blocks += self.corrections.blocks()
        return [state.newest], state.numbering, blocks

    def resume(self, numbers: list[int], arrays: Mapping[str, NDArray[Any]], given: Blobs) -> None:
        rows = [(lane, objects) for _, lane, objects in map(unpack, given[ROWS])]
        held = [objects for lane, objects in rows if lane == _HELD]
        waits = [objects for lane, objects in rows if lane == _WAITS]
        self.operator.restore(AggregateState(waits, Objects.concat(held) if held else None, numbers[0], arrays))
        if self.corrections is not None:
            self.corrections.recall(given[WAITING])


def aggregate_table(found: Found, call: AggregateCall) -> pa.Table:
    """Answers as a table in the types the user gave."""
    columns = [
        *group_columns(found.group, call.partitions),
        from_micros(found.time, call.encoding.time_type, call.encoding.unit),
    ]
    for asked, answer in zip(call.plan.asked, found.answers, strict=True):
        if least_share(asked.aggregate) is not None and answer.distribution is not None:
            columns.append(_distribution_column(answer.distribution, FREQUENT_VALUES))
            continue
        columns += _answer_columns(answer, conditional=asked.aggregate not in UNCONDITIONAL)
    return pa.Table.from_arrays(columns, schema=call.answer_schema)


def _answer_columns(answer: Answer, *, conditional: bool) -> Iterator[pa.Array]:
    yield _with_nulls(answer.value)
    yield _with_nulls(answer.deviation)
    if conditional:
        yield pa.array(answer.exists)
    if answer.distribution is not None:
        yield _distribution_column(answer.distribution, DISTRIBUTION)
        yield pa.array(answer.distribution.error)


def _with_nulls(values: Floats) -> pa.Array:
    return pa.array(values, mask=np.isnan(values))


def _distribution_column(distribution: Distribution, kind: pa.ListType) -> pa.Array:
    fields = list(kind.value_type)
    atoms = pa.StructArray.from_arrays([pa.array(distribution.value), pa.array(distribution.chance)], fields=fields)
    return pa.ListArray.from_arrays(pa.array(distribution.first, pa.int32()), atoms).cast(kind)
