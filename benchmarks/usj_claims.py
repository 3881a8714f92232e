"""The claims U1-U8 of Lian & Chen 2009 (USJ), measured: tables, and pictures of them.

Four data pairs, as in the paper: positions (GPS) and temperatures (sensors), the second stream with radii drawn
uniformly (rU) or from a Gaussian (rG), 100 samples an object; 3 dimensions, windows of 1,000 and alpha 0.5 where
nothing else is said. Epsilon is such that 0.2 % of the pairs of a window are answers at alpha 0.5, fitted anew where
data, dimensions or radii change. Radii are such that object-level pruning takes about 85 %. Answers of all contestants
are compared first. Times are the processor's.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.harness import say
from benchmarks.tables import Curves, Estimate, estimate
from benchmarks.usj import Grid, Question, WoP
from benchmarks.usj_data import Sides, fitted, gps, objects, sensors
from benchmarks.usj_ours import Ours, check, took

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    Matrix = NDArray[np.float64]
    Values = dict[str, list[float]]

W, ALPHA, D, SAMPLES, SHARE = 1_000, 0.5, 3, 100, 0.002
PAIRS = {
    "GPS rU-rU": ("gps", "UU"),
    "GPS rU-rG": ("gps", "UG"),
    "sensor rU-rU": ("sensor", "UU"),
    "sensor rU-rG": ("sensor", "UG"),
}
MICROSECONDS = "microseconds a tick"
ALPHAS = (0.1, 0.3, 0.5, 0.7, 0.9)
_EPSILON_OF_RADIUS = 0.55  # roughly, where 0.2 % of the pairs are answers
_OVERLAP = 0.13  # share of the pairs that object-level pruning is to leave, roughly
_WHOLE = 8_000  # objects in which a track or a series is thinned or stretched
_CHECKED = 300  # ticks whose answers are compared
_FEW = 20  # ticks of the scan, whose cost does not change from tick to tick


@dataclass(frozen=True)
class Scale:
    """How much is measured: ticks of the grid and ours, and runs."""

    ticks: int
    runs: int


@dataclass(frozen=True)
class Setting:
    """Where a figure is measured; the rest is the paper's default."""

    data: str
    d: int = D
    w: int = W
    alpha: float = ALPHA
    radius: float = 0.0  # the largest; 0: fitted, for about 85 % of object-level pruning
    per_tick: int = 1


def sides_of(rng: np.random.Generator, at: Setting, n: int) -> Sides:
    """The objects of a data pair."""
    source, kinds = PAIRS[at.data]
    left, right = (gps if source == "gps" else sensors)(rng, max(n, _WHOLE), at.d)
    radius = at.radius or _radius(rng, (left, right), at)
    return objects(rng, (left[:n], right[:n]), 0.0, radius, SAMPLES, kinds)


def _radius(rng: np.random.Generator, centres: tuple[Matrix, Matrix], at: Setting) -> float:
    """The largest radius at which about 13 % of a window's pairs overlap, once epsilon, half of it, is added."""
    rows = rng.integers(at.w, len(centres[0]) - at.w, 40_000)
    others = rows + rng.integers(1 - at.w, at.w, 40_000)
    apart = np.linalg.norm(centres[0][rows] - centres[1][others], axis=1)
    # Of two radii, uniform in [0, 1], and epsilon.
    return max(1e-4, float(np.quantile(apart / (_EPSILON_OF_RADIUS + rng.random((2, 40_000)).sum(axis=0)), _OVERLAP)))


def question_of(rng: np.random.Generator, sides: Sides, at: Setting) -> Question:
    """The question at a place of a figure."""
    epsilon = fitted(rng, sides, SHARE, ALPHA, within=at.w)
    return Question(max(1e-6, epsilon), at.alpha, at.w, at.per_tick)


