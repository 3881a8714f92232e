"""How much a call puts out: limits that stop it, warnings before it explodes, and none of either in normal calls."""

from __future__ import annotations

import warnings
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import appulse as ap
from appulse.engines.aggregates.call import resolve_aggregate
from appulse.engines.fences.call import FenceSettings, resolve_fences
from appulse.engines.join.call import JoinSettings, resolve
from appulse.engines.multi_queries.call import resolve_window_queries
from appulse.engines.options import USED_BY
from appulse.engines.queries import call as query_engine
from appulse.engines.queries.call import resolve_queries
from appulse.model.degrees import degrees_hint, named_as_degrees
from appulse.operators import output, pairs
from tests.fences import test_fence_events
from tests.helpers import hands, query_strategies, sensing, strategies
from tests.helpers.streaming import files, read_stream
from tests.operators import test_phenomena, test_relational, test_sensor_join

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

LIMITS = st.integers(1, 12)
FEW = settings(max_examples=40, deadline=None)
FOREVER = ap.TimeWindow(1e6)


def stopped_or_whole(call: Callable[[ap.Options], pa.Table], most: int) -> None:
    """With a limit a call answers as without, or stops: exactly where there would be more."""
    whole = call(ap.Options())
    try:
        found = call(ap.Options(max_output=most))
    except ap.OutputLimit:
        assert len(whole) > most
    else:
        assert len(whole) <= most
        assert found.equals(whole)


# --- the limit ------------------------------------------------------------------------------------------------------


@FEW
@given(strategies.cases(), LIMITS)
def test_a_join_is_whole_or_stops(case: strategies.Case, most: int) -> None:
    stopped_or_whole(case.run, most)


@FEW
@given(test_sensor_join.cases(), LIMITS, st.booleans())
def test_a_sensor_join_is_whole_or_stops(case: test_sensor_join.Case, most: int, expand: bool) -> None:
    stopped_or_whole(
        lambda options: sensing.sensor_join(case.table, **case.arguments(), expand=expand, options=options), most
    )


@FEW
@given(test_phenomena.cases(), LIMITS, st.sampled_from(["events", "regions"]))
def test_phenomena_are_whole_or_stop(case: test_phenomena.Case, most: int, emit: str) -> None:
    arguments = case.arguments()
    stopped_or_whole(lambda options: sensing.phenomena(case.table, **arguments, emit=emit, options=options), most)


@FEW
@given(test_relational.cases(), LIMITS)
def test_an_aggregate_is_whole_or_stops(case: test_relational.Case, most: int) -> None:
    stopped_or_whole(
        lambda options: ap.window_aggregate(case.stream, {"x": "count"}, window=case.window, options=options), most
    )


@FEW
@given(st.one_of(query_strategies.selections(bad=True), query_strategies.joins()), LIMITS)
def test_queries_are_whole_or_stop(case: query_strategies.Case, most: int) -> None:
    settings_: dict[str, Any] = {"probability": case.probability} | (
        {"window": case.window} if len(case.streams) > 1 else {}
    )
    stopped_or_whole(
        lambda options: ap.match_queries(*case.framed(), case.query_table, **settings_, options=options), most
    )


@FEW
@given(test_fence_events.cases(), LIMITS)
def test_fence_events_are_whole_or_stop(case: test_fence_events.Case, most: int) -> None:
    stopped_or_whole(
        lambda options: ap.fence_events(case.stream(case.table), case.fences, **case.asked, options=options), most
    )


