"""What a user would write today for the join of USJ: NumPy with SciPy tick by tick, and DuckDB in one statement."""

from __future__ import annotations

from typing import TYPE_CHECKING

import duckdb
import numpy as np
import pyarrow as pa
from scipy.spatial.distance import cdist

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from benchmarks.usj import Question
    from benchmarks.usj_data import Sides

Pairs = tuple["NDArray[np.int64]", "NDArray[np.int64]", "NDArray[np.float64]"]


class NumPy:
    """Each arrival against the other window: far centres ruled out, the samples of the rest by `cdist`."""

    def __init__(self, sides: Sides, question: Question) -> None:
        self.question = question
        # A window of rows in time is a slice, so what NumPy likes best.
        self.samples = [np.ascontiguousarray(s.samples.transpose(0, 2, 1)) for s in sides]
        self.centre = [s.mean(axis=1) for s in self.samples]
        self.radius = [
            np.linalg.norm(s - c[:, None], axis=2).max(axis=1) for s, c in zip(self.samples, self.centre, strict=True)
        ]

    def run(self, first: int, last: int) -> Pairs:
        """The pairs that enter the answer at the ticks ``first`` to ``last``, and their probabilities."""
        q, found = self.question, []
        for tick in range(first, last):
            begin, end = tick * q.per_tick, (tick + 1) * q.per_tick
            floor = max(0, end - q.w)
            for side in range(2):
                before = end if side == 0 else max(begin, floor)  # a pair of one tick is found from the left
                found += [self._probe(side, own, floor, before) for own in range(max(begin, floor), end)]
        left, right, probability = (np.concatenate(column) for column in zip(*found, strict=True))
        return left, right, probability

    def _probe(self, side: int, own: int, floor: int, end: int) -> Pairs:
        q, other = self.question, 1 - side
        apart = np.linalg.norm(self.centre[other][floor:end] - self.centre[side][own], axis=1)
        reach = q.limit + self.radius[side][own] + self.radius[other][floor:end]
        near = np.flatnonzero(apart <= reach * (1.0 + 1e-12)) + floor
        m = self.samples[side].shape[1]
        close = cdist(self.samples[side][own], self.samples[other][near].reshape(-1, self.samples[side].shape[2]))
        probability = (close <= q.limit).sum(axis=0).reshape(-1, m).sum(axis=1) / (m * m)
        passed = probability >= q.alpha - 1e-9
        near, own_column = near[passed], np.full(int(passed.sum()), own)
        pair = (own_column, near) if side == 0 else (near, own_column)
        return *pair, probability[passed]


STATEMENT = """
with
    centres as (
        select side, number, {means}, count(*) as samples from samples group by side, number
    ),
    balls as (
        select s.side, s.number, {first_means}, any_value(c.samples) as samples, max(sqrt({own_gap})) as radius
        from samples s join centres c using (side, number) group by s.side, s.number
    ),
    near as (
        select l.number as left_number, r.number as right_number, l.samples * r.samples as all_pairs
        from balls l join balls r
            on l.side = 0 and r.side = 1
            and abs(l.number - r.number) < $w and greatest(l.number, r.number) >= $first
            and {centre_gap} <= ($limit_d + l.radius + r.radius) ** 2 * (1 + 1e-12)
    )
select n.left_number, n.right_number, count(*) / any_value(n.all_pairs) as probability
from near n
    join samples x on x.side = 0 and x.number = n.left_number
    join samples y on y.side = 1 and y.number = n.right_number
where {sample_gap} <= $limit_d * $limit_d
group by n.left_number, n.right_number
having count(*) >= ($alpha - 1e-9) * any_value(n.all_pairs)
"""


class DuckDB:
    """The whole run in one statement: far centres ruled out, then samples joined and counted. One thread.

    One arrival a stream a tick, so that two rows share their windows iff their numbers differ by less than w.
    """

    def __init__(self, sides: Sides, question: Question) -> None:
        self.question, self.sides, d = question, sides, sides[0].d
        axes = range(d)

        def gap(a: str, b: str, x: str, y: str) -> str:
            return " + ".join(f"({a}.{x}{k} - {b}.{y}{k}) ** 2" for k in axes)

        self.statement = STATEMENT.format(
            means=", ".join(f"avg(x{k}) as c{k}" for k in axes),
            first_means=", ".join(f"any_value(c.c{k}) as c{k}" for k in axes),
            own_gap=gap("s", "c", "x", "c"),
            centre_gap=gap("l", "r", "c", "c"),
            sample_gap=gap("x", "y", "x", "x"),
        )

    def load(self, first: int, last: int) -> duckdb.DuckDBPyConnection:
        """A database with the rows that the ticks ``first`` to ``last`` see."""
        base = duckdb.connect(config={"threads": 1})
        floor, parts = max(0, first - self.question.w + 1), []
        for side, stream in enumerate(self.sides):
            kept = stream.samples[floor:last]
            n, d, m = kept.shape
            columns = {f"x{k}": np.ascontiguousarray(kept[:, k]).ravel() for k in range(d)}
            parts.append(
                pa.table({"side": np.full(n * m, side), "number": np.repeat(np.arange(floor, last), m)} | columns)
            )
        base.register("given", pa.concat_tables(parts))
        base.execute("create table samples as from given")
        return base

    def run(self, base: duckdb.DuckDBPyConnection, first: int) -> Pairs:
        """The pairs that enter the answer from the tick ``first`` on."""
        q = self.question
        given = {"w": q.w, "first": first, "limit_d": q.limit, "alpha": q.alpha}
        found = base.execute(self.statement, given).fetchnumpy()
        names = ("left_number", "right_number", "probability")
        left, right, probability = (np.asarray(found[name]) for name in names)
        return left, right, probability
