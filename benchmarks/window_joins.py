"""One join over uncertain windows, as each contestant does it, from the same rows already encoded."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

import appulse as ap
from appulse.engines.join.call import JoinSettings, numbering_of, resolve
from appulse.kernels import poisson_binomial
from appulse.model.encode import encode
from appulse.operators.numbering import END, Released, in_own_window
from appulse.operators.similarity_join import SimilarityJoin
from benchmarks.contestants import all_pairs, all_pairs_by_columns

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from appulse.operators.answers import Answers
    from benchmarks.existence import Tuples

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]
    Clock = Callable[[], float]
    Compare = Callable[..., None]

_CHUNK = 500  # rows of each stream in a push
_TOLERANCE = 1e-9


@dataclass(frozen=True)
class Result:
    """Seconds a tuple, and the answers: rows of both streams, in order, with their probabilities."""

    seconds: float
    left: Ints
    right: Ints
    probability: Floats

    @staticmethod
    def of(seconds: float, left: Ints, right: Ints, probability: Floats) -> Result:
        order = np.lexsort((right, left))
        return Result(seconds, left[order], right[order], probability[order])

    @property
    def pairs(self) -> Ints:
        """Each pair as one number."""
        return (self.left << 32) | self.right

    def agrees(self, other: Result) -> bool:
        """Whether the pairs are the same and the probabilities equal but for rounding."""
        same = np.array_equal(self.pairs, other.pairs)
        return bool(same and np.allclose(self.probability, other.probability, rtol=0.0, atol=1e-9))


@dataclass(frozen=True)
class Join:
    """Two streams that take turns, and what is asked of them."""

    left: Tuples
    right: Tuples
    epsilon: float
    size: int = 500
    confidence: float = 0.95
    probability: float = 0.5

    @property
    def in_space(self) -> bool:
        """Whether samples are points, of shape (n, k, d), and not numbers (n, k)."""
        return self.left.samples.ndim > 2

    def ours(self, index: str = "auto", method: str = "exact", clock: Clock = time.perf_counter) -> Result:
        """The operators: rows are numbered and joined a thousand at a time."""
        value = ap.Samples("samples", names=("x", "y", "z")[: self.left.samples.shape[2]] if self.in_space else None)
        streams = [ap.Stream(None, key="id", time="ts", value=value, existence="p", unit="us") for _ in range(2)]
        tables = [self.left.table(0), self.right.table(1)]
        call = resolve(
            streams,
            [table.schema for table in tables],
            JoinSettings(
                epsilon=self.epsilon,
                probability=self.probability,
                window=ap.UncertainCountWindow(self.size, self.confidence, method),
                on_reject="fail",
                options=ap.Options(index=index),
            ),
        )
        rows = [encode(table, encoding)[0] for table, encoding in zip(tables, call.encodings, strict=True)]
        numbering, join = numbering_of(call), SimilarityJoin(call.plan)
        found: list[Answers] = []
        begun = clock()
        for begin in range(0, max(map(len, rows)), _CHUNK):
            for i, objects in enumerate(rows):
                numbering.hold(i, objects.slice(begin, min(begin + _CHUNK, len(objects))))
            released = [
                Released(i, objects, np.arange(len(objects) + 1), np.zeros(len(objects), np.int64))
                for i, objects in numbering.release(END)
            ]
            numbered = numbering.number(released)
            batches = [
                (part.stream, 0, in_own_window(objects, part.stream))
                for part, objects in zip(released, numbered.objects, strict=True)
            ]
            found.append(join.push(batches, () if numbered.presence is None else (numbered.presence,)))
            join.leave(numbered.floors)
        seconds = clock() - begun
        left = np.concatenate([answers.left_time for answers in found]) // 2
        right = np.concatenate([answers.right_time for answers in found]) // 2
        probability = np.concatenate([answers.probability for answers in found])
        return Result.of(seconds / sum(map(len, rows)), left, right, probability)

    def baseline(self, *, by_columns: bool = False) -> Result:
        """All pairs of samples of every arrival and the other window."""
        own = [stream.samples.reshape(-1) for stream in (self.left, self.right)]
        if not by_columns:
            return self.compared(all_pairs, own, own)
        columns = [np.ascontiguousarray(stream.samples.T).reshape(-1) for stream in (self.left, self.right)]
        return self.compared(all_pairs_by_columns, own, columns)

    def compared(
        self, compare: Compare, own: Sequence[Floats], window: Sequence[Floats], clock: Clock = time.perf_counter
    ) -> Result:
        """By a kernel that gives the match of each pair of an arrival and a row of the other window.

        It reads the samples of each stream's arrivals and rows from arrays of its own. Windows and memberships are
        found by our kernels.
        """
        streams = (self.left, self.right)
        n = [len(stream) for stream in streams]
        threshold = self.probability - _TOLERANCE
        begun = clock()
        floors = [floors_of(stream.exist, self.size, self.confidence) for stream in streams]
        parts = []
        for i, (arrived, other) in enumerate((streams, streams[::-1])):
            # A left row comes just before the right one of its number.
            newest = np.minimum(np.arange(n[i]) - (1 - i), n[1 - i] - 1)
            floor = np.where(newest >= 0, floors[1 - i][newest], 0)
            met = newest + 1 - floor
            probability = np.empty(int(met.sum()))
            compare(
                own[i],
                arrived.exist,
                window[1 - i],
                other.exist,
                arrived.samples.shape[1],
                newest,
                floor,
                self.epsilon + 1e-9 * max(1.0, self.epsilon),
                threshold,
                probability,
            )
            at = np.flatnonzero(probability >= threshold)
            first = np.cumsum(met) - met
            mine = np.searchsorted(first, at, side="right") - 1
            theirs = at - first[mine] + floor[mine]
            probability = probability[at] * memberships(other.exist, self.size, theirs, newest[mine])
            passed = probability >= threshold
            rows = (mine[passed], theirs[passed]) if i == 0 else (theirs[passed], mine[passed])
            parts.append((*rows, probability[passed]))
        left, right, probability = (np.concatenate(part) for part in zip(*parts, strict=True))
        return Result.of((clock() - begun) / sum(n), left, right, probability)


def floors_of(
    exist: Floats,
    size: int,
    confidence: float,
    *,
    least: float = 0.0,
    method: int = poisson_binomial.EXACT,
    most: int = END,
) -> Ints:
    """The oldest live row at each arrival of a stream, one row a tick (Algorithm 1; with ``least`` Algorithm 2)."""
    n = len(exist)
    floor = np.empty(n, np.int64)
    ticks = poisson_binomial.Ticks(np.array([0, n]), np.zeros(1, np.int64), np.ones(n, bool))
    poisson_binomial.evict(ticks, exist, poisson_binomial.CountRule(size, confidence, least, most, method), floor)
    return floor


def memberships(exist: Floats, size: int, row: Ints, newest: Ints, method: int = poisson_binomial.EXACT) -> Floats:
    """Pr(row is in the window | it exists) at the arrival of ``newest``, which may only rise."""
    out = np.empty(len(row))
    asked = poisson_binomial.Questions(np.zeros(len(row), np.int64), row, newest, np.full(len(row), -1))
    poisson_binomial.membership(np.array([0, len(exist)]), exist, size, method, asked, out)
    return out
