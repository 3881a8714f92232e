"""The slow twin of encounters: every pair of legs, one by one; masses of capsules by dense quadrature."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import i0e, ndtr

if TYPE_CHECKING:
    from collections.abc import Sequence

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(40)
_PANELS = 400
_FEW, _FEW_WEIGHTS = np.polynomial.legendre.leggauss(10)
#: A horizontal and a vertical threshold.
Cylinder = tuple[float, float]


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


@dataclass
class Run:
    start: float
    end: float
    closest: tuple[float, float]  # distance and time
    within: float
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
        for reading in sorted(
            readings, key=lambda r: (r.time, r.key.encode(), r.mean, r.sigma or 0.0, r.errors, r.margin)
        ):
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
    epsilon = asked.epsilon + one[0].margin + other[0].margin
    limit = (epsilon + 1e-9 * max(1.0, epsilon)) * (1 + 1e-15)
    if one[0].errors and other[0].errors:
        return sum(
            v * w
            for e, v in one[0].errors
            for f, w in other[0].errors
            if np.linalg.norm(gap + np.array(e) - np.array(f)) <= limit
        )
    variance = 0.0
    for reading, leg in (one, other):
        age = 0.0 if leg is None else min(at, leg.end) - reading.time
        variance += (reading.sigma or 0.0) ** 2 + asked.noise**2 * max(0.0, age)
    if not variance:
        return float(np.linalg.norm(gap) <= limit)
    return capsule(gap, gap, math.sqrt(variance), epsilon) if epsilon else 0.0


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


def meeting(one: Leg, other: Leg, asked: Asked) -> dict[str, Any] | None:
    """What becomes of two legs, if they share a time."""
    first, last = max(one.reading.time, other.reading.time), min(one.end, other.end)
    if first > last or one.reading.group != other.reading.group:
        return None
    begin, end = one.at(first) - other.at(first), one.at(last) - other.at(last)
    distance, share = closest(begin, end)
    moment = first + share * (last - first)
    a, b = one.reading, other.reading
    epsilon = asked.epsilon + a.margin + b.margin
    if a.errors or b.errors:
        nothing = (((0.0,) * len(begin), 1.0),)
        probability = 0.0
        for x, p in a.errors or nothing:
            for y, q in b.errors or nothing:
                shift = np.array(x) - np.array(y)
                if closest(begin + shift, end + shift)[0] <= epsilon * (1 + 1e-9) + 1e-9:
                    probability += p * q
    else:
        ages = (moment - a.time) + (moment - b.time)
        variance = (a.sigma or 0.0) ** 2 + (b.sigma or 0.0) ** 2 + asked.noise**2 * ages
        if variance:
            probability = capsule(begin, end, math.sqrt(variance), epsilon)
        else:
            probability = float(distance <= epsilon + 1e-9 * max(1.0, epsilon))
    inside = np.linspace(0.0, 1.0, 2001)
    places = np.linalg.norm(begin + inside[:, None] * (end - begin), axis=1)
    return {
        "left": a,
        "right": b,
        "start": first,
        "end": last,
        "closest": (distance, moment),
        "within": float(np.mean(places <= epsilon)) * (last - first),
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
                open_run = Run(met["start"], met["end"], met["closest"], met["within"], met["probability"])
                runs[*pair, met["start"]] = open_run
                continue
            open_run.end = max(open_run.end, met["end"])
            open_run.closest = min(open_run.closest, met["closest"])
            open_run.within += met["within"]
            open_run.probability = max(open_run.probability, met["probability"])
            open_run.legs += 1
    return runs


def cylinder(
    begin: np.ndarray, end: np.ndarray, rises: tuple[float, float], sigmas: tuple[float, float], epsilon: Cylinder
) -> float:
    """Pr{both hold at one instant}: over the horizontal error, which leaves a stretch of time, and so of altitudes."""
    (flat, steep), (radius, height) = sigmas, epsilon
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
