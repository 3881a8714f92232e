"""Windows that count only tuples that exist: their numbers, the join over them, and both on Spark.

Figures (``vs_`` is peer time / our time, ``of_`` our throughput / the reference's); all numbers are checked first:

* ``vs_rf1``: the eviction tests and the membership of every live row at an arrival, about 1,000 rows live, deviation
  of existence 0.1: the paper's RF1, compiled, once per number / ours.
* ``cost_of_refined_normal``: the same numbers, ours / the refined normal approximation, compiled, over running sums.
* ``curve_100k_of_fast_poibin``: memberships of 100,000 rows at once / one mass function by ``fast-poibin``.
* ``join_vs_baseline_mean, join_vs_baseline_min``: time of comparing all pairs of samples, compiled / ours, over the
  17 UCR sets; window 500, 10 samples, epsilon for about 1 % of all pairs.
* ``spark_of_count_window``: throughput of a join under an uncertain window / under a count window that holds as many
  rows.

Without ``--quick`` the claims W1-W11 are measured, 15 runs each; with it some of them, 3 runs each. ``--plots`` writes
their tables and pictures to a folder.
"""

from __future__ import annotations

import time
from pathlib import Path
from statistics import mean, median
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from fast_poibin.pmf import calc_pmf
from scipy.stats import poisson_binom

import appulse as ap
from appulse.kernels import poisson_binomial
from benchmarks import window_claims
from benchmarks.contestants import divide_and_conquer, questions, slide_by_approximation, slide_by_rf1
from benchmarks.existence import SETS, epsilon_for, existence, tuples
from benchmarks.harness import arguments, pairs_of, read_stream, report, say, scratch, timed, write_stream
from benchmarks.pipeline import EPSILON, gaussian_table
from benchmarks.window_joins import Join, floors_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray
    from pyspark.sql import SparkSession

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]
    Numbers = tuple[Ints, Floats]  # the oldest live row at each arrival, and the memberships of all live rows

SD = 0.1
CONFIDENCE = 0.95
LIVE = 1_000
PARTS = ("numbers", "curve", "join", "spark", "claims")


def size_that_holds(rows: int, sd: float = SD) -> int:
    """The size of an uncertain window that holds about ``rows`` rows."""
    share = 1.0 - np.sqrt(3.0) * sd
    deviation = np.sqrt(rows * (share * (1.0 - share) - sd * sd))
    return int(rows * share - 1.645 * deviation)


def seconds_of(run: Callable[[], Any], repeats: int) -> float:
    """The median of some runs."""
    seconds = []
    for _ in range(repeats):
        begun = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - begun)
    return median(seconds)


def numbers(rng: np.random.Generator, arrivals: int, few: int) -> tuple[float, float]:
    """``vs_rf1`` and ``cost_of_refined_normal``, at arrivals to a window that is full."""
    size = size_that_holds(LIVE)
    exist = existence(rng, 2 * LIVE + arrivals, SD)
    exist = exist[floors_of(exist, size, CONFIDENCE)[2 * LIVE] :]
    begin = len(exist) - arrivals
    room = np.empty(arrivals * 2 * LIVE)

    def ours(end: int) -> Numbers:
        floor = np.empty(end, np.int64)
        window = np.array([0, end])
        ticks = poisson_binomial.Ticks(window, np.array([begin]), np.ones(end, bool))
        rule = poisson_binomial.CountRule(size, CONFIDENCE, 0.0, end, poisson_binomial.EXACT)
        poisson_binomial.evict(ticks, exist[:end], rule, floor)
        floor = floor[begin:]
        out = room[: int((np.arange(begin, end) - floor + 1).sum())]
        where, row, newest = (np.empty(len(out), np.int64) for _ in range(3))
        asked = questions(floor, begin, end, size, where, row, newest, out)
        of, alone, answers = np.zeros(asked, np.int64), np.full(asked, -1), np.empty(asked)
        rows = poisson_binomial.Questions(of, row[:asked], newest[:asked], alone)
        poisson_binomial.membership(window, exist[:end], size, poisson_binomial.EXACT, rows, answers)
        out[where[:asked]] = answers
        return floor, out

    def rf1(end: int) -> Numbers:
        floor = np.empty(end - begin, np.int64)
        return floor, room[: slide_by_rf1(exist, begin, end, size, CONFIDENCE, floor, room)]

    def refined(end: int) -> Numbers:
        floor = np.empty(end - begin, np.int64)
        method = poisson_binomial.REFINED_NORMAL
        return floor, room[: slide_by_approximation(method, exist, begin, end, size, CONFIDENCE, floor, room)]

    end, soon = len(exist), begin + few
    floor, mine = ours(soon)
    mine = mine.copy()
    _check(floor, mine, rf1(soon), begin, 1e-9, "RF1")
    _check(floor, mine, refined(soon), begin, 0.002, "the refined normal")
    each = {
        "ours": seconds_of(lambda: ours(end), 15) / arrivals,
        "RF1": seconds_of(lambda: rf1(soon), 3) / few,
        "refined normal": seconds_of(lambda: refined(end), 45) / arrivals,
    }
    live = len(mine) / few
    told = ", ".join(f"{name} {1e6 * seconds:.1f} us" for name, seconds in each.items())
    say(f"numbers: {live:.0f} rows live for a size of {size}; an arrival takes {told}")
    return each["RF1"] / each["ours"], each["ours"] / each["refined normal"]


