"""Options(audit=): pairs that bounds decided against, computed in full; a wrong bound does not stay hidden."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

import appulse as ap
from appulse.engines.spark.blobs import METRICS
from appulse.kernels import bounds as bound_kernels
from appulse.operators import cell_order, whole
from appulse.operators.audit import chosen
from appulse.operators.join_windows import JoinWindows
from appulse.operators.pairs import farthest
from tests.helpers import naive, strategies
from tests.helpers.fake_spark import FakeSpark
from tests.spark.test_tiles import call_of, plans

ALL = ap.Options(audit=1.0)
WINDOWS = ("time", "count", "delta", "tumble", "uncertain", "uncertain-delta")


def counted(result: pa.Table) -> tuple[int, int]:
    """How many pairs were audited, and how many of them are answers."""
    counts = ap.explain(result).counts
    return counts.get("audited", 0), counts.get("false_dismissals", 0)


@pytest.fixture(params=[1, 1 << 40], ids=["whole", "rows"])
def tables_as(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables taken as a whole, or row by row."""
    monkeypatch.setattr(whole, "_FROM", request.param)


@settings(max_examples=60)
@given(st.data())
def test_no_pair_is_dismissed_wrongly_and_no_answer_changes(data: st.DataObject) -> None:
    """Joins of any kind, under every window, by every index."""
    case = data.draw(strategies.cases(windows=WINDOWS, bad=False, most=6))
    index = data.draw(st.sampled_from(("auto", "grid", "dense", "sorted")))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(whole, "_FROM", data.draw(st.sampled_from((1, 1 << 40))))
        result = case.run(ap.Options(audit=1.0, index=index))
        naive.assert_same_answers(result, naive.answers_of(case.run()))
    audited, dismissed = counted(result)
    event(f"pairs audited: {audited > 0}")
    assert dismissed == 0


@settings(max_examples=30)
@given(st.data())
def test_no_pair_is_dismissed_wrongly_on_tiles(data: st.DataObject) -> None:
    """In a played Spark, over tiles; the metrics report it."""
    case = data.draw(strategies.cases(bad=False, most=8, everywhere=True))
    call = call_of(case, ALL)
    spark = FakeSpark(call, data.draw(plans(case)), Random(data.draw(st.integers(0, 1 << 30))))
    sums = figures(spark, dict(zip(case.names, case.tables, strict=True)))
    event(f"pairs audited: {sums[0] > 0}")
    assert sums[1] == 0


def figures(spark: FakeSpark, tables: dict[str, pa.Table]) -> tuple[int, int]:
    """The sums of what the tiles report of a micro-batch."""
    blobs = spark._run(spark._shuffled(tables), None)
    figures = [json.loads(blob[1:]) for blob in blobs if blob[:1] == METRICS]
    return sum(one.get("audited", 0) for one in figures), sum(one.get("false_dismissals", 0) for one in figures)


def rows(n: int, d: int, seed: int = 0) -> dict[str, Any]:
    chance = np.random.default_rng(seed)
    columns: dict[str, Any] = {"k": np.arange(n), "t": np.sort(chance.random(n) * 10.0)}
    return columns | {f"x{i}": chance.random(n) * 10.0 for i in range(d)}


def normal(n: int, d: int) -> list[ap.Stream]:
    value = ap.Gaussian(*[f"x{i}" for i in range(d)], sigma=0.4)
    return [ap.Stream(pa.table(rows(n, d, seed)), key="k", time="t", value=value) for seed in (1, 2)]


def clouds(n: int, d: int) -> list[ap.Stream]:
    chance, streams = np.random.default_rng(5), []
    for seed in (1, 2):
        given = rows(n, d, seed)
        centre = np.stack([given.pop(f"x{i}") for i in range(d)], 1)[:, None]
        samples = centre + 0.4 * chance.normal(size=(n, 12, d))
        table = pa.table(given | {"s": samples.tolist()})
        streams.append(ap.Stream(table, key="k", time="t", value=ap.Samples("s", names=tuple("abc"[:d]))))
    return streams


@pytest.mark.parametrize("made", [normal, clouds])
@pytest.mark.parametrize("d", [1, 2])
@pytest.mark.parametrize("index", ["grid", "dense", "auto"])
@pytest.mark.usefixtures("tables_as")
def test_a_reach_that_is_too_short_is_reported(made: Any, d: int, index: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows whose balls are a twentieth of what they should be, and pairs not looked for so far: of right ones, none."""
    question: dict[str, Any] = {"epsilon": 0.5, "probability": 0.1, "window": 3.0}
    options = ap.Options(audit=1.0, index=index, bounds=frozenset({"reach"}))
    right = ap.similarity_join(*made(120, d), **question, options=options)
    audited, dismissed = counted(right)
    assert audited > 0
    assert dismissed == 0
    original = JoinWindows.extents
    monkeypatch.setattr(JoinWindows, "extents", lambda *given: original(*given) / 20.0)
    monkeypatch.setattr(cell_order, "farthest", lambda *given: 0.8 * farthest(*given))
    wrong = ap.similarity_join(*made(120, d), **question, options=options)
    if d == 1 and made is clouds and index != "grid":
        assert len(wrong) == len(right)  # an index on a line asks no balls
        return
    missing = len(right) - len(wrong)
    assert missing > 0
    # Rows that are in no cell that was looked at are not seen.
    assert 0 < counted(wrong)[1] <= missing
    assert counted(wrong)[1] == missing or index != "dense"
    assert "false dismissals" in str(ap.explain(wrong))
    assert any("Options(bounds=())" in text for text in ap.explain(wrong).warnings)


def test_a_wrong_bound_of_moments_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that decides against every third pair; all rows are audited, and a tenth of them."""
    original = bound_kernels.judge

    def judge(pairs: Any, *given: Any) -> None:
        original(pairs, *given)
        *_, use, _, _, verdict, _ = given
        if use.moment:
            verdict[(pairs.left + pairs.right) % 3 == 0] = bound_kernels.PRUNED_CANTELLI

    question: dict[str, Any] = {"epsilon": 0.5, "probability": 0.2, "window": 3.0}
    right = ap.similarity_join(*clouds(400, 2), **question)
    monkeypatch.setattr(bound_kernels, "judge", judge)
    wrong = ap.similarity_join(*clouds(400, 2), **question, options=ALL)
    assert counted(wrong)[1] == len(right) - len(wrong) > 0
    some = ap.similarity_join(*clouds(400, 2), **question, options=ap.Options(audit=0.1))
    assert 0 < counted(some)[0] < counted(wrong)[0] / 4
    again = ap.similarity_join(*clouds(400, 2), **question, options=ap.Options(audit=0.1))
    assert counted(some) == counted(again)


def test_the_share_is_that_of_the_rows_whatever_their_order() -> None:
    given = rows(100_000, 2)
    time, centre = (given["t"] * 1e6).astype(np.int64), np.stack([given["x0"], given["x1"]], 1)
    some = chosen(0.01, time, centre)
    assert 0.008 < some.mean() < 0.012
    order = np.random.default_rng(1).permutation(len(time))
    assert (chosen(0.01, time[order], centre[order]) == some[order]).all()
    assert chosen(1.0, time, centre).all()
    assert not chosen(0.0, time, centre).any()


def test_only_joins_are_audited() -> None:
    stream = normal(3, 2)[0]
    with pytest.raises(ap.BadArgument, match=r"outliers has no use for Options\(audit=\)"):
        ap.outliers(stream, epsilon=1, fewer_than=2, probability=0.5, window=1, options=ALL)
    with pytest.raises(ap.BadArgument, match="audit=2"):
        ap.Options(audit=2)
