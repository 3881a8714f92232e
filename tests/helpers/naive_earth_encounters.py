"""The slow twin of encounters on the Earth: geodesics and planes by pyproj, every pair of legs one by one."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from tests.helpers import geodesics
from tests.helpers import naive_encounters as naive

if TYPE_CHECKING:
    from collections.abc import Sequence

PIECE = 1e5


@dataclass(frozen=True)
class Reading:
    """A reading: seconds, degrees, metres, and for a course metres a second east, north and up."""

    key: str
    time: float
    lat: float
    lon: float
    altitude: float = 0.0
    sigma: float = 0.0
    altitude_sigma: float = 0.0
    velocity: tuple[float, ...] = ()
    ellipse: tuple[float, float, float] | None = None  # semi-axes, degrees of the first from north

    def covariance(self, touch: tuple[float, float], *, altitudes: bool) -> np.ndarray:
        """By east and north of a plane, to which the ellipse is carried along the geodesic."""
        major, minor, angle = self.ellipse or (self.sigma, self.sigma, 0.0)
        azimuth, back, metres = geodesics.geod("wgs84").inv(self.lon, self.lat, touch[1], touch[0])
        turned = math.radians(angle + (back + 180.0 - azimuth if metres > 1e-6 else 0.0))
        axis = np.array([math.sin(turned), math.cos(turned)])
        across = np.array([axis[1], -axis[0]])
        found = np.zeros((3, 3))
        found[:2, :2] = major**2 * np.outer(axis, axis) + minor**2 * np.outer(across, across)
        found[2, 2] = self.altitude_sigma**2
        return found if altitudes else found[:2, :2]


@dataclass(frozen=True)
class Leg:
    reading: Reading
    end: float
    azimuth: float
    metres: float
    climb: float

    def share(self, time: float) -> float:
        length = self.end - self.reading.time
        return (time - self.reading.time) / length if length else 0.0

    def at(self, time: float) -> tuple[float, float, float]:
        share, own = self.share(time), self.reading
        lon, lat, _ = geodesics.geod("wgs84").fwd(own.lon, own.lat, self.azimuth, share * self.metres)
        return lat, lon, own.altitude + share * self.climb

    @property
    def cuts(self) -> list[float]:
        pieces = max(1, math.ceil(self.metres / PIECE))
        return [self.reading.time + (self.end - self.reading.time) * k / pieces for k in range(1, pieces)]


def legs_of(readings: Sequence[Reading], longest: float, *, straight: bool) -> list[Leg]:
    tracks: dict[str, dict[float, Reading]] = defaultdict(dict)
    for reading in readings:
        tracks[reading.key].setdefault(reading.time, reading)
    legs = []
    for track in tracks.values():
        rows = [track[time] for time in sorted(track)]
        joined = [after.time - one.time <= longest for one, after in pairwise(rows)]
        for i, row in enumerate(rows):
            after = rows[i + 1] if i + 1 < len(rows) else None
            if not straight:
                end = row.time + longest if after is None else min(after.time, row.time + longest)
                step = [v * (end - row.time) for v in row.velocity]
                azimuth = math.degrees(math.atan2(step[0], step[1]))
                legs.append(Leg(row, end, azimuth, math.hypot(*step[:2]), step[2]))
            elif after is not None and joined[i]:
                azimuth, _, metres = geodesics.geod("wgs84").inv(row.lon, row.lat, after.lon, after.lat)
                legs.append(Leg(row, after.time, azimuth, metres, after.altitude - row.altitude))
            elif i == 0 or not joined[i - 1]:
                legs.append(Leg(row, row.time, 0.0, 0.0, 0.0))
    return legs


def _touch(places: Sequence[tuple[float, float, float]]) -> tuple[float, float]:
    """The mean of places."""
    a, b = geodesics.AXES["wgs84"]
    x, y, z = np.mean([geodesics.centred("wgs84", place[:2]) for place in places], axis=0)
    lat = math.degrees(math.atan2(z * (a / b) ** 2, math.hypot(x, y)))
    return lat, math.degrees(math.atan2(y, x))


def _plane(places: Sequence[tuple[float, float, float]]) -> np.ndarray:
    """Metres east and north of the mean of places."""
    lat, lon = _touch(places)
    found = []
    for place in places:
        azimuth, _, metres = geodesics.geod("wgs84").inv(lon, lat, place[1], place[0])
        found.append((metres * math.sin(math.radians(azimuth)), metres * math.cos(math.radians(azimuth)), place[2]))
    return np.array(found)


def meeting(
    one: Leg, other: Leg, epsilon: float | naive.Cylinder, *, altitudes: bool, noise: float = 0.0
) -> dict[str, Any] | None:
    """What becomes of two legs, if they share a time."""
    first, last = max(one.reading.time, other.reading.time), min(one.end, other.end)
    if first > last:
        return None
    cuts = sorted({first, last, *(cut for cut in one.cuts + other.cuts if first < cut < last)})
    pieces = list(pairwise(cuts)) if len(cuts) > 1 else [(first, last)]
    best, closest, within, expected = 0.0, (math.inf, 0.0), 0.0, 0.0
    for begin_time, end_time in pieces:
        places = [leg.at(time) for time in (begin_time, end_time) for leg in (one, other)]
        ends = _plane(places)
        begin, end = ends[0] - ends[1], ends[2] - ends[3]
        if not altitudes:
            begin, end = begin[:2], end[:2]
        distance, share = naive.closest(begin, end)
        moment = begin_time + share * (end_time - begin_time)
        closest = min(closest, (distance, moment))
        ages = (moment - one.reading.time) + (moment - other.reading.time)
        flat = math.sqrt(one.reading.sigma**2 + other.reading.sigma**2 + noise**2 * ages)
        of_one, of_other = (leg.reading.covariance(_touch(places), altitudes=altitudes) for leg in (one, other))
        covariance = of_one + of_other
        alike = one.reading.ellipse is None and (not altitudes or bool(np.all(covariance == np.eye(3) * flat**2)))
        path = begin + np.linspace(0.0, 1.0, 4001)[:, None] * (end - begin)
        if isinstance(epsilon, tuple):
            inside = (np.linalg.norm(path[:, :2], axis=1) <= epsilon[0]) & (np.abs(path[:, 2]) <= epsilon[1])
            steep = math.hypot(one.reading.altitude_sigma, other.reading.altitude_sigma)
            if one.reading.ellipse:
                chance = naive.swept(begin, end, covariance, (((0, 1), epsilon[0]), ((2,), epsilon[1])))
            else:
                chance = naive.cylinder(begin[:2], end[:2], (begin[2], end[2]), (flat, steep), epsilon)
        else:
            inside = np.linalg.norm(path, axis=1) <= epsilon
            if flat and not alike:
                chance = naive.swept(begin, end, covariance, ((tuple(range(len(begin))), epsilon),), 10)
            else:
                chance = naive.capsule(begin, end, flat, epsilon) if flat else float(distance <= epsilon)
        within += float(np.mean(inside)) * (end_time - begin_time)
        if noise and not isinstance(epsilon, tuple):
            grown = [flat**2 + 2.0 * noise**2 * (time - moment) for time in (begin_time, end_time)]
            share = naive.share_near(begin, end, (math.sqrt(grown[0]), math.sqrt(grown[1])), epsilon)
        else:
            share = naive.share_drawn(begin, end, covariance, _groups(epsilon, len(begin)))
        expected += share * (end_time - begin_time)
        best = max(best, chance)
    figures = {"within": within, "expected": expected, "probability": best}
    return {"start": first, "end": last, "closest": closest} | figures


def _groups(epsilon: float | naive.Cylinder, d: int) -> naive.Groups:
    return (((0, 1), epsilon[0]), ((2,), epsilon[1])) if isinstance(epsilon, tuple) else ((tuple(range(d)), epsilon),)
