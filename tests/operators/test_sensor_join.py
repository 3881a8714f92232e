"""The sensor join against its slow twin: kinds of values, windows, orders of arrival, sweeps, elements of products."""

from __future__ import annotations

import json
import math
import statistics
from collections import Counter
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import appulse as ap
from appulse.model.readings import Readings
from appulse.model.strings import Bytes
from appulse.operators import sensor_join as operator
from appulse.operators.names import Names
from appulse.operators.sensor_join import SWEEPS, SensorJoin, SensorPlan
from tests.helpers import naive_sensors as naive
from tests.helpers import sensing

if TYPE_CHECKING:
    from random import Random

SENSORS = ["a", "b", "c", "dd", "éa"]
DOUBLE = pa.float64()


@dataclass(frozen=True)
class Case:
    """Readings as rows (sensor, time in seconds, value, group, note), and how they are joined."""

    rows: tuple[tuple[Any, int, float, str, int], ...]
    window: Any
    resolution: float | None
    within: float | None
    kind: pa.DataType = DOUBLE

    @property
    def table(self) -> pa.Table:
        return table_of(self.rows, self.kind)

    def arguments(self) -> dict[str, Any]:
        return {"sensor": "mote", "time": "ts", "value": "v", "window": self.window, **self.alike()}

    def alike(self) -> dict[str, Any]:
        return {"resolution": self.resolution, "within": self.within}

    def windows(self) -> Any:
        """Windows in microseconds, as the twin has them."""
        if isinstance(self.window, dict):
            own: dict[Any, int] = self.window
            return {sensor: 10**6 * own.get(sensor, own[None]) for sensor in SENSORS}
        return 10**6 * self.window


def table_of(rows: Any, value: pa.DataType = DOUBLE) -> pa.Table:
    names = ["mote", "ts", "v", "room", "note"]
    kinds = [pa.string(), pa.int64(), pa.float64(), pa.string(), pa.int64()]
    columns = list(map(list, zip(*rows, strict=True))) or [[]] * 5
    table = pa.table({n: pa.array(c, k) for n, c, k in zip(names, columns, kinds, strict=True)})
    return table.set_column(2, "v", table["v"].cast(value))


@st.composite
def cases(draw: st.DrawFn) -> Case:
    value = st.one_of(st.integers(-3, 3).map(float), st.floats(-4, 4, width=16), st.sampled_from([0.1, 0.3, 1e15]))
    row = st.tuples(st.sampled_from(SENSORS), st.integers(0, 12), value, st.sampled_from(["x", "y"]), st.integers(0, 2))
    rows = draw(st.lists(row, max_size=30))
    own = st.dictionaries(st.sampled_from(SENSORS), st.integers(0, 6), max_size=3)
    window = draw(st.one_of(st.integers(0, 8), st.tuples(own, st.integers(0, 6)).map(lambda w: {**w[0], None: w[1]})))
    alike = draw(st.sampled_from([(None, None), (0.5, None), (0.1, None), (None, 0.0), (None, 0.7), (None, 2.0)]))
    kind = draw(st.sampled_from([DOUBLE, pa.decimal128(20, 3)]))
    if pa.types.is_decimal(kind):
        rows = [(sensor, time, round(value, 3), room, note) for sensor, time, value, room, note in rows]
    return Case(tuple(rows), window, *alike, kind)


