"""Public calls with odd values in place of their arguments, for the benchmark of robustness and its test.

Each argument of each call is replaced by odd values, a seeded choice of them, and then two arguments at a time are.
What comes out of a call does not matter, as long as an error is one of appulse's own.
"""

from __future__ import annotations

import datetime as dt
import enum
import io
import re
import tempfile
import warnings
from collections import Counter, OrderedDict, UserDict, UserString, deque
from contextlib import chdir, redirect_stdout
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from functools import partial
from itertools import count
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any
from uuid import UUID

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa

import appulse as ap

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class _Hostile:
    """All that a value may refuse."""

    def _refuse(self, *_: object) -> Any:
        raise ZeroDivisionError("a value's own error")

    __eq__ = __ne__ = __lt__ = __bool__ = __hash__ = __len__ = __iter__ = __float__ = __repr__ = __str__ = _refuse
    __contains__ = __getitem__ = __call__ = __index__ = _refuse


class _Colour(enum.Enum):
    RED = 1


ROWS = pa.table(
    {
        "k": [1, 2, 3],
        "t": [0.0, 1.0, 2.0],
        "x": [0.0, 0.5, 3.0],
        "y": [1.0, 2.0, 2.5],
        "p": [0.5, 0.7, 1.0],
        "s": [[0.0, 1.0], [0.5], [2.0]],
        "g": ["a", "a", "b"],
    }
)
HOLED = ROWS.set_column(2, "x", pa.array([0.0, None, 3.0]))
WHOLE = pa.table({"x": [float(i % 5) for i in range(12)], "y": [float(i % 3) for i in range(12)]})
QUERIES = pa.table({"query": [1, 2], "condition": ["x > 0", "y < 2"]})
JOINS = pa.table({"query": [1], "condition": ["a.x <= b.x WITHIN 3 SECONDS"]})
PLACES = pa.table({"k": [1, 2, 3], "u": [0.0, 1.0, 9.0], "v": [0.0, 0.0, 0.0]})
READINGS = pa.table({"k": [1, 2, 1, 3, 2], "t": [0.0, 1.0, 2.0, 3.0, 4.0], "x": [1.0, 1.2, 1.1, 5.0, 1.3]})


def stream(frame: Any = ROWS, **settings: Any) -> ap.Stream:
    """A stream of exact rows, unless told otherwise."""
    usual: dict[str, Any] = {"key": "k", "time": "t", "value": ap.Exact("x", "y")}
    return ap.Stream(frame, **usual | settings)


