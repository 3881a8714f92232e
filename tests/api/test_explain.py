"""What a call says of itself."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import appulse as ap

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = pa.table({"id": [1, 2], "ts": [0.0, 1.0], "x": [0.0, 0.5], "p": [0.5, 0.8]})


def stream(frame: Any = ROWS, **changes: Any) -> ap.Stream:
    settings: dict[str, Any] = {"key": "id", "time": "ts", "value": ap.Exact("x"), "existence": "p"} | changes
    return ap.Stream(frame, **settings)


def joined(frame: Any = ROWS, **changes: Any) -> Any:
    settings: dict[str, Any] = {"epsilon": 1.0, "probability": 0.1, "window": ap.TimeWindow(5)} | changes
    return ap.similarity_join(stream(frame), stream(frame), **settings)


def queried(frame: Any = ROWS, **settings: Any) -> Any:
    streams = [stream(frame, name=name, lateness=late) for name, late in (("r", 2), ("s", 0))]
    queries = pa.table({"query": [1], "condition": ["r.x < s.x WITHIN 2 ROWS"]})
    return ap.match_queries(*streams, queries, **settings)


@pytest.mark.parametrize(
    ("result", "told"),
    [
        (joined(), "join of 2 streams: within 1 with probability at least 0.1; emits matches"),
        (joined(), "window: rows at most 5 s, 5 s old"),
        (joined(emit="changes"), "emits changes"),
        (joined(window=ap.CountWindow(7)), "window: the newest 7 rows"),
        (joined(window=ap.TumblingWindow(7)), "window: blocks of 7 rows"),
        (joined(window=ap.TumblingWindow("2 minutes")), "window: blocks of 120 s"),
        (joined(window=ap.DeltaWindow("x", 3)), "window: the newest rows within 3 of the last one"),
        (joined(window=ap.DeltaWindow("x", 3, 0.5)), "whose x is within 3 of the last one's, with confidence 0.5"),
        (joined(window=ap.UncertainCountWindow(2, 0.9)), "of which 2 exist, with confidence 0.9"),
        (joined(window=ap.UncertainCountWindow(2, 0.9, "normal")), "membership: by an approximation"),
        (joined(options=ap.Options(index="grid", bounds=frozenset())), "index: grid\nbounds: none"),
        (ap.self_join(stream(lateness=2), epsilon=1, probability=0.1, window=ap.TimeWindow(0)), "at most 2 s late"),
        (
            ap.window_aggregate(ap.filter(stream(), "x < 1"), {"x": ["sum", "max"]}, window=ap.CountWindow(3)),
            "where x < 1\naggregate: sum of x, max of x; the newest 3 rows",
        ),
        (queried(probability=0.5), "existing with probability 'p', at most 2 s late\nstream 's'"),
        (queried(probability=0.5, window=ap.CountWindow(4)), "own, else the newest 4 rows\n"),
        (queried(probability=0.5), "'p'\nqueries over 2 streams, told from 0.5 on; window: each query's own\n"),
        (
            queried(aggregate={"n": "count", "total": ("sum", "r.x")}, window=ap.TimeWindow(3)),
            "own, else rows at most 3 s, 3 s old\naggregate: count, sum of r.x\nindex: conditions as boxes",
        ),
    ],
)
def test_a_result_tells_how_it_came_about(result: pa.Table, told: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = ap.explain(result)
    assert told in text
    assert capsys.readouterr().out == text + "\n"


def test_answers_that_share_rows_are_warned_of() -> None:
    pairs = ap.Stream(joined(), key="left_key", time="right_time", value=ap.Exact("distance"), existence="probability")
    text = ap.explain(ap.window_aggregate(pairs, {"distance": "sum"}, window=ap.TimeWindow(1)))
    assert "warning: Stream 'stream' is the output of a join: answers that share a row are not independent" in text
    assert "warning" not in ap.explain(joined())
    alone = stream(name="s", existence=None)
    queries = pa.table({"query": [1], "condition": ["r.distance < s.x WITHIN 1 SECOND"]})
    text = ap.explain(ap.match_queries(replace(pairs, name="r"), alone, queries, probability=0.5))
    assert "warning: Stream 'r' is the output of a join" in text


def test_spark_tells_of_its_tiles(spark: SparkSession) -> None:
    frame = spark.createDataFrame(ROWS.to_pylist(), "id long, ts double, x double, p double")
    assert "on Spark: 2 tiles; rows are numbered first, on one core" in ap.explain(
        joined(frame, window=ap.CountWindow(3), options=ap.Options(partitions=2))
    )
    aggregate = ap.window_aggregate(stream(frame), {"x": "sum"}, window=ap.CountWindow(3))
    assert "on Spark: one bucket on one core, of" in ap.explain(aggregate)
    assert "on Spark: one bucket on one core, of" in ap.explain(queried(frame, probability=0.5))


@pytest.mark.parametrize(
    ("given", "message"), [(ROWS, "is not what a call"), ([1], "give the result of a call, itself, got list")]
)
def test_only_results_explain_themselves(given: Any, message: str) -> None:
    with pytest.raises(ap.BadArgument, match=message):
        ap.explain(given)
