"""Rows pushed in any parts: the answers and rejects of one push, to the last bit."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import appulse as ap
from appulse.engines.join import call, short
from appulse.model import few_objects
from appulse.operators import few_points
from appulse.operators.buffers import Column, Rows

_MODELS = (ap.Exact("x", "y"), ap.Gaussian("x", "y", sigma="s"), ap.Ball("x", "y", radius="s", samples=8))
_BEGIN = datetime(2024, 1, 1, tzinfo=UTC)
# Also what a row is refused for.
_NUMBER = st.one_of(st.floats(0.0, 3.0), st.sampled_from([None, float("nan"), 0.0, -0.0]))


_ROW = st.tuples(st.integers(-2, 20) | st.none(), st.integers(0, 20) | st.none(), _NUMBER, _NUMBER, _NUMBER)


def _table(rows: list[tuple[Any, ...]], *, texts: bool, stamps: bool) -> pa.Table:
    """Rows with keys and times of some type."""
    keys, times = ([row[i] for row in rows] for i in (0, 1))
    keys = [str(key) if texts and key is not None else key for key in keys]
    times = [_BEGIN + timedelta(seconds=time) if stamps and time is not None else time for time in times]
    numbers = {name: pa.array([row[2 + i] for row in rows], pa.float64()) for i, name in enumerate("xys")}
    key, time = pa.string() if texts else pa.int64(), pa.timestamp("us", "UTC") if stamps else pa.float64()
    return pa.table({"k": pa.array(keys, key), "t": pa.array(times, time), **numbers})


def _made(model: Any, pushes: list[dict[str, pa.Table]]) -> tuple[list[str], list[str]]:
    """Answers and rejects, in an order of their own."""
    streams = [ap.Stream(None, key="k", time="t", value=model, name=name, lateness=1e6) for name in "ab"]
    join = ap.SimilarityJoin(*streams, epsilon=1.0, probability=0.5, window=9.0)
    found = [join.push(**push) for push in pushes]
    answers = pa.concat_tables([table for table in [*found, join.drain()] if table.num_columns])
    return sorted(map(repr, answers.to_pylist())), sorted(map(repr, join.rejects().to_pylist()))


@given(
    st.lists(_ROW, max_size=12),
    st.lists(_ROW, max_size=12),
    st.booleans(),
    st.booleans(),
    st.sampled_from(_MODELS),
    st.data(),
)
def test_rows_in_any_parts_have_the_answers_of_one_push(
    a: list[tuple[Any, ...]], b: list[tuple[Any, ...]], texts: bool, stamps: bool, model: Any, data: st.DataObject
) -> None:
    """Whatever else the tables of single pushes hold, and in whatever order their columns are."""
    tables = {name: _table(rows, texts=texts, stamps=stamps) for name, rows in (("a", a), ("b", b))}
    pushes: list[dict[str, pa.Table]] = [{} for _ in range(data.draw(st.integers(1, 8)))]
    for name, table in tables.items():
        cuts = sorted(data.draw(st.lists(st.integers(0, len(table)), max_size=len(pushes) - 1)))
        ends = [0, *cuts, len(table)]
        for push, begin, end in zip(pushes, ends[:-1], ends[1:], strict=False):
            part = push[name] = table.slice(begin, end - begin)
            if data.draw(st.booleans()):
                push[name] = part.select(part.column_names[::-1]).append_column("more", pa.array(["+"] * len(part)))
    assert _made(model, pushes) == _made(model, [tables])


# The first of each may go by the short way.
_KEYS = (*[pa.int64()] * 4, pa.int32(), pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.int64()))
_TIMES = (pa.float64(), pa.int64(), pa.timestamp("ms", "UTC"), pa.timestamp("ns", "UTC"))
_NUMBERS = (*[pa.float64()] * 3, pa.float32(), pa.decimal128(6, 3))
_AT = st.tuples(st.sampled_from("ab"), st.integers(0, 3), st.integers(-6, 6), st.lists(_NUMBER, min_size=5, max_size=5))


def _typed(
    i: int, rows: list[tuple[str, int, int, list[Any]]], kinds: tuple[pa.DataType, ...], *, more: bool
) -> pa.Table:
    """Rows of the i-th push, a second after those of the one before, most of them, with columns of these types."""
    key, time, number = kinds
    keys, times = pa.array([row[1] for row in rows], pa.int64()), [20 + 2 * i + row[2] for row in rows]
    held = pa.array(times, pa.int64()).cast(time if pa.types.is_floating(time) else pa.int64())
    columns = {name: [row[3][k] for row in rows] for k, name in enumerate("uvxys")}
    # Decimals have no NaN.
    given = {
        name: pa.array(column, pa.float64(), from_pandas=pa.types.is_decimal(number)).cast(number, safe=False)
        for name, column in columns.items()
    }
    coded = keys.dictionary_encode() if pa.types.is_dictionary(key) else keys.cast(key)
    table = pa.table({"k": coded, "t": held.view(time) if pa.types.is_timestamp(time) else held.cast(time)} | given)
    return table.append_column("more", pa.array(["+"] * len(table))) if more else table


@pytest.mark.filterwarnings("ignore::appulse.LateRows")
@given(
    st.lists(st.lists(_AT, max_size=6), min_size=2, max_size=12),
    st.tuples(st.sampled_from(_KEYS), st.sampled_from(_TIMES), st.sampled_from(_NUMBERS)),
    st.sampled_from([ap.Exact("x"), ap.Exact(*"xy"), ap.Exact(*"uvxy"), *_MODELS[1:2], ap.Gaussian(*"xy", sigma=0.4)]),
    st.sampled_from(["auto", "grid", "dense"]),
    st.booleans(),
)
def test_a_few_rows_have_the_answers_of_the_general_way(
    given: list[list[tuple[str, int, int, list[Any]]]],
    kinds: tuple[pa.DataType, ...],
    model: Any,
    index: Any,
    more: bool,
) -> None:
    """To the last byte, push by push, with their rejects, counts and what is held."""
    pushes = [
        {name: _typed(i, [row for row in rows if row[0] == name], kinds, more=more) for name in "ab"}
        for i, rows in enumerate(given)
    ]

    def taken_in() -> list[Any]:
        streams = [ap.Stream(None, key="k", time="t", value=model, name=name, lateness=4) for name in "ab"]
        options = ap.Options(index=index)
        join = ap.SimilarityJoin(*streams, epsilon=1.0, probability=0.5, window=9.0, options=options)
        found = [(join.push(**push), Counter(join.counted()), join.state()["state_rows"]) for push in pushes]
        return [*found, join.drain(), join.rejects()]

    found = taken_in()
    with ExitStack() as general:
        for module in (few_objects, call, short, few_points):
            general.enter_context(patch.object(module, "FEW", 0))
        assert found == taken_in()


# Of a good row: how long after the push before it comes, and its place; of some, what makes them no good.
_ODD = st.sampled_from([None] * 30 + ["late", "ahead", "null", "nan", "back"])
_GOOD = st.tuples(st.sampled_from("ab"), st.integers(0, 3), st.integers(0, 4), st.integers(0, 8), _ODD)
_FEW_KINDS = (pa.float64(), pa.int64(), pa.timestamp("us", "UTC"))
_TEXTS = ("", "8 bytes!", "Schildkröte", "a text that is longer than two words of a processor")


def _few(
    rows: list[tuple[str, int, int, int, str | None]], begin: int, time: pa.DataType, d: int, key: pa.DataType
) -> pa.Table:
    """Rows within five seconds of ``begin``."""
    at = [begin + row[2] + {"late": -40, "ahead": 4000, "back": -3}.get(row[4] or "", 0) for row in rows]
    x = [float("nan") if row[4] == "nan" else 0.25 * row[3] for row in rows]
    whole = [None if row[4] == "null" else row[1] for row in rows]
    keys = pa.array(whole if pa.types.is_integer(key) else [k if k is None else _TEXTS[k] for k in whole], key)
    held = pa.array(at, pa.int64())
    times = held.cast(time) if not pa.types.is_timestamp(time) else pa.array([t * 10**6 for t in at]).cast(time)
    columns = {f"x{i}": pa.array(x if i == 0 else [0.0] * len(x)) for i in range(d)}
    return pa.table({"k": keys, "t": times, "g": [row[3] % 2 for row in rows]} | columns)


@pytest.mark.filterwarnings("ignore::appulse.LateRows")
@given(
    st.lists(st.lists(_GOOD, min_size=1, max_size=5), min_size=6, max_size=40),
    st.sampled_from(_FEW_KINDS),
    st.integers(1, 3),
    st.fixed_dictionaries(
        {
            "lateness": st.sampled_from([0, 2, 6]),
            "ahead": st.sampled_from([np.inf, 60, "1 hour"]),
            "idle_after": st.sampled_from([None, 9]),
            "partition_by": st.sampled_from([None, "g"]),  # groups are read the general way
        }
    ),
    st.sampled_from([0.3, 1.0]),
    st.sampled_from(["auto", "grid", "dense"]),
    st.sampled_from([pa.int64(), pa.string(), pa.large_string()]),
)
def test_good_points_have_the_answers_of_the_general_way(
    given: list[list[tuple[str, int, int, int, str | None]]],
    time: pa.DataType,
    d: int,
    settings: dict[str, Any],
    epsilon: float,
    index: Any,
    key: pa.DataType,
) -> None:
    """To the last byte, in long runs of pushes that one kernel takes in, and among them some that it does not."""
    pushes = [
        {
            name: _few(mine, 100 + 3 * i, time, d, key)
            for name in "ab"
            if (mine := sorted((row for row in rows if row[0] == name), key=lambda row: row[2]))
        }
        for i, rows in enumerate(given)
    ]
    first = {name: _few([(name, 0, 0, 0, None)], 100, time, d, key) for name in "ab"}

    def taken_in() -> list[Any]:
        value = ap.Exact(*(f"x{i}" for i in range(d)))
        streams = [ap.Stream(None, key="k", time="t", value=value, name=name, **settings) for name in "ab"]
        join = ap.SimilarityJoin(*streams, epsilon=epsilon, probability=1.0, window=12, options=ap.Options(index=index))
        found: list[Any] = []
        for push in [first, *pushes]:
            answers = join.push(**push)
            assert join.engine is not None
            arrivals, bucket = join.engine.arrivals, join.engine.bucket
            levels = [bucket.clock, bucket.complete, dict(bucket.counts), arrivals.guards, len(bucket)]
            found.append((answers, Counter(join.counted()), join.state()["state_rows"], deepcopy(levels)))
        return [*found, join.drain(), join.rejects()]

    found = taken_in()
    with patch.object(short, "FEW", 0), patch.object(few_points, "FEW", 0):
        assert found == taken_in()


@pytest.mark.parametrize("texts", [False, True])
def test_the_short_way_has_pushes_of_many_pairs_and_moves_its_memory(texts: bool) -> None:
    """Crowded points make more pairs than its tables have room for, and windows grow and shrink."""
    chance = np.random.default_rng(3)

    def rows(begin: float, n: int, many: int) -> pa.Table:
        at = np.sort(begin + chance.random(n))
        keys = pa.array([f"{i}" * (i % 7) for i in range(n)]) if texts else pa.array(np.arange(n))
        return pa.table({"k": keys, "t": at} | {name: chance.integers(0, many, n) / 4 for name in "xy"})

    sizes = [(64, 3), *[(20, 3)] * 30, *[(1, 40)] * 200, (3000, 200), *[(30, 60)] * 60]
    pushes = [{name: rows(2.0 * i, n, many) for name in "ab"} for i, (n, many) in enumerate(sizes)]

    def taken_in() -> tuple[list[pa.Table], int, Counter[str]]:
        streams = [ap.Stream(None, key="k", time="t", value=ap.Exact("x", "y"), name=name) for name in "ab"]
        join = ap.SimilarityJoin(*streams, epsilon=0.5, probability=1.0, window=50.0)
        taken: Counter[str] = Counter()
        by_short = short.ShortPushes.push

        def counted(self: short.ShortPushes, tables: Any) -> pa.Table | None:
            found = by_short(self, tables)
            taken["short" if found is not None else "general"] += 1
            taken["many"] += found is not None and len(found) > 256
            return found

        with patch.object(short.ShortPushes, "push", counted):
            return [join.push(**push) for push in pushes], join.state()["state_rows"], taken

    found, held, taken = taken_in()
    assert taken["short"] > 250
    assert taken["many"] > 3
    with patch.object(short, "FEW", 0), patch.object(few_points, "FEW", 0):
        expected, as_many, others = taken_in()
    assert (others["short"], held) == (0, as_many)
    assert found == expected


@pytest.mark.parametrize(("texts", "most"), [(False, 280), (True, 340)])
def test_a_push_of_a_few_rows_takes_few_calls(texts: bool, most: int) -> None:
    """What a push costs is mostly how many calls it makes, which no machine makes faster or slower."""
    import cProfile
    import pstats

    streams = [ap.Stream(None, key="k", time="t", value=ap.Exact("x", "y"), name=name) for name in "ab"]
    join = ap.SimilarityJoin(*streams, epsilon=0.5, probability=1.0, window=100.0)

    def row(i: int) -> pa.Table:
        return pa.table({"k": [f"row {i}" if texts else i], "t": [float(i)], "x": [0.1 * (i % 5)], "y": [0.0]})

    for i in range(60):
        join.push(**{"ab"[i % 2]: row(i)})
    given = [{"ab"[i % 2]: row(i)} for i in range(60, 80)]
    profile = cProfile.Profile()
    profile.enable()
    for push in given:
        join.push(**push)
    profile.disable()
    assert pstats.Stats(profile).total_calls / len(given) < most  # type: ignore[attr-defined]


def test_columns_of_the_same_rows_grow_and_shrink_together() -> None:
    """One that comes later has room for all rows there are."""
    rows = Rows()
    one = Column(np.int64, rows=rows)
    new = rows.grow(100)
    one.data[new] = np.arange(100)
    rows.drop(90)
    other = Column(np.float64, 2, rows)
    other.view[:] = one.view[:, None]
    new = rows.grow(5000)
    one.data[new], other.data[new] = 7, 7.0
    rows.keep(np.array([0, 9, 10]))
    assert one.view.tolist() == [90, 99, 7]
    assert other.view.tolist() == [[90.0, 90.0], [99.0, 99.0], [7.0, 7.0]]
    assert rows.room <= 4096


def _named(i: int) -> str:
    """A text of a whole number, of some length; two numbers have two."""
    return f"{i}" if i % 3 else f"the row of number {i}"


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())])
@pytest.mark.parametrize("sizes", [[60_000], [20_000, 9_000, 12_000], [300] * 8, [20] * 30, [1] * 200])
def test_texts_as_keys_have_the_answers_of_whole_numbers(kind: pa.DataType, sizes: list[int]) -> None:
    """In a call over whole tables, in large pushes and in those of few rows, with the rows in the same order."""
    chance, n = np.random.default_rng(len(sizes)), sum(sizes)
    places = [{name: chance.random(n) * (n / 5.0) ** 0.5 for name in "xy"} for _ in "ab"]

    def answers(*, texts: bool, threads: int) -> pa.Table:
        keys = pa.array(list(map(_named, range(n))), pa.string()).cast(kind) if texts else pa.array(range(n))
        tables = [pa.table({"k": keys, "t": np.arange(n) / 1000.0} | place) for place in places]
        own: dict[str, Any] = {"key": "k", "time": "t", "value": ap.Exact("x", "y")}
        asked: dict[str, Any] = {"epsilon": 0.5, "probability": 1.0, "window": 40.0}
        asked["options"] = ap.Options(threads=threads)
        if len(sizes) == 1:
            return ap.similarity_join(*(ap.Stream(table, **own) for table in tables), **asked)
        join = ap.SimilarityJoin(*(ap.Stream(None, **own, name=name) for name in ("left", "right")), **asked)
        found, begin = [], 0
        for many in sizes:
            left, right = (table.slice(begin, many) for table in tables)
            # Of few rows, some pushes are of one stream alone.
            found.append(join.push(left=left) if many == 1 and begin % 2 else join.push(left=left, right=right))
            begin += many
        return pa.concat_tables([table for table in [*found, join.drain()] if table.num_columns])

    whole, named = answers(texts=False, threads=1), answers(texts=True, threads=1)
    assert len(whole) > 50
    assert named.schema.field("left_key").type == (pa.string() if pa.types.is_dictionary(kind) else kind)
    for side in ("left_key", "right_key"):
        at = whole.column_names.index(side)
        keys = pa.array(list(map(_named, whole[side].to_pylist())), named.schema.field(side).type)
        whole = whole.set_column(at, named.schema.field(side), keys)
    assert named.equals(whole)
    named.validate(full=True)
    assert answers(texts=True, threads=3).equals(named)
