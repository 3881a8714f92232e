"""The similarity join in process: equal to the naive twin, whatever the index, the bounds and the order of arrival."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from itertools import permutations
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import appulse as ap
from appulse.engines.join.call import JoinCall, JoinSettings, resolve, to_table
from appulse.engines.join.local import LocalJoin
from appulse.model.encode import encode
from appulse.operators import similarity_join as operator_module
from appulse.operators.plan import BOUNDS
from appulse.operators.similarity_join import SimilarityJoin
from tests.helpers import hands, naive, strategies

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from appulse.model.objects import Objects

FOREVER = ap.TimeWindow(1e9)


# --- by Hypothesis: equal to the twin ---------------------------------------------------------------------------


def _check_twin(case: strategies.Case) -> None:
    result, expected = case.run(), case.expected()
    naive.assert_same_answers(result, expected.answers)
    naive.assert_same_rejects(ap.rejects(result), expected.rejects)


@settings(max_examples=100)
@given(strategies.cases())
def test_answers_and_rejects_are_those_of_the_twin(case: strategies.Case) -> None:
    """Two to four streams of any models, or one with itself: every pair, every probability, every bad row."""
    _check_twin(case)


@pytest.mark.long
@settings(max_examples=5000)
@given(strategies.cases())
def test_answers_and_rejects_are_those_of_the_twin_long(case: strategies.Case) -> None:
    """The same over many more joins."""
    _check_twin(case)


@given(strategies.cases(dimensions=(4, 5, 17, 40), bad=False, most=4))
def test_more_than_three_dimensions_are_like_the_first_three(case: strategies.Case) -> None:
    """The grid sees three of them only."""
    _check_twin(case)
    naive.assert_same_answers(case.run(ap.Options(index="grid")), naive.answers_of(case.run()))


def _check_options(case: strategies.Case) -> None:
    usual = naive.answers_of(case.run())
    for index in ("grid", "dense", "sorted"):
        naive.assert_same_answers(case.run(ap.Options(index=index)), usual)
    for bound in sorted(BOUNDS):
        naive.assert_same_answers(case.run(ap.Options(bounds=BOUNDS - {bound})), usual)
        naive.assert_same_answers(case.run(ap.Options(bounds=frozenset({bound}), index="grid")), usual)
    naive.assert_same_answers(case.run(ap.Options(bounds=frozenset())), usual)


@given(strategies.cases(bad=False, most=6))
def test_bounds_and_index_never_change_an_answer(case: strategies.Case) -> None:
    """Each bound alone, all but each, none; a grid, a scan, or what seems best."""
    _check_options(case)


@pytest.mark.long
@settings(max_examples=1500)
@given(strategies.cases(bad=False, most=8))
def test_bounds_and_index_never_change_an_answer_long(case: strategies.Case) -> None:
    """The same over many more joins."""
    _check_options(case)


@given(strategies.cases(bad=False))
def test_swapping_streams_swaps_the_sides(case: strategies.Case) -> None:
    """And changes nothing else."""
    if case.self_join:
        return
    named = [replace(s, name=name) for s, name in zip(case.streams, case.names, strict=True)]
    swapped = replace(case, tables=case.tables[::-1], streams=tuple(named[::-1]))
    naive.assert_same_answers(swapped.run(), [answer.swapped for answer in naive.answers_of(case.run())])


@given(strategies.cases(bad=False), st.sampled_from(("probability", "epsilon", "window")))
def test_easier_questions_have_more_answers(case: strategies.Case, what: str) -> None:
    """A lower threshold, a larger epsilon or a longer window loses no pair."""
    if what == "probability":
        easier = replace(case, probability=case.probability / 2)
    elif what == "epsilon":
        easier = replace(case, epsilon=case.epsilon + 0.5)
    else:
        lengths = {name: float(length) + 1 for name, length in (case.window.per_stream or {}).items()}
        easier = replace(case, window=ap.TimeWindow(float(case.window.length) + 1, per_stream=lengths or None))
    before, after = ([a.identity for a in naive.answers_of(c.run())] for c in (case, easier))
    for identity in set(before):
        assert after.count(identity) >= before.count(identity)


# --- by Hypothesis: order of arrival ----------------------------------------------------------------------------


def _check_pushes(case: strategies.Case, pushes: Sequence[dict[int, list[int]]], index: str) -> None:
    """Rows within the lateness are answered as if they came at once; the others leave once, as late."""
    tables = [table.to_pylist() for table in case.tables]
    rows, rejects = naive.rows_of(tables, case.streams, case.d, case.different, case.attribute)
    late = naive.late_rows(pushes, case.streams, rows)
    in_time = tuple(
        table.take(pa.array([i for i in range(len(table)) if (s, i) not in late], pa.int64()))
        for s, table in enumerate(case.tables)
    )
    answers, rejected = case.pushed([{}, *pushes], ap.Options(index=index))
    naive.assert_same_answers(pa.concat_tables(answers), replace(case, tables=in_time).expected().answers)
    rejects += [
        naive.Reject(case.names[s], tables[s][i]["id"], tables[s][i]["ts"], frozenset({"late"})) for s, i in late
    ]
    naive.assert_same_rejects(rejected, rejects)
    told = sorted(r["detail"].split()[0] for r in rejected.to_pylist() if r["reason"] == "late")
    assert told == sorted(f"{behind / 1e6:.6f}" for behind in late.values())


@settings(max_examples=70)
@given(st.data())
def test_any_order_within_the_lateness_gives_the_same_answers(data: st.DataObject) -> None:
    """In pushes of any size, and no row is late."""
    case = data.draw(strategies.cases(lateness=True, most=6))
    pushes = data.draw(strategies.pushes(case))
    tables = [table.to_pylist() for table in case.tables]
    rows, _ = naive.rows_of(tables, case.streams, case.d)
    assert naive.late_rows(pushes, case.streams, rows) == {}
    _check_pushes(case, pushes, data.draw(st.sampled_from(("auto", "grid"))))


@settings(max_examples=50)
@given(st.data())
def test_rows_later_than_the_lateness_leave_once_and_say_how_late_they_were(data: st.DataObject) -> None:
    """All others are answered as if the late ones had never been."""
    case = data.draw(strategies.cases(lateness=True, most=8))
    pushes = data.draw(strategies.pushes(case, late=True))
    _check_pushes(case, pushes, data.draw(st.sampled_from(("auto", "grid"))))


@pytest.mark.long
@settings(max_examples=4000)
@given(st.data(), st.booleans())
def test_order_of_arrival_long(data: st.DataObject, late: bool) -> None:
    """The same over many more joins and orders."""
    case = data.draw(strategies.cases(lateness=True, most=8))
    _check_pushes(case, data.draw(strategies.pushes(case, late=late)), data.draw(st.sampled_from(("auto", "grid"))))


class _Steps:
    """The pushes of a case as the operator sees them: batches, and the frontier before each."""

    def __init__(self, case: strategies.Case, pushes: Sequence[dict[int, list[int]]], options: ap.Options) -> None:
        named = [replace(s, name=name) for s, name in zip(case.streams, case.names, strict=True)]
        self.call: JoinCall = resolve(
            named,
            [table.schema for table in case.tables],
            JoinSettings(
                options=options,
                **case.settings,
            ),
        ).with_dimensions(case.d)
        self.batches: list[list[tuple[int, int, Objects]]] = []
        for push in pushes:
            batch = []
            for s, encoding in enumerate(self.call.encodings):
                numbers = pa.array(push.get(s, []), pa.int64())
                batch.append((s, 0, encode(case.tables[s].take(numbers), encoding)[0]))
            self.batches.append(batch)
        self.frontiers = self._frontiers()

    def _frontiers(self) -> list[int | None]:
        """Before each push, the least time that can still come, from all that does come."""
        frontiers: list[int | None] = []
        for k in range(len(self.batches)):
            coming = [int(t) for batch in self.batches[k:] for _, _, rows in batch for t in rows.time]
            frontiers.append(min(coming, default=None))
        return frontiers


def _check_rebuilt(case: strategies.Case, pushes: Sequence[dict[int, list[int]]], index: str) -> None:
    steps = _Steps(case, pushes, ap.Options(index=index))
    lived = SimilarityJoin(steps.call.plan)
    for k, (batch, frontier) in enumerate(zip(steps.batches, steps.frontiers, strict=True)):
        if frontier is not None:
            lived.advance(frontier)
        answers = naive.answers_of(to_table(lived.push(batch), steps.call))
        rebuilt = SimilarityJoin(steps.call.plan)
        for old in steps.batches[:k]:
            rebuilt.apply(old)
        if frontier is not None:
            rebuilt.advance(frontier)
        naive.assert_same_answers(to_table(rebuilt.push(batch), steps.call), answers)
        assert len(rebuilt) <= sum(len(rows) for batch_ in steps.batches[: k + 1] for _, _, rows in batch_)
        at_once = SimilarityJoin(steps.call.plan)
        at_once.apply([entry for old in steps.batches[:k] for entry in old])
        naive.assert_same_answers(to_table(at_once.push(batch), steps.call), answers)


@given(st.data())
def test_a_rebuilt_state_answers_as_the_one_that_lived(data: st.DataObject) -> None:
    """Rows applied push by push or all at once, forgotten early or late: the next push finds the same pairs."""
    case = data.draw(strategies.cases(lateness=True, most=6))
    _check_rebuilt(case, data.draw(strategies.pushes(case)), data.draw(st.sampled_from(("auto", "grid"))))


@pytest.mark.long
@settings(max_examples=1500)
@given(st.data())
def test_a_rebuilt_state_long(data: st.DataObject) -> None:
    """The same over many more joins."""
    case = data.draw(strategies.cases(lateness=True, most=8))
    _check_rebuilt(case, data.draw(strategies.pushes(case)), data.draw(st.sampled_from(("auto", "grid"))))


# --- many rows: grids, evictions, overflow ----------------------------------------------------------------------


def _cloud(seed: int, n: int, d: int, spread: float, seconds: float, heavy: bool = False) -> pa.Table:
    """Rows of a random cloud on a lattice, in random order, some of them with huge reach."""
    random = np.random.default_rng(seed)
    radius = np.where(random.random(n) < (0.05 if heavy else 0.0), 6.0, random.choice([0.0, 0.25, 0.5], n))
    columns = {f"x{k}": np.round(random.random(n) * spread * 4) / 4 for k in range(d)}
    # Times in tenths of a second, as milliseconds.
    times = pa.array(random.integers(0, int(seconds * 10), n) * 100).view(pa.timestamp("ms"))
    return pa.table({"id": np.arange(n), "ts": times, "r": radius} | columns)


def _positions(table: pa.Table, d: int) -> NDArray[np.float64]:
    return np.column_stack([table[f"x{k}"].to_numpy() for k in range(d)])


def _key_pairs(result: pa.Table) -> list[tuple[Any, Any]]:
    return list(zip(result["left_key"].to_pylist(), result["right_key"].to_pylist(), strict=True))


@pytest.mark.parametrize("index", ["grid", "dense", "auto"])
@pytest.mark.parametrize(("d", "spread", "epsilon"), [(1, 200.0, 0.5), (2, 20.0, 0.75), (3, 8.0, 1.0), (4, 5.0, 1.5)])
def test_thousands_of_points_are_paired_as_by_brute_force(index: str, d: int, spread: float, epsilon: float) -> None:
    """In one push, and in many in an order within the lateness, where rows of old pushes have gone."""
    left, right = (_cloud(seed, 1500, d, spread, 60.0) for seed in (d, d + 10))
    x, y = _positions(left, d), _positions(right, d)
    times = tuple(t["ts"].combine_chunks().view(pa.int64()).to_numpy() for t in (left, right))
    expected = naive.close_pairs(x, y, times[0], times[1], epsilon, 2000)
    assert len(expected) > 100
    columns = tuple(f"x{k}" for k in range(d))
    streams = [ap.Stream(t, key="id", time="ts", value=ap.Exact(*columns), lateness=6) for t in (left, right)]
    question: dict[str, Any] = {"epsilon": epsilon, "probability": 1.0, "window": ap.TimeWindow(2.0)}
    result = ap.similarity_join(*streams, **question, options=ap.Options(index=index))
    found = _key_pairs(result)
    assert set(found) == expected
    assert len(found) == len(expected)

    join = hands.similarity_join(left=streams[0], right=streams[1], **question, options=ap.Options(index=index))
    random = np.random.default_rng(7)
    arrivals = [t / 1000 + random.random(len(t)) * 6 for t in times]
    pairs: list[tuple[int, int]] = []
    most = 0
    for begin in np.arange(0.0, 70.0, 3.0):
        frames = {
            name: table.filter(pa.array((begin <= at) & (at < begin + 3.0)))
            for name, table, at in zip(("left", "right"), (left, right), arrivals, strict=True)
        }
        pairs += _key_pairs(join.push(**frames))
        assert join._engine is not None
        most = max(most, len(join._engine.operator))
    assert set(pairs) == expected
    assert len(pairs) == len(expected)
    assert len(join.rejects()) == 0
    assert most < 1500, "rows out of reach were kept"


@pytest.mark.parametrize("index", ["grid", "dense"])
@pytest.mark.parametrize("d", [1, 2, 3])
def test_rows_too_large_for_the_grid_meet_everyone_they_reach(index: str, d: int) -> None:
    """Balls many times as large as others, as probes and as stored rows; a scan without bounds says the same."""
    left, right = (_cloud(seed, 300, d, (60.0, 20.0, 9.0)[d - 1], 20.0, heavy=True) for seed in (d, d + 20))
    ball = ap.Ball(*(f"x{k}" for k in range(d)), radius="r", samples=9)
    streams = [ap.Stream(t, key="id", time="ts", value=ball, lateness=100) for t in (left, right)]
    question: dict[str, Any] = {"epsilon": 1.0, "probability": 0.1, "window": ap.TimeWindow(5.0)}
    truth = ap.similarity_join(*streams, **question, options=ap.Options(index="dense", bounds=frozenset()))
    assert len(truth) > 100
    result = ap.similarity_join(*streams, **question, options=ap.Options(index=index))
    naive.assert_same_answers(result, naive.answers_of(truth))
    join = hands.similarity_join(left=streams[0], right=streams[1], **question, options=ap.Options(index=index))
    parts = [join.push(left=left.slice(i, 50), right=right.slice(i, 50)) for i in range(0, 300, 50)]
    naive.assert_same_answers(pa.concat_tables(parts), naive.answers_of(truth))


@pytest.mark.parametrize("index", ["grid", "dense"])
def test_answers_do_not_depend_on_the_room_for_candidates(index: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A probe that does not fit is repeated with more room."""
    cloud = _cloud(1, 400, 2, 6.0, 10.0)
    stream = ap.Stream(cloud, key="id", time="ts", value=ap.Exact("x0", "x1"))
    question: dict[str, Any] = {"epsilon": 1.0, "probability": 1.0, "window": ap.TimeWindow(10)}
    expected = naive.answers_of(ap.self_join(stream, **question))
    assert len(expected) > 1000
    monkeypatch.setattr(operator_module, "_FIRST_CAPACITY", 1)
    naive.assert_same_answers(ap.self_join(stream, **question, options=ap.Options(index=index)), expected)


