"""How the rows of a stream are read: which columns mean what, checked against the columns there are."""

from __future__ import annotations

from dataclasses import MISSING, dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from appulse.errors import BadArgument, likely
from appulse.model import geography, structs, uncertainty
from appulse.model.columns import is_list, is_numeric, is_text
from appulse.model.defects import no_rejects
from appulse.model.filled import PREFILLED, Prefilled
from appulse.model.scaling import scaled_model
from appulse.model.times import is_time
from appulse.model.uncertainty import Ball, Gaussian, Held, Incomplete, Model, Position, Samples, Vectors

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from appulse.kernels.arrays import Flags
    from appulse.model.carried import Columns
    from appulse.model.few import FewRows
    from appulse.model.filled import Fill
    from appulse.model.motion import Motion


class Where(Protocol):
    """A condition that rows, or their samples, have to satisfy."""

    @property
    def text(self) -> str:
        """What the user wrote."""
        ...

    @property
    def columns(self) -> tuple[str, ...]:
        """The names it reads: coordinates of the value, or columns."""
        ...

    def check(self, types: Mapping[str, pa.DataType]) -> None:
        """Raise `BadArgument` unless it makes sense over these types."""
        ...

    def holds(self, columns: Mapping[str, pa.Array], n: int) -> Flags:
        """Where it is true, over ``n`` rows."""
        ...


@dataclass
class Seen:
    """The schemas of the latest tables of a stream: pushes mostly have one, and it is looked at once.

    ``fits`` is one that passed `check_columns`, ``plain`` one of plain types, with the columns to read of it; None of
    them means all. ``few`` is how a few rows are read of one that is ``short``; None: as many are.
    """

    fits: pa.Schema | None = None
    plain: pa.Schema | None = None
    read: list[str] | None = None
    short: pa.Schema | None = None
    few: FewRows | None = None


@dataclass(frozen=True)
class Encoding:
    """Everything encoding one stream depends on; no frame, so it travels to workers.

    ``quantile`` is the mass that alpha-reach has to exceed; ``gaussian_reach`` that of a Gaussian in sigmas where
    every stream of the call is an isotropic Gaussian, else None. ``key_type`` and ``time_type`` are those of the
    answers; ``dimensions`` is None until a row tells. ``measure`` is the column of a delta window. What does not
    satisfy every ``where`` is left out. ``fill`` fills what is missing; where a call ``carries_fill_source``, the
    keys of its objects carry how. They carry the columns of ``carry``, too.
    """

    name: str
    model: Model
    key: str
    time: str
    unit: str
    existence: str | None
    partition_by: tuple[str, ...]
    differ: str | None
    key_type: pa.DataType
    time_type: pa.DataType
    quantile: float
    gaussian_reach: float | None
    dimensions: int | None
    measure: str | None = None
    where: tuple[Where, ...] = ()
    fill: Fill | None = None
    carries_fill_source: bool = False
    carry: Columns = ()
    kept_apart: bool = False  # whether keys carry what distinguishes rows that differ, too
    motion: Motion | None = None
    degrees: bool = False  # of positions, keep what was given
    change: str | None = None  # the column that says which rows are withdrawn
    margin: str | float = 0.0  # what each row adds to epsilon
    metric: str = "euclidean"  # of that epsilon
    units: tuple[float, ...] | None = None  # by which each dimension is divided
    correlation: float = 0.0  # of the existence of consecutive rows
    directions: bool = False  # whether rows are scaled to length 1
    shown: Encoding | None = None  # whose columns rejects show, where it has them of other columns than these

    @cached_property
    def bare(self) -> bool:
        """Whether rows are a key, a time and a value, and nothing else is read or asked of them."""
        settled = {"quantile", "gaussian_reach", "dimensions", "correlation", "metric"}
        given = {one.name for one in fields(self) if one.default is MISSING} - {"existence", "partition_by", "differ"}
        kept = {name: getattr(self, name) for name in given | settled}
        return self == Encoding(**kept, existence=None, partition_by=(), differ=None)

    @cached_property
    def seen(self) -> Seen:
        """The schemas of the latest tables."""
        return Seen()

    @cached_property
    def no_rejects(self) -> pa.Table:
        """No rejects of the stream."""
        return no_rejects(self.key_type, self.time_type)

    @cached_property
    def held_as(self) -> Held:
        """The model of the objects that come out."""
        held = held_as(self.model, self.where)
        return held if self.units is None else scaled_model(held, self.units)

    def is_dimension(self, name: str) -> bool:
        """Whether a condition means a coordinate by that name."""
        return uncertainty.is_dimension(self.model, name)

    @property
    def behind(self) -> Columns:
        """What keys carry, with its types."""
        return (*self.carry, *((("", pa.binary()),) if self.kept_apart else ()))

    def columns(self) -> list[str]:
        """Every column that is read."""
        conditions = [name for where in self.where for name in where.columns if not self.is_dimension(name)]
        wanted = [
            self.key,
            self.time,
            *uncertainty.columns(self.model),
            self.existence,
            *self.partition_by,
            self.differ,
            self.measure,
            self.change,
            self.margin if isinstance(self.margin, str) else None,
            *(() if self.motion is None else self.motion.columns),
            *conditions,
            *(PREFILLED[:2] if isinstance(self.fill, Prefilled) else ()),
            *(name for name, _ in self.carry),
        ]
        return list(dict.fromkeys(c for c in wanted if c is not None))


