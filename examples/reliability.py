"""Reliability: what was predicted with a probability against how often it happened."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from appulse.lab.style import INK, PALETTE, QUIET, style, titled

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from matplotlib.axes import Axes
    from numpy.typing import NDArray

__all__ = ["draw_reliability", "reliability"]

_MARKERS = "os^Dv"


def reliability(predicted: NDArray[np.float64], happened: NDArray[np.bool_], bins: int = 10) -> pd.DataFrame:
    """How often what was predicted happened, by bins of the predicted probability; bins without any are left out.

    ``happened`` has a row per simulated world and a column per prediction. Columns: ``predicted`` and ``frequency``,
    means over the bin; ``error``, the standard error of the frequency, from worlds, as those are independent and
    predictions of one world need not be; ``count``, of predictions.
    """
    places = np.minimum((predicted * bins).astype(int), bins - 1)
    rows = []
    for place in np.unique(places):
        inside = places == place
        shares = happened[:, inside].mean(axis=1)
        error = shares.std(ddof=1) / np.sqrt(len(shares))
        rows.append((predicted[inside].mean(), shares.mean(), error, int(inside.sum())))
    return pd.DataFrame(rows, columns=["predicted", "frequency", "error", "count"])


def draw_reliability(lines: Mapping[str, pd.DataFrame], file: Path, *, finding: str, what: str) -> None:
    """Draw several `reliability` tables, by name, and the number of predictions per bin, into an SVG file."""
    with style():
        import matplotlib as mpl
        from matplotlib.figure import Figure

        mpl.rcParams.update({"svg.hashsalt": file.stem, "svg.fonttype": "none"})
        figure = Figure(figsize=(9, 8.2))
        titled(figure, finding, what)
        _draw_lines(figure.add_axes((0.09, 0.32, 0.86, 0.49)), lines)
        _draw_counts(figure.add_axes((0.09, 0.07, 0.86, 0.16)), lines)
        figure.savefig(file, metadata={"Date": None})


def _draw_lines(axes: Axes, lines: Mapping[str, pd.DataFrame]) -> None:
    axes.plot((0, 1), (0, 1), color="#c9ced6", lw=1.2, zorder=0)
    axes.annotate("predicted = happened", (0.97, 0.985), color=QUIET, ha="right", va="center", fontsize=9)
    for i, (name, points) in enumerate(lines.items()):
        axes.errorbar(
            points["predicted"],
            points["frequency"],
            4 * points["error"],
            label=name,
            color=PALETTE[i % len(PALETTE)],
            marker=_MARKERS[i % len(_MARKERS)],
            markersize=6,
            linewidth=1.2,
            capsize=3,
        )
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1)
    axes.set_xlabel("predicted probability, mean of the bin")
    axes.set_ylabel("share of worlds in which it happened")
    axes.legend(loc="upper left", frameon=False, labelcolor=INK)


def _draw_counts(axes: Axes, lines: Mapping[str, pd.DataFrame]) -> None:
    width = 0.03
    for i, points in enumerate(lines.values()):
        bins = np.floor(points["predicted"] * 10).clip(upper=9) / 10 + 0.05
        place = bins + (i - (len(lines) - 1) / 2) * width
        axes.bar(place, points["count"], width=width, color=PALETTE[i % len(PALETTE)])
    axes.set_xlim(0, 1)
    axes.set_xlabel("predicted probability")
    axes.set_ylabel("predictions")