@pytest.mark.parametrize("bounds", [*({b} for b in sorted(BOUNDS - {"projection"})), BOUNDS])
@pytest.mark.parametrize("offset", [0.0, 1e7 / 3])
@pytest.mark.parametrize("d", [1, 2])
def test_thresholds_at_exactly_the_probability_of_a_pair_keep_it(d: int, offset: float, bounds: Any) -> None:
    """Where bounds are tightest: few samples, most of the weight on one, far outliers, and every tie there is."""
    random = np.random.default_rng(d)
    tables = []
    for _ in range(2):
        samples = offset + random.integers(-4, 5, (120, 3, d)) * random.choice([1, 1, 3], (120, 3, 1))
        weights = random.multinomial(10, [0.6, 0.3, 0.1], 120) / 10
        columns = {"s": samples.astype(float).tolist(), "w": weights.tolist(), "r": random.choice([0.0, 1.0, 2.0], 120)}
        position = {f"x{k}": samples[:, 0, k].astype(float) for k in range(d)}
        tables.append(pa.table({"id": np.arange(120), "ts": np.zeros(120)} | columns | position))
    ball = ap.Ball(*(f"x{k}" for k in range(d)), radius="r", samples=3)
    weighted = ap.Samples("s", weights="w")
    for models in ((weighted, weighted), (weighted, ball), (ball, ball)):
        left, right = (_exact(t, value=m) for t, m in zip(tables, models, strict=True))
        question: dict[str, Any] = {"epsilon": 1.0 + (d == 1), "window": FOREVER}
        none = ap.Options(bounds=frozenset(), index="dense")
        every = ap.similarity_join(left, right, **question, probability=1e-6, options=none)
        probability = every["probability"].to_numpy()
        for alpha in np.unique(np.round(probability, 9))[::3]:
            options = ap.Options(bounds=frozenset(bounds))
            found = ap.similarity_join(left, right, **question, probability=alpha, options=options)
            assert set(_key_pairs(found)) == set(_key_pairs(every.filter(pa.array(probability >= alpha - 1e-9))))


