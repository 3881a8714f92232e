"""The slow twin of encounters: every pair of legs, one by one; masses of capsules by dense quadrature."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import i0e, ndtr, ndtri
from scipy.stats import ncx2
from scipy.stats.qmc import Sobol

if TYPE_CHECKING:
    from collections.abc import Sequence

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(40)
_PANELS = 400
_FEW, _FEW_WEIGHTS = np.polynomial.legendre.leggauss(10)
_GOLDEN = 0.5 * (math.sqrt(5.0) - 1.0)
#: A horizontal and a vertical threshold.
Cylinder = tuple[float, float]
#: Dimensions, and the epsilon of each group of them.
Groups = tuple[tuple[tuple[int, ...], float], ...]


@dataclass(frozen=True)
class Reading:
    """A reading: seconds, a mean, samples of its error with weights or a deviation, and perhaps a velocity."""

    key: str
    time: float
    mean: tuple[float, ...]
    group: str = ""
    sigma: float | None = None
    errors: tuple[tuple[tuple[float, ...], float], ...] = ()
    exists: float = 1.0
    velocity: tuple[float, ...] = ()
    margin: float = 0.0
    covariance: tuple[float, ...] = ()  # its upper triangle, in place of sigma

    @property
    def order(self) -> tuple[Any, ...]:
        """What it is sorted by: time, key, value."""
        value = (self.mean, self.sigma or 0.0, self.covariance, self.margin, self.velocity, self.errors)
        return (self.time, self.key.encode(), *value)

    @property
    def matrix(self) -> np.ndarray:
        d = len(self.mean)
        found = np.eye(d) * (self.sigma or 0.0) ** 2
        if self.covariance:
            found[np.triu_indices(d)] = found.T[np.triu_indices(d)] = self.covariance
        return found


@dataclass(frozen=True)
class Leg:
    reading: Reading
    end: float
    to: tuple[float, ...]

    def at(self, time: float) -> np.ndarray:
        length = self.end - self.reading.time
        share = (time - self.reading.time) / length if length else 0.0
        place: np.ndarray = np.array(self.reading.mean) + share * (np.array(self.to) - np.array(self.reading.mean))
        return place


@dataclass(frozen=True)
class Asked:
    epsilon: float
    probability: float
    gap: float = 0.0
    least: float = 0.0
    longest: float = 5.0
    straight: bool = True
    noise: float = 0.0
    fastest: float | None = None
    expected: bool = False  # how long they are expected to be near
    groups: tuple[tuple[tuple[int, ...], float], ...] = ()  # dimensions with an epsilon of their own

    def near(self, d: int, margin: float) -> Groups:
        if self.groups:
            return self.groups
        return ((tuple(range(d)), self.epsilon + margin),)


@dataclass
class Run:
    start: float
    end: float
    closest: tuple[float, float]  # distance and time
    within: float
    expected: float
    probability: float
    legs: int = field(default=1)


def legs_of(readings: Sequence[Reading], asked: Asked) -> list[Leg]:
    """The legs of one stream; of readings with one key and time the first stays."""
    tracks: dict[tuple[str, str], dict[float, Reading]] = defaultdict(dict)
    for reading in readings:
        tracks[reading.group, reading.key].setdefault(reading.time, reading)
    legs = []
    for track in tracks.values():
        rows = [track[time] for time in sorted(track)]
        joined = [_joined(one, after, asked) for one, after in pairwise(rows)]
        for i, row in enumerate(rows):
            after = rows[i + 1] if i + 1 < len(rows) else None
            if not asked.straight:
                end = row.time + asked.longest if after is None else min(after.time, row.time + asked.longest)
                step = zip(row.mean, row.velocity, strict=True)
                legs.append(Leg(row, end, tuple(x + v * (end - row.time) for x, v in step)))
            elif after is not None and joined[i]:
                legs.append(Leg(row, after.time, after.mean))
            elif i == 0 or not joined[i - 1]:
                legs.append(Leg(row, row.time, row.mean))
    return legs


def _joined(one: Reading, after: Reading, asked: Asked) -> bool:
    gap = after.time - one.time
    return gap <= asked.longest and (asked.fastest is None or math.dist(one.mean, after.mean) <= asked.fastest * gap)


def joined(
    streams: Sequence[Sequence[Reading]], asked: Asked, window: float, *, still: bool = False
) -> list[dict[str, Any]]:
    """Pairs of rows close at the time of the later one; with ``still`` the second stream does not move."""
    sides = []
    for i, readings in enumerate(streams):
        first: dict[tuple[str, str, float], Reading] = {}
        for reading in sorted(readings, key=lambda r: r.order):
            first.setdefault((reading.group, reading.key, reading.time), reading)
        sides.append(
            [(one, None if still and i else _leg_of(one, list(first.values()), asked)) for one in first.values()]
        )
    found = []
    for a, (one, leg) in enumerate(sides[0]):
        for b, (other, their) in enumerate(sides[-1]):
            if one.group != other.group or abs(one.time - other.time) > window:
                continue
            if len(sides) == 1 and (one.key == other.key or (one.time, one.key, a) > (other.time, other.key, b)):
                continue
            at = max(one.time, other.time)
            gap = _moved(one, leg, at) - _moved(other, their, at)
            probability = _within(gap, (one, leg), (other, their), at, asked)
            if probability >= asked.probability:
                found.append(
                    {
                        "left_key": one.key,
                        "left_time": one.time,
                        "right_key": other.key,
                        "right_time": other.time,
                        "distance": float(np.linalg.norm(gap)),
                        "probability": probability,
                    }
                )
    return found


def _leg_of(one: Reading, readings: Sequence[Reading], asked: Asked) -> Leg:
    """Where a reading leads: to the next of its key, or as it says for the horizon."""
    if not asked.straight:
        end = one.time + asked.longest
        return Leg(one, end, tuple(x + v * asked.longest for x, v in zip(one.mean, one.velocity, strict=True)))
    later = [r for r in readings if (r.group, r.key) == (one.group, one.key) and r.time > one.time]
    after = min(later, key=lambda r: r.time, default=None)
    if after is None or not _joined(one, after, asked):
        return Leg(one, one.time, one.mean)
    return Leg(one, after.time, after.mean)


def _moved(one: Reading, leg: Leg | None, time: float) -> np.ndarray:
    """Where a thing is at a time: on its leg, or where that ends."""
    return np.array(one.mean) if leg is None else leg.at(min(time, leg.end))


def _within(
    gap: np.ndarray, one: tuple[Reading, Leg | None], other: tuple[Reading, Leg | None], at: float, asked: Asked
) -> float:
    ages = [0.0 if leg is None else at - reading.time for reading, leg in (one, other)]
    return _chance(gap, gap, one[0], other[0], sum(ages), asked)


def closest(begin: np.ndarray, end: np.ndarray) -> tuple[float, float]:
    """The least distance of a segment to the origin, and where on it."""
    step = end - begin
    square = float(step @ step)
    share = min(1.0, max(0.0, -float(begin @ step) / square)) if square else 0.0
    return float(np.linalg.norm(begin + share * step)), share


def capsule(begin: np.ndarray, end: np.ndarray, sigma: float, epsilon: float) -> float:
    """The mass of a normal distribution within epsilon of a segment: over what lies across it, by dense quadrature."""
    a, b, radius = begin / sigma, end / sigma, epsilon / sigma
    length = float(np.linalg.norm(b - a))
    unit = (b - a) / length if length else np.eye(len(a))[0]
    first, last = float(a @ unit), float(b @ unit)
    h = float(np.linalg.norm(a - first * unit))
    if len(a) == 1:
        return float(ndtr(last + radius) - ndtr(first - radius))
    low, high = (
        (max(0.0, h - 10.0) if len(a) == 3 else max(-radius, -h - 10.0)),
        min(radius, 10.0 + (h if len(a) == 3 else -h)),
    )
    if low >= high:
        return 0.0
    cuts = np.linspace(low, high, _PANELS + 1)
    y = (0.5 * (cuts[1:] - cuts[:-1])[:, None] * (_NODES + 1.0) + cuts[:-1, None]).ravel()
    weight = (0.5 * (cuts[1:] - cuts[:-1])[:, None] * _WEIGHTS).ravel()
    if len(a) == 3:  # Rice's distribution, of how far from the line
        density = y * np.exp(-0.5 * (y - h) ** 2) * i0e(y * h)
    else:
        density = np.exp(-0.5 * (y + h) ** 2) / math.sqrt(2.0 * math.pi)
    reach = np.sqrt(np.maximum(0.0, radius * radius - y * y))
    return float(np.sum(weight * density * (ndtr(last + reach) - ndtr(first - reach))))


def _tolerated(epsilon: float) -> float:
    return (epsilon + 1e-9 * max(1.0, epsilon)) * (1 + 1e-15)


def _part(square: np.ndarray, half: np.ndarray, rest: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """From where to where ``square s^2 + 2 half s + rest <= 0``; from 9 to -9 where nowhere."""
    with np.errstate(divide="ignore", invalid="ignore"):
        root = np.sqrt(half * half - square * rest)
        low, high = (-half - root) / square, (-half + root) / square
    flat = (square == 0.0) | np.isnan(root)
    inside = (square == 0.0) & (rest <= 0.0)
    return np.where(flat, np.where(inside, 0.0, 9.0), low), np.where(flat, np.where(inside, 1.0, -9.0), high)


def _stretch(begin: np.ndarray, step: np.ndarray, groups: Groups) -> tuple[np.ndarray, np.ndarray]:
    """From where to where, from 0 to 1, all groups hold on many paths (..., d)."""
    first, last = np.zeros(begin.shape[:-1]), np.ones(begin.shape[:-1])
    for own, epsilon in groups:
        x, v = begin[..., list(own)], np.broadcast_to(step, begin.shape)[..., list(own)]
        low, high = _part((v * v).sum(-1), (x * v).sum(-1), (x * x).sum(-1) - epsilon**2)
        first, last = np.maximum(first, low), np.minimum(last, high)
    return first, last


def holds(begin: np.ndarray, end: np.ndarray, groups: Groups) -> bool:
    """Whether all groups hold at one instant: the least of what any exceeds is found by thirds, as it is convex."""

    def excess(share: float) -> float:
        place = begin + share * (end - begin)
        return float(max(np.linalg.norm(place[list(own)]) - _tolerated(epsilon) for own, epsilon in groups))

    if np.array_equal(begin, end):
        return excess(0.0) <= 0.0
    low, high = 0.0, 1.0
    for _ in range(120):
        one, other = low + (high - low) / 3, high - (high - low) / 3
        low, high = (low, other) if excess(one) <= excess(other) else (one, high)
    return min(map(excess, (0.0, 1.0, low))) <= 1e-12


def swept(begin: np.ndarray, end: np.ndarray, covariance: np.ndarray, groups: Groups, panels: int = 6) -> float:
    """Pr{all groups hold at one instant}, of a covariance that is positive definite.

    Coordinate by coordinate, over what is left of each by those before: densely, and the last one in closed form.
    """
    factor = np.linalg.cholesky(covariance)
    edges = np.linspace(-0.5 * np.pi, 0.5 * np.pi, panels + 1)
    angle = (0.5 * np.diff(edges)[:, None] * (_FEW + 1.0) + edges[:-1, None]).ravel()
    share = (0.5 * np.diff(edges)[:, None] * _FEW_WEIGHTS).ravel() * np.cos(angle)
    error, normal, weight = np.zeros((1, 0)), np.zeros((1, 0)), np.ones(1)
    for axis in range(len(begin)):
        low, high = _lines(begin, end - begin, groups, error)
        mean, deviation = normal @ factor[axis, :axis], factor[axis, axis]
        low, high = (low - mean) / deviation, (high - mean) / deviation
        if axis == len(begin) - 1:
            break
        low, high = np.clip(low, -9.0, 9.0), np.clip(high, -9.0, 9.0)
        middle, half = 0.5 * (low + high), np.maximum(0.0, 0.5 * (high - low))
        v = middle[:, None] + half[:, None] * np.sin(angle)
        weight = weight[:, None] * half[:, None] * share * np.exp(-0.5 * v * v) / math.sqrt(2.0 * math.pi)
        before, at = np.nonzero(weight > 1e-18)
        weight, own = weight[before, at], (mean[:, None] + deviation * v)[before, at]
        error, normal = np.column_stack([error[before], own]), np.column_stack([normal[before], v[before, at]])
    return float(np.sum(weight * np.where(low <= high, ndtr(high) - ndtr(low), 0.0)))


def _lines(begin: np.ndarray, step: np.ndarray, groups: Groups, error: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of errors whose first coordinates are known (n, k), the ends of what the next may be.

    They are sought by the golden section along the path, as the upper one is concave in it.
    """
    axis = error.shape[1]
    known = tuple((tuple(k for k in dims if k < axis), epsilon) for dims, epsilon in groups)
    (beside, own), *_ = ((known[g][0], epsilon) for g, (dims, epsilon) in enumerate(groups) if axis in dims)
    start = np.broadcast_to(begin[: axis + 1], (len(error), axis + 1)).copy()
    start[:, :axis] += error
    first, last = _stretch(start, step[: axis + 1], known)

    across = [(start[:, k].copy(), step[k]) for k in beside]
    along = start[:, axis].copy()

    def rim(share: np.ndarray, side: float) -> np.ndarray:
        square = own**2 - sum((x + share * v) ** 2 for x, v in across)
        reach: np.ndarray = np.sqrt(np.maximum(0.0, square)) - side * (along + share * step[axis])
        return reach

    ends = []
    for side in (-1.0, 1.0):
        low, high = first.copy(), last.copy()
        one, other = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
        of_one, of_other = rim(one, side), rim(other, side)
        for _ in range(52):
            left = of_one >= of_other
            low, high = np.where(left, low, one), np.where(left, other, high)
            new = np.where(left, high - _GOLDEN * (high - low), low + _GOLDEN * (high - low))
            of_new = rim(new, side)
            one, other = np.where(left, new, other), np.where(left, one, new)
            of_one, of_other = np.where(left, of_new, of_other), np.where(left, of_one, of_new)
        ends.append(side * np.maximum(rim(low, side), np.maximum(rim(first, side), rim(last, side))))
    empty = first > last
    return np.where(empty, 1.0, ends[0]), np.where(empty, 0.0, ends[1])


