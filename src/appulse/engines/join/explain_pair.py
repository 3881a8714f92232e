"""Why two rows are an answer, or none: every bound with its numbers, and which of them decided."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from appulse.arguments import NAME, shown
from appulse.engines.join.call import JoinCall, resolve
from appulse.engines.join.local import LocalJoin
from appulse.engines.local import as_table
from appulse.engines.thresholds import TOLERANCE
from appulse.errors import BadArgument, bad_rows
from appulse.kernels.bounds import cantelli, cantelli_on_square, reverse_markov
from appulse.kernels.earth_ellipses import heading
from appulse.kernels.gaussian import interval, phi
from appulse.kernels.geodesic import geodesic
from appulse.kernels.moments import shapes
from appulse.model.columns import as_array
from appulse.model.covariance import flat_and_above, matrices
from appulse.model.encode import encode, holes_of, infer_dimensions, sampled
from appulse.model.filled import OBSERVED
from appulse.model.positions import degrees_of
from appulse.model.uncertainty import Incomplete, Position, in_closed_form, is_certain, names, pairs_in_closed_form
from appulse.windows.definitions import TimeWindow

if TYPE_CHECKING:
    from collections.abc import Iterator

    from appulse.engines.join.call import JoinSettings
    from appulse.engines.options import Options
    from appulse.kernels.arrays import Floats
    from appulse.model.encoding import Encoding
    from appulse.model.filled import Fill
    from appulse.model.objects import Objects
    from appulse.model.stream import Stream
    from appulse.model.uncertainty import Model
    from appulse.operators.plan import JoinPlan

FOREVER = 1e9  # seconds
_SHOWN = 10  # rows behind a fill
_FLAT = 3  # coordinates of positions without altitude
_ORDINALS = ("first", "second", "third")
_EQUAL = 1e-12  # by which share variances differ at most that are one
#: What the operator's counters mean, in the order in which bounds are tried.
_DECIDED = {
    "pruned_reach": "reach: the rows are too far apart for what they can reach",
    "pruned_mass": "mass: they exist together too rarely",
    "pruned_cantelli": "Cantelli's inequality along the line of centres",
    "pruned_markov": "the reverse of Markov's inequality on the squared distance",
    "pruned_square": "Cantelli's inequality on the squared distance",
    "pruned_sample": "bounds of single samples",
    "pruned_projection": "the projection on the line of centres",
    "accepted": "accept: all of their samples are within epsilon",
    "on_axes": "the sum over their samples, axis by axis",
    "refined": "refinement: the sum over their samples, or the closed form",
}


@dataclass(frozen=True)
class _Side:
    """One of the two rows: as it came, and at its samples."""

    model: Model
    row: Objects
    samples: Objects
    shape: np.ndarray[Any, np.dtype[np.float64]]

    @staticmethod
    def of(objects: Objects, model: Model, quantile: float) -> _Side:
        if isinstance(model, Position):
            return _Side(model, objects, objects, np.empty((1, 0)))
        samples = sampled(objects, model, quantile)
        shape = np.empty((1, objects.d + 1))
        shapes(samples.first, samples.samples, samples.weights, samples.centre, shape)
        return _Side(model, objects, samples, shape)

    @property
    def gaussian(self) -> bool:
        return in_closed_form(self.model) and not is_certain(self.model)


def explained_pair(rows: tuple[Any, Any], streams: tuple[Stream, Stream], settings: JoinSettings) -> list[str]:
    """Lines about both rows, each bound, and the decision."""
    tables = [_one_row(row, side) for row, side in zip(rows, ("left", "right"), strict=True)]
    timed = isinstance(settings.window, TimeWindow)
    # A row that is not filled meets nobody, and then no bound would decide.
    options = replace(settings.options, bounds=settings.options.bounds - {"lazy"})
    named = [replace(s, name=side, where=s.where) for s, side in zip(streams, ("left", "right"), strict=True)]
    window = settings.window if timed else TimeWindow(FOREVER)
    asked = replace(settings, window=window, on_reject="fail", options=options)
    call = resolve(named, [table.schema for table in tables], asked)
    for table, encoding in zip(tables, call.encodings, strict=True):
        d = infer_dimensions(table, encoding.model) if call.encodings[0].dimensions is None else None
        call = call if d is None else call.with_dimensions(d)
    sides = [_side(table, call, i) for i, table in enumerate(tables)]
    lines = [_described(side, name, call.plan) for side, name in zip(sides, ("left", "right"), strict=True)]
    lines += [line for table, encoding in zip(tables, call.encodings, strict=True) for line in _fills(table, encoding)]
    lines += _numbers(sides[0], sides[1], call)
    probability, counts = _asked(tables, call, replace(options, bounds=frozenset())), _counts(tables, call)
    lines.append(f"probability: {probability:.9g}; an answer from {call.plan.threshold + TOLERANCE:.6g} on")
    if not timed:
        lines.append("window: goes by rows; whether both are in it depends on others")
    return [*lines, _verdict(counts)]


def _one_row(row: Any, side: str) -> pa.Table:
    if getattr(row, "ndim", 0) == 1 and hasattr(row, "items"):  # a row of pandas
        row = dict(row.items())
    if isinstance(row, Mapping):
        wrong = f"{side}_row={shown(row)}: give a mapping of columns to values, or a frame of one row."
        named = [NAME(name, f"{side}_row: column ") for name in row]
        row = pa.table(dict(zip(named, (as_array([value], None, wrong) for value in row.values()), strict=True)))
    table = as_table(row, f"{side}_row")
    if len(table) != 1:
        raise BadArgument(f"{side}_row has {len(table)} rows. Give one, as a mapping of columns or a frame.")
    return table


def _side(table: pa.Table, call: JoinCall, i: int) -> _Side:
    objects, rejects = encode(table, call.encodings[i])
    if len(rejects):
        raise bad_rows(rejects)
    if len(objects) == 0:
        raise BadArgument(f"The {call.plan.streams[i]} row is left out by the stream's filter: it is in no pair.")
    return _Side.of(objects, call.plan.models[i], call.plan.quantile)


def _described(side: _Side, name: str, plan: JoinPlan) -> str:
    samples = side.samples
    if plan.earth is not None:
        lat, lon, *altitude = degrees_of(samples.centre, plan.earth)[0]
        above = "".join(f", altitude {metres:.6g}" for metres in altitude)
        return (
            f"{name}: latitude {lat:.8g}, longitude {lon:.8g}{above}, exists with {samples.mass[0]:.6g}, "
            f"{_size(side)} metres, reach {side.row.reach[0]:.6g}"
        )
    mean = ", ".join(f"{x:.6g}" for x in samples.centre[0])
    count = "closed form where it meets its like" if side.gaussian else f"{int(samples.first[1])} samples"
    return (
        f"{name}: mean ({mean}), exists with {samples.mass[0]:.6g}, {count}, radius {samples.radius[0]:.6g}, "
        f"reach {side.row.reach[0]:.6g}"
    )


def _size(side: _Side) -> str:
    """The error of a position."""
    spread = side.row.spread
    if not isinstance(side.model, Position) or side.model.ellipse is None:
        return "sigma " + (" and ".join(f"{sigma:.6g}" for sigma in spread[0]) or "0")
    flat, above = flat_and_above(spread, side.model)
    variances, axes = np.linalg.eigh(matrices(flat, 2)[0])
    minor, major = np.sqrt(np.maximum(variances, 0.0)).tolist()
    angle = math.degrees(math.atan2(axes[0, 1], axes[1, 1])) % 180.0
    high = "".join(f", altitude {sigma:.6g}" for sigma in above[0])
    return f"ellipse {major:.6g} by {minor:.6g} at {angle:.4g} degrees{high}"


def _fills(table: pa.Table, encoding: Encoding) -> Iterator[str]:
    """What filled each hole of a row, and the rows of the repository behind it, by place."""
    if encoding.fill is None or not isinstance(encoding.model, Incomplete):
        return
    values = holes_of(table, encoding.model)
    for name, rule, rows in _explained(encoding.fill, encoding.model.columns, values):
        yield f"{encoding.name}: {name} was missing, filled by {rule}{_listed(rows)}"


def _explained(fill: Fill, attributes: tuple[str, ...], values: Floats) -> list[tuple[str, str, list[int]]]:
    explain = getattr(fill, "explain", None)
    if explain is not None and np.isnan(values).any():
        listed = explain(dict(zip(attributes, values[0].tolist(), strict=True)))
        return [(one["attribute"], one["rule"], one["rows"]) for one in listed]
    way = fill.fill(values, np.zeros(1, np.int64), np.zeros(1, np.int64)).way[0].tolist()
    return [(name, fill.describe(own), []) for name, own in zip(attributes, way, strict=True) if own != OBSERVED]


def _listed(rows: list[int]) -> str:
    if not rows:
        return ""
    shown = ", ".join(map(str, rows[:_SHOWN])) + (", ..." if len(rows) > _SHOWN else "")
    return f", from {len(rows):,} rows of the repository: {shown}"


def _numbers(left: _Side, right: _Side, call: JoinCall) -> Iterator[str]:
    """Each bound on the probability, tried in this order."""
    plan, a, b = call.plan, left.samples, right.samples
    gap = a.centre[0] - b.centre[0]
    mass, way = float(a.mass[0] * b.mass[0]), gap
    if plan.earth is not None:
        chord = float(np.linalg.norm(gap[:3]))
        yield f"chord, through the Earth: {chord:.6g} metres; the geodesic is never shorter"
        along, rise = geodesic(plan.earth, *a.centre[0, :3].tolist(), *b.centre[0, :3].tolist()), float(sum(gap[3:]))
        way = np.array([along, 0.0, abs(rise)][: len(gap) - 1])
        if len(gap) > _FLAT:
            wanted = "" if plan.vertical is None else f"; epsilon {plan.epsilon:.6g} and {plan.vertical:.6g}"
            yield f"geodesic {along:.6g}, difference of altitudes {abs(rise):.6g}{wanted}"
    distance = float(np.linalg.norm(way))
    epsilon = plan.epsilon if plan.vertical is None else plan.limit
    reach = (epsilon if plan.euclidean else plan.limit) + float(left.row.reach[0] + right.row.reach[0])
    own = [0.0 if side.row.margin is None else float(side.row.margin[0]) for side in (left, right)]
    if plan.margins:
        yield f"epsilon {epsilon:.6g}, with margins {own[0]:.6g} and {own[1]:.6g} it is {epsilon + sum(own):.6g}"
        epsilon += sum(own)
        plan = replace(plan, epsilon=epsilon, margins=False) if plan.euclidean else plan
    straight = "" if plan.euclidean else " in a straight line"
    yield f"distance of the means: {distance:.6g}{straight}; epsilon {epsilon:.6g}; with both reaches {reach:.6g}"
    yield f"mass: at most {mass:.6g}, if both exist"
    normal = plan.earth is not None or (pairs_in_closed_form(left.model, right.model) and not plan.values)
    error = _difference(left, right, way, plan) if normal else None
    if not plan.euclidean:
        yield from _by_group(gap, error, call, sum(own))
        return
    if error is not None:
        if plan.vertical is None:
            yield from _half_space(error, way, mass, plan.epsilon)
        else:
            yield from _cylinder(error, way, mass, (plan.epsilon, plan.vertical))
        return
    far = distance + float(a.radius[0] + b.radius[0])
    yield f"accept: farthest samples at most {far:.6g} apart" + (", within epsilon" if far <= plan.limit else "")
    covariance = a.covariance[0] + b.covariance[0]
    matrix, product = (
        _matrix(covariance, len(gap)),
        _matrix(a.covariance[0], len(gap)) @ _matrix(b.covariance[0], len(gap)),
    )
    along = float(gap @ matrix @ gap) / distance**2 if distance > 0.0 else 0.0
    trace = float(np.trace(matrix))
    line = mass * cantelli(distance, along, plan.limit)
    yield f"Cantelli (deviation along the line {math.sqrt(along):.6g}): at most {line:.6g}"
    mean_square = distance**2 + trace
    yield (
        f"Markov (root mean square distance {math.sqrt(mean_square):.6g}): at most "
        f"{mass * min(1.0, reverse_markov(mean_square, far, plan.limit)):.6g}"
    )
    skew = float(gap @ (left.shape[0, :-1] - right.shape[0, :-1])) / distance if distance > 0.0 else 0.0
    spread = float(left.shape[0, -1] + right.shape[0, -1] + 4.0 * np.trace(product))
    bound = cantelli_on_square(distance, trace, along, skew, spread, far, 0.0, plan.limit)
    yield f"Cantelli on squared distances: at most {mass * bound:.6g}"


def _by_group(gap: Floats, error: Floats | None, call: JoinCall, margin: float) -> Iterator[str]:
    """How far apart the means are in each group of dimensions, and of normal rows which of the groups decides."""
    plan = call.plan
    named = names(call.encodings[0].model, len(gap))
    group, epsilon = plan.within(len(gap))
    shares = {}
    for g, wanted in enumerate(epsilon):
        own = np.flatnonzero(np.array(group) == g)
        apart = np.abs(gap[own]).sum() if plan.metric == "manhattan" else math.hypot(*gap[own])
        label = ", ".join(named[k] for k in own)
        yield f"{label}: {apart:.6g} apart, epsilon {wanted + margin:.6g}"
        if error is not None:
            shares[label] = _along(gap[own], error[np.ix_(own, own)], wanted + margin)
    if len(shares) > 1:
        yield _decides(shares)


def _half_space(error: Floats, way: Floats, mass: float, epsilon: float) -> Iterator[str]:
    """The bound along the line of centres, and the ellipse of the difference where it is one."""
    distance = float(np.linalg.norm(way))
    line = way / distance if distance > 0.0 else np.eye(len(way))[0]
    deviation = math.sqrt(max(0.0, float(line @ error @ line)))
    if deviation > 0.0:
        bound = mass * phi((epsilon - distance) / deviation)
        yield f"half-space (deviation {deviation:.6g}): at most {bound:.6g}"
    variances, axes = np.linalg.eigh(error)
    if variances[-1] - variances[0] > _EQUAL * variances[-1]:
        sizes = " and ".join(f"{math.sqrt(max(0.0, v)):.6g}" for v in variances[::-1])
        angle = math.degrees(math.acos(min(1.0, abs(float(axes[:, -1] @ line)))))
        yield f"ellipse of the difference: semi-axes {sizes}, the first at {angle:.3g} degrees to the line of centres"
        yield _axes(variances[::-1], distance * np.abs(line @ axes[:, ::-1]), mass, epsilon)


def _cylinder(error: Floats, way: Floats, mass: float, epsilon: tuple[float, float]) -> Iterator[str]:
    """The same along the Earth, and which of the two ways decides."""
    yield from _half_space(error[:2, :2], way[:2], mass, epsilon[0])
    horizontal = _along(way[:2], error[:2, :2], epsilon[0])
    yield _decides({"horizontal": horizontal, "vertical": _along(way[2:], error[2:, 2:], epsilon[1])})


def _along(way: Floats, error: Floats, epsilon: float) -> float:
    """The probability to be within epsilon along the line of centres: at least that of being so at all."""
    distance = float(np.linalg.norm(way))
    line = way / distance if distance > 0.0 else np.eye(len(way))[0]
    return _share(distance, float(line @ error @ line), epsilon)


def _share(mean: float, variance: float, epsilon: float) -> float:
    """The probability that a normal number is within epsilon of zero."""
    s = math.sqrt(max(0.0, variance))
    return float(abs(mean) <= epsilon) if s == 0.0 else interval((-epsilon - mean) / s, (epsilon - mean) / s)


def _decides(shares: dict[str, float]) -> str:
    bounds = ", ".join(f"{name} at most {share:.6g}" for name, share in shares.items())
    return f"along each: {bounds}; {min(shares, key=shares.__getitem__)} decides"


def _axes(variances: Floats, means: Floats, mass: float, epsilon: float) -> str:
    """How much of the probability each axis of an ellipse leaves: what is within epsilon is so along each."""
    left = [_share(mean, own, epsilon) for mean, own in zip(means.tolist(), variances.tolist(), strict=True)]
    listed = ", ".join(f"{name} {mass * share:.6g}" for name, share in zip(_ORDINALS, left, strict=False))
    return f"along its axes: at most {listed}; the {_ORDINALS[int(np.argmin(left))]} decides"


def _difference(left: _Side, right: _Side, way: Floats, plan: JoinPlan) -> Floats:
    """The covariance of the difference of two normal rows; on the Earth along and across the geodesic, and upward."""
    one, other, d = left.row.spread, right.row.spread, len(way)
    if plan.earth is None:
        total: Floats = (matrices(one, d) + matrices(other, d))[0]
        return total
    total = np.zeros((d, d))
    ends = (left.row.centre[0, :3].tolist(), right.row.centre[0, :3].tolist())
    for side, (here, there), sign in ((left, ends, 1.0), (right, ends[::-1], -1.0)):
        assert isinstance(side.model, Position)  # noqa: S101 - on the Earth all rows are
        flat, above = flat_and_above(side.row.spread, side.model)
        east, north = (sign * part for part in heading(plan.earth, *here, *there))
        turn = np.array([[east, north], [north, -east]])
        total[:2, :2] += turn @ matrices(flat, 2)[0] @ turn.T
        if above.shape[1]:
            total[2, 2] += above[0, 0] ** 2
    return total


def _matrix(upper: np.ndarray[Any, np.dtype[np.float64]], d: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    matrix = np.zeros((d, d))
    matrix[np.triu_indices(d)] = upper
    return matrix + np.triu(matrix, 1).T


def _join(tables: list[pa.Table], call: JoinCall) -> tuple[pa.Table, dict[str, int]]:
    engine = LocalJoin(call)
    found = pa.concat_tables([engine.push(dict(zip(call.plan.streams, tables, strict=True))), engine.drain()])
    return found, dict(engine.operator.counts)


def _asked(tables: list[pa.Table], call: JoinCall, options: Options) -> float:
    """The exact probability, whatever the threshold and the window."""
    windows = tuple(int(FOREVER * 1e6) for _ in call.plan.windows)
    plan = replace(call.plan, threshold=1e-300, windows=windows, bounds=options.bounds, quantile=1.0)
    encodings = tuple(replace(encoding, quantile=1.0) for encoding in call.encodings)
    found, _ = _join(tables, replace(call, plan=plan, streams=encodings))
    return float(found["probability"][0].as_py()) if len(found) else 0.0


def _counts(tables: list[pa.Table], call: JoinCall) -> dict[str, int]:
    return _join(tables, call)[1]


def _verdict(counts: dict[str, int]) -> str:
    answer = "an answer" if counts.get("answers") else "no answer"
    if not counts.get("candidates"):
        return f"{answer}; decided by the window, or the partition: the rows never meet"
    decided = next((text for name, text in _DECIDED.items() if counts.get(name)), "refinement")
    return f"{answer}; decided by {decided}"
