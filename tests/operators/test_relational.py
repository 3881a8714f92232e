from __future__ import annotations

import math
import pickle
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import appulse as ap
from appulse.engines.aggregates.call import aggregate_table, resolve_aggregate
from appulse.engines.join.call import JoinSettings, resolve
from appulse.model.encode import encode
from appulse.model.points import normal_points
from appulse.operators.numbering import END
from appulse.operators.relational import WindowAggregate
from tests.helpers import hands
from tests.helpers import naive_relational as naive

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hypothesis.strategies import DrawFn

ALL = ["sum", "mean", "count", "min", "max", "median", "p90"]
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("ts", pa.int64()),
        ("x", pa.float64()),
        ("sigma", pa.float64()),
        ("s", pa.list_(pa.float64())),
        ("w", pa.list_(pa.float64())),
        ("p", pa.float64()),
        ("g", pa.string()),
        ("m", pa.float64()),
    ]
)
MODELS: dict[str, Any] = {
    "exact": ap.Exact("x"),
    "samples": ap.Samples("s", names=("x",)),
    "weighted": ap.Samples("s", weights="w", names=("x",)),
    "gaussian": ap.Gaussian("x", sigma="sigma", samples=3),
    "ball": ap.Ball("x", radius="sigma", samples=2),
}


@dataclass(frozen=True)
class Case:
    """Rows, what they mean, and a window over them."""

    rows: tuple[dict[str, Any], ...]
    model: str
    existence: bool
    grouped: bool
    window: Any

    @property
    def table(self) -> pa.Table:
        return pa.Table.from_pylist(list(self.rows), schema=SCHEMA)

    @property
    def stream(self) -> ap.Stream:
        return ap.Stream(
            self.table,
            key="id",
            time="ts",
            value=MODELS[self.model],
            existence="p" if self.existence else None,
            partition_by="g" if self.grouped else None,
        )

    @property
    def naive_rows(self) -> list[naive.Row]:
        return [
            naive.Row(row["id"], row["ts"], row["g"] if self.grouped else None, tuple(self._samples(row)), row["m"])
            for row in self.rows
        ]

    def _samples(self, row: dict[str, Any]) -> list[tuple[float, Fraction]]:
        p = Fraction(row["p"]) if self.existence else Fraction(1)
        if self.model == "exact":
            return [(row["x"], p)]
        if self.model == "samples":
            return [(value, p / len(row["s"])) for value in row["s"]]
        if self.model == "weighted":
            return [(value, Fraction(weight) * p) for value, weight in zip(row["s"], row["w"], strict=True) if weight]
        points: Sequence[float]
        points = normal_points(3, 1)[:, 0].tolist() if self.model == "gaussian" else _ball()
        return [(row["x"] + row["sigma"] * point, p / len(points)) for point in points]


def _ball() -> list[float]:
    from appulse.model.points import ball_points

    return [float(point) for point in ball_points(2, 1)[:, 0]]


WINDOWS = st.one_of(
    st.sampled_from((1, 2, 3, 100)).map(ap.CountWindow),
    st.sampled_from((0.0, 1.0, 2.0, 100.0)).map(ap.TimeWindow),
    st.builds(ap.UncertainCountWindow, st.sampled_from((1, 2, 3)), confidence=st.sampled_from((0.5, 0.75, 0.9, 1.0))),
    st.sampled_from((0.0, 1.0, 2.0)).map(lambda bound: ap.DeltaWindow("m", bound)),
    st.sampled_from((1, 2, 3)).map(ap.TumblingWindow),
    st.sampled_from(("1 second", "2 seconds", "100 seconds")).map(ap.TumblingWindow),
)


@st.composite
def cases(draw: DrawFn, *, most: int = 5, bad: bool = False) -> Case:
    """A few rows, with ties in time and value."""
    rows = []
    for i in range(draw(st.integers(0, most))):
        n = draw(st.integers(1, 2))
        weights = draw(st.sampled_from(((0.5, 0.5), (0.25, 0.5), (1.0, 0.0), (0.125, 0.75))))
        value = st.integers(-4, 4).map(lambda k: k / 2)
        row: dict[str, Any] = {
            "id": i,
            "ts": draw(st.integers(-2, 5)),
            "x": draw(value),
            "sigma": draw(st.sampled_from((0.0, 0.5, 1.0))),
            "s": [draw(value) for _ in range(n)],
            "w": list(weights[:n]),
            "p": draw(st.sampled_from((1.0, 0.5, 0.25, 0.75, 1 / 3, 1e-6))),
            "g": draw(st.sampled_from(("a", "b"))),
            "m": draw(st.sampled_from((0.0, 1.0, 2.0, 3.0))),
        }
        if bad and draw(st.integers(0, 3)) == 0:
            row |= draw(
                st.sampled_from(({"ts": None}, {"id": None}, {"x": None, "s": None}, {"s": [math.nan], "x": math.inf}))
            )
        rows.append(row)
    return Case(
        tuple(rows), draw(st.sampled_from(list(MODELS))), draw(st.booleans()), draw(st.booleans()), draw(WINDOWS)
    )


