"""Pushes of many rows in order of cells: the answers of rows that are looked up one after the other."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import appulse as ap
from appulse.operators import cell_order, estimate, few_points, large_pushes, similarity_join
from tests.helpers import naive, strategies
from tests.operators.test_whole import CASES, assert_same, tables


@pytest.fixture(autouse=True)
def made(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Every push is large enough, and has many parts; those that were."""
    found: list[Any] = []
    original = large_pushes.LargePush.answers

    def answers(self: Any) -> Any:
        found.append(self)
        return original(self)

    monkeypatch.setattr(large_pushes, "_FROM", 1)
    monkeypatch.setattr(large_pushes, "_HELD", 1 << 30)
    monkeypatch.setattr(large_pushes, "_PART", 2)
    monkeypatch.setattr(few_points, "FEW", 0)
    monkeypatch.setattr(large_pushes.LargePush, "answers", answers)
    return found


@pytest.mark.usefixtures("made")
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data(), CASES, st.booleans(), st.sets(st.integers(0, 20)))
def test_answers_are_those_of_the_twin(
    data: st.DataObject, case: strategies.Case, slots: bool, small: set[int]
) -> None:
    """Some pushes are taken the other way, by an index that finds what large ones left."""
    pushes, expected = data.draw(strategies.pushes(case)), case.expected()
    with pytest.MonkeyPatch.context() as patch:
        if slots:
            patch.setattr(cell_order, "_pays", lambda *_: True)
        join, found = case.by_hand(), []
        for i, push in enumerate(pushes):
            patch.setattr(large_pushes, "_FROM", 1 << 20 if i in small else 1)
            found.append(join.push(**case.frames(push)))
        rejects = join.rejects()
        found.append(join.drain())
    answers = [part for part in found if part.num_columns]
    naive.assert_same_answers(pa.concat_tables(answers), expected.answers)
    naive.assert_same_rejects(rejects, expected.rejects)


def pushed(join: Any, cuts: dict[str, list[pa.Table]]) -> pa.Table:
    """All that comes of pushes, and of the end."""
    names = list(cuts)
    found = [join.push(**dict(zip(names, push, strict=True))) for push in zip(*cuts.values(), strict=True)]
    found.append(join.drain())
    return pa.concat_tables([table for table in found if table.num_columns])


ASKED = [
    (3, {}),
    (40, {"how": "full"}),
    (ap.TimeWindow(2, per_stream={"left": 4}), {"how": "left_anti"}),
    (30, {"keys": "text"}),
    (5, {"likelihood": True, "sigma": "s", "probability": 0.2}),
    (20, {"sigma": 0.2, "probability": 0.6, "by": "g"}),
    (7, {"existence": "p", "probability": 0.4}),
    (9, {"different": "g"}),
]


@pytest.mark.parametrize("d", [1, 2, 3, 4])
@pytest.mark.parametrize(("window", "settings"), ASKED)
def test_cells_answer_as_a_scan_does(made: list[Any], d: int, window: Any, settings: dict[str, Any]) -> None:
    """Pushes in order of time, between them small ones, and one of one stream alone; two streams, and one."""
    asked: dict[str, Any] = {"epsilon": 0.7, "probability": 1.0, "window": window} | settings
    sigma, by, existence = (asked.pop(name, None) for name in ("sigma", "by", "existence"))
    rows = [table.sort_by("t") for table in tables(300, d, seed=d, keys=asked.pop("keys", "int"))]
    names = [f"x{k}" for k in range(d)]
    value = ap.Exact(*names) if sigma is None else ap.Gaussian(*names, sigma=sigma)
    own: dict[str, Any] = {"key": "k", "time": "t", "value": value, "partition_by": by, "existence": existence}
    streams = [ap.Stream(None, **own, name=name, lateness=100) for name in ("left", "right")]
    ends = [[0, 90, 93, 200, 260, 300], [0, 70, 75, 200, 200, 300]]
    cuts = {
        name: [table.slice(b, e - b) for b, e in itertools.pairwise(end)]
        for name, table, end in zip(("left", "right"), rows, ends, strict=True)
    }
    alone = {key: own for key, own in asked.items() if key != "how"}
    if not isinstance(window, ap.TimeWindow):
        found = [
            pushed(ap.SimilarityJoin(streams[0], **alone, options=ap.Options(threads=n)), {"left": cuts["left"]})
            for n in (1, 3)
        ]
        assert len(made) >= 8
        assert found[0].equals(found[1])
        scan = ap.SimilarityJoin(streams[0], **alone, options=ap.Options(index="dense"))
        dense = pushed(scan, {"left": cuts["left"]})
        assert len(dense) > 10
        assert_same(found[0], dense)
        made.clear()
    asked.pop("different", None)
    found = [pushed(ap.SimilarityJoin(*streams, **asked, options=ap.Options(threads=n)), cuts) for n in (1, 3)]
    assert len(made) >= 8  # few points have a way of their own
    assert found[0].equals(found[1])
    dense = pushed(ap.SimilarityJoin(*streams, **asked, options=ap.Options(index="dense")), cuts)
    assert len(dense) > 10
    assert_same(found[0], dense)


def test_many_rows_are_estimated_by_those_near_them(made: list[Any]) -> None:
    """A few pairs of a large window that are near each other by chance are no reason to warn."""
    chance, n = np.random.default_rng(0), 5_000
    join = ap.SimilarityJoin(
        *(ap.Stream(None, key="k", time="t", value=ap.Exact("x", "y"), name=name) for name in "ab"),
        epsilon=0.3,
        probability=1.0,
        window=1_000,
    )
    found = 0
    for i in range(3):
        at = np.arange(i * n, i * n + n)
        rows = [
            pa.table({"k": at, "t": at / 10.0, "x": chance.random(n) * 40, "y": chance.random(n) * 40}) for _ in "ab"
        ]
        found += len(join.push(a=rows[0], b=rows[1]))
    assert len(made) == 3
    estimates = [push.estimate.answers for push in made]
    assert 0.6 * found < sum(estimates) < 1.6 * found


def test_few_pairs_that_are_near_by_chance_have_more_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where rows are looked up one after the other, and an output of any size is announced."""
    announced: list[Any] = []
    monkeypatch.setattr(similarity_join.SimilarityJoin, "announce", lambda _, found: announced.append(found))
    monkeypatch.setattr(estimate, "explodes", lambda answers, _: answers > 0)
    chance, n = np.random.default_rng(0), 3_000
    join = ap.SimilarityJoin(
        *(ap.Stream(None, key="k", time="t", value=ap.Exact("x", "y"), name=name) for name in "ab"),
        epsilon=0.4,
        probability=1.0,
        window=1_000,
        options=ap.Options(index="grid"),
    )
    at, xy = np.arange(n), chance.random((4, n)) * 40
    rows = [pa.table({"k": at, "t": at / 10.0, "x": xy[k], "y": xy[k + 1]}) for k in (0, 2)]
    found = len(join.push(a=rows[0], b=rows[1]))
    assert announced[0].drawn > 16 * 64 * 64
    assert 0.4 * found < announced[0].answers < 2.5 * found
