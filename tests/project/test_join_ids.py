"""Join-iDS as printed: every step on or off, it says what imputing everything first and looking at all pairs says."""

from __future__ import annotations

from dataclasses import fields, replace
from fractions import Fraction
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import appulse as ap
from benchmarks.ids import JoinIDS, Question, Switches, straight
from benchmarks.ids_index import _touched, cost, index_of
from tests.helpers import naive_imputation as naive

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Matrix = NDArray[np.float64]
    Pair = tuple[int, int, int, int]

pytestmark = pytest.mark.rivals
STEPS = tuple(field.name for field in fields(Switches))


def joined(streams: list[Matrix], imputer: ap.DependencyImputer, question: Question) -> list[dict[Pair, Fraction]]:
    """The pairs that enter the answer at each tick: all of them looked at, in fractions."""
    names = imputer.repository.names
    known = [dict(zip(names, row, strict=True)) for row in imputer.repository.matrix(names).T.tolist()]
    samples = [[_samples(row, names, known, imputer) for row in stream] for stream in streams]
    alpha, entered = Fraction(question.alpha).limit_denominator(1000), []
    for tick in range(len(streams[0])):
        found: dict[Pair, Fraction] = {}
        for a, b in combinations(range(len(streams)), 2):
            for i in range(max(0, tick - question.w + 1), tick + 1):
                for j in range(max(0, tick - question.w + 1), tick + 1):
                    if tick not in (i, j):
                        continue
                    chance = sum(
                        (
                            p * q
                            for x, p in samples[a][i]
                            for y, q in samples[b][j]
                            if sum((u - v) ** 2 for u, v in zip(x, y, strict=True)) <= question.limit**2
                        ),
                        Fraction(0),
                    )
                    if chance >= alpha:
                        found[a, i, b, j] = chance
        entered.append(found)
    return entered


def _samples(row: Matrix, names: tuple[str, ...], known: list[naive.Row], imputer: ap.DependencyImputer) -> Any:
    holed = {name: None if np.isnan(x) else float(x) for name, x in zip(names, row, strict=True)}
    return naive.filled(holed, known, imputer.rules, marginal=imputer.most_marginal)[0]


def told(found: Any) -> dict[Pair, float]:
    """The same from what was found; the one of the earlier stream on the left."""
    pairs = {}
    for (a, i, b, j), p in found.told.items():
        pairs[(a, i, b, j) if a < b else (b, j, a, i)] = p
    assert len(pairs) == len(found.pairs), "a pair is told twice"
    return pairs


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[Matrix], ap.DependencyImputer, Question]:
    """Streams and a repository on a lattice, where ties are many; objects with none to all but one missing."""
    d, ticks, kinds = draw(st.integers(2, 3)), draw(st.integers(1, 8)), draw(st.sampled_from((2, 2, 3)))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    streams = []
    for _ in range(kinds):
        rows = rng.integers(0, draw(st.sampled_from((3, 7, 12))), (ticks, d)).astype(float)
        ranks = rng.random((ticks, d)).argsort(axis=1)
        streams.append(np.where(ranks < rng.integers(0, d, (ticks, 1)), np.nan, rows))
    names = [f"a{k}" for k in range(d)]
    known = rng.integers(0, 9, (draw(st.sampled_from((1, 5, 30))), d)).astype(float)
    rules = [
        ap.DifferentialDependency({by: draw(st.sampled_from((0.0, 1.0, 2.0)))}, name, 99.0)
        for name in names
        for by in names
        if name != by and draw(st.integers(0, 3))
    ]
    marginal = draw(st.sampled_from((2, 256)))
    imputer = ap.DependencyImputer(pa.table(dict(zip(names, known.T, strict=True))), rules, marginal=marginal)
    epsilon, alpha = draw(st.sampled_from((0.0, 1.0, 1.5, 3.0))), draw(st.sampled_from((0.1, 0.25, 0.5, 0.75, 1.0)))
    return streams, imputer, Question(epsilon, alpha, draw(st.integers(1, 9)))


@given(cases(), st.sets(st.sampled_from(STEPS)))
def test_any_steps_answer_as_imputing_everything_first(
    case: tuple[list[Matrix], ap.DependencyImputer, Question], off: set[str]
) -> None:
    streams, imputer, question = case
    wanted = joined(streams, imputer, question)
    some = JoinIDS(streams, imputer, question, replace(Switches(), **dict.fromkeys(off, False)), buckets=4)
    for join in (JoinIDS(streams, imputer, question), straight(streams, imputer, question), some):
        for tick, entered in enumerate(wanted):
            found = join.run(tick, tick + 1)
            assert told(found) == pytest.approx({pair: float(p) for pair, p in entered.items()}, abs=1e-9)
            stands = [p for part in wanted[: tick + 1] for p in part if min(p[1], p[3]) > tick - question.w]
            assert found.counts["reported"] == len(stands)