def check(answer: dict[str, Any], window: naive.Window, column: str = "x") -> None:
    """One row of an answer against the possible worlds of its window."""
    for aggregate in ALL:
        name = f"{column}_{aggregate}"
        exists, expected = naive.distribution(window, aggregate)
        mean, deviation = naive.moments(expected)
        assert answer[name] == pytest.approx(mean, abs=1e-9)
        assert answer[f"{name}_std"] == pytest.approx(deviation, abs=2e-8)
        if aggregate not in ("sum", "count"):
            assert answer[f"{name}_exists"] == pytest.approx(float(exists), rel=1e-12)
        atoms = answer[f"{name}_distribution"]
        assert answer[f"{name}_distribution_error"] == 0.0
        assert [atom["value"] for atom in atoms] == sorted(atom["value"] for atom in atoms)
        # Values that only rounding tells apart are one.
        assert _steps(expected.items()) == pytest.approx(
            _steps((a["value"], a["probability"]) for a in atoms), abs=1e-9
        )


def _steps(atoms: Any) -> dict[float, float]:
    found: dict[float, float] = {}
    for value, chance in atoms:
        at = round(float(value), 6) + 0.0
        found[at] = found.get(at, 0.0) + float(chance)
    return found


def answers_of(table: pa.Table) -> dict[tuple[Any, int], list[dict[str, Any]]]:
    """Answers by group and time: a tick may end several blocks."""
    found: dict[tuple[Any, int], list[dict[str, Any]]] = {}
    for row in table.to_pylist():
        found.setdefault((row.get("g"), row["time"]), []).append(row)
    return found


@given(cases())
def test_aggregates_are_those_of_the_possible_worlds(case: Case) -> None:
    result = ap.window_aggregate(case.stream, {"x": ALL}, window=case.window, distribution=True)
    expected: dict[tuple[Any, int], list[naive.Window]] = {}
    for window in naive.windows(case.naive_rows, case.window):
        expected.setdefault((window.group, window.time), []).append(window)
    found = answers_of(result)
    assert {key: len(rows) for key, rows in found.items()} == {key: len(rows) for key, rows in expected.items()}
    for key, windows in expected.items():
        for answer, window in zip(found[key], windows, strict=True):
            check(answer, window)


@given(cases())
def test_deviations_and_percentiles_of_certain_rows_are_those_of_numpy(case: Case) -> None:
    case = replace(case, model="exact", existence=False)
    asked = ["std", "median", "p1", "p75", "p99"]
    result = ap.window_aggregate(case.stream, {"x": asked}, window=case.window, distribution=True)
    expected: dict[tuple[Any, int], list[list[Any]]] = {}
    for window in naive.windows(case.naive_rows, case.window):
        values = [row.samples[0][0] for row in window.rows]
        values = values if window.size is None else values[-window.size :]
        spread = np.std(values, ddof=1) if len(values) > 1 else None
        own = [np.quantile(values, q, method="inverted_cdf") for q in (0.5, 0.01, 0.75, 0.99)]
        expected.setdefault((window.group, window.time), []).append([spread, *own])
    found = answers_of(result)
    assert found.keys() == expected.keys()
    for key, rows in expected.items():
        for answer, row in zip(found[key], rows, strict=True):
            assert [answer[f"x_{name}"] for name in asked] == pytest.approx(row, abs=1e-12)
            assert [answer[f"x_{name}_exists"] for name in asked] == [float(row[0] is not None), 1, 1, 1, 1]
            assert [len(answer[f"x_{name}_distribution"]) for name in asked] == [int(row[0] is not None), 1, 1, 1, 1]


@pytest.mark.parametrize(("value", "existence"), [(ap.Gaussian("x", sigma=1.0), None), (ap.Exact("x"), "p")])
def test_a_deviation_is_of_certain_rows(value: Any, existence: str | None) -> None:
    rows = pa.table({"id": [1], "ts": [1], "x": [1.0], "p": [0.5]})
    stream = ap.Stream(rows, key="id", time="ts", value=value, existence=existence)
    with pytest.raises(ap.BadArgument, match="'std' is of rows that are certain"):
        ap.window_aggregate(stream, {"x": "std"}, window=5)


@given(cases())
def test_single_valued_sums_are_of_means(case: Case) -> None:
    result = ap.window_aggregate(case.stream, {"x": "sum"}, window=case.window, single_valued=True)
    expected = [naive.single_valued(window) for window in naive.windows(case.naive_rows, case.window)]
    assert sorted(result["x_sum"].to_pylist()) == pytest.approx(sorted(expected), abs=1e-9)
    assert set(result["x_sum_std"].to_pylist()) <= {0.0}


@given(cases(most=6), st.data())
def test_pushes_answer_as_one_push_does(case: Case, data: st.DataObject) -> None:
    """Rows in any order within what is complete; a log that is replayed, and one that is restored, go on alike."""
    call = _resolved(case)
    whole = WindowAggregate(call.plan).push([encode(case.table, call.encoding)[0]], ended=True)
    alive, replayed = WindowAggregate(call.plan), WindowAggregate(call.plan)
    found, ticks = [], sorted({row["ts"] for row in case.rows})
    cuts = sorted(data.draw(st.lists(st.sampled_from([*ticks, 0]), max_size=3)))
    left = list(case.rows)
    for cut in [*cuts, None]:
        # Rows that are due, and some that are early.
        part = [row for row in left if cut is None or row["ts"] < cut or data.draw(st.booleans())]
        left = [row for row in left if row not in part]
        objects, _ = encode(pa.Table.from_pylist(part, schema=SCHEMA), call.encoding)
        complete = END if cut is None else cut * 1_000_000
        found.append(aggregate_table(alive.push([objects], complete, ended=cut is None), call))
        replayed.apply([objects], complete, ended=cut is None)
        if data.draw(st.booleans()):
            restored = WindowAggregate(call.plan)
            restored.restore((alive if data.draw(st.booleans()) else replayed).state())
            alive = restored
    assert _sorted(pa.concat_tables(found)) == _sorted(aggregate_table(whole, call))