def held_as(model: Model, where: Sequence[Where]) -> Held:
    """The model of what conditions leave: samples, where they may pick some of a distribution's points.

    What was incomplete is samples, too.
    """
    if isinstance(model, Incomplete):
        return Samples(" ".join(model.columns), names=model.columns)
    names = [name for condition in where for name in condition.columns]
    if isinstance(model, Gaussian | Ball | Position) and any(uncertainty.is_dimension(model, name) for name in names):
        return Samples(" ".join(model.columns), names=model.columns)
    return model


def refuse_several(stream: str, columns: Iterable[str], names: Sequence[str]) -> None:
    """Raise `BadArgument` where one of the columns of a stream is there more than once."""
    if len(set(names)) == len(names):
        return
    for column in columns:
        if names.count(column) > 1:
            raise BadArgument(f"Stream {stream!r} has several columns {column!r}. Rename all but one.")


def check_columns(encoding: Encoding, schema: pa.Schema) -> None:
    """Raise `BadArgument` where a column is missing or of a type that cannot serve."""
    if encoding.seen.fits == schema:
        return
    names = schema.names
    for column in encoding.columns():
        if column not in names:
            raise BadArgument(
                f"Stream {encoding.name!r} has no column {column!r}.{likely(column, names)} It has: {', '.join(names)}."
            )
    refuse_several(encoding.name, encoding.columns(), names)
    kind = schema.field(encoding.time).type
    if (
        is_time(kind) != is_time(encoding.time_type)
        and not pa.types.is_null(kind)
        and not pa.types.is_null(encoding.time_type)
    ):
        raise BadArgument(
            f"Times of stream {encoding.name!r} are {kind}, those of the call {encoding.time_type}: timestamps and "
            "numbers do not mix. Convert one of them."
        )
    _check_change(encoding, schema)
    model = encoding.model
    if isinstance(model, Incomplete) and encoding.fill is None:
        raise BadArgument(
            f"Values of stream {encoding.name!r} are Incomplete, and nothing fills them. Give the join an imputer=, or "
            "fill them first: ap.impute(stream, imputer)."
        )
    if isinstance(model, Samples):
        _check_lists(model, encoding.name, schema)
    _check_numbers(encoding, schema)
    for where in encoding.where:
        if encoding.dimensions is not None:
            check_dimensions(where, encoding, encoding.dimensions)
        where.check(
            {name: pa.float64() if encoding.is_dimension(name) else schema.field(name).type for name in where.columns}
        )
    encoding.seen.fits = schema


def _check_numbers(encoding: Encoding, schema: pa.Schema) -> None:
    model = encoding.model
    numeric = [] if isinstance(model, Samples | Vectors) else list(uncertainty.columns(model))
    if isinstance(model, Position) and model.geography is not None:
        numeric.remove(model.geography)
        geography.check(schema.field(model.geography).type, model.geography, encoding.name)
    numeric += [column for column in (encoding.existence, encoding.measure) if column is not None]
    numeric += [encoding.margin] if isinstance(encoding.margin, str) else []
    numeric += [] if encoding.motion is None else list(encoding.motion.columns)
    for column in numeric:
        if not is_numeric(schema.field(column).type):
            raise BadArgument(
                f"Column {column!r} of stream {encoding.name!r} is {schema.field(column).type}, not a number. "
                "Cast it before the call."
            )


def _check_change(encoding: Encoding, schema: pa.Schema) -> None:
    if encoding.change is not None and not is_text(kind := schema.field(encoding.change).type):
        raise BadArgument(
            f"change={encoding.change!r} of stream {encoding.name!r} is {kind}, not text. Give a column of 'add' and "
            "'remove'."
        )


def _check_lists(model: Samples, stream: str, schema: pa.Schema) -> None:
    kind = schema.field(model.column).type
    if pa.types.is_null(kind):
        return
    if structs.is_samples(kind):
        structs.check(kind, model, stream)
    elif not is_list(kind) or not (is_numeric(kind.value_type) or is_list(kind.value_type)):
        raise BadArgument(
            f"Samples({model.column!r}) of stream {stream!r} is {kind}. Give list<list<double>>, one inner list per "
            "sample, list<double> in one dimension, or what an operator of appulse put out."
        )
    weights = None if model.weights is None else schema.field(model.weights).type
    if weights is not None and not (is_list(weights) or pa.types.is_null(weights)):
        raise BadArgument(f"weights={model.weights!r} of stream {stream!r} is not a list. Give list<double>.")
    if model.weights is not None and not is_numeric(schema.field(model.weights).type.value_type):
        kind = schema.field(model.weights).type
        raise BadArgument(f"weights={model.weights!r} of stream {stream!r} is {kind}. Give list<double>.")


def check_dimensions(where: Where, encoding: Encoding, d: int) -> None:
    """Raise `BadArgument` where a condition names a dimension that values of ``d`` dimensions lack."""
    known = uncertainty.names(encoding.model, d)
    for name in where.columns:
        if encoding.is_dimension(name) and name not in known:
            raise BadArgument(f"Stream {encoding.name!r} has no dimension {name!r}. It has: {', '.join(known)}.")
