"""Slow, obvious twins of everything clever: written from the specification, not from the code.

Weights, existence and thresholds are exact fractions, so that ties are decided, not rounded. Distances follow the
house rule, in doubles on the coordinates as given: close iff ``d2 <= (epsilon + 1e-9 * max(1, epsilon)) ** 2``.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from itertools import combinations, combinations_with_replacement, product
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

import appulse as ap
from appulse.model.points import ball_points, normal_points
from tests.helpers import geodesics, normal

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from appulse.windows.definitions import Window

    Groups: TypeAlias = tuple[tuple[tuple[int, ...], float], ...]
    Covariance: TypeAlias = tuple[tuple[float, ...], ...]
    Model: TypeAlias = ap.Exact | ap.Samples | ap.Gaussian | ap.Ball | ap.Incomplete | ap.Position

TOLERANCE = Fraction(1, 10**9)
MICROS = {
    "ns": Fraction(1, 1000),
    "us": Fraction(1),
    "ms": Fraction(1000),
    "s": Fraction(10**6),
    "min": Fraction(60 * 10**6),
    "h": Fraction(3600 * 10**6),
    "d": Fraction(86400 * 10**6),
    "w": Fraction(7 * 86400 * 10**6),
}
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - times without zone are UTC


# --- what a row means -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Object:
    """An uncertain object: its samples with their weights, and, if it is normal, its mean and its covariance.

    A point is normal without error. A place on the ``earth`` has degrees for coordinates, and a covariance in metres,
    east and north.
    """

    points: tuple[tuple[float, ...], ...]
    weights: tuple[Fraction, ...]
    gaussian: tuple[tuple[float, ...], Covariance] | None = None
    earth: str | None = None
    altitude_sigma: float = 0.0
    margin: float = 0.0

    @property
    def mass(self) -> Fraction:
        return sum(self.weights, Fraction(0))

    @property
    def mean(self) -> tuple[float, ...]:
        if self.gaussian is not None:
            return self.gaussian[0]
        d = len(self.points[0])
        sums = [
            sum((w * Fraction(x[k]) for w, x in zip(self.weights, self.points, strict=True)), Fraction(0))
            for k in range(d)
        ]
        return tuple(float(total / self.mass) for total in sums)


@dataclass(frozen=True)
class Marginal:
    """One number of a row, given that the row exists: its values with their weights, or a normal distribution."""

    values: tuple[float, ...]
    weights: tuple[Fraction, ...]
    sigma: float = 0.0

    @classmethod
    def certain(cls, value: float) -> Marginal:
        """A number that is known."""
        return cls((value,), (Fraction(1),))


@dataclass(frozen=True, eq=False)
class Row:
    """A usable row."""

    stream: int
    number: int
    key: Any
    time: Any
    micros: int
    group: tuple[Any, ...]
    differ: Any
    value: Object
    centre: tuple[float, ...]
    attribute: Marginal  # what a delta window looks at

    @property
    def order(self) -> tuple[Any, ...]:
        """By time, then by key, then by values: as the rows of a stream are numbered."""
        return self.micros, key_order(self.key), self.centre


@dataclass(frozen=True)
class Reject:
    """A row that cannot be used, with every reason there is for that."""

    stream: str
    key: Any
    time: Any
    reasons: frozenset[str]


@dataclass(frozen=True)
class Answer:
    """A pair that is close enough, often enough."""

    left_stream: str
    left_key: Any
    left_time: Any
    right_stream: str
    right_key: Any
    right_time: Any
    distance: float
    probability: float
    doubtful: bool = False  # within rounding of the threshold: may be answered or not
    unordered: bool = False  # which row is the left one is decided by bytes this twin does not know

    @property
    def left(self) -> tuple[Any, ...]:
        """Stream, key and time of the left row."""
        return self.left_stream, self.left_key, self.left_time

    @property
    def right(self) -> tuple[Any, ...]:
        """Stream, key and time of the right row."""
        return self.right_stream, self.right_key, self.right_time

    @property
    def swapped(self) -> Answer:
        """The same pair seen from the other side."""
        sides = {f"left_{what}": getattr(self, f"right_{what}") for what in ("stream", "key", "time")}
        sides |= {f"right_{what}": getattr(self, f"left_{what}") for what in ("stream", "key", "time")}
        return replace(self, **sides)

    @property
    def identity(self) -> tuple[Any, ...]:
        """What two answers about the same pair share."""
        sides = [tuple(map(plain, side)) for side in (self.left, self.right)]
        return tuple(sorted(sides) if self.unordered else sides)


def micros_of(value: Any, unit: str) -> int | None:
    """Microseconds of a time; None if it is no time."""
    if isinstance(value, datetime):
        naive = value.replace(tzinfo=None) - (value.utcoffset() or timedelta())
        return math.floor(Fraction((naive - _EPOCH) // timedelta(microseconds=1)))
    if isinstance(value, date):
        return (value - _EPOCH.date()).days * 86_400_000_000
    if isinstance(value, float) and not math.isfinite(value):
        return None
    scaled = Fraction(value) * MICROS[unit]
    micros = math.floor(scaled) if unit == "ns" else round(scaled)
    return micros if abs(micros) < 2**62 else None


def _number(value: Any) -> float:
    return math.nan if value is None else float(value)


def defects(row: Mapping[str, Any], stream: ap.Stream, d: int, attribute: str | None = None) -> frozenset[str]:
    """Every reason (api.md, section 8) for which a row cannot be used."""
    found = set()
    if row[stream.key] is None:
        found.add("null key")
    if row[stream.time] is None:
        found.add("null time")
    elif micros_of(row[stream.time], stream.unit) is None:
        found.add("non-finite value")
    if any(row[column] is None for column in stream.partitions):
        found.add("null partition")
    column = stream.existence_column
    if column is not None and not 0.0 < _number(row[column]) <= 1.0:
        found.add("existence outside (0, 1]")
    if attribute is not None and not math.isfinite(_number(row[attribute])):
        found.add("non-finite value")
    if not math.isfinite(margin_of(row, stream)):
        found.add("non-finite value")
    elif margin_of(row, stream) < 0.0:
        found.add("negative margin")
    model = stream.value
    if isinstance(model, ap.Samples):
        found |= _sample_defects(row, model, d)
    else:
        found |= _centre_defects(row, model)
    return frozenset(found)


def _centre_defects(row: Mapping[str, Any], model: Model) -> set[str]:
    found = set()
    if not all(math.isfinite(_number(row[column])) for column in dimension_names(model, 0)):
        found.add("non-finite value")
    if isinstance(model, ap.Position) and abs(_number(row[model.lat])) > 90.0:
        found.add("latitude outside [-90, 90]")
    if isinstance(model, ap.Gaussian) and model.covariance is not None:
        if not all(map(math.isfinite, spreads(row, model))):
            found.add("non-finite value")
        else:
            variances = np.linalg.eigvalsh(np.array(covariance_of(row, model)))
            if variances.min() < -1e-9 * variances.max() or variances.max() < 0.0:
                found.add("not a covariance")
        return found
    elliptic = isinstance(model, ap.Gaussian | ap.Position) and model.ellipse is not None
    for k, spread in enumerate(spreads(row, model)):
        if not math.isfinite(spread):
            found.add("non-finite value")
        elif elliptic and k == 2:
            pass  # an angle
        elif spread < 0:
            found.add("negative sigma or radius")
        elif isinstance(model, ap.Position) and spread > 1e5:
            found.add(f"error above {'100,000 arc seconds' if model.earth == 'sky' else '100 km'}")
    return found


def _sample_defects(row: Mapping[str, Any], model: ap.Samples, d: int) -> set[str]:
    samples = row[model.column] or []
    if not samples:
        return {"empty samples"}
    if model.weights is None:
        return set().union(*(_point_defects(sample, d) for sample in samples))
    weights = row[model.weights] or []
    if len(weights) != len(samples):
        return {"wrong dimension"}.union(*(_point_defects(sample, d) for sample in samples))
    # What weighs nothing is not looked at.
    found = set().union(*(_point_defects(s, d) for s, w in zip(samples, weights, strict=True) if w != 0))
    if any(not math.isfinite(_number(w)) for w in weights):
        return found | {"non-finite value"}
    if any(w < 0 for w in weights):
        found.add("negative weight")
    if sum(map(Fraction, weights)) > 1 + TOLERANCE:
        found.add("weights above 1")
    if sum(map(Fraction, weights)) <= 0:
        found.add("empty samples")
    return found


def _point_defects(sample: Any, d: int) -> set[str]:
    if sample is None:  # a missing number, or a missing list of them
        return {"wrong dimension", "non-finite value"}
    found = set()
    coordinates = sample if isinstance(sample, list) else [sample]
    if len(coordinates) != d:
        found.add("wrong dimension")
    if not all(math.isfinite(_number(x)) for x in coordinates):
        found.add("non-finite value")
    return found


def spreads(row: Mapping[str, Any], model: Model) -> list[float]:
    """Sigmas or radius of a row, as given."""
    given: tuple[str | float, ...]
    if isinstance(model, ap.Position | ap.Gaussian):
        given = model.errors
    elif isinstance(model, ap.Ball):
        given = (model.radius,)
    else:
        given = ()
    return [_number(row[s]) if isinstance(s, str) else s for s in given]


def object_of(row: Mapping[str, Any], stream: ap.Stream) -> Object:
    """The object a good row holds."""
    return replace(_object_of(row, stream), margin=margin_of(row, stream))


def margin_of(row: Mapping[str, Any], stream: ap.Stream) -> float:
    """What a row adds to epsilon."""
    return _number(row[stream.margin]) if isinstance(stream.margin, str) else stream.margin


def _object_of(row: Mapping[str, Any], stream: ap.Stream) -> Object:
    model = stream.value
    column = stream.existence_column
    existence = Fraction(1) if column is None else Fraction(row[column])
    if isinstance(model, ap.Samples):
        samples = row[model.column]
        n = len(samples)
        weights = [Fraction(1, n)] * n if model.weights is None else [Fraction(w) for w in row[model.weights]]
        total = max(Fraction(1), sum(weights, Fraction(0)))  # at most 1 + 1e-9, and then taken as 1
        kept = [(s, existence * w / total) for s, w in zip(samples, weights, strict=True) if w != 0]
        listed = [tuple(map(float, s)) if isinstance(s, list) else (float(s),) for s, _ in kept]
        return Object(tuple(listed), tuple(w for _, w in kept))
    if isinstance(model, ap.Position):
        place = tuple(float(row[column]) for column in model.columns)
        errors = spreads(row, model)
        flat = ellipse_of(errors[:3]) if model.ellipse is not None else diagonal(errors[:1] * 2)
        above = errors[-1:] if model.altitude is not None else []
        return Object((place,), (existence,), (place, flat), model.earth, *above)
    centre = np.array([float(row[column]) for column in model.columns])
    covariance = covariance_of(row, model)
    if isinstance(model, ap.Exact):
        moved = np.zeros((1, len(centre)))
    elif isinstance(model, ap.Gaussian):
        assert covariance is not None
        points = normal_points(model.samples, len(centre))
        moved = points @ _root(covariance).T
        if model.sigma is not None:
            moved = points * spreads(row, model)
    else:
        assert isinstance(model, ap.Ball)  # what is incomplete has a twin of its own, naive_imputation
        moved = ball_points(model.samples, len(centre)) * spreads(row, model)
    samples = [tuple(point) for point in (centre + moved).tolist()]
    weights = [existence / len(samples)] * len(samples)
    # In many dimensions only what has one deviation for all of them is answered in closed form.
    closed = len(centre) <= 3 or isinstance(model, ap.Exact) or (isinstance(model, ap.Gaussian) and model.isotropic)
    gaussian = (tuple(centre.tolist()), covariance) if covariance is not None and closed else None
    return Object(tuple(samples), tuple(weights), gaussian)


def covariance_of(row: Mapping[str, Any], model: Model) -> Covariance | None:
    """The covariance of a row of points, or of a normal row in few dimensions or with one deviation."""
    if isinstance(model, ap.Exact):
        return diagonal([0.0] * len(model.columns))
    if not isinstance(model, ap.Gaussian):
        return None
    d, errors = len(model.columns), spreads(row, model)
    if model.ellipse is not None:
        return ellipse_of(errors)
    if model.covariance is not None:
        entry = dict(zip(combinations_with_replacement(range(d), 2), errors, strict=True))
        return tuple(tuple(entry[min(k, m), max(k, m)] for m in range(d)) for k in range(d))
    return diagonal(errors * d if len(errors) == 1 else errors)


def diagonal(sigmas: Sequence[float]) -> Covariance:
    """The covariance of independent coordinates."""
    return tuple(tuple(s * s if k == m else 0.0 for m in range(len(sigmas))) for k, s in enumerate(sigmas))


def _root(covariance: Covariance) -> np.ndarray[Any, np.dtype[np.float64]]:
    """The lower triangle L with L L' the covariance, which need not be of full rank."""
    matrix = np.array(covariance)
    root = np.zeros_like(matrix)
    for k in range(len(matrix)):
        rest = matrix[k, k] - root[k, :k] @ root[k, :k]
        root[k, k] = math.sqrt(rest) if rest > 1e-12 * matrix[k, k] else 0.0
        for m in range(k + 1, len(matrix)):
            left = matrix[m, k] - root[m, :k] @ root[k, :k]
            root[m, k] = left / root[k, k] if root[k, k] > 0.0 else 0.0
    return root


