"""What it costs to compute a thousandth of the pruned pairs in full."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

import appulse as ap
from benchmarks.harness import say

if TYPE_CHECKING:
    from collections.abc import Callable

_SHARE, _TURNS, _PUSH = 0.001, 15, 5_000
_SAMPLES = 16
_ASKED: dict[str, Any] = {"epsilon": 0.01, "window": 10, "probability": 0.5}


def audits(n: int) -> dict[str, float | None]:
    """The worst ratio of times, and what the audits found."""
    worst, dismissed = 0.0, 0
    for name, given in (("normal rows", _normal(n)), ("samples", _samples(n // 5))):
        for run in (_table, _pushes):
            ratio, found, audited = _compared(partial(run, given))
            way = run.__name__.strip("_")
            say(f"audit of {name}, {way}: {ratio:.3f} of the time, {audited:,} pairs, {found} dismissed wrongly")
            worst, dismissed = max(worst, ratio), dismissed + found
    return {"audit_cost": worst, "false_dismissals": float(dismissed)}


def _compared(run: Callable[[ap.Options], tuple[float, dict[str, int]]]) -> tuple[float, int, int]:
    """The ratio of the least processor times of runs that take turns, which neighbours on the machine change least."""
    audited, plain = ap.Options(audit=_SHARE), ap.Options()
    run(audited), run(plain)
    best = [float("inf")] * 2
    for _ in range(_TURNS):
        took, counts = run(audited)
        best = [min(best[0], took), min(best[1], run(plain)[0])]
    return best[0] / best[1], counts.get("false_dismissals", 0), counts["audited"]


def _table(given: ap.Stream[pa.Table], options: ap.Options) -> tuple[float, dict[str, int]]:
    begun = time.process_time()
    found = ap.self_join(given, options=options, **_ASKED)
    took = time.process_time() - begun
    return took, ap.explain(found).counts


def _pushes(given: ap.Stream[pa.Table], options: ap.Options) -> tuple[float, dict[str, int]]:
    stream = ap.Stream(None, key=given.key, time=given.time, value=given.value)
    join = ap.SimilarityJoin(stream, options=options, **_ASKED)
    begun = time.process_time()
    for first in range(0, len(given.frame), _PUSH):
        join.push(given.frame.slice(first, _PUSH))
    took = time.process_time() - begun
    engine: Any = join._engine  # noqa: SLF001 - pushes explain nothing
    return took, dict(engine.operator.counts)


def _normal(n: int) -> ap.Stream[pa.Table]:
    """Positions with errors in a unit square, over a minute."""
    return ap.Stream(pa.table(_rows(n)), key="k", time="t", value=ap.Gaussian("x", "y", sigma=0.004))


def _samples(n: int) -> ap.Stream[pa.Table]:
    chance, rows = np.random.default_rng(1), _rows(n)
    centre = np.stack([rows.pop("x"), rows.pop("y")], axis=1)[:, None]
    points = (centre + 0.004 * chance.normal(size=(n, _SAMPLES, 2))).reshape(-1)
    pairs = pa.FixedSizeListArray.from_arrays(pa.array(points), 2)
    rows["s"] = pa.ListArray.from_arrays(np.arange(0, n * _SAMPLES + 1, _SAMPLES, dtype=np.int32), pairs)
    return ap.Stream(pa.table(rows), key="k", time="t", value=ap.Samples("s", names=("x", "y")))


def _rows(n: int) -> dict[str, Any]:
    chance = np.random.default_rng(0)
    columns = {"k": np.arange(n), "t": np.sort(chance.random(n) * 60.0)}
    return columns | {"x": chance.random(n), "y": chance.random(n)}