def test_every_candidate_is_accounted_for() -> None:
    """By the bound that decided it, or by refinement."""
    left, right = (_cloud(seed, 300, 2, 10.0, 20.0, heavy=True) for seed in (3, 4))
    for models in (
        (ap.Ball("x0", "x1", radius="r", samples=9), ap.Exact("x0", "x1")),
        (ap.Gaussian("x0", "x1", sigma="r"), ap.Gaussian("x0", "x1", sigma=0.5)),
        (ap.Exact("x0", "x1"), ap.Exact("x0", "x1")),
    ):
        streams = [ap.Stream(None, key="id", time="ts", value=m) for m in models]
        join = hands.similarity_join(
            left=streams[0], right=streams[1], epsilon=1.0, probability=0.3, window=ap.TimeWindow(5.0)
        )
        found = join.push(left=left, right=right)
        assert join._engine is not None
        counts = join._engine.operator.counts
        decided = sum(n for name, n in counts.items() if name.startswith("pruned_"))
        assert counts["candidates"] == decided + counts["accepted"] + counts["refined"]
        assert counts["answers"] == len(found) > 0


@pytest.mark.parametrize("index", ["grid", "dense", "auto"])
def test_state_is_bounded_by_what_can_still_match(index: str) -> None:
    """A long stream leaves no more rows, and no more bytes, than its window and lateness hold."""
    stream = ap.Stream(None, key="id", time="ts", value=ap.Samples("s"), lateness=1)
    join = hands.similarity_join(
        a=stream, epsilon=1.0, probability=0.5, window=ap.TimeWindow(5), options=ap.Options(index=index)
    )
    rows, sizes, pairs = [], [], 0
    for i in range(60):
        times = np.repeat(np.arange(10) + 10.0 * i, 20)
        random = np.random.default_rng(i)
        table = pa.table({"id": np.arange(200), "ts": times, "s": (random.random((200, 3)) * 100).tolist()})
        pairs += len(join.push(a=table))
        assert join._engine is not None
        rows.append(len(join._engine.operator))
        sizes.append(join._engine.operator.nbytes)
    assert pairs > 0
    assert max(rows) <= 20 * (10 + 10 + 5 + 1 + 1)
    assert max(sizes[30:]) <= 1.5 * max(sizes[:10])


