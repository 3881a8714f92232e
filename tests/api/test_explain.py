"""What a call says of itself."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
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
        (queried(probability=0.5), "'p'\nqueries over 2 streams, reported from 0.5 on; window: each query's own\n"),
        (
            queried(aggregate={"n": "count", "total": ("sum", "r.x")}, window=ap.TimeWindow(3)),
            "own, else rows at most 3 s, 3 s old\naggregate: count, sum of r.x\nindex: conditions as boxes",
        ),
    ],
)
def test_a_result_tells_how_it_came_about(result: pa.Table, told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert told in str(ap.explain(result))
    assert capsys.readouterr().out == ""


def test_an_explanation_has_its_parts_as_fields() -> None:
    """And shows as a table in a notebook, in which names are no markup."""
    pairs = ap.Stream(
        joined(), key="left_key", time="right_time", value="distance", existence="probability", name="<b>"
    )
    found = ap.explain(ap.self_join(pairs, epsilon=1, probability=0.01, window=5))
    assert found.call == "self_join"
    assert found.streams == {"<b>": "exact points Exact('distance'), existing with probability 'probability'"}
    assert found.steps["window"] == "rows at most 5 s old"
    assert found.counts["candidates"] >= found.counts["answers"]
    assert len(found.warnings) == 1
    assert str(found).splitlines()[0] == f"stream '<b>': {found.streams['<b>']}"
    html = found._repr_html_()
    assert "<th>window</th><td>rows at most 5 s old</td>" in html
    assert "<b>" not in html
    assert ap.explain(ap.sensor_join(stream(existence=None), window=5)).call == "sensor_join"


def test_answers_that_share_rows_are_warned_of() -> None:
    pairs = ap.Stream(joined(), key="left_key", time="right_time", value=ap.Exact("distance"), existence="probability")
    text = str(ap.explain(ap.window_aggregate(pairs, {"distance": "sum"}, window=ap.TimeWindow(1))))
    assert "warning: Stream 'stream' is the output of a join: answers that share a row are not independent" in text
    assert not ap.explain(joined()).warnings
    alone = stream(name="s", existence=None)
    queries = pa.table({"query": [1], "condition": ["r.distance < s.x WITHIN 1 SECOND"]})
    text = str(ap.explain(ap.match_queries(replace(pairs, name="r"), alone, queries, probability=0.5)))
    assert "warning: Stream 'r' is the output of a join" in text


PLACE = {"lat": [0.0, 0.001], "lon": [0.0, 0.0], "alt": [0.0, 9.0]}
SAMPLED = "over samples; a Gaussian or a ball is its fixed points"
ELLIPSE = (30.0, 10.0, 20.0)
ALOFT = ap.Position("lat", "lon", sigma=9.0, altitude="alt", altitude_sigma=5.0)


@pytest.mark.parametrize(
    ("value", "epsilon", "method"),
    [
        (ap.Exact("x", "y"), 1.0, "as the product of existences, where points are close"),
        (ap.Gaussian("x", "y", sigma=1.0), 1.0, "in closed form, by a non-central chi-square"),
        (ap.Gaussian("x", sigma=["p"]), 1.0, "in closed form, by a non-central chi-square"),
        (ap.Gaussian("x", "y", sigma=[1.0, "p"]), 1.0, "by quadrature"),
        (ap.Gaussian("x", "y", ellipse=ELLIPSE), 1.0, "by quadrature"),
        (ap.Gaussian("x", "y", sigma=1.0), {"x": 1.0, "y": 2.0}, "in closed form or by quadrature"),
        (ap.Gaussian("x", "y", "lat", "lon", sigma=["p", 1.0, 1.0, 1.0]), 1.0, SAMPLED),
        (ap.Ball("x", "y", radius=1.0), 1.0, SAMPLED),
        (ap.Position("lat", "lon", sigma=9.0), 1.0, "in closed form, by a non-central chi-square"),
        (ap.Position("lat", "lon", ellipse=ELLIPSE), 1.0, "by quadrature"),
        (ALOFT, 1.0, "by quadrature over the difference of altitudes"),
        (
            ALOFT,
            {"horizontal": 9.0, "vertical": 5.0},
            "in closed form, by a non-central chi-square along the Earth and a normal distribution in altitude",
        ),
    ],
)
def test_the_method_is_that_of_the_models(value: Any, epsilon: Any, method: str) -> None:
    frame = ROWS.append_column("y", ROWS["x"])
    for name, column in PLACE.items():
        frame = frame.append_column(name, pa.array(column))
    result = ap.self_join(stream(frame, value=value, existence=None), epsilon=epsilon, probability=0.1, window=5)
    said = ap.explain(result).steps["probability"]
    assert said == method


def test_two_gaussians_among_other_models_need_no_samples() -> None:
    values = ap.Gaussian("x", sigma=1.0), ap.Gaussian("x", sigma=2.0), ap.Ball("x", radius=1.0)
    streams = [stream(value=value, name=name) for name, value in zip("abc", values, strict=True)]
    said = ap.explain(ap.similarity_join(*streams, epsilon=1, probability=0.1, window=5)).steps["probability"]
    assert said == f"{SAMPLED}; of two Gaussians without samples"


def test_the_answers_of_whole_tables_are_counted() -> None:
    """Rows without partners, too; where no candidates and no costs are known, none are said."""
    place = np.random.default_rng(0).uniform(0, 100, (2, 3_000))
    frame = pa.table({"id": range(3_000), "ts": np.arange(3_000.0), "x": place[0], "y": place[1]})
    rows, others = (stream(frame, value=ap.Gaussian("x", "y", sigma=1.0), existence=None) for _ in "ab")
    asked: dict[str, Any] = {"epsilon": 5.0, "window": 60}
    results = [
        ap.self_join(rows, probability=0.3, **asked),
        ap.similarity_join(rows, others, probability=0.3, how="left", **asked),
        ap.similarity_join(rows, others, probability=0.3, how="left_anti", **(asked | {"epsilon": 0.5})),
        ap.outliers(rows, fewer_than=2, probability=0.9, **asked),
        ap.nearest(rows, others, 2, **asked),
    ]
    for result in results:
        text = str(ap.explain(result))
        assert len(result) > 0
        assert re.search(rf"^actual: .*\b{len(result):,} answers$", text, re.MULTILINE), text
        assert "microseconds" not in text
        assert " 0 candidates" not in text
    assert "index of 'left': cells in order" in str(ap.explain(results[0]))
    trees = str(ap.explain(results[-1]))
    assert "index: a tree of the right rows" in trees
    assert "bounds: " not in trees


def test_spark_tells_of_its_tiles(spark: SparkSession) -> None:
    frame = spark.createDataFrame(ROWS.to_pylist(), "id long, ts double, x double, p double")
    assert "on Spark: 2 tiles; rows are numbered first, on one core" in str(
        ap.explain(joined(frame, window=ap.CountWindow(3), options=ap.Options(partitions=2)))
    )
    aggregate = ap.window_aggregate(stream(frame), {"x": "sum"}, window=ap.CountWindow(3))
    assert "on Spark: one bucket on one core, of" in str(ap.explain(aggregate))
    assert "on Spark: one bucket on one core, of" in str(ap.explain(queried(frame, probability=0.5)))


def test_what_is_made_of_a_result_on_spark_is_known(spark: SparkSession) -> None:
    """By its plan: rejects and explanation are those of the whole call; what is made of two results has neither."""
    frame = spark.createDataFrame([(1, 0.0, 0.0, 0.5), (2, 1.0, None, 0.5)], "id long, ts double, x double, p double")
    result = joined(frame)
    renamed = result.select("left_key", "distance").withColumnRenamed("distance", "d")
    for made in (renamed, result.filter("distance > 0").limit(1), renamed.orderBy("d").dropDuplicates()):
        assert ap.rejects(made).count() == 2
        assert str(ap.explain(made)) == str(ap.explain(result))
    later = ap.self_join(
        ap.Stream(renamed, key="left_key", time="d", value="d"), epsilon=1, probability=1, window=ap.TimeWindow(1)
    )
    assert ap.explain(later.select("left_key")).call == "self_join"
    with pytest.raises(ap.BadArgument, match="made of 2 results"):
        ap.rejects(renamed.union(joined(frame).select("left_key", "distance")))
    with pytest.raises(ap.BadArgument, match="nor visibly made of it"):
        ap.explain(frame)
    with pytest.raises(ap.BadArgument, match="a function as sink may select"):
        ap.start(renamed, ("noop", {}), checkpoint="nowhere")


@pytest.mark.parametrize(
    ("given", "message"), [(ROWS, "is not what a call"), ([1], "give the result of a call, itself, got list")]
)
def test_only_results_explain_themselves(given: Any, message: str) -> None:
    with pytest.raises(ap.BadArgument, match=message):
        ap.explain(given)


def test_calls_by_hand_explain_themselves_once_their_types_are_known() -> None:
    stream = ap.Stream(None, key="id", time="t", value="x", motion=ap.Straight("1 minute"), name="here")
    met = ap.Encounters(stream, epsilon=2, probability=0.5)
    with pytest.raises(ap.BadArgument, match="push some rows"):
        met.explain()
    rows = pa.table({"id": [1], "t": [0], "x": [0.0]})
    met.push(rows)
    told = met.explain()
    assert (told.call, told.steps["epsilon"]) == ("encounters", "2.0")
    assert "Straight(max_gap=60 seconds)" in told.streams["here"]
    matching = ap.QueryMatch(ap.Stream(None, key="id", time="t", value="x"))
    matching.change(pa.table({"query": [1], "condition": ["x > 0"]}))
    matching.push(rows)
    assert "boxes" in matching.explain().steps["index"]
    join = ap.SimilarityJoin(ap.Stream(None, key="id", time="t", value="x"), epsilon=1, probability=1, window=5)
    join.push(rows)
    assert join.explain().steps["window"] == "rows at most 5 s old"
