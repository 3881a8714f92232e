"""Rows that exist in bursts: uncertain windows and joins over them, against possible worlds."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, event, given, settings
from hypothesis import strategies as st

import appulse as ap
from appulse.engines.join.local import LocalJoin
from appulse.kernels import bursts as kernels
from appulse.kernels.poisson_binomial import CountRule, Questions, Ticks
from tests.helpers import naive, naive_bursts, strategies
from tests.helpers.fake_spark import FakeSpark
from tests.spark.test_tiles import call_of, plans, rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# The roots of p (1 - p) are rational.
ROUND = tuple(Fraction(*f) for f in ((1, 2), (4, 5), (1, 5), (9, 10), (1, 10), (1, 1)))


@st.composite
def chains(draw: st.DrawFn) -> tuple[list[Fraction], Fraction]:
    """Probabilities of consecutive rows, and a correlation that they allow."""
    exist = draw(st.lists(st.sampled_from(ROUND), min_size=1, max_size=8))
    correlation = draw(st.sampled_from([Fraction(k, 10) for k in (-5, -1, 0, 1, 3, 5, 8, 10)]))
    links = kernels.chain(np.array([float(p) for p in exist]), float(correlation))
    assume(links[1] < 0)
    return exist, correlation


@settings(max_examples=150)
@given(chains(), st.integers(1, 4), st.sampled_from([0.5, 0.8, 0.95, 1.0]), st.sampled_from([0.0, 0.3]), st.randoms())
def test_windows_and_memberships_are_those_of_possible_worlds(
    given: tuple[list[Fraction], Fraction], size: int, confidence: float, least: float, order: Random
) -> None:
    exist, correlation = given
    n, p = len(exist), np.array([float(one) for one in exist])
    asked = sorted(((i, m) for m in range(n) for i in range(m + 1)), key=lambda pair: (pair[1], order.random()))
    out = np.empty(len(asked))
    row, newest = np.array(asked).T.copy()
    questions = Questions(np.zeros_like(row), row, newest, np.full_like(row, -1))
    first, rho = np.array([0, n]), np.array([float(correlation)])
    kernels.membership(first, p, rho, size, questions, out)
    for (i, m), found in zip(asked, out.tolist(), strict=True):
        expected = naive_bursts.at_most(size - 1, exist[i : m + 1], correlation, given=True)
        assert found == pytest.approx(float(expected), abs=1e-14)
    floor = np.empty(n, np.int64)
    ticks = Ticks(first, np.zeros(1, np.int64), np.ones(n, bool))
    kernels.evict(ticks, p, rho, CountRule(size, confidence, least, 1 << 40, 0), floor)
    oldest = 0
    for m in range(n):
        while m - oldest >= size:
            held = exist[oldest : m + 1]
            fewer = naive_bursts.at_most(size - 1, held, correlation, given=False)
            gone = 1 - fewer >= Fraction(confidence) - naive.TOLERANCE
            if confidence == 1.0:
                gone = sum(one == 1 for one in held[1:]) >= size
            if not gone and naive_bursts.at_most(size - 1, held, correlation, given=True) >= Fraction(least):
                break
            oldest += 1
        assert floor[m] == oldest


@pytest.mark.parametrize(("size", "n"), [(40, 300), (3000, 6000)])
def test_long_windows_are_those_of_a_walk_from_the_newest_row(size: int, n: int) -> None:
    """One state at a time from the newest row back: no table, no pivot, nothing left out."""
    chance = np.random.default_rng(size)
    exist, rho = 0.7 + 0.1 * chance.random(n), 0.5
    links, bad = kernels.chain(exist, rho)
    assert bad == -1
    newest = n - 1
    few = np.zeros((2, n + 1))  # Pr(k rows after this one exist | its state)
    few[:, 0] = 1.0
    expected = np.empty(n)
    for i in range(newest, -1, -1):
        expected[i] = few[1, :size].sum()
        stays, back = (links.stays[i], links.returns[i]) if i else (1.0, 1.0)
        more = np.append(0.0, few[1, :-1])
        few = np.stack([back * more + (1 - back) * few[0], stays * more + (1 - stays) * few[0]])
    row = np.arange(n)[::-1].copy()
    questions = Questions(np.zeros(n, np.int64), row, np.full(n, newest), np.full(n, -1))
    out = np.empty(n)
    kernels.membership(np.array([0, n]), exist, np.array([rho]), size, questions, out)
    np.testing.assert_allclose(out, expected[row], atol=1e-12)


def _in_bursts(data: st.DataObject) -> tuple[strategies.Case, dict[str, Fraction]]:
    """A join of streams whose rows exist with one probability each, or certainly, and their correlations."""
    models = ("exact", "gaussian", "samples", "ball")
    case = data.draw(strategies.cases(models=models, windows=("uncertain",), bad=False, everywhere=True, most=6))
    assume(not case.self_join)
    streams, tables, known = [], [], {}
    for name, stream, table in zip(case.names, case.streams, case.tables, strict=True):
        p, rho = data.draw(st.sampled_from([0.5, 0.8, 0.3])), data.draw(st.sampled_from([0.0, 0.25, 0.5, 1.0, -0.25]))
        column = [data.draw(st.sampled_from([p, p, 1.0])) for _ in range(len(table))]
        at = table.schema.get_field_index("exists")
        # Equal twins may now differ in whether they exist, and nothing says which of them comes first.
        tables.append(
            strategies.ordered(table.set_column(at, "exists", pa.array(column, pa.float64())), stream, case.d)
        )
        streams.append(replace(stream, existence=ap.Bursts("exists", correlation=rho)))
        known[name] = Fraction(rho)
    window = replace(case.window, method="exact", confidence=min(case.window.confidence, 0.95))
    return replace(case, streams=tuple(streams), tables=tuple(tables), window=window), known


@settings(max_examples=80)
@given(st.data())
def test_pairs_are_those_of_the_twin(data: st.DataObject) -> None:
    """In process, at once; the twin enumerates worlds."""
    case, known = _in_bursts(data)
    with pytest.MonkeyPatch.context() as patch:
        naive_bursts.in_bursts(patch, known)
        expected = case.expected()
    result = case.run()
    event(f"pairs: {len(result) > 0}, in bursts: {any(known.values())}")
    naive.assert_same_answers(result, expected.answers)


@given(st.data())
def test_tiles_and_pushes_say_what_one_call_does(data: st.DataObject) -> None:
    """By hand and in a played Spark, cut anywhere, with workers that fail and forget."""
    case, _ = _in_bursts(data)
    case = replace(case, emit=data.draw(st.sampled_from(("matches", "changes"))))
    call = call_of(case)
    spark = FakeSpark(call, data.draw(plans(case)), Random(data.draw(st.integers(0, 1 << 30))))
    local, expected, found = LocalJoin(call), [], []
    for push in data.draw(strategies.pushes(case)):
        expected.append(local.push(case.frames(push)))
        found += spark.batch(case.frames(push))[0]
    expected.append(local.drain())
    found += spark.end()[0]
    assert rows_of(found) == rows_of(expected)
    if case.emit == "matches":
        naive.assert_same_answers(pa.concat_tables(expected), naive.answers_of(case.run()))


def made(n: int, seed: int, p: Any, rho: float | None, **further: Any) -> ap.Stream[pa.Table]:
    """A stream of points on a line."""
    chance = np.random.default_rng(seed)
    table = pa.table({"k": np.arange(n), "t": np.arange(n) + seed / 3, "x": chance.random(n) * 20.0, "p": p})
    existence = "p" if rho is None else ap.Bursts("p", correlation=rho)
    return ap.Stream(table, key="k", time="t", value=ap.Exact("x"), existence=existence, **further)


ASKED: dict[str, Any] = {"epsilon": 1.0, "probability": 0.1, "window": ap.UncertainCountWindow(8, confidence=0.95)}


def test_no_correlation_is_independence_to_the_last_bit() -> None:
    p = np.random.default_rng(5).uniform(0.2, 1.0, 200)
    one, other = (ap.similarity_join(*[made(200, s, p, rho) for s in (1, 2)], **ASKED) for rho in (0.0, None))
    assert len(one) > 50
    assert one.equals(other)


def test_bursts_matter_and_time_windows_do_not_see_them() -> None:
    """A pair is of two streams, so bursts change only what windows hold."""
    p = np.full(200, 0.6)
    streams = [[made(200, s, p, rho) for s in (1, 2)] for rho in (0.0, 0.8)]
    counted = [ap.similarity_join(*own, **ASKED)["probability"] for own in streams]
    independent, in_bursts = (sum(column.to_pylist()) for column in counted)
    assert in_bursts < 0.95 * independent  # where a row exists, those behind it do, too, and push it out
    timed = [ap.similarity_join(*own, **ASKED | {"window": 8}) for own in streams]
    assert timed[0].equals(timed[1])


def test_a_correlation_that_is_not_possible_names_the_probabilities() -> None:
    p = np.tile([0.9, 0.1], 20)
    streams = made(40, 1, p, 0.8), made(40, 2, np.full(40, 0.5), 0.8)
    words = r"exist with probabilities 0\.9 and 0\.1.*correlations from -1 to 0\.111111, and correlation=0\.8"
    with pytest.raises(ap.BadInput, match=words):
        ap.similarity_join(*streams, **ASKED)
    join = ap.SimilarityJoin(*[replace(s, frame=None) for s in streams], **ASKED)
    with pytest.raises(ap.BadInput, match=words):
        join.push(left=streams[0].frame, right=streams[1].frame)
    with pytest.raises(ap.BadArgument, match="An earlier push had rows that ap"):
        join.push(left=streams[0].frame)


@pytest.mark.parametrize("correlation", [1.5, -2.0, float("nan"), "0.5"])
def test_a_correlation_is_a_number_from_minus_one_to_one(correlation: Any) -> None:
    with pytest.raises(ap.BadArgument, match="correlation="):
        ap.Bursts("p", correlation=correlation)


def test_calls_that_take_rows_to_be_independent_say_so() -> None:
    one, other = (made(9, s, np.full(9, 0.5), 0.5) for s in (1, 2))
    calls: list[Any] = [
        lambda: ap.self_join(one, **ASKED),
        lambda: ap.nearest(one, other, epsilon=1.0, window=5),
        lambda: ap.outliers(one, epsilon=1.0, fewer_than=2, probability=0.5, window=5),
        lambda: ap.assign(one, other, epsilon=1.0, probability=0.5, window="tick"),
        lambda: ap.match_queries(one, pa.table({"query": ["a"], "condition": ["x > 1"]})),
        lambda: ap.collect_samples(one, every="10 seconds"),
        lambda: ap.similarity_join(ap.filter(one, "x > 1"), other, **ASKED),
    ]
    for call in calls:
        with pytest.raises(ap.NotBuilt, match="existence=Bursts"):
            call()
    approximate = {"window": ap.UncertainCountWindow(8, confidence=0.95, method="normal")}
    with pytest.raises(ap.BadArgument, match="method='normal'"):
        ap.similarity_join(one, other, **ASKED | approximate)


def test_spark_says_the_same(spark: SparkSession) -> None:
    """A small batch on Spark."""
    streams = [made(60, s, np.full(60, 0.6), 0.7) for s in (1, 2)]
    here = ap.similarity_join(*streams, **ASKED)
    there = ap.similarity_join(*[replace(s, frame=spark.createDataFrame(s.frame)) for s in streams], **ASKED)
    naive.assert_same_answers(there.toArrow(), naive.answers_of(here))


@settings(max_examples=60)
@given(chains(), st.lists(st.integers(-3, 3), min_size=8, max_size=8), st.sampled_from([1.0, 3.0, 100.0]), st.data())
def test_sums_and_counts_are_those_of_possible_worlds(
    given: tuple[list[Fraction], Fraction], values: list[int], length: float, data: st.DataObject
) -> None:
    """Over windows of time and of rows, at once and by hand."""
    exist, rho = given
    n = len(exist)
    rows = pa.table({"k": range(n), "t": range(n), "x": values[:n], "p": [float(p) for p in exist]})
    stream = ap.Stream(rows, key="k", time="t", value=ap.Exact("x"), existence=ap.Bursts("p", correlation=float(rho)))
    window: Any = data.draw(st.sampled_from([ap.TimeWindow(length), ap.CountWindow(int(length) + 1)]))
    found = ap.window_aggregate(stream, {"x": ["sum", "count", "frequent50"]}, window=window)
    some = np.empty(1)
    p = np.array([float(one) for one in exist])
    assert kernels.existences(np.zeros(1, np.int64), np.full(1, n), p, float(rho), some) == -1
    nobody = naive_bursts.worlds(exist, rho).get((False,) * n, Fraction(0))
    assert some[0] == pytest.approx(float(1 - nobody), abs=1e-12)
    for m, row in enumerate(found.to_pylist()):
        first = max(0, m - int(length))
        every = naive_bursts.worlds(exist[first : m + 1], rho)
        for name, own in (("sum", values[first : m + 1]), ("count", [1] * (m + 1 - first))):
            totals = {world: sum(v for v, there in zip(own, world, strict=True) if there) for world in every}
            mean = sum((totals[world] * chance for world, chance in every.items()), Fraction(0))
            variance = sum(((totals[world] - mean) ** 2 * chance for world, chance in every.items()), Fraction(0))
            assert row[f"x_{name}"] == pytest.approx(float(mean), abs=1e-12)
            assert row[f"x_{name}_std"] ** 2 == pytest.approx(float(variance), abs=1e-12)
    hand = ap.WindowAggregate(replace(stream, frame=None), {"x": ["sum", "count", "frequent50"]}, window=window)
    cut = data.draw(st.integers(0, n))
    parts = [hand.push(rows.slice(0, cut)), hand.push(rows.slice(cut)), hand.drain()]
    assert pa.concat_tables(part for part in parts if part.num_columns).to_pylist() == found.to_pylist()


def test_aggregates_that_are_not_known_of_bursts_say_so() -> None:
    stream = made(9, 1, np.full(9, 0.5), 0.5)
    uncertain = ap.UncertainCountWindow(3, confidence=0.9)
    for asked, window, distribution in (("max", 5, False), ("sum", uncertain, False), ("sum", 5, True)):
        with pytest.raises(ap.NotBuilt, match="Of rows in bursts"):
            ap.window_aggregate(stream, {"x": asked}, window=window, distribution=distribution)
    impossible = made(2, 1, np.array([0.9, 0.1]), 0.8)
    with pytest.raises(ap.BadInput, match=r"probabilities 0\.9 and 0\.1"):
        ap.window_aggregate(impossible, {"x": "sum"}, window=5)


def test_the_rows_that_do_not_fit_are_named_by_their_times() -> None:
    at = [np.datetime64("2026-05-04T09:00:00", "us"), np.datetime64("2026-05-04T09:00:03.5", "us")]
    table = pa.table({"id": [1, 2], "at": pa.array(at), "x": [0.0, 0.0], "p": [0.3, 0.99]})
    stream = ap.Stream(table, key="id", time="at", value=ap.Exact("x"), existence=ap.Bursts("p", correlation=0.9))
    with pytest.raises(ap.BadInput, match=r"at 1777885200 s \(2026-05-04T09:00:00 in UTC\) and 1777885203\.5 s"):
        ap.window_aggregate(stream, {"x": "sum"}, window="5 seconds")