@given(cases(most=6), st.integers(0, 3), st.data())
def test_by_hand_answers_are_those_of_the_whole_table(case: Case, lateness: int, data: st.DataObject) -> None:
    """And of the twin, in whatever order rows come within the lateness, and however they are pushed."""
    delays = [data.draw(st.integers(0, lateness)) for _ in case.rows]
    order = sorted(range(len(case.rows)), key=lambda i: (case.rows[i]["ts"] + delays[i], i))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(order)), max_size=4)))
    table = case.table.take(pa.array(order, pa.int64()))
    settings_: dict[str, Any] = {"aggregates": {"x": ALL}, "window": case.window, "distribution": True}
    by_hand = ap.WindowAggregate(replace(case.stream, frame=None, lateness=lateness), **settings_)
    pushed = [by_hand.push(table.slice(a, b - a)) for a, b in pairwise([0, *cuts, len(order)])]
    parts = [part for part in (*pushed, by_hand.drain()) if part.num_columns]
    found = pa.concat_tables(parts)
    assert len(by_hand.rejects()) == 0
    plain = [name for name in found.column_names if "distribution" not in name]
    whole = ap.window_aggregate(case.stream, **settings_)
    assert found.schema.equals(whole.schema)
    assert _sorted(found.select(plain)) == _sorted(whole.select(plain))
    expected: dict[tuple[Any, int], list[naive.Window]] = {}
    for window in naive.windows(case.naive_rows, case.window):
        expected.setdefault((window.group, window.time), []).append(window)
    answers = answers_of(found)
    assert {key: len(rows) for key, rows in answers.items()} == {key: len(rows) for key, rows in expected.items()}
    for key, windows in expected.items():
        for answer, window in zip(answers[key], windows, strict=True):
            check(answer, window)


def _rows(*times: float, value: float | list[float] = 1.0) -> pa.Table:
    return pa.table({"id": range(len(times)), "ts": list(times), "x": [value] * len(times)})


def test_distributions_of_tiny_values_are_given_beside_huge_ones() -> None:
    rows = pa.table({"id": [1, 2], "ts": [0, 100], "x": [1e-200, 1e308], "p": [0.5, 0.5]})
    stream = ap.Stream(rows, key="id", time="ts", value="x", existence="p")
    found = ap.window_aggregate(stream, {"x": "sum"}, window=10, distribution=True)["x_sum_distribution"].to_pylist()
    assert [[atom["value"] for atom in atoms] for atoms in found] == [[0.0, 1e-200], [0.0, 1e308]]


def test_by_hand_a_tick_is_answered_once_it_is_complete() -> None:
    """Late rows and rows from the future are rejects; what raises has changed nothing; after a drain nothing comes."""
    stream = ap.Stream(None, key="id", time="ts", value="x", lateness=2)
    sums = ap.WindowAggregate(stream, {"x": "sum"}, window=10)
    assert len(sums.push(_rows(0.0, 1.0))) == 0
    assert sums.push(_rows(4.0))["x_sum"].to_pylist() == [1.0, 2.0]
    assert len(sums.push(_rows(1.0))) == 0
    with pytest.raises(ap.BadArgument, match="'ts' of stream 'stream' was double in earlier pushes and is string"):
        sums.push(_rows(4.5).set_column(1, "ts", pa.array(["now"])))
    with pytest.raises(ap.BadArgument, match="no column 'x'"):
        sums.push(_rows(4.5).drop_columns(["x"]))
    assert len(sums.push(_rows(90_000.0))) == 0
    assert sums.rejects()["reason"].to_pylist() == ["late", "future"]
    assert sums.drain()["x_sum"].to_pylist() == [3.0]
    with pytest.raises(ap.BadArgument, match="Make a new WindowAggregate"):
        sums.push(_rows(5.0))
    strict = ap.WindowAggregate(stream, {"x": "sum"}, window=10, on_reject="fail")
    strict.push(_rows(0.0, 4.0))
    with pytest.raises(ap.BadInput, match="late"):
        strict.push(_rows(9.0, 1.0, 0.0).slice(1))
    assert strict.push(_rows(8.0))["time"].to_pylist() == [4.0]


def test_by_hand_rows_may_be_taken_as_they_come() -> None:
    stream = ap.Stream(None, key="id", time="ts", value="x", order="arrival")
    sums = ap.WindowAggregate(stream, {"x": "sum"}, window=ap.CountWindow(2))
    assert [sums.push(_rows(t))["x_sum"].to_pylist() for t in (5.0, 3.0, 4.0)] == [[1.0], [2.0], [2.0]]
    assert len(sums.drain()) == 0


def test_by_hand_the_first_rows_tell_how_many_dimensions_there_are() -> None:
    stream = ap.Stream(None, key="id", time="ts", value=ap.Samples("x"))
    sums = ap.WindowAggregate(stream, {"x_2": "sum"}, window=10)
    two: Any = [[1.0, 2.0], [3.0, 4.0]]
    rows = _rows(0.0, value=two)
    assert len(sums.push(rows.slice(0, 0))) == 0
    sums.push(rows)
    assert sums.drain()["x_2_sum"].to_pylist() == [3.0]
    with pytest.raises(ap.BadArgument):
        ap.WindowAggregate(stream, {"x": "sum"}, window=10).push(_rows(0.0))