#: Each makes a fresh value: generators are used up.
VALUES: tuple[Callable[[], Any], ...] = (
    *tuple(
        partial(lambda value: value, value)
        for value in (
            *(None, True, False, ..., NotImplemented, np.True_),
            *(
                0,
                1,
                -1,
                2,
                3,
                7,
                255,
                2**31,
                2**32,
                2**53,
                2**62,
                2**63 - 1,
                2**63,
                -(2**63),
                2**64,
                2**70,
                10**400,
                -(10**400),
            ),
            10**5000,
            *(
                0.0,
                -0.0,
                0.5,
                1.0,
                1.5,
                -1.0,
                1e-300,
                5e-324,
                1e150,
                1e300,
                -1e300,
                float("nan"),
                float("inf"),
                -float("inf"),
            ),
            *(np.float64(0.5), np.float32(2.5), np.float64("nan"), np.int64(3), np.int8(-1), np.uint64(2**64 - 1)),
            *(np.longdouble(1), np.complex128(1j), 1j, complex(0.5)),
            *(
                Fraction(1, 2),
                Fraction(10**400),
                Decimal("0.5"),
                Decimal("NaN"),
                Decimal("sNaN"),
                Decimal("Infinity"),
                Decimal("1e5000"),
            ),
            *(
                "",
                "x",
                "y",
                "k",
                "t",
                "nowhere",
                "1 second",
                "-1 s",
                "5",
                "0.5",
                "value",
                "a\x00b",
                "�",
                "é",
                "1" * 300,
                "x" * 5000,
            ),
            *(np.str_("x"), UserString("x"), b"x", bytearray(b"x"), memoryview(b"x"), Path("x")),
            *(
                (),
                [],
                {},
                set(),
                frozenset(),
                [1],
                ["x"],
                ("x", "y"),
                ["x", "x"],
                [None],
                {"x"},
                {"x": 1.0},
                {"x": "sum"},
                {"x": None},
            ),
            *(
                {1: 2},
                {None: None},
                {"x": ["y"]},
                {"a": ap.Exact("x")},
                [[1.0]],
                [["x"]],
                OrderedDict(x=1),
                UserDict(x=1),
                deque(["x"]),
            ),
            *(Counter("x"), range(3), slice(3), ["x"] * 50),
            *(
                np.array(1.0),
                np.array([]),
                np.array([1.0, 2.0]),
                np.array(["x"]),
                np.array([[1.0], [2.0]]),
                np.array([None]),
            ),
            *(
                pd.Series([1.0, 2.0]),
                pd.Series(["x", "y"]),
                pd.Index(["x"]),
                pl.Series([1, 2]),
                pa.array([1, 2]),
                pa.scalar(1.5),
            ),
            *(
                pa.chunked_array([[1]]),
                pd.NA,
                pd.NaT,
                pd.Timestamp(0),
                pd.Timedelta(3, "s"),
                pa.float64(),
                pa.schema([("x", pa.int64())]),
            ),
            *(
                ROWS,
                QUERIES,
                PLACES,
                ROWS.to_pandas(),
                pl.DataFrame({"x": [1.0]}),
                pl.LazyFrame({"x": [1.0]}),
                pd.DataFrame(),
                pa.table({}),
            ),
            ROWS.to_batches()[0],
            ROWS.slice(0, 1),
            *(
                dt.timedelta(seconds=3),
                dt.timedelta.max,
                dt.timedelta.min,
                dt.datetime.max.replace(tzinfo=dt.UTC),
                dt.date(2024, 1, 1),
                dt.time(3),
            ),
            *(
                np.timedelta64(3, "s"),
                np.timedelta64("NaT"),
                np.datetime64("2024-01-01"),
                dt.datetime(2024, 1, 1, tzinfo=dt.UTC),
            ),
            *(
                ap.Exact("x"),
                ap.Samples("s"),
                ap.Gaussian("x", sigma=1.0),
                ap.Incomplete("x", "y"),
                ap.Options(),
            ),
            *(
                ap.TimeWindow(1),
                ap.CountWindow(2),
                ap.TumblingWindow(2),
                ap.DeltaWindow("x", 1.0),
                ap.UncertainCountWindow(1, 0.5),
            ),
            *(
                stream(),
                stream(None),
                ap.MeanImputer(WHOLE),
                ap.ZeroFill(),
                ap.DifferentialDependency({"x": 1.0}, "y", 9.0),
            ),
            *(
                object(),
                object,
                int,
                ap.Exact,
                _Colour.RED,
                _Hostile(),
                _Hostile,
                re.compile("x"),
                UUID(int=0),
                OSError("x"),
                np,
                io.StringIO(),
            ),
            *(lambda: None, lambda x: x, len, "x".join),
        )
    ),
    lambda: (name for name in "xy"),
    lambda: iter([1]),
    lambda: map(str, "x"),
    count,
)


@dataclass(frozen=True)
class Target:
    """A call, and arguments that are right for it."""

    name: str
    call: Callable[..., object]
    usual: dict[str, Any]


@dataclass(frozen=True)
class Escape:
    """An error that is none of appulse's."""

    target: str
    given: dict[str, Any]
    error: BaseException

    def __str__(self) -> str:
        given = ", ".join(f"{name}: {type(value).__name__}" for name, value in self.given.items())
        return f"{self.target}({given}): {type(self.error).__name__}: {str(self.error)[:100]}"


def escapes(calls: int, seed: int = 0) -> Iterator[Escape | None]:
    """What escaped, or None, of each of so many calls, four fifths of them with one odd value and a fifth with two."""
    with tempfile.TemporaryDirectory() as folder, chdir(folder), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for target, names in _chosen(targets(), calls, Random(seed)):  # noqa: S311 - picks, no secrets
            with redirect_stdout(io.StringIO()):
                yield _tried(target, {name: value() for name, value in names.items()})


