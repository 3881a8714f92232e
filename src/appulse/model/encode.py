"""From a user's table to uncertain objects: the one door, where every bad row becomes a reject."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from appulse.errors import BadArgument
from appulse.kernels.moments import Summaries, summarise
from appulse.model import defects as why
from appulse.model import geography, structs, uncertainty
from appulse.model.batch import Batch, Ragged
from appulse.model.canonical import filled_rows
from appulse.model.carried import with_carried
from appulse.model.columns import chunk, floats, held, is_numeric, lengths, nulls, plain_types, plain_values, rows_of
from appulse.model.covariance import checked_deviations, checked_spread, moved, widest
from appulse.model.defects import (
    Defects,
    check_decoded,
    check_partition,
    check_time,
    keys_as,
    read_columns,
    reject_schema,
    shown_values,
)
from appulse.model.encoding import Encoding, check_dimensions, refuse_several
from appulse.model.few_objects import few_objects
from appulse.model.filled import OBSERVED, PREFILLED, Fill, Prefilled, with_ways
from appulse.model.motion import Straight
from appulse.model.objects import Objects, contents
from appulse.model.points import ball_points, normal_points
from appulse.model.positions import EARTHS, checked_positions, degrees_around, given_degrees
from appulse.model.reach import margin_reach, normal_quantile
from appulse.model.room import full
from appulse.model.samples import ABOVE_ONE, Weighted, checked_samples, weights_of
from appulse.model.scaling import scaled_spread
from appulse.model.strings import Labels
from appulse.model.strings import encode as canonical
from appulse.model.uncertainty import (
    Ball,
    Exact,
    Form,
    Gaussian,
    Incomplete,
    Model,
    Position,
    Samples,
    Vectors,
    in_closed_form,
)
from appulse.model.vectors import checked_vectors, coordinates, directed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from appulse.kernels.arrays import Flags, Floats, Ints

_POINTS = 64  # of a position, where its coordinates are asked for


def encode(table: pa.Table, encoding: Encoding) -> tuple[Objects, pa.Table]:
    """Objects of the good rows, in the order of the table, and the bad rows as rejects."""
    if (few := few_objects(table, encoding)) is not None:
        return few, encoding.no_rejects
    rows, rejects = checked(table, encoding)
    return objects_of(rows, encoding), rejects


def objects_of(rows: ValidRows, encoding: Encoding) -> Objects:
    """Objects of good rows."""
    objects = _objects(rows, encoding)
    if rows.margin is not None:
        reach = objects.reach + margin_reach(rows.margin, objects.d, encoding.metric)
        objects = replace(objects, reach=reach, margin=rows.margin)
    if encoding.behind:
        carried = [plain_values(rows.table[name]).cast(kind) for name, kind in encoding.carry]
        carried += [contents(objects)] if encoding.kept_apart else []
        objects = replace(objects, key=with_carried(objects.key, objects.centre, carried))
    if encoding.carries_fill_source:
        objects = replace(objects, key=with_ways(objects.key, objects.centre, rows.way))
    return objects


@dataclass
class ValidRows(Batch):
    """The good rows of a table: as they came, and what they say."""

    table: pa.Table
    time: Ints
    existence: Floats
    measure: Floats | None
    values: Values
    way: Ints | None = None
    velocity: Floats | None = None
    margin: Floats | None = None


def checked(table: pa.Table, encoding: Encoding, also: Sequence[str] = ()) -> tuple[ValidRows, pa.Table]:
    """The good rows, with these columns too, and the bad rows as rejects."""
    table = selected(table, encoding, also)
    if isinstance(encoding.model, Samples):
        table = _typed_lists(table, encoding.model)
    if isinstance(encoding.model, Samples) and structs.is_samples(table.schema.field(encoding.model.column).type):
        table, model = structs.opened(table, encoding.model)
        encoding = replace(encoding, model=model)
    defects = Defects(len(table))
    check_decoded(table, defects)
    if isinstance(encoding.model, Position):
        table = geography.opened(table, encoding.model, defects)
    time = check_identity(table, encoding, defects)
    values = _check_values(table, encoding, defects)
    if encoding.directions:
        values = replace(values, centre=directed(values.centre, defects))
    existence, measure = _check_existence(table, encoding, defects), _check_measure(table, encoding, defects)
    velocity, margin = _check_motion(table, encoding, defects), _check_margin(table, encoding, defects)
    rows = ValidRows(table, time, existence, measure, values, velocity=velocity, margin=margin)
    if defects.found:
        rows = rows.take(np.flatnonzero(~defects.bad))
    if encoding.fill is not None:
        good = np.flatnonzero(~defects.bad)
        rows, failed = _filled(rows, encoding, encoding.fill)
        if failed.any():
            rows = rows.take(np.flatnonzero(~failed))
            defects.mark(
                np.isin(np.arange(len(table)), good[failed]),
                why.NON_FINITE,
                why.NOT_FILLED,
            )
    rejects = rejects_of(table, encoding, defects)
    if encoding.where:
        kept, values = _filtered(rows.table, rows.values, encoding)
        rows = replace(rows.take(kept), values=values)
    return rows, rejects


def selected(table: pa.Table, encoding: Encoding, also: Sequence[str]) -> pa.Table:
    """The columns that are read, with these, each in one piece and of a plain type."""
    seen = encoding.seen
    if not also and seen.plain == table.schema:
        return (table if seen.read is None else table.select(seen.read)).combine_chunks()
    read = read_columns(table.column_names, [*encoding.columns(), *also])
    refuse_several(encoding.name, read, table.column_names)
    given = table.select(read).combine_chunks()
    plain = plain_types(given)
    if not also and plain is given:
        seen.plain, seen.read = table.schema, None if read == table.column_names else read
    return plain


def _typed_lists(table: pa.Table, model: Samples) -> pa.Table:
    """The table with lists in columns of nothing but nulls, which have no type."""
    for column in (model.column,) if model.weights is None else (model.column, model.weights):
        at = table.schema.get_field_index(column)
        if pa.types.is_null(table.schema.field(at).type):
            table = table.set_column(at, column, pa.nulls(len(table), pa.list_(pa.float64())))
    return table


def infer_dimensions(table: pa.Table, model: Model) -> int | None:
    """Dimensions of the rows at hand: what the model says, else what most rows have; None if no row tells."""
    if isinstance(model, Vectors):
        return coordinates(table, model)
    known = uncertainty.dimensions(model)
    if known is not None or not isinstance(model, Samples):
        return known
    if pa.types.is_null(table.schema.field(model.column).type):
        return None
    table = _typed_lists(table, model)
    if structs.is_samples(table.schema.field(model.column).type):
        table, model = structs.opened(table, model)
    column = chunk(table[model.column])
    if is_numeric(column.type.value_type):
        return 1
    samples = lengths(column)
    widths = lengths(column.flatten())
    found, counts = np.unique(widths[weights_of(table, model, samples)[1] & (widths > 0)], return_counts=True)
    if len(found) == 0:
        return None
    d = int(found[np.argmax(counts)])
    uncertainty.check_dimensions(f"Samples({model.column!r})", d)
    return d


@dataclass
class Values(Batch):
    """Checked values of a batch: rows of coordinates, or samples with their weights, or centres with a spread.

    Without weights the samples of a row weigh the same, and sum to ``share``, the part that conditions left (None: 1).
    """

    centre: Floats
    spread: Floats
    samples: Ragged[Weighted] | None = None
    share: Floats | None = None


def check_identity(table: pa.Table, encoding: Encoding, defects: Defects) -> Ints:
    """Mark rows without key, time or partition; the times in microseconds."""
    micros = check_time(table, encoding.time, encoding.unit, defects)
    defects.mark(nulls(table[encoding.key]), why.NULL_KEY, f"column {encoding.key!r} is null")
    for column in encoding.partition_by:
        check_partition(table, column, defects)
    return micros


def _check_existence(table: pa.Table, encoding: Encoding, defects: Defects) -> Floats:
    if (given := encoding.existence) is None:
        return full(len(table), 1.0)
    existence = floats(table[given])
    bad = ~((existence > 0.0) & (existence <= ABOVE_ONE))
    defects.mark(bad, why.BAD_EXISTENCE, _is(table, given))
    return np.minimum(existence, 1.0)


def _check_measure(table: pa.Table, encoding: Encoding, defects: Defects) -> Floats | None:
    if (given := encoding.measure) is None:
        return None
    measure = floats(table[given])
    defects.mark(
        ~np.isfinite(measure),
        why.NON_FINITE,
        _is(table, given),
    )
    return measure


def _check_margin(table: pa.Table, encoding: Encoding, defects: Defects) -> Floats | None:
    given = encoding.margin
    if not isinstance(given, str):
        return np.full(len(table), given) if given > 0.0 else None
    margin = floats(table[given])
    defects.mark(~np.isfinite(margin), why.NON_FINITE, _is(table, given))
    defects.mark(margin < 0.0, why.NEGATIVE_MARGIN, why.of_values(f"column {given!r} is ", margin))
    return margin


def _check_motion(table: pa.Table, encoding: Encoding, defects: Defects) -> Floats | None:
    if encoding.motion is None or isinstance(encoding.motion, Straight):
        return None
    return encoding.motion.velocities(table, lambda rows, detail: defects.mark(rows, why.BAD_MOTION, why.each(detail)))


def _is(table: pa.Table, column: str) -> why.Details:
    return lambda at: [f"column {column!r} is {value}" for value in held(table, column, at)]


def _check_values(table: pa.Table, encoding: Encoding, defects: Defects) -> Values:
    if isinstance(encoding.model, Samples):
        if encoding.model.filled_from:
            _check_filled(table, encoding.model, defects)
        samples = checked_samples(table, encoding.model, encoding.dimensions, defects)
        return Values(np.empty((len(table), samples.values.points.shape[1])), np.empty((len(table), 0)), samples)
    if isinstance(encoding.model, Vectors):
        return Values(checked_vectors(table, encoding.model, encoding.dimensions, defects), np.empty((len(table), 0)))
    if isinstance(encoding.model, Incomplete):
        return _check_incomplete(table, encoding.model, defects)
    if isinstance(encoding.model, Position):
        return Values(*checked_positions(table, encoding.model, defects))
    return _check_centres(table, encoding.model, defects)


def _check_centres(table: pa.Table, model: Exact | Gaussian | Ball, defects: Defects) -> Values:
    centre, good = rows_of([floats(table[c]) for c in model.columns])
    if not good:
        finite = np.isfinite(centre)
        defects.mark(~finite.all(axis=1), why.NON_FINITE, why.of_columns(table, model.columns, ~finite))
    if isinstance(model, Exact):
        return Values(centre, np.empty((len(table), 0)))
    if isinstance(model, Gaussian):
        return Values(centre, checked_spread(table, model, defects))
    return Values(centre, checked_deviations(table, [model.radius], defects))


def _check_incomplete(table: pa.Table, model: Incomplete, defects: Defects) -> Values:
    """Rows with their holes as NaN, in place of centres."""
    rows = holes_of(table, model)
    _mark_holes(rows, model.columns, np.ones(len(rows), np.bool_), defects)
    return Values(rows, np.empty((len(rows), 0)))


def _check_filled(table: pa.Table, model: Samples, defects: Defects) -> None:
    """Mark rows that `impute` left without samples, by what it had of them."""
    open_ = nulls(table[model.column])
    if open_.any():
        _mark_holes(holes_of(table, Incomplete(*model.filled_from)), model.filled_from, open_, defects)
        defects.mark(open_, why.NON_FINITE, why.NOT_FILLED)


def _mark_holes(rows: Floats, columns: Sequence[str], among: Flags, defects: Defects) -> None:
    """Mark some rows, those that hold what is infinite or nothing at all."""
    defects.mark(
        among & np.isinf(rows).any(axis=1),
        why.NON_FINITE,
        why.each(lambda i: ", ".join(f"{c} is {rows[i, k]}" for k, c in enumerate(columns) if np.isinf(rows[i, k]))),
    )
    defects.mark(among & np.isnan(rows).all(axis=1), why.ALL_MISSING, f"none of {', '.join(columns)} is there")


def holes_of(table: pa.Table, model: Exact | Incomplete) -> Floats:
    """The values of a table, NaN where they are missing; `BadArgument` where they are no numbers."""
    for column in model.columns:
        kind = table.schema.field(column).type
        if not is_numeric(kind):
            raise BadArgument(f"Column {column!r} is {kind}, not a number. Cast it before the call.")
    return np.column_stack([floats(table[c]) for c in model.columns])


def _filled(rows: ValidRows, encoding: Encoding, fill: Fill) -> tuple[ValidRows, Flags]:
    """Rows with what they may be in place of their holes; and those that have no sample, or one that is not finite."""
    labels = Labels.of([rows.table[c] for c in encoding.partition_by]) if encoding.partition_by else None
    group = np.zeros(len(rows.time), np.int64) if labels is None else labels.ranks()
    if isinstance(fill, Prefilled):
        filled = fill.read(rows.table, rows.values.centre)
    else:
        filled = filled_rows(fill, rows.values.centre, rows.time, group, rows.table[encoding.key])
    owner = np.repeat(np.arange(len(group)), np.diff(filled.first))
    total = np.bincount(owner, filled.weights, len(group))
    # Rounded as weights are that were given, so that rows filled beforehand are the same to the last bit.
    weights = np.where(total[owner] > 1.0, filled.weights / total[owner], filled.weights)
    values = replace(rows.values, samples=Ragged(filled.first, Weighted(filled.rows, weights)))
    # Holes may be left as they are, to be filled later.
    strange = (~np.isfinite(filled.rows) & (filled.way != OBSERVED)[owner]).any(axis=1) | ~np.isfinite(weights)
    failed = (np.diff(filled.first) == 0) | (np.bincount(owner[strange], minlength=len(group)) > 0)
    return replace(rows, values=values, way=filled.way), failed


def _filtered(table: pa.Table, values: Values, encoding: Encoding) -> tuple[Ints, Values]:
    """The rows that the conditions leave, and their values, without the samples that do not satisfy them."""
    columns = {name: chunk(table[name]) for name in encoding.columns()}
    rows, n = np.ones(len(table), bool), len(table)
    picking = [where for where in encoding.where if any(map(encoding.is_dimension, where.columns))]
    for where in encoding.where:
        if where not in picking:
            rows &= where.holds({name: columns[name] for name in where.columns}, n)
    kept = np.flatnonzero(rows)
    values = values.take(kept)
    if not picking:
        return kept, values
    samples = as_samples(values, encoding.model)
    owner, points = samples.owner, samples.values.points
    names = uncertainty.names(encoding.model, points.shape[1])
    satisfied = np.ones(len(owner), bool)
    for where in picking:
        check_dimensions(where, encoding, len(names))
        read = {
            name: pa.array(points[:, names.index(name)])
            if encoding.is_dimension(name)
            else columns[name].take(pa.array(kept[owner]))
            for name in where.columns
        }
        satisfied &= where.holds(read, len(owner))
    left = np.bincount(owner[satisfied], minlength=len(kept))
    share = left / np.maximum(samples.counts, 1) if samples.values.weights is None else None
    first = np.concatenate([[0], np.cumsum(left)])
    values = replace(values, samples=Ragged(first, samples.values.filter(satisfied)), share=share)
    some = np.flatnonzero(left)
    return kept[some], values.take(some)


def as_samples(values: Values, model: Model) -> Ragged[Weighted]:
    """The samples of the values: those of Gaussians and balls are their fixed points, of positions in degrees."""
    if values.samples is not None:
        return values.samples
    first, rows = _at_points(values, model)
    return Ragged(first, Weighted(rows))


def _objects(checked: ValidRows, encoding: Encoding) -> Objects:
    table, existence, values = checked.table, checked.existence, checked.values
    n, units, model = len(values.centre), encoding.units, encoding.held_as
    if units is not None and not isinstance(model, Samples):
        spread = values.spread
        if isinstance(encoding.model, Gaussian | Ball):
            spread = scaled_spread(spread, encoding.model, units)
        values = replace(values, centre=values.centre / units, spread=spread)
    zeros = full(n, 0.0)
    normal = isinstance(model, Gaussian | Position) and values.spread.shape[1] > 0
    sigmas = encoding.gaussian_reach if normal else None
    base = Objects(
        form=model.form,
        time=checked.time,
        key=canonical(keys_of(table, encoding), signed_zero=True),
        mass=existence if values.share is None else existence * values.share,
        centre=values.centre,
        spread=values.spread,
        reach=zeros if sigmas is None else sigmas * widest(values.spread, model),
        radius=zeros,
        covariance=np.empty((n, 0)),
        group=Labels.of([table[c] for c in encoding.partition_by]) if encoding.partition_by else None,
        differ=Labels.of([table[encoding.differ]]) if encoding.differ is not None else None,
        measure=checked.measure,
        velocity=checked.velocity,
        degrees=given_degrees(table, encoding.model) if encoding.degrees else None,
    )
    if isinstance(model, Samples):
        samples = as_samples(values, encoding.model)
        points, weights = samples.values.points, samples.values.weights
        points = points if units is None else points / units
        weights = np.empty(0) if weights is None else weights * existence[samples.owner]
        return summarised(base, samples.offsets, points, weights, encoding.quantile)
    if sigmas is not None or isinstance(model, Exact | Position):
        return base
    return replace(base, reach=_sampled_reach(base, model, encoding.quantile))


def _sampled_reach(objects: Objects, model: Gaussian | Ball, quantile: float) -> Floats:
    """Alpha-reach of objects that are held as centre and spread and sampled where they are used."""
    reach: Floats
    if objects.spread.shape[1] == 1:
        unit = replace(objects.slice(0, 0), centre=np.zeros((1, objects.d)), spread=np.ones((1, 1)))
        unit = replace(unit, time=np.zeros(1, np.int64), mass=np.ones(1))
        reach = sampled(unit, model, quantile).reach[0] * objects.spread[:, 0]
        # A pair of Gaussians keeps its closed form among other models, and that reaches z sigma.
        least = max(0.0, normal_quantile(quantile * quantile)) if isinstance(model, Gaussian) else 0.0
        rounding = 4e-16 * np.abs(objects.centre).sum(axis=1)
        reach = np.maximum(reach * (1.0 + 1e-12) + rounding, least * objects.spread[:, 0])
    else:
        # A pair of Gaussians keeps its closed form among other models, and that reaches z sigma.
        least = max(0.0, normal_quantile(quantile * quantile)) if in_closed_form(model) else 0.0
        reach = np.maximum(sampled(objects, model, quantile).reach, least * widest(objects.spread, model))
    return reach


def sampled(objects: Objects, model: Model, quantile: float) -> Objects:
    """The same objects with samples: Gaussians and balls at their fixed points, points at themselves."""
    if objects.form == Form.SAMPLES:
        return objects
    first, rows = _at_points(objects, model)
    return summarised(objects, first, rows, np.empty(0), quantile)


def _points(model: Model, d: int) -> Floats:
    """Where a distribution of spread 1 around 0 is sampled."""
    if isinstance(model, Gaussian):
        return normal_points(model.samples, d)
    if isinstance(model, Position):
        return normal_points(_POINTS, len(model.columns))
    return ball_points(model.samples, d) if isinstance(model, Ball) else np.zeros((1, d))


def _at_points(objects: Objects | Values, model: Model) -> tuple[Ints, Floats]:
    """The points of all objects, one after the other, and where those of each begin; without spread there is one."""
    n, d = objects.centre.shape
    points = _points(model, d)
    spread = objects.spread if objects.spread.shape[1] else np.zeros((n, 1))
    rows: Floats
    if isinstance(model, Position):
        offsets = moved(points[:, :2], spread[:, : 1 if model.ellipse is None else 3])
        if points.shape[1] > 2:
            offsets = np.concatenate([offsets, moved(points[:, 2:], spread[:, -1:])], axis=2)
        rows = degrees_around(objects.centre, offsets, EARTHS[model.earth])
    else:
        rows = objects.centre[:, None, :] + moved(points, spread)
    wanted = np.ones((n, len(points)), bool)
    wanted[~spread.any(axis=1), 1:] = False
    return np.concatenate([[0], np.cumsum(wanted.sum(axis=1))]), rows[wanted]


def summarised(objects: Objects, first: Ints, rows: Floats, weights: Floats, quantile: float) -> Objects:
    """``objects`` with these samples, and the mean, covariance, radius and reach that follow from them."""
    n, d = len(first) - 1, rows.shape[1]
    mass = objects.mass.copy()
    centred = objects.form != Form.SAMPLES  # their points are symmetric around the centre
    centre = objects.centre.copy() if centred else np.empty((n, d))
    covariance = np.empty((n, d * (d + 1) // 2))
    radius, reach, samples = np.empty(n), np.empty(n), np.empty(len(rows) * d)
    rows = np.ascontiguousarray(rows)
    out = Summaries(mass, centre, covariance, radius, reach)
    summarise(first, rows, weights, quantile, centred, out, samples)
    return replace(
        objects,
        mass=mass,
        centre=centre,
        covariance=covariance,
        radius=radius,
        reach=reach,
        sample_runs=Ragged(first, samples.reshape(-1, d)),
        weight_runs=Ragged(first, weights) if len(weights) else None,
    )


def rejects_of(table: pa.Table, encoding: Encoding, defects: Defects) -> pa.Table:
    """The rows that are marked, as rejects."""
    if not defects.found:
        return encoding.no_rejects
    rows, reasons, details = defects.columns()
    judged = replace(encoding.shown or encoding, change=encoding.change, carry=()).columns()
    values = [c for c in judged if c not in (encoding.key, encoding.time, *PREFILLED)]
    return pa.table(
        {
            "stream": [encoding.name] * len(rows),
            "key": keys_of(table.take(rows), encoding),
            "time": chunk(table[encoding.time]).take(rows).cast(encoding.time_type, safe=False),
            "reason": reasons,
            "detail": details,
            "values": shown_values(table, values, rows),
        },
        schema=reject_schema(encoding.key_type, encoding.time_type),
    )


def keys_of(table: pa.Table, encoding: Encoding) -> pa.Array:
    """The keys in the type of the call's keys."""
    key, kind = chunk(table[encoding.key]), encoding.key_type
    try:
        return keys_as(key, kind)
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid) as error:
        raise BadArgument(
            f"Keys of stream {encoding.name!r} are {key.type} and do not fit {kind}, the call's type of keys: "
            f"{error}. Cast them before the call."
        ) from None