def share_near(begin: np.ndarray, end: np.ndarray, sigmas: tuple[float, float], epsilon: float) -> float:
    """The share of a path on which a thing is expected to be near, whose variance grows from one to another's square.

    At each instant the squared distance is non-central chi-squared, in variances.
    """
    edges = np.union1d(np.linspace(0.0, 1.0, _PANELS + 1), np.linspace(0.0, 1.0, 100) ** 4)  # a variance may soon grow
    at = (0.5 * np.diff(edges)[:, None] * (_FEW + 1.0) + edges[:-1, None]).ravel()
    places = begin + at[:, None] * (end - begin)
    variance = sigmas[0] ** 2 + at * (sigmas[1] ** 2 - sigmas[0] ** 2)
    near = ncx2.cdf(epsilon**2 / variance, len(begin), np.sum(places * places, axis=1) / variance)
    return float(near @ (0.5 * np.diff(edges)[:, None] * _FEW_WEIGHTS).ravel())


def share_drawn(begin: np.ndarray, end: np.ndarray, covariance: np.ndarray, groups: Groups) -> float:
    """The same for any covariance, which stays: the mean, over errors that are drawn evenly, of how long each is near.

    To some thousandths.
    """
    normal = _evenly_drawn(len(begin))
    values, vectors = np.linalg.eigh(covariance)
    errors = normal * np.sqrt(np.maximum(0.0, values)) @ vectors.T
    return _mean_share(begin, end, errors, np.full(len(errors), 1.0 / len(errors)), groups)


