"""The claims W1-W11 of Dallachiesa et al. 2015, measured: tables, and pictures of them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np
from fast_poibin.pmf import calc_pmf
from scipy.stats import poisson_binom

from appulse.kernels.absent import absent_pmf
from appulse.kernels.poisson_binomial import EXACT, NORMAL, POISSON, REFINED_NORMAL, curve
from appulse.operators.plan import INDEXES
from appulse.windows.definitions import METHODS
from benchmarks.contestants import (
    cdf_by_approximation,
    cdfs_by_approximation,
    divide_and_conquer,
    dynamic_programming,
    rf1,
)
from benchmarks.existence import DISTRIBUTIONS, SETS, epsilon_for, existence, tuples
from benchmarks.harness import say
from benchmarks.tables import Curves, sweep, write
from benchmarks.window_joins import Join, floors_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

_APPROXIMATIONS = {"Poisson": POISSON, "normal": NORMAL, "refined normal": REFINED_NORMAL}
_INDEX_NAMES = {"auto": "ours, by cost", "grid": "Index-Match", "dense": "ours, no index", "sorted": "Sort-Match"}
_SIZE, _SD = 500, 0.1


def measure(*, quick: bool, folder: Path | None) -> None:
    """Measure the claims one by one, print their tables, and write them to a folder if there is one."""
    runs = 3 if quick else 15
    found: list[Curves] = []
    for part in QUICK if quick else ALL:
        begun = time.perf_counter()
        for curves in part(runs, quick):
            found.append(curves)
            say(curves.markdown())
        say(f"{part.__name__}: {runs} runs, {time.perf_counter() - begun:.1f} s\n")
    if folder is not None:
        size = " of reduced sizes (--quick)" if quick else ""
        head = (
            "# Uncertain windows: figures\n\nWritten by `python -m benchmarks.uncertain_windows --plots FOLDER`: means "
            f"of {runs} runs{size}, with 95 % intervals. Verdicts are in the page on reproduction.\n"
        )
        write(folder, head, found)


def accuracy(runs: int, quick: bool) -> list[Curves]:  # noqa: FBT001 - one signature for all parts
    """W1, Fig. 4: error of the approximations."""
    n = (20, 50, 100, 500, 1000) if quick else (20, 50, 80, 100, 200, 500, 1000)

    def one(distribution: str) -> Callable[[np.random.Generator, int], dict[str, float]]:
        def errors(rng: np.random.Generator, i: int) -> dict[str, float]:
            exist = existence(rng, n[i], _SD, distribution)
            exact = np.cumsum(dynamic_programming(exist))
            apart = {name: cdfs_by_approximation(m, exist) - exact for name, m in _APPROXIMATIONS.items()}
            return {name: float(np.sqrt((d[1:] ** 2).mean())) for name, d in apart.items()}

        return errors

    return [
        Curves(
            f"w1_{distribution}",
            f"W1: error of approximate CDFs, {distribution} existence",
            "n",
            "root mean square error",
            n,
            sweep(n, runs, 1, one(distribution)),
            log=True,
        )
        for distribution in DISTRIBUTIONS
    ]


def cdf_times(runs: int, quick: bool) -> list[Curves]:  # noqa: FBT001
    """W2, Fig. 5: time of one CDF."""
    n = (100, 1000) if quick else (20, 50, 100, 200, 500, 1000, 2000)

    def one(rng: np.random.Generator, i: int) -> dict[str, float]:
        exist = existence(rng, n[i], _SD)
        most = round(0.8 * n[i])
        ways: dict[str, Callable[[], float]] = {
            "RF1": lambda: rf1(exist, most),
            "dynamic programming": lambda: _at_most(dynamic_programming(exist), most),
            "divide and conquer": lambda: _at_most(divide_and_conquer(exist), most),
            "fast-poibin": lambda: _at_most(calc_pmf(exist), most),
            "scipy": lambda: poisson_binom.cdf(most, exist),
            "Poisson": lambda: cdf_by_approximation(POISSON, exist, most),
            "normal": lambda: cdf_by_approximation(NORMAL, exist, most),
            "refined normal": lambda: cdf_by_approximation(REFINED_NORMAL, exist, most),
            "ours": lambda: _by_absence(exist, most),
        }
        answers = {name: float(way()) for name, way in ways.items()}
        for name, answer in answers.items():
            if name not in _APPROXIMATIONS and abs(answer - answers["ours"]) > 1e-9:
                raise RuntimeError(f"the CDF by {name} is {answer}, ours {answers['ours']}")
        return {name: 1e6 * _seconds(way) for name, way in ways.items()}

    return [Curves("w2", "W2: time of one CDF", "n", "microseconds", n, sweep(n, runs, 2, one), log=True)]


def _at_most(pmf: Floats, most: int) -> float:
    return float(pmf[: most + 1].sum())


def _by_absence(exist: Floats, most: int) -> float:
    """Pr(at most ``most`` exist): at least n - most are absent."""
    pmf, low = absent_pmf(exist)
    return float(pmf[max(0, len(exist) - most - low) :].sum())


def _seconds(run: Callable[[], float]) -> float:
    """Of one call: the least of three means, each over calls that take two milliseconds together."""
    least = np.inf
    for _ in range(3):
        calls, begun = 0, time.perf_counter()
        while time.perf_counter() - begun < 0.002:
            run()
            calls += 1
        least = min(least, (time.perf_counter() - begun) / calls)
    return float(least)


def output_accuracy(runs: int, quick: bool) -> list[Curves]:  # noqa: FBT001
    """W3, Figs. 6-8: the join's output under approximate windows."""
    sizes = (20, 80, 200) if quick else (20, 40, 60, 80, 100, 200, 500)

    lines = sweep(sizes, runs, 3, lambda rng, i: _output_accuracy(rng, sizes[i], _SD))
    title = "W3: {} of the join's output under approximate windows"
    return [
        Curves(
            f"w3_{what.lower()}",
            title.format(what),
            "w",
            f"{what}, weighted by the distance of probabilities",
            sizes,
            {name.removeprefix(f"{what} "): line for name, line in lines.items() if name.startswith(what)},
        )
        for what in ("F1", "precision", "recall")
    ]