def _chosen(known: list[Target], calls: int, random: Random) -> Iterator[tuple[Target, dict[str, Callable[[], Any]]]]:
    """Each argument of each call with as many of the values; then two at a time of those that have two."""
    places = [(target, name) for target in known for name in target.usual]
    each = min(len(VALUES), calls * 4 // 5 // len(places))
    for target, name in places:
        for value in random.sample(VALUES, each):
            yield target, {name: value}
    several = [target for target in known if len(target.usual) > 1]
    for _ in range(calls - each * len(places)):
        target = random.choice(several)
        yield target, {name: random.choice(VALUES) for name in random.sample(sorted(target.usual), 2)}


def _tried(target: Target, given: dict[str, Any]) -> Escape | None:
    try:
        target.call(**target.usual | given)
    except ap.AppulseError:
        return None
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - panics of other libraries are none of Exception
        return Escape(target.name, given, error)
    return None


# --- the calls ------------------------------------------------------------------------------------------------------


def targets() -> list[Target]:
    """All of them."""
    return [
        *_definitions(),
        *_joins(),
        *_association(),
        *_existence(),
        *_motion(),
        *_fences(),
        *_queries(),
        *_readings(),
        *_imputers(),
        *_results(),
    ]


def _definitions() -> Iterator[Target]:
    """Models, windows, streams and options: made, and used."""
    question: dict[str, Any] = {"epsilon": 1.0, "probability": 0.5, "window": ap.TimeWindow(3)}

    def joined(value: Any) -> None:
        ap.self_join(stream(value=value), **question)

    yield Target("Exact", lambda column: joined(ap.Exact(column)), {"column": "x"})
    yield Target("Incomplete", lambda column: ap.Incomplete("y", column), {"column": "x"})
    yield Target("Samples", lambda **a: joined(ap.Samples(**a)), {"column": "s", "weights": None, "names": None})
    gaussian = {"column": "x", "sigma": 1.0, "samples": 8}
    yield Target("Gaussian", lambda column, **a: joined(ap.Gaussian(column, **a)), gaussian)
    yield Target(
        "Gaussian of two", lambda sigma: joined(ap.Gaussian("x", "y", sigma=[sigma, 1.0], samples=4)), {"sigma": 1.0}
    )
    yield Target("Ball", lambda column, **a: joined(ap.Ball(column, **a)), {"column": "x", "radius": 1.0, "samples": 8})
    place = {"lat": "x", "lon": "y", "sigma": 1.0, "earth": "sphere"}
    yield Target("Position", lambda **a: joined(ap.Position(**a)), place)

    def within(window: Any) -> None:
        ap.self_join(stream(existence="p"), **question | {"window": window})
        ap.window_aggregate(stream(existence="p"), {"x": "sum"}, window=window)

    windows: tuple[tuple[Any, dict[str, Any]], ...] = (
        (ap.TimeWindow, {"length": 1, "per_stream": None}),
        (ap.CountWindow, {"size": 2}),
        (ap.UncertainCountWindow, {"size": 2, "confidence": 0.5, "method": "exact", "max_rows": None}),
        (ap.DeltaWindow, {"column": "x", "bound": 1.0, "confidence": None}),
        (ap.TumblingWindow, {"length": 2}),
    )
    for make, taken in windows:
        yield Target(make.__name__, lambda make=make, **a: within(make(**a)), taken)

    usual: dict[str, Any] = {
        "frame": ROWS,
        "key": "k",
        "time": "t",
        "value": ap.Exact("x", "y"),
        "existence": None,
        "partition_by": None,
    }
    usual |= {
        "lateness": None,
        "ahead": "1 hour",
        "idle_after": None,
        "order": "time",
        "unit": "s",
        "name": None,
        "where": (),
        "carry": (),
        "motion": None,
    }
    sums: dict[str, Any] = {"window": ap.CountWindow(2)}
    uses: dict[str, Callable[[ap.Stream], object]] = {
        "self_join": lambda one: ap.self_join(one, **question),
        "similarity_join": lambda one: ap.similarity_join(one, stream(), **question | sums),
        "match_queries": lambda one: ap.match_queries(one, QUERIES, probability=0.5),
        "window_aggregate": lambda one: ap.window_aggregate(one, {"x": "sum"}, **sums),
        "filter": lambda one: ap.filter(one, "x > 0"),
    }
    for name, use in uses.items():
        yield Target(f"Stream, for {name}", lambda use=use, **a: use(ap.Stream(**a)), usual)
    holed = usual | {"frame": HOLED, "value": ap.Incomplete("x", "y")}
    yield Target("Stream, for impute", lambda **a: ap.impute(ap.Stream(**a), ap.MeanImputer(WHOLE)), holed)
    options = {
        "bounds": frozenset({"moment"}),
        "index": "auto",
        "partitions": None,
        "sample": None,
        "side": None,
        "sweep": "periodic",
        "max_output": None,
    }
    yield Target("Options", lambda **a: ap.self_join(stream(), options=ap.Options(**a), **question), options)


def _association() -> Iterator[Target]:
    """Which row belongs to which."""
    value = ap.Gaussian("x", sigma=1.0)
    both: dict[str, Any] = {"left": stream(value=value), "right": stream(value=value)}
    usual: dict[str, Any] = {"epsilon": 1.0, "on_reject": "collect", "options": None}
    near = usual | {"k": 1, "window": 5, "by": "distance", "probability": 0.0, "how": "inner"}
    one = usual | {"probability": 0.5, "window": "tick", "by": "likelihood", "method": "optimal", "density": None}
    one["how"] = "inner"
    yield Target("nearest", ap.nearest, both | near)
    yield Target("assign", ap.assign, both | one)
    few = usual | {"fewer_than": 2, "probability": 0.5, "window": 5}
    readings: dict[str, Any] = {"stream": stream(), "every": 5, "on_reject": "collect", "options": None}
    yield Target("collect_samples", ap.collect_samples, readings)
    yield Target("outliers", ap.outliers, {"stream": both["left"], "reference": both["right"]} | few)

    def by_hand(make: Any, left: Any, right: Any, frame: Any, **settings: Any) -> None:
        made = make(left, right, **settings)
        made.push(left=ROWS, right=ROWS)
        made.push(left=frame)
        made.drain()
        made.rejects()

    bare: dict[str, Any] = {name: replace(given, frame=None, name=name) for name, given in both.items()}

    def collector(stream: Any, frame: Any, **settings: Any) -> None:
        made = ap.SampleCollector(stream, **settings)
        made.push(frame)
        made.drain()
        made.rejects()

    yield Target(
        "SampleCollector", collector, readings | {"stream": replace(stream(), frame=None, name="left"), "frame": ROWS}
    )

    def in_batches(stream: Any, frame: Any, rows: Any) -> None:
        ap.stream_batches(ap.SampleCollector(stream, every=5), frame, rows=rows).read_all()

    alone = {"stream": replace(stream(), frame=None, name="left"), "frame": ROWS, "rows": 10}
    yield Target("stream_batches", in_batches, alone)
    paced = {"frame": ROWS, "time": "t", "unit": "s", "speed": 2.0, "rows": 2, "skip": 1}
    yield Target("replay", lambda **a: next(ap.replay(**a), None), paced)
    for make, taken in ((ap.Nearest, near), (ap.Assign, one), (ap.Outliers, few)):
        yield Target(make.__name__, partial(by_hand, make), bare | {"frame": ROWS} | taken)


def _existence() -> Iterator[Target]:
    """Rows that exist in runs."""

    def counted(**arguments: Any) -> None:
        ap.window_aggregate(stream(existence=ap.Bursts(**arguments)), {"x": "count"}, window=2)

    yield Target("Bursts", counted, {"column": "p", "correlation": 0.1})


def _motion() -> Iterator[Target]:
    """How things move, and their encounters."""
    usual: dict[str, Any] = {"epsilon": 1.0, "probability": 0.5, "gap": 0, "min_seconds": 0, "emit": "closed"}
    usual |= {"on_reject": "collect", "options": None}

    def moving(motion: Any = None, frame: Any = ROWS, **changes: Any) -> ap.Stream:
        return replace(stream(), frame=frame, motion=motion or ap.Straight(5), **changes)

    yield Target("encounters", ap.encounters, {"left": moving(), "right": moving()} | usual)
    kinds: tuple[tuple[Any, dict[str, Any]], ...] = (
        (ap.Straight, {"max_gap": 5, "max_speed": None}),
        (ap.Course, {"speed": "x", "course": "y", "horizon": 5, "unit": "m/s", "noise": 0.0}),
    )
    for make, taken in kinds:
        yield Target(make.__name__, lambda make=make, **a: ap.encounters(moving(make(**a)), **usual), taken)
    yield Target(
        "Velocity",
        lambda column, **a: ap.encounters(moving(ap.Velocity("x", column, **a)), **usual),
        {"column": "y", "horizon": 5, "noise": 0.0},
    )

    def by_hand(frame: Any, a: Any, **settings: Any) -> None:
        met = ap.Encounters(a, **settings)
        met.push(ROWS)
        met.push(frame)
        met.drain()
        met.rejects()

    yield Target("Encounters", by_hand, {"frame": ROWS, "a": moving(frame=None)} | usual)


def _fences() -> Iterator[Target]:
    """Visits to regions."""
    zones = pa.table(
        {"query": ["a", "b"], "region": ["POLYGON ((0 0, 1 0, 1 1, 0 0))", "POLYGON ((0 0, 9 0, 9 9, 0 0))"]}
    )
    usual: dict[str, Any] = {"enter": 0.9, "leave": 0.5, "dwell": 5, "emit": "events"}
    usual |= {"on_reject": "collect", "options": None}
    yield Target("fence_events", ap.fence_events, {"stream": stream(), "fences": zones} | usual)
    asked: dict[str, Any] = {"enter": (0.5, 0.9), "leave": 0.1, "tolerance": 5, "draws": 2, "seed": 1}
    yield Target("fence_advice", ap.fence_advice, {"sample": stream(), "fences": zones} | asked)

    def by_hand(frame: Any, a: Any, fences: Any, changes: Any, **settings: Any) -> None:
        watched = ap.FenceEvents(a, fences, **settings)
        watched.push(ROWS)
        watched.change(changes)
        watched.push(frame)
        watched.drain()
        watched.rejects()

    bare = replace(stream(), frame=None)
    yield Target("FenceEvents", by_hand, {"frame": ROWS, "a": bare, "fences": zones, "changes": zones} | usual)


def _joins() -> Iterator[Target]:
    usual: dict[str, Any] = {"epsilon": 1.0, "probability": 0.5, "window": ap.TimeWindow(3), "imputer": None}
    modes = {"emit": "matches", "probabilities": "exact", "values": False, "on_reject": "collect", "options": None}
    both: dict[str, Any] = {"left": stream(), "right": stream()}
    yield Target("similarity_join", ap.similarity_join, both | usual | {"metric": "euclidean"} | modes)
    yield Target(
        "similarity_join, of more", lambda more: ap.similarity_join(*both.values(), more, **usual), {"more": stream()}
    )
    own = {"stream": stream(), "different": None, "metric": "euclidean"}
    yield Target("self_join", ap.self_join, own | usual | modes)
    rows = {"left_row": ROWS.slice(0, 1), "right_row": {"k": 1, "t": 0.0, "x": 1.0, "y": 1.0}}
    yield Target("explain_pair", ap.explain_pair, rows | both | usual | {"options": None})
    cell = {"value": 1.0}
    yield Target(
        "explain_pair, a cell",
        lambda value: ap.explain_pair(ROWS.slice(0, 1), rows["right_row"] | {"x": value}, **both, **usual),
        cell,
    )

    def by_hand(frame: Any, more: Any, a: Any, b: Any, **settings: Any) -> None:
        join = ap.SimilarityJoin(a, b, **settings)
        join.push(a=ROWS, b=ROWS)
        join.push(a=frame, b=more)
        join.current()
        join.drain()
        join.rejects()

    streams = {"a": stream(None, name="a"), "b": stream(None, name="b")}
    yield Target(
        "SimilarityJoin", by_hand, {"frame": ROWS, "more": None} | streams | usual | {"different": None} | modes
    )
    yield Target("filter", ap.filter, {"stream": stream(), "condition": "x > 0"})
    sums = {"distribution": False, "single_valued": False, "on_reject": "collect"}
    asked = {"stream": stream(), "aggregates": {"x": "sum"}, "window": ap.CountWindow(2)}
    yield Target("window_aggregate", ap.window_aggregate, asked | sums)

    def by_push(frame: Any, **settings: Any) -> None:
        sums = ap.WindowAggregate(**settings)
        sums.push(ROWS)
        sums.push(frame)
        sums.drain()
        sums.rejects()

    yield Target("WindowAggregate", by_push, {"frame": ROWS} | asked | sums | {"stream": stream(None)})
    yield Target(
        "window_aggregate, of x",
        lambda x: ap.window_aggregate(stream(), {"x": x}, window=ap.CountWindow(2)),
        {"x": "sum"},
    )


def _queries() -> Iterator[Target]:
    modes = {"probability": None, "window": None, "aggregate": None, "on_reject": "collect"}

    def matched(one: Any, *others: Any, **settings: Any) -> None:
        ap.match_queries(one, *others, **settings)

    def matched_of_two(a: Any, b: Any, **settings: Any) -> None:
        matched(a, b, **settings)

    yield Target("match_queries", matched, {"one": stream(), "queries": QUERIES} | modes)
    two = {"a": stream(name="a"), "b": stream(name="b"), "queries": JOINS}
    yield Target("match_queries, of two", matched_of_two, two | modes)
    yield Target(
        "match_queries, aggregate",
        lambda how, part: [
            ap.match_queries(two["a"], two["b"], JOINS, aggregate={"n": how}),
            ap.match_queries(two["a"], two["b"], JOINS, aggregate={"n": ("sum", part)}),
        ],
        {"how": ("sum", "a.x"), "part": "a.x"},
    )
    yield Target("ask", ap.ask, {"rows": stream(), "queries": QUERIES, "probability": None, "on_reject": "collect"})

    def by_hand(one: Any, changes: Any, frame: Any, before: Any, query: Any, n: Any, **settings: Any) -> None:
        match = ap.QueryMatch(one, **settings)
        match.change(changes)
        match.push(ROWS)
        match.push(frame)
        match.expire(before)
        match.busiest(n)
        match.rejects()
        match.explain_query(query)

    asked = {"before": 0.0, "query": 1, "n": 3, "probability": None, "window": None, "aggregate": None}
    hand = {"one": stream(None), "changes": QUERIES, "frame": ROWS, "on_reject": "collect"} | asked
    yield Target("QueryMatch", by_hand, hand)

    def by_hands(left: Any, changes: Any, frame: Any, **settings: Any) -> None:
        match = ap.QueryMatch(left, stream(None, name="b"), **settings)
        match.change(changes)
        match.push(a=ROWS, b=frame)
        match.drain()

    hands = {"left": stream(None, name="a"), "changes": JOINS, "frame": ROWS, "window": ap.TimeWindow(1)}
    yield Target(
        "QueryMatch, of two", by_hands, hands | {"probability": 0.5, "aggregate": None, "on_reject": "collect"}
    )


def _readings() -> Iterator[Target]:
    columns = {"sensor": "k", "time": "t", "value": "x"}
    usual: dict[str, Any] = {"resolution": 0.5, "within": None, "similar": "value", "over": None}
    usual["on_reject"] = "collect"
    readings = ap.Stream(READINGS, key="k", time="t", value="x")
    join = usual | {"window": 10, "expand": False, "options": None}
    regions = usual | {"strength": 1, "span": 5, "min_sensors": 1, "locations": PLACES, "reach": 2.0}
    regions |= {"emit": "events"}
    yield Target("sensor_join", ap.sensor_join, {"readings": readings} | join)
    yield Target(
        "sensor_join, window of a sensor",
        lambda length: ap.sensor_join(readings, **join | {"window": {1: length, None: 3}}),
        {"length": 3},
    )
    yield Target(
        "sensor_join, within", ap.sensor_join, {"readings": readings} | join | {"resolution": None, "within": 0.5}
    )
    slope = {"resolution": None, "similar": "slope", "over": 3}
    yield Target("sensor_join, slope", ap.sensor_join, {"readings": readings} | join | slope)
    yield Target("phenomena", ap.phenomena, {"readings": readings} | regions)
    near = {"readings": readings} | regions | {"resolution": None, "within": 0.5}
    yield Target("phenomena, within", ap.phenomena, near)

    def by_hand(make: Any, frame: Any, **settings: Any) -> None:
        operator = make(replace(readings, frame=None), **settings)
        operator.push(READINGS)
        operator.push(frame)
        operator.drain()
        operator.rejects()

    yield Target("SensorJoin", partial(by_hand, ap.SensorJoin), {"frame": READINGS} | join)
    yield Target("Phenomena", partial(by_hand, ap.Phenomena), {"frame": READINGS} | regions)
    events = ap.phenomena(readings, **regions)
    yield Target("lab.field.memberships", ap.lab.field.memberships, {"events": events})
    yield Target("lab.field.going_on", ap.lab.field.going_on, {"events": events, "at": None})
    sampling = {"events": events, "locations": PLACES, "sensor": "k", "reach": 2.0, "at": None}
    yield Target("lab.field.guided_sampling", ap.lab.field.guided_sampling, sampling)
    tagged = {"readings": READINGS, "events": events} | columns | {"resolution": 0.5}
    yield Target("lab.field.tagged", ap.lab.field.tagged, tagged)
    yield Target("lab.field.compression", ap.lab.field.compression, tagged)


def _imputers() -> Iterator[Target]:
    holed = stream(HOLED, value=ap.Incomplete("x", "y"))
    rule = ap.DifferentialDependency({"y": 1.0}, "x", 9.0)

    def filled(imputer: Any) -> None:
        ap.impute(holed, imputer)

    def made(kind: Any) -> Callable[..., None]:
        return lambda **a: filled(kind(**a))

    class _Model:
        def fit(self, matrix: Any) -> None:
            """Nothing to learn."""

        def transform(self, matrix: Any) -> Any:
            return np.nan_to_num(matrix)

    yield Target("impute", ap.impute, {"stream": holed, "imputer": ap.MeanImputer(WHOLE)})
    yield Target("MeanImputer", made(ap.MeanImputer), {"repository": WHOLE})
    yield Target("NearestImputer", made(ap.NearestImputer), {"repository": WHOLE, "k": 3})
    yield Target("RegressionImputer", made(ap.RegressionImputer), {"repository": WHOLE, "k": 3})
    yield Target("InterpolationImputer", made(ap.InterpolationImputer), {"k": 3, "joint": False})
    yield Target("TimeRegressionImputer", made(ap.TimeRegressionImputer), {"k": 3, "beside": None})
    yield Target("SpeedImputer", made(ap.SpeedImputer), {"speeds": None})
    yield Target("SpeedImputer, of x", lambda x: filled(ap.SpeedImputer({"x": x})), {"x": 1.0})
    bins = {"repository": WHOLE, "rules": {"x": ["y"]}, "bins": {"y": 1.0}, "marginal": 8}
    yield Target("EditingRules", made(ap.EditingRules), bins)
    yield Target(
        "EditingRules, of x",
        lambda by, width: filled(ap.EditingRules(WHOLE, {"x": by}, {"y": width})),
        {"by": "y", "width": 1.0},
    )
    yield Target(
        "PointImputer",
        ap.PointImputer,
        {"model": _Model(), "columns": ("x", "y"), "repository": WHOLE},
    )
    dependency = {
        "repository": WHOLE,
        "rules": [rule],
        "joint": False,
        "marginal": 8,
        "instances": None,
        "verified": None,
    }
    yield Target("DependencyImputer", made(ap.DependencyImputer), dependency)
    yield Target("AutoImputer", ap.AutoImputer, {"repository": WHOLE, "sample": 100, "rules": None, "locations": None})
    yield Target("AutoImputer, used", lambda sample: filled(ap.AutoImputer(WHOLE, sample, [rule])), {"sample": 100})

    def with_methods(attributes: Any, rows: Any, row: Any, folder: Any, version: Any) -> None:
        imputer = ap.DependencyImputer(WHOLE, [rule])
        imputer.bind(attributes)
        imputer.prepare(attributes)
        imputer.explain(row)
        imputer.append(rows)
        ap.DependencyImputer(WHOLE, [rule]).save(folder)
        ap.DependencyImputer.load(folder, version)
        ap.SavedImputer(folder).bind(attributes)

    methods = {
        "attributes": ["x", "y"],
        "rows": WHOLE,
        "row": {"x": None, "y": 1.0},
        "folder": "versions",
        "version": None,
    }
    yield Target("DependencyImputer, by hand", with_methods, methods)
    yield Target("DependencyImputer.load", ap.DependencyImputer.load, {"folder": "none", "version": None})
    yield Target("SavedImputer", ap.SavedImputer, {"folder": "none"})
    yield Target(
        "explain, a cell", lambda x: ap.DependencyImputer(WHOLE, [rule]).explain({"x": None, "y": x}), {"x": 1.0}
    )
    yield Target("ZeroFill.bind", ap.ZeroFill().bind, {"attributes": ["x"]})
    for name in ("MeanImputer", "NearestImputer", "RegressionImputer"):
        yield Target(f"{name}.bind", getattr(ap, name)(WHOLE).bind, {"attributes": ["x"]})
    yield Target("LastValueImputer.bind", ap.LastValueImputer().bind, {"attributes": ["x"]})
    places = {"locations": {"x": [0.0, 1.0], "y": [1.0, 1.0]}, "power": 2.0, "k": 4}
    yield Target("SpatialImputer", lambda **a: filled(ap.SpatialImputer(**a)), places)
    yield Target("AutoImputer.bind", ap.AutoImputer().bind, {"attributes": ["x"]})
    says = {"determinants": {"x": 1.0}, "dependent": "y", "tolerance": 1.0, "confidence": 0.9, "where": None}
    yield Target("DifferentialDependency", lambda **a: str(ap.DifferentialDependency(**a)), says)
    ends = {"width": 1.0, "low": 0.0, "high": 1.0}
    yield Target(
        "DifferentialDependency, numbers",
        lambda width, low, high: ap.DifferentialDependency({"x": width}, "y", 1.0, where={"z": (low, high)}),
        ends,
    )
    small = {"repository": WHOLE, "columns": ["x", "y"], "confidence": 0.9, "progress": None, "conditional": False}
    yield Target("discover_dependencies", ap.discover_dependencies, small)


def _results() -> Iterator[Target]:
    yield Target("rejects", ap.rejects, {"result": ap.ask(stream(), QUERIES)})
    yield Target("explain", ap.explain, {"result": ap.ask(stream(), QUERIES)})
    asked: dict[str, Any] = {"epsilon": 1.0, "probability": 0.5, "window": 3}
    join = ap.SimilarityJoin(ap.Stream(None, key="k", time="t", value="x"), **asked)
    plan: dict[str, Any] = {"sample": ROWS, "rate": None, "memory": 1e9, "cores": 1, "engine": "process", "call": join}
    yield Target("plan", ap.plan, plan)
    mqtt: dict[str, Any] = {"host": "h", "topics": "t", "port": 0, "client_id": None, "username": None}
    mqtt |= {"password_env": None, "tls": False, "distinct": "none", "most_bytes": 1, "spool": 5}
    yield Target("MqttReader", ap.MqttReader, mqtt)
    yield Target("mqtt_stream", ap.mqtt_stream, mqtt | {"most": None, "spark": None})
    # What these need last is wrong: no Spark starts.
    last = {"partitions": None, "drain": False, "trigger": None, "alerts": (), "max_state": None}
    start = {"sink": ("parquet", {"path": "x"}), "rejects": None, "checkpoint": "c"} | last | {"result": None}
    yield Target("start", ap.start, start)
    yield Target("decode_messages", ap.decode_messages, {"frame": ROWS, "schema": "id LONG", "format": "json"})
    yield Target("listen", ap.listen, {"on_batch": None, "prometheus": None, "spark": None})
    yield Target("session", lambda cores, memory: ap.session(cores, memory=memory), {"cores": 1, "memory": "1g"})