@cache
def _evenly_drawn(d: int) -> np.ndarray:
    """Normal numbers by dimensions, many of them, that fill space more evenly than chance would."""
    return np.asarray(ndtri(Sobol(d, rng=0).random_base2(14)))


def _mean_share(begin: np.ndarray, end: np.ndarray, errors: np.ndarray, weights: np.ndarray, groups: Groups) -> float:
    tolerated = tuple((own, _tolerated(epsilon)) for own, epsilon in groups)
    first, last = _stretch(begin + errors, end - begin, tolerated)
    return float(np.maximum(0.0, last - first) @ weights)


def _expected(begin: np.ndarray, end: np.ndarray, a: Reading, b: Reading, ages: Sequence[float], asked: Asked) -> float:
    """The share of a path on which two readings' errors are expected to leave them near each other."""
    groups, d = asked.near(len(begin), a.margin + b.margin), len(begin)
    covariance = a.matrix + b.matrix
    if a.errors or b.errors or not (covariance.any() or asked.noise):
        nothing = (((0.0,) * d, 1.0),)
        pairs = [(np.array(x) - np.array(y), p * q) for x, p in a.errors or nothing for y, q in b.errors or nothing]
        shifts, weights = zip(*pairs, strict=True)
        return _mean_share(begin, end, np.array(shifts), np.array(weights), groups)
    if min(epsilon for _, epsilon in groups) == 0.0:
        return 0.0
    if len(groups) == 1 and bool(np.all(covariance == covariance[0, 0] * np.eye(d))):
        first, last = (math.sqrt(covariance[0, 0] + asked.noise**2 * age) for age in ages)
        return share_near(begin, end, (first, last), groups[0][1])
    if not asked.noise:
        return share_drawn(begin, end, covariance, groups)
    shares = (np.arange(20) + 0.5) / 20  # of paths so short that the covariance stays
    return float(
        np.mean(
            [
                share_drawn(
                    begin + (at - 0.025) * (end - begin),
                    begin + (at + 0.025) * (end - begin),
                    covariance + asked.noise**2 * (ages[0] + at * (ages[1] - ages[0])) * np.eye(d),
                    groups,
                )
                for at in shares
            ]
        )
    )


