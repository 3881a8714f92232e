"""Sets of queries that change while a thread makes them smaller: at each moment they answer as queries by name do."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appulse.queries import index, sets
from appulse.queries.rows import Rows
from appulse.queries.sets import QuerySet

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TYPES = {"x": pa.int64(), "y": pa.int64()}
POINTS = [(x, y, t) for x in (-2, 0, 3, None) for y in (0, 2, None) for t in (0, 5)]
# What a query may ask, as text and in Python: one box, several, and boxes that do not say it all.
KINDS: dict[str, Callable[[int, int, int], bool]] = {
    "x > {}": lambda x, _, k: x > k,
    "x > {0} OR y < {0}": lambda x, y, k: x > k or y < k,
    "x - y > {} AND x > -9": lambda x, y, k: x - y > k,
    "y = {}": lambda _, y, k: y == k,
}


class _Job(Future[Any]):
    """Work that is done when somebody wants it, or when it gets its turn."""

    def __init__(self, work: Callable[[], Any]) -> None:
        super().__init__()
        self._work = work

    def run(self) -> None:
        if not self.done():
            try:
                self.set_result(self._work())
            except RuntimeError as error:
                self.set_exception(error)

    def result(self, timeout: float | None = None) -> Any:
        self.run()
        return super().result(timeout)


class _ByHand:
    """What stands in for the thread: its work is done when the test says so."""

    def __init__(self) -> None:
        self.jobs: list[_Job] = []
        self.fails = False

    def submit(self, work: Callable[..., Any], *given_to: Any) -> _Job:
        def fail() -> None:
            raise RuntimeError("no memory")

        self.jobs.append(_Job(fail if self.fails else partial(work, *given_to)))
        return self.jobs[-1]


@dataclass(frozen=True)
class _Query:
    kind: str
    bound: int
    until: int

    def holds(self, x: int | None, y: int | None, time: int) -> bool:
        """By three-valued logic: what is unknown does not hold."""
        if time > self.until:
            return False
        if "OR" in self.kind:
            return (x is not None and x > self.bound) or (y is not None and y < self.bound)
        needed = [x] * ("x" in self.kind) + [y] * ("y" in self.kind)
        return None not in needed and KINDS[self.kind](x or 0, y or 0, self.bound)


class _Twins:
    """A set, and the same queries by name in a dictionary."""

    def __init__(self) -> None:
        self.queries, self.thread = QuerySet(TYPES, pa.int64()), _ByHand()
        boxes: Any = self.queries._index
        boxes.pool = self.thread
        self.standing: dict[int, _Query] = {}
        self.counts: dict[int, int] = {}

    def add(self, given_queries: dict[int, _Query]) -> None:
        keys, texts = list(given_queries), [one.kind.format(one.bound) for one in given_queries.values()]
        until = np.array([one.until for one in given_queries.values()], np.int64)
        added = self.queries.add(pa.array(keys, pa.int64()), pa.array(texts), np.array(keys, np.int32), until=until)
        assert not added.refused
        self.standing |= given_queries
        self.counts |= dict.fromkeys(given_queries, 0)

    def remove(self, keys: list[int]) -> None:
        gone = {key for key in keys if self.standing.pop(key, None) is not None}
        assert self.queries.remove(pa.array(keys, pa.int64())) == len(gone)

    def expire(self, before: int) -> None:
        gone = [key for key, one in self.standing.items() if one.until < before]
        assert self.queries.expire(before) == len(gone)
        for key in gone:
            del self.standing[key]

    def check(self) -> None:
        """Answers, counts, and what is known of each query."""
        columns = {name: pa.array([point[i] for point in POINTS], pa.int64()) for i, name in enumerate("xy")}
        rows = Rows(columns, np.array([time for *_, time in POINTS]))
        row, slots = self.queries.match(rows, len(POINTS))
        found = sorted(zip(row.tolist(), self.queries.keys(slots).to_pylist(), strict=True))
        expected = sorted(
            (i, key) for i, point in enumerate(POINTS) for key, one in self.standing.items() if one.holds(*point)
        )
        assert found == expected
        for _, key in expected:
            self.counts[key] += 1
        assert len(self.queries) == len(self.standing)
        for key, one in self.standing.items():
            [slot] = self.queries.find(pa.array([key])).tolist()
            told = self.queries.described(slot)
            assert (told["condition"], told["matches"]) == (one.kind.format(one.bound), self.counts[key])
            assert (self.queries.labels[slot], self.queries.until[slot]) == (key, one.until)


_queries = st.builds(_Query, st.sampled_from(sorted(KINDS)), st.integers(-3, 3), st.sampled_from((-1, 2, 9)))
_keys = st.integers(0, 15)
_steps = st.one_of(
    st.tuples(st.just("add"), st.dictionaries(_keys, _queries, min_size=1, max_size=8)),
    st.tuples(st.just("remove"), st.lists(_keys, min_size=1, max_size=10)),
    st.tuples(st.just("expire"), st.sampled_from((0, 3))),
    st.tuples(st.sampled_from(("turn", "tidy", "settle")), st.none()),
)


@pytest.fixture(autouse=True)
def _small() -> Iterator[None]:
    """Whatever is done at all is done by the thread, and soon."""
    with (
        mock.patch.object(sets, "_LEAST_DEAD", 3),
        mock.patch.object(sets, "_APART", 1),
        mock.patch.object(index, "_APART", 1),
        mock.patch.object(index, "_TAIL", 4),
    ):
        yield


@given(st.lists(_steps, max_size=14))
@settings(max_examples=150)
def test_a_set_answers_alike_whenever_the_thread_gets_its_turn(steps: list[tuple[str, Any]]) -> None:
    """Queries come, go and expire before, while and after texts, keys and trees are put together."""
    twins = _Twins()
    for name, given_to in steps:
        if name == "turn":
            for job in twins.thread.jobs:
                job.run()
        elif name == "tidy":
            twins.queries.tidy()
        elif name == "settle":
            twins.queries.settle()
            assert twins.queries._smaller is None
            assert twins.queries._index._building is None
        else:
            getattr(twins, name)(given_to)
        twins.check()
    twins.queries.settle()
    twins.check()
    dead = twins.queries._size - len(twins.queries)
    assert dead <= max(3, len(twins.queries)) + 10 * sum(name in ("add", "remove") for name, _ in steps)


def test_what_was_removed_is_given_back_once_the_thread_is_through() -> None:
    """Whoever changes the set goes on; texts, keys and boxes of queries that went are held no longer than need be."""
    twins = _Twins()
    twins.add({key: _Query("x > {}", key, 9) for key in range(100)})
    twins.queries.settle()
    before = twins.queries.nbytes
    twins.remove(list(range(90)))
    assert (twins.queries._size, len(twins.queries)) == (100, 10)
    twins.add({200: _Query("y = {}", 2, 9)})
    twins.remove([95])
    assert twins.queries._size == 101
    for job in twins.thread.jobs:
        job.run()
    twins.check()
    twins.queries.tidy()
    assert twins.queries._size == 11
    twins.check()
    twins.queries.settle()
    assert len(twins.queries._index) == 10
    assert twins.queries.nbytes < before / 3
    twins.check()


def test_all_of_one_shape_may_be_replaced_while_others_stand() -> None:
    """The shapes that new queries have are not forgotten with the old ones."""
    twins = _Twins()
    twins.add({0: _Query("y = {}", 2, 9), 1: _Query("y = {}", 0, 9)})
    twins.add({key: _Query("x > {}", 1, 9) for key in range(2, 8)})
    twins.add({key: _Query("x > {}", 2, 9) for key in range(2, 8)})
    twins.check()
    twins.add({key: _Query("x > {0} OR y < {0}", 2, 9) for key in range(8)})
    twins.check()


def test_what_fails_in_the_thread_is_raised_and_changes_nothing() -> None:
    """Once: then it is tried again."""
    twins = _Twins()
    twins.add({key: _Query("x > {}", key % 3, 9) for key in range(20)})
    twins.queries.settle()
    twins.thread.fails = True
    twins.remove(list(range(15)))
    with pytest.raises(RuntimeError, match="no memory"):
        twins.queries.settle()
    twins.check()
    twins.thread.fails = False
    twins.remove([15])
    twins.queries.settle()
    assert twins.queries._size == 4
    twins.check()


def test_a_tree_that_fails_in_the_thread_is_raised_and_made_later() -> None:
    twins = _Twins()
    twins.thread.fails = True
    for first in (0, 10):
        twins.add({key: _Query("x > {}", key % 3, 9) for key in range(first, first + 10)})
    with pytest.raises(RuntimeError, match="no memory"):
        twins.queries.settle()
    twins.thread.fails = False
    twins.check()
    twins.queries.settle()
    assert len(twins.queries._index._trees) == 1
    twins.check()


def test_no_thread_outlives_the_set() -> None:
    queries = QuerySet(TYPES, pa.int64())
    before = set(threading.enumerate())
    queries.add(pa.array(range(50)), pa.array([f"x > {i}" for i in range(50)]))
    queries.remove(pa.array(range(40)))
    queries.settle()
    assert queries._size == 10
    [thread] = set(threading.enumerate()) - before
    assert thread.name.startswith("appulse-queries")
    del queries
    thread.join(30)
    assert not thread.is_alive()
