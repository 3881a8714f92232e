"""Fences over a stream with a filter: as over a frame that has the rows that it leaves."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import appulse as ap
from appulse.engines.fences.bucket import FenceBucket
from appulse.engines.fences.call import FenceSettings, resolve_fences
from appulse.engines.spark.tiles import TilePlan
from tests.fences.test_fence_events import FakeFences, cases, rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.fences.test_fence_events import Case

# A filter, and the rows that it leaves.
TAG, PLACE = ("tag = 'u'", pc.field("tag") == "u"), ("x > 0", pc.field("x") > 0)


@settings(deadline=None)
@given(cases(), st.booleans(), st.integers(1, 9), st.integers(1, 3), st.sampled_from((-(1 << 40), 1 << 18)))
def test_a_filter_leaves_what_a_smaller_frame_has(case: Case, placed: bool, cut: int, buckets: int, slack: int) -> None:
    """By a certain column, and of exact rows by a coordinate; also by hand, and on a played Spark."""
    text, kept = PLACE if placed and case.exact else TAG
    own = case.table.filter(kept)
    stream = ap.filter(case.stream(case.table), text)
    each: tuple[dict[str, Any], ...] = {}, {"emit": "visits"}
    for asked in each:
        found = ap.fence_events(stream, case.fences, **case.asked, **asked)
        assert rows_of([found]) == rows_of([ap.fence_events(case.stream(own), case.fences, **case.asked, **asked)])
    expected = rows_of([ap.fence_events(case.stream(own), case.fences, **case.asked)])
    moving: tuple[Any, ...] = tuple(case.stream(frame, motion=ap.Straight(max_gap=12)) for frame in (case.table, own))
    crossed = [
        ap.fence_events(one, case.fences, crossing=0.5, **case.asked) for one in (ap.filter(moving[0], text), moving[1])
    ]
    assert rows_of(crossed[:1]) == rows_of(crossed[1:])
    bare = ap.filter(case.stream(None, lateness=100), text)
    parts = [case.table.slice(at, cut) for at in range(0, len(case.table), cut)]
    by_hand = ap.FenceEvents(bare, case.fences, **case.asked)
    came = [by_hand.push(part) for part in parts]
    assert rows_of([*came, *([by_hand.drain()] if parts else [])]) == expected
    call = resolve_fences(bare, case.table.schema, case.fences, FenceSettings(**case.asked))
    spark = FakeFences(call, TilePlan(buckets, 1.0, 0.0, 0.0), Random(cut))
    played: list[pa.Table] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FenceBucket, "slack", slack)
        for part in parts:
            played += spark.batch({call.encoding.name: part})[0]
        played += spark.end()[0]
    assert rows_of(played) == expected


ROWS = pa.table(
    {
        "id": [1] * 8,
        "t": [float(t) for t in range(8)],
        "x": [0.0, 0.0, 9.0, 9.0] * 2,
        "y": [0.0] * 8,
        "good": [True, False] * 4,
    }
)
VALUES = (
    ap.Exact("x", "y"),
    ap.Gaussian("x", "y", sigma=0.1),
    ap.Gaussian("x", "y", covariance=(0.01, 0.0, 0.02)),
    ap.Position("x", "y", sigma=0.1),
)
DISC = pa.table({"query": ["q"], "region": ["POINT (0 0)"], "radius": [1.0]})


def _stream(frame: Any, value: Any) -> ap.Stream[Any]:
    return ap.Stream(frame, key="id", time="t", value=value)


@pytest.mark.parametrize("value", VALUES)
def test_on_spark_and_in_advice_it_is_the_same(spark: SparkSession, value: Any) -> None:
    own = ROWS.filter(pc.field("good"))
    expected = ap.fence_events(_stream(own, value), DISC)
    assert expected["time"].to_pylist() == [0.0, 2.0, 4.0, 6.0]
    assert rows_of([ap.fence_events(ap.filter(_stream(ROWS, value), "good"), DISC)]) == rows_of([expected])
    batch = ap.fence_events(ap.filter(_stream(spark.createDataFrame(ROWS.to_pandas()), value), "good"), DISC)
    assert rows_of([batch.toArrow()]) == rows_of([expected])
    assert ap.fence_advice(ap.filter(_stream(ROWS, value), "good"), DISC) == ap.fence_advice(_stream(own, value), DISC)


@pytest.mark.parametrize("call", [ap.fence_events, ap.fence_advice])
@pytest.mark.parametrize("value", VALUES[1:3])
def test_a_filter_by_an_uncertain_coordinate_is_refused(call: Any, value: Any) -> None:
    """What it leaves is samples, of which no region has an exact mass."""
    for text in ("x > 0", "good AND y * 2 < 1"):
        with pytest.raises(ap.BadArgument, match="which is uncertain") as raised:
            call(ap.filter(_stream(ROWS, value), text), DISC)
        assert f"{call.__name__}() takes normal errors" in str(raised.value)
        assert repr("x" if "x" in text else "y") in str(raised.value)
    with pytest.raises(ap.BadArgument, match=rf"^{call.__name__}\(\) takes places"):
        call(_stream(ROWS, ap.Exact("x")), DISC)