def _resolved(case: Case) -> Any:
    return resolve_aggregate(
        case.stream,
        case.table,
        {"x": ALL},
        window=case.window,
        distribution=False,
        single_valued=False,
        on_reject="collect",
    )


def _sorted(table: pa.Table) -> list[dict[str, Any]]:
    rows = [{name: round(v, 9) if isinstance(v, float) else v for name, v in row.items()} for row in table.to_pylist()]
    return sorted(rows, key=repr)


# --- filter -----------------------------------------------------------------------------------------------------

CONDITIONS: dict[str, Any] = {
    "x > 0": lambda x, _: x > 0,
    "x <= 1 AND g = 'a'": lambda x, row: x <= 1 and row["g"] == "a",
    "x * 2 BETWEEN -1 AND m OR sigma IN (0.5, 7)": lambda x, row: -1 <= x * 2 <= row["m"] or row["sigma"] == 0.5,
    "m >= 1": lambda _, row: row["m"] >= 1,
    "x IS NULL": lambda *_: False,
}


@given(cases(), st.sampled_from(list(CONDITIONS)), st.data())
def test_filtered_streams_aggregate_what_is_left(case: Case, text: str, data: st.DataObject) -> None:
    condition = CONDITIONS[text]
    rows = []
    for row, given_row in zip(case.naive_rows, case.rows, strict=True):
        samples = tuple((value, weight) for value, weight in row.samples if condition(value, given_row))
        rows += [replace(row, samples=samples)] if samples else []
    stream = ap.filter(case.stream, text)
    if data.draw(st.booleans()):
        stream = ap.filter(stream, "g IS NOT NULL")
    result = ap.window_aggregate(stream, {"x": ALL}, window=case.window, distribution=True)
    expected = list(naive.windows(rows, case.window))
    assert len(result) == len(expected)
    assert len(ap.rejects(result)) == 0
    found = answers_of(result)
    for window in expected:
        check(found[window.group, window.time].pop(0), window)


@given(cases(bad=True), st.sampled_from(list(CONDITIONS)))
def test_bad_rows_are_the_same_rejects_with_a_filter(case: Case, text: str) -> None:
    plain, filtered = (
        ap.rejects(ap.window_aggregate(stream, {"x": "sum"}, window=case.window))
        for stream in (case.stream, ap.filter(case.stream, text))
    )
    columns = ["stream", "key", "time", "reason", "detail"]
    assert filtered.select(columns).to_pylist() == plain.select(columns).to_pylist()


@given(cases(), cases(), st.sampled_from(list(CONDITIONS)))
def test_joins_of_filtered_streams_are_joins_of_the_samples_left(left: Case, right: Case, text: str) -> None:
    """The samples written out and filtered by hand, as a stream of `Samples`, by table and by hand."""
    streams = [replace(case, existence=True, grouped=False) for case in (left, right)]
    tables = []
    for case in streams:
        rows = []
        for row, given_row in zip(case.naive_rows, case.rows, strict=True):
            kept = [(value, float(weight)) for value, weight in row.samples if CONDITIONS[text](value, given_row)]
            if kept:
                rows.append(given_row | {"s": [value for value, _ in kept], "w": [weight for _, weight in kept]})
        tables.append(pa.Table.from_pylist(rows, schema=SCHEMA))
    by_hand = [ap.Stream(table, key="id", time="ts", value=MODELS["weighted"]) for table in tables]
    settings: dict[str, Any] = {"epsilon": 1.0, "probability": 0.1, "window": left.window}
    # Points of Gaussians and balls fall on epsilon only by rounding.
    epsilons = {"epsilon": 1.03} if {left.model, right.model} & {"gaussian", "ball"} else {}
    filtered = [ap.filter(case.stream, text) for case in streams]
    if isinstance(left.window, ap.UncertainCountWindow) or text == "m >= 1":
        settings["window"] = ap.TimeWindow(3)
    found = ap.similarity_join(*filtered, **settings | epsilons)
    expected = ap.similarity_join(*by_hand, **settings | epsilons)
    if text != "m >= 1":  # there the models stay, and Gaussians keep their closed form
        assert _sorted(found) == _sorted(expected)
    join = hands.similarity_join(
        left=replace(filtered[0], frame=None), right=replace(filtered[1], frame=None), **settings | epsilons
    )
    pushed = [join.push(left=streams[0].table), join.push(right=streams[1].table), join.drain()]
    assert _sorted(pa.concat_tables([part for part in pushed if part.num_columns])) == _sorted(found)


def test_a_filter_that_keeps_everything_keeps_certainty() -> None:
    """Ten samples of a tenth each: their weights do not add up to one, the row still is certain."""
    table = pa.table({"id": [1], "ts": [0], "s": [[float(i) for i in range(10)]]})
    stream = ap.filter(ap.Stream(table, key="id", time="ts", value=ap.Samples("s")), "s >= 0")
    assert ap.window_aggregate(stream, {"s": "max"}, window=ap.CountWindow(1))["s_max_exists"].to_pylist() == [1.0]