def _chance(begin: np.ndarray, end: np.ndarray, a: Reading, b: Reading, ages: float, asked: Asked) -> float:
    """The probability that two readings' errors leave them near each other at one instant of a path."""
    groups = asked.near(len(begin), a.margin + b.margin)
    if a.errors or b.errors:
        nothing = (((0.0,) * len(begin), 1.0),)
        shifts = [(np.array(x) - np.array(y), p * q) for x, p in a.errors or nothing for y, q in b.errors or nothing]
        return sum(chance for shift, chance in shifts if holds(begin + shift, end + shift, groups))
    covariance = a.matrix + b.matrix + asked.noise**2 * ages * np.eye(len(begin))
    if not covariance.any():
        return float(holds(begin, end, groups))
    if min(epsilon for _, epsilon in groups) == 0.0:
        return 0.0
    if len(groups) == 1 and bool(np.all(covariance == covariance[0, 0] * np.eye(len(begin)))):
        return capsule(begin, end, math.sqrt(covariance[0, 0]), groups[0][1])
    return swept(begin, end, covariance, groups)


def meeting(one: Leg, other: Leg, asked: Asked) -> dict[str, Any] | None:
    """What becomes of two legs, if they share a time."""
    first, last = max(one.reading.time, other.reading.time), min(one.end, other.end)
    if first > last or one.reading.group != other.reading.group:
        return None
    begin, end = one.at(first) - other.at(first), one.at(last) - other.at(last)
    distance, share = closest(begin, end)
    moment = first + share * (last - first)
    a, b = one.reading, other.reading
    groups = asked.near(len(begin), a.margin + b.margin)
    probability = _chance(begin, end, a, b, (moment - a.time) + (moment - b.time), asked)
    ages = [(at - a.time) + (at - b.time) for at in (first, last)]
    expected = _expected(begin, end, a, b, ages, asked) * (last - first) if asked.expected else 0.0
    inside = np.linspace(0.0, 1.0, 2001)
    places = begin + inside[:, None] * (end - begin)
    near = np.all([np.linalg.norm(places[:, list(own)], axis=1) <= _tolerated(e) for own, e in groups], axis=0)
    return {
        "left": a,
        "right": b,
        "start": first,
        "end": last,
        "closest": (distance, moment),
        "within": float(np.mean(near)) * (last - first),
        "expected": expected * a.exists * b.exists,
        "probability": probability * a.exists * b.exists,
    }