# --- the paper's oracles ----------------------------------------------------------------------------------------


def _line(*rows: Sequence[float] | dict[float, float], times: Sequence[float] | None = None) -> ap.Stream:
    """A stream of one-dimensional objects, as lists of equal samples or as {sample: weight}."""
    samples = [list(row) for row in rows]
    weights = [list(row.values()) if isinstance(row, dict) else [1 / len(row)] * len(row) for row in rows]
    times = [0.0] * len(rows) if times is None else times
    table = pa.table({"id": list(range(len(rows))), "ts": times, "s": samples, "w": weights})
    even = not any(isinstance(row, dict) for row in rows)
    return ap.Stream(table, key="id", time="ts", value=ap.Samples("s", weights=None if even else "w"))


def _asked(left: ap.Stream, right: ap.Stream, epsilon: float, alpha: float, **options: Any) -> list[dict[str, Any]]:
    question: dict[str, Any] = {"epsilon": epsilon, "probability": alpha, "window": FOREVER}
    result = ap.similarity_join(left, right, **question, options=ap.Options(**options))
    rows: list[dict[str, Any]] = result.to_pylist()
    return rows


@pytest.mark.parametrize("index", ["grid", "dense"])
@pytest.mark.parametrize("bounds", [BOUNDS, frozenset(), *({b} for b in sorted(BOUNDS))])
@pytest.mark.parametrize(("alpha", "answers"), [(0.5, 0), (0.4, 0), (0.07, 0), (1 / 16, 1), (0.05, 1)])
def test_the_example_of_the_paper(alpha: float, answers: int, bounds: Any, index: str) -> None:
    """X = {0, 1, 2, 9} and Y = {10, 11, 12, 21} at epsilon 1 have Pr 1/16: an answer at exactly that, inclusive."""
    x, y = _line([0, 1, 2, 9]), _line([10, 11, 12, 21])
    found = _asked(x, y, 1.0, alpha, index=index, bounds=bounds)
    assert len(found) == answers
    for row in found:
        assert row["probability"] == 1 / 16
        assert row["distance"] == 10.5


@pytest.mark.parametrize("bounds", [BOUNDS, frozenset(), *({b} for b in sorted(BOUNDS))])
def test_moments_are_weighted_by_probability(bounds: Any) -> None:
    """{0: .9, 4: .1} against {-1: 1} at epsilon 1 has Pr .9, and with a plain mean would be pruned at .6."""
    x, y = _line({0: 0.9, 4: 0.1}), _line({-1: 1.0})
    for alpha in (0.6, 0.9):
        assert [row["probability"] for row in _asked(x, y, 1.0, alpha, bounds=bounds)] == [pytest.approx(0.9)]
    assert _asked(x, y, 1.0, 0.90001, bounds=bounds) == []


def test_two_gaussians_keep_their_closed_form_on_a_line_among_other_models() -> None:
    """Also where their windows are looked into one push after the other."""
    table = pa.table({"id": [0], "ts": [0], "x": [0.0]})
    wide, narrow = (
        ap.Stream(None, key="id", time="ts", value=ap.Gaussian("x", sigma=s, samples=1)) for s in (0.5, 0.0)
    )
    point = ap.Stream(None, key="id", time="ts", value=ap.Exact("x"))
    for index in ("auto", "sorted", "dense", "grid"):
        join = hands.similarity_join(
            a=wide, b=narrow, c=point, epsilon=0.5, probability=0.5, window=FOREVER, options=ap.Options(index=index)
        )
        found = [join.push(a=table, b=table.slice(0, 0), c=table.slice(0, 0)), join.push(b=table)]
        assert [p for part in found for p in part["probability"].to_pylist()] == [
            pytest.approx(math.erf(math.sqrt(0.5)))
        ]


@pytest.mark.parametrize("samples", [1, 3, 64])
def test_two_gaussians_among_other_models_are_not_ruled_out_by_their_few_points(samples: int) -> None:
    """Centres are sqrt(7.5) apart: at one point each they are beyond epsilon, and a quarter of the mass is not."""
    rows = {"id": [0], "ts": [0], "x": [-1.5], "y": [-1.0], "z": [0.5]}, {"id": [0], "ts": [0], "x": [-1.0]}
    tables = pa.table(rows[0]), pa.table(rows[1] | {"y": [1.5], "z": [1.5]})
    left, right = (
        ap.Stream(table, key="id", time="ts", value=ap.Gaussian("x", "y", "z", sigma=sigma, samples=samples))
        for table, sigma in zip(tables, (0.5, 0.001), strict=True)
    )
    ball = ap.Stream(tables[0].slice(0, 0), key="id", time="ts", value=ap.Ball("x", "y", "z", radius=1.0))
    question: dict[str, Any] = {"epsilon": 2.5, "probability": 0.2, "window": FOREVER}
    found = ap.similarity_join(left, right, ball, **question)["probability"].to_pylist()
    assert found == ap.similarity_join(left, right, **question)["probability"].to_pylist() != []