def ellipse_of(axes: Sequence[float]) -> Covariance:
    """The covariance of two semi-axes and the angle of the first, clockwise from the second coordinate."""
    along, across, angle = axes
    sine, cosine = math.sin(math.radians(angle)), math.cos(math.radians(angle))
    turn = np.array([[sine, cosine], [cosine, -sine]])
    matrix = turn @ np.diag([along**2, across**2]) @ turn.T
    return tuple(map(tuple, matrix.tolist()))


def dimension_names(model: Model, d: int) -> tuple[str, ...]:
    """What the dimensions of a model are called."""
    if not isinstance(model, ap.Samples):
        return tuple(model.columns)
    if model.names is not None:
        return tuple(model.names)
    return (model.column,) if d == 1 else tuple(f"{model.column}_{k}" for k in range(1, d + 1))


def marginal_of(row: Mapping[str, Any], model: Model, value: Object, k: int) -> Marginal:
    """Coordinate k of an object that exists."""
    if isinstance(model, ap.Gaussian):
        covariance = covariance_of(row, model)
        assert covariance is not None
        return Marginal((float(row[model.columns[k]]),), (Fraction(1),), math.sqrt(covariance[k][k]))
    return Marginal(tuple(point[k] for point in value.points), tuple(w / value.mass for w in value.weights))


