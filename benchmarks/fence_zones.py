"""Zones of a city as fleets have them, and what happens at them: by truth, and as different rules report it.

Zones are made from readings, in metres: cells around places where many readings are, streets with a margin, and
polygons of 5 to 500 corners. A rule's reports are visits of a thing to a zone; `score` holds them against the truth.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import shapely
from scipy.spatial import Voronoi

if TYPE_CHECKING:
    from numpy.typing import NDArray

SIDE = 100.0  # metres: of a place
WIDE = 300.0  # metres: no cell reaches farther from its place


def make_zones(x: NDArray[np.float64], y: NDArray[np.float64], n: int, seed: int = 0) -> NDArray[Any]:
    """About ``n`` zones around places where readings are, a third of each kind."""
    chance = np.random.default_rng(seed)
    share = -(-n // 3)
    # Places where readings are, each as likely as any other, however many readings there are.
    cells = np.unique(np.column_stack([x, y]) // SIDE, axis=0)
    places = SIDE * (cells[chance.integers(0, len(cells), 3 * share)] + chance.random((3 * share, 2)))
    found = [*_cells(places[:share]), *_streets(places[share : 2 * share], chance)]
    found += [*_polygons([_outline(place, chance) for place in places[2 * share :]])]
    shapes = np.array(found, object)
    good: NDArray[Any] = shapes[shapely.is_valid(shapes) & ~shapely.is_empty(shapes)]
    return good[:n]


def _cells(places: NDArray[np.float64]) -> NDArray[Any]:
    """What is nearer to a place than to any other, and within reach of it."""
    far = 1e6 * np.array([[-1, -1], [-1, 1], [1, -1], [1, 1]]) + places.mean(axis=0)
    drawn = Voronoi(np.vstack([places, far]))
    cells = _polygons([drawn.vertices[drawn.regions[drawn.point_region[i]]] for i in range(len(places))])
    cut: NDArray[Any] = shapely.intersection(cells, shapely.buffer(shapely.points(places), WIDE))
    return cut


def _streets(places: NDArray[np.float64], chance: np.random.Generator) -> NDArray[Any]:
    """Lines of a few bends, with 15 metres at either side."""
    bends = chance.integers(2, 9, len(places))
    lines = []
    for place, count in zip(places, bends, strict=True):
        course = chance.uniform(0.0, 2.0 * np.pi) + np.cumsum(chance.normal(0.0, 0.3, count))
        steps = 60.0 * np.column_stack([np.cos(course), np.sin(course)])
        lines.append(place + np.cumsum(steps, axis=0))
    drawn = shapely.linestrings(np.vstack(lines), indices=np.repeat(np.arange(len(lines)), bends))
    wide: NDArray[Any] = shapely.buffer(drawn, 15.0, quad_segs=4)
    return wide


def _polygons(rings: list[NDArray[np.float64]]) -> NDArray[Any]:
    """Polygons of one ring, made at once."""
    owner = np.repeat(np.arange(len(rings)), [len(ring) for ring in rings])
    made: NDArray[Any] = shapely.polygons(shapely.linearrings(np.vstack(rings), indices=owner))
    return made


def _outline(place: NDArray[np.float64], chance: np.random.Generator) -> NDArray[np.float64]:
    """The 5 to 500 corners of a polygon, 40 to 300 metres wide, with a few waves."""
    corners = int(np.exp(chance.uniform(np.log(5.0), np.log(500.0))))
    angle = np.linspace(0.0, 2.0 * np.pi, corners, endpoint=False)
    waves, phase = int(chance.integers(2, 8)), chance.uniform(0.0, 2.0 * np.pi)
    reach = chance.uniform(40.0, WIDE / 2.0) * (1.0 + 0.2 * np.sin(waves * angle + phase))
    corners_at: NDArray[np.float64] = place + reach[:, None] * np.column_stack([np.cos(angle), np.sin(angle)])
    return corners_at


def dense(track: pd.DataFrame, every: float = 10.0, max_gap: float = 120.0) -> pd.DataFrame:
    """A track (``t`` in seconds, ``x, y``) at equal steps, where its readings are not too far apart."""
    t = track["t"].to_numpy(float)
    steps = np.arange(np.ceil(t[0] / every), np.floor(t[-1] / every) + 1.0) * every
    after = np.clip(np.searchsorted(t, steps), 1, len(t) - 1)
    steps = steps[t[after] - t[after - 1] <= max_gap]
    return pd.DataFrame({"t": steps} | {name: np.interp(steps, t, track[name]) for name in ("x", "y")})


@dataclass(frozen=True)
class Score:
    """How visits compare with the true ones: false events a day, the share missed, the mean delay in seconds."""

    false_a_day: float
    missed: float
    delay: float


@dataclass(frozen=True)
class Runs:
    """Fixes in zones, wider by some margin: ``rows`` with thing, zone, fix, t, and the ``run`` of fixes they are in."""

    fixes: pd.DataFrame
    points: NDArray[Any]
    rows: pd.DataFrame


def runs_in(fixes: pd.DataFrame, zones: NDArray[Any], outer: float = 0.0) -> Runs:
    """Runs of fixes in zones, or not farther from them than ``outer``."""
    fixes = fixes.sort_values(["thing", "t"], kind="stable", ignore_index=True)
    points = shapely.points(fixes["x"], fixes["y"])
    wide = shapely.buffer(zones, outer) if outer else zones
    zone, fix = shapely.STRtree(points).query(wide, predicate="covers")
    rows = fixes.iloc[fix].assign(zone=zone, fix=fix).sort_values(["thing", "zone", "fix"], ignore_index=True)
    follows = (rows["thing"].diff() == 0) & (rows["zone"].diff() == 0) & (rows["fix"].diff() == 1)
    rows["run"] = (~follows).cumsum()
    return Runs(fixes, points, rows)


def visits_by_rule(runs: Runs, zones: NDArray[Any], *, inner: float = 0.0, wait: float = 0.0) -> pd.DataFrame:
    """Visits by point in polygon: a run is one, if any of its fixes is deep enough, and the first to be so begins it.

    Deep enough is a fix in the zone made smaller by ``inner``, and with ``wait`` so many seconds after the run began.
    Columns ``thing, zone, start, end``.
    """
    fixes, points, rows = runs.fixes, runs.points, runs.rows
    ends = rows.groupby("run")["fix"].max() + 1
    deep = rows["t"] >= rows.groupby("run")["t"].transform("min") + wait
    if inner:
        deep &= shapely.covers(shapely.buffer(zones, -inner)[rows["zone"]], points[rows["fix"]])
    found = rows[deep].groupby("run").agg(thing=("thing", "first"), zone=("zone", "first"), start=("t", "first"))
    after = fixes.reindex(ends.loc[found.index])
    same = after["thing"].to_numpy() == found["thing"].to_numpy()
    visits: pd.DataFrame = found.assign(end=np.where(same, after["t"], np.inf)).reset_index(drop=True)
    return visits


def score(found: pd.DataFrame, truth: pd.DataFrame, days: float, slack: float = 60.0) -> Score:
    """Visits are true if they overlap one, by some slack, that no earlier one has; others are two false events each."""
    known = truth[truth["end"] - truth["start"] >= slack]
    both = found.reset_index().merge(truth.reset_index(), on=["thing", "zone"], suffixes=("", "_true"))
    both = both[(both["start"] < both["end_true"] + slack) & (both["end"] > both["start_true"] - slack)]
    both = both.sort_values("start").drop_duplicates("index").sort_values("start").drop_duplicates("index_true")
    false = len(found) - len(both)
    taken = both[both["index_true"].isin(known.index)]
    delay = np.maximum(0.0, taken["start"] - taken["start_true"])
    missed = 1.0 - len(taken) / max(1, len(known))
    return Score(2.0 * false / days, missed, float(delay.mean()))