@given(cases(), st.sampled_from(STEPS))
def test_every_pair_is_counted_once(case: tuple[list[Matrix], ap.DependencyImputer, Question], off: str) -> None:
    streams, imputer, question = case
    ticks = len(streams[0])
    whole = JoinIDS(streams, imputer, question, replace(Switches(), **{off: False})).run(0, ticks)
    counts = whole.counts
    assert counts["met"] == sum(counts[name] for name in ("pruned_common", "pruned_object", "pruned_sample", "refined"))
    assert counts["met"] <= counts["joined"] == straight(streams, imputer, question).run(0, ticks).counts["refined"]
    if off == "lazy":
        assert counts["left_observed"] == counts["left_boxed"] == 0
    assert {"common": counts["pruned_common"], "samples": counts["pruned_sample"]}.get(off, 0) == 0


# --- steps one by one, on objects made for them -----------------------------------------------------------------------

LINE = pa.table(dict.fromkeys("xy", np.repeat(np.arange(10.0), 64)))


def of(rows: list[tuple[float | None, float | None]]) -> Matrix:
    return np.array([[np.nan if x is None else x for x in row] for row in rows])


def counted(left: Matrix, right: Matrix, question: Question, *off: str, reach: float = 1.0) -> dict[str, int]:
    rules = [
        ap.DifferentialDependency({"x": reach}, "y", 99.0),
        ap.DifferentialDependency({"y": reach}, "x", 99.0),
    ]
    switches = replace(Switches(), **dict.fromkeys(off, False))
    join = JoinIDS([left, right], ap.DependencyImputer(LINE, rules), question, switches)
    return join.run(0, len(left)).counts


def test_what_nothing_is_near_in_common_attributes_is_never_looked_up() -> None:
    left, right = of([(1.0, None)] * 3), of([(8.0, None)] * 3)
    question = Question(1.0, 0.5, 1)
    assert counted(left, right, question)["left_observed"] == 4
    assert counted(left, right, question)["nodes"] == 0
    assert counted(left, right, question, "common")["left_boxed"] == 4
    assert counted(left, right, question, "common", "histograms")["left_filled"] == 4
    assert counted(left, right, question, "lazy")["left_filled"] == 4


def test_histograms_tell_apart_what_common_attributes_do_not() -> None:
    left, right = of([(1.0, None)] * 3), of([(None, 8.0)] * 3)
    question = Question(1.0, 0.5, 1)
    counts = counted(left, right, question)
    assert counts["left_filled"] == 0
    assert counts["left_boxed"] >= 2
    assert counted(left, right, question, "histograms")["left_filled"] > 0


def test_sample_level_pruning_takes_what_boxes_leave() -> None:
    """What is missing is 0 ... 6, of 7 values one is in reach: boxes touch, and 1/7 < 0.5."""
    left, right = of([(3.0, None)]), of([(3.0, 7.0)])
    question = Question(1.0, 0.5, 1)
    counts = counted(left, right, question, "cells", reach=3.0)
    assert (counts["pruned_object"], counts["pruned_sample"], counts["refined"]) == (0, 1, 0)
    counts = counted(left, right, question, "cells", "samples", reach=3.0)
    assert (counts["pruned_sample"], counts["refined"]) == (0, 1)


def test_cells_far_from_the_least_sub_box_are_left_out() -> None:
    """The right one comes first, and stands in the cell of y = 7; the most of the left one ends at 5."""
    left, right = of([(99.0, 99.0), (3.0, None)]), of([(3.0, 7.0), (99.0, 0.0)])
    question = Question(1.0, 0.5, 2)
    assert counted(left, right, question, reach=3.0)["met"] == 0
    assert counted(left, right, question, "cells", reach=3.0)["met"] == 1


def test_an_object_in_several_cells_is_met_in_any_that_is_left() -> None:
    """One that is wide, half of it in cells that the other's sub-box rules out, is an answer for all that."""
    left, right = of([(99.0, 99.0), (5.0, 5.0)]), of([(5.0, None), (0.0, 99.0)])
    for reach, chance in ((1.0, 1.0), (2.0, 3 / 5), (3.0, 3 / 7)):
        rules = [ap.DifferentialDependency({"x": reach}, "y", 99.0)]
        join = JoinIDS([left, right], ap.DependencyImputer(LINE, rules), Question(1.0, 0.4, 2))
        assert told(join.run(0, 2)) == pytest.approx({(0, 1, 1, 0): chance})


def test_clusters_by_cost() -> None:
    """Four points, half sides 0.1: pairs that are close cost 0.22, crossed ones 3.2412 (appendix B.2, re-derived)."""
    points = np.array([[0.1, 0.15, 0.8, 0.82], [0.1, 0.12, 0.85, 0.8]])
    one, half = np.ones(2), np.full(2, 0.1)

    def of_pairs(*pairs: list[int]) -> float:
        return sum(_touched(points[:, pair], [0, 1], one, half) for pair in pairs)

    assert of_pairs([0, 1], [2, 3]) == pytest.approx(0.22)
    assert of_pairs([0, 2], [1, 3]) == pytest.approx(3.2412)
    rng = np.random.default_rng(1)
    table = pa.table({"x": rng.random(5000), "y": rng.random(5000), "z": rng.random(5000)})
    rules = [ap.DifferentialDependency({"x": 0.01, "y": 0.2}, "z", 1.0)]
    imputer = ap.DependencyImputer(table, rules)
    by_cost, by_turns = (cost(index_of(imputer, ("x", "y", "z"), by_cost=flag), 2) for flag in (True, False))
    assert by_cost < 0.8 * by_turns
