"""Columns of Parquet files whose types are not those of the schema: read where all values stay, else refused."""

from __future__ import annotations

import datetime as dt
import json
import os
import struct
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc
from typer.testing import CliRunner

from appulse import jobs
from appulse.cli import app
from appulse.connect.files import Form, read_files
from appulse.errors import BadArgument, JobError
from appulse.jobs.resident import Resident
from appulse.model.ddl import columns_of
from tests.cli.test_broken_lines import lines, write

if TYPE_CHECKING:
    from pathlib import Path

NOON = dt.datetime(2024, 1, 2, 12, 0, 0)  # noqa: DTZ001 - of no zone
CENTS = Decimal("1.25")
#: Columns of files, each with a type that it is read into.
READ: list[tuple[Any, pa.DataType, str]] = [
    (5, pa.int8(), "SMALLINT"),
    (5, pa.int16(), "INT"),
    (5, pa.int32(), "BIGINT"),
    (5, pa.int32(), "DOUBLE"),
    (5, pa.int32(), "DECIMAL(12, 2)"),
    (5, pa.int64(), "DECIMAL(22, 2)"),
    (200, pa.uint8(), "SMALLINT"),
    (60_000, pa.uint16(), "DOUBLE"),
    (3_000_000_000, pa.uint32(), "BIGINT"),
    (10**19, pa.uint64(), "DECIMAL(20, 0)"),
    (1.1, pa.float32(), "DOUBLE"),
    (CENTS, pa.decimal128(5, 2), "DECIMAL(9, 4)"),
    ("é", pa.large_string(), "STRING"),
    ("é", pa.dictionary(pa.int32(), pa.string()), "STRING"),
    (b"a", pa.binary(), "STRING"),
    (b"ab", pa.binary(2), "BINARY"),
    (NOON.date(), pa.date32(), "TIMESTAMP_NTZ"),
    (NOON, pa.timestamp("s"), "TIMESTAMP"),
    (NOON, pa.timestamp("ms", "UTC"), "TIMESTAMP_NTZ"),
    (NOON, pa.timestamp("us", "Europe/Berlin"), "TIMESTAMP"),
    (NOON, pa.timestamp("ms"), "BIGINT"),
    ([5], pa.list_(pa.int32()), "ARRAY<DOUBLE>"),
    ({"a": 5}, pa.struct([("a", pa.int32())]), "STRUCT<a: BIGINT, b: STRING>"),
    ([("a", 5)], pa.map_(pa.string(), pa.int32()), "MAP<STRING, BIGINT>"),
]
#: The same of types that are refused in process; the last is whether Spark refuses them, too, or reads other values.
REFUSED: list[tuple[Any, pa.DataType, str, bool]] = [
    (5, pa.int64(), "TIMESTAMP", True),
    (5, pa.int64(), "INT", True),
    (5, pa.int64(), "DOUBLE", True),
    (5, pa.int64(), "STRING", True),
    (5, pa.int32(), "FLOAT", True),
    (5, pa.int32(), "DECIMAL(9, 2)", True),
    ("5", pa.string(), "DOUBLE", True),
    ("2024-01-02", pa.string(), "DATE", True),
    (1.1, pa.float64(), "FLOAT", True),
    (1.0, pa.float64(), "BIGINT", True),
    (CENTS, pa.decimal128(5, 2), "DECIMAL(5, 3)", True),
    (CENTS, pa.decimal128(5, 2), "DOUBLE", True),
    (NOON.date(), pa.date32(), "TIMESTAMP", True),
    (NOON, pa.timestamp("us"), "DATE", True),
    (NOON, pa.timestamp("us"), "STRING", True),
    ([5], pa.list_(pa.int64()), "ARRAY<INT>", True),
    (3_000_000_000, pa.uint32(), "DOUBLE", False),
    (60_000, pa.uint16(), "SMALLINT", False),
    (60_000, pa.int32(), "SMALLINT", False),
    (5, pa.int32(), "DATE", False),
    (NOON.date(), pa.date32(), "BIGINT", False),
]


def store(place: Path, *columns: pa.Array) -> str:
    pq.write_table(pa.table({f"c{i}": column for i, column in enumerate(columns)}), place)
    return str(place)


def here(file: str, schema: str) -> pa.Table:
    return read_files([file], Form("parquet"), columns_of(schema), "job.toml: sources.vans.path").table


def plain(value: Any) -> Any:
    if isinstance(value, dt.datetime):
        return value.replace(tzinfo=None)
    return {**value} if isinstance(value, dict) else value


@pytest.mark.spark
def test_types_that_keep_all_values_are_read_as_on_spark(tmp_path: Path, spark: Any) -> None:
    file = store(tmp_path / "a.parquet", *[pa.array([value, None], kind) for value, kind, _ in READ])
    schema = ", ".join(f"c{i} {wanted}" for i, (_, _, wanted) in enumerate(READ))
    found = here(file, schema)
    assert found.schema == columns_of(schema)
    ours, nothing = found.to_pylist(maps_as_pydicts="strict")
    theirs = spark.read.schema(schema).parquet(file).collect()[0].asDict(recursive=True)
    assert {name: plain(value) for name, value in ours.items()} == {n: plain(v) for n, v in theirs.items()}
    assert set(nothing.values()) == {None}


