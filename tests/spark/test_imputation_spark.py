"""Incomplete streams on Spark: batch and streaming fill and answer as in process."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import appulse as ap
from benchmarks.harness import write_stream
from tests.helpers.streaming import drained, drained_answers, read_stream

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

SCHEMA = "id string, at long, a double, b double, c double"
RULES = [
    ap.DifferentialDependency({"a": 0.1}, "b", 1.0, 0.9),
    ap.DifferentialDependency({"b": 0.1}, "c", 1.0, 0.9),
    ap.DifferentialDependency({"a": 0.05}, "c", 1.0, 0.9),
]


def tables() -> tuple[pa.Table, list[pa.Table]]:
    """A repository, and two streams of which a fifth of the values is missing, some in all attributes."""
    chance = np.random.default_rng(5)
    base = chance.random((800, 3))
    base[:, 1:] = base[:, :1] + 0.05 * base[:, 1:].round(1)
    repository = pa.table(dict(zip("abc", base[:500].T, strict=True)))
    streams = []
    for s in range(2):
        values = base[500 + 150 * s : 650 + 150 * s]
        lost = chance.random(values.shape) < 0.2
        columns = {name: pa.array(values[:, k], mask=lost[:, k]) for k, name in enumerate("abc")}
        streams.append(pa.table({"id": [f"{s} {i}" for i in range(150)], "at": np.arange(150), **columns}))
    return repository, streams


def stream(frame: Any) -> ap.Stream:
    return ap.Stream(frame, key="id", time="at", value=ap.Incomplete("a", "b", "c"))


def rows_of(table: pa.Table) -> Counter[str]:
    """Rows in no order, numbers rounded to what engines agree on."""
    rows = table.to_pylist()
    for row in rows:
        row |= {name: round(value, 8) for name, value in row.items() if isinstance(value, float)}
    return Counter(map(repr, rows))


def test_batches_answer_as_in_process(spark: SparkSession) -> None:
    repository, given = tables()
    settings: dict[str, Any] = {"epsilon": 0.1, "probability": 0.3, "window": ap.CountWindow(20)}
    imputer = ap.DependencyImputer(spark.createDataFrame(repository.to_pandas()), RULES)
    expected = ap.similarity_join(*map(stream, given), imputer=ap.DependencyImputer(repository, RULES), **settings)
    assert sum(map(len, expected["left_filled"].to_pylist())) > 10
    found = ap.similarity_join(*(stream(spark.createDataFrame(table)) for table in given), imputer=imputer, **settings)
    assert rows_of(found.toArrow()) == rows_of(expected)
    assert rows_of(ap.rejects(found).toArrow()) == rows_of(ap.rejects(expected))


def test_streams_answer_as_in_process(spark: SparkSession, tmp_path: Path) -> None:
    repository, given = tables()
    settings: dict[str, Any] = {"epsilon": 0.1, "probability": 0.3, "window": ap.TimeWindow(5)}
    imputer = ap.DependencyImputer(repository, RULES)
    expected = ap.similarity_join(*map(stream, given), imputer=imputer, **settings)
    folders = [write_stream(tmp_path / str(s), table, 2) for s, table in enumerate(given)]
    read = [stream(read_stream(spark, folder)) for folder in folders]
    answers, rejects = drained(ap.similarity_join(*read, imputer=imputer, **settings), tmp_path / "out")
    assert rows_of(answers) == rows_of(expected)
    assert len(rejects) == len(ap.rejects(expected))


def test_frames_are_filled_as_tables(spark: SparkSession) -> None:
    repository, given = tables()
    imputer = ap.DependencyImputer(repository, RULES, joint=True)
    expected = ap.impute(stream(given[0]), imputer).frame
    found = ap.impute(stream(spark.createDataFrame(given[0])), imputer)
    assert rows_of(found.frame.toArrow()) == rows_of(expected)
    with pytest.raises(ap.BadArgument, match="has one already"):
        ap.impute(stream(spark.createDataFrame(expected)), imputer)


@pytest.mark.every_version
def test_a_repository_that_grows_is_taken_batch_by_batch(spark: SparkSession, tmp_path: Path) -> None:
    """The first micro-batch fails, and is answered again by the version it had; the second takes the next one."""
    repository, given = tables()
    imputer = ap.DependencyImputer(repository.slice(0, 100), RULES)
    imputer.save(tmp_path / "versions")
    saved = ap.SavedImputer(tmp_path / "versions")
    settings: dict[str, Any] = {"epsilon": 0.1, "probability": 0.3, "window": ap.TimeWindow(5)}
    folders = [tmp_path / "left", tmp_path / "right"]
    filled: list[list[pa.Table]] = [[], []]
    metrics: list[dict[str, Any]] = []
    found: dict[int, pa.Table] = {}

    def started(run: int) -> Any:
        def sink(batch: DataFrame, number: int) -> None:
            found[number] = batch.toArrow()
            if run == 0:
                raise RuntimeError("the lights went out")

        read = [stream(spark.readStream.schema(SCHEMA).parquet(str(folder))) for folder in folders]
        joined = ap.similarity_join(*read, imputer=saved, **settings)
        return ap.start(joined, sink, checkpoint=str(tmp_path / "checkpoint"), drain=True)

    with ap.listen(spark, metrics.append):
        for run in range(2):
            for own, folder, table in zip(filled, folders, given, strict=True):
                rows = table.slice(75 * run, 75)
                own.append(ap.impute(stream(rows), imputer).frame)
                folder.mkdir(exist_ok=True)
                pq.write_table(rows, folder / f"{run}.parquet")
            if run == 0:
                with pytest.raises(Exception, match="the lights went out"):
                    started(run).awaitTermination()
                imputer.append(repository.slice(100))
                assert imputer.save(tmp_path / "versions") == 2
            else:
                started(run).awaitTermination()
    assert sorted(found) == [0, 1]
    answers = pa.concat_tables(found.values())
    samples = ap.Samples("imputed", "imputed_weights", names=("a", "b", "c"))
    sides = [replace(stream(pa.concat_tables(own)), value=samples) for own in filled]
    expected = ap.similarity_join(*sides, **settings)
    assert rows_of(answers.drop_columns(["left_filled", "right_filled"])) == rows_of(expected)
    later = ap.similarity_join(*map(stream, given), imputer=imputer, **settings)
    assert rows_of(answers) != rows_of(later)  # else this would prove nothing
    assert [told["repository"] for told in metrics if told["rows"]] == [1, 2]
    notes = [file.read_text() for file in sorted((tmp_path / "versions" / "used").rglob("*")) if file.is_file()]
    assert notes == ["1", "2"]


def test_batch_frames_take_the_newest_version_and_count_windows_tell_it(spark: SparkSession, tmp_path: Path) -> None:
    repository, given = tables()
    imputer = ap.DependencyImputer(repository, RULES)
    imputer.save(tmp_path / "versions")
    saved = ap.SavedImputer(tmp_path / "versions")
    settings: dict[str, Any] = {"epsilon": 0.1, "probability": 0.3, "window": ap.CountWindow(20)}
    expected = ap.similarity_join(*map(stream, given), imputer=imputer, **settings)
    found = ap.similarity_join(*(stream(spark.createDataFrame(table)) for table in given), imputer=saved, **settings)
    assert rows_of(found.toArrow()) == rows_of(expected)
    folders = [write_stream(tmp_path / str(s), table, 1) for s, table in enumerate(given)]
    metrics: list[dict[str, Any]] = []
    with ap.listen(spark, metrics.append):
        read = [stream(read_stream(spark, folder)) for folder in folders]
        answers = drained_answers(ap.similarity_join(*read, imputer=saved, **settings), tmp_path / "out")
    assert rows_of(answers) == rows_of(expected)
    assert max(told["repository"] for told in metrics) == 1


def chosen_by_rows(auto: ap.AutoImputer, rows: pa.Table) -> Any:
    """What the driver chooses by these rows."""
    values = np.column_stack([rows[name].to_numpy(zero_copy_only=False) for name in "abc"])
    values = values[~np.isnan(values).all(axis=1)]
    n = len(values)
    return auto.chosen("abc", values, 1_000_000 * np.arange(n), np.zeros(n, np.int64), whole=False)


def test_auto_is_chosen_by_the_driver_once(spark: SparkSession, tmp_path: Path) -> None:
    """Of a batch frame by its own rows, of a stream by the rows of the repository."""
    repository, given = tables()
    settings: dict[str, Any] = {"epsilon": 0.1, "probability": 0.3, "window": ap.TimeWindow(5)}
    left = chosen_by_rows(ap.AutoImputer(), given[0])
    expected = ap.impute(stream(given[0]), left).frame
    found = ap.impute(stream(spark.createDataFrame(given[0])), "auto").frame
    assert rows_of(found.toArrow()) == rows_of(expected)
    fixed = chosen_by_rows(ap.AutoImputer(repository), repository)
    expected = ap.similarity_join(*map(stream, given), imputer=fixed, **settings)
    folders = [write_stream(tmp_path / str(s), table, 2) for s, table in enumerate(given)]
    read = [stream(read_stream(spark, folder)) for folder in folders]
    with pytest.raises(ap.BadArgument, match=r"Give typical complete rows: imputer=ap\.AutoImputer\(repository\)"):
        ap.similarity_join(*read, imputer="auto", **settings)
    pairs = ap.similarity_join(*read, imputer=ap.AutoImputer(repository), **settings)
    assert any("by CRPS" in text for text in ap.explain(pairs).steps.values())
    answers = drained_answers(pairs, tmp_path / "out")
    assert rows_of(answers) == rows_of(expected)
    assert len(expected) > 10


@pytest.mark.parametrize("imputer", [ap.NearestImputer, lambda known: ap.DependencyImputer(known, RULES, marginal=8)])
def test_rows_that_lack_everything_are_filled_as_in_process(spark: SparkSession, imputer: Any) -> None:
    repository, (table, _) = tables()
    imputer = imputer(repository)
    filled = ap.impute(stream(table), imputer, empty_rows=True).frame
    found = ap.impute(stream(spark.createDataFrame(table)), imputer, empty_rows=True).frame
    assert filled["imputed"].null_count == 0 < ap.impute(stream(table), imputer).frame["imputed"].null_count
    assert rows_of(found.toArrow()) == rows_of(filled)


def test_rejects_of_filled_rows_are_those_in_process(spark: SparkSession) -> None:
    repository, (table, _) = tables()
    holed = table.slice(0, 4)
    for name, values in {"a": [float("inf"), None, None, 1.0], "b": [1.0, None] * 2, "c": [1.0, None] * 2}.items():
        holed = holed.set_column(holed.schema.get_field_index(name), name, pa.array(values))
    query: dict[str, Any] = {"epsilon": 1.0, "probability": 0.5, "window": 1}
    for imputer in (ap.MeanImputer(repository), ap.LastValueImputer()):
        expected = ap.rejects(ap.self_join(ap.impute(stream(holed), imputer), **query)).to_pylist()
        assert {row["detail"] for row in expected} == {"a is inf", "none of a, b, c is there"}
        filled = ap.impute(stream(spark.createDataFrame(holed)), imputer)
        found = ap.rejects(ap.self_join(filled, **query)).toArrow().to_pylist()
        assert sorted(found, key=itemgetter("key")) == sorted(expected, key=itemgetter("key"))
