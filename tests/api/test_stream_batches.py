"""Frames larger than memory: the answers are those of the whole tables, whatever the frames are and however cut."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import appulse as ap

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

QUESTION: dict[str, Any] = {"epsilon": 0.5, "probability": 1.0, "window": 3}


def table(seed: int, n: int = 1_000) -> pa.Table:
    """Rows in order of time."""
    chance = np.random.default_rng(seed)
    times = np.sort(chance.uniform(0.0, 100.0, n))
    return pa.table({"k": np.arange(n), "t": times, "x": chance.random(n) * 5, "y": chance.random(n) * 5})


def stream(frame: Any = None, **settings: Any) -> ap.Stream:
    return ap.Stream(frame, key="k", time="t", value=ap.Exact("x", "y"), **settings)


def by_hand(**settings: Any) -> ap.SimilarityJoin:
    return ap.SimilarityJoin(stream(name="a", **settings), stream(name="b", **settings), **QUESTION)


def pairs(found: pa.Table) -> set[tuple[int, int]]:
    keys = list(zip(found["left_key"].to_pylist(), found["right_key"].to_pylist(), strict=True))
    assert len(set(keys)) == len(keys)
    return set(keys)


def folder(path: Path, rows: pa.Table) -> Path:
    """The rows in files."""
    path.mkdir()
    for i in range(5):
        pq.write_table(rows.slice(200 * i, 200), path / f"{i}.parquet")
    return path


FRAMES: dict[str, Callable[[pa.Table, Path], Any]] = {
    "reader": lambda rows, _: rows.to_reader(max_chunksize=70),
    "table": lambda rows, _: rows,
    "dataset": lambda rows, path: ds.dataset(str(folder(path, rows)), format="parquet"),
    "folder": lambda rows, path: folder(path, rows),
    "lazy frame": lambda rows, path: pl.scan_parquet(f"{folder(path, rows)}/*.parquet"),
}


@pytest.mark.parametrize("kind", FRAMES)
@pytest.mark.parametrize("rows", [33, 100_000])
def test_answers_are_those_of_whole_tables(tmp_path: Path, kind: str, rows: int) -> None:
    """Each kind of frame, in small batches and in large ones."""
    a, b = table(0), table(1)
    join = by_hand()
    reader = ap.stream_batches(join, a=FRAMES[kind](a, tmp_path / "a"), b=FRAMES[kind](b, tmp_path / "b"), rows=rows)
    found = reader.read_all()
    expected = ap.similarity_join(stream(a), stream(b), **QUESTION)
    assert pairs(found) == pairs(expected)
    assert len(found) > 500
    assert len(join.rejects()) == 0


def test_nothing_is_read_before_it_is_needed_and_what_left_its_window_is_gone() -> None:
    """Streams move on together, and a join holds the rows of its windows and of a batch."""
    read, most, rows = {"a": 0, "b": 0}, 0, {"a": table(0), "b": table(1)}

    def batches(name: str) -> Any:
        for batch in rows[name].to_batches(max_chunksize=50):
            read[name] += len(batch)
            yield batch

    join = by_hand()
    given: dict[str, Any] = {
        name: pa.RecordBatchReader.from_batches(frame.schema, batches(name)) for name, frame in rows.items()
    }
    reader = ap.stream_batches(join, **given)
    assert read == {"a": 0, "b": 0}
    for _ in reader:
        assert abs(read["a"] - read["b"]) <= 200
        engine: Any = join._engine
        most = max(most, len(engine.operator))
    assert read == {"a": 1_000, "b": 1_000}
    assert 0 < most < 300  # 30 rows a stream are in a window


def most_held(folder: Path, n: int, files: int) -> int:
    """The most bytes that Arrow holds in this process at a push, of files that are read while answers are slow."""
    for name in "ab":
        (folder / name).mkdir()
        for i in range(files):
            rows = {"k": np.arange(n), "t": 10.0 * i + np.arange(n) / n, "x": np.full(n, 100.0 * (name == "b"))}
            pq.write_table(pa.table(rows | {"y": rows["x"]}), folder / name / f"{i:02}.parquet")
    before, most = pa.total_allocated_bytes(), 0
    join = by_hand()
    push = join.push

    def slow(**frames: Any) -> pa.Table:
        nonlocal most
        time.sleep(0.02)
        most = max(most, pa.total_allocated_bytes() - before)
        return push(**frames)

    join.push = slow  # type: ignore[method-assign]
    ap.stream_batches(join, a=folder / "a", b=folder / "b").read_all()
    return most


def test_a_folder_without_parquet_is_named(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(ap.BadArgument, match=r"The folder of stream 'a' holds no Parquet files"):
        ap.stream_batches(by_hand(), a=tmp_path / "empty", b=table(0))


def test_files_are_not_read_ahead(tmp_path: Path) -> None:
    """However many there are, and however long answers take: not one beyond the next is in memory."""
    n, files = 20_000, 24
    script = f"""