@pytest.mark.parametrize(("value", "kind", "wanted", "_"), REFUSED)
def test_other_types_are_refused(tmp_path: Path, value: Any, kind: pa.DataType, wanted: str, _: bool) -> None:
    file = store(tmp_path / "a.parquet", pa.array([value], kind))
    said = rf"sources.vans.path: \S+/a.parquet cannot be read: its column c0 is .*, and the source has {wanted[:4]}"
    with pytest.raises(BadArgument, match=said):
        here(file, f"c0 {wanted}")


@pytest.mark.spark
def test_spark_refuses_them_too_or_reads_other_values(tmp_path: Path, spark: Any) -> None:
    columns = [pa.array([value], kind) for value, kind, _, _ in REFUSED]
    file = store(tmp_path / "a.parquet", *columns)
    for i, (value, _, wanted, refuses) in [*enumerate(REFUSED)][::4]:
        rows = spark.read.schema(f"c{i} {wanted}").parquet(file)
        if refuses:
            with pytest.raises(Exception, match=r"c0|mismatch|Unsupported|convert|FAILED_READ_FILE"):
                rows.collect()
        else:
            assert rows.collect()[0][0] != value


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        (5, "TIMESTAMP"),
        (1.5, "TIMESTAMP_NTZ"),
        (NOON, "BIGINT"),
        (1e10, "STRING"),
        (True, "STRING"),
        (Decimal("2.50"), "STRING"),
        (b"5", "STRING"),
        (float("nan"), "BOOLEAN"),
        ([1.5], "ARRAY<STRING>"),
        ({"a": [5]}, "STRUCT<a: ARRAY<TIMESTAMP>>"),
    ],
)
def test_types_of_orc_that_have_other_values_on_spark_are_refused(tmp_path: Path, value: Any, wanted: str) -> None:
    """Spark takes numbers for seconds, and writes texts of its own: 1.0E10, TRUE, 2.5, 35."""
    file = str(tmp_path / "a.orc")
    orc.write_table(pa.table({"c0": [value], "c1": [5]}), file)
    asked = "struct<a: list<item: timestamp" if wanted.startswith("STRUCT") else wanted
    with pytest.raises(BadArgument, match=rf"a.orc cannot be read: its column c0 is .*, and the source has {asked}"):
        read_files([file], Form("orc"), columns_of(f"c0 {wanted}"), "job")
    for asked, found in (("DOUBLE", 5.0), ("STRING", "5")):
        rows = read_files([file], Form("orc"), columns_of(f"c1 {asked}"), "job").table
        assert rows is not None
        assert rows.to_pylist() == [{"c1": found}]


def test_columns_without_values_are_of_any_type(tmp_path: Path) -> None:
    """So does pandas write them."""
    file = store(tmp_path / "a.parquet", pa.nulls(2), pa.nulls(2))
    assert here(file, "c0 STRING, c1 ARRAY<DOUBLE>, c2 DATE").to_pylist() == 2 * [dict.fromkeys(["c0", "c1", "c2"])]


@pytest.mark.parametrize("form", ["parquet", "replay"])
def test_an_index_of_pandas_without_a_name_is_a_column_as_on_spark(tmp_path: Path, form: str) -> None:
    file = write(tmp_path, form, {}, 'carry = ["__index_level_0__"]').file
    rows = pd.DataFrame({"id": ["a", "b"], "x": 0.0, "y": 0.0}, index=[10.0, 20.0])
    rows.to_parquet(tmp_path / "in" / "a.parquet")
    file.write_text(file.read_text(encoding="utf-8").replace('time = "at"', 'time = "__index_level_0__"'))
    Resident(jobs.load(file)).run(drain=True)
    found = [(row["key"], row["time"], row["__index_level_0__"]) for row in lines(tmp_path / "out")]
    assert found == [("a", 10.0, 10.0), ("b", 20.0, 20.0)]
    if form == "parquet":
        shown = CliRunner().invoke(app, ["plan", str(file), "--json"])
        assert shown.exit_code == 0, shown.output


POINTS = 'model = "Position", geography = "geom"'
SCHEMA = 'schema = "id STRING, at TIMESTAMP, x DOUBLE, y DOUBLE, unused INT"'


@pytest.mark.parametrize("engine", ["local", "spark"])
def test_validate_compares_files_with_the_schema(tmp_path: Path, engine: str) -> None:
    job = write(tmp_path, "parquet", {}, SCHEMA, engine=engine)
    rows = {"id": ["a"], "at": pa.array([NOON]), "x": [0.0], "y": [0.0], "unused": ["u"]}
    pq.write_table(pa.table(rows), tmp_path / "in" / "a.parquet")
    jobs.load(job.file)
    seconds = {**rows, "at": pa.array([1_700_000_000])}
    pq.write_table(pa.table(seconds), tmp_path / "in" / "b.parquet")
    shown = CliRunner().invoke(app, ["validate", str(job.file)])
    assert shown.exit_code == 2
    for said in (
        "sources.vans.path: ",
        "/in/b.parquet cannot be read: its column at is int64, and the source has TIMESTAMP, which may change",
        "Give at the type BIGINT in the schema of the source, and in unit what these numbers count; or write the file",
    ):
        assert said in shown.output
    with pytest.raises(JobError, match=r"b.parquet cannot be read: its column at is int64"):
        jobs.load(job.file)


