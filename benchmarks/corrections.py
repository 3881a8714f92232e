"""Rows that are withdrawn, and rows with few partners, against the join and what would recompute it.

    python -m benchmarks.corrections --quick --json

* ``outliers_of_join``: our time for the rows that have fewer than 3 partners with probability 0.9, over that of the
  join with the same epsilon and window, at a probability of 0.5; the worst of three densities. The rows that are
  reported are those that the pairs of a join down to 1e-12 say, counted up one by one.
* ``withdrawals_of_none``: our time for a join by hand in which a tenth of the rows is withdrawn, a push after they
  came, over that of the same join without withdrawals.
* ``converges``: the share of 10,000 random interleavings of additions and withdrawals, a group each, whose changes add
  up to the join of the rows that stand, in process and on Spark over five starts of a query; the lesser of the two.
* ``audit_cost``: our time for a join with ``Options(audit=0.001)`` over that without: the worst of normal rows and
  samples, as tables and by pushes; ``false_dismissals``: what the audits found.
* ``bursts_of_independent``: our time for a join of rows that exist in bursts, over that of independent rows: the
  worst of uncertain windows of 50, 500 and 1,000 rows.
* ``vs_recompute``: DuckDB joining a window again after each batch of 200 corrections, over our time for the batch. The
  pairs that stand are as many after each.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

import appulse as ap
from benchmarks.audits import audits
from benchmarks.bursts import bursts
from benchmarks.harness import arguments, least, report, say, scratch
from benchmarks.withdrawals import converges, cost, recomputed

if TYPE_CHECKING:
    from numpy.typing import NDArray

FEWER, SURE, LEAST = 3, 0.9, 1e-12


def rows(n: int, seed: int = 0) -> pa.Table:
    """Positions with errors in a unit square, over a minute."""
    chance = np.random.default_rng(seed)
    columns = {"k": np.arange(n), "t": np.sort(chance.random(n) * 60.0)}
    return pa.table(columns | {"x": chance.random(n), "y": chance.random(n)})


def stream(table: pa.Table, sigma: float) -> ap.Stream[pa.Table]:
    """The rows as a stream."""
    return ap.Stream(table, key="k", time="t", value=ap.Gaussian("x", "y", sigma=sigma))


def outliers(n: int) -> dict[str, float | None]:
    """Time over that of the join."""
    worst = 0.0
    for partners in (1.0, 4.0, 16.0):
        # as many partners as that are in the circle and in the window
        epsilon = float(np.sqrt(partners / (np.pi * n / 3.0)))
        asked: dict[str, Any] = {"epsilon": epsilon, "window": 10}
        given = stream(rows(n), epsilon / 5.0)
        few = partial(ap.outliers, given, fewer_than=FEWER, probability=SURE, **asked)
        join = partial(ap.self_join, given, probability=0.5, **asked)
        found = few()
        _compare(found, ap.self_join(given, probability=LEAST, **asked), n)
        ours, plain = least(few, join)
        say(f"{partners:g} partners: {len(found):,} outliers of {n:,} in {ours:.3f} s, the join {plain:.3f} s")
        worst = max(worst, ours / plain)
    return {"outliers_of_join": worst}


def _compare(found: pa.Table, pairs: pa.Table, n: int) -> None:
    """Stop unless the outliers are those that the pairs say."""
    left, right = (np.asarray(pairs[f"{side}_key"]) for side in ("left", "right"))
    chance = np.asarray(pairs["probability"])
    few = _fewer(np.concatenate([left, right]), np.concatenate([chance, chance]), n)
    expected = np.flatnonzero(few >= SURE - 1e-9)
    keys = np.asarray(found["key"])
    order = np.argsort(keys)
    same = keys[order].tolist() == expected.tolist()
    if not (same and np.allclose(np.asarray(found["probability"])[order], few[expected], atol=1e-9)):
        sys.exit("The outliers are not those that the pairs of the join say.")


def _fewer(row: NDArray[np.int64], chance: NDArray[np.float64], n: int) -> NDArray[np.float64]:
    """How likely each row has fewer partners than asked for: by adding one partner of all rows after another."""
    counts = np.zeros((n, FEWER))
    counts[:, 0] = 1.0
    order = np.argsort(row, kind="stable")
    row, chance = row[order], chance[order]
    place = np.arange(len(row)) - np.searchsorted(row, row)
    for turn in range(int(place.max(initial=-1)) + 1):
        at = place == turn
        who, p = row[at], chance[at][:, None]
        more = counts[who] * (1.0 - p)
        more[:, 1:] += counts[who][:, :-1] * p
        counts[who] = more
    total: NDArray[np.float64] = counts.sum(axis=1)
    return total


def main() -> None:
    """Print the figures."""
    asked = arguments((__doc__ or "").splitlines()[0])
    figures = outliers(50_000 if asked.quick else 400_000)
    figures |= cost(100_000 if asked.quick else 400_000) | recomputed(50_000 if asked.quick else 200_000)
    figures |= bursts(20_000 if asked.quick else 100_000)
    figures |= audits(100_000 if asked.quick else 400_000)
    with scratch() as folder:
        figures |= converges(folder)
    report(figures, as_json=asked.json)


if __name__ == "__main__":
    main()
