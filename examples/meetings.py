"""Who met whom, where and when: pairs of positions to meetings, meetings to a picture."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

import appulse as ap
from appulse.lab.style import QUIET, style, titled

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from matplotlib.axes import Axes

__all__ = ["at_places", "draw_meetings", "meetings"]

HOURS = {"night, 0 to 6 h": "#0072B2", "morning, 6 to 12 h": "#E69F00", "afternoon, 12 to 18 h": "#D55E00"}
HOURS["evening, 18 to 24 h"] = "#CC79A7"
NEAR = 500.0  # metres: what counts as at a place
LASTING = pd.Timedelta("10 minutes")


def meetings(pairs: pd.DataFrame, rows: pd.DataFrame, who: str, gap: str = "10 minutes") -> pd.DataFrame:
    """The meetings that pairs of positions make up: those of the same two, with less than ``gap`` in between.

    ``rows`` are the positions by key: columns ``who``, ``time``, ``latitude`` and ``longitude``. One row comes out per
    meeting: ``first, second, begin, end, pairs, latitude, longitude``.
    """
    sides = [rows.loc[pairs[f"{side}_key"]].reset_index(drop=True) for side in ("left", "right")]
    names = np.sort(np.stack([side[who].to_numpy(str) for side in sides]), axis=0)
    times = pd.concat([side["time"] for side in sides], axis=1).reset_index(drop=True)
    seen = pd.DataFrame({"first": names[0], "second": names[1], "begin": times.min(axis=1), "end": times.max(axis=1)})
    for axis in ("latitude", "longitude"):
        seen[axis] = (sides[0][axis] + sides[1][axis]) / 2
    seen = seen.sort_values(["first", "second", "begin"], ignore_index=True)
    two = seen.groupby(["first", "second"])
    pause = seen["begin"] - two["end"].cummax().groupby([seen["first"], seen["second"]]).shift()
    seen["meeting"] = (~(pause <= pd.Timedelta(gap))).cumsum()  # a first meeting follows no pause, which is no less
    return seen.groupby(["first", "second", "meeting"], as_index=False).agg(
        begin=("begin", "min"),
        end=("end", "max"),
        pairs=("begin", "size"),
        latitude=("latitude", "median"),
        longitude=("longitude", "median"),
    )


def at_places(met: pd.DataFrame, places: Mapping[str, tuple[float, float]]) -> pd.DataFrame:
    """Each place's (latitude, longitude) meetings, and how many of them were lasting, ten minutes or more."""
    at = pd.DataFrame.from_dict(dict(places), orient="index", columns=["latitude", "longitude"], dtype=float)
    where = ap.Position("latitude", "longitude")
    sides = (met.assign(number=range(len(met))), "number"), (at.reset_index(names="place"), "place")
    streams = (ap.Stream(rows.assign(at=0), key=key, time="at", value=where, name=key) for rows, key in sides)
    there = ap.similarity_join(*streams, epsilon=NEAR, probability=1, window=1).to_pandas()
    lasting = (met["end"] - met["begin"] >= LASTING).to_numpy()[there["left_key"].astype(int)]
    for name, found in (("meetings", there), ("lasting", there[lasting])):
        at[name] = found["right_key"].value_counts().reindex(at.index, fill_value=0).astype(int)
    return at.rename_axis("place")


def draw_meetings(
    met: pd.DataFrame,
    rows: pd.DataFrame,
    places: Mapping[str, tuple[float, float]],
    file: Path,
    *,
    finding: str,
    what: str,
    zone: str,
) -> None:
    """Draw a map of meetings over all positions, and below each other when any two met, into a PNG file."""
    from matplotlib.figure import Figure

    local = met.assign(begin=met["begin"].dt.tz_convert(zone))
    local["part"] = local["begin"].dt.hour // 6
    with style():
        figure = Figure(figsize=(13, 9.5))
        titled(figure, finding, what)
        _draw_map(figure.add_axes((0.06, 0.07, 0.42, 0.72)), local, rows, places)
        _draw_times(figure.add_axes((0.65, 0.07, 0.325, 0.66)), local, zone)
        figure.text(0.06, 0.835, "Where", fontsize=12, fontweight="bold")
        figure.text(0.55, 0.835, "When any two met", fontsize=12, fontweight="bold")
        figure.savefig(file)


def _draw_map(axes: Axes, met: pd.DataFrame, rows: pd.DataFrame, places: Mapping[str, tuple[float, float]]) -> None:
    axes.scatter(rows["longitude"], rows["latitude"], s=0.6, color="#c9ced6", linewidth=0, rasterized=True)
    minutes = (met["end"] - met["begin"]).dt.total_seconds() / 60
    for part, colour in enumerate(HOURS.values()):
        now = met["part"] == part
        size = 7 + 2.5 * minutes[now].clip(upper=120)
        axes.scatter(met["longitude"][now], met["latitude"][now], s=size, color=colour, alpha=0.55, linewidth=0)
    (west, south), (east, north) = met[["longitude", "latitude"]].quantile([0.005, 0.995]).to_numpy()
    edge = max(0.01, 0.08 * max(east - west, north - south))
    axes.set_xlim(west - edge, east + edge)
    axes.set_ylim(south - edge, north + edge)
    axes.set_aspect(1.0 / np.cos(np.radians(0.5 * (south + north))), anchor="NW")
    axes.locator_params("x", nbins=3)
    axes.set_xlabel("longitude")
    axes.yaxis.set_major_formatter("{x:.2f}° N")
    _name(axes, at_places(met, places))


def _name(axes: Axes, at: pd.DataFrame) -> None:
    """Names of places in a column right of the map, none over another."""
    right, (low, high) = axes.get_xlim()[1], axes.get_ylim()
    room, below = 0.075 * (high - low), high + 0.08 * (high - low)
    for name, place in at.sort_values("latitude", ascending=False).iterrows():
        height = min(float(place["latitude"]), below - room)
        below = height
        lasting = f", {place['lasting']:.0f} lasting" if place["lasting"] else ""
        axes.annotate(
            f"{name}\n{place['meetings']:.0f} meetings{lasting}",
            (float(place["longitude"]), float(place["latitude"])),
            (right + 0.05 * (high - low), height),
            fontsize=9,
            va="center",
            annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": QUIET, "lw": 0.7},
        )


def _draw_times(axes: Axes, met: pd.DataFrame, zone: str) -> None:
    names = (met["first"] + " and " + met["second"]).to_numpy(str)
    often = pd.Series(names).value_counts()
    row = {name: place for place, name in enumerate(often.index)}
    height = np.array([row[name] for name in names], float)
    for part, (when, colour) in enumerate(HOURS.items()):
        now = (met["part"] == part).to_numpy()
        begin, end = met["begin"][now].dt.tz_localize(None), met["end"][now].dt.tz_convert(zone).dt.tz_localize(None)
        axes.hlines(height[now], begin, end, color=colour, lw=7, alpha=0.6)
        axes.scatter(begin, height[now], s=34, color=colour, alpha=0.6, linewidth=0, label=when)
    axes.set_yticks(range(len(often)), [f"{name}  ({count})" for name, count in often.items()])
    axes.set_ylim(len(often) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", color="#e5e7eb", lw=0.8)
    axes.set_axisbelow(True)
    axes.set_xlabel(f"day, time zone {zone}")
    axes.legend(loc="lower left", bbox_to_anchor=(-0.36, 1.0), ncols=2, frameon=False, labelcolor=QUIET)