@pytest.mark.parametrize("existence", [1.0, 0.1])
def test_ten_tenths_reach_a_threshold_of_one(existence: float) -> None:
    """The sum of ten doubles 0.1 is less than 1; the answer is one all the same."""
    x = _line({float(i) / 10: 0.1 for i in range(10)})
    y = _line([0.0, 0.5])
    y = replace(y, frame=y.frame.append_column("e", pa.array([existence])), existence="e")
    found = _asked(x, y, 1.0, existence)
    assert [row["probability"] for row in found] == [pytest.approx(existence, abs=1e-12)]


@pytest.mark.parametrize("index", ["grid", "dense"])
@pytest.mark.parametrize("samples", [64, 2, 1, 7])
def test_a_gaussian_that_meets_samples_keeps_its_longer_reach(index: str, samples: int) -> None:
    """{0: .74, -1: .20, 10/3: .06} against N(-1.001, .3), epsilon 1, alpha .5, is an answer at the default points."""
    x = _line({0: 0.74, -1: 0.20, 10 / 3: 0.06})
    table = pa.table({"id": [0], "ts": [0.0], "x": [-1.001]})
    y = ap.Stream(table, key="id", time="ts", value=ap.Gaussian("x", sigma=0.3, samples=samples))
    expected = naive.samples_probability(
        naive.object_of(x.frame.to_pylist()[0], x), naive.object_of(table.to_pylist()[0], y), 1.0
    )
    if samples == 64:
        assert expected > 0.5
    found = _asked(x, y, 1.0, 0.5, index=index)
    assert [row["probability"] for row in found] == ([pytest.approx(float(expected))] if expected >= 0.5 else [])


def test_possible_worlds_say_the_same_as_the_formula() -> None:
    """Each object is one of its samples, or not there at all."""
    x = naive.Object(((0.0,), (1.0,), (3.0,)), (Fraction(1, 4), Fraction(1, 4), Fraction(1, 8)))
    y = naive.Object(((1.0,), (2.0,)), (Fraction(1, 3), Fraction(1, 3)))
    probability = naive.worlds_probability(x, y, 1.0)
    assert probability == naive.samples_probability(x, y, 1.0) == Fraction(7, 24)
    left, right = _line({0: 0.25, 1: 0.25, 3: 0.125}), _line({1: 1 / 3, 2: 1 / 3})
    assert [row["probability"] for row in _asked(left, right, 1.0, 7 / 24)] == [pytest.approx(7 / 24)]
    assert _asked(left, right, 1.0, 7 / 24 + 1e-6) == []


# --- ties and the tolerance -------------------------------------------------------------------------------------


def _points(*rows: Sequence[float], **columns: Any) -> pa.Table:
    d = len(rows[0]) if rows else 1
    x = {f"x{k}": pa.array([float(row[k]) for row in rows], pa.float64()) for k in range(d)}
    return pa.table({"id": list(range(len(rows))), "ts": [0.0] * len(rows)} | x | columns)


def _exact(table: pa.Table | None, **settings: Any) -> ap.Stream:
    d = 1 if table is None else sum(name.startswith("x") for name in table.schema.names)
    usual: dict[str, Any] = {"key": "id", "time": "ts", "value": ap.Exact(*(f"x{k}" for k in range(d)))}
    return ap.Stream(table, **(usual | settings))


@pytest.mark.parametrize("index", ["grid", "dense"])
@pytest.mark.parametrize("offset", [0.0, 1e7, -123456.5])
@pytest.mark.parametrize(
    ("apart", "epsilon"),
    [
        ((1.0,), 1.0),
        ((0.1 + 0.2,), 0.3),
        ((3.0, 4.0), 5.0),
        ((1.0, 1.0), math.sqrt(2)),
        ((0.3, 0.4), 0.5),
        ((1.0, 2.0, 2.0), 3.0),
        ((1.0, 1.0, 1.0), math.sqrt(3)),
        ((0.1, 0.2, 0.2), 0.3),
        ((300.0, 400.0), 500.0),
        ((1.0, 1.0, 1.0, 1.0), 2.0),
    ],
)
def test_pairs_at_exactly_epsilon_are_answers(apart: Any, epsilon: float, offset: float, index: str) -> None:
    """In any direction, as points, samples, balls of no radius and Gaussians of no sigma, and certain: Pr is 1."""
    if offset and any(x != round(x * 2) / 2 for x in apart):
        return  # not a tie any more: the sum is rounded
    d = len(apart)
    here, there = _points([offset] * d), _points([offset + x for x in apart])
    columns = [f"x{k}" for k in range(d)]
    as_samples = [
        table.append_column("s", pa.array([[list(row.values())[2:]] for row in table.to_pylist()]))
        for table in (here, there)
    ]
    for left in (ap.Exact(*columns), ap.Ball(*columns, radius=0.0), ap.Gaussian(*columns, sigma=0.0), ap.Samples("s")):
        for right in (ap.Exact(*columns), ap.Gaussian(*columns, sigma=0.0), ap.Samples("s")):
            for a, b in permutations(as_samples):
                found = _asked(_exact(a, value=left), _exact(b, value=right), epsilon, 1.0, index=index)
                assert [row["probability"] for row in found] == [1.0]
                nearer = epsilon - 4e-9 * max(1.0, epsilon)
                assert _asked(_exact(a, value=left), _exact(b, value=right), nearer, 1e-3, index=index) == []


@pytest.mark.parametrize("index", ["grid", "dense"])
def test_the_tolerance_of_the_distance_is_a_billionth(index: str) -> None:
    """Absolute below 1, relative above: both sides of it."""
    for epsilon in (0.0, 1e-3, 1.0, 1e6):
        slack = 1e-9 * max(1.0, epsilon)
        here = _exact(_points([0.0]))
        inside, outside = (_exact(_points([epsilon + share * slack])) for share in (0.9, 1.1))
        assert len(_asked(here, inside, epsilon, 1.0, index=index)) == 1
        assert len(_asked(here, outside, epsilon, 1.0, index=index)) == 0