# --- how probable a pair is -------------------------------------------------------------------------------------


def limit_of(epsilon: float) -> float:
    """Epsilon with its tolerance."""
    return epsilon + 1e-9 * max(1.0, epsilon)


def is_close(x: Sequence[float], y: Sequence[float], epsilon: float) -> bool:
    """The house rule."""
    d2 = sum((a - b) * (a - b) for a, b in zip(x, y, strict=True))
    return d2 <= limit_of(epsilon) * limit_of(epsilon)


def samples_probability(a: Object, b: Object, epsilon: float | Groups, metric: str = "euclidean") -> Fraction:
    """Lian & Chen 2009, Eq. 2, exactly."""
    total = Fraction(0)
    for (x, p), (y, q) in product(zip(a.points, a.weights, strict=True), zip(b.points, b.weights, strict=True)):
        if matches(x, y, epsilon, metric):
            total += p * q
    return total


def matches(x: Sequence[float], y: Sequence[float], epsilon: float | Groups, metric: str) -> bool:
    """The house rule, in every group of dimensions."""
    groups = ((tuple(range(len(x))), epsilon),) if isinstance(epsilon, float) else epsilon
    return all(_near([x[k] for k in own], [y[k] for k in own], bound, metric) for own, bound in groups)


def _near(x: Sequence[float], y: Sequence[float], epsilon: float, metric: str) -> bool:
    gaps = [abs(a - b) for a, b in zip(x, y, strict=True)]
    if metric == "manhattan":
        return sum(gaps) <= limit_of(epsilon)
    return max(gaps) <= limit_of(epsilon) if metric == "chebyshev" else is_close(x, y, epsilon)


def groups_by_number(epsilon: Any, streams: Sequence[ap.Stream], d: int) -> Any:
    """Epsilons of groups of dimensions, by their numbers."""
    names = dimension_names(streams[0].value, d)
    if not isinstance(epsilon, dict) or set(epsilon) == {"horizontal", "vertical"}:
        return epsilon
    named = [((own,) if isinstance(own, str) else own, bound) for own, bound in epsilon.items()]
    return tuple((tuple(names.index(name) for name in own), float(bound)) for own, bound in named)


def scaled(value: Object, units: Sequence[float]) -> Object:
    """An object whose dimensions are divided by units."""
    points = tuple(tuple(x / unit for x, unit in zip(point, units, strict=True)) for point in value.points)
    if value.gaussian is None:
        return replace(value, points=points)
    mean, covariance = value.gaussian
    by = np.outer(units, units)
    divided = tuple(x / unit for x, unit in zip(mean, units, strict=True))
    matrix: Covariance = tuple(map(tuple, (np.array(covariance) / by).tolist()))
    # In many dimensions only one deviation for all of them is answered in closed form.
    closed = len(mean) <= 3 or is_isotropic(matrix)
    return replace(value, points=points, gaussian=(divided, matrix) if closed else None)


def worlds_probability(a: Object, b: Object, epsilon: float) -> Fraction:
    """The same by possible worlds: each object is one of its samples, or not there."""
    total = Fraction(0)
    for i, j in product(range(-1, len(a.points)), range(-1, len(b.points))):
        p = 1 - a.mass if i < 0 else a.weights[i]
        q = 1 - b.mass if j < 0 else b.weights[j]
        if i >= 0 and j >= 0 and is_close(a.points[i], b.points[j], epsilon):
            total += p * q
    return total