def test_a_filtered_gaussian_is_its_points_and_a_row_filter_leaves_it() -> None:
    table = pa.table({"id": [1, 2], "ts": [0, 0], "x": [0.0, 0.0], "kind": ["a", "b"]})
    stream = ap.Stream(table, key="id", time="ts", value=ap.Gaussian("x", sigma=1.0))
    settings: dict[str, Any] = {"epsilon": 0.5, "probability": 0.1, "window": ap.TimeWindow(1)}
    closed = ap.self_join(stream, **settings)["probability"].to_pylist()
    points = ap.self_join(ap.filter(stream, "x > -100"), **settings)["probability"].to_pylist()
    assert closed == ap.self_join(ap.filter(stream, "kind < 'c'"), **settings)["probability"].to_pylist()
    assert closed == pytest.approx([math.erf(0.25)], abs=1e-12)
    assert points[0] != closed[0]
    assert points == pytest.approx(closed, abs=0.02)


def test_a_dimension_that_is_not_there_is_told() -> None:
    table = pa.table({"id": [1], "ts": [0], "s": [[[1.0, 2.0]]]})
    stream = ap.Stream(table, key="id", time="ts", value=ap.Samples("s"))
    settings: dict[str, Any] = {"epsilon": 0.5, "probability": 0.1, "window": ap.TimeWindow(1)}
    assert len(ap.self_join(ap.filter(stream, "s_2 = 2"), **settings)) == 0
    with pytest.raises(ap.BadArgument, match=r"no dimension 's_3'\. It has: s_1, s_2"):
        ap.self_join(ap.filter(stream, "s_3 = 2"), **settings)
    with pytest.raises(ap.BadArgument, match="no column 'nothing'"):
        ap.self_join(ap.filter(stream, "nothing = 2"), **settings)
    with pytest.raises(ap.BadArgument, match="position 4: a number cannot be compared with a text"):
        ap.self_join(ap.filter(stream, "ts = 'a'"), **settings)
    with pytest.raises(ap.BadArgument, match=r"filter\(stream=.*Stream.*got pyarrow\.Table"):
        ap.filter(table, "ts = 1")


def test_filtered_calls_travel_and_have_a_fingerprint() -> None:
    def called(*conditions: str) -> Any:
        stream = ap.Stream(None, key="id", time="ts", value=ap.Exact("x"), name="one")
        for condition in conditions:
            stream = ap.filter(stream, condition)
        settings: dict[str, Any] = {"epsilon": 1.0, "probability": 0.5, "window": ap.TimeWindow(1)}
        return resolve([stream], [SCHEMA], JoinSettings(**settings))

    call = called("x > 1", "g = 'a'")
    assert pickle.loads(pickle.dumps(call)).fingerprint() == call.fingerprint()  # noqa: S301 - our own bytes
    assert len({called(*c).fingerprint() for c in ((), ("x > 1",), ("x > 2",), ("x > 1", "g = 'a'"))}) == 4
    assert call.encodings[0].columns() == ["id", "ts", "x", "g"]


# --- the paper, and chains --------------------------------------------------------------------------------------


def test_figure_2_of_the_paper() -> None:
    """A window of 13 rows, two of which may not exist: three boundaries, four sums (Dallachiesa et al. 2015)."""
    n, uncertain = 18, {9: 0.75, 14: 0.5}
    table = pa.table(
        {
            "id": range(n),
            "ts": range(n),
            "load": [float(2**i) for i in range(n)],
            "p": [uncertain.get(i, 1.0) for i in range(n)],
        }
    )
    stream = ap.Stream(table, key="id", time="ts", value=ap.Exact("load"), existence="p")
    window = ap.UncertainCountWindow(13, confidence=1.0)
    result = ap.window_aggregate(stream, {"load": "sum"}, window=window, distribution=True)
    answer = result.slice(n - 1).to_pylist()[0]
    every = sum(2**i for i in range(n - 13, n))
    # A row that is missing lets the next older one in: rows 4 and 3 are beyond the first boundary.
    expected = {
        every: 0.75 * 0.5,
        every - 2**9 + 2**4: 0.25 * 0.5,
        every - 2**14 + 2**4: 0.75 * 0.5,
        every - 2**9 - 2**14 + 2**4 + 2**3: 0.25 * 0.5,
    }
    assert {a["value"]: a["probability"] for a in answer["load_sum_distribution"]} == pytest.approx(expected)
    assert answer["load_sum"] == pytest.approx(sum(value * chance for value, chance in expected.items()))
    single = ap.window_aggregate(stream, {"load": "sum"}, window=window, single_valued=True)
    assert single["load_sum"].to_pylist()[-1] == sum(2**i for i in range(n - 15, n))