def test_the_tolerance_of_the_probability_is_a_billionth() -> None:
    """A mass that falls short of the threshold by less is enough."""
    here = _exact(_points([0.0]))
    for short, answers in ((0.9e-9, 1), (1.1e-9, 0), (0.0, 1)):
        table = _points([0.0], e=[0.5 - short])
        assert len(_asked(here, _exact(table, existence="e"), 1.0, 0.5)) == answers


@pytest.mark.parametrize("index", ["grid", "dense"])
@pytest.mark.parametrize("d", [1, 2, 3])
def test_epsilon_zero_pairs_what_is_at_one_place(index: str, d: int) -> None:
    """Certain points and samples alike."""
    rows = [[i % 3] * d for i in range(9)]
    table = _points(*rows)
    found = _asked(_exact(table), _exact(table), 0.0, 1.0, index=index)
    assert len(found) == 27
    assert {row["distance"] for row in found} == {0.0}
    table = table.append_column("s", pa.array([[[float(x) for x in row], [9.0] * d] for row in rows]))
    found = _asked(_exact(table, value=ap.Samples("s")), _exact(table), 0.0, 0.5, index=index)
    assert len(found) == 27
    assert {row["probability"] for row in found} == {0.5}


@pytest.mark.parametrize("alpha", [1e-300, 1e-12, 1e-9, 2e-9, 3e-9])
def test_a_tiny_threshold_asks_for_more_than_nothing(alpha: float) -> None:
    """Pairs that cannot be close are no answers, however small the threshold."""
    x, y = _line({0.0: 1e-3, 50.0: 0.5}), _line([0.5, 100.0])
    assert [row["probability"] for row in _asked(x, y, 1.0, alpha)] == [pytest.approx(5e-4)]
    assert _asked(x, _line([20.0, 30.0]), 1.0, alpha) == []


# --- Gaussians --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("d", [1, 2, 3])
def test_pairs_of_gaussians_are_the_noncentral_chi_square(d: int) -> None:
    """As scipy has it, and as a million dice fall."""
    random = np.random.default_rng(d)
    columns = [f"x{k}" for k in range(d)]
    left, right = (
        _points(*random.normal(0, 1, (6, d)).tolist(), s=random.random(6), e=random.random(6) * 0.5 + 0.5)
        for _ in range(2)
    )
    x, y = (_exact(t, value=ap.Gaussian(*columns, sigma="s"), existence="e") for t in (left, right))
    found = _asked(x, y, 1.2, 1e-6)
    assert len(found) > 20
    for row in found:
        a, b = left.slice(row["left_key"], 1).to_pylist()[0], right.slice(row["right_key"], 1).to_pylist()[0]
        gap = np.array([a[c] - b[c] for c in columns])
        truth = naive.gaussian_probability(float(np.linalg.norm(gap)), math.hypot(a["s"], b["s"]), 1.2, d)
        assert row["probability"] == pytest.approx(truth * a["e"] * b["e"], abs=1e-11)
        dice = gap + random.normal(0, 1, (40_000, d)) * a["s"] + random.normal(0, 1, (40_000, d)) * b["s"]
        share = (np.linalg.norm(dice, axis=1) <= 1.2).mean() * a["e"] * b["e"]
        assert abs(row["probability"] - share) < 0.02


def test_gaussian_points_come_close_to_the_closed_form() -> None:
    """64 points a side are within some percent of it: what a Gaussian meets in a mixed call."""
    table = _points([0.0, 0.0], [1.0, 0.5], [2.0, 0.0], s=[0.5, 0.7, 1.0], t=[0.5, 0.7, 1.0])
    closed, points = (
        _asked(_exact(table, value=model), _exact(table, value=model), 1.5, 1e-3)
        for model in (ap.Gaussian("x0", "x1", sigma="s"), ap.Gaussian("x0", "x1", sigma=("s", "t")))
    )
    assert len(closed) == len(points) == 9
    for a, b in zip(sorted(closed, key=str), sorted(points, key=str), strict=True):
        assert (a["left_key"], a["right_key"]) == (b["left_key"], b["right_key"])
        assert abs(a["probability"] - b["probability"]) < 0.05


@pytest.mark.parametrize("alpha", [0.001, 0.3, 0.5, 0.9])
def test_gaussians_keep_their_closed_form_beside_other_models(alpha: float) -> None:
    """In a call of three streams two Gaussians are answered as in a call of two."""
    random = np.random.default_rng(5)
    clouds = [_points(*random.normal(0, 2, (40, 2)).tolist(), s=random.random(40)) for _ in range(3)]
    gaussian = ap.Gaussian("x0", "x1", sigma="s")
    a, b = (_exact(t, value=gaussian, name=name) for t, name in zip(clouds[:2], "ab", strict=True))
    third = _exact(clouds[2])
    for index in ("grid", "dense", "sorted"):
        settings_: dict[str, Any] = {"epsilon": 1.0, "probability": alpha, "window": FOREVER}
        settings_["options"] = ap.Options(index=index)
        both = naive.answers_of(ap.similarity_join(a, b, third, **settings_))
        pair = naive.answers_of(ap.similarity_join(a, b, **settings_))
        assert pair
        naive.assert_same_answers([x for x in both if x.right_stream == "b"], pair)


# --- windows, partitions, names ---------------------------------------------------------------------------------


def _at(*times: float, **columns: Any) -> pa.Table:
    n = len(times)
    x = pa.array([0.0] * n, pa.float64())
    return pa.table({"id": pa.array(range(n), pa.int64()), "ts": pa.array(times, pa.float64()), "x0": x} | columns)