def gaussian_probability(distance: float, deviation: float, epsilon: float, d: int) -> float:
    """Pr{an isotropic Gaussian, its mean ``distance`` from the origin, lies within epsilon}, by scipy."""
    from scipy.stats import chi2, ncx2

    r2, nc = (epsilon / deviation) ** 2, (distance / deviation) ** 2
    return float(chi2.cdf(r2, d) if nc == 0.0 else ncx2.cdf(r2, d, nc))


def altitude_probability(a: Object, b: Object, epsilon: float | Mapping[str, float]) -> Fraction | float:
    """Of two places with an altitude: in a ball by quadrature, in a cylinder each way apart."""
    assert a.earth is not None
    assert a.gaussian is not None
    assert b.gaussian is not None
    flat, steep = difference(a, b), math.hypot(a.altitude_sigma, b.altitude_sigma)
    along, rise = geodesics.distance(a.earth, a.mean[:2], b.mean[:2]), abs(a.mean[2] - b.mean[2])
    if isinstance(epsilon, float):
        if not np.any(flat) and steep == 0.0:
            return a.mass * b.mass if math.hypot(along, rise) <= limit_of(epsilon) else Fraction(0)
        if is_isotropic(flat):
            inside = geodesics.in_ball(along, math.sqrt(flat[0][0]), rise, steep, epsilon)
        else:
            whole = (*((*row, 0.0) for row in flat), (0.0, 0.0, steep**2))
            inside = normal.within((along, 0.0, rise), whole, epsilon)
        return float(a.mass * b.mass) * inside
    found: Fraction | float = a.mass * b.mass
    for gap, covariance, bound in (
        ((along, 0.0), flat, epsilon["horizontal"]),
        ((rise,), ((steep**2,),), epsilon["vertical"]),
    ):
        if not np.any(covariance):
            found = found if gap[0] <= limit_of(bound) else Fraction(0)
        else:
            found = float(found) * normal_probability(gap, covariance, bound)
    return found


def difference(a: Object, b: Object) -> Covariance:
    """The covariance of the difference of two normal objects; of places, along and across the geodesic."""
    assert a.gaussian is not None
    assert b.gaussian is not None
    one, other = np.array(a.gaussian[1]), np.array(b.gaussian[1])
    if a.earth is not None:
        headings = geodesics.headings(a.earth, a.mean[:2], b.mean[:2])
        one, other = (turn @ own @ turn.T for turn, own in zip(headings, (one, other), strict=True))
    return tuple(map(tuple, (one + other).tolist()))


def is_isotropic(covariance: Covariance) -> bool:
    """Whether all directions have one variance."""
    most = covariance[0][0]
    return bool(np.allclose(covariance, most * np.eye(len(covariance)), rtol=0.0, atol=1e-14 * most))


def normal_probability(gap: Sequence[float], covariance: Covariance, epsilon: float) -> float:
    """Pr{a normal difference with error lies within epsilon}."""
    if is_isotropic(covariance):
        return gaussian_probability(math.hypot(*gap), math.sqrt(covariance[0][0]), epsilon, len(gap))
    return normal.within(gap, covariance, epsilon)


def probability(a: Object, b: Object, epsilon: Any, metric: str = "euclidean") -> Fraction | float:
    """Pr{both exist and lie within epsilon and their margins}: a fraction where it is exact."""
    if isinstance(epsilon, float):
        epsilon += a.margin + b.margin
    if a.earth is not None and len(a.mean) == 3:
        return altitude_probability(a, b, epsilon)
    d = len(a.mean)
    if a.gaussian is None or b.gaussian is None or (metric == "manhattan" and d > 3):
        return samples_probability(a, b, epsilon, metric)
    if not isinstance(epsilon, float) or metric != "euclidean":
        return _normal_in_groups(a, b, epsilon, metric)
    x, y, covariance = a.gaussian[0], b.gaussian[0], difference(a, b)
    if not np.any(covariance):
        close = is_close(x, y, epsilon) if a.earth is None else distance(a, b) <= limit_of(epsilon)
        return a.mass * b.mass if close else Fraction(0)
    gap = [p - q for p, q in zip(x, y, strict=True)] if a.earth is None else (distance(a, b), 0.0)
    return float(a.mass * b.mass) * normal_probability(gap, covariance, epsilon)


def _normal_in_groups(a: Object, b: Object, epsilon: float | Groups, metric: str) -> Fraction | float:
    """Of two normal objects, where distances are not one Euclidean one."""
    x, y, covariance = a.mean, b.mean, difference(a, b)
    if not np.any(covariance):
        return a.mass * b.mass if matches(x, y, epsilon, metric) else Fraction(0)
    d = len(x)
    groups = ((tuple(range(d)), epsilon),) if isinstance(epsilon, float) else epsilon
    if metric == "chebyshev":
        groups = tuple(((k,), bound) for own, bound in groups for k in own)
    gap, found = [p - q for p, q in zip(x, y, strict=True)], float(a.mass * b.mass)
    matrix = np.array(covariance)
    of = np.array([next(g for g, (own, _) in enumerate(groups) if k in own) for k in range(d)])
    if np.any(matrix[of[:, None] != of[None, :]]):
        return found * normal.inside(gap, matrix, groups, metric)
    for own, bound in groups:
        part, there = matrix[np.ix_(own, own)], [gap[k] for k in own]
        if not np.any(part):
            found *= _near(there, [0.0] * len(own), bound, metric)
        elif metric == "euclidean":
            found *= normal_probability(there, tuple(map(tuple, part.tolist())), bound)
        else:
            found *= normal.inside(there, part, ((tuple(range(len(own))), bound),), metric)
    return found


def distance(a: Object, b: Object, metric: str = "euclidean") -> float:
    """Between the mean positions."""
    if metric != "euclidean":
        gaps = [abs(x - y) for x, y in zip(a.mean, b.mean, strict=True)]
        return sum(gaps) if metric == "manhattan" else max(gaps)
    if a.earth is None:
        return math.dist(a.mean, b.mean)
    along = geodesics.distance(a.earth, a.mean[:2], b.mean[:2])
    return math.hypot(along, *(x - y for x, y in zip(a.mean[2:], b.mean[2:], strict=True)))


