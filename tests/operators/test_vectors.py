"""Vectors: joined as points whose coordinates stand in columns, pair by pair or in blocks of products."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

import appulse as ap
from appulse.kernels.geodesic import Earth
from appulse.kernels.nearest import Search, nearest
from appulse.kernels.nearest_tree import grow
from appulse.kernels.products import Products, close_pairs
from appulse.kernels.sweep import ArrivalRows, WindowRows
from appulse.operators import vectors
from tests.helpers.hands import similarity_join

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray
    from pyarrow import Table
    from pyspark.sql import SparkSession

WINDOWS: dict[str, Any] = {
    "time": 6.0,
    "count": ap.CountWindow(7),
    "uncertain": ap.UncertainCountWindow(5, confidence=0.9),
    "tumble": ap.TumblingWindow("5 seconds"),
}
JOIN: Any = ap.similarity_join


def points(chance: np.random.Generator, n: int, d: int, scale: float) -> NDArray[np.float64]:
    """Rows near four places, the same for every call, many of them the same, and distances that are equal."""
    near = np.random.default_rng(d).integers(-3, 4, (4, d)).astype(float)
    moved = chance.integers(-1, 2, (n, d)) * (chance.random((n, 1)) < 0.5)
    rows: NDArray[np.float64] = near[chance.integers(0, 4, n)] + moved
    return rows * scale


def table(chance: np.random.Generator, n: int, d: int, scale: float) -> Table:
    rows = points(chance, n, d, scale)
    columns = {f"x{k}": rows[:, k] for k in range(d)}
    fixed = {"k": np.arange(n), "t": chance.integers(0, 12, n), "g": chance.integers(0, 2, n), "p": np.full(n, 0.9)}
    return pa.table({**fixed, "v": pa.array(list(rows), pa.list_(pa.float64())), **columns})


def rows_of(found: Table) -> list[tuple[Any, ...]]:
    named = found.select([name for name in found.column_names if not name.endswith("stream")])
    return sorted(tuple(round(v, 9) if isinstance(v, float) else v for v in row.values()) for row in named.to_pylist())


@st.composite
def joins(draw: st.DrawFn) -> tuple[list[Table], int, dict[str, Any], dict[str, Any]]:
    """Two tables, their dimensions, what is asked of streams, and of the join."""
    chance = np.random.default_rng(draw(st.integers(0, 1 << 30)))
    d, scale = draw(st.sampled_from([1, 3, 24, 40])), draw(st.sampled_from([1.0, 1e-8, 1e15, 1e20]))
    tables = [table(chance, draw(st.integers(0, 40)), d, scale) for _ in range(2)]
    kind = draw(st.sampled_from(sorted(WINDOWS)))
    of_streams: dict[str, Any] = {"existence": "p"} if kind == "uncertain" else {}
    of_streams |= draw(st.sampled_from([{}, {"partition_by": "g"}]))
    epsilon = draw(st.sampled_from([0.0, 1.0, 2.0, float(d) ** 0.5])) * scale
    return tables, d, of_streams, {"epsilon": epsilon, "probability": 0.5, "window": WINDOWS[kind]}


def by_vectors(frame: Any, name: str, **more: Any) -> ap.Stream:
    return ap.Stream(frame, key="k", time="t", value=ap.Exact("v"), name=name, **more)


@given(joins())
def test_vectors_are_joined_as_points_in_columns(question: Any) -> None:
    """Blocks of products find the pairs that a walk through a grid finds, and that many in pushes of any size."""
    tables, d, more, asked = question
    plain = ap.Exact(*(f"x{k}" for k in range(d)))
    columns = [ap.Stream(t, key="k", time="t", value=plain, name=n, **more) for t, n in zip(tables, "ab", strict=True)]
    want = rows_of(JOIN(*columns, **asked, options=ap.Options(index="grid")))
    event(f"{d} dimensions, {'some' if want else 'no'} pairs")
    found = JOIN(*(by_vectors(t, n, **more) for t, n in zip(tables, "ab", strict=True)), **asked)
    assert rows_of(found) == want
    a, b = (by_vectors(None, name, lateness="1 hour", **more) for name in "ab")
    hand = similarity_join(left=a, right=b, **asked)
    parts = [hand.push(a=tables[0][:9], b=tables[1][:9]), hand.push(a=tables[0][9:], b=tables[1][9:]), hand.drain()]
    assert rows_of(pa.concat_tables(parts)) == want


@given(st.integers(0, 1 << 30), st.sampled_from([24, 100]), st.sampled_from([1e-20, 1.0, 1e10]), st.booleans())
def test_products_leave_every_close_pair(seed: int, d: int, scale: float, along_axes: bool) -> None:
    """What a product has to reach is never more than that of a pair within the limit, at its rim and on any axes."""
    chance = np.random.default_rng(seed)
    left = (chance.normal(size=(20, d)) + chance.normal(size=d) * 30) * scale
    right = left[chance.integers(0, 20, 30)] + chance.normal(size=(30, d)) * scale * 0.1
    axes = np.linalg.svd(right, full_matrices=False)[2].T[:, :5] if along_axes else None
    a, b = vectors._Block(left, axes), vectors._Block(right, axes)
    distance = np.sqrt(((left[:, None] - right[None]) ** 2).sum(axis=2))
    zeros, lefts = np.zeros(30, np.int64), np.arange(20)
    asked = ArrivalRows(zeros[:20], zeros[:20], zeros[:20], zeros[:20], zeros[:20], np.ones(20))
    for limit in np.quantile(distance, [0.01, 0.1, 0.5]):
        need = vectors.needed(a.half, b.largest, float(limit), d)
        product = a.points @ b.points.T
        open_pairs = product >= need[:, None] + b.half
        assert open_pairs[distance <= limit].all()
        block = Products(product, need.astype("f4"), b.half.astype("f4"), lefts, np.full(20, 30), 0)
        out = np.empty(600, np.int64), np.empty(600, np.int64)
        n = close_pairs(block, asked, WindowRows(zeros, zeros, zeros, zeros), False, *out)
        written = np.zeros((20, 30), bool)
        written[out[0][:n], out[1][:n]] = True
        assert written[distance <= limit].all()


@given(st.integers(0, 1 << 30), st.integers(1, 200), st.integers(0, 200))
def test_blocks_of_products_are_read_as_one_by_one(seed: int, n: int, upto: int) -> None:
    """In stretches of 64, where a product is none that is too large, and up to the row that was there."""
    chance = np.random.default_rng(seed)
    product = chance.choice(np.array([-2.0, 0.5, 2.0, np.nan, np.inf], "f4"), (3, n), p=[0.9, 0.04, 0.02, 0.02, 0.02])
    need, half = chance.choice(np.array([0.0, 1.0, -np.inf], "f4"), 3), chance.random(n).astype("f4")
    ranks, zeros = chance.integers(0, 3, n), np.zeros(3, np.int64)
    asked = ArrivalRows(zeros, zeros, zeros + 1, zeros, zeros, np.ones(3))
    block = Products(product, need, half, np.arange(3), np.array([upto, n, n]), 0)
    out = np.empty(3 * n, np.int64), np.empty(3 * n, np.int64)
    window = WindowRows(ranks, ranks, np.zeros(n, np.int64), np.zeros(n, np.int64))
    found = close_pairs(block, asked, window, False, *out)
    want = [
        (i, j)
        for i in range(3)
        for j in range(min(n, upto if i == 0 else n))
        if not product[i, j] - half[j] < need[i] and ranks[j] <= 1
    ]
    assert list(zip(out[0][:found].tolist(), out[1][:found].tolist(), strict=True)) == want
    assert close_pairs(block, asked, window, False, out[0][:1], out[1][:1]) == found


def test_leading_axes_are_judged_by_other_rows_than_those_they_are_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """Directions all over the sphere, in more dimensions than rows are looked at: no axes lead."""
    monkeypatch.setattr(vectors, "_SAMPLE", 40)
    monkeypatch.setattr(vectors, "_MANY_PRODUCTS", 1)
    unit = np.random.default_rng(4).normal(size=(400, 120))
    unit /= np.linalg.norm(unit, axis=1)[:, None]
    assert vectors._leading_axes(unit.__getitem__, np.arange(400), unit, 1.2) is None


def test_leading_axes_are_chosen_where_they_save_products(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vectors, "_MANY_PRODUCTS", 1)
    chance = np.random.default_rng(3)
    flat = chance.normal(size=(600, 3)) @ chance.normal(size=(3, 48)) * 10 + chance.normal(size=(600, 48)) * 0.01
    full = chance.normal(size=(600, 48)) * 10
    every = np.arange(600)
    assert vectors._leading_axes(flat.__getitem__, every, flat, 1.0) is not None
    assert vectors._leading_axes(full.__getitem__, every, full, 100.0) is None
    data = pa.table({"k": every, "t": np.zeros(600), "v": pa.array(list(flat), pa.list_(pa.float64()))})
    found = ap.self_join(by_vectors(data, "a"), epsilon=20.0, probability=1.0, window=1)
    near = np.sqrt(((flat[:, None] - flat[None]) ** 2).sum(axis=2)) <= 20.0
    assert len(found) == (near.sum() - 600) // 2 > 100


@given(st.integers(0, 1 << 30), st.sampled_from([1, 3]), st.sampled_from([np.inf, 3.0]), st.integers(1, 20))
def test_the_nearest_vectors_are_those_of_a_tree(seed: int, k: int, limit: float, older: int) -> None:
    chance = np.random.default_rng(seed)
    right, left = points(chance, 50, 24, 1.0), points(chance, 30, 24, 1.0)
    when, time = chance.integers(0, 20, 50), chance.integers(0, 20, 30)
    search = Search(older, older, k, float(limit), Earth(0.0, 0.0))
    out = [(np.empty((30, k), np.int64), np.empty((30, k))) for _ in range(2)]
    ties = [
        nearest(grow(right, when, 40), left, time, when, search, *out[0]),
        vectors.nearest_vectors(right, left, time, when, search, *out[1]),
    ]
    np.testing.assert_array_equal(out[1][0], out[0][0])
    np.testing.assert_array_equal(out[1][1], out[0][1])
    assert (ties[0] > 0) or (ties[1] == 0) or k == 1


@pytest.mark.parametrize("d", [4, 12, 23, 24])
@pytest.mark.parametrize("rising", [True, False])
@pytest.mark.parametrize("windows", [(0, 0), (30, 2), (10**6, 10**6)])
def test_blocks_of_places_meet_the_rows_of_their_windows(
    monkeypatch: pytest.MonkeyPatch, d: int, rising: bool, windows: tuple[int, int]
) -> None:
    """In whatever order places come, and however few there are in a block; rows may be in none."""
    monkeypatch.setattr(vectors, "_ARRIVALS", 16)
    chance = np.random.default_rng(d)
    right, left = points(chance, 300, d, 1.0), points(chance, 200, d, 1.0)
    when, time = chance.integers(0, 400, 300), chance.integers(-20, 420, 200)
    when = np.sort(when) if rising else when
    search = Search(*windows, 3, 3.0, Earth(0.0, 0.0))
    out = [(np.empty((200, 3), np.int64), np.empty((200, 3))) for _ in range(3)]
    tree = grow(right, when, 10**6)
    nearest(tree, left, time, when, search, *out[0])
    vectors.nearest_vectors(right, left, time, when, search, *out[1])
    vectors.nearest_of_several(tree, right, left, time, when, search, *out[2])
    for found, away in out[1:]:
        np.testing.assert_array_equal(found, out[0][0])
        np.testing.assert_array_equal(away, out[0][1])
    _, begins, ends = vectors._blocks(time, when, search)
    share = (ends - begins).sum() / (300 * len(begins))
    assert share == 1.0 if not rising or windows[0] == 10**6 else share < 0.25


@pytest.mark.parametrize("d", [4, 6, 10, 16, 23])
@pytest.mark.parametrize("flat", [True, False])
def test_rows_that_fill_many_dimensions_are_looked_at_in_blocks(
    monkeypatch: pytest.MonkeyPatch, d: int, flat: bool
) -> None:
    """A tree leaves nearly all of them open, one by one; where they lie near a plane it is as good as in two."""
    blocks = 0

    def counted(*arguments: Any) -> int:
        nonlocal blocks
        blocks += 1
        return found(*arguments)

    found = vectors.nearest_vectors
    monkeypatch.setattr(vectors, "nearest_vectors", counted)
    chance, n = np.random.default_rng(1), 4_000
    turned = np.random.default_rng(2).normal(size=(2, d))
    rows = [chance.random((n, 2)) @ turned if flat else chance.random((n, d)) for _ in range(2)]
    tables = [
        pa.table({"k": np.arange(n), "t": np.arange(n) / 100} | {f"x{i}": one[:, i] for i in range(d)}) for one in rows
    ]
    value = ap.Exact(*[f"x{i}" for i in range(d)])
    left, right = (ap.Stream(one, key="k", time="t", value=value) for one in tables)
    answers = ap.nearest(left, right, epsilon=1e9, window=1e6)
    assert blocks == int(d >= 10 and not flat)
    some = np.arange(0, n, 37)
    square = ((rows[0][some][:, None] - rows[1][None]) ** 2).sum(axis=2)
    partner = dict(zip(answers["left_key"].to_pylist(), answers["right_key"].to_pylist(), strict=True))
    assert [partner[i] for i in some.tolist()] == square.argmin(axis=1).tolist()


def test_rows_that_are_no_vectors_are_rejects() -> None:
    rows = [[1.0] * 30, None, [], [1.0] * 29, [1.0] * 29 + [float("nan")], [1.0] * 29 + [None], [1.0] * 30]
    data = pa.table({"k": range(7), "t": [0.0] * 7, "v": pa.array(rows, pa.list_(pa.float32()))})
    found = ap.self_join(by_vectors(data, "a"), epsilon=0.1, probability=1.0, window=1)
    assert found.select(["left_key", "right_key", "distance"]).to_pylist() == [
        {"left_key": 0, "right_key": 6, "distance": 0.0}
    ]
    rejects = ap.rejects(found)
    assert dict(zip(rejects["key"].to_pylist(), rejects["reason"].to_pylist(), strict=True)) == {
        1: "empty samples",
        2: "empty samples",
        3: "wrong dimension",
        4: "non-finite value",
        5: "non-finite value",
    }


def test_vectors_have_a_greatest_length() -> None:
    kind = pa.list_(pa.float32(), 5000)
    data = pa.table({"k": [1], "t": [0.0], "v": pa.array([[0.0] * 5000], kind)})
    for column in (data["v"], data["v"].cast(pa.list_(pa.float32()))):
        with pytest.raises(ap.BadArgument, match=r"5000 coordinates\. At most 4096"):
            ap.self_join(by_vectors(data.set_column(2, "v", column), "a"), epsilon=1.0, probability=1.0, window=1)


def test_spark_joins_vectors(spark: SparkSession, tmp_path: Path) -> None:
    """In a batch and as a stream, as in process."""
    chance = np.random.default_rng(5)
    tables = [table(chance, 60, 30, 1.0).select(["k", "t", "v"]) for _ in range(2)]
    asked: dict[str, Any] = {"epsilon": 2.0, "probability": 1.0, "window": 3}
    want = rows_of(JOIN(*(by_vectors(t, n) for t, n in zip(tables, "ab", strict=True)), **asked))
    frames = [spark.createDataFrame(t.to_pandas(), "k long, t long, v array<double>") for t in tables]
    batch = JOIN(*(by_vectors(f, n) for f, n in zip(frames, "ab", strict=True)), **asked)
    assert rows_of(batch.toArrow()) == want
    assert len(want) > 10
    for frame, name in zip(frames, "ab", strict=True):
        frame.write.parquet(str(tmp_path / name))
    read = [spark.readStream.schema(f.schema).parquet(str(tmp_path / n)) for f, n in zip(frames, "ab", strict=True)]
    streamed = JOIN(*(by_vectors(f, n, lateness="1 hour") for f, n in zip(read, "ab", strict=True)), **asked)
    sinks: Iterator[Any] = (("parquet", {"path": str(tmp_path / name)}) for name in ("out", "rejects"))
    ap.start(streamed, *sinks, checkpoint=str(tmp_path / "checkpoint"), drain=True).awaitTermination()
    assert rows_of(spark.read.parquet(str(tmp_path / "out")).toArrow()) == want


def cosine(left: NDArray[np.float64], right: NDArray[np.float64]) -> NDArray[np.float64]:
    """By the definition, of all pairs."""
    lengths = np.linalg.norm(left, axis=1)[:, None] * np.linalg.norm(right, axis=1)[None]
    found: NDArray[np.float64] = 1.0 - left @ right.T / lengths
    return found


@given(st.integers(0, 1 << 30), st.sampled_from([2, 30]), st.sampled_from([1e-8, 0.3, 1.0, 2.0]))
def test_cosine_goes_by_direction(seed: int, d: int, epsilon: float) -> None:
    """Rows of any lengths, as lists and as columns; at the rim of epsilon rounding decides."""
    chance = np.random.default_rng(seed)
    rows = [points(chance, 30, d, 1.0) + 0.25 for _ in range(2)]
    away = cosine(*rows)
    sure = np.abs(away - epsilon) > 1e-7
    scaled = [some * 10.0 ** chance.integers(-150, 150, (30, 1)) for some in rows]
    tables = [
        pa.table({"k": range(30), "t": [0.0] * 30, "v": list(some)} | {f"x{k}": some[:, k] for k in range(d)})
        for some in scaled
    ]
    for value in (ap.Exact("v"), ap.Exact(*(f"x{k}" for k in range(d)))):
        streams = [ap.Stream(t, key="k", time="t", value=value) for t in tables]
        found = JOIN(*streams, epsilon=epsilon, probability=1.0, window=1, metric="cosine")
        got = np.zeros((30, 30), bool)
        at = found["left_key"].to_numpy(), found["right_key"].to_numpy()
        got[at] = True
        np.testing.assert_array_equal(got[sure], (away <= epsilon)[sure])
        np.testing.assert_allclose(found["distance"].to_numpy(), away[at], atol=1e-12)
        best: Any = ap.nearest(streams[0], streams[1], epsilon=None, window=1, metric="cosine").sort_by("left_key")
        np.testing.assert_allclose(best["distance"].to_numpy(), away.min(axis=1), atol=1e-12)


def test_cosine_is_of_directions() -> None:
    data = pa.table({"k": [1, 2], "t": [0.0, 0.0], "v": [[0.0, 0.0], [1.0, 2.0]], "x": [1.0, 2.0]})
    asked: dict[str, Any] = {"probability": 1.0, "window": 1, "metric": "cosine"}
    found = ap.self_join(by_vectors(data, "a"), epsilon=0.1, **asked)
    assert ap.rejects(found).select(["key", "reason"]).to_pylist() == [{"key": 1, "reason": "no direction"}]
    with pytest.raises(ap.BadArgument, match="cosine distance of opposite directions"):
        ap.self_join(by_vectors(data, "a"), epsilon=2.5, **asked)
    with pytest.raises(ap.BadArgument, match="one epsilon for all pairs"):
        ap.self_join(by_vectors(data, "a", margin=1.0), epsilon=1.0, **asked)
    blurred = ap.Stream(data, key="k", time="t", value=ap.Gaussian("x", sigma=1.0))
    with pytest.raises(ap.BadArgument, match="rows without error"):
        ap.self_join(blurred, epsilon=1.0, **asked)


@pytest.mark.parametrize("rows", [0, 1])
@pytest.mark.parametrize("values", [[[1.0, 2.0], [1.0, 2.1]], [1.0, 1.1]])
def test_a_first_push_without_values_leaves_open_what_they_are(rows: int, values: list[Any]) -> None:
    """Arrow's null type, as of a pandas object column without rows; the second push says what values are."""
    first = pa.table({"k": pa.array([9][:rows], pa.int64()), "t": pa.array([0.0][:rows]), "e": pa.nulls(rows)})
    second = pa.table({"k": [1, 2], "t": [0.0, 1.0], "e": values})
    asked: dict[str, Any] = {"epsilon": 1.0, "window": 10}
    calls = [
        ap.SimilarityJoin(bare("s"), probability=1.0, **asked),
        ap.SimilarityJoin(bare("s"), bare("other"), probability=1.0, **asked),
        ap.Outliers(bare("s"), fewer_than=1, probability=0.5, **asked),
        ap.Nearest(bare("s"), bare("other"), **asked),
    ]
    for call in calls:
        names = list(call.streams)
        for table in (first, second):
            call.push(**dict.fromkeys(names, table))
        call.drain()
        assert sorted(row["reason"] for row in call.rejects().to_pylist()) == sorted(
            rows * len(names) * ["empty samples" if isinstance(values[0], list) else "non-finite value"]
        )
    pairs = ap.SimilarityJoin(bare("s"), probability=1.0, **asked)
    assert len(pairs.push(first)) == 0
    assert len(pairs.push(second)) == 1


def test_a_table_without_values_joins_vectors() -> None:
    none = pa.table({"k": pa.array([], pa.int64()), "t": pa.array([], pa.float64()), "e": pa.nulls(0)})
    some = pa.table({"k": [1], "t": [0.0], "e": [[1.0, 2.0]]})
    streams = [ap.Stream(table, key="k", time="t", value=ap.Exact("e")) for table in (none, some)]
    assert len(ap.similarity_join(*streams, epsilon=1.0, probability=1.0, window=1)) == 0


def bare(name: str) -> ap.Stream[Any]:
    return ap.Stream(None, key="k", time="t", value=ap.Exact("e"), name=name)
