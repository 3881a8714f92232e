"""Advice on thresholds: against what happens on tracks whose truth is known, and its parts against slow twins."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import shapely
from hypothesis import given, settings
from hypothesis import strategies as st

import appulse as ap
from appulse.errors import BadArgument
from appulse.kernels.likely_tracks import Motion, compare_visits, draw_tracks

SIGMA = 12.0


def _truth(seed: int, things: int = 12, stops: int = 30) -> pd.DataFrame:
    """Things that drive from stop to stop and wait at each, every 10 seconds."""
    chance = np.random.default_rng(seed)
    parts = []
    for thing in range(things):
        places = chance.uniform(0.0, 1500.0, (stops, 2))
        whole = np.repeat(places, 2, axis=0)
        t = np.cumsum(chance.uniform(200.0, 500.0, len(whole)))
        steps = np.arange(t[0], t[-1], 10.0)
        x, y = (np.interp(steps, t, whole[:, k]) for k in range(2))
        parts.append(pd.DataFrame({"thing": thing, "t": steps, "x": x, "y": y}))
    return pd.concat(parts, ignore_index=True)


def _fences(seed: int) -> pa.Table:
    chance = np.random.default_rng(seed)
    places = [shapely.Point(*chance.uniform(0, 1500, 2)) for _ in range(60)]
    return pa.table({"query": range(60), "region": [p.buffer(chance.uniform(40, 200), 4).wkb for p in places]})


def _visits(stream: Any, fences: pa.Table, enter: float, leave: float) -> pd.DataFrame:
    events = ap.fence_events(stream, fences, enter=enter, leave=leave).to_pandas()
    begun, over = events[events.event == "enter"], events[events.event == "exit"]
    whole = begun.merge(over, on=["query", "key", "since"], how="left", suffixes=("", "_end"))
    return pd.DataFrame(
        {"key": whole.key, "query": whole["query"], "start": whole.time, "end": whole.time_end.fillna(np.inf)}
    )


def _false(found: pd.DataFrame, truth: pd.DataFrame, slack: float) -> int:
    taken, false = set(), 0
    visits: dict[Any, list[Any]] = defaultdict(list)
    row: Any
    for row in truth.sort_values("start").itertuples():
        visits[row.key, row.query].append((row.start, row.end, row.Index))
    for key, query, start, end in found.sort_values(["key", "query", "start"]).itertuples(index=False):
        own = next((visit for visit in visits[key, query] if visit[1] + slack > start), None)
        if own is not None and own[0] - slack < end and own[2] not in taken:
            taken.add(own[2])
        else:
            false += 2
    return false


def test_false_events_are_those_that_happen() -> None:
    """Predicted from readings alone, within 25 % of what the track shows that they came from."""
    track, fences = _truth(1), _fences(2)
    chance = np.random.default_rng(3)
    fixes = track.assign(
        x=track.x + chance.normal(0, SIGMA, len(track)), y=track.y + chance.normal(0, SIGMA, len(track))
    )
    readings = ap.Stream(fixes, "thing", "t", ap.Gaussian("x", "y", sigma=SIGMA))
    truth = _visits(ap.Stream(track, "thing", "t", ap.Exact("x", "y")), fences, 1.0, 1.0)
    advice = ap.fence_advice(readings, fences, enter=(0.5, 0.7, 0.9), leave=(0.5, 0.01)).to_pylist()
    assert [(row["enter"], row["leave"]) for row in advice] == [
        (high, low) for high in (0.5, 0.7, 0.9) for low in (0.01, 0.5)
    ]
    for row in advice:
        observed = _false(_visits(readings, fences, row["enter"], row["leave"]), truth, 60.0)
        assert abs(row["false_events"] - observed) < 0.25 * observed, row
        assert row["true_events"] == pytest.approx(2 * len(truth), rel=0.2)
    wide, narrow = advice[4], advice[1]
    assert wide["false_events"] < 0.2 * narrow["false_events"]
    assert wide["delay"] > narrow["delay"]


def test_exact_readings_have_no_false_events() -> None:
    track, fences = _truth(4, things=2, stops=5), _fences(2)
    (row,) = ap.fence_advice(
        ap.Stream(track, "thing", "t", ap.Exact("x", "y")), fences, enter=1.0, leave=1.0
    ).to_pylist()
    assert row["true_events"] > 10
    assert (row["false_events"], row["missed_events"], row["delay"], row["never"]) == (0.0, 0.0, 0.0, 0)
    carried = ap.Stream(track, "thing", "t", ap.Exact("x", "y"), carry=["x"])  # each reading is still one of its thing
    assert ap.fence_advice(carried, fences, enter=1.0, leave=1.0).to_pylist() == [row]


def test_on_earth_it_is_as_in_the_plane() -> None:
    """Over the 180th meridian, and with fences too small to be entered."""
    track, chance = _truth(5, things=6, stops=12), np.random.default_rng(6)
    metres = 111_195.0
    places = [shapely.Point(*chance.uniform(0, 1500, 2)) for _ in range(30)]
    flat = pa.table({"query": range(30), "region": [p.wkb for p in places], "radius": [3.0] + 29 * [100.0]})
    x, y = (track[k] + chance.normal(0, SIGMA, len(track)) for k in ("x", "y"))
    plane = ap.Stream(track.assign(x=x, y=y), "thing", "t", ap.Gaussian("x", "y", sigma=SIGMA))
    wrapped = 180.0 - 750.0 / metres + x / metres
    round_ = [shapely.Point((180.0 + (p.x - 750.0) / metres + 180.0) % 360.0 - 180.0, p.y / metres) for p in places]
    world = track.assign(lon=(wrapped + 180.0) % 360.0 - 180.0, lat=y / metres)
    curved = pa.table({"query": range(30), "region": [p.wkb for p in round_], "radius": flat["radius"]})
    earth = ap.Stream(world, "thing", "t", ap.Position("lat", "lon", sigma=SIGMA, earth="sphere"))
    (one,), (other,) = (
        ap.fence_advice(stream, some, enter=0.9, leave=0.1, draws=2).to_pylist()
        for stream, some in ((plane, flat), (earth, curved))
    )
    assert one["never"] == other["never"] == 1
    for name in ("true_events", "false_events"):
        assert other[name] == pytest.approx(one[name], rel=0.1)


@settings(deadline=None)
@given(st.integers(0, 1 << 30))
def test_visits_report_the_first_that_they_overlap(seed: int) -> None:
    chance = np.random.default_rng(seed)

    def some() -> np.ndarray[Any, Any]:
        rows = []
        for thing in range(2):
            for fence in range(2):
                ends = np.cumsum(chance.integers(1, 9, 2 * int(chance.integers(0, 5))))
                rows += [[thing, fence, a, b] for a, b in ends.reshape(-1, 2)]
        return np.array(rows, np.int64).reshape(-1, 4)

    found, truth, slack = some(), some(), int(chance.integers(0, 4))
    taken = np.empty(len(truth), np.int64)
    compare_visits(found, truth, slack, taken)
    expected = [-1] * len(truth)
    for f, (thing, fence, a, b) in enumerate(found.tolist()):
        for t, (*own, c, d) in enumerate(truth.tolist()):
            if own == [thing, fence] and d + slack > a:
                if c - slack < b and expected[t] < 0:
                    expected[t] = f
                break
    assert taken.tolist() == expected


def test_tracks_are_those_of_the_motion_given_their_readings() -> None:
    """Mean and covariance of many draws against those of a normal vector, conditioned by linear algebra."""
    chance = np.random.default_rng(8)
    n, draws = 6, 40_000
    at, error = chance.normal(0, 3, (n, 2)), chance.uniform(0.2, 2.0, (n, 2))
    gap, moves = chance.uniform(0.5, 2.0, n), np.array([False, False, True, True, False, True])
    motion = Motion(moves, gap, np.array([0.5, 0.0]), np.array([1.5, 0.7]), np.array([0.0, 0.4]))
    out = np.empty((draws, n, 2))
    for k in range(draws):
        draw_tracks(np.zeros(n, np.int64), at, error, motion, chance.standard_normal((n, 4)), out[k])
    for axis in range(2):
        back, noise = np.eye(2 * n), np.zeros((2 * n, 2 * n))  # what a state has beyond the one before it
        noise[0, 0], noise[1, 1] = 1e5, motion.speed[axis]  # the first place is not known
        for r in range(1, n):
            own, before, g, q = slice(2 * r, 2 * r + 2), slice(2 * r - 2, 2 * r), gap[r], motion.turns[axis]
            back[own, before] = [[-1.0, -g], [0.0, -1.0]] if moves[r] else [[-1.0, 0.0], [0.0, 0.0]]
            turned = q * np.array([[g**3 / 3, g**2 / 2], [g**2 / 2, g]])
            noise[own, own] = turned if moves[r] else np.diag([motion.strays[axis] * g, motion.speed[axis]])
        prior = (np.linalg.inv(back) @ noise @ np.linalg.inv(back).T)[::2, ::2]
        gain = prior @ np.linalg.inv(prior + np.diag(error[:, axis]))
        np.testing.assert_allclose(out[:, :, axis].mean(axis=0), gain @ at[:, axis], atol=0.03)
        np.testing.assert_allclose(np.cov(out[:, :, axis].T), prior - gain @ prior, atol=0.05)


def test_what_advice_cannot_be_given_on() -> None:
    track, fences = _truth(4, things=1, stops=2), _fences(2)
    stream = ap.Stream(track, "thing", "t", ap.Exact("x", "y"))
    with pytest.raises(BadArgument, match="above all of enter"):
        ap.fence_advice(stream, fences, enter=0.1, leave=0.5)
    with pytest.raises(BadArgument, match="no good row"):
        ap.fence_advice(ap.Stream(track.iloc[:0], "thing", "t", ap.Exact("x", "y")), fences)
