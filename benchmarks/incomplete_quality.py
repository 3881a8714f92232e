"""How well joins over streams with holes answer: against the pairs of the complete rows, for each way to fill holes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

import appulse as ap
from appulse.imputation.discovery import discovered
from appulse.imputation.repository import Repository
from benchmarks.harness import say
from benchmarks.incomplete_data import all_of, holes
from benchmarks.incomplete_rivals import close_pairs, coded, ignoring, scikit

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

    from appulse.model.filled import Filled
    from benchmarks.incomplete_data import DataSet

    Matrix = NDArray[np.float64]
    Pairs = NDArray[np.int64]  # numbers of pairs, as `coded`, in order

WINDOW = 200  # seconds, so rows of each stream
SHARE = 0.3  # of rows with holes
NEAR = 0.02  # of pairs within epsilon
ALPHA = 0.5
FILLED = ("left_filled", "right_filled")


def joined(
    streams: tuple[ap.Stream, ap.Stream], epsilon: float, alpha: float, imputer: Any, options: Any = None
) -> pa.Table:
    """The join under test; imputers that need whole frames have them."""
    settings: dict[str, Any] = {"epsilon": epsilon, "probability": alpha, "window": ap.TimeWindow(WINDOW)}
    result: pa.Table = ap.similarity_join(*streams, imputer=imputer, options=options, **settings)
    return result


def pairs_of(table: pa.Table) -> Pairs:
    """The pair of each row of a result."""
    return coded(table["left_key"].to_numpy(), table["right_key"].to_numpy())


def f_score(found: Pairs, truth: Pairs) -> float:
    """The harmonic mean of precision and recall."""
    return 2 * int(np.isin(found, truth).sum()) / max(1, len(found) + len(truth))


@dataclass(frozen=True)
class Reliability:
    """Pairs with a filled row in ten bins of probability: the sum of what was told, how many were so, how many."""

    sums: Matrix = field(default_factory=lambda: np.zeros((3, 10)))

    @classmethod
    def of(cls, table: pa.Table, truth: Pairs) -> Reliability:
        """That of a result."""
        lengths = [table[name].combine_chunks().value_lengths().to_numpy(zero_copy_only=False) for name in FILLED]
        filled = np.max(lengths, axis=0) > 0
        told = table["probability"].to_numpy()[filled]
        real = np.isin(pairs_of(table)[filled], truth)
        place = np.minimum((told * 10).astype(int), 9)
        return cls(np.stack([np.bincount(place, by, 10) for by in (told, real, np.ones(len(told)))]))

    def __add__(self, other: Reliability) -> Reliability:
        return Reliability(self.sums + other.sums)

    @property
    def error(self) -> float:
        """Expected calibration error."""
        told, real, pairs = self.sums
        return float(np.abs(told - real).sum() / max(1.0, pairs.sum()))


def contestants(data: DataSet, rules: list[ap.DifferentialDependency], *, joint: bool) -> dict[str, Any]:
    """Imputers by name; where several holes are filled together, the product of editing rules would not end."""
    known = Repository(data.complete)
    bins = dict.fromkeys(data.names, 0.05)
    editing = {name: [other for other in data.names if other != name] for name in data.names}
    return {
        "DD+join": ap.DependencyImputer(known, rules, joint=joint, verified=()),
        "er+join": ap.EditingRules(known, editing, bins, marginal=16 if joint else 256),
        "con+join": ap.SpeedImputer(dict.fromkeys(data.names, 0.05)),
        "mean": ap.MeanImputer(known),
        "zero": ap.ZeroFill(),
        "last value": ap.LastValueImputer(),
        "KNNImputer": scikit("KNNImputer", data.names, data.complete),
        "IterativeImputer": scikit("IterativeImputer", data.names, data.complete),
    }


def holed(data: DataSet, *, quick: bool) -> Iterator[tuple[str, int, list[list[Matrix]]]]:
    """The streams with holes, made or as they came: what there is to tell of them, how many a row has, and draws.

    Runs are few, so that there are more draws of them.
    """
    if data.gaps is not None:
        yield "real gaps", 2, [list(data.gaps)]
        return
    for m, burst in ((1, 1), (1, 20)) if quick else ((1, 1), (1, 20), (2, 1), (2, 20)):
        draws = [
            [holes(part, SHARE, m, 2 * draw + side, burst=burst) for side, part in enumerate((data.left, data.right))]
            for draw in range(1 if burst == 1 else 3)
        ]
        yield f"m={m} burst={burst}", m, draws


def quality(*, quick: bool) -> dict[str, float]:
    """F-scores and calibration on every data set, holes at random and in runs, and gaps as they came."""
    gaps, errors = [], []
    for name, make in all_of(*((1000, 5000) if quick else (3000, 30_000))).items():
        data = make()
        epsilon, repository = data.near(NEAR), Repository(data.complete)
        truth = close_pairs(data.left, data.right, epsilon, WINDOW)
        rules = [one.rule for one in discovered(repository)]
        auto = ap.AutoImputer(repository, rules=rules)
        for what, m, draws in holed(data, quick=quick):
            others = contestants(data, rules, joint=m > 1)
            drawn = [_scores(data, rows, epsilon, truth, others) for rows in draws]
            ours = [_ours(data, rows, epsilon, truth, auto) for rows in draws]
            score = float(np.mean([one[0] for one in ours]))
            scores = {who: float(np.mean([one[who] for one in drawn])) for who in drawn[0]}
            told = sum((one[1] for one in ours), Reliability()).error
            chance = sum((one[2] for one in ours), Reliability()).error
            theirs = ", ".join(f"{who} {of:.3f}" for who, of in scores.items())
            chosen = ", ".join(sorted({who for one in ours for who in one[3]}))
            say(f"{name} {what}: ours {score:.3f} ({chosen}), ECE {told:.3f} (by chance {chance:.3f}); {theirs}")
            gaps.append(score - max(scores.values()))
            errors.append(told)
    return {"f_gap_min": min(gaps), "f_gap_mean": float(np.mean(gaps)), "ece_max": max(errors)}


def _scores(
    data: DataSet, rows: list[Matrix], epsilon: float, truth: Pairs, others: dict[str, Any]
) -> dict[str, float]:
    """F-scores of the others by name."""
    streams = data.streams(rows[0], rows[1])
    found = {who: pairs_of(joined(streams, epsilon, ALPHA, imputer)) for who, imputer in others.items()}
    found["ignore"] = ignoring(rows[0], rows[1], epsilon, WINDOW)
    return {who: f_score(pairs, truth) for who, pairs in found.items()}


def _ours(
    data: DataSet, rows: list[Matrix], epsilon: float, truth: Pairs, auto: ap.AutoImputer
) -> tuple[float, Reliability, Reliability, list[str]]:
    """F-score, calibration, what that would be by chance, and which imputers were chosen."""
    nothing = np.zeros(len(rows[0]), np.int64)
    at = 1_000_000 * np.arange(len(nothing))
    own, names = [], []
    for mine, other in (rows, rows[::-1]):
        own.append(auto.chosen(data.names, mine, at, nothing, {"the other": (other, at)}))
        names.append(auto.best())
    told = joined(data.streams(rows[0], rows[1]), epsilon, 1e-6, dict(zip(("left", "right"), own, strict=True)))
    fills = [one.bind(data.names).fill(part, at, nothing) for one, part in zip(own, rows, strict=True)]
    # What is likely enough is what a join that asks for it has: probabilities are exact.
    likely = told.filter(told["probability"].to_numpy() >= ALPHA - 1e-9)
    return f_score(pairs_of(likely), truth), Reliability.of(told, truth), by_chance(told, fills, epsilon), names


def by_chance(told: pa.Table, fills: Sequence[Filled], epsilon: float) -> Reliability:
    """The calibration there would be were the fills right: the truth is drawn from them, each row once.

    Pairs of one row are right or wrong together, so that few incomplete rows make for a large error.
    """
    chance = np.random.default_rng(0)
    rows = []
    for fill in fills:
        # Gumbel's way to draw one sample of each row by its weight.
        score = np.log(fill.weights) + chance.gumbel(size=len(fill.weights))
        owner = np.repeat(np.arange(len(fill.first) - 1), np.diff(fill.first))
        best = np.lexsort((score, owner))[fill.first[1:] - 1]
        rows.append(fill.rows[best])
    return Reliability.of(told, close_pairs(rows[0], rows[1], epsilon, WINDOW))