@pytest.mark.parametrize(
    ("left", "right", "window", "pairs"),
    [
        ([0.0], [10.0], {"length": 10}, 1),
        ([0.0], [10.000001], {"length": 10}, 0),
        ([0.0, 1.0, 1.0], [1.0, 2.0], {"length": 0}, 2),
        ([0.0], [5.0], {"length": 1, "per_stream": {"left": 5}}, 1),
        ([5.0], [0.0], {"length": 1, "per_stream": {"left": 5}}, 0),
        ([5.0], [0.0], {"length": 1, "per_stream": {"right": "5 seconds"}}, 1),
        ([-5.0, -1e9], [-4.0], {"length": 1}, 1),
    ],
)
def test_windows_are_closed_and_belong_to_the_older_row(left: Any, right: Any, window: Any, pairs: int) -> None:
    """A row is in its window at most that long after its time; which of the two comes first does not matter."""
    question: dict[str, Any] = {"epsilon": 1, "probability": 1, "window": ap.TimeWindow(**window)}
    for index in ("grid", "dense", "sorted"):
        options = ap.Options(index=index)
        result = ap.similarity_join(_exact(_at(*left)), _exact(_at(*right)), **question, options=options)
        assert len(result) == pairs
        late = {"lateness": 1e10}
        for first, second in permutations(("left", "right")):
            join = hands.similarity_join(
                left=_exact(_at(), **late), right=_exact(_at(), **late), **question, options=options
            )
            join.push(left=_at(), right=_at())
            parts = [join.push(**{side: _at(*{"left": left, "right": right}[side])}) for side in (first, second)]
            assert sum(map(len, parts)) == pairs


def test_a_row_at_exactly_its_lateness_is_in_time() -> None:
    """Judged against the slowest stream, as it stood before the push, and beside rows that are too late."""
    streams: dict[str, Any] = {name: _exact(None, value=ap.Exact("x0"), lateness="2 seconds") for name in ("a", "b")}
    join = hands.similarity_join(**streams, epsilon=1, probability=1, window=ap.TimeWindow(100))
    join.push(a=_at(10.0), b=_at(7.0))
    found = join.push(a=_at(5.0, 4.999, 100.0), b=_at(5.0))
    assert sorted(zip(found["left_time"].to_pylist(), found["right_time"].to_pylist(), strict=True)) == [
        *((5.0, 5.0), (5.0, 7.0), (10.0, 5.0), (100.0, 5.0), (100.0, 7.0)),
    ]
    late = join.rejects().to_pylist()
    assert [(row["stream"], row["time"], row["reason"]) for row in late] == [("a", 4.999, "late")]
    assert late[0]["detail"].startswith("0.001000 seconds")
    # The slowest stream has not moved.
    join.push(a=_at(5.0), b=_at(4.0))
    assert len(join.rejects()) == 2


@pytest.mark.parametrize("unit", ["us", "s"])
def test_times_at_the_ends_of_the_range_have_windows_too(unit: str) -> None:
    """Nothing overflows near 2^62 microseconds, and windows may be as long."""
    most = 2**62 - 2**10 if unit == "us" else (2**62 - 2**40) // 10**6
    table = pa.table({"id": [0, 1, 2], "ts": pa.array([most, -most, 0]), "x0": [0.0] * 3})
    stream = _exact(table, unit=unit)
    for length, pairs in ((1, 0), (73_000 * 365.2 * 86400, 0), (0, 0)):
        assert len(ap.self_join(stream, epsilon=1, probability=1, window=ap.TimeWindow(length))) == pairs
    twins = _exact(pa.concat_tables([table, table]), unit=unit)
    found = ap.self_join(twins, epsilon=1, probability=1, window=ap.TimeWindow(5))
    assert sorted(found["left_time"].to_pylist()) == [-most, 0, most]


@pytest.mark.parametrize(
    "partition",
    [
        [0, 1, 0],
        ["a", "b", "a"],
        [True, False, True],
        [{"a": 1, "b": True}, {"a": 2, "b": True}, {"a": 1, "b": True}],
        [[1, None], [1], [1, None]],
    ],
)
def test_partitions_never_meet(partition: list[Any]) -> None:
    """Whatever the type of their column, in every batch."""
    left, right = _at(0, 0, 0, p=partition), _at(0, 0, p=partition[1:])
    streams = [_exact(t, partition_by="p", lateness=10) for t in (left, right)]
    result = ap.similarity_join(*streams, epsilon=1, probability=1, window=ap.TimeWindow(1))
    assert sorted(_key_pairs(result)) == [(0, 1), (1, 0), (2, 1)]
    join = hands.similarity_join(left=streams[0], right=streams[1], epsilon=1, probability=1, window=ap.TimeWindow(1))
    join.push(left=left.slice(0, 0), right=right.slice(0, 0))
    parts = [join.push(left=left.slice(i, 1)) for i in range(3)] + [join.push(right=right.slice(i, 1)) for i in (1, 0)]
    assert sum(map(len, parts)) == 3


def test_two_partition_columns_do_not_run_into_each_other() -> None:
    """("ab", "c") is not ("a", "bc")."""
    table = _at(0, 0, p=["ab", "a"], q=["c", "bc"])
    stream = _exact(table, partition_by=("p", "q"))
    assert len(ap.self_join(stream, epsilon=1, probability=1, window=ap.TimeWindow(1))) == 0


def test_a_self_join_pairs_each_two_rows_once_the_earlier_on_the_left() -> None:
    """Rows of one time in the order of their keys; no row with itself, equal rows with each other."""
    table = pa.table({"id": ["b", "a", "c", "a"], "ts": [1, 1, 0, 1], "x0": [0.0] * 4})
    found = ap.self_join(_exact(table), epsilon=0, probability=1, window=ap.TimeWindow(1))
    assert sorted(_key_pairs(found)) == [("a", "a"), ("a", "b"), ("a", "b"), ("c", "a"), ("c", "a"), ("c", "b")]
    assert set(found["left_stream"].to_pylist()) == set(found["right_stream"].to_pylist()) == {"left"}
    same = _exact(table, name="cabs")
    again = ap.similarity_join(same, same, epsilon=0, probability=1, window=ap.TimeWindow(1))
    assert sorted(_key_pairs(again)) == sorted(_key_pairs(found))
    assert set(again["left_stream"].to_pylist()) == set(again["right_stream"].to_pylist()) == {"cabs"}