def apart_probability(a: Marginal, b: Marginal, bound: float) -> Fraction | float:
    """Pr{two numbers differ by more than ``bound``}."""
    deviation = math.hypot(a.sigma, b.sigma)
    if deviation > 0.0:
        between = a.values[0] - b.values[0]
        scale = deviation * math.sqrt(2.0)
        return 0.5 * math.erfc((bound - between) / scale) + 0.5 * math.erfc((bound + between) / scale)
    total = Fraction(0)
    for (x, p), (y, q) in product(zip(a.values, a.weights, strict=True), zip(b.values, b.weights, strict=True)):
        if abs(x - y) > bound:
            total += p * q
    return total


# --- the join ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Result:
    """Answers and rejects of a call."""

    answers: list[Answer]
    rejects: list[Reject]


@dataclass(frozen=True)
class Pair:
    """An answer, the tick at which it enters, and when it leaves, if it does; in microseconds."""

    answer: Answer
    since: int
    until: int | None


@dataclass(frozen=True)
class Change:
    """A pair that enters (+1) or leaves (-1) the answer, at a time in microseconds."""

    change: int
    micros: int
    answer: Answer


def rows_of(
    tables: Sequence[Sequence[Mapping[str, Any]]],
    streams: Sequence[ap.Stream],
    d: int,
    different: str | None = None,
    attribute: str | None = None,
    dimension: str | None = None,
    scale: Mapping[str, float] | None = None,
) -> tuple[list[Row], list[Reject]]:
    """The usable rows of all streams, and the others.

    A delta window looks at the column ``attribute``, or at the ``dimension`` of the uncertain value.
    """
    names = stream_names(streams)
    rows, rejects = [], []
    for s, (table, stream) in enumerate(zip(tables, streams, strict=True)):
        for i, row in enumerate(table):
            reasons = defects(row, stream, d, attribute)
            if reasons:
                rejects.append(Reject(names[s], row[stream.key], row[stream.time], reasons))
                continue
            micros = micros_of(row[stream.time], stream.unit)
            assert micros is not None
            group = tuple(plain(row[column]) for column in stream.partitions)
            differ = None if different is None else row[different]
            value = object_of(row, stream)
            centre = value.mean
            if isinstance(stream.value, ap.Position):
                centre = (*geodesics.centred(stream.value.earth, centre[:2]), *centre[2:])
            elif not isinstance(stream.value, ap.Samples):
                centre = tuple(float(row[column]) for column in stream.value.columns)
            beside = Marginal.certain(0.0 if attribute is None else float(row[attribute]))
            if dimension is not None:
                k = dimension_names(stream.value, d).index(dimension)
                beside = marginal_of(row, stream.value, value, k)
            if scale is not None:
                named = dimension_names(streams[0].value, d)
                value = scaled(value, [scale.get(name, 1.0) for name in named])
            rows.append(Row(s, i, row[stream.key], row[stream.time], micros, group, differ, value, centre, beside))
    return rows, rejects


def stream_names(streams: Sequence[ap.Stream]) -> list[str]:
    default = ["left", "right", *(f"s{i}" for i in range(3, 17))]
    return [stream.name or default[i] for i, stream in enumerate(streams)]


def join(tables: Sequence[Sequence[Mapping[str, Any]]], streams: Sequence[ap.Stream], **question: Any) -> Result:
    """The similarity join: every two rows that are ever in their windows together and match. As `pairs` has it."""
    found, rejects = pairs(tables, streams, **question)
    return Result([pair.answer for pair in found], rejects)


def changes(
    tables: Sequence[Sequence[Mapping[str, Any]]], streams: Sequence[ap.Stream], **question: Any
) -> list[Change]:
    """When each pair enters the answer, and when it leaves it. As `pairs` has it."""
    found, _ = pairs(tables, streams, **question)
    entered = [Change(1, pair.since, pair.answer) for pair in found]
    return entered + [Change(-1, pair.until, pair.answer) for pair in found if pair.until is not None]


def standing(
    tables: Sequence[Sequence[Mapping[str, Any]]], streams: Sequence[ap.Stream], tick: int, **question: Any
) -> list[Answer]:
    """The pairs that stand at a tick (in microseconds): those that would not have left had the call ended there."""
    found, _ = pairs(tables, streams, last=tick, **question)
    return [pair.answer for pair in found if pair.until is None]


def pairs(
    tables: Sequence[Sequence[Mapping[str, Any]]],
    streams: Sequence[ap.Stream],
    *,
    d: int,
    epsilon: float | Mapping[str, float],
    probability: float,
    window: Window,
    self_join: bool = False,
    different: str | None = None,
    last: int | None = None,
    metric: str = "euclidean",
    scale: Mapping[str, float] | None = None,
) -> tuple[list[Pair], list[Reject]]:
    """The pairs that match, with their times, and the rejects; rows after the tick ``last`` have not come yet."""
    names = stream_names(streams)
    rows, rejects = rows_of(tables, streams, d, different, attribute_of(window), dimension_of(window), scale)
    epsilon = groups_by_number(epsilon, streams, d)
    last = max((row.micros for row in rows), default=0) if last is None else last
    found = []
    for a, b, since, until, factor in meetings([row for row in rows if row.micros <= last], names, window, last):
        if (a.stream == b.stream) is not self_join:
            continue
        if different is not None and (a.differ is None or b.differ is None or plain(a.differ) == plain(b.differ)):
            continue
        answer = answer_of(a, b, names, epsilon, probability, factor, metric)
        if answer is not None:
            found.append(Pair(answer, since, until))
    return found, rejects


# --- windows ----------------------------------------------------------------------------------------------------


def attribute_of(window: Window) -> str | None:
    """The certain column that a window looks at, if any."""
    return window.column if isinstance(window, ap.DeltaWindow) and window.confidence is None else None


def dimension_of(window: Window) -> str | None:
    """The dimension of the uncertain value that a window looks at, if any."""
    return window.column if isinstance(window, ap.DeltaWindow) and window.confidence is not None else None