def output_accuracy_by_sd(runs: int, quick: bool) -> list[Curves]:  # noqa: FBT001, ARG001
    """The claim beside W3, not shown in the paper: above w = 80 the deviation of existence does not matter."""
    deviations = (0.025, 0.05, 0.1, 0.15, 0.2)
    lines = sweep(deviations, runs, 12, lambda rng, i: _output_accuracy(rng, 100, deviations[i]))
    found = {name.removeprefix("F1 "): line for name, line in lines.items() if name.startswith("F1")}
    title = "F1 of the join's output under approximate windows, w = 100"
    what = "F1, weighted by the distance of probabilities"
    return [Curves("f1_by_sd", title, "deviation of existence", what, deviations, found)]


def _output_accuracy(rng: np.random.Generator, size: int, sd: float) -> dict[str, float]:
    """F1, precision and recall over all answers; one that the exact join has not got has no weight."""
    n = 1000 + 2 * size
    left, right = (tuples(rng, "Coffee", n, exist_sd=sd) for _ in range(2))
    join = Join(left, right, epsilon_for(rng, left, right), size)
    exact = join.ours()
    found: dict[str, float] = {}
    for method in METHODS[1:]:
        other = join.ours(method=method)
        _, mine, theirs = np.intersect1d(exact.pairs, other.pairs, return_indices=True)
        weight = (1.0 - np.abs(exact.probability[mine] - other.probability[theirs])).sum()
        precision, recall = weight / len(other.pairs), weight / len(exact.pairs)
        found[f"F1 {method}"] = 2.0 * precision * recall / (precision + recall)
        found[f"precision {method}"], found[f"recall {method}"] = precision, recall
    return found


def sums(runs: int, quick: bool) -> list[Curves]:  # noqa: FBT001
    """W4, Fig. 9: the sum over a window that ignores existence."""
    sizes = (200, 1000) if quick else (200, 400, 600, 800, 1000)
    confidences = (0.5, 0.8, 0.95, 0.99, 1.0)

    def one(rng: np.random.Generator, i: int) -> dict[str, float]:
        size = sizes[i]
        n = 6 * size
        stream = tuples(rng, "Coffee", n)
        total = np.append(0.0, np.cumsum(stream.samples.mean(axis=1)))
        newest = np.arange(4 * size, n)
        regular = total[newest + 1] - total[newest + 1 - size]
        found = {}
        for confidence in confidences:
            floor = floors_of(stream.exist, size, confidence, most=4 * size)[newest]
            apart = 100.0 * np.abs(regular - (total[newest + 1] - total[floor])) / np.abs(regular)
            found[f"mean {confidence}"], found[f"median {confidence}"] = float(apart.mean()), float(np.median(apart))
        return found

    lines = sweep(sizes, runs, 4, one)
    return [
        Curves(
            f"w4_{what}",
            f"W4: sum, regular against uncertain window, {what} over arrivals",
            "w",
            "change in percent, by confidence (1.0: windows capped at 4 w rows)",
            sizes,
            {name.removeprefix(f"{what} "): line for name, line in lines.items() if name.startswith(what)},
            log=True,
        )
        for what in ("mean", "median")
    ]