def contest(rng: np.random.Generator, at: Setting, ticks: int, *, scan: bool = True) -> dict[str, float]:
    """Times a tick and shares of the pairs; answers are compared."""
    first = -(-at.w // at.per_tick)
    checked = min(ticks, max(1, _CHECKED // at.per_tick))
    sides = sides_of(rng, at, (first + checked + ticks + 2) * at.per_tick)
    question = question_of(rng, sides, at)
    ours, grid = Ours(sides, question), Grid(sides, question)
    ours.push(first + 1)
    grid.fill(0, first)
    answers, found = ours.push(checked), grid.run(first, first + checked)
    check(answers, found.pairs, f"{at.data}, d {at.d}, w {at.w}, alpha {at.alpha}: Grid")
    late, slow = first + checked, WoP(sides, question)
    few = max(1, _FEW * W // (at.w * at.per_tick))
    if scan and slow.run(first, first + few).pairs != {p for p in found.pairs if max(p) < (first + few) * at.per_tick}:
        raise RuntimeError(f"{at}: the scan differs")
    seconds = took(lambda: ours.push(ticks))
    begun = time.process_time()
    measured = grid.run(late, late + ticks)
    grid_seconds, counts = time.process_time() - begun, measured.counts
    joined = counts["joined"]
    figures = {
        "object": (counts["pruned_cells"] + counts["pruned_object"]) / joined,
        "sample": counts["pruned_sample"] / joined,
        "left": counts["refined"] / joined,
        "answers": len(measured.left) / joined,
        "ours": seconds / ticks * 1e6,
        "Grid": grid_seconds / ticks * 1e6,
        "groups": counts["groups"] / (2 * ticks * at.per_tick),
    }
    if scan:
        figures["WoP"] = took(lambda: slow.run(late, late + few)) / few * 1e6
    return figures


def _swept(
    places: Sequence[Setting], scale: Scale, names: Sequence[str], seed: int, *, scan: bool = True
) -> dict[str, list[Estimate]]:
    """Runs at each place, the named figures as lines."""
    lines: dict[str, list[Estimate]] = {name: [] for name in names}
    for at in places:
        runs = [contest(np.random.default_rng([seed, run]), at, scale.ticks, scan=scan) for run in range(scale.runs)]
        for name in names:
            lines[name].append(estimate([run[name] for run in runs]))
    return lines


def pruning(scale: Scale) -> list[Curves]:
    """U1-U3: what object-level and sample-level pruning take, by alpha, on each data pair."""
    found = []
    title = "U1-U3: share of pairs pruned by object, by sample, and left, {}"
    for number, data in enumerate(PAIRS):
        places = [Setting(data, alpha=alpha) for alpha in ALPHAS]
        lines = _swept(places, scale, ("object", "sample", "left", "answers"), 1, scan=False)
        found.append(Curves(f"u1_{number + 1}", title.format(data), "alpha", "share of the pairs", ALPHAS, lines))
    return found


def data_sets(scale: Scale) -> list[Curves]:
    """U4: the scan, the grid and ours on all four data pairs."""
    places = [Setting(data) for data in PAIRS]
    lines = _swept(places, scale, ("WoP", "Grid", "ours"), 4)
    title = "U4: time a tick on the four data pairs"
    return [Curves("u4", title, "data", MICROSECONDS, tuple(PAIRS), lines, log=True)]


def _times(
    name: str, what: str, x: tuple[float, ...], make: Callable[[str, float], Setting], scale: Scale
) -> list[Curves]:
    found = []
    for source, data in (("gps", "GPS rU-rU"), ("sensor", "sensor rU-rU")):
        lines = _swept([make(data, value) for value in x], scale, ("WoP", "Grid", "ours"), 5)
        title = f"{name.upper()}: time a tick by {what}, {data}"
        found.append(Curves(f"{name}_{source}", title, what, MICROSECONDS, x, lines, log=True))
    return found


def by_alpha(scale: Scale) -> list[Curves]:
    """U5."""
    return _times("u5", "alpha", ALPHAS, lambda data, alpha: Setting(data, alpha=alpha), scale)


def by_dimension(scale: Scale) -> list[Curves]:
    """U6."""
    return _times("u6", "dimensions", (2, 3, 4, 5), lambda data, d: Setting(data, d=int(d)), scale)


def by_window(scale: Scale) -> list[Curves]:
    """U7."""
    return _times("u7", "w", (500, 1000, 1500, 2000), lambda data, w: Setting(data, w=int(w)), scale)


def by_radius(scale: Scale) -> list[Curves]:
    """The sweep of radius ranges, which the paper's text lost: pruning as radii grow."""
    radii = (0.01, 0.03, 0.05, 0.1, 0.2)
    found = []
    for source, data in (("gps", "GPS rU-rU"), ("sensor", "sensor rU-rU")):
        places = [Setting(data, radius=radius) for radius in radii]
        lines = _swept(places, scale, ("object", "sample", "left"), 6, scan=False)
        title = f"Radii in [0, r_max]: share of pairs pruned by object, by sample, and left, {data}"
        found.append(Curves(f"radii_{source}", title, "r_max", "share of the pairs", radii, lines))
    return found


def by_batch(scale: Scale) -> list[Curves]:
    """U8: the paper's grid by arrivals a tick, an arrival; and how many of its groups there are."""
    sizes = (1, 10, 100, 1000)
    found = []
    for source, data in (("gps", "GPS rU-rU"), ("sensor", "sensor rU-rU")):
        lines: dict[str, list[Estimate]] = {"Grid": [], "ours": [], "groups an arrival": []}
        for k in sizes:
            ticks = max(2, scale.ticks // k)
            at = Setting(data, per_tick=k)
            runs = [contest(np.random.default_rng([8, run]), at, ticks, scan=False) for run in range(scale.runs)]
            lines["Grid"].append(estimate([run["Grid"] / k for run in runs]))
            lines["ours"].append(estimate([run["ours"] / k for run in runs]))
            lines["groups an arrival"].append(estimate([run["groups"] for run in runs]))
        title = f"U8: time an arrival of both streams, by arrivals a tick, {data}"
        found.append(Curves(f"u8_{source}", title, "arrivals a tick", "microseconds", sizes, lines, log=True))
    return found


PARTS = (pruning, data_sets, by_alpha, by_dimension, by_window, by_radius, by_batch)


def measure(*, quick: bool, folder: Path | None) -> None:
    """Measure the claims one by one, print their tables, and write them to a folder if there is one."""
    scale = Scale(300, 1) if quick else Scale(5_000, 1)
    found: list[Curves] = []
    for part in PARTS:
        begun = time.perf_counter()
        for curves in part(scale):
            found.append(curves)
            say(curves.markdown())
        say(f"{part.__name__}: {time.perf_counter() - begun:.0f} s\n")
        if folder is not None:
            write(folder, found, scale)


def write(folder: Path, found: Sequence[Curves], scale: Scale) -> None:
    """The page ``similarity_join.md`` and its pictures."""
    folder.mkdir(parents=True, exist_ok=True)
    command = "python -m benchmarks.similarity_join --only claims --plots FOLDER"
    head = (
        f"# The similarity join: figures\n\nWritten by `{command}`: {scale.ticks:,} ticks at each place, windows full. "
        "The scan (WoP) takes 20 of them, as each costs it the same. Epsilon is such that 0.2 % of the pairs are "
        "answers at alpha 0.5; times are the processor's. Verdicts are in the page on reproduction.\n"
    )
    parts = [curves.markdown(curves.draw(folder)) for curves in found]
    (folder / "similarity_join.md").write_text("\n".join([head, *parts]), encoding="utf-8")
