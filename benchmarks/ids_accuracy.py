"""How well Join-iDS fills and joins (Ren et al. 2019, claims I1, on levels and on sparse repositories), measured."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

import appulse as ap
from appulse.imputation.discovery import discovered
from appulse.imputation.repository import Repository
from appulse.imputation.scores import mask, scored
from benchmarks.ids_data import all_of, imputer_of
from benchmarks.incomplete_data import holes
from benchmarks.incomplete_quality import ALPHA, NEAR, WINDOW, contestants, f_score, joined, pairs_of
from benchmarks.incomplete_rivals import close_pairs, ignoring
from benchmarks.tables import Curves, Estimate, estimate
from examples.data_folder import data_at

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from benchmarks.incomplete_data import DataSet

    Matrix = NDArray[np.float64]

#: Who joins, by the names of `contestants`, and what the tables call them.
_WHO = {
    "DD+join": "Join-iDS = DD+join",
    "er+join": "er+join",
    "con+join": "con+join",
    "mean": "mean",
    "zero": "zero",
    "auto": 'ours, imputer="auto"',
}


def levels(*, quick: bool) -> list[Curves]:
    """IDS-C-level: what combinations of 1, 2, 3 rules fill in, and for how many rows they do."""
    n = 500 if quick else 3000
    found = []
    for name in ("correlated", "weather", "air"):
        if name != "correlated" and not data_at().is_dir():
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
    matched = np.array([imputer.describe(int(one)) != "marginal" for one in way])
    return float(np.diff(filled.first)[matched].mean()), float(matched.mean())


def sparse(*, quick: bool) -> list[Curves]:
    """IDS-C-sparse: accuracy over small repositories; equality on bins (er) beside it."""
    sizes = (100, 1000, 10_000) if quick else (100, 300, 1000, 3000, 10_000, 30_000)
    found = []
    for name in ("correlated", "weather"):
        if name != "correlated" and not data_at().is_dir():
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


def accuracy(*, quick: bool) -> list[Callable[[], list[Curves]]]:
    """I1 by data set, each to be measured."""
    return [partial(_accuracy, name, quick=quick) for name in all_of(1, 4, 1)]


def _accuracy(name: str, *, quick: bool) -> list[Curves]:
    """F-scores of joined pairs by the number of missing attributes, the truth being the join of complete rows.

    Rules are discovered on the repository. Several holes of a row are filled together by dependencies: the product of
    hundreds of values each would not end.
    """
    n, known = (300, 1000) if quick else (800, 3000)
    data = all_of(n, 4, known)[name]()
    epsilon, complete, repository = data.near(NEAR), (data.left[:n], data.right[:n]), Repository(data.complete)
    truth, rules = close_pairs(*complete, epsilon, WINDOW), [one.rule for one in discovered(repository)]
    auto = ap.AutoImputer(repository, rules=rules)
    missing, draws = ((1, 2), 1) if quick else ((1, 2, 3), 3)
    lines: dict[str, list[Estimate]] = {}
    for m in missing:
        imputers = contestants(data, rules, joint=m > 1) | {"auto": auto}
        scores: dict[str, list[float]] = {}
        for draw in range(draws):
            rows = [holes(part, 0.3, m, 2 * draw + side) for side, part in enumerate(complete)]
            streams = data.streams(rows[0], rows[1])
            scores.setdefault("ignore", []).append(f_score(ignoring(rows[0], rows[1], epsilon, WINDOW), truth))
            for who, told in _WHO.items():
                score = f_score(pairs_of(joined(streams, epsilon, ALPHA, imputers[who])), truth)
                scores.setdefault(told, []).append(score)
        for who, found in scores.items():
            lines.setdefault(who, []).append(estimate(found))
    title = f"I1: F-score of joined pairs, {name}, 4 attributes, holes in 30 % of {n} rows a stream"
    return [Curves(f"i1_{name}", title, "missing", "F-score", missing, lines)]