def test_a_chain_of_operators_agrees_with_possible_worlds() -> None:
    """Filter, join, window, aggregate: every row has one partner, so pairs exist independently of each other."""
    numbers = np.random.default_rng(7)
    n, epsilon = 8, 0.6
    tables, samples, weights = [], [], []
    for _ in range(2):
        values = 10.0 * np.arange(n)[:, None] + numbers.uniform(-0.6, 0.6, (n, 5))
        shares = numbers.dirichlet(np.ones(6), n)[:, :5]
        samples.append(values)
        weights.append(shares)
        rows = {"id": range(n), "ts": [float(i) for i in range(n)], "s": values.tolist(), "w": shares.tolist()}
        tables.append(pa.table(rows | {"place": [10.0 * i for i in range(n)]}))
    left, right = (
        ap.filter(ap.Stream(table, key="id", time="ts", value=ap.Samples("s", weights="w")), "s - place > -0.4")
        for table in tables
    )
    pairs = ap.similarity_join(left, right, epsilon=epsilon, probability=1e-6, window=ap.TimeWindow(0))
    pairs = pairs.sort_by("left_time")
    kept = pairs["left_key"].to_pylist()
    stream = ap.Stream(pairs, key="left_key", time="left_time", value=ap.Exact("distance"), existence="probability")
    window = ap.UncertainCountWindow(2, confidence=0.9)
    result = ap.window_aggregate(stream, {"distance": ["sum", "count", "max"]}, window=window).to_pylist()[-1]
    assert len(kept) == n

    worlds = 200_000
    exist = np.ones((worlds, n), bool)
    chosen = []
    for values, shares in zip(samples, weights, strict=True):
        cumulative = np.cumsum(shares, axis=1)
        which = (numbers.random((worlds, n))[:, :, None] > cumulative[None]).sum(axis=2)
        exist &= which < 5
        value = values[np.arange(n)[None, :], np.minimum(which, 4)]
        exist &= value - 10.0 * np.arange(n) > -0.4
        chosen.append(value)
    exist &= np.abs(chosen[0] - chosen[1]) <= epsilon
    probability = np.array(pairs["probability"].to_pylist())
    error = np.sqrt(probability * (1 - probability) / worlds)
    assert (np.abs(exist.mean(axis=0) - probability) <= 4 * error).all()
    # What the window keeps is decided by probabilities, not worlds.
    members = [naive.Row(i, i, None, ((0.0, Fraction(p)),)) for i, p in enumerate(probability.tolist())]
    *_, last = naive.windows(members, window)
    exist[:, : last.rows[0].key] = False
    inside = exist & (np.cumsum(exist[:, ::-1], axis=1)[:, ::-1] <= 2)
    distance = np.array(pairs["distance"].to_pylist())
    sums = (inside * distance).sum(axis=1)
    some = inside.any(axis=1)
    greatest = np.where(inside, distance, -1.0).max(axis=1)[some]
    for drawn, value, deviation in (
        (sums, result["distance_sum"], result["distance_sum_std"]),
        (inside.sum(axis=1), result["distance_count"], result["distance_count_std"]),
        (greatest, result["distance_max"], result["distance_max_std"]),
    ):
        assert abs(drawn.mean() - value) <= 4 * deviation / math.sqrt(len(drawn))
        assert drawn.std() == pytest.approx(deviation, rel=0.02)
    exists = result["distance_max_exists"]
    assert abs(some.mean() - exists) <= 4 * math.sqrt(exists * (1 - exists) / worlds)


def test_a_distribution_is_a_stream_of_samples() -> None:
    table = pa.table({"id": range(4), "ts": range(4), "x": [1.0, 2.0, 3.0, 4.0], "p": [0.5, 0.25, 1.0, 0.75]})
    stream = ap.Stream(table, key="id", time="ts", value=ap.Exact("x"), existence="p")
    loads = ap.window_aggregate(stream, {"x": ["sum", "max"]}, window=ap.CountWindow(2), distribution=True)
    atoms = loads["x_max_distribution"].combine_chunks()
    lists = {
        name: pa.ListArray.from_arrays(atoms.offsets, atoms.flatten().field(field))
        for name, field in (("values", "value"), ("weights", "probability"))
    }
    loads = loads.append_column("values", lists["values"]).append_column("weights", lists["weights"])
    model = ap.Samples("values", weights="weights", names=("load",))
    again = ap.Stream(loads, key="time", time="time", value=model, existence="x_max_exists")
    result = ap.window_aggregate(again, {"load": "mean"}, window=ap.CountWindow(1))
    assert result["load_mean"].to_pylist() == pytest.approx(loads["x_max"].to_pylist())
    assert result["load_mean_std"].to_pylist() == pytest.approx(loads["x_max_std"].to_pylist())
    assert result["load_mean_exists"].to_pylist() == pytest.approx(loads["x_max_exists"].to_pylist())


# --- larger windows ---------------------------------------------------------------------------------------------