def answers(left: Sequence[Leg], right: Sequence[Leg] | None, asked: Asked) -> list[dict[str, Any]]:
    """All pairs of legs that reach the probability; with ``right=None`` of different keys of one stream."""
    found = []
    for i, one in enumerate(left):
        for other in left[i + 1 :] if right is None else right:
            if right is None and one.reading.key == other.reading.key:
                continue
            swap = right is None and other.reading.key.encode() < one.reading.key.encode()
            met = meeting(*((other, one) if swap else (one, other)), asked)
            if met is not None and met["probability"] >= asked.probability - 1e-9:
                found.append(met)
    return found


def encounters(found: Sequence[dict[str, Any]], asked: Asked) -> dict[tuple[str, str, str, float], Run]:
    """Runs of answers, by group, keys and start."""
    pairs: dict[tuple[str, str, str], list[dict[str, Any]]] = defaultdict(list)
    for met in found:
        pairs[met["left"].group, met["left"].key, met["right"].key].append(met)
    runs: dict[tuple[str, str, str, float], Run] = {}
    for pair, parts in pairs.items():
        open_run: Run | None = None
        for met in sorted(parts, key=lambda part: (part["start"], part["end"])):
            if open_run is None or met["start"] > open_run.end + asked.gap:
                figures = (met[name] for name in ("start", "end", "closest", "within", "expected", "probability"))
                open_run = Run(*figures)
                runs[*pair, met["start"]] = open_run
                continue
            open_run.end = max(open_run.end, met["end"])
            open_run.closest = min(open_run.closest, met["closest"])
            open_run.within += met["within"]
            open_run.expected += met["expected"]
            open_run.probability = max(open_run.probability, met["probability"])
            open_run.legs += 1
    return runs


