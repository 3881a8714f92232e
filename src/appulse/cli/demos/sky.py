"""The picture of alarms for aircraft: where each rings, in its own ring of the least separation, and how sure it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from appulse.lab.style import style

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.axes import Axes
    from matplotlib.patches import Circle

    from appulse.kernels.arrays import Floats

__all__ = ["draw"]

NIGHT, PANEL, RIM, TRACK, TEXT, FAINT = "#0b1420", "#0f1b2b", "#2a3b52", "#9db4d0", "#eef3f9", "#8fa2ba"
SURE, DOUBTFUL = "#ff9248", "#58b4f5"
CERTAIN = 0.99
AROUND = pd.Timedelta(6, "min")  # of a track, before and after it is closest to the other
EDGE = 25.0  # kilometres around the alarms
DEGREE, MILE = 111.195, 1.852  # kilometres


def draw(rows: pd.DataFrame, plain: pd.DataFrame, found: pd.DataFrame, ring: float, about: str, file: Path) -> None:
    """Draw the pairs of ``plain`` with the probabilities of ``found``; ``ring`` is the least separation in metres."""
    from matplotlib.figure import Figure

    alarms = _alarms(plain, found)
    sure = int((alarms["probability"] >= CERTAIN).sum())
    title = f"{len(alarms)} alarms. {sure or 'None'} {'is' if sure < 2 else 'are'} certain."
    with style():
        figure = Figure(figsize=(13, 6.5), facecolor=NIGHT)
        _map(figure.add_axes((0.01, 0.02, 0.5, 0.96)), rows, alarms, ring / 1000.0)
        figure.text(0.547, 0.93, title, **_font(24, TEXT, "bold"))
        figure.text(0.549, 0.835, about, **_font(10.5, FAINT), linespacing=1.5)
        _ladder(figure.add_axes((0.565, 0.1, 0.4, 0.47), facecolor=NIGHT), alarms["probability"].to_numpy())
        file.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(file, facecolor=NIGHT)


def _font(size: float, colour: str, weight: str = "normal") -> dict[str, Any]:
    return {"fontsize": size, "color": colour, "fontweight": weight, "va": "top"}


def _alarms(plain: pd.DataFrame, found: pd.DataFrame) -> pd.DataFrame:
    """One row for each pair with a plain alarm, with its highest probability; below that of the search it is 0."""
    pair = ["left_key", "right_key"]
    best = found.groupby(pair, as_index=False)["probability"].max()
    first = plain.sort_values("closest_distance").drop_duplicates(pair)
    known = first[[*pair, "closest_time"]].merge(best, on=pair, how="left")
    return known.assign(probability=known["probability"].fillna(0.0)).sort_values("probability", ignore_index=True)


def _map(axes: Axes, rows: pd.DataFrame, alarms: pd.DataFrame, ring: float) -> None:
    """A disc of sky with the tracks, and around each alarm a ring of the least separation; in kilometres."""
    from matplotlib.patches import Circle

    middle = rows["lat"].mean(), rows["lon"].mean()
    rows = rows.sort_values("at").assign(
        x=(rows["lon"] - middle[1]) * DEGREE * np.cos(np.radians(middle[0])), y=(rows["lat"] - middle[0]) * DEGREE
    )
    tracks = dict(iter(rows.groupby("aircraft")))
    met = [
        [_near(tracks[key], when) for key in keys]
        for *keys, when in zip(alarms["left_key"], alarms["right_key"], alarms["closest_time"], strict=True)
    ]
    places = np.array([np.mean([track[np.argmin(off)] for track, off in pair], axis=0) for pair in met])
    disc = _disc(axes, places)
    _lines(axes, disc, [line for track in tracks.values() for line in _unbroken(track)], TRACK, 0.5, 0.16)
    for pair, place, sure in zip(met, places, alarms["probability"] >= CERTAIN, strict=True):
        colour, layer = (SURE, 4) if sure else (DOUBTFUL, 3)
        for track, off in pair:
            strength = np.clip(1.0 - off[1:] / AROUND.total_seconds(), 0.0, 1.0)
            _lines(axes, disc, np.stack([track[:-1], track[1:]], axis=1), colour, 1.3, 0.9 * strength, layer)
        axes.add_patch(Circle(place, ring, facecolor=colour, alpha=0.3 if sure else 0.1, linewidth=0, zorder=layer))
        axes.add_patch(Circle(place, ring, fill=False, edgecolor=colour, linewidth=1.4 if sure else 0.9, zorder=layer))


def _lines(axes: Axes, disc: Circle, lines: Any, colour: str, width: float, alpha: Any, layer: int = 2) -> None:
    """Lines within the disc."""
    from matplotlib.collections import LineCollection

    drawn = LineCollection(lines, colors=colour, linewidths=width, alpha=alpha, zorder=layer)
    axes.add_collection(drawn)
    drawn.set_clip_path(disc)


def _unbroken(track: pd.DataFrame) -> list[Floats]:
    """The track in pieces without a gap of more than a minute."""
    breaks = np.flatnonzero(track["at"].diff() > pd.Timedelta(1, "min"))
    return [piece for piece in np.split(track[["x", "y"]].to_numpy(), breaks) if len(piece) > 1]


def _near(track: pd.DataFrame, moment: pd.Timestamp) -> tuple[Floats, Floats]:
    """The places of a track around a moment, and how many seconds from it each is."""
    off = (track["at"] - moment.as_unit("us")).abs()
    near = off <= AROUND
    return track.loc[near, ["x", "y"]].to_numpy(), np.asarray(off[near].dt.total_seconds(), np.float64)


def _disc(axes: Axes, places: Floats) -> Circle:
    """A disc around all places, which fills the axes, with a bar of 50 nautical miles beside it."""
    from matplotlib.patches import Circle

    middle = (places.min(axis=0) + places.max(axis=0)) / 2.0
    radius = float(np.hypot(*(places - middle).T).max()) + EDGE
    disc = Circle((middle[0], middle[1]), radius, facecolor=PANEL, edgecolor=RIM, linewidth=1.0)
    axes.add_patch(disc)
    axes.set_aspect("equal")
    axes.set_xlim(middle[0] - radius * 1.01, middle[0] + radius * 1.01)
    axes.set_ylim(middle[1] - radius * 1.01, middle[1] + radius * 1.01)
    axes.set_axis_off()
    left, bottom = middle - 0.985 * radius
    axes.plot([left, left + 50.0 * MILE], [bottom, bottom], color=FAINT, linewidth=1.5)
    axes.text(left, bottom + 0.025 * radius, "50 nautical miles", color=FAINT, fontsize=8.5)
    return disc


def _ladder(axes: Axes, chance: Floats) -> None:
    """Each alarm a stem as high as it is probable, in order."""
    places = np.arange(len(chance))
    for some, colour in ((chance < CERTAIN, DOUBTFUL), (chance >= CERTAIN, SURE)):
        axes.vlines(places[some], 0.0, chance[some], color=colour, linewidth=1.2, alpha=0.45)
        axes.scatter(places[some], chance[some], color=colour, s=26, zorder=3)
        if some.any():
            axes.text(places[some].mean(), 1.11, f"{some.sum()}", ha="center", fontsize=22, color=colour, weight="bold")
            name = "certain" if colour == SURE else "in doubt"
            axes.text(places[some].mean(), 1.045, name, ha="center", fontsize=10, color=colour)
    axes.set_ylim(0.0, 1.02)
    axes.set_xticks([])
    axes.set_yticks([0.0, 0.5, 1.0], ["0", "0.5", "1"])
    axes.tick_params(colors=FAINT, labelcolor=FAINT, length=0)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(RIM)
    axes.set_xlabel("each alarm, and the probability that it is right", color=FAINT, fontsize=10, labelpad=8)
