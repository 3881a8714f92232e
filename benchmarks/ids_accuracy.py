"""How well Join-iDS fills and joins (Ren et al. 2019, claims I1, on levels and on sparse repositories), measured."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

import appulse as ap
from appulse.imputation.scores import mask, scored
from benchmarks import incomplete_data as data_sets
from benchmarks.ids_claims import all_of, imputer_of
from benchmarks.incomplete_data import holes
from benchmarks.incomplete_quality import NEAR, contestants, f_score, joined, pairs_of
from benchmarks.incomplete_rivals import close_pairs, ignoring
from benchmarks.tables import Curves, Estimate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from benchmarks.incomplete_data import DataSet

    Matrix = NDArray[np.float64]


def levels(*, quick: bool) -> list[Curves]:
    """IDS-C-level: what combinations of 1, 2, 3 rules fill in, and for how many rows they do."""
    n = 500 if quick else 3000
    found = []
    for name in ("correlated", "weather", "air"):
        if name != "correlated" and not data_sets.DATA.is_dir():
            continue
        data = all_of(n, 4, 30_000 if name != "air" else 5000)[name]()
        masked = mask(data.left, 1.0, 1, 0)
        lines: dict[str, list[Estimate]] = {"CRPS (deviations)": [], "values a hole": [], "rows with a match": []}
        for level in (1, 2, 3):
            imputers = _of_level(data, level)
            every = [scored(one, data.names, data.left, masked).crps for one in imputers]
            sizes, matched = zip(*(_sizes(one, data, masked) for one in imputers), strict=True)
            for told, value in zip(lines, (np.mean(every), np.mean(sizes), np.mean(matched)), strict=True):
                lines[told].append(Estimate(float(value), 0.0))
        title = f"Levels of the lattice, {name}: accuracy, cost and reach of combined rules"
        found.append(Curves(f"ids_levels_{name}", title, "rules combined", "as named", (1, 2, 3), lines))
    return found


def _of_level(data: DataSet, level: int) -> list[ap.DependencyImputer]:
    """Imputers with one rule for each attribute, of ``level`` determinants: as many as there are of them."""
    names, found = data.names, []
    for shift in range(3 if level < 3 else 1):
        rules = []
        for name in names:
            others = [other for other in names if other != name]
            rules.append(ap.DifferentialDependency({others[(shift + k) % 3]: 0.02 for k in range(level)}, name, 10.0))
        found.append(ap.DependencyImputer(data.complete, rules, verified=()))
    return found


def _sizes(imputer: ap.DependencyImputer, data: DataSet, masked: Matrix) -> tuple[float, float]:
    """Values of a hole, and the share of holes with a match."""
    nothing = np.zeros(len(masked), np.int64)
    filled = imputer.bind(data.names).fill(masked, nothing, nothing)
    way = filled.way[np.isnan(masked)]
    matched = np.array([imputer.told(int(one)) != "marginal" for one in way])
    return float(np.diff(filled.first)[matched].mean()), float(matched.mean())


def sparse(*, quick: bool) -> list[Curves]:
    """IDS-C-sparse: accuracy over small repositories; equality on bins (er) beside it."""
    sizes = (100, 1000, 10_000) if quick else (100, 300, 1000, 3000, 10_000, 30_000)
    found = []
    for name in ("correlated", "weather"):
        if name != "correlated" and not data_sets.DATA.is_dir():
            continue
        data = all_of(1000, 4, 30_000)[name]()
        masked = mask(data.left, 1.0, 1, 0)
        lines: dict[str, list[Estimate]] = {"dependencies": [], "editing rules": [], "mean": []}
        for size in sizes:
            step = -(-len(data.repository) // size)
            few = replace(data, repository=data.repository[::step])
            by = {one: [other for other in data.names if other != one] for one in data.names}
            for who, imputer in (
                ("dependencies", imputer_of(few, 0.05)),
                ("editing rules", ap.EditingRules(few.complete, by, dict.fromkeys(data.names, 0.05))),
                ("mean", ap.MeanImputer(few.complete)),
            ):
                lines[who].append(Estimate(scored(imputer, data.names, data.left, masked).crps, 0.0))
        title = f"Sparse repositories, {name}: error of fills"
        found.append(Curves(f"ids_sparse_{name}", title, "rows in the repository", "CRPS (deviations)", sizes, lines))
    return found


def accuracy(*, quick: bool) -> Iterator[Curves]:
    """I1: F-scores of joined pairs, the truth being the join of complete rows, by attributes missing."""
    n, window = (300, 200) if quick else (800, 200)
    for m in (1,) if quick else (1, 2, 3):
        names: list[str] = []
        lines: dict[str, list[Estimate]] = {}
        for name, make in all_of(n, 4, 5000 if quick else 10_000).items():
            data = make()
            epsilon, rows = data.near(NEAR), [holes(p, 0.3, m, seed) for seed, p in enumerate((data.left, data.right))]
            truth, streams = close_pairs(data.left, data.right, epsilon, window), data.streams(rows[0], rows[1])
            known = contestants(data, list(imputer_of(data, 0.05).rules), joint=m > 1)
            scores = {"ignore": f_score(ignoring(rows[0], rows[1], epsilon, window), truth)}
            for who in ("DD+join", "er+join", "con+join", "mean", "zero"):
                scores[who] = f_score(pairs_of(joined(streams, epsilon, 0.5, known[who])), truth)
            names.append(name)
            for who, score in scores.items():
                lines.setdefault("Join-iDS = DD+join" if who == "DD+join" else who, []).append(Estimate(score, 0.0))
        title = f"I1: F-score of joined pairs, {m} of up to 4 attributes missing in 30 % of the rows"
        yield Curves(f"i1_{m}", title, "data", "F-score", tuple(names), lines)
