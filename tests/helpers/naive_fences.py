"""The slow twin of fence events: shapely, quadrature, and a state machine in a few lines."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import shapely
from scipy.special import ndtr
from scipy.stats import ncx2

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

#: What a fence says of readings that it has nothing to do with.
NOT_YET, GONE = -1.0, -2.0
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(40)
_FEW, _FEW_WEIGHTS = np.polynomial.legendre.leggauss(20)


@dataclass(frozen=True)
class Reading:
    key: str
    time: float
    x: float
    y: float
    sigma: float = 0.0
    tag: str = ""
    thin: float = 1.0  # the minor semi-axis, of sigma
    angle: float = 0.0  # of the major one, clockwise from y

    @property
    def error(self) -> tuple[float, float, float]:
        """As `mass` has it."""
        major, minor = self.sigma**2, (self.thin * self.sigma) ** 2
        sine, cosine = math.sin(math.radians(self.angle)), math.cos(math.radians(self.angle))
        both = (major - minor) * sine * cosine
        return ellipse(major * sine**2 + minor * cosine**2, both, major * cosine**2 + minor * sine**2)


@dataclass(frozen=True)
class Event:
    query: str
    key: str
    event: str
    time: float
    probability: float
    since: float


def ellipse(xx: float, xy: float, yy: float) -> tuple[float, float, float]:
    """The deviation of x, that of y where x is known, and by how much y then changes with x."""
    return math.sqrt(xx), math.sqrt(yy - xy**2 / xx), xy / xx


def mass(shape: Any, x: float, y: float, across: float, along: float, slope: float = 0.0) -> float:
    """Pr{inside} under normal errors of these deviations: over strips between corners, each a sum of intervals.

    ``along`` is the deviation of y where x is known, and ``slope`` says how y then changes with x.
    """
    edges = []
    for part in getattr(shape, "geoms", [shape]):
        whole = shapely.orient_polygons(part)
        for ring in (whole.exterior, *whole.interiors):
            corners = shapely.get_coordinates(ring)
            edges += np.hstack([corners[:-1], corners[1:]]).tolist()
    low, high = x - 9 * across, x + 9 * across
    # No strip is wider than half a deviation.
    cuts = np.unique(np.concatenate([np.ravel([[e[0], e[2]] for e in edges]), np.linspace(low, high, 37)]))
    # Cut finely where the mean of y passes an edge: there the integrand rises within a few deviations of y.
    for ax, ay, bx, by in edges:
        if slope and ax != bx and (rise := (by - ay) / (bx - ax)) != slope:
            steps = np.arange(-8.0, 9.0) * along / abs(rise - slope)
            cuts = np.append(cuts, x + (y - ay + rise * (ax - x)) / (rise - slope) + steps)
    cuts = np.unique(cuts[(cuts >= low) & (cuts <= high)])
    half = 0.5 * np.diff(cuts)[:, None]
    u, weight = (cuts[:-1, None] + half * (_NODES + 1.0)).ravel(), (half * _WEIGHTS).ravel()
    inside = np.zeros(len(u))
    for ax, ay, bx, by in edges:
        if ax != bx:
            between = (u > min(ax, bx)) & (u < max(ax, bx))
            at = ay + (u - ax) / (bx - ax) * (by - ay)
            inside += between * ndtr((at - y - slope * (u - x)) / along) * (-1.0 if bx > ax else 1.0)
    density = np.exp(-0.5 * ((u - x) / across) ** 2) / (across * math.sqrt(2 * math.pi))
    return float(np.sum(weight * density * inside))


def disc_mass(
    x: float, y: float, radius: float, across: float, along: float, slope: float, box: Sequence[float] = ()
) -> float:
    """Pr{inside} of a disc around the origin, as `mass` has errors; of its part in a box, cut where that begins."""
    west, south, east, north = box or (-math.inf, -math.inf, math.inf, math.inf)
    ends = max(west, x - 12.0 * across), min(east, x + 12.0 * across)
    begin, end = (math.asin(min(1.0, max(-1.0, side / radius))) for side in ends)
    bends = [sign * math.acos(min(1.0, abs(side) / radius)) for side in (south, north) for sign in (-1.0, 1.0)]
    # Cut finely where the mean of y passes the rim or a side, as in `mass`.
    start = y - slope * x
    crossed = np.roots([1.0 + slope**2, 2 * slope * start, start**2 - radius**2])
    passed = [(u, slope + u / (start + slope * u)) for u in crossed if np.isreal(u) and start + slope * u]
    passed += [((side - start) / slope, slope) for side in (south, north) if slope and math.isfinite(side)]
    steep = [u + np.arange(-8.0, 9.0) * along / abs(rise) for u, rise in passed if rise]
    fine = np.arcsin(np.clip(np.concatenate([*steep, [x]]) / radius, -1.0, 1.0))
    edges = np.unique(np.concatenate([np.linspace(begin, end, 401), np.clip([*bends, *fine], begin, end)]))
    half = 0.5 * np.diff(edges)[:, None]
    angle, weight = (edges[:-1, None] + half * (_FEW + 1.0)).ravel(), (half * _FEW_WEIGHTS).ravel()
    u, h = radius * np.sin(angle), radius * np.cos(angle)
    at = y + slope * (u - x)
    low, high = np.maximum(-h, south), np.minimum(h, north)
    inside = np.where(low < high, ndtr((high - at) / along) - ndtr((low - at) / along), 0.0)
    density = np.exp(-0.5 * ((u - x) / across) ** 2) / (across * math.sqrt(2 * math.pi))
    return float(np.sum(weight * density * inside * h))


def chance(shape: Any, radius: float | None, row: Reading) -> float:
    """Pr{inside} in a plane."""
    if radius is not None:
        distance = math.hypot(row.x - shape.x, row.y - shape.y)
        if not row.sigma:
            return float(distance <= radius + 1e-9)
        if row.thin != 1.0:
            return disc_mass(row.x - shape.x, row.y - shape.y, radius, *row.error)
        return float(ncx2.cdf((radius / row.sigma) ** 2, 2, (distance / row.sigma) ** 2))
    if not row.sigma:
        return float(shapely.covers(shape, shapely.Point(row.x, row.y)))
    return mass(shape, row.x, row.y, *row.error)


def events(
    readings: Sequence[Reading],
    fences: Sequence[tuple[str, Callable[[Reading], float]]],
    enter: float,
    leave: float,
    dwell: float | None = None,
    untils: Sequence[Callable[[Reading], float]] = (),
) -> list[Event]:
    """Key by key and fence by fence; at the end of the streams their newest time is reached.

    A fence says of a reading `NOT_YET` or `GONE` where that came before it was added, or after it was removed.
    ``untils`` say until when each held as a reading came.
    """
    tracks = defaultdict(list)
    for reading in readings:
        tracks[reading.key].append(reading)
    end = max((row.time for row in readings), default=0.0)
    found = []
    for key, track in tracks.items():
        rows: list[Reading | None] = [*sorted(track, key=lambda row: row.time), None]
        for i, (query, inside) in enumerate(fences):
            until = untils[i] if untils else lambda _: math.inf
            found += _events_of(query, key, rows, inside, until, end, enter, leave, dwell)
    return found


def _events_of(
    query: str,
    key: str,
    rows: Sequence[Reading | None],
    inside: Callable[[Reading], float],
    until: Callable[[Reading], float],
    end: float,
    enter: float,
    leave: float,
    dwell: float | None,
) -> list[Event]:
    found: list[Event] = []
    since: float | None = None
    waits, last, ends = False, 0.0, math.inf
    for row in rows:
        now = end if row is None else row.time
        p = last if row is None else inside(row)
        due = math.inf if since is None or dwell is None or not waits or since + dwell > ends else since + dwell
        if since is not None and (ends < now or p == GONE):
            if due < now:
                found.append(Event(query, key, "dwell", due, last, since))
            since = None
        if p in (GONE, NOT_YET):
            continue
        if since is not None:
            if due < now or (due == now and (row is None or p >= leave)):
                found.append(Event(query, key, "dwell", due, last if due < now else p, since))
                waits = False
            if row is not None and p < leave:
                found.append(Event(query, key, "exit", now, p, since))
                since = None
        elif row is not None and p >= enter:
            since, waits = now, dwell is not None
            found.append(Event(query, key, "enter", now, p, now))
        last = p
        ends = ends if row is None else until(row)
    return found


@dataclass(frozen=True)
class Crossing:
    """A leg that passes through a fence, both ends outside; its probability, and how near its straight way comes."""

    query: str
    key: str
    begin: Reading
    end: Reading
    probability: float
    distance: float


def crossings(
    readings: Sequence[Reading],
    fences: Sequence[tuple[str, Any, float | None]],
    found: Sequence[Event],
    longest: float,
    least: float,
) -> list[Crossing]:
    """Of readings that follow upon each other, at most ``longest`` apart; ``found`` are the events."""
    out = []
    for key in sorted({row.key for row in readings}):
        track = sorted((row for row in readings if row.key == key), key=lambda row: row.time)
        for a, b in itertools.pairwise(track):
            for query, shape, radius in fences:
                if b.time - a.time > longest or _is_inside(found, query, key, a.time, b.time):
                    continue
                far = shapely.distance(shape, _way(a, b))
                if (p := _passing(shape, radius, a, b, far)) >= least:
                    out.append(Crossing(query, key, a, b, p, max(0.0, far - (radius or 0.0))))
    return out


def _way(a: Reading, b: Reading) -> Any:
    return shapely.LineString([(a.x, a.y), (b.x, b.y)])


def _is_inside(found: Sequence[Event], query: str, key: str, a: float, b: float) -> bool:
    own = [event for event in found if (event.query, event.key) == (query, key)]
    ends = {event.since: event.time for event in own if event.event == "exit"}
    stays = [(event.time, ends.get(event.time, math.inf)) for event in own if event.event == "enter"]
    return any(since <= at < until for since, until in stays for at in (a, b))


def _passing(shape: Any, radius: float | None, a: Reading, b: Reading, far: float) -> float:
    """The probability that a displacement lies in what the shape sweeps as it is moved back along the way."""
    if not a.sigma:
        return float(far <= (radius or 0.0) + 1e-9)
    if far - (radius or 0.0) > 3.0 * a.sigma:  # below 0.012
        return 0.0
    step = np.array([b.x - a.x, b.y - a.y])
    back = shapely.transform(shape, lambda at: at - step)
    if radius is not None:
        swept = shapely.buffer(shapely.LineString([shape, back]), radius, quad_segs=40)
    else:
        parts = [shape, back]
        for part in getattr(shape, "geoms", [shape]):
            for ring in (part.exterior, *part.interiors):
                for c, d in itertools.pairwise(shapely.get_coordinates(ring)):
                    parts.append(shapely.convex_hull(shapely.MultiPoint([c, d, c - step, d - step])))
        swept = shapely.union_all([part for part in parts if part.area > 0.0])
    return mass(swept, a.x, a.y, *a.error)
