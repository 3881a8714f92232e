"""Joins over streams with holes: answers against those of the complete rows, and time against other ways.

Figures:

* ``f_gap_min, f_gap_mean``: F-score of the pairs that ``imputer="auto"`` (over the repository) finds, those of the
  complete rows being the truth, less that of the best other contestant: on the worst data set, and on the average.
* ``ece_max``: expected calibration error of our probabilities, of pairs with a filled row, on the worst data set.
* ``vs_dd_scan``: time of DD+join, a scan of a repository of 30,000 rows for every row and then a loop over all pairs of
  instances in the window, compiled, / ours with the same rules and answers.
* ``vs_knn``: time of scikit-learn's KNNImputer and a cKDTree join / ours.
* ``repository_growth``: our cost a row with 1,000,000 rows in the repository / with 10,000, as many matches a row.
* ``spark_of_complete``: rows a second on Spark where a tenth of the rows has a hole / of complete rows.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import appulse as ap
from appulse.imputation.discovery import discovered
from appulse.imputation.repository import Repository
from benchmarks.harness import arguments, read_stream, report, say, scratch, timed, write_stream
from benchmarks.incomplete_data import all_of, correlated, holes, uniform
from benchmarks.incomplete_rivals import ScanImputer, close_pairs, ignoring, scikit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

    from appulse.model.filled import Filled
    from benchmarks.incomplete_data import DataSet

    Matrix = NDArray[np.float64]
    Pairs = set[tuple[int, int]]

PARTS = ("quality", "scan", "knn", "growth", "spark")
WINDOW = 200  # seconds, so rows of each stream
SHARE = 0.3  # of rows with holes
NEAR = 0.02  # of pairs within epsilon
ALPHA = 0.5


def pairs_of(table: pa.Table) -> Pairs:
    """The key pairs of a result."""
    return set(zip(table["left_key"].to_pylist(), table["right_key"].to_pylist(), strict=True))


def f_score(found: Pairs, truth: Pairs) -> float:
    """The harmonic mean of precision and recall."""
    return 2 * len(found & truth) / max(1, len(found) + len(truth))


def joined(
    streams: tuple[ap.Stream, ap.Stream], epsilon: float, alpha: float, imputer: Any, options: Any = None
) -> pa.Table:
    """The join under test; imputers that need whole frames have them."""
    settings: dict[str, Any] = {"epsilon": epsilon, "probability": alpha, "window": ap.TimeWindow(WINDOW)}
    result: pa.Table = ap.similarity_join(*streams, imputer=imputer, options=options, **settings)
    return result


def calibration(table: pa.Table, truth: Pairs) -> float:
    """Expected calibration error in ten bins of probability, of the pairs with a filled row."""
    filled = np.array([bool(a or b) for a, b in zip(*(table[c].to_pylist() for c in _FILLED), strict=True)])
    told = table["probability"].to_numpy()[filled]
    keys = [
        pair for pair, own in zip(zip(*(table[c].to_pylist() for c in _KEYS), strict=True), filled, strict=True) if own
    ]
    real = np.array([pair in truth for pair in keys], float)
    place = np.minimum((told * 10).astype(int), 9)
    sums = [np.bincount(place, weights, 10) for weights in (told, real)]
    return float(np.abs(sums[0] - sums[1]).sum() / max(1, len(told)))


_FILLED, _KEYS = ("left_filled", "right_filled"), ("left_key", "right_key")


def contestants(data: DataSet, rules: list[ap.DifferentialDependency], *, joint: bool) -> dict[str, Callable[[], Any]]:
    """Imputers by name; where several holes are filled together, the product of editing rules would not end."""
    known = Repository(data.complete)
    bins = dict.fromkeys(data.names, 0.05)
    editing = {name: [other for other in data.names if other != name] for name in data.names}
    return {
        "DD+join": lambda: ap.DependencyImputer(known, rules, joint=joint, verified=()),
        "er+join": lambda: ap.EditingRules(known, editing, bins, marginal=16 if joint else 256),
        "con+join": lambda: ap.SpeedImputer(dict.fromkeys(data.names, 0.05)),
        "mean": lambda: ap.MeanImputer(known),
        "zero": ap.ZeroFill,
        "last value": ap.LastValueImputer,
        "KNNImputer": lambda: scikit("KNNImputer", data.names, data.complete),
        "IterativeImputer": lambda: scikit("IterativeImputer", data.names, data.complete),
    }


def holed(data: DataSet, *, quick: bool) -> Iterator[tuple[str, int, list[Matrix]]]:
    """The streams with holes, made or as they came: what there is to tell of them, how many a row has, and rows."""
    if data.gaps is not None:
        yield "real gaps", 2, list(data.gaps)
        return
    for m, burst in ((1, 1), (1, 20)) if quick else ((1, 1), (1, 20), (2, 1), (2, 20)):
        rows = [holes(part, SHARE, m, seed, burst=burst) for seed, part in enumerate((data.left, data.right))]
        yield f"m={m} burst={burst}", m, rows


def quality(*, quick: bool) -> dict[str, float]:
    """F-scores on every data set, holes at random and in runs, and gaps as they came."""
    n, size = (1000, 5000) if quick else (3000, 30_000)
    gaps, errors = [], []
    for name, make in all_of(n, size).items():
        data = make()
        epsilon, repository = data.near(NEAR), Repository(data.complete)
        truth = close_pairs(data.left, data.right, epsilon, WINDOW)
        rules = [one.rule for one in discovered(repository)]
        auto = ap.AutoImputer(repository, rules=rules)
        for what, m, rows in holed(data, quick=quick):
            streams = data.streams(rows[0], rows[1])
            nothing = np.zeros(len(rows[0]), np.int64)
            at = 1_000_000 * np.arange(len(nothing))
            own = [auto.chosen(data.names, part, at, nothing) for part in rows]
            told = joined(streams, epsilon, 1e-6, dict(zip(("left", "right"), own, strict=True)))
            chosen = min(auto.scores, key=lambda who: auto.scores[who].crps)
            fills = [one.bind(data.names).fill(part, at, nothing) for one, part in zip(own, rows, strict=True)]
            # What is likely enough is what a join that asks for it has: probabilities are exact.
            ours, error = f_score(pairs_of(likely(told)), truth), calibration(told, truth)
            scores = {"ignore": f_score(ignoring(rows[0], rows[1], epsilon, WINDOW), truth)}
            for who, imputer in contestants(data, rules, joint=m > 1).items():
                scores[who] = f_score(pairs_of(joined(streams, epsilon, ALPHA, imputer())), truth)
            theirs = ", ".join(f"{who} {score:.3f}" for who, score in scores.items())
            least = chance_error(told, fills, epsilon)
            say(f"{name} {what}: ours {ours:.3f} ({chosen}), ECE {error:.3f} (by chance {least:.3f}); {theirs}")
            gaps.append(ours - max(scores.values()))
            errors.append(error)
    return {"f_gap_min": min(gaps), "f_gap_mean": float(np.mean(gaps)), "ece_max": max(errors)}


def chance_error(told: pa.Table, fills: Sequence[Filled], epsilon: float, draws: int = 5) -> float:
    """The calibration error that would be there were the fills right: the truth is drawn from them, each row once.

    Pairs of one row are right or wrong together, so that few incomplete rows make for a large one.
    """
    chance, errors = np.random.default_rng(0), []
    for _ in range(draws):
        rows = []
        for fill in fills:
            # Gumbel's way to draw one sample of each row by its weight.
            score = np.log(fill.weights) + chance.gumbel(size=len(fill.weights))
            owner = np.repeat(np.arange(len(fill.first) - 1), np.diff(fill.first))
            best = np.lexsort((score, owner))[fill.first[1:] - 1]
            rows.append(fill.rows[best])
        errors.append(calibration(told, close_pairs(rows[0], rows[1], epsilon, WINDOW)))
    return float(np.mean(errors))


def likely(table: pa.Table) -> pa.Table:
    """The answers with a probability of `ALPHA` at least."""
    return table.filter(table["probability"].to_numpy() >= ALPHA - 1e-9)


def seconds(call: Callable[[], Any], times: int = 3) -> float:
    """The least time of some runs."""
    taken = []
    for _ in range(times):
        begun = time.perf_counter()
        call()
        taken.append(time.perf_counter() - begun)
    return min(taken)


def rules_of(data: DataSet, width: float) -> list[ap.DifferentialDependency]:
    """Each attribute by each other, within a width."""
    return [
        ap.DifferentialDependency({by: width}, name, 10.0) for name in data.names for by in data.names if by != name
    ]


def scan(*, quick: bool) -> dict[str, float]:
    """Ours against DD+join, every row with a hole: the same rules, by a scan and a loop over all pairs of instances."""
    data = correlated(200 if quick else 300, 3, 30_000)  # a window full, or more
    imputer = ap.DependencyImputer(data.complete, rules_of(data, 0.01))
    rows = [holes(part, 1.0, 1, seed) for seed, part in enumerate((data.left, data.right))]
    streams, epsilon = data.streams(rows[0], rows[1]), data.near(NEAR)
    slow, plain = ScanImputer(imputer), ap.Options(bounds=frozenset(), index="dense")
    ours = joined(streams, epsilon, ALPHA, imputer)
    begun = time.perf_counter()
    theirs = joined(streams, epsilon, ALPHA, slow, plain)
    other = time.perf_counter() - begun
    if sorted(map(repr, _plain(ours))) != sorted(map(repr, _plain(theirs))):
        raise RuntimeError("DD+join answers otherwise")
    mine = seconds(lambda: joined(streams, epsilon, ALPHA, imputer))
    same = seconds(lambda: joined(streams, epsilon, ALPHA, slow), 1)
    filling = [seconds(lambda: [ap.impute(one, by) for one in streams], 1) for by in (slow, imputer)]  # noqa: B023
    ticks = len(rows[0])
    told = ", ".join(f"{1e6 * one / ticks:.0f}" for one in (mine, same, other, *filling))
    say(f"microseconds a tick: ours, scan + our join, DD+join, the filling of both alone: {told}; {len(ours)} answers")
    return {"vs_dd_scan": other / mine}


def _plain(table: pa.Table) -> list[dict[str, Any]]:
    rows = list(table.drop_columns(list(_FILLED)).to_pylist())
    for row in rows:
        row["probability"] = round(row["probability"], 9)
    return rows


def knn(*, quick: bool) -> dict[str, float]:
    """Ours against KNNImputer and a k-d tree, every row with a hole."""
    data = correlated(1000 if quick else 5000, 3, 30_000)
    imputer = ap.DependencyImputer(data.complete, rules_of(data, 0.01))
    rows = [holes(part, 1.0, 1, seed) for seed, part in enumerate((data.left, data.right))]
    streams, epsilon = data.streams(rows[0], rows[1]), data.near(NEAR)
    fill = scikit("KNNImputer", data.names, data.complete).bind(data.names)
    nothing = np.zeros(len(rows[0]), np.int64)

    def rival() -> Pairs:
        left, right = (fill.fill(part, nothing, nothing).rows for part in rows)
        return close_pairs(left, right, epsilon, WINDOW)

    joined(streams, epsilon, ALPHA, imputer)
    mine, other = seconds(lambda: joined(streams, epsilon, ALPHA, imputer)), seconds(rival, 1)
    ticks = len(rows[0])
    say(f"KNNImputer + cKDTree: {1e6 * other / ticks:.0f} us a tick, ours {1e6 * mine / ticks:.0f}")
    return {"vs_knn": other / mine}


def growth(*, quick: bool) -> dict[str, float]:
    """Our cost a row by the size of the repository, matches held at about 30."""
    cost = {}
    for size in (10_000, 1_000_000):
        data = uniform(5000 if quick else 20_000, 3, size)
        width = 0.5 * (30 / size) ** 0.5
        rules = [ap.DifferentialDependency({"a0": width, "a1": width}, "a2", 10.0)]
        begun = time.perf_counter()
        imputer = ap.DependencyImputer(data.complete, rules)
        say(f"growth: {size:,} rows load in {time.perf_counter() - begun:.1f} s")
        rows = [part.copy() for part in (data.left, data.right)]
        for part in rows:
            part[:, 2] = np.nan
        streams, epsilon = data.streams(rows[0], rows[1]), data.near(0.001)
        joined(streams, epsilon, ALPHA, imputer)
        cost[size] = seconds(lambda: joined(streams, epsilon, ALPHA, imputer))  # noqa: B023 - called at once
        say(f"growth: {size:,} rows, {1e6 * cost[size] / len(rows[0]):.1f} us a tick")
    return {"repository_growth": cost[1_000_000] / cost[10_000]}


def on_spark(*, quick: bool) -> dict[str, float]:
    """Rows a second with a hole in every tenth row, against complete ones."""
    n = 40_000 if quick else 400_000
    data = correlated(n, 3, 30_000)
    epsilon = data.near(0.0005)
    imputer = ap.DependencyImputer(data.complete, rules_of(data, 0.01))
    spark = ap.session(2)
    rate = {}
    try:
        with scratch() as folder:
            for name, share in (("warm", 0.1), ("complete", 0.0), ("holes", 0.1)):
                rows = [holes(part, share, 1, seed) for seed, part in enumerate((data.left, data.right))]
                streams = []
                for side, stream in zip(("left", "right"), data.streams(rows[0], rows[1]), strict=True):
                    path = write_stream(folder / name / side, stream.frame, 4)
                    value = ap.Exact(*data.names) if name == "complete" else stream.value
                    streams.append(replace(stream, frame=read_stream(spark, path), value=value, lateness=1))
                settings: dict[str, Any] = {"epsilon": epsilon, "probability": ALPHA, "window": ap.TimeWindow(WINDOW)}
                if name != "complete":
                    settings["imputer"] = imputer
                run = timed(ap.similarity_join(*streams, **settings), folder / f"{name}-run")
                rate[name] = 2 * n / sum(run.batches[1:]) * (len(run.batches) - 1) / len(run.batches)
                say(f"spark, {name}: {rate[name]:,.0f} rows a second")
    finally:
        spark.stop()
    return {"spark_of_complete": rate["holes"] / rate["complete"]}


def main() -> None:
    """Run the parts, print the figures."""
    given = arguments("Joins over incomplete streams")
    parts = given.only.split(",") if given.only else PARTS
    runs = {"quality": quality, "scan": scan, "knn": knn, "growth": growth, "spark": on_spark}
    figures: dict[str, float] = {}
    if "claims" in parts:
        from benchmarks.ids_claims import measure  # which measures with what is defined here

        measure(Path(given.plots) if given.plots else None, quick=given.quick)
    for part in (part for part in parts if part != "claims"):
        begun = time.perf_counter()
        figures |= runs[part](quick=given.quick)
        say(f"{part}: {time.perf_counter() - begun:.0f} s")
    report(figures, as_json=given.json)


if __name__ == "__main__":
    main()