@FEW
@given(strategies.cases(), LIMITS, st.integers(1, 3))
def test_pushes_are_whole_until_one_stops(case: strategies.Case, most: int, parts: int) -> None:
    free, bound = case.by_hand(), case.by_hand(ap.Options(max_output=most))
    pushes = [
        {name: table.slice(k * len(table) // parts, (k + 1) * len(table) // parts - k * len(table) // parts)
         for name, table in zip(case.names, case.tables, strict=True)}
        for k in range(parts)
    ]  # fmt: skip
    for push in pushes:
        whole = free.push(**push)
        if len(whole) > most:
            with pytest.raises(ap.OutputLimit):
                bound.push(**push)
            with pytest.raises(ap.BadArgument, match="An earlier push"):
                bound.push(**push)
            return
        assert bound.push(**push).equals(whole)


def _readings(n: int = 120, sensors: int = 6) -> pa.Table:
    return pa.table({"s": [i % sensors for i in range(n)], "t": [float(i) for i in range(n)], "v": [1.0] * n})


_SENSED: dict[str, Any] = {"sensor": "s", "time": "t", "value": "v", "window": 1e6}


def test_a_product_stops_before_any_of_it_is_made() -> None:
    with pytest.warns(ap.ExplodingOutput), pytest.raises(ap.OutputLimit, match=r"at least \d+,\d{3},\d{3} rows"):
        sensing.sensor_join(_readings(), **_SENSED, expand=True, options=ap.Options(max_output=1_000_000))
    join = sensing.by_hand(ap.SensorJoin, **_SENSED, expand=True, options=ap.Options(max_output=100))
    assert len(join.push(_readings(12))) <= 100
    with pytest.raises(ap.OutputLimit):
        join.push(_readings(24).slice(12))
    for again in (join.drain, lambda: join.push(_readings(1))):
        with pytest.raises(ap.BadArgument, match="An earlier push had more rows"):
            again()


@given(st.data())
def test_rows_matched_in_parts_match_the_same(data: st.DataObject) -> None:
    case = data.draw(query_strategies.selections(bad=True, most=12))
    whole = ap.match_queries(*case.framed(), case.query_table, probability=case.probability)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(query_engine, "_ROWS_FIRST", 2)
        patch.setattr(query_engine, "_ROWS_LEAST", 1)
        patch.setattr(query_engine, "_ANSWERS_AT_ONCE", 6)
        found = ap.match_queries(*case.framed(), case.query_table, probability=case.probability)
    assert found.to_pylist() == whole.to_pylist()
    assert ap.rejects(found).to_pylist() == ap.rejects(whole).to_pylist()


def test_changes_that_leave_count_too() -> None:
    table = pa.table({"k": range(5), "t": range(5), "x": [0.0] * 5})
    asked: dict[str, Any] = {"epsilon": 1.0, "probability": 0.5, "window": ap.CountWindow(2), "emit": "changes"}
    stream = ap.Stream(table, key="k", time="t", value=ap.Exact("x"))
    whole = ap.self_join(stream, **asked)
    entering = whole["change"].to_pylist().count(1)
    assert 0 < entering < len(whole)
    assert len(ap.self_join(stream, **asked, options=ap.Options(max_output=len(whole)))) == len(whole)
    with pytest.raises(ap.OutputLimit):
        ap.self_join(stream, **asked, options=ap.Options(max_output=len(whole) - 1))


# --- options --------------------------------------------------------------------------------------------------------

_TABLE = pa.table({"s": [1], "t": [0.0], "v": [0.0]})
_QUERIES = pa.table({"query": [1], "condition": ["v > 0"]})
_FENCES = pa.table({"query": [1], "region": ["POLYGON ((0 0, 9 0, 9 9, 0 9, 0 0))"]})
_OTHERS: dict[str, Any] = {
    "bounds": frozenset({"reach"}),
    "index": "dense",
    "side": 1.0,
    "sample": _TABLE,
    "sweep": "lazy",
    "partitions": 2,
    "max_output": 9,
    "max_component": 9,
    "threads": 2,
    "audit": 0.5,
}


def _stream(name: str | None = None) -> ap.Stream:
    return ap.Stream(_TABLE, key="s", time="t", value=ap.Exact("v"), name=name)


_NEAR: dict[str, Any] = {"epsilon": 1.0, "probability": 0.5, "window": FOREVER}
_ASSIGNED: dict[str, Any] = _NEAR | {"window": "tick", "by": "distance"}
_CALLS: dict[str, list[Callable[[ap.Options], object]]] = {
    "similarity_join": [
        lambda o: ap.similarity_join(_stream("a"), _stream("b"), **_NEAR, options=o),
        lambda o: hands.similarity_join(a=_stream(), b=_stream(), **_NEAR, options=o),
    ],
    "self_join": [lambda o: ap.self_join(_stream(), **_NEAR, options=o)],
    "nearest": [
        lambda o: ap.nearest(_stream("a"), _stream("b"), epsilon=1.0, window=FOREVER, options=o),
        lambda o: hands.by_hand(ap.Nearest, a=_stream(), b=_stream(), epsilon=1.0, window=FOREVER, options=o),
    ],
    "outliers": [
        lambda o: ap.outliers(_stream(), fewer_than=1, **_NEAR, options=o),
        lambda o: hands.by_hand(ap.Outliers, a=_stream(), fewer_than=1, **_NEAR, options=o),
    ],
    "assign": [
        lambda o: ap.assign(_stream("a"), _stream("b"), **_ASSIGNED, options=o),
        lambda o: hands.by_hand(ap.Assign, a=_stream(), b=_stream(), **_ASSIGNED, options=o),
    ],
    "explain_pair": [
        lambda o: ap.explain_pair(_TABLE, _TABLE, left=_stream(), epsilon=1.0, probability=0.5, options=o)
    ],
    "sensor_join": [
        lambda o: sensing.sensor_join(_TABLE, **_SENSED, options=o),
        lambda o: sensing.by_hand(ap.SensorJoin, **_SENSED, options=o),
    ],
    "phenomena": [
        lambda o: ap.phenomena(ap.Stream(_TABLE, key="s", time="t", value="v"), strength=1, span=1, options=o),
        lambda o: ap.Phenomena(ap.Stream(None, key="s", time="t", value="v"), strength=1, span=1, options=o),
    ],
    "window_aggregate": [
        lambda o: ap.window_aggregate(_stream(), {"v": "sum"}, window=FOREVER, options=o),
        lambda o: ap.WindowAggregate(replace(_stream(), frame=None), {"v": "sum"}, window=FOREVER, options=o),
    ],
    "match_queries": [
        lambda o: ap.match_queries(_stream(), _QUERIES, options=o),
        lambda o: ap.ask(_stream(), _QUERIES, options=o),
        lambda o: ap.QueryMatch(replace(_stream(), frame=None), options=o),
        lambda o: ap.match_queries(
            _stream("a"), _stream("b"), pa.table({"query": [1], "condition": ["a.v = b.v"]}), window=FOREVER, options=o
        ),
    ],
    "fence_events": [
        lambda o: ap.fence_events(replace(_stream(), value=ap.Exact("v", "t")), _FENCES, options=o),
        lambda o: ap.FenceEvents(replace(_stream(), frame=None, value=ap.Exact("v", "t")), _FENCES, options=o),
    ],
}


@pytest.mark.parametrize("call", _CALLS)
@pytest.mark.parametrize("option", _OTHERS)
def test_an_option_without_use_is_an_error(call: str, option: str) -> None:
    assert {field.name for field in fields(ap.Options)} == set(USED_BY) == set(_OTHERS)
    for made in _CALLS[call]:
        made(ap.Options())
        given_ = ap.Options(**{option: _OTHERS[option]})
        if call in USED_BY[option]:
            made(given_)
            continue
        with pytest.raises(ap.BadArgument, match=rf"{call} has no use for Options\({option}=\), which is for \w+"):
            made(given_)


def test_options_are_checked() -> None:
    wrongs: list[dict[str, Any]] = [{"partitions": True}, {"max_output": 0}, {"max_output": 1.5}]
    for wrong in (*wrongs, {"sweep": "layz"}, {"side": -1}):
        with pytest.raises(ap.BadArgument, match=r"Options\("):
            ap.Options(**wrong)
    with pytest.raises(ap.BadArgument, match=r"give an ap\.Options"):
        ap.self_join(_stream(), **_NEAR, options={"index": "grid"})  # type: ignore[arg-type]


def test_no_option_is_part_of_a_fingerprint() -> None:
    schema = _TABLE.schema
    windowed = pa.table({"query": [1], "condition": ["a.v = b.v"]}).schema
    query: dict[str, Any] = {"probability": None, "on_reject": "collect"}
    aggregate: dict[str, Any] = {"distribution": False, "single_valued": False, "on_reject": "collect"}
    two = [_stream("a"), _stream("b")]
    made: dict[str, Callable[[ap.Options], Any]] = {
        "self_join": lambda o: resolve([_stream()], [schema], JoinSettings(**_NEAR, options=o)),
        "sensor_join": lambda o: sensing.resolved_sensors(schema.empty_table(), **_SENSED, options=o),
        "phenomena": lambda o: sensing.resolved_phenomena(
            schema.empty_table(), sensor="s", time="t", value="v", strength=1, span=1, options=o
        ),
        "window_aggregate": lambda o: resolve_aggregate(
            _stream(), _TABLE, {"v": "sum"}, window=FOREVER, **aggregate, options=o
        ),
        "match_queries": lambda o: resolve_queries(_stream(), _TABLE, _QUERIES.schema, **query, options=o),
        "match_queries ": lambda o: resolve_window_queries(
            two, [_TABLE] * 2, windowed, window=FOREVER, **query, options=o
        ),
        "fence_events": lambda o: resolve_fences(
            replace(_stream(), value=ap.Exact("v", "t")), schema, _FENCES, FenceSettings(options=o)
        ),
    }
    for call, make in made.items():
        for option, value in _OTHERS.items():
            if call.strip() in USED_BY[option]:
                given_ = make(ap.Options(**{option: value}))
                assert given_.fingerprint() == make(ap.Options()).fingerprint(), (call, option)


# --- warnings -------------------------------------------------------------------------------------------------------


def test_products_are_announced_before_they_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    sensing.sensor_join(_readings(12), **_SENSED, expand=True)  # no warning: they are errors here
    monkeypatch.setattr(output, "MANY", 500)
    monkeypatch.setattr(output, "MANY_A_ROW", 20)
    with pytest.warns(ap.ExplodingOutput, match=r"have \d,\d{3} elements by now.*Leave out expand=True"):
        found = sensing.sensor_join(_readings(24), **_SENSED, expand=True)
    assert len(found) > 500


def test_the_number_of_elements_is_exact() -> None:
    for n, sensors in ((1, 1), (12, 3), (20, 4)):
        found = sensing.sensor_join(_readings(n, sensors), **_SENSED, expand=True)
        limit = ap.Options(max_output=max(1, len(found)))
        assert sensing.sensor_join(_readings(n, sensors), **_SENSED, expand=True, options=limit).equals(found)


def test_readings_that_meet_too_many_are_announced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "MANY", 1000)
    monkeypatch.setattr(output, "MANY_A_ROW", 20)
    sensing.sensor_join(_readings(), **(_SENSED | {"window": 10}))
    with pytest.warns(ap.ExplodingOutput, match=r"Readings have met \d,\d{3} others by now"):
        sensing.sensor_join(_readings(), **_SENSED)