from pathlib import Path
from tests.api.test_stream_batches import most_held
print(most_held(Path({str(tmp_path)!r}), {n}, {files}))
"""
    # In a process of its own, where nothing else has memory of Arrow.
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    file = 4 * 8 * n
    # The window, its arrays and a file a stream are some 5 files; read by threads, all 48 are held in the end.
    assert 0 < int(ran.stdout) < 10 * file


def test_a_filtered_dataset_is_read_as_it_is(tmp_path: Path) -> None:
    """Its rows, and no others."""
    a, b = table(0), table(1)
    rows = ds.dataset(str(folder(tmp_path / "a", a))).filter(pc.field("t") < 50)
    join = by_hand()
    found = ap.stream_batches(join, a=rows, b=b, rows=100).read_all()
    early = a.filter(pc.less(a["t"], 50))
    assert pairs(found) == pairs(ap.similarity_join(stream(early), stream(b), **QUESTION)) != set()


def test_rows_out_of_order_are_late_unless_the_stream_allows_it() -> None:
    """As in any push."""
    a, b = table(0), table(1)
    swapped = pa.concat_tables([a.slice(500, 500), a.slice(0, 500)])
    join = by_hand()
    with pytest.warns(ap.LateRows):
        ap.stream_batches(join, a=swapped, b=b, rows=100).read_all()
    assert len(join.rejects()) == 500
    patient = by_hand(lateness=200)
    found = ap.stream_batches(patient, a=swapped, b=b, rows=100).read_all()
    assert pairs(found) == pairs(ap.similarity_join(stream(a), stream(b), **QUESTION))


def test_a_call_of_one_stream_takes_its_frame_alone() -> None:
    """Answers held until the end come last."""
    a = table(0)
    call = ap.WindowAggregate(stream(), {"x": "sum"}, window=ap.TumblingWindow(5))
    found = ap.stream_batches(call, a, rows=100).read_all()
    expected = ap.window_aggregate(stream(a), {"x": "sum"}, window=ap.TumblingWindow(5))
    assert found.num_rows == expected.num_rows > 10
    np.testing.assert_allclose(found["x_sum"].to_numpy(), expected["x_sum"].to_numpy())


@pytest.mark.parametrize(
    ("frames", "message"),
    [
        ({"a": table(0)}, "needs a frame for each stream, a, b, and got a"),
        ({"a": "nowhere/at all", "b": table(0)}, "is not a Parquet file or a folder"),
        ({"a": 5, "b": table(0)}, "is a builtins.int. Give a RecordBatchReader"),
    ],
)
def test_frames_that_cannot_serve_are_errors(frames: dict[str, Any], message: str) -> None:
    with pytest.raises(ap.BadArgument, match=message):
        ap.stream_batches(by_hand(), **frames)
    with pytest.raises(ap.BadArgument, match="a call by hand"):
        ap.stream_batches(ap.similarity_join, **frames)


@pytest.mark.parametrize(
    ("columns", "kinds"),
    [
        ({"k": ["007"]}, "int64 in .*a.parquet and string in .*b.parquet"),
        ({"t": [1.5]}, "int64 in .*a.parquet and double in .*b.parquet"),
        ({"x": ["1"]}, "int64 in .*a.parquet and string in .*b.parquet"),
    ],
)
def test_files_whose_types_differ_are_errors(tmp_path: Path, columns: dict[str, Any], kinds: str) -> None:
    """Nothing is cast in silence, and the file is named before any row is read."""
    pq.write_table(pa.table({"k": [7], "t": [0], "x": [0]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"k": [8], "t": [1], "x": [0]} | columns), tmp_path / "b.parquet")
    call = ap.SimilarityJoin(ap.Stream(None, key="k", time="t", value="x"), **QUESTION)
    with pytest.raises(ap.BadArgument, match=f"{next(iter(columns))!r} of stream 'left' is {kinds}"):
        ap.stream_batches(call, tmp_path)


def test_whole_numbers_that_are_measured_may_be_doubles_elsewhere(tmp_path: Path) -> None:
    pq.write_table(pa.table({"k": [7], "t": [0], "x": [1]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"k": [8], "t": [1], "x": [0.5]}), tmp_path / "b.parquet")
    call = ap.SimilarityJoin(ap.Stream(None, key="k", time="t", value="x"), **QUESTION)
    assert [row["distance"] for row in ap.stream_batches(call, tmp_path).read_all().to_pylist()] == [0.5]


@pytest.mark.parametrize("order", ["ab", "ba"])
def test_files_may_differ_where_one_type_holds_all(tmp_path: Path, order: str) -> None:
    """Widths of numbers, columns of nulls, columns that some files lack, and those that no call reads."""
    a = pa.table({"k": pa.array([7], pa.int32()), "t": [0], "x": pa.array([0.5], pa.float32()), "c": pa.nulls(1)})
    b = pa.table({"k": [2**40], "t": [0], "x": [0.5], "c": ["c"], "more": [1], "other": ["o"]})
    pq.write_table(a.append_column("other", pa.array([1])), tmp_path / f"{order[0]}.parquet")
    pq.write_table(b, tmp_path / f"{order[1]}.parquet")
    stream = ap.Stream(None, key="k", time="t", value="x", carry=["c", "more"])
    call = ap.SimilarityJoin(stream, **QUESTION)
    rows = ap.stream_batches(call, tmp_path).read_all().to_pylist()
    assert {
        (row[f"{side}_key"], row[f"{side}_c"], row[f"{side}_more"]) for row in rows for side in ("left", "right")
    } == {
        (7, None, None),
        (2**40, "c", 1),
    }


def test_errors_while_reading_name_the_stream() -> None:
    """Arrow's own do not."""

    def batches() -> Iterator[pa.RecordBatch]:
        yield from table(0).to_batches()
        raise pa.ArrowInvalid("a page is broken")

    call = ap.SimilarityJoin(stream(name="a"), **QUESTION)
    reader = pa.RecordBatchReader.from_batches(table(0).schema, batches())
    with pytest.raises(ap.BadArgument, match="The frame of stream 'a' cannot be read: a page is broken"):
        ap.stream_batches(call, reader).read_all()
