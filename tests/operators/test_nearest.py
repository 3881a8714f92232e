"""The nearest rows: those of a search through all pairs, whatever the window, the cut into pushes, and the ties."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import appulse as ap
from appulse.engines.join.local import LocalJoin
from appulse.engines.join.nearest import NearestSettings, resolve_nearest
from appulse.kernels.geodesic import Earth
from appulse.kernels.nearest import Search, nearest
from appulse.kernels.nearest_tree import grow
from appulse.operators import nearest_search
from tests.helpers import naive
from tests.helpers.strategies import Case, pushes, wider

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from fractions import Fraction

    from appulse.engines.join.call import JoinCall
    from tests.helpers.naive import Row

NEAREST: Any = ap.nearest
WINDOWS = ("time", "time", "time", "count", "delta", "tumble", "uncertain")
Found = Counter[tuple[Any, ...]]


@st.composite
def questions(draw: st.DrawFn, /, **kinds: Any) -> tuple[Case, dict[str, Any]]:
    """A case of two streams, and what is asked beside it."""
    case = draw(wider(**({"windows": WINDOWS} | kinds)).filter(lambda case: len(case.streams) == 2))
    by = draw(st.sampled_from(["distance", "distance", "probability"]))
    probability = draw(st.sampled_from([0.0, 0.0, case.probability]))
    by_means = by == "distance" and probability == 0.0
    assume(not (by_means and isinstance(case.window, ap.UncertainCountWindow)))
    assume(not (by_means and not isinstance(case.epsilon, float)))
    asked = {"k": draw(st.integers(1, 3)), "by": by, "probability": probability}
    return case, asked | {
        "epsilon": case.epsilon,
        "window": case.window,
        "how": draw(st.sampled_from(["inner", "left"])),
    }


def expected(case: Case, asked: dict[str, Any]) -> Found:
    """By the twin, of all rows."""
    rows, _ = naive.rows_of(case.rows, case.streams, case.d, None, case.attribute, naive.dimension_of(case.window))
    last = max((row.micros for row in rows), default=0)
    within = naive.groups_by_number(asked["epsilon"], case.streams, case.d)
    return expected_of(rows, naive.meetings(rows, case.names, case.window, last), asked | {"epsilon": within})


def expected_of(rows: Sequence[Row], meetings: Sequence[naive.Meeting], asked: dict[str, Any]) -> Found:
    """By the twin: each left row with its best right rows, by a search through all that it meets."""
    near = defaultdict(list)
    by_means = asked["by"] == "distance" and asked["probability"] == 0.0
    least = naive.threshold_of(asked["probability"]) if asked["probability"] else 1e-9
    for a, b, _, _, factor in meetings:
        if a.stream == b.stream:
            continue
        left, right = (a, b) if a.stream == 0 else (b, a)
        away = naive.distance(left.value, right.value)
        chance: Fraction | float | None = None
        if asked["epsilon"] is not None:
            chance = naive.probability(left.value, right.value, asked["epsilon"]) * factor
        if by_means and (
            asked["epsilon"] is None
            or away <= naive.limit_of(asked["epsilon"] + left.value.margin + right.value.margin)
        ):
            near[left].append((away, right, chance))
        elif not by_means and chance is not None and chance >= least:
            near[left].append((away if asked["by"] == "distance" else -float(chance), right, chance))
    found: Found = Counter()
    for left in rows:
        if left.stream != 0:
            continue
        own = (naive.plain(left.key), left.micros)
        order = sorted(near[left], key=lambda one: (round(one[0], 9), one[1].micros, naive.key_order(one[1].key)))
        _assume_clear([value for value, _, _ in order])
        for place, (value, right, _) in enumerate(order[: asked["k"]], 1):
            found[*own, place, round(value, 6), naive.plain(right.key), right.micros] += 1
        if not order and asked["how"] == "left":
            found[*own, None, None, None, None] += 1
    return found


def _assume_clear(values: Sequence[float]) -> None:
    """Draw another case where a last digit decides which of two is nearer; ties of round distances stay."""
    for a, b in pairwise(sorted(values)):
        tie = a == b and float(a * 1024).is_integer() and abs(a) < 1e5
        assume(tie or abs(a) <= 1.0 or b - a > 1e-12 * abs(a))


def reported(tables: Iterable[pa.Table], case: Case, by: str) -> Found:
    found: Found = Counter()
    for row in pa.concat_tables(tables).to_pylist():
        value = row["distance"] if by == "distance" else row["probability"]
        value = None if value is None else round(value if by == "distance" else -value, 6)
        times = [
            None if row[f"{side}_time"] is None else naive.micros_of(row[f"{side}_time"], stream.unit)
            for side, stream in zip(("left", "right"), case.streams, strict=True)
        ]
        partner = None if row["right_stream"] is None else naive.plain(row["right_key"])
        found[naive.plain(row["left_key"]), times[0], row["rank"], value, partner, times[1]] += 1
    return found


def call_of(case: Case, asked: dict[str, Any]) -> JoinCall:
    from dataclasses import replace

    streams = [replace(s, name=name) for s, name in zip(case.streams, case.names, strict=True)]
    schemas = [table.schema for table in case.tables]
    return resolve_nearest(streams, schemas, NearestSettings(**asked), whole=False)


@settings(max_examples=60)
@given(questions())
def test_the_nearest_rows_are_those_of_the_twin(question: tuple[Case, dict[str, Any]]) -> None:
    case, asked = question
    found: pa.Table = NEAREST(*case.framed(), **asked)
    assert reported([found], case, asked["by"]) == expected(case, asked)


@given(questions(windows=("time",), margins=False))
def test_without_a_limit_the_nearest_of_all_in_the_window(question: tuple[Case, dict[str, Any]]) -> None:
    case, asked = question
    asked |= {"epsilon": None, "by": "distance", "probability": 0.0}
    found: pa.Table = NEAREST(*case.framed(), **asked)
    assert found["probability"].null_count == len(found)
    assert reported([found], case, "distance") == expected(case, asked)


@settings(max_examples=50)
@given(st.data())
def test_pushed_in_any_cut_a_row_is_answered_once_it_has_left(data: st.DataObject) -> None:
    case, asked = data.draw(questions(lateness=True))
    engine = LocalJoin(call_of(case, asked))
    tables = []
    for push in data.draw(pushes(case)):
        tables.append(engine.push(case.frames(push)))
        if isinstance(case.window, ap.TimeWindow):
            window, frontier = case.window.micros(tuple(case.names))[0], engine.bucket.complete
            for row in tables[-1].to_pylist():
                micros = naive.micros_of(row["left_time"], case.streams[0].unit)
                assert micros is not None
                assert micros + window < frontier
    tables.append(engine.drain())
    assert reported(tables, case, asked["by"]) == expected(case, asked)
    assert engine.bucket.pairs is not None
    assert len(engine.bucket.pairs) == 0


@given(
    seed=st.integers(0, 1 << 32),
    shape=st.tuples(st.integers(1, 300), st.integers(1, 300), st.integers(1, 5)),
    k=st.integers(1, 5),
    windows=st.tuples(st.integers(0, 30), st.integers(0, 30)),
    whole=st.booleans(),
    limit=st.sampled_from([np.inf, 3.0, 0.0]),
)
def test_the_tree_finds_what_a_scan_does(
    seed: int,
    shape: tuple[int, int, int],
    k: int,
    windows: tuple[int, int],
    whole: bool,
    limit: float,
) -> None:
    """Of coordinates with many ties, skewed ones, and times of which windows hold few."""
    rng, (n, m, d) = np.random.default_rng(seed), shape
    place, rows = (
        rng.integers(0, 6, (size, d)).astype(float) if whole else rng.normal(size=(size, d)) ** 3 for size in (n, m)
    )
    time, when = rng.integers(0, 60, n), rng.integers(0, 60, m)
    older, newer = windows
    found, away = np.empty((n, k), np.int64), np.empty((n, k))
    search = Search(older, newer, k, float(limit), Earth(0.0, 0.0))
    nearest(grow(rows, when, max(windows)), place, time, when, search, found, away)
    for i in range(n):
        square = np.zeros(m)
        for c in range(d):
            square += (place[i, c] - rows[:, c]) ** 2
        distance = np.sqrt(square)
        there = np.flatnonzero((when >= time[i] - older) & (when <= time[i] + newer) & (distance <= limit))
        best = there[np.lexsort((there, distance[there]))][:k]
        assert found[i, : len(best)].tolist() == best.tolist()
        assert (found[i, len(best) :] == -1).all()
        assert away[i, : len(best)].tolist() == distance[best].tolist()


@pytest.mark.parametrize("value", [ap.Exact("x", "y"), ap.Position("y", "x", earth="sky"), ap.Position("y", "x")])
@pytest.mark.parametrize("many", [(3_000, 500), (500, 3_000)])
def test_threads_find_the_same_rows(
    monkeypatch: pytest.MonkeyPatch, value: ap.Exact | ap.Position, many: tuple[int, int]
) -> None:
    """However the tree and the left rows are cut into parts; places with ties, in windows and in all."""
    monkeypatch.setattr(nearest_search, "_PART", 16)
    chance = np.random.default_rng(5)
    rows = [
        pa.table(
            {
                "k": np.arange(n),
                "t": chance.integers(0, 50, n).astype(float),
                "x": chance.uniform(-20.0, 20.0, n).round(0 if n > 1_000 else 1),
                "y": chance.uniform(60.0, 90.0, n).round(0 if n > 1_000 else 1),
            }
        )
        for n in many
    ]
    streams = [ap.Stream(table, key="k", time="t", value=value) for table in rows]
    for window, k in ((5, 2), (1000, 1)):
        asked: dict[str, Any] = {"epsilon": None, "window": window, "k": k, "how": "left"}
        found = [NEAREST(*streams, **asked, options=ap.Options(threads=n)) for n in (1, 3)]
        assert all(one.equals(found[0]) for one in found[1:])


def table(keys: list[Any], t: list[float], x: list[float], **more: Any) -> pa.Table:
    return pa.table({"k": keys, "t": t, "x": x} | more)


def stream(frame: Any, **more: Any) -> Any:
    return ap.Stream(frame, key="k", time="t", value=ap.Exact("x"), **more)


def test_ties_go_by_time_and_then_by_key() -> None:
    left = table([1], [5.0], [0.0])
    right = table([9, 3, 7, 1], [5.0, 4.0, 4.0, 6.0], [1.0, -1.0, 1.0, 0.5])
    found = ap.nearest(stream(left), stream(right, carry=["t"]), 4, epsilon=2, window=10)
    assert found["right_key"].to_pylist() == [1, 3, 7, 9]
    assert found["rank"].to_pylist() == [1, 2, 3, 4]
    assert found["right_t"].to_pylist() == [6.0, 4.0, 4.0, 5.0]


def test_rows_that_are_alike_are_rows_of_their_own() -> None:
    left = table([1, 1], [0.0, 0.0], [0.0, 0.0])
    right = table([7, 7, 8], [0.0, 0.0, 0.0], [1.0, 1.0, 3.0])
    for found in (
        ap.nearest(stream(left), stream(right), 2, epsilon=5, window=10),
        _by_hand(left, right, 2, epsilon=5, window=10),
    ):
        assert found["right_key"].to_pylist() == [7, 7, 7, 7]
        assert sorted(found["rank"].to_pylist()) == [1, 1, 2, 2]


def _by_hand(left: pa.Table, right: pa.Table, k: int, **asked: Any) -> pa.Table:
    by_hand = ap.Nearest(stream(None, name="a"), stream(None, name="b"), k, **asked)
    return pa.concat_tables([by_hand.push(a=left, b=right), by_hand.drain()])


def test_the_likeliest_row_need_not_be_the_nearest() -> None:
    """A sharp reading a little farther away is likelier to be close than a blurred one."""
    left = table(["here"], [0.0], [0.0], s=[0.0])
    right = table(["blurred", "sharp"], [0.0, 0.0], [0.5, 0.8], s=[5.0, 0.1])
    value = ap.Gaussian("x", sigma="s")
    frames: Any = (ap.Stream(frame, key="k", time="t", value=value) for frame in (left, right))
    asked: Any = {"epsilon": 1, "window": 1}
    streams = list(frames)
    (by_distance,) = ap.nearest(*streams, **asked).to_pylist()
    (by_chance,) = ap.nearest(*streams, **asked, by="probability").to_pylist()
    assert (by_distance["right_key"], by_chance["right_key"]) == ("blurred", "sharp")
    assert by_chance["probability"] > 0.95
    assert by_distance["probability"] < 0.2
    (sure,) = ap.nearest(*streams, **asked, probability=0.5).to_pylist()
    assert sure["right_key"] == "sharp"


def test_partitions_do_not_meet() -> None:
    left = table([1, 2], [0.0, 0.0], [0.0, 0.0], g=["a", "b"])
    right = table([7, 8, 9], [0.0, 0.0, 0.0], [1.0, 0.0, 3.0], g=["a", "c", "b"])
    found = ap.nearest(
        stream(left, partition_by="g"), stream(right, partition_by="g"), epsilon=None, window=10
    ).sort_by("left_key")
    assert found["right_key"].to_pylist() == [7, 9]


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"epsilon": None, "by": "probability"}, "by='distance'"),
        ({"epsilon": None, "probability": 0.5}, "by='distance'"),
        ({"epsilon": None, "window": ap.CountWindow(5)}, "time window"),
        ({"epsilon": 1, "window": ap.UncertainCountWindow(5, confidence=0.5)}, "probability="),
        ({"epsilon": 1, "k": 0}, "k=0"),
        ({"epsilon": 1, "how": "full"}, "how="),
    ],
)
def test_what_makes_no_sense_is_an_error(asked: dict[str, Any], words: str) -> None:
    rows = table([1], [0.0], [0.0])
    settings: dict[str, Any] = {"window": 1} | asked
    with pytest.raises(ap.BadArgument, match=words):
        ap.nearest(stream(rows), stream(rows), **settings)


def test_by_hand_there_is_a_limit() -> None:
    with pytest.raises(ap.BadArgument, match="epsilon"):
        ap.Nearest(stream(None), stream(None), epsilon=None, window=1)  # type: ignore[arg-type]