def _overhead(exist: Floats, size: int, confidence: float, method: int = EXACT, most: int | None = None) -> float:
    """Rows held beyond the size, in percent of it, once the window is full."""
    n = len(exist)
    floor = floors_of(exist, size, confidence, method=method, most=n if most is None else most)
    return 100.0 * (_rows_held(floor) / size - 1.0)


def _rows_held(floor: Ints) -> float:
    """Rows in the window, on average over the second half of a stream."""
    held = np.arange(len(floor)) - floor + 1
    return float(held[len(floor) // 2 :].mean())


def window_by_sd(runs: int, quick: bool) -> list[Curves]:  # noqa: FBT001
    """W5, Fig. 10: rows held, by the deviation of existence."""
    deviations = (0.025, 0.1, 0.25) if quick else (0.025, 0.05, 0.1, 0.15, 0.2, 0.25)

    def one(rng: np.random.Generator, i: int) -> dict[str, float]:
        return {d: _overhead(existence(rng, 6 * _SIZE, deviations[i], d), _SIZE, 0.95) for d in DISTRIBUTIONS}

    title = f"W5: rows held beyond w = {_SIZE}, confidence 0.95"
    what = "percent of w, by the distribution of existence"
    return [Curves("w5", title, "deviation of existence", what, deviations, sweep(deviations, runs, 5, one))]


def window_by_confidence(runs: int, quick: bool) -> list[Curves]:  # noqa: FBT001
    """W6, Fig. 11: rows held, by confidence."""
    confidences = (0.5, 0.98, 1.0) if quick else (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.999, 1.0)
    cap = 5 * _SIZE

    def one(rng: np.random.Generator, i: int) -> dict[str, float]:
        found = {}
        for sd in (0.05, 0.1, 0.15, 0.2):
            exist = existence(rng, 12 * _SIZE, sd)
            found[f"sd {sd}"] = _overhead(exist, _SIZE, confidences[i], most=cap)
            if sd == _SD:
                method = REFINED_NORMAL
                found["sd 0.1, refined normal"] = _overhead(exist, _SIZE, confidences[i], method, cap)
        return found

    title = f"W6: rows held beyond w = {_SIZE}, by confidence"
    what = f"percent of w; windows capped at {cap} rows"
    return [Curves("w6", title, "confidence", what, confidences, sweep(confidences, runs, 6, one), log=True)]


def beta_eviction(runs: int, quick: bool) -> list[Curves]:  # noqa: FBT001
    """W7, Fig. 12: what eviction by the join's threshold saves."""
    confidences = (0.5, 0.95, 0.99) if quick else (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
    thresholds = (0.5, 0.9, 0.99)

    def one(sd: float) -> Callable[[np.random.Generator, int], dict[str, float]]:
        def saved(rng: np.random.Generator, i: int) -> dict[str, float]:
            exist = existence(rng, 6 * _SIZE, sd)
            rows = {
                beta: _rows_held(floors_of(exist, _SIZE, confidences[i], least=beta)) for beta in (0.0, *thresholds)
            }
            return {f"probability {beta}": 100.0 * (1.0 - rows[beta] / rows[0.0]) for beta in thresholds}

        return saved

    return [
        Curves(
            f"w7_{str(sd).replace('.', '')}",
            f"W7: rows that Algorithm 2 saves, w = {_SIZE}, deviation {sd}",
            "confidence",
            "percent of the rows that Algorithm 1 keeps, by the join's probability",
            confidences,
            sweep(confidences, runs, 7, one(sd)),
        )
        for sd in (0.1, 0.25)
    ]


def _times(join: Join) -> dict[str, float]:
    """Microseconds a tuple of each contestant, whose answers agree."""
    results = {"baseline": join.baseline(), "baseline by columns": join.baseline(by_columns=True)}
    results |= {_INDEX_NAMES.get(index, index): join.ours(index) for index in INDEXES}
    for name, result in results.items():
        if not result.agrees(results["baseline"]):
            raise RuntimeError(f"the answers of {name} differ from those of the baseline")
    return {name: 1e6 * result.seconds for name, result in results.items()}


def _join(
    rng: np.random.Generator, name: str, n: int, size: int = _SIZE, samples: int = 10, share: float = 0.01
) -> Join:
    left, right = (tuples(rng, name, n, samples=samples) for _ in range(2))
    return Join(left, right, epsilon_for(rng, left, right, share), size)


def join_by_size(runs: int, quick: bool) -> list[Curves]:  # noqa: FBT001, ARG001
    """W8, Fig. 13: time of the join by window size."""
    sizes = (100, 250, 500, 750, 1000)
    lines = sweep(sizes, runs, 8, lambda rng, i: _times(_join(rng, "Coffee", 1500 + 2 * sizes[i], sizes[i])))
    return [Curves("w8", "W8: time of the join, Coffee", "w", "microseconds a tuple", sizes, lines)]


def join_by_samples(runs: int, quick: bool) -> list[Curves]:  # noqa: FBT001, ARG001
    """W9, Fig. 14: time of the join by the number of samples."""
    samples = (2, 5, 10, 16, 20, 30)
    lines = sweep(samples, runs, 9, lambda rng, i: _times(_join(rng, "Coffee", 2500, samples=samples[i])))
    title = f"W9: time of the join, Coffee, w = {_SIZE}"
    return [Curves("w9", title, "samples a tuple", "microseconds a tuple", samples, lines, log=True)]


def join_by_set(runs: int, quick: bool) -> list[Curves]:  # noqa: FBT001, ARG001
    """W10, Fig. 15: time of the join over the sets."""
    lines = sweep(SETS, runs, 10, lambda rng, i: _times(_join(rng, SETS[i], 2500)))
    title = f"W10: time of the join over the 17 sets, w = {_SIZE}"
    return [Curves("w10", title, "set", "microseconds a tuple", SETS, lines)]


def join_by_share(runs: int, quick: bool) -> list[Curves]:  # noqa: FBT001, ARG001
    """The claim of Sec. 7.4.3: Index-Match falls to the baseline where nothing is pruned, Sort-Match never does."""
    shares = (0.001, 0.01, 0.05, 0.2, 0.5)
    lines = sweep(shares, runs, 13, lambda rng, i: _times(_join(rng, "Coffee", 2000, share=shares[i])))
    title = f"Time of the join by the share of pairs that match, Coffee, w = {_SIZE}"
    return [Curves("join_by_share", title, "share of pairs", "microseconds a tuple", shares, lines, log=True)]


def lost_matches(runs: int, quick: bool) -> list[Curves]:  # noqa: FBT001, ARG001
    """W11, Sec. 7.4: what eviction by confidence loses."""
    confidences = (0.5, 0.8, 0.9, 0.95, 0.99)

    def one(rng: np.random.Generator, i: int) -> dict[str, float]:
        exist = existence(rng, 4 * _SIZE, _SD)
        floor = floors_of(exist, _SIZE, confidences[i])
        worst, lost, all_of_them = 0.0, 0.0, 0.0
        for newest in range(2 * _SIZE, len(exist), 50):
            inside = curve(exist[: newest + 1], _SIZE)
            gone = inside[: floor[newest]]
            worst = max(worst, float(gone.max()))
            lost += float(exist[: floor[newest]] @ gone)
            all_of_them += float(exist[: newest + 1] @ inside)
        return {"worst row": 100.0 * worst, "all rows": 100.0 * lost / all_of_them}

    title = f"W11: chance that a row still in the window has been evicted, w = {_SIZE}"
    lines = sweep(confidences, runs, 11, one)
    return [Curves("w11", title, "confidence", "percent", confidences, lines, log=True)]


QUICK = (
    accuracy,
    cdf_times,
    output_accuracy,
    sums,
    window_by_sd,
    window_by_confidence,
    beta_eviction,
    lost_matches,
)
ALL = (*QUICK, output_accuracy_by_sd, join_by_size, join_by_samples, join_by_set, join_by_share)