def _check(floor: Ints, inside: Floats, theirs: Numbers, begin: int, tolerance: float, who: str) -> None:
    """Compare the arrivals at which both keep the same rows; all of them where the contestant is exact."""
    same = floor == theirs[0]
    if tolerance < 1e-6 and not same.all():
        raise RuntimeError(f"{who} evicts other rows than ours")
    newest = np.arange(begin, begin + len(floor))
    pairs = [
        np.split(values, np.cumsum(newest - floors + 1)[:-1])
        for floors, values in ((floor, inside), (theirs[0], theirs[1]))
    ]
    apart = max(float(np.abs(a - b).max()) for a, b, kept in zip(*pairs, same, strict=True) if kept)
    if apart > tolerance:
        raise RuntimeError(f"memberships of {who} are {apart} from ours")
    say(f"numbers: at {same.sum()} of {len(same)} arrivals the rows of {who}, memberships within {apart:.1e}")


def curve(rng: np.random.Generator, n: int, *, with_scipy: bool) -> float:
    """``curve_100k_of_fast_poibin``, and what the others take."""
    exist = existence(rng, n, SD)
    size = size_that_holds(n)
    mine = poisson_binomial.curve(exist, size)
    cdf = np.cumsum(calc_pmf(exist[1:]))
    apart = abs(mine[0] - cdf[size - 1])
    if apart > 1e-9:
        raise RuntimeError(f"the oldest row's membership is {apart} from that by fast-poibin")
    others = {"ours": lambda: poisson_binomial.curve(exist, size), "fast-poibin": lambda: calc_pmf(exist)}
    seconds = {name: seconds_of(run, 7) for name, run in others.items()}
    seconds["divide and conquer"] = seconds_of(lambda: divide_and_conquer(exist), 3)
    if with_scipy:
        seconds["scipy.stats.poisson_binom"] = seconds_of(lambda: poisson_binom.cdf(size - 1, exist), 1)
    told = ", ".join(f"{name} {1e3 * each:.1f} ms" for name, each in seconds.items())
    say(f"curve of {n} rows (others: one mass function): {told}; {apart:.1e} apart")
    return seconds["ours"] / seconds["fast-poibin"]