class Meeting(NamedTuple):
    """Two rows in their windows together: since which tick, until when, if they part.

    ``factor`` is the probability that both were in their windows at the first tick, given that they exist.
    """

    a: Row
    b: Row
    since: int
    until: int | None
    factor: Fraction | float


class Held:
    """What one stream of one group holds: its rows with their numbers, oldest first, and when the others went."""

    def __init__(self, window: Window, name: str) -> None:
        self.window = window
        self.name = name
        self.rows: list[tuple[int, Row]] = []
        self.gone: dict[Row, int] = {}
        self._numbered = 0

    def expire(self, now: int) -> None:
        """Drop what time expired."""
        for number, row in list(self.rows):
            end = self._end(row, now)
            if end is not None:
                self.gone[row] = end
                self.rows.remove((number, row))

    def insert(self, rows: Sequence[Row], now: int) -> None:
        """Take in the rows of the tick, and drop what they push out."""
        for row in sorted(rows, key=lambda row: row.order):
            self.rows.append((self._numbered, row))
            self._numbered += 1
        while self._outgrown():
            _, row = self.rows.pop(0)
            self.gone[row] = now

    def after(self, row: Row) -> list[Row]:
        """The rows numbered after one that is held."""
        held = [other for _, other in self.rows]
        return held[held.index(row) + 1 :]

    def _end(self, row: Row, now: int) -> int | None:
        """When time took the row from its window, None if it has not."""
        if isinstance(self.window, ap.TimeWindow):
            end = row.micros + micros_of_duration((self.window.per_stream or {}).get(self.name, self.window.length))
            return end if end < now else None
        if isinstance(self.window, ap.TumblingWindow) and isinstance(self.window.length, str):
            block = micros_of_duration(self.window.length)
            return now if row.micros // block != now // block else None
        return None

    def _outgrown(self) -> bool:
        """Whether the oldest row has to go, the rows of the tick being in."""
        if len(self.rows) < 2:
            return False
        (first, oldest), (last, newest) = self.rows[0], self.rows[-1]
        if isinstance(self.window, ap.TimeWindow):
            return False
        if isinstance(self.window, ap.CountWindow):
            return len(self.rows) > self.window.size
        if isinstance(self.window, ap.UncertainCountWindow):
            return self._enough_after(self.window, oldest)
        if isinstance(self.window, ap.DeltaWindow):
            needed = 1 if self.window.confidence is None else Fraction(self.window.confidence) - TOLERANCE
            return apart_probability(oldest.attribute, newest.attribute, self.window.bound) >= needed
        return isinstance(self.window.length, int) and first // self.window.length != last // self.window.length

    def _enough_after(self, window: ap.UncertainCountWindow, oldest: Row) -> bool:
        """Whether enough rows exist without the oldest (Dallachiesa et al. 2015, Algorithm 1), or too many are held."""
        if window.max_rows is not None and len(self.rows) > window.max_rows:
            return True
        newer = self.after(oldest)
        if len(newer) < window.size:
            return False
        fewer = at_most_in(window, window.size - 1, newer)
        if window.confidence == 1.0 and window.method == "exact":
            return fewer == 0
        return 1 - fewer >= Fraction(window.confidence) - TOLERANCE


def at_most_in(window: ap.UncertainCountWindow, most: int, rows: Sequence[Row]) -> Fraction | float:
    """Pr(at most ``most`` of the rows exist), as the window computes it."""
    exist = [row.value.mass for row in rows]
    return at_most(most, exist) if window.method == "exact" else approximately_at_most(window.method, most, exist)


def presence(window: Window, a: Row, b: Row, held: Sequence[Held]) -> Fraction | float:
    """Pr(both rows are in their windows, given that they exist) as the streams are held; ``a`` is the older of one.

    Row by row that is that fewer rows exist after it than the window is long. Of two rows of one stream the newer one
    is in the window if the older one is, and exists: the older row's probability given that decides.
    """
    if not isinstance(window, ap.UncertainCountWindow):
        return Fraction(1)
    if a.stream == b.stream:
        return at_most_in(window, window.size - 2, [row for row in held[a.stream].after(a) if row is not b])
    left, right = (at_most_in(window, window.size - 1, held[row.stream].after(row)) for row in (a, b))
    return left * right


def meetings(rows: Sequence[Row], names: Sequence[str], window: Window, last: int) -> list[Meeting]:
    """Every two rows that are in their windows together, with when they part if they do by ``last``.

    Group by group and tick by tick, as the contract words it (api.md, section 2).
    """
    found: list[Meeting] = []
    for group in sorted({row.group for row in rows}):
        held = [Held(window, name) for name in names]
        met: dict[tuple[Row, Row], tuple[int, Fraction | float]] = {}
        mine = [row for row in rows if row.group == group]
        for tick in sorted({row.micros for row in mine}):
            for s, stream in enumerate(held):
                stream.expire(tick)
                stream.insert([row for row in mine if row.stream == s and row.micros == tick], tick)
            together = [row for stream in held for _, row in stream.rows]
            for a, b in combinations(together, 2):
                if (a, b) not in met:
                    met[a, b] = tick, presence(window, a, b, held)
        # Only time windows end while their group is silent: the clock is that of the call.
        if isinstance(window, ap.TimeWindow):
            for stream in held:
                stream.expire(last)
        gone = {row: end for stream in held for row, end in stream.gone.items()}
        for (a, b), (tick, factor) in met.items():
            until = min((gone[row] for row in (a, b) if row in gone), default=None)
            found.append(Meeting(a, b, tick, until, factor))
    return found