@pytest.mark.parametrize("how", [{"resolution": 1.0}, {"within": 0.5}])
@pytest.mark.parametrize("emit", ["events", "regions"])
def test_phenomena_with_too_many_sensors_are_announced(
    monkeypatch: pytest.MonkeyPatch, how: dict[str, float], emit: str
) -> None:
    asked: dict[str, Any] = {"sensor": "s", "time": "t", "value": "v", "strength": 1, "span": 1e6, "emit": emit, **how}
    sensing.phenomena(_readings(), **asked)
    monkeypatch.setattr(output, "MANY_VALUES", 500)
    monkeypatch.setattr(output, "MANY_A_ROW", 10)
    with pytest.warns(ap.ExplodingOutput, match=r"The phenomena have [\d,]+ sensors in their rows by now"):
        sensing.phenomena(_readings(60, 60), **asked)


def test_distributions_of_too_many_values_are_announced(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    table = pa.table({"k": range(40), "t": [float(i) for i in range(40)], "p": rng.normal(size=(40, 4)).tolist()})
    stream = ap.Stream(table, key="k", time="t", value=ap.Samples("p"))
    monkeypatch.setattr(output, "MANY_VALUES", 20_000)
    for aggregate, wide in (("count", False), ("max", False), ("sum", True), ("mean", True)):
        asked: dict[str, Any] = {"window": ap.CountWindow(10), "distribution": True}
        if wide:
            with pytest.warns(ap.ExplodingOutput, match=r"The distributions have \d\d,\d{3} values by now"):
                ap.window_aggregate(stream, {"p": aggregate}, **asked)
        else:
            ap.window_aggregate(stream, {"p": aggregate}, **asked)


def test_queries_that_match_everything_are_announced(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = ap.Stream(_readings(), key="s", time="t", value=ap.Exact("v"))
    monkeypatch.setattr(output, "MANY", 1000)
    few = pa.table({"query": range(200), "condition": [f"v > {i}" for i in range(200)]})
    ap.match_queries(stream, few)
    many = pa.table({"query": range(200), "condition": [f"v < {i}" for i in range(200)]})
    with pytest.warns(ap.ExplodingOutput, match=r"Rows satisfy 23,\d{3} queries by now"):
        ap.match_queries(stream, many)


def _sampled(rows: int, samples: int, d: int = 2) -> ap.Stream:
    rng = np.random.default_rng(rows)
    table = pa.table({"k": range(rows), "t": [0.0] * rows, "p": pa.array(rng.random((rows, samples, d)).tolist())})
    return ap.Stream(table, key="k", time="t", value=ap.Samples("p"))


def test_samples_that_match_are_announced(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {"epsilon": 2.0, "probability": 0.5, "window": FOREVER, "values": True}
    monkeypatch.setattr(output, "MANY_VALUES", 50_000)
    monkeypatch.setattr(output, "MANY_A_ROW", 20)
    ap.similarity_join(_sampled(4, 20), _sampled(3, 20), **asked)
    with pytest.warns(ap.ExplodingOutput, match=r"The answers have \d+,\d{3} matching pairs of samples by now"):
        ap.similarity_join(_sampled(4, 200), _sampled(3, 200), **asked)
    monkeypatch.setattr(output, "MANY", 10**9)
    with pytest.warns(ap.ExplodingOutput, match=r"These 600 rows will have about [\d,]+ answers with [\d,]+ matching"):
        ap.similarity_join(_sampled(301, 2), _sampled(299, 2), **asked)


def test_pairs_of_huge_rows_are_announced(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {"epsilon": 0.3, "probability": 0.05, "window": FOREVER}
    ap.similarity_join(_sampled(1, 300), _sampled(1, 299), **asked)
    monkeypatch.setattr(pairs, "_LONG_PAIR", 80_000)
    ap.similarity_join(_sampled(9, 30), _sampled(8, 30), **asked)
    with pytest.warns(ap.ExplodingOutput, match=r"Pairs of rows to compare: 1, with up to 9e\+04 pairs of samples"):
        ap.similarity_join(_sampled(1, 300), _sampled(1, 299), **asked)
    # On a line samples are sorted, and their pairs are not compared one by one.
    ap.similarity_join(_sampled(1, 300, 1), _sampled(1, 299, 1), **asked)


def test_pairs_of_short_and_long_rows_are_announced_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some are compared in single precision, and the others by doubles after that."""
    rng = np.random.default_rng(2)
    lists = [rng.random((n, 2)).tolist() for n in (300, 20, 300, 20)]
    table = pa.table({"k": range(4), "t": [0.0] * 4, "p": lists})
    stream = ap.Stream(table, key="k", time="t", value=ap.Samples("p"))
    monkeypatch.setattr(pairs, "_LONG_PAIR", 300)
    with pytest.warns(ap.ExplodingOutput, match="Pairs of rows to compare") as warned:
        ap.self_join(stream, epsilon=0.3, probability=0.05, window=FOREVER)
    assert len(warned) == 1


# --- degrees --------------------------------------------------------------------------------------------------------


def test_columns_named_as_degrees() -> None:
    for names in (("lat", "lon"), ("LONGITUDE", "LATITUDE"), ("gps_lat", "gps_lng"), ("startLat", "startLong", "z")):
        assert named_as_degrees(names) is not None, names
    for names in (("x", "y"), ("lat", "y"), ("platform", "salon"), ("latency", "longitude"), ("flat", "long")):
        assert named_as_degrees(names) is None, names


def test_when_degrees_are_suspected() -> None:
    least, most = np.array([40.0, 20.0]), np.array([40.1, 20.1])
    metres = np.array([470_000.0, 4_200_000.0])
    named, bare = ("lat", "lon"), ("a", "b")
    # By names alone: no epsilon that somebody may mean in degrees, and no values that are none.
    assert "lat and lon look like degrees, and epsilon=50" in degrees_hint(named, 50.0)
    assert "give them as ap.Position(lat, lon), with distances in metres" in degrees_hint(named, 50.0, least, most)
    assert degrees_hint(named, 2.5, least, most) == ""
    assert degrees_hint(named, 50.0, metres, metres) == ""
    assert degrees_hint(bare, 50.0, least, most) == ""
    # Where the output explodes.
    assert "look like degrees" in degrees_hint(named, 2.5, least, most, exploding=True)
    assert degrees_hint(named, 0.5, least, most, exploding=True) == ""
    assert "if they are degrees, epsilon=50" in degrees_hint(bare, 50.0, least, most, exploding=True)
    assert degrees_hint(bare, 50.0, least, metres, exploding=True) == ""
    assert degrees_hint(bare, 0.5, least, most, exploding=True) == ""
    assert degrees_hint(("a",), 50.0, least[:1], most[:1], exploding=True) == ""


def _places(n: int, names: tuple[str, str], at: tuple[float, float] = (40.0, 20.0)) -> ap.Stream:
    rng = np.random.default_rng(3)
    columns = {name: place + rng.random(n) * 0.1 for name, place in zip(names, at, strict=True)}
    return ap.Stream(
        pa.table({"k": range(n), "t": [0.0] * n, **columns}), key="k", time="t", value=ap.Gaussian(*names, sigma=1e-4)
    )


def test_a_join_of_degrees_by_metres_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {"probability": 0.5, "window": FOREVER}
    named = ("lat", "lng")
    ap.self_join(_places(20, named), epsilon=0.001, **asked)
    ap.self_join(_places(20, named), epsilon=2.0, **asked)
    ap.self_join(_places(20, named, (4.2e6, 4.7e5)), epsilon=50.0, **asked)
    with pytest.warns(ap.ExplodingOutput, match="lat and lng look like degrees, and epsilon=50 is in the unit"):
        ap.self_join(_places(20, named), epsilon=50.0, **asked)
    join = hands.similarity_join(a=_places(1, named), epsilon=50.0, **asked)
    with pytest.warns(ap.ExplodingOutput, match="look like degrees"):
        join.push(a=_places(20, named).frame)
    join.push(a=_places(20, named).frame)  # once
    monkeypatch.setattr(output, "MANY", 100_000)
    with pytest.warns(ap.ExplodingOutput, match="answers.*All coordinates are within 180: if they are degrees"):
        ap.self_join(_places(600, ("a", "b")), epsilon=2.0, **asked)
    with pytest.warns(ap.ExplodingOutput, match=r"shorter window has fewer\.$"):
        ap.self_join(_places(600, ("a", "b"), (4.2e6, 4.7e5)), epsilon=2.0, **asked)


def test_neighbours_by_metres_among_degrees_are_told() -> None:
    asked: dict[str, Any] = {"sensor": "s", "time": "t", "value": "v", "strength": 1, "span": 5}
    where = pa.table({"s": range(6), "lat": [40.0 + i / 100 for i in range(6)], "lon": [20.0] * 6})
    sensing.phenomena(_readings(), **asked, locations=where, reach=0.02)
    with pytest.warns(ap.ExplodingOutput, match="lat and lon look like degrees, and reach=200 is"):
        sensing.phenomena(_readings(), **asked, locations=where, reach=200)


# --- Spark ----------------------------------------------------------------------------------------------------------


def test_limits_on_spark(spark: SparkSession, tmp_path: Path) -> None:
    table = _readings(60)
    frame = spark.createDataFrame(table)
    few, enough = ap.Options(max_output=3), ap.Options(max_output=10**6)
    queries = pa.table({"query": [1, 2], "condition": ["v > 0", "v > 2"]})

    def stream(name: str | None = None, frame: Any = frame) -> ap.Stream:
        return ap.Stream(frame, key="s", time="t", value=ap.Exact("v"), name=name)

    pairs_ = pa.table({"query": [1], "condition": ["a.v = b.v WITHIN 3 SECONDS"]})
    asked: dict[str, Any] = {"sensor": "s", "time": "t", "value": "v"}
    made: dict[str, Callable[[ap.Options], Any]] = {
        "join": lambda o: ap.self_join(stream(), epsilon=1, probability=0.5, window=ap.TimeWindow(3), options=o),
        "sensors": lambda o: sensing.sensor_join(frame, **asked, window=3, options=o),
        "elements": lambda o: sensing.sensor_join(frame, **asked, window=3, expand=True, options=o),
        "phenomena": lambda o: sensing.phenomena(frame, **asked, strength=1, span=5, emit="regions", options=o),
        "aggregate": lambda o: ap.window_aggregate(stream(), {"v": "sum"}, window=ap.CountWindow(2), options=o),
        "queries": lambda o: ap.match_queries(stream(), queries, options=o),
        "several": lambda o: ap.match_queries(stream("a"), stream("b"), pairs_, options=o),
    }
    for name, make in made.items():
        with pytest.raises(Exception, match=r"OutputLimit: The output has at least .* max_output is 3"):
            make(few).toArrow()
        assert len(make(enough).toArrow()) > 3, name

    # A stream: the micro-batch fails, and goes on once the limit is higher.
    folder = files(tmp_path / "in", table.set_column(1, "t", table["t"].cast(pa.int64())), 60)
    streaming = read_stream(spark, folder)
    checkpoint = str(tmp_path / "checkpoint")

    def started(options: ap.Options) -> Any:
        near = ap.self_join(
            stream(frame=streaming), epsilon=1, probability=0.5, window=ap.TimeWindow(3), options=options
        )
        sink = ("parquet", {"path": str(tmp_path / "out")})
        return ap.start(near, sink, checkpoint=checkpoint, trigger={"availableNow": True})

    with pytest.raises(ap.OutputLimit, match="max_output is 3"):
        started(few).awaitTermination()
    started(enough).awaitTermination()
    assert len(spark.read.parquet(str(tmp_path / "out")).toArrow()) == len(made["join"](enough).toArrow())


def test_degrees_are_told_where_a_spark_call_is_made(spark: SparkSession) -> None:
    places = _places(5, ("lat", "lon"))
    stream = ap.Stream(spark.createDataFrame(places.frame), key="k", time="t", value=places.value)
    ap.self_join(stream, epsilon=0.5, probability=0.5, window=FOREVER)
    with pytest.warns(ap.ExplodingOutput, match="lat and lon look like degrees"):
        ap.self_join(stream, epsilon=500, probability=0.5, window=FOREVER)


def test_without_a_limit_or_an_explosion_nothing_is_said() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ap.self_join(_places(700, ("x", "y"), (0.0, 0.0)), epsilon=0.01, probability=0.5, window=FOREVER)
