"""The similarity join in process, at the operating point of Lian & Chen 2009 (USJ), against other ways to the answers.

100 samples in 3 dimensions, windows of 1,000 objects, one arrival a stream a tick, alpha 0.5; radii and epsilon such
that the paper's object-level pruning takes 80-90 % of the pairs and 0.1-0.5 % are answers. One core; times are the
processor's, in rounds in which contestants take turns, the least of the rounds: what neighbours on the machine take
away is not the contestants'. Windows are full, and answers are compared first. Ours is `ap.SimilarityJoin`, tables in
and tables out, 1,000 ticks a push; `grouped` tells what smaller pushes cost.

* ``vs_scan``: time of the paper's incremental scan without pruning (WoP), compiled, with our SIMD loop over samples, /
  ours. ``vs_stopping_scan``: the same, where a pair's sum ends once the threshold is out of reach. ``vs_grid``: the
  paper's Grid, with both of its prunings.
* ``vs_numpy``, ``vs_duckdb``: NumPy and SciPy tick by tick; DuckDB, all ticks in one statement, on one thread.
* ``w_growth``: our time a tick at windows of 100,000 / of 1,000, as many answers a tick.
* ``op_pruned``, ``answer_share``: shares of the pairs, by the paper's Grid.
* ``bounds_speedup``: time with exact probabilities / with bounds of them; ``bounds_speedup_many`` where 5 % of the
  pairs are answers.
* ``grouped_10, grouped_100, grouped_1000``: time an object, at one arrival a stream a tick / at so many.

With ``--only claims --plots FOLDER`` the claims U1-U8 are measured.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks import usj_claims
from benchmarks.harness import arguments, report, say
from benchmarks.usj import Grid, Question, WoP
from benchmarks.usj_data import Sides, fitted, objects, uniform
from benchmarks.usj_ours import Ours, check, took
from benchmarks.usj_rivals import DuckDB, NumPy

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

SAMPLES, D, W, ALPHA = 100, 3, 1_000, 0.5
SHARE, MANY, MOST_RADIUS = 0.002, 0.05, 0.22
PARTS = ("point", "duckdb", "growth", "bounds", "grouped", "claims")


def point(rng: np.random.Generator, n: int, share: float = SHARE) -> tuple[Sides, Question]:
    """Data of the operating point, and the question: ``n`` objects a stream, a share of whose pairs are answers."""
    sides = objects(rng, (uniform(rng, n, D), uniform(rng, n, D)), 0.0, MOST_RADIUS, SAMPLES)
    return sides, Question(fitted(rng, sides, share, ALPHA), ALPHA, W)


def contest(rng: np.random.Generator, rounds: int, *, with_duckdb: bool) -> dict[str, float]:
    """The figures of the operating point; each round all contestants take the next ticks of the same streams."""
    step, few, least = 1_000, 20, 3
    sides, question = point(rng, W + (rounds + 2) * step + 2)
    stopping = Question(question.epsilon, ALPHA, W, stop=True)
    ours, grid = Ours(sides, question), Grid(sides, question)
    scans = {"scan": WoP(sides, question), "stopping_scan": WoP(sides, stopping)}
    numpy = NumPy(sides, question)
    ours.push(W + 1)
    grid.fill(0, W)
    answers = ours.push(step)  # ticks W to W + step; compiled before the clock runs
    found = grid.run(W, W + step)
    check(answers, found.pairs, "the paper's Grid")
    soon = _before(answers, W + few)
    for name, scan in scans.items():
        check(soon, scan.run(W, W + few).pairs, name)
    check(_before(answers, W + least), _pairs(numpy.run(W, W + least)), "NumPy and SciPy")
    each: dict[str, list[float]] = {name: [] for name in ("ours", "grid", "numpy", *scans)}
    for r in range(rounds):
        tick = W + (r + 1) * step
        each["ours"].append(took(lambda: ours.push(step)) / step)
        for name, scan in scans.items():
            each[name].append(took(lambda scan=scan, tick=tick: scan.run(tick, tick + few)) / few)  # type: ignore[misc]
        each["grid"].append(took(lambda tick=tick: grid.run(tick, tick + step)) / step)  # type: ignore[misc]
        each["numpy"].append(took(lambda tick=tick: numpy.run(tick, tick + least)) / least)  # type: ignore[misc]
    seconds = {name: min(values) for name, values in each.items()}
    if with_duckdb:
        sql = DuckDB(sides, question)
        base = sql.load(W, W + few)
        check(soon, _pairs(sql.run(base, W)), "DuckDB")
        seconds["duckdb"] = min(took(lambda: sql.run(base, W)) for _ in range(3)) / few
    say("microseconds a tick: " + ", ".join(f"{name} {1e6 * value:.1f}" for name, value in seconds.items()))
    say(f"what decided our pairs: {ours.counts()}")
    counts = found.counts
    return {
        **{f"vs_{name}": value / seconds["ours"] for name, value in seconds.items() if name != "ours"},
        "op_pruned": (counts["pruned_cells"] + counts["pruned_object"]) / counts["joined"],
        "answer_share": len(found.left) / counts["joined"],
    }


def alternating(contestants: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """The least seconds of each, taking turns."""
    each: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(rounds):
        for name, call in contestants.items():
            each[name].append(took(call))
    return {name: min(values) for name, values in each.items()}


def bounds_speedup(rng: np.random.Generator, rounds: int, share: float) -> float:
    """Time with exact probabilities over that with bounds of them."""
    step = 500
    sides, question = point(rng, W + (rounds + 1) * step + 2, share)
    joins = {probabilities: Ours(sides, question, probabilities) for probabilities in ("exact", "bounds")}
    for join in joins.values():
        join.push(W + 1)
    exact, bounded = (_told(join.push(step)) for join in joins.values())
    if exact.keys() != bounded.keys():
        raise RuntimeError("with bounds there are other pairs")
    if not all(low - 1e-9 <= exact[pair][0] <= high + 1e-9 for pair, (low, high) in bounded.items()):
        raise RuntimeError("a probability lies outside its bounds")
    say(f"bounds: {len(exact)} pairs, as exactly, the truth inside")
    ratios = []
    for _ in range(rounds):  # the difference is small: each round is compared by itself
        seconds = {name: took(partial(join.push, step)) for name, join in joins.items()}
        ratios.append(seconds["exact"] / seconds["bounds"])
    say(f"bounds: time with exact probabilities / with bounds, round by round: {[round(r, 2) for r in ratios]}")
    return median(ratios)


def _told(answers: pa.Table) -> dict[tuple[int, int], tuple[float, float]]:
    low = answers["probability"].to_pylist()
    high = answers["probability_upper"].to_pylist() if "probability_upper" in answers.schema.names else low
    keys = zip(answers["left_key"].to_pylist(), answers["right_key"].to_pylist(), strict=True)
    return dict(zip(keys, zip(low, high, strict=True), strict=True))


def growth(rng: np.random.Generator, wide: int, rounds: int) -> float:
    """Our time a tick at windows of ``wide`` objects over that at 1,000, as many answers a tick.

    The space grows with the window: first by volume, then so that what the edges keep away is made up for.
    """
    step = 300
    sides, question = point(rng, W + (rounds + 1) * step + 2)
    small = Ours(sides, question)
    small.push(W + 1)
    wanted = len(small.push(step)) / step
    n, stretch = wide + (rounds + 1) * step + 2, (wide / W) ** (1 / 3)
    centres = uniform(rng, n, D) * stretch, uniform(rng, n, D) * stretch
    spread = objects(rng, centres, 0.0, MOST_RADIUS, SAMPLES)
    asked = Question(question.epsilon, ALPHA, wide)
    for _ in range(2):
        large = Ours(spread, asked)
        large.push(wide + 1)
        found = len(large.push(step)) / step
        say(f"growth: {found:.2f} answers a tick at {wide:,} objects, {wanted:.2f} at {W:,}")
        if abs(found / wanted - 1.0) < 0.1:
            break
        more = (found / wanted) ** (1 / 3) - 1.0
        for side, at in zip(spread, centres, strict=True):
            side.samples[...] += more * at[:, :, None]
            np.multiply(at, 1.0 + more, out=at)
    seconds = alternating({"small": lambda: small.push(step), "large": lambda: large.push(step)}, rounds)
    say(", ".join(f"{name} window: {1e6 * value / step:.1f} us a tick" for name, value in seconds.items()))
    say(f"bytes an object held: {_bytes_an_object(large):.0f}; its samples alone take {8 * D * SAMPLES}")
    return seconds["large"] / seconds["small"]


def _bytes_an_object(join: Ours) -> float:
    engine = join.join._engine  # noqa: SLF001
    return 0.0 if engine is None else engine.operator.nbytes / max(1, len(engine.operator))


def grouped(rng: np.random.Generator, *, quick: bool) -> dict[str, float]:
    """Time an object at one arrival a stream a tick over that at many, one push a tick."""
    seconds = {}
    _, question = point(rng, 1_000)
    for per_tick, ticks in ((1, 60), (10, 60), (100, 20), (1000, 3 if quick else 6)):
        n = W + (ticks + 2) * per_tick
        sides = objects(rng, (uniform(rng, n, D), uniform(rng, n, D)), 0.0, MOST_RADIUS, SAMPLES)
        asked = Question(question.epsilon, ALPHA, W, per_tick)
        ours, grid = Ours(sides, asked), Grid(sides, asked)
        first = W // per_tick
        ours.push(first + 1)
        grid.fill(0, first)
        answers = ours.push(1)
        check(answers, grid.run(first, first + 1).pairs, f"the paper's Grid, {per_tick} arrivals a tick")
        seconds[per_tick] = median(took(lambda ours=ours: ours.push(1)) for _ in range(ticks)) / per_tick  # type: ignore[misc]
    say(", ".join(f"{k} a tick: {1e6 * value:.1f} us an object of each stream" for k, value in seconds.items()))
    return {f"grouped_{k}": seconds[1] / seconds[k] for k in (10, 100, 1000)}


def _before(answers: pa.Table, tick: int) -> pa.Table:
    """Answers found before a tick."""
    keys = np.maximum(answers["left_key"].to_numpy(), answers["right_key"].to_numpy())
    return answers.filter(keys < tick)


def _pairs(found: tuple[Any, Any, Any]) -> set[tuple[int, int]]:
    return set(zip(found[0].tolist(), found[1].tolist(), strict=True))


def main() -> None:
    """Run the parts asked for, and report."""
    asked = arguments(__doc__ or "")
    parts = set(asked.only.split(",")) if asked.only else set(PARTS) - {"claims"}
    rng = np.random.default_rng(7)
    figures: dict[str, float] = {}
    if "point" in parts:
        figures |= contest(rng, 5 if asked.quick else 15, with_duckdb="duckdb" in parts)
    if "bounds" in parts:
        figures["bounds_speedup"] = bounds_speedup(rng, 25, SHARE)
        figures["bounds_speedup_many"] = bounds_speedup(rng, 15, MANY)
    if "grouped" in parts:
        figures |= grouped(rng, quick=asked.quick)
    if "growth" in parts:
        figures["w_growth"] = growth(rng, 100_000, 5 if asked.quick else 15)
    if "claims" in parts:
        usj_claims.measure(quick=asked.quick, folder=Path(asked.plots) if asked.plots else None)
    report(figures, as_json=asked.json)


if __name__ == "__main__":
    main()