def worlds_in_windows(rows: Iterable[Row], a: Row, b: Row, tick: int, size: int, epsilon: float) -> Fraction:
    """Pr(two rows exist, are close, and are each among the ``size`` newest existing rows of their streams at a tick).

    By possible worlds, in each of which every row of the group is one of its samples or not there.
    """
    known = sorted((row for row in rows if row.micros <= tick and row.group == a.group), key=lambda row: row.order)
    total = Fraction(0)
    for world in product(*(range(-1, len(row.value.points)) for row in known)):
        chosen = dict(zip(known, world, strict=True))
        if chosen[a] < 0 or chosen[b] < 0:
            continue
        existing_rows = [row for row in known if chosen[row] >= 0]
        newest = [[row for row in existing_rows if row.stream == side.stream][-size:] for side in (a, b)]
        if a not in newest[0] or b not in newest[1]:
            continue
        if is_close(a.value.points[chosen[a]], b.value.points[chosen[b]], epsilon):
            total += math.prod(1 - row.value.mass if i < 0 else row.value.weights[i] for row, i in chosen.items())
    return total


def micros_of_duration(length: float | str | timedelta) -> int:
    """Microseconds of a number of seconds, or of text such as "10 seconds"."""
    if isinstance(length, timedelta):
        return length // timedelta(microseconds=1)
    if not isinstance(length, str):
        return round(Fraction(length) * 10**6)
    number, unit = length.split()
    units = {"millisecond": "ms", "second": "s", "minute": "min", "hour": "h", "day": "d"}
    return round(Fraction(number) * MICROS[units[unit.removesuffix("s")]])


# --- answers ----------------------------------------------------------------------------------------------------


def answer_of(
    a: Row,
    b: Row,
    names: Sequence[str],
    epsilon: Any,
    alpha: float,
    factor: Fraction | float,
    metric: str = "euclidean",
) -> Answer | None:
    found = probability(a.value, b.value, epsilon, metric) * factor
    over = Fraction(found) - threshold_of(alpha)
    exact = isinstance(found, Fraction) and factor == 1
    doubtful = abs(over) < (Fraction(1, 10**13) if exact else Fraction(1, 10**11))
    if over < 0 and not doubtful:
        return None
    left, right = (a, b) if before(a, b) else (b, a)
    return Answer(
        names[left.stream],
        left.key,
        left.time,
        names[right.stream],
        right.key,
        right.time,
        distance(left.value, right.value, metric),
        float(found),
        doubtful,
        unordered=a.stream == b.stream and a.micros == b.micros and isinstance(a.key, dict | list),
    )


def threshold_of(alpha: float) -> Fraction:
    """What a probability has to reach; thresholds no greater than the tolerance stand as they are."""
    return Fraction(alpha) - TOLERANCE if alpha > 2 * TOLERANCE else Fraction(alpha)


def before(a: Row, b: Row) -> bool:
    """Whether ``a`` is the left one: the earlier argument, or in a self-join the earlier row, ties by key."""
    if a.stream != b.stream:
        return a.stream < b.stream
    if a.micros != b.micros:
        return a.micros < b.micros
    return bool(key_order(a.key) <= key_order(b.key))


def key_order(key: Any) -> Any:
    """Text by its UTF-8 bytes, everything else by itself; nested keys somehow, their bytes are not known here."""
    if isinstance(key, dict | list):
        return plain(key)
    if isinstance(key, float):
        return key, math.copysign(1.0, key)
    return key.encode() if isinstance(key, str) else key


def late_rows(
    pushes: Sequence[Mapping[int, Sequence[int]]], streams: Sequence[ap.Stream], rows: Iterable[Row]
) -> dict[tuple[int, int], int]:
    """Which rows come too late, and by how many microseconds, when the rows come in these pushes.

    ``pushes`` maps streams to the numbers of their rows. A row is late if it is older than what the slowest stream
    had reached, less that stream's lateness, before the push.
    """
    usable = {(row.stream, row.number): row.micros for row in rows}
    newest: dict[int, int] = {}
    late = {}
    for push in pushes:
        reached = [newest[s] - stream.lateness_micros for s, stream in enumerate(streams) if s in newest]
        frontier = min(reached) if len(reached) == len(streams) else None
        for s, numbers in push.items():
            for number in numbers:
                micros = usable.get((s, number))
                if micros is None:
                    continue
                if frontier is not None and micros < frontier:
                    late[s, number] = frontier - micros
                else:
                    newest[s] = max(newest.get(s, micros), micros)
    return late


# --- comparing --------------------------------------------------------------------------------------------------


def plain(value: Any) -> Any:
    """Something hashable and sortable that is equal for equal values."""
    if isinstance(value, dict | list):
        return json.dumps(value, default=str, sort_keys=True)
    if isinstance(value, Decimal):
        return f"decimal {value.normalize()}"
    if isinstance(value, float) and math.isnan(value):
        return "nan"
    return repr(value)


def answers_of(table: pa.Table) -> list[Answer]:
    """A result as answers."""
    return [Answer(**row) for row in table.to_pylist()]