def expected(case: Case, rows: Any = None) -> Counter[Any]:
    rows = case.rows if rows is None else rows
    readings = [naive.Reading(sensor, time * 10**6, value) for sensor, time, value, *_ in rows]
    return Counter(
        (
            readings[answer.probe].value,
            readings[answer.probe].sensor,
            readings[answer.probe].time // 10**6,
            tuple((sensor, tuple(time // 10**6 for time in times)) for sensor, times in answer.matches),
        )
        for answer in naive.sensor_join(readings, case.windows(), case.resolution, case.within)
    )


def _number(value: Any) -> Any:
    return float(value) if isinstance(value, Decimal) else value


def told(result: pa.Table) -> Counter[Any]:
    return Counter(
        (
            _number(row["value"]),
            row["sensor"],
            row["time"],
            tuple((m["sensor"], tuple(m["times"])) for m in row["matches"]),
        )
        for row in result.to_pylist()
    )


@given(cases())
@settings(max_examples=80, deadline=None)
def test_equals_the_twin(case: Case) -> None:
    assert told(sensing.sensor_join(case.table, **case.arguments())) == expected(case)


@given(cases(), st.sampled_from(operator.SWEEPS), st.randoms(use_true_random=False))
@settings(max_examples=50, deadline=None)
def test_no_sweep_order_or_batch_changes_an_answer(case: Case, sweep: str, chance: Any) -> None:
    rows = list(case.rows)
    chance.shuffle(rows)
    join = sensing.by_hand(ap.SensorJoin, **case.arguments(), lateness=12, options=ap.Options(sweep=sweep))
    found: Counter[Any] = Counter()
    while rows:
        n = chance.randint(1, 8)
        found += told(join.push(table_of(rows[:n], case.kind)))
        rows = rows[n:]
    if case.rows:
        found += told(join.drain())
        assert join.rejects().num_rows == 0
    assert found == expected(case)


def test_values_within_reach_of_bins_and_of_rounding() -> None:
    """Values a step of rounding around each other's reach, from small to very large."""
    rng = np.random.default_rng(3)
    for scale in (1.0, 1e3, 1e9, 1e12, 1e15, 1e17):
        for within in (0.0, 0.1, 1.0, 7.3):
            centre = np.rint(rng.uniform(-1, 1) * scale * 16) / 16
            steps = np.concatenate([[0.0], within * np.array([-2, -1, -0.5, 0.5, 1, 2]), 1e-9 * np.arange(-3, 4)])
            values = centre + steps
            values = np.concatenate([values, np.nextafter(values, np.inf), np.nextafter(values, -np.inf)])
            table = pa.table({"s": np.arange(len(values)), "t": np.zeros(len(values)), "v": values})
            result = ap.sensor_join(ap.Stream(table, key="s", time="t", value="v"), within=within, window=0)
            found = {(row["sensor"], match["sensor"]) for row in result.to_pylist() for match in row["matches"]}
            limit = within + 1e-9 * max(1.0, within)
            wanted = {(i, j) for i in range(len(values)) for j in range(i) if abs(values[i] - values[j]) <= limit}
            assert found == wanted


@given(cases())
@settings(max_examples=50, deadline=None)
def test_small_rooms_change_nothing(case: Case) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"_SLICE": 4, "_ROOM": 2, "_LABELS": 1, "_LEAST": 1, "_FEW": 1}.items():
            patch.setattr(operator, name, value)
        assert told(sensing.sensor_join(case.table, **case.arguments())) == expected(case)


@given(cases(), st.sampled_from([-1.0, 0.5]))
def test_rows_that_fail_a_condition_are_met_by_none(case: Case, least: float) -> None:
    result = sensing.sensor_join(case.table, **case.arguments(), where=f"v >= {least}")
    assert told(result) == expected(case, [row for row in case.rows if row[2] >= least])


def test_rows_that_fail_a_condition_move_time_on() -> None:
    stream = ap.filter(ap.Stream(None, key="mote", time="ts", value="v"), "v > 0 AND room = 'x'")
    join = ap.SensorJoin(stream, window=9)
    assert len(join.push(table_of([("a", 1, 1.0, "x", 0), ("b", 2, 1.0, "x", 0), ("c", 2, 1.0, "y", 0)]))) == 0
    assert len(join.push(table_of([("a", 3, -1.0, "x", 0)]))) == 1
    assert join.push(table_of([("a", 1, 1.0, "x", 0), ("a", 1, -1.0, "x", 0)])).num_rows == 0
    assert join.rejects()["reason"].to_pylist() == ["late"]
    with pytest.raises(ap.BadArgument, match="no column 'humid'"):
        sensing.sensor_join(table_of([]), sensor="mote", time="ts", value="v", window=1, where="humid > 3")


@given(cases())
def test_groups_never_meet(case: Case) -> None:
    result = sensing.sensor_join(case.table, **case.arguments(), partition_by="room")
    for room in ("x", "y"):
        mine = result.filter(pa.compute.equal(result["room"], room))
        assert told(mine) == expected(case, [row for row in case.rows if row[3] == room])


@given(cases())
def test_elements_are_the_product_of_the_lists(case: Case) -> None:
    factorised = sensing.sensor_join(case.table, **case.arguments(), carry=["note"])
    elements = sensing.sensor_join(case.table, **case.arguments(), carry=["note"], expand=True)
    wanted: Counter[Any] = Counter()
    for row in factorised.to_pylist():
        lists: list[Any] = [(m["sensor"], list(zip(m["times"], m["note"], strict=True))) for m in row["matches"]]
        for element in naive.expand(naive.Answer(0, lists)):  # here a time has its note beside it
            wanted[row["value"], row["sensor"], row["time"], row["note"], element] += 1
    found = Counter(
        (
            row["value"],
            row["sensor"],
            row["time"],
            row["note"],
            tuple((m["sensor"], (m["time"], m["note"])) for m in row["matches"]),
        )
        for row in elements.to_pylist()
    )
    assert found == wanted


@given(cases())
def test_what_is_carried_belongs_to_its_reading(case: Case) -> None:
    result = sensing.sensor_join(case.table, **case.arguments(), carry=["note"])
    rows = {(sensor, time, note) for sensor, time, _, _, note in case.rows}
    assert told(result) == expected(case)
    for row in result.to_pylist():
        assert (row["sensor"], row["time"], row["note"]) in rows
        for match in row["matches"]:
            for time, note in zip(match["times"], match["note"], strict=True):
                assert (match["sensor"], time, note) in rows


def judged(rows: Any, kind: str, over: int, resolution: float | None) -> list[naive.Reading]:
    """Readings by the property of their sensor's readings of late; those that have none are left out."""
    ordered = sorted((time, sensor, value) for sensor, time, value, *_ in rows)
    found = []
    for i, (time, sensor, _) in enumerate(ordered):
        own = [(t, v) for t, s, v in ordered[: i + 1] if s == sensor and time - t <= over]
        values = [v for _, v in own]
        told_: Any = None
        if kind == "summary":
            assert resolution is not None
            pair = statistics.fmean(values), statistics.pstdev(values)
            told_ = tuple(math.floor(number / resolution) * resolution for number in pair)
        elif kind == "pattern" and len(own) > 1:
            told_ = "".join("+" if b > a else "-" if b < a else "0" for a, b in pairwise(values))
        elif kind == "slope" and len({t for t, _ in own}) > 1:
            slope = statistics.linear_regression([Fraction(t) for t, _ in own], [Fraction(v) for v in values]).slope
            told_ = float((slope > 0) - (slope < 0)) if resolution is None else float(slope)
        if told_ is not None:
            found.append(naive.Reading(sensor, time * 10**6, told_))
    return found


@given(cases(), st.sampled_from([("summary", 0.7), ("pattern", None), ("slope", None), ("slope", 0.3)]))
@settings(max_examples=60, deadline=None)
def test_sensors_that_did_alike(case: Case, asked: tuple[str, float | None]) -> None:
    """By mean and spread, slope and signs of steps, over six seconds."""
    kind, resolution = asked
    rows = [(sensor, time, float(round(value)) % 8, *rest) for sensor, time, value, *rest in case.rows]
    readings = judged(rows, kind, 6, resolution)
    bins = resolution if kind == "slope" else None
    wanted = Counter(
        (
            readings[answer.probe].sensor,
            readings[answer.probe].time // 10**6,
            tuple((sensor, tuple(time // 10**6 for time in times)) for sensor, times in answer.matches),
        )
        for answer in naive.sensor_join(readings, case.windows(), bins)
    )
    join = sensing.by_hand(
        ap.SensorJoin, **(case.arguments() | {"resolution": resolution, "within": None}), similar=kind, over=6
    )
    found, rows = [], sorted(rows, key=lambda row: row[1])
    for at in range(0, len(rows), 7):
        found += join.push(table_of(rows[at : at + 7], case.kind)).to_pylist()
    found += join.drain().to_pylist() if rows else []
    assert wanted == Counter(
        (row["sensor"], row["time"], tuple((m["sensor"], tuple(m["times"])) for m in row["matches"])) for row in found
    )
    if kind == "pattern":
        assert {row["value"] for row in found} <= {reading.value for reading in readings}


def test_the_worked_example() -> None:
    """Papers: window 10; five elements in all."""
    rows = [("A", 1, 7), ("B", 3, 7), ("C", 5, 5), ("A", 6, 7), ("C", 8, 7), ("B", 14, 7)]
    table = pa.table(dict(zip(("s", "ts", "v"), map(list, zip(*rows, strict=True)), strict=True)))
    arguments: dict[str, Any] = {"sensor": "s", "time": "ts", "value": "v", "window": 10}
    found = sensing.sensor_join(table, **arguments, expand=True).to_pylist()
    elements = [(r["sensor"], [(m["sensor"], m["time"]) for m in r["matches"]]) for r in found]
    assert elements == [
        ("B", [("A", 1)]),
        ("A", [("B", 3)]),
        ("C", [("A", 6), ("B", 3)]),
        ("C", [("A", 1), ("B", 3)]),
        ("B", [("C", 8), ("A", 6)]),
    ]
    assert sensing.sensor_join(table, **{**arguments, "window": 8}).num_rows == 4


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"value": ap.Gaussian("v", sigma=1)}, r"sensor_join\(\) compares single values as they are.*Gaussian"),
        ({"value": ap.Exact("v", "t")}, "Give the name of a column"),
        ({"existence": "v"}, r"no use for Stream\(existence='v'\): each reading exists"),
        ({"idle_after": 5}, r"no use for Stream\(idle_after=5\)"),
        ({"order": "arrival"}, r"no use for Stream\(order='arrival'\)"),
    ],
)
def test_what_readings_cannot_have_is_refused(settings: dict[str, Any], message: str) -> None:
    table = pa.table({"s": ["a", "b"], "t": [0, 1], "v": [1.0, 1.0]})
    plain: dict[str, Any] = {"key": "s", "time": "t", "value": "v"}
    with pytest.raises(ap.BadArgument, match=message):
        ap.sensor_join(ap.Stream(table, **(plain | settings)), window=1)
    if "idle_after" in settings:  # which phenomena have a use for
        return
    with pytest.raises(ap.BadArgument, match=message.replace("sensor_join", "Phenomena")):
        ap.Phenomena(ap.Stream(None, **(plain | settings)), strength=1, span=1)


def test_a_column_is_a_certain_value() -> None:
    """Of any type for readings, a number for other calls; rejects name the stream."""
    table = pa.table({"s": ["a", "b", None], "t": [0, 1, 2], "v": ["hot", "hot", "hot"], "n": [1.0, 2.0, 3.0]})
    named = ap.Stream(table, key="s", time="t", value="v", name="hall")
    result = ap.sensor_join(named, window=5)
    assert result["value"].to_pylist() == ["hot"]
    assert ap.rejects(result)["stream"].to_pylist() == ["hall"]
    plain, exact = (ap.Stream(table, key="s", time="t", value=value) for value in ("n", ap.Exact("n")))
    arguments: dict[str, Any] = {"epsilon": 1, "probability": 1, "window": ap.TimeWindow(9)}
    assert ap.self_join(plain, **arguments).equals(ap.self_join(exact, **arguments))
    with pytest.raises(ap.BadArgument, match="'v' of stream 'hall' is string"):
        ap.self_join(named, **arguments)


def test_by_hand_what_is_missing_is_told_at_once() -> None:
    with pytest.raises(TypeError, match="'window'"):
        sensing.by_hand(ap.SensorJoin, sensor="s", time="t", value="v")
    with pytest.raises(TypeError, match="'windw'"):
        sensing.by_hand(ap.SensorJoin, sensor="s", time="t", value="v", window=1, windw=2)
    unused = ap.Phenomena(ap.Stream(None, key="s", time="t", value="v"), strength=1, span=1)
    with pytest.raises(ap.BadArgument, match="push some"):
        unused.rejects()
    assert unused.drain().num_columns == 0


def test_how_calls_are_carried_out() -> None:
    table = pa.table({"s": ["a", "b"], "t": [0, 0], "v": [1.0, 1.0]})
    arguments: dict[str, Any] = {"sensor": "s", "time": "t", "value": "v"}
    joined = ap.explain(sensing.sensor_join(table, **arguments, window=10, within=0.5))
    seen = ap.explain(sensing.phenomena(table, **arguments, strength=2, span=5, resolution=0.5))
    assert "at most 0.5 apart" in str(joined)
    assert "held a value 2 times within 5 seconds" in str(seen)


def test_values_of_any_type() -> None:
    for values, kind in (
        (["up", "down", "up", "up"], pa.string()),
        (["up", "down", "up", "up"], pa.dictionary(pa.int32(), pa.string())),
        ([2**62 + 1, 2**62, 2**62 + 1, 2**62 + 1], pa.int64()),
        ([True, False, True, True], pa.bool_()),
        ([Decimal("1.10"), Decimal("1.1001"), Decimal("1.1"), Decimal("1.10")], pa.decimal128(10, 4)),
    ):
        table = pa.table({"s": [1, 2, 3, 10], "t": [0, 0, 0, 1], "v": pa.array(values, kind)})
        found = ap.sensor_join(ap.Stream(table, key="s", time="t", value="v"), window=1).to_pylist()
        assert [(r["value"], r["sensor"], [m["sensor"] for m in r["matches"]]) for r in found] == [
            (values[2], 3, [1]),
            (values[3], 10, [3, 1]),
        ]


@pytest.mark.parametrize("kind", [DOUBLE, pa.decimal128(10, 2), pa.decimal128(38, 18)], ids=str)
def test_decimals_match_by_number(kind: pa.DataType) -> None:
    """Within a distance and by bins, as doubles do; also where later pushes bring other values."""
    asked: list[tuple[dict[str, Any], int]] = [({"within": 0.3}, 2), ({"within": 0.05}, 0), ({"resolution": 1}, 2)]
    for alike, wanted in asked:
        table = pa.table({"s": ["a", "b", "c"], "t": [0, 1, 2], "v": pa.array([20.0, 20.1, 20.2]).cast(kind)})
        assert ap.sensor_join(ap.Stream(table, key="s", time="t", value="v"), **alike, window=10).num_rows == wanted
        join = ap.SensorJoin(ap.Stream(None, key="s", time="t", value="v", lateness=1), **alike, window=10)
        found = [join.push(table.slice(i, 1)) for i in range(3)]
        assert pa.concat_tables([*found, join.drain()]).num_rows == wanted


def test_sensors_at_one_instant_go_by_their_order() -> None:
    """Whole numbers by size, texts by their bytes; not by the length of their text, nor by arrival."""
    for sensors in ([2, 10, 9], ["2", "10", "9"], [-1, 5, 0]):
        table = pa.table({"s": sensors, "t": [0.0, 0.0, 0.0], "v": [1, 1, 1]})
        found = ap.sensor_join(ap.Stream(table, key="s", time="t", value="v"), window=0).to_pylist()
        first, second, third = sorted(sensors)
        assert [(r["sensor"], [m["sensor"] for m in r["matches"]]) for r in found] == [
            (second, [first]),
            (third, [second, first]),
        ]


def test_windows_by_column_and_by_sensor() -> None:
    rows = {"s": ["a", "b", "c"], "t": [0, 4, 5], "v": [1, 1, 1], "w": [5.0, 0.5, 9.0]}
    table = pa.table(rows)
    wanted = [("b", ["a"]), ("c", ["a"])]
    for window in ("w", {"a": "5 seconds", "b": 0.5, None: 9}, ap.TimeWindow(9, per_stream={"a": 5, "b": 0.5})):
        found = ap.sensor_join(ap.Stream(table, key="s", time="t", value="v"), window=window).to_pylist()
        assert [(r["sensor"], [m["sensor"] for m in r["matches"]]) for r in found] == wanted


def test_bad_rows_are_rejects() -> None:
    table = pa.table(
        {
            "s": ["a", None, "b", "c", "d", "e"],
            "t": [0.0, 0.0, None, float("nan"), 0.0, 0.0],
            "v": [1.0, 1.0, 1.0, 1.0, float("inf"), None],
            "p": ["x", "x", "x", "x", "x", "x"],
        }
    )
    result = ap.sensor_join(ap.Stream(table, key="s", time="t", value="v", partition_by=["p"]), window=1)
    found = ap.rejects(result).to_pylist()
    assert [row["reason"] for row in found] == [
        "null key",
        "null time",
        "non-finite value",
        "non-finite value",
        "non-finite value",
    ]
    assert json.loads(found[0]["values"]) == {"v": 1.0, "p": "x"}
    with pytest.raises(ap.BadInput, match="null key"):
        ap.sensor_join(ap.Stream(table, key="s", time="t", value="v"), window=1, on_reject="fail")
    unnamed = ap.sensor_join(ap.Stream(table.slice(0, 1), key="s", time="t", value="v"), window={"b": 1})
    assert ap.rejects(unnamed).to_pylist()[0]["reason"] == "no window"


def test_late_readings_are_rejects() -> None:
    join = ap.SensorJoin(ap.Stream(None, key="s", time="t", value="v", lateness=2), window=10)
    join.push(pa.table({"s": ["a"], "t": [10], "v": [1]}))
    assert join.push(pa.table({"s": ["b", "c"], "t": [8, 7], "v": [1, 1]})).num_rows == 0
    late = join.rejects().to_pylist()
    assert [(row["key"], row["reason"], row["detail"]) for row in late] == [
        ("c", "late", "1.000000 seconds behind the slowest stream's frontier")
    ]
    assert [row["sensor"] for row in join.drain().to_pylist()] == ["a"]


def test_sensors_that_come_and_go_leave_nothing_behind() -> None:
    join = ap.SensorJoin(ap.Stream(None, key="s", time="t", value="v"), window=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(operator, "_LABELS", 64)
        for t in range(200):
            sensors = [f"{t}-{k}" for k in range(5)]
            found = join.push(pa.table({"s": sensors, "t": [t] * 5, "v": [f"v{t // 2}"] * 5}))
            if t:
                assert max(len(row["matches"]) for row in found.to_pylist()) == (4 if t % 2 else 9)
    assert join._engine is not None
    held = vars(join._engine.bucket)["operator"]
    assert isinstance(held, operator.SensorJoin)
    assert len(held.sensors) < 200


def test_frames_of_other_libraries() -> None:
    rows = {"s": ["a", "b"], "t": [0, 0], "v": [1.5, 1.4]}
    arguments: dict[str, Any] = {"sensor": "s", "time": "t", "value": "v", "resolution": 1, "window": 0}
    frames = [pl.DataFrame(rows), pl.DataFrame(rows).to_pandas(), pa.table(rows)]
    assert len({str(sensing.sensor_join(frame, **arguments).to_pylist()) for frame in frames}) == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"resolution": 0}, "above 0"),
        ({"within": -1.0}, "at least 0"),
        ({"within": 1, "resolution": 1}, "both"),
        ({"value": "w"}, "no column 'w'"),
        ({"window": None}, "give a duration"),
        ({"window": {2: 5}}, "names sensors"),
        ({"carry": ["t"]}, "column of the answers"),
        ({"carry": ["time"]}, "column of the answers"),
        ({"value": "s", "resolution": 1}, "not a number"),
        ({"unit": "sec"}, "unit="),
        ({"similar": "slop"}, "slope"),
        ({"similar": "slope"}, "over="),
        ({"similar": "summary", "over": 5}, "resolution="),
        ({"similar": "pattern", "over": 5, "resolution": 1}, "leave out"),
        ({"over": 5}, "over= applies only to"),
    ],
)
def test_errors_say_what_to_do(change: dict[str, Any], message: str) -> None:
    table = pa.table({"s": ["a"], "t": [0], "v": [1.0], "time": [1]})
    arguments: dict[str, Any] = {"sensor": "s", "time": "t", "value": "v", "window": 1} | change
    with pytest.raises(ap.BadArgument, match=message):
        sensing.sensor_join(table, **arguments)


