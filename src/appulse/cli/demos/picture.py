"""The picture of the weather demo: when and where two airports had the same weather."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from appulse.lab.style import INK, PALETTE, QUIET, style, titled

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw_weather"]

PLACES = {"Newark": (40.6925, -74.1687), "Kennedy": (40.6398, -73.7789), "LaGuardia": (40.7772, -73.8726)}
ZONE = "America/New_York"
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
PAIRS = tuple(combinations(PLACES, 2))
COLOURS = dict(zip(PAIRS, PALETTE, strict=False))
HOURS = 2  # in a cell of the calendar
SUMMER, WINTER, AFTERNOON = (6, 7, 8), (12, 1, 2), (14, 16, 18)


def draw_weather(pairs: pd.DataFrame, reports: pd.DataFrame, file: Path) -> str:
    """Draw the answers of the weather job, given all reports, into a PNG file; the finding in a sentence."""
    from matplotlib.figure import Figure

    pairs = pairs.assign(lag=_hours(pairs["right_time"] - pairs["left_time"]))
    shares = {pair: _shares(pairs, reports, pair) for pair in PAIRS}
    finding = _finding(shares)
    with style():
        figure = Figure(figsize=(13, 9))
        titled(figure, finding, _what(pairs, reports))
        _draw_map(figure.add_axes((0.035, 0.53, 0.27, 0.25)), pairs)
        _draw_lags(figure, pairs)
        _draw_calendars(figure, shares)
        figure.savefig(file)
    return finding


def _hours(span: pd.Series) -> pd.Series:
    hours: pd.Series = (span.dt.total_seconds() / 3600).round().astype(int)
    return hours


def _shares(pairs: pd.DataFrame, reports: pd.DataFrame, pair: tuple[str, str]) -> pd.DataFrame:
    """Of the hours both airports reported in full, the share with the same weather, by month and hour of day."""
    full = reports.dropna()
    times = [set(full.loc[full["airport"] == airport, "time"]) for airport in pair]
    both = pd.Series(sorted(times[0] & times[1]))
    same = _of(pairs, pair)
    at_once = pd.Series(same.loc[same["lag"] == 0, "left_time"])
    return _by_clock(at_once) / _by_clock(both)


def _of(pairs: pd.DataFrame, pair: tuple[str, str]) -> pd.DataFrame:
    return pairs[(pairs["left_stream"] == pair[0]) & (pairs["right_stream"] == pair[1])]


def _by_clock(times: pd.Series) -> pd.DataFrame:
    local = times.dt.tz_convert(ZONE)
    counts = pd.crosstab(local.dt.month, local.dt.hour // HOURS * HOURS)
    return counts.reindex(index=range(1, 13), columns=range(0, 24, HOURS), fill_value=0)


def _finding(shares: dict[tuple[str, str], pd.DataFrame]) -> str:
    share = shares["Newark", "Kennedy"]
    summer, winter = (share.loc[list(months), list(AFTERNOON)].to_numpy().mean() for months in (SUMMER, WINTER))
    return f"The same weather at Newark and Kennedy: {winter:.0%} of winter's afternoon hours, {summer:.0%} of summer's"


def _what(pairs: pd.DataFrame, reports: pd.DataFrame) -> str:
    return (
        f"Of {len(reports):,} hourly reports of 2013, {len(pairs):,} pairs at most 3 hours apart are within 2 units of "
        "each other with probability ≥ 0.8\n"
        "(temperature and dew point in °C, pressure in hPa, each with a measurement error of 0.5)."
    )


def _draw_map(axes: Axes, pairs: pd.DataFrame) -> None:
    counts = {pair: len(_of(pairs, pair)) for pair in PAIRS}
    for pair, count in counts.items():
        (south, west), (north, east) = (PLACES[airport] for airport in pair)
        axes.plot((west, east), (south, north), color=COLOURS[pair], lw=9 * count / max(counts.values()), zorder=1)
        axes.annotate(
            f"{count:,}",
            ((west + east) / 2, (south + north) / 2),
            ha="center",
            va="center",
            fontweight="bold",
            bbox={"boxstyle": "round,pad=0.25", "fc": "white", "ec": COLOURS[pair], "lw": 1.5},
        )
    for airport, (latitude, longitude) in PLACES.items():
        axes.scatter(longitude, latitude, s=90, color="white", edgecolor=INK, linewidth=2, zorder=3)
        above = airport == "LaGuardia"
        axes.annotate(
            airport,
            (longitude, latitude),
            (0, 9 if above else -9),
            textcoords="offset points",
            ha="center",
            va="bottom" if above else "top",
        )
    axes.set_aspect(1 / np.cos(np.radians(40.7)))
    axes.margins(0.15, 0.3)
    axes.axis("off")
    _scale_bar(axes)
    axes.figure.text(0.045, 0.815, "Where: pairs of matching reports", fontsize=12, fontweight="bold")


def _scale_bar(axes: Axes) -> None:
    """Ten kilometres, where there is room."""
    length = 10 / (111.2 * np.cos(np.radians(40.7)))
    west, north = axes.get_xlim()[0] + 0.04, axes.get_ylim()[1] - 0.02
    axes.plot((west, west + length), (north, north), color=QUIET, lw=2)
    axes.text(west + length / 2, north - 0.006, "10 km", ha="center", va="top", color=QUIET, fontsize=9)


def _draw_lags(figure: Figure, pairs: pd.DataFrame) -> None:
    figure.text(0.36, 0.815, "Who is first: LaGuardia more often follows than leads", fontsize=12, fontweight="bold")
    grid = figure.add_gridspec(1, 3, left=0.36, right=0.955, top=0.755, bottom=0.55, wspace=0.12)
    first_axes = None
    for i, pair in enumerate(PAIRS):
        axes = figure.add_subplot(grid[i], sharey=first_axes)
        first_axes = first_axes or axes
        counts = _of(pairs, pair)["lag"].value_counts().reindex(range(-3, 4), fill_value=0)
        axes.bar(counts.index, counts, color=COLOURS[pair], width=0.8)
        axes.set_xticks(range(-3, 4), [f"{lag:+d}" if lag else "0" for lag in range(-3, 4)])
        axes.set_xlabel(f"hours {pair[1]} is after {pair[0]}")
        axes.set_title(f"{pair[0]} and {pair[1]}")
        axes.tick_params(axis="y", length=0, labelleft=i == 0)
        axes.spines["left"].set_visible(False)
        axes.grid(axis="y", color="#e5e7eb", lw=0.8)
        axes.set_axisbelow(True)
        if i == 0:
            axes.set_ylabel("pairs of reports")
            axes.yaxis.set_major_formatter("{x:,.0f}")


def _draw_calendars(figure: Figure, shares: dict[tuple[str, str], pd.DataFrame]) -> None:
    figure.text(0.045, 0.455, "When: the same weather in the same hour", fontsize=12, fontweight="bold")
    grid = figure.add_gridspec(1, 3, left=0.045, right=0.905, top=0.395, bottom=0.065, wspace=0.07)
    image = None
    for i, (pair, share) in enumerate(shares.items()):
        axes = figure.add_subplot(grid[i])
        edges = np.arange(0, 25, HOURS), np.arange(13)
        image = axes.pcolormesh(*edges, share * 100, cmap="viridis", vmin=0, vmax=50, edgecolors="white", lw=0.6)
        axes.set_yticks(np.arange(12) + 0.5, MONTHS if i == 0 else [""] * 12)
        axes.set_xticks(range(0, 25, 6))
        axes.invert_yaxis()
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
        axes.set_xlabel("hour of day in New York")
        axes.set_title(f"{pair[0]} and {pair[1]}")
    if image is not None:
        bar = figure.colorbar(image, cax=figure.add_axes((0.92, 0.065, 0.012, 0.33)), extend="max")
        bar.set_label("% of hours with full reports")
        bar.outline.set_visible(False)