def test_rows_that_have_to_differ_do_not_differ_from_null() -> None:
    """Nor from themselves."""
    table = _at(0, 0, 0, 0, 0, tag=["u", "v", None, "u", None])
    question: dict[str, Any] = {"epsilon": 1, "probability": 1, "window": ap.TimeWindow(1)}
    found = ap.self_join(_exact(table), **question, different="tag")
    assert sorted(_key_pairs(found)) == [(0, 1), (1, 3)]
    assert len(ap.self_join(_exact(table), **question)) == 10
    join = hands.similarity_join(a=_exact(_at(), lateness=10), **question, different="tag")
    parts = [join.push(a=table.slice(i, 1)) for i in range(5)]
    assert sorted(pair for part in parts for pair in _key_pairs(part)) == [(0, 1), (1, 3)]


def test_every_two_of_many_streams_are_joined() -> None:
    """The earlier argument on the left, under the names of the streams."""
    streams = [_exact(_at(0), name="third" if i == 2 else None) for i in range(4)]
    found = ap.similarity_join(*streams, epsilon=0, probability=1, window=ap.TimeWindow(0))
    names = ["left", "right", "third", "s4"]
    pairs = sorted(zip(found["left_stream"].to_pylist(), found["right_stream"].to_pylist(), strict=True))
    assert pairs == sorted((a, b) for i, a in enumerate(names) for b in names[i + 1 :])


# --- odds and ends ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["exact", "samples", "gaussian", "ball"])
@pytest.mark.parametrize("rows", [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_empty_streams_and_single_rows_join(model: str, rows: tuple[int, int]) -> None:
    """To nothing, or to one pair, in the columns of every answer."""
    value = {
        "exact": ap.Exact("x0"),
        "samples": ap.Samples("s"),
        "gaussian": ap.Gaussian("x0", sigma=0.1),
        "ball": ap.Ball("x0", radius=0.1),
    }[model]
    table = _points([1.0], s=[[[1.0]]])
    streams = [_exact(table.slice(0, n), value=value) for n in rows]
    for index in ("auto", "grid", "dense"):
        result = ap.similarity_join(
            *streams, epsilon=1, probability=0.5, window=FOREVER, options=ap.Options(index=index)
        )
        assert len(result) == rows[0] * rows[1]
        assert result.schema.names == [
            *("left_stream", "left_key", "left_time", "right_stream", "right_key", "right_time"),
            *("distance", "probability"),
        ]
        assert len(ap.rejects(result)) == 0
    assert len(ap.self_join(streams[0], epsilon=1, probability=0.5, window=FOREVER)) == 0


def test_keys_need_not_be_unique_nor_ordinary() -> None:
    """NaN is a key like any other, and equal rows are rows of their own."""
    table = _points([0.0], [0.0], [0.0]).set_column(0, "id", pa.array([math.nan, math.nan, 1.0]))
    found = ap.self_join(_exact(table), epsilon=0, probability=1, window=FOREVER)
    assert len(found) == 3
    keys = [key for pair in _key_pairs(found) for key in pair]
    assert sum(math.isnan(key) for key in keys) == 4


@pytest.mark.parametrize("index", ["grid", "dense"])
@pytest.mark.parametrize("centre", [1e7, -1e7 / 3, 1e9 + 1 / 3])
def test_far_from_the_origin_every_bound_still_holds(index: str, centre: float) -> None:
    """UTM metres and beyond, epsilon 1: samples, balls and Gaussians as without any bound."""
    random = np.random.default_rng(11)
    tables = []
    for _ in range(2):
        base = centre + random.integers(-8, 9, (60, 2)) / 4
        samples = (base[:, None, :] + random.integers(-4, 5, (60, 12, 2)) / 4).tolist()
        tables.append(_points(*base.tolist(), s=samples, r=random.choice([0.0, 0.5, 1.0], 60)))
    both = ("x0", "x1")
    models = (ap.Samples("s"), ap.Ball(*both, radius="r", samples=8), ap.Gaussian(*both, sigma="r", samples=8))
    for left in models:
        for right in models:
            streams = [_exact(t, value=m) for t, m in zip(tables, (left, right), strict=True)]
            for alpha in (0.25, 0.5, 1.0):
                question: dict[str, Any] = {"epsilon": 1.0, "probability": alpha, "window": FOREVER}
                truth = ap.similarity_join(*streams, **question, options=ap.Options(index="dense", bounds=frozenset()))
                found = ap.similarity_join(*streams, **question, options=ap.Options(index=index))
                naive.assert_same_answers(found, naive.answers_of(truth))


@pytest.mark.parametrize("scale", [1e-200, 1e-12, 1e12, 1e100])
def test_coordinates_of_any_size_are_compared(scale: float) -> None:
    """From far below the tolerance, where all is close, to where squares almost overflow."""
    table = _points([0.0, 0.0], [scale, 0.0], [3.0 * scale, 4.0 * scale])
    for index in ("grid", "dense", "sorted"):
        found = _asked(_exact(table), _exact(table), 5.0 * scale, 1.0, index=index)
        assert len(found) == 9
        found = _asked(_exact(table), _exact(table), 0.5 * scale, 1.0, index=index)
        assert len(found) == (9 if scale < 1e-9 else 3)


def test_states_of_other_dimensions_are_refused() -> None:
    """A batch of rows of three dimensions cannot enter a window of two."""
    two, three = (pa.table({"id": [0], "ts": [0.0], "s": [[[0.0] * d]]}) for d in (2, 3))
    streams = [ap.Stream(None, key="id", time="ts", value=ap.Samples("s"), name=name) for name in "ab"]
    call = resolve(streams, [two.schema] * 2, JoinSettings(epsilon=1, probability=1, window=FOREVER))
    engine = LocalJoin(call)
    engine.push({"a": two, "b": three})
    assert engine.rejects()["reason"].to_pylist() == ["wrong dimension"]
    operator = SimilarityJoin(call.plan)
    encodings = [replace(e, dimensions=d) for e, d in zip(call.encodings, (2, 3), strict=True)]
    operator.push([(0, 0, encode(two, encodings[0])[0])])
    with pytest.raises(ap.StateError, match="3 dimensions to a window of 2"):
        operator.push([(1, 0, encode(three, encodings[1])[0])])