def cylinder(
    begin: np.ndarray, end: np.ndarray, rises: tuple[float, float], sigmas: tuple[float, float], epsilon: Cylinder
) -> float:
    """Pr{both hold at one instant}: over the horizontal error, which leaves a stretch of time, and so of altitudes."""
    (flat, steep), (radius, height) = sigmas, epsilon
    if closest(begin, end)[0] > radius + 9 * flat or _level(rises) > height + 9 * steep:
        return 0.0
    length = float(np.linalg.norm(end - begin))
    unit = (end - begin) / length if length else np.array([1.0, 0.0])
    first, last = float(begin @ unit), float(end @ unit)
    aside = float(begin @ np.array([-unit[1], unit[0]]))

    def above(y: float, u: np.ndarray) -> np.ndarray:
        """Of errors u along the path and y - aside across it, the probability that is left to the altitude."""
        reach = math.sqrt(max(0.0, radius * radius - y * y))
        if length:
            low, high = (np.clip((x - u - first) / length, lo, hi) for x, lo, hi in ((-reach, 0, 9), (reach, -9, 1)))
        else:
            low, high = 0.0 * u, np.where(np.abs(first + u) <= reach, 1.0, -1.0)
        ends = [rises[0] + (rises[1] - rises[0]) * share for share in (low, high)]
        bottom, top = np.minimum(*ends), np.maximum(*ends)
        if steep:
            inside = ndtr((height - bottom) / steep) - ndtr((-height - top) / steep)
        else:
            inside = ((bottom <= height) & (top >= -height)).astype(float)
        return np.where(low <= high, inside, 0.0)

    if not flat:
        return float(above(aside, np.zeros(1))[0]) if abs(aside) <= radius else 0.0
    total = 0.0
    # By the angle, in which the rim is smooth.
    angles = [math.asin(min(1.0, max(-1.0, (aside + side * 9 * flat) / radius))) for side in (-1, 1)]
    for low, high in pairwise(np.linspace(angles[0], angles[1], 25)):
        half = 0.5 * (high - low)
        for angle, part in zip(half * (_FEW + 1.0) + low, half * _FEW_WEIGHTS, strict=True):
            y, weight = radius * math.sin(angle), part * radius * math.cos(angle)
            reach = math.sqrt(max(0.0, radius * radius - y * y))
            cuts = [-9 * flat, 9 * flat]
            cuts += [side * reach - x for side in (-1, 1) for x in (first, last)]
            if steep and rises[0] != rises[1]:  # where a border of the altitudes is passed
                slope = (rises[1] - rises[0]) / length if length else math.inf
                borders = [first + (border - rises[0]) / slope for border in (-height, height)]
                cuts += [side * reach - x for side in (-1, 1) for x in borders]
            cuts = sorted({min(max(cut, -9 * flat), 9 * flat) for cut in cuts})
            fine = np.unique(np.concatenate([np.linspace(a, b, 13) for a, b in pairwise(cuts)]))
            u = (0.5 * np.diff(fine)[:, None] * (_FEW + 1.0) + fine[:-1, None]).ravel()
            along = (0.5 * np.diff(fine)[:, None] * _FEW_WEIGHTS).ravel()
            inner = float(np.sum(along * np.exp(-0.5 * (u / flat) ** 2) * above(y, u)))
            total += weight * math.exp(-0.5 * ((y - aside) / flat) ** 2) * inner / (2.0 * math.pi * flat * flat)
    return total


def _level(rises: tuple[float, float]) -> float:
    """The least height on the way."""
    return 0.0 if min(rises) <= 0.0 <= max(rises) else min(map(abs, rises))
