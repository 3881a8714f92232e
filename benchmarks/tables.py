"""Measured curves with their intervals, as tables and pictures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.stats import t as student

from appulse.lab.style import PALETTE, style

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

_MARKERS = "osD^vPX<>"


@dataclass(frozen=True)
class Estimate:
    """The mean of some runs, and half the width of its 95 % interval."""

    mean: float
    half: float

    def __str__(self) -> str:
        return f"{self.mean:.3g} ± {self.half:.1g}" if self.half else f"{self.mean:.3g}"


def estimate(values: Sequence[float]) -> Estimate:
    """The mean of independent runs with its interval by Student's t."""
    n = len(values)
    half = float(student.ppf(0.975, n - 1) * np.std(values, ddof=1) / np.sqrt(n)) if n > 1 else 0.0
    return Estimate(float(np.mean(values)), half)


@dataclass(frozen=True)
class Curves:
    """One figure: lines over common places, each point an `Estimate`."""

    name: str  # of its file
    title: str
    x_name: str
    y_name: str
    x: tuple[float | str, ...]
    lines: dict[str, list[Estimate]]
    log: bool = False

    def markdown(self, picture: str | None = None) -> str:
        """The title, a table with one row for each place, and the picture."""
        lines = [f"### {self.title}", "", f"{self.y_name[0].upper()}{self.y_name[1:]}.", ""]
        lines += [f"| {self.x_name} | {' | '.join(self.lines)} |", "|---" * (len(self.lines) + 1) + "|"]
        for i, x in enumerate(self.x):
            lines.append(f"| {x} | {' | '.join(str(line[i]) for line in self.lines.values())} |")
        return "\n".join([*lines, *(["", f"![{self.title}]({picture})"] if picture else []), ""])

    def draw(self, folder: Path) -> str:
        """Write the picture; returns its name."""
        with style():
            import matplotlib as mpl
            from matplotlib.figure import Figure

            mpl.rcParams.update({"svg.hashsalt": self.name, "svg.fonttype": "none"})
            figure = Figure(figsize=(7.0, 4.0), layout="constrained")
            axes = figure.add_subplot()
            named = isinstance(self.x[0], str)
            places = np.arange(len(self.x)) if named else np.array(self.x, float)
            for i, (name, line) in enumerate(self.lines.items()):
                means, halves = [e.mean for e in line], [e.half for e in line]
                axes.errorbar(
                    places,
                    means,
                    halves,
                    label=name,
                    color=PALETTE[i % len(PALETTE)],
                    marker=_MARKERS[i % len(_MARKERS)],
                    markersize=4,
                    linestyle="none" if named else "-",
                    linewidth=1.2,
                    capsize=2,
                )
            if named:
                axes.set_xticks(places, [str(x) for x in self.x], rotation=60, ha="right")
            if self.log:
                axes.set_yscale("log")
                axes.minorticks_off()
            axes.set(title=self.title, xlabel=self.x_name, ylabel=self.y_name)
            axes.legend(frameon=False, fontsize=8)
            figure.savefig(folder / f"{self.name}.svg", metadata={"Date": None})
        return f"{self.name}.svg"


def sweep(
    x: Sequence[float | str],
    runs: int,
    seed: int,
    one: Callable[[np.random.Generator, int], dict[str, float]],
) -> dict[str, list[Estimate]]:
    """Runs at each place: ``one`` gets a generator and the place's position, and gives each line's value."""
    lines: dict[str, list[Estimate]] = {}
    for i in range(len(x)):
        found = [one(np.random.default_rng([seed, i, run]), i) for run in range(runs)]
        for name in found[0]:
            lines.setdefault(name, []).append(estimate([values[name] for values in found]))
    return lines


def write(folder: Path, head: str, curves: Sequence[Curves]) -> None:
    """The page ``uncertain_windows.md`` and its pictures."""
    folder.mkdir(parents=True, exist_ok=True)
    parts = [curve.markdown(curve.draw(folder)) for curve in curves]
    (folder / "uncertain_windows.md").write_text("\n".join([head, *parts]), encoding="utf-8")