def test_columns_in_other_letter_case_are_errors_in_process(tmp_path: Path) -> None:
    """They would be null. Spark reads them."""
    rows = {"id": ["a"], "at": pa.array([NOON]), "X": [0.0], "y": [0.0]}
    for engine in ("spark", "local"):
        job = write(tmp_path / engine, "parquet", {}, SCHEMA, engine=engine)
        pq.write_table(pa.table({**rows, "x": [0.0]}), tmp_path / engine / "in" / "a.parquet")
        jobs.load(job.file)
        pq.write_table(pa.table(rows), tmp_path / engine / "in" / "b.parquet")
        if engine == "spark":
            jobs.load(job.file)
    with pytest.raises(JobError, match=r"b.parquet cannot be read: its column X is x in the schema of the source"):
        jobs.load(job.file)
    with pytest.raises(BadArgument, match=r"b.parquet cannot be read: its column X is x"):
        Resident(job).run(drain=True)


@pytest.mark.parametrize("form", ["parquet", "orc"])
@pytest.mark.parametrize(
    ("value", "wanted", "said"),
    [
        ({"A": 5}, "STRUCT<a: BIGINT>", r"c0\.A is c0\.a"),
        ([{"A": 5}], "ARRAY<STRUCT<a: BIGINT>>", r"c0\.element\.A is c0\.element\.a"),
    ],
)
def test_so_are_fields_within_columns(tmp_path: Path, form: str, value: Any, wanted: str, said: str) -> None:
    file = str(tmp_path / "a")
    rows = pa.table({"c0": [value]})
    pq.write_table(rows, file) if form == "parquet" else orc.write_table(rows, file)
    with pytest.raises(BadArgument, match=f"its column {said} in the schema of the source"):
        read_files([file], Form(form), columns_of(f"c0 {wanted}"), "job")
    found = read_files([file], Form(form), columns_of(f"c0 {wanted.replace('a:', 'A:')}"), "job").table
    assert found is not None
    assert found.to_pylist() == [{"c0": value}]


def test_points_of_geoparquet_in_another_coordinate_system_are_rejects(tmp_path: Path) -> None:
    """In the first file, of which the columns are known, and in later ones."""
    file = write(tmp_path, "parquet", {}, "max_files_per_trigger = 1").file
    text = file.read_text(encoding="utf-8").replace('model = "Exact", columns = ["x", "y"]', POINTS)
    file.write_text(text.replace('conditions = { all = "x > -1" }', 'conditions = { all = "at > -1" }'))
    point = struct.pack("<BIdd", 1, 1, 1.0, 2.0)
    for i, code in enumerate((3857, 3857, 4326)):
        crs = {"id": {"authority": "EPSG", "code": code}}
        geo = json.dumps({"version": "1.1.0", "primary_column": "geom", "columns": {"geom": {"crs": crs}}})
        rows = pa.table({"id": [str(i)], "at": [float(i)], "geom": [point]}).replace_schema_metadata({"geo": geo})
        pq.write_table(rows, tmp_path / "in" / f"{i}.parquet")
        os.utime(tmp_path / "in" / f"{i}.parquet", (1_700_000_000 + i, 1_700_000_000 + i))
    Resident(jobs.load(file)).run(drain=True)
    assert [row["key"] for row in lines(tmp_path / "out")] == ["2"]
    bad = sorted((row["key"], row["detail"]) for row in lines(tmp_path / "bad"))
    assert bad == [(key, "geom is of SRID 3857, not WGS 84 (4326)") for key in "01"]


@pytest.mark.parametrize("schema", [SCHEMA, ""])
def test_a_file_of_other_types_that_comes_later_ends_a_job(tmp_path: Path, schema: str) -> None:
    job = write(tmp_path, "parquet", {}, schema)
    rows = {"id": ["a"], "at": pa.array([NOON], pa.timestamp("us")), "x": [0.0], "y": [0.0]}
    pq.write_table(pa.table(rows), tmp_path / "in" / "a.parquet")
    pq.write_table(pa.table({**rows, "at": pa.array([1_700_000_000])}), tmp_path / "in" / "b.parquet")
    with pytest.raises(BadArgument, match=r"in/b.parquet cannot be read: its column at is int64, and the source has"):
        Resident(job).run(drain=True)
    pq.write_table(pa.table({**rows, "x": pa.array([1], pa.int32())}), tmp_path / "in" / "b.parquet")
    Resident(job).run(drain=True)
    assert [row["key"] for row in lines(tmp_path / "out")] == ["a", "a"]