def test_names_are_numbered_once() -> None:
    """Of any length, in any batches, beyond every room there was at first."""
    names, known = Names(), dict[bytes, int]()
    rng = np.random.default_rng(9)
    for n in (0, 1, 50, 3000, 10):
        given_ = [rng.bytes(int(rng.integers(0, 5))) + b"x" * int(k % 300 == 0) * 3000 for k in range(n)]
        numbers = names.of(Bytes.of(given_)).tolist()
        for name, number in zip(given_, numbers, strict=True):
            assert known.setdefault(name, number) == number
    assert sorted(known.values()) == list(range(1, len(known) + 1))
    assert len(names) == len(known) + 1
    told_ = names.strings.to_list()
    assert all(told_[number] == name for name, number in known.items())


def test_many_readings_by_many_sensors() -> None:
    """Beyond one slice, with rings and tables that grow: against a plain scan by NumPy."""
    rng = np.random.default_rng(5)
    n = 40_000
    sensor, value = rng.integers(0, 500, n), rng.integers(0, 300, n)
    time = np.sort(rng.integers(0, 4_000, n))
    result = ap.sensor_join(
        ap.Stream(pa.table({"s": sensor, "t": time, "v": value}), key="s", time="t", value="v"), window=30
    )
    order = np.lexsort((sensor, time))
    sensor, time, value = sensor[order], time[order], value[order]
    met = 0
    for v in range(300):
        mine = np.flatnonzero(value == v)
        s, t = sensor[mine], time[mine]
        low = np.searchsorted(t, t - 30)
        for i in range(len(mine)):
            before = slice(low[i], i)
            met += int((s[before] != s[i]).sum())
    assert sum(len(match["times"]) for row in result["matches"].to_pylist() for match in row) == met