def _many(n: int, offset: float = 0.0) -> tuple[pa.Table, np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    numbers = np.random.default_rng(3)
    x, p = offset + numbers.normal(size=n), numbers.uniform(0.05, 1.0, n)
    return pa.table({"id": range(n), "ts": range(n), "x": x, "p": p}), x, p


@pytest.mark.parametrize("window", [ap.TimeWindow(100.0), ap.UncertainCountWindow(20, confidence=0.99)])
@pytest.mark.parametrize("offset", [0.0, 1e7])
def test_distributions_of_many_values_say_how_far_they_are_off(window: Any, offset: float) -> None:
    table, _, _ = _many(60, offset)
    stream = ap.Stream(table.slice(20), key="id", time="ts", value=ap.Exact("x"), existence="p")
    aggregates = {"x": ["sum", "mean", "count", "max"]}
    answer = ap.window_aggregate(stream, aggregates, window=window, distribution=True).to_pylist()[-1]
    for aggregate in aggregates["x"]:
        name = f"x_{aggregate}"
        atoms, error = answer[f"{name}_distribution"], answer[f"{name}_distribution_error"]
        value, chance = (np.array([a[what] for a in atoms]) for what in ("value", "probability"))
        assert len(atoms) <= 4096
        assert (error > 0.0) == (aggregate in ("sum", "mean"))
        assert chance.sum() == pytest.approx(1.0)
        assert (value * chance).sum() == pytest.approx(answer[name], rel=1e-9, abs=1e-9)
        middle = (value * chance).sum()
        deviation = math.sqrt(((value - middle) ** 2 * chance).sum())
        # The mean is kept, and putting values together costs just that much variance; of a mean at most.
        expected = answer[f"{name}_std"]
        if aggregate != "mean":
            assert math.hypot(deviation, error) == pytest.approx(expected, rel=1e-6, abs=1e-6)
        assert deviation - 1e-6 <= expected <= math.hypot(deviation, error) + 1e-6
        assert error < 0.01 * answer[f"{name}_std"]


def test_large_values_cost_no_digits() -> None:
    """The same rows ten million away: deviations stay, in every aggregate."""
    found = []
    for offset in (0.0, 1e7):
        table, _, _ = _many(100, offset)
        stream = ap.Stream(table, key="id", time="ts", value=ap.Exact("x"), existence="p")
        window = ap.UncertainCountWindow(30, confidence=0.999)
        found.append(ap.window_aggregate(stream, {"x": ["mean", "min", "max"]}, window=window))
    for name in ("x_mean", "x_min", "x_max"):
        near, far = (np.array(table[name].to_pylist()) for table in found)
        assert far - 1e7 == pytest.approx(near, abs=1e-7)
        near, far = (np.array(table[f"{name}_std"].to_pylist()) for table in found)
        assert far == pytest.approx(near, abs=1e-7)


MAGNITUDES = (
    st.sampled_from((1e308, -1e308, 1.7e308, 1e200, -1e200, 1e155, 3.0, 0.0)),
    st.sampled_from((1e12, 1e12 + 1, 1e12 + 2, 1e12 + 0.5, 1e12 - 7)),
    st.sampled_from((1e15, 1e15 + 1, 1e15 + 2.5, -1e15)),
    st.sampled_from((1e-200, 3e-200, -2e-170, 1e-300)),
)


@given(st.data(), st.sampled_from(MAGNITUDES), st.sampled_from(("exact", "samples", "weighted")))
def test_values_of_any_size_aggregate_to_every_digit(
    data: st.DataObject, values: st.SearchStrategy[float], model: str
) -> None:
    """Means are right to the rounding of the largest value, deviations to that of themselves."""
    case = data.draw(cases())
    rows = tuple(
        {**row, "x": data.draw(values), "s": [data.draw(values) for _ in row["s"]], "g": "a", "p": max(row["p"], 0.25)}
        for row in case.rows
    )
    case = replace(case, rows=rows, model=model, grouped=False)
    found = ap.window_aggregate(case.stream, {"x": ALL}, window=case.window, distribution=True).to_pylist()
    expected = list(naive.windows(case.naive_rows, case.window))
    assert len(found) == len(expected)
    for answer, window in zip(found, expected, strict=True):
        largest = max(abs(Fraction(value)) for row in window.rows for value, _ in row.samples)
        for aggregate in ALL:
            exists, worlds = naive.distribution(window, aggregate)
            if not exists:
                continue
            mean = sum((value * chance for value, chance in worlds.items()), Fraction(0))
            variance = sum(((value - mean) ** 2 * chance for value, chance in worlds.items()), Fraction(0))
            rounding = 0 if aggregate == "count" else largest * len(window.rows) / 10**15
            assert near(answer[f"x_{aggregate}"], mean, rounding), aggregate
            least = rounding if variance == 0 else 0  # what never varies may be off by rounding
            assert near(answer[f"x_{aggregate}_std"], root(variance), least), aggregate
            for atom in answer[f"x_{aggregate}_distribution"]:
                assert any(near(atom["value"], value, rounding) for value in worlds), aggregate


def near(found: float, exact: Fraction, rounding: Fraction | int) -> bool:
    """Whether a number is the exact one to nine digits, or infinite where that is beyond a double."""
    greatest = Fraction(1.7976931348623157e308)
    if abs(exact) > greatest:
        return math.isinf(found) or abs(exact) < greatest * (1 + Fraction(1, 10**9))
    return math.isfinite(found) and abs(Fraction(found) - exact) <= abs(exact) / 10**9 + rounding


def root(square: Fraction) -> Fraction:
    """The square root, to thirty digits."""
    if square == 0:
        return square
    bits = max(0, 200 + square.denominator.bit_length() - square.numerator.bit_length())
    bits += bits % 2
    return Fraction(math.isqrt((square.numerator << bits) // square.denominator), 1 << bits // 2)


def test_extremes_of_large_values_are_not_infinite() -> None:
    table = pa.table({"id": [0, 1], "ts": [0, 0], "x": [1e308, -1e308], "p": [0.5, 0.5]})
    stream = ap.Stream(table, key="id", time="ts", value=ap.Exact("x"), existence="p")
    (row,) = ap.window_aggregate(stream, {"x": ["max", "min", "mean"]}, window=ap.CountWindow(2)).to_pylist()
    assert row["x_max"] == pytest.approx(1e308 / 3)
    assert row["x_min"] == pytest.approx(-1e308 / 3)
    assert row["x_max_std"] == pytest.approx(math.sqrt(8 / 9) * 1e308)
    assert (row["x_mean"], row["x_mean_exists"]) == (0.0, 0.75)


def test_extremes_far_from_zero_lose_no_digits() -> None:
    rows = {"id": [0, 1], "ts": [0, 0], "p": [0.5, 0.5]}
    for far in (1e12, 1e15):
        table = pa.table({**rows, "s": [[far, far + 1], [far + 1, far + 2]], "w": [[0.5, 0.5]] * 2})
        stream = ap.Stream(table, key="id", time="ts", value=ap.Samples("s", "w", names=("x",)), existence="p")
        (row,) = ap.window_aggregate(stream, {"x": ["max"]}, window=ap.CountWindow(2)).to_pylist()
        assert row["x_max_std"] == pytest.approx(math.sqrt(17 / 36), rel=1e-12)


def test_certain_rows_make_plain_aggregates() -> None:
    table, x, _ = _many(300)
    stream = ap.Stream(table, key="id", time="ts", value=ap.Exact("x"))
    for window in (ap.CountWindow(50), ap.UncertainCountWindow(50, confidence=0.9), ap.TimeWindow(49.0)):
        result = ap.window_aggregate(stream, {"x": ALL}, window=window)
        for i in (0, 10, 49, 50, 299):
            own = x[max(0, i - 49) : i + 1]
            expected = [own.sum(), own.mean(), len(own), own.min(), own.max()]
            expected += np.quantile(own, [0.5, 0.9], method="inverted_cdf").tolist()
            row = result.slice(i, 1).to_pylist()[0]
            assert [row[f"x_{a}"] for a in ALL] == pytest.approx(expected)
            assert [row[f"x_{a}_std"] for a in ALL] == pytest.approx([0.0] * len(ALL), abs=1e-7)


# --- the front door ---------------------------------------------------------------------------------------------


def test_columns_and_types() -> None:
    table = pa.table(
        {
            "id": ["a", "b", "c"],
            "ts": pa.array([0, 1, 1], pa.timestamp("ms", "UTC")),
            "x": [1, 2, 3],
            "y": [0, 0, 0],
            "room": pa.array(["r", "q", "r"]).dictionary_encode(),
            "floor": [1, 2, 1],
        }
    )
    value = ap.Gaussian("x", "y", sigma=[2.0, 1.0])
    stream = ap.Stream(table, key="id", time="ts", value=value, partition_by=("room", "floor"))
    result = ap.window_aggregate(stream, {"y": "count", "x": ["sum"]}, window=ap.CountWindow(2))
    assert result.schema == pa.schema(
        [
            ("room", pa.string()),
            ("floor", pa.int64()),
            ("time", pa.timestamp("ms", "UTC")),
            *((name, pa.float64()) for name in ("y_count", "y_count_std", "x_sum", "x_sum_std")),
        ]
    )
    rows = {(row["room"], row["floor"], row["time"].microsecond): row for row in result.to_pylist()}
    assert sorted(rows) == [("q", 2, 1000), ("r", 1, 0), ("r", 1, 1000)]
    last = rows["r", 1, 1000]
    assert (last["x_sum"], last["y_count"]) == (4.0, 2.0)
    assert last["x_sum_std"] == pytest.approx(math.sqrt(8.0), rel=1e-12)  # exact, not that of 64 points


def test_a_stream_without_rows_has_an_answer_without_rows() -> None:
    stream = ap.Stream(SCHEMA.empty_table(), key="id", time="ts", value=ap.Exact("x"), partition_by="g")
    for window in (ap.CountWindow(2), ap.TimeWindow(1), ap.TumblingWindow(2), ap.TumblingWindow("1 second")):
        result = ap.window_aggregate(stream, {"x": ALL}, window=window, distribution=True)
        assert len(result) == 0
        assert result.schema.field("x_sum_distribution").type == pa.list_(
            pa.struct([("value", pa.float64()), ("probability", pa.float64())])
        )


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"aggregates": {"z": "sum"}}, "no dimension 'z'"),
        ({"aggregates": {"x": "meann"}}, "Did you mean 'mean'"),
        ({"aggregates": {"x": []}}, "at least one"),
        ({"aggregates": {}}, "give a mapping"),
        ({"window": [3]}, "give a window"),
        ({"aggregates": {"x": ["sum", "mean"]}, "single_valued": True}, "is for sums"),
        ({"distribution": True, "single_valued": True}, "is for sums"),
        ({"on_reject": "sink"}, "on_reject="),
    ],
)
def test_bad_arguments_are_told(change: dict[str, Any], match: str) -> None:
    stream = ap.Stream(SCHEMA.empty_table(), key="id", time="ts", value=ap.Exact("x"))
    settings: dict[str, Any] = {"aggregates": {"x": "sum"}, "window": ap.CountWindow(1)}
    with pytest.raises(ap.BadArgument, match=match):
        ap.window_aggregate(stream, **settings | change)


def test_bad_rows_fail_where_asked() -> None:
    table = pa.table({"id": [1, 2], "ts": [0, 1], "x": [1.0, math.nan]})
    stream = ap.Stream(table, key="id", time="ts", value=ap.Exact("x"), name="loads")
    result = ap.window_aggregate(stream, {"x": "sum"}, window=ap.CountWindow(2))
    assert result["x_sum"].to_pylist() == [1.0]
    assert ap.rejects(result)["stream"].to_pylist() == ["loads"]
    with pytest.raises(ap.BadInput, match="loads"):
        ap.window_aggregate(stream, {"x": "sum"}, window=ap.CountWindow(2), on_reject="fail")