def assert_same_changes(found: pa.Table, expected: Sequence[Change], unit: str = "s") -> None:
    """The same pairs enter and leave at the same times, by the rules of `assert_same_answers`.

    A time that the type of the call's times cannot hold (half a second, in whole ones) is floored: no tick lies
    between, so the pair still holds at the time that is told.
    """
    grain = _grain(found.schema.field("time").type, unit)
    moments: dict[tuple[int, int | None], tuple[list[Answer], list[Answer]]] = defaultdict(lambda: ([], []))
    for row in found.to_pylist():
        moment = row.pop("change"), micros_of(row.pop("time"), unit)
        moments[moment][0].append(Answer(**row))
    for change in expected:
        moments[change.change, change.micros // grain * grain][1].append(change.answer)
    for (sign, micros), (ours, theirs) in moments.items():
        assert_same_answers(ours, theirs, f"{sign:+} at {micros}: ")


def _grain(kind: pa.DataType, unit: str) -> int:
    """Microseconds between two times of a type, 1 if there are fewer."""
    if pa.types.is_date(kind):
        return 86_400_000_000
    unit = kind.unit if pa.types.is_timestamp(kind) else unit if pa.types.is_integer(kind) else "us"
    return max(1, int(MICROS[unit]))


def assert_same_answers(found: pa.Table | Sequence[Answer], expected: Sequence[Answer], where: str = "") -> None:
    """The same pairs, as often, with the same distances and probabilities; doubtful ones may be there or not."""
    actual = list(found) if isinstance(found, list | tuple) else answers_of(found)
    # Where the twin does not know the order, the order of the engine's answers does not count either.
    loose = {answer.identity for answer in expected if answer.unordered}
    groups: dict[Any, tuple[list[Answer], list[Answer]]] = defaultdict(lambda: ([], []))
    for answer in actual:
        swapped = tuple(sorted(answer.identity))
        groups[swapped if swapped in loose else answer.identity][0].append(answer)
    for answer in expected:
        groups[answer.identity][1].append(answer)
    for identity, (ours, theirs) in groups.items():
        if any(answer.doubtful for answer in theirs):
            continue
        assert len(ours) == len(theirs), (
            f"{where}{identity}: {len(ours)} answers, expected {len(theirs)}: {ours} {theirs}"
        )
        # Rows with one key and one time: equal but for rounding, they have no order of their own.
        left = [(answer.probability, answer.distance) for answer in ours]
        for answer in theirs:
            q, y = answer.probability, answer.distance
            same = [n for n, (p, x) in enumerate(left) if abs(p - q) <= 2e-9 and abs(x - y) <= 1e-7 + 1e-12 * y]
            assert same, f"{where}{identity}: no answer has probability {q!r} and distance {y!r}, of {left}"
            left.pop(same[0])


def assert_same_rejects(found: pa.Table, expected: Sequence[Reject]) -> None:
    """Every bad row once, with one of its reasons."""
    groups: dict[Any, tuple[list[str], list[frozenset[str]]]] = defaultdict(lambda: ([], []))
    for row in found.to_pylist():
        groups[row["stream"], plain(row["key"]), plain(row["time"])][0].append(row["reason"])
    for reject in expected:
        groups[reject.stream, plain(reject.key), plain(reject.time)][1].append(reject.reasons)
    for identity, (ours, theirs) in groups.items():
        assert len(ours) == len(theirs), f"{identity}: rejected {ours}, expected {theirs}"
        assert _matched(ours, theirs), f"{identity}: rejected {ours}, expected {theirs}"


def _matched(reasons: list[str], allowed: list[frozenset[str]]) -> bool:
    if not reasons:
        return True
    return any(
        reasons[0] in one and _matched(reasons[1:], allowed[:i] + allowed[i + 1 :]) for i, one in enumerate(allowed)
    )


# --- twins of the kernels ---------------------------------------------------------------------------------------


def existing(exist: Iterable[float | Fraction]) -> list[Fraction]:
    """Pr(k of the rows exist) for k = 0, 1, ..., one row after another (Dallachiesa et al. 2015, Eq. 10)."""
    found = [Fraction(1)]
    for chance in exist:
        p = Fraction(chance)
        stays, grows = [(1 - p) * x for x in found], [p * x for x in found]
        found = [a + b for a, b in zip([*stays, Fraction(0)], [Fraction(0), *grows], strict=True)]
    return found


def at_most(most: int, exist: Iterable[float | Fraction]) -> Fraction:
    """Pr(at most ``most`` of the rows exist)."""
    return sum(existing(exist)[: max(0, most + 1)], Fraction(0))


def approximately_at_most(method: str, most: int, exist: Sequence[float | Fraction]) -> float:
    """The same by the formulas of the paper; certain where there are too few rows for any doubt, or too few allowed."""
    if most < 0 or most >= len(exist):
        return float(most >= 0)
    p = [float(x) for x in exist]
    mean = math.fsum(p)
    if method == "poisson":
        return math.fsum(math.exp(-mean) * mean**k / math.factorial(k) for k in range(most + 1))
    variance = math.fsum(x * (1 - x) for x in p)
    if variance == 0.0:
        return float(mean <= most)
    x = (most + 0.5 - mean) / math.sqrt(variance)
    found = 0.5 * math.erfc(-x / math.sqrt(2.0))
    if method == "refined-normal":
        skew = math.fsum(x * (1 - x) * (1 - 2 * x) for x in p) / variance**1.5
        found += skew * (1 - x * x) * math.exp(-x * x / 2) / math.sqrt(2 * math.pi) / 6
    return min(1.0, max(0.0, found))


def sums(rows: NDArray[np.float64], weights: NDArray[np.float64]) -> tuple[list[Fraction], list[list[Fraction]]]:
    """Weighted mean and covariance of samples, exactly."""
    w = [Fraction(x) for x in weights.tolist()]
    x = [[Fraction(v) for v in row] for row in rows.tolist()]
    d, total = rows.shape[1], sum(w, Fraction(0))
    mean = [sum((p * row[k] for p, row in zip(w, x, strict=True)), Fraction(0)) / total for k in range(d)]
    covariance = [
        [
            sum((p * (row[k] - mean[k]) * (row[m] - mean[m]) for p, row in zip(w, x, strict=True)), Fraction(0)) / total
            for m in range(d)
        ]
        for k in range(d)
    ]
    return mean, covariance


def attained_radius(distances: Sequence[float], weights: Sequence[Fraction], quantile: float) -> float:
    """Least of the distances within which more than ``quantile`` of the weight lies; the largest if none does."""
    total = sum(weights, Fraction(0))
    for r in sorted(distances):
        inside = sum((w for x, w in zip(distances, weights, strict=True) if x <= r), Fraction(0))
        if inside > Fraction(quantile) * total:
            return r
    return max(distances)


def reachable(times: Sequence[int], probe_times: Sequence[int], window: int, probe_window: int) -> list[list[bool]]:
    """Whether a probe and a stored row are ever in their windows together."""
    return [[t - window <= u <= t + probe_window for u in times] for t in probe_times]


def close_pairs(
    left: NDArray[np.float64],
    right: NDArray[np.float64],
    left_time: Any,
    right_time: Any,
    epsilon: float,
    window: float,
) -> set[tuple[int, int]]:
    """Pairs of certain points within epsilon whose times differ by at most ``window``, one left row at a time."""
    found = set()
    for i in range(len(left)):
        d2 = ((right - left[i]) ** 2).sum(axis=1)
        near = (d2 <= limit_of(epsilon) ** 2) & (np.abs(right_time - left_time[i]) <= window)
        found |= {(i, int(j)) for j in np.flatnonzero(near)}
    return found