@given(st.randoms(use_true_random=False), st.sampled_from((8, 40, 200)), st.sampled_from(SWEEPS))
@settings(max_examples=60)
def test_what_nobody_asked_of_is_met_by_those_who_ask(chance: Random, span: int, sweep: str) -> None:
    """Many occurrences of a value come between two probes of it: they are put in order at once."""
    join = SensorJoin(SensorPlan(span, pa.int64(), carries=True, sweep=sweep))
    now, held, waiting = 0, list[tuple[int, int, int, int]](), list[tuple[int, int, int, bool]]()
    told, expected = list[Any](), list[Any]()
    for number in range(n := chance.randint(0, 120)):
        now += chance.choice((1, 1, 1, 2, 9))
        sensor, value, asks = chance.randint(0, 5), chance.randint(0, 1), chance.random() < 0.15
        before = [(t, s, n) for t, s, v, n in held if v == value and s != sensor and now - t <= span][::-1]
        if asks and before:
            order = list(dict.fromkeys(s for _, s, _ in before))
            expected.append((now, [(s, [(t, n) for t, other, n in before if other == s]) for s in order]))
        held.append((now, sensor, value, number))
        waiting.append((now, sensor, value, asks))
        if chance.random() < 0.1 or number == n - 1:
            told += _pushed(join, waiting, number + 1 - len(waiting))
            waiting = []
    assert told == expected


def _pushed(join: SensorJoin, rows: list[tuple[int, int, int, bool]], first: int) -> list[Any]:
    """Answers as (time, [(sensor, [(time, number carried)])])."""
    time, sensor, value = (np.array([row[k] for row in rows], np.int64) for k in range(3))
    names = Bytes.fixed(sensor.astype(">u8").view(np.uint8).reshape(-1, 8))
    carry = pa.table({"n": np.arange(first, first + len(rows))})
    asks = np.array([row[3] for row in rows])
    out = []
    for found in join.push([Readings(time, names, value, value, carry=carry, asks=asks)]):
        assert found.carried is not None
        known = [int.from_bytes(name, "big") for name in found.sensors.strings.to_arrow().to_pylist()]
        times = list(zip(found.time.tolist(), found.carried["n"].to_pylist(), strict=True))
        groups = [
            (known[s], times[a:b])
            for s, a, b in zip(found.sensor.tolist(), found.begin[:-1].tolist(), found.begin[1:].tolist(), strict=True)
        ]
        out += [
            (int(found.readings.time[p]), groups[a:b])
            for p, a, b in zip(found.probe.tolist(), found.first[:-1].tolist(), found.first[1:].tolist(), strict=True)
        ]
    return out