def joins(rng: np.random.Generator, n: int, repeats: int) -> list[float]:
    """Time of the baseline over ours, for each of the sets."""
    ratios: list[float] = []
    for name in SETS:
        left, right = tuples(rng, name, n), tuples(rng, name, n)
        join = Join(left, right, epsilon_for(rng, left, right))
        if not ratios:  # compiled before the clock runs
            join.baseline()
            join.baseline(by_columns=True)
            join.ours()
        runs = [(join.baseline(), join.ours()) for _ in range(repeats)]
        if not all(theirs.agrees(mine) for theirs, mine in runs):
            raise RuntimeError(f"{name}: answers differ from those of the baseline")
        theirs, mine = (median(run[who].seconds for run in runs) for who in (0, 1))
        columns = join.baseline(by_columns=True)
        if not columns.agrees(runs[0][1]):
            raise RuntimeError(f"{name}: answers differ from those of the baseline by columns")
        ratios.append(theirs / mine)
        say(
            f"join, {name}: us a tuple: baseline {1e6 * theirs:.1f}, by columns {1e6 * columns.seconds:.1f}, "
            f"ours {1e6 * mine:.1f}; {len(columns.left) / (2 * n):.1f} identical answers a tuple"
        )
    return ratios


def of_count_window(spark: SparkSession, folder: Path, n: int, rows: int, repeats: int) -> float:
    """Our throughput under an uncertain window over that under a count window of as many rows; medians."""
    rng = np.random.default_rng(29)
    tables = [gaussian_table(rng, n, i * n).append_column("p", pa.array(existence(rng, n, SD))) for i in range(2)]
    paths = [write_stream(folder / str(i), table, 4) for i, table in enumerate(tables)]
    windows: dict[str, ap.UncertainCountWindow | ap.CountWindow] = {
        "uncertain": ap.UncertainCountWindow(size_that_holds(rows), CONFIDENCE),
        "count": ap.CountWindow(rows),
    }
    settings: dict[str, Any] = {"epsilon": EPSILON, "probability": 0.4}
    seconds: dict[str, list[float]] = {who: [] for who in windows}
    for repeat in range(repeats):
        for who, window in windows.items():
            streams = [_stream(read_stream(spark, path)) for path in paths]
            run = timed(ap.similarity_join(*streams, window=window, **settings), folder / f"{who}{repeat}")
            seconds[who].append(run.seconds)
            say(f"spark, {who} window: {run.seconds:.1f} s, batches {[round(b, 2) for b in run.batches]}")
            if repeat == 0:
                join = ap.SimilarityJoin(_stream(None), _stream(None), window=window, **settings)
                answers = join.push(left=tables[0], right=tables[1])
                wanted = set(zip(answers["left_key"].to_pylist(), answers["right_key"].to_pylist(), strict=True))
                if pairs_of(spark, run.out, "left_key", "right_key") != wanted:
                    raise RuntimeError(f"the pairs of the {who} window on Spark are not those in process")
                say(f"spark, {who} window: {len(wanted)} pairs, as in process")
    return median(seconds["count"]) / median(seconds["uncertain"])


def _stream(frame: Any) -> ap.Stream:
    return ap.Stream(frame, key="id", time="ts", value=ap.Gaussian("x", "y", sigma="sigma"), existence="p")


def main() -> None:
    """Run the parts asked for, and report."""
    asked = arguments(__doc__ or "")
    quick = asked.quick
    parts = set(asked.only.split(",")) if asked.only else set(PARTS)
    rng = np.random.default_rng(31)
    figures: dict[str, float] = {}
    if "numbers" in parts:
        figures["vs_rf1"], figures["cost_of_refined_normal"] = numbers(rng, 2_000, 10 if quick else 50)
    if "curve" in parts:
        curve(rng, 10_000, with_scipy=True)
        figures["curve_100k_of_fast_poibin"] = curve(rng, 100_000, with_scipy=not quick)
    if "join" in parts:
        ratios = joins(rng, 2_500 if quick else 8_000, 3)
        figures["join_vs_baseline_mean"], figures["join_vs_baseline_min"] = mean(ratios), min(ratios)
    if "spark" in parts:
        spark = ap.session(2)
        with scratch() as folder:
            of_count_window(spark, folder / "warm-up", 5_000, 4_000, 1)
            figures["spark_of_count_window"] = of_count_window(
                spark, folder / "spark", 200_000 if quick else 400_000, 4_000, 2 if quick else 3
            )
    if "claims" in parts:
        window_claims.measure(quick=quick, folder=Path(asked.plots) if asked.plots else None)
    report(figures, as_json=asked.json)


if __name__ == "__main__":
    main()
