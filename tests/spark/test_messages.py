"""Messages of a broker without a broker: what is decoded and refused, and ids that another attempt gives, too."""

from __future__ import annotations

import json
from base64 import b64decode
from csv import DictReader
from datetime import UTC, date, datetime
from decimal import Decimal
from io import StringIO
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql import functions as F  # noqa: N812

import appulse as ap
from appulse.connect.alerting import events_of
from appulse.connect.as_text import for_csv
from appulse.connect.files import Form, read_files
from appulse.connect.sinks import FolderSink
from appulse.engines.spark import failures
from appulse.engines.spark.messages import encoded
from appulse.engines.spark.sinks import _as_text, sink_of
from appulse.errors import BadInput, StorageError

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

SCHEMA = "id STRING, at DOUBLE, x DOUBLE"
GOOD = [b'{"id": "a", "at": 1, "x": 0.5}', b'{"x": 1.5, "at": 2.5, "id": "b", "more": [1]}']
BAD = [
    *(
        b"",
        b"no json",
        b"[1]",
        b'"text"',
        b"1",
        b"null",
        b'{"id": "a"',
        b"\xff\xfe{",
        b'[{"id": "a", "at": 1, "x": 1}]',
    ),
    *(b'{"id": "c", "at": "soon", "x": 1}', b'{"id": "c", "at": 1, "x": [2]}', "é".encode("utf-16"), None),
]
READABLE_AND_BAD = [b'{"id": "d", "x": 1}', b'{"id": "e", "at": 1, "x": null}']  # decoded, and of no use


def messages(spark: SparkSession, values: list[bytes | None]) -> DataFrame:
    rows = [("vans", i % 3, 100 + i, value) for i, value in enumerate(values)]
    return spark.createDataFrame(rows, "topic string, partition int, offset long, value binary")


def test_a_schema_may_end_with_a_comment(spark: SparkSession) -> None:
    rows = ap.decode_messages(messages(spark, [b'{"id": "a", "x": 1}', b"no json"]), "id STRING, x DOUBLE -- metres")
    assert [(row["id"], row["x"], row["_undecoded"] is None) for row in rows.collect()] == [
        ("a", 1.0, True),
        (None, None, False),
    ]


def rejected(frame: DataFrame) -> list[dict[str, Any]]:
    return sorted((row.asDict() for row in frame.collect()), key=lambda row: str(row["detail"]))


@pytest.mark.parametrize("operator", ["join", "queries", "sensors"])
def test_what_cannot_be_decoded_is_a_reject_with_its_place_and_payload(spark: SparkSession, operator: str) -> None:
    values = [*GOOD, *BAD, *READABLE_AND_BAD]
    rows = ap.decode_messages(messages(spark, values), SCHEMA)
    assert rows.columns == ["id", "at", "x", "_undecoded"]
    stream = ap.Stream(rows, key="id", time="at", value="x", name="vans")
    if operator == "join":
        result = ap.self_join(stream, epsilon=10, probability=0.5, window=ap.TimeWindow(10))
        assert [(row["left_key"], row["right_key"]) for row in result.collect()] == [("a", "b")]
    elif operator == "queries":
        result = ap.match_queries(stream, spark.createDataFrame([("q", "x > 0")], "query string, condition string"))
        assert sorted(row["key"] for row in result.collect()) == ["a", "b"]
    else:
        result = ap.sensor_join(stream, within=5, window=10)
        assert [row["sensor"] for row in result.collect()] == ["b"]
    bad = rejected(ap.rejects(result))
    assert len(bad) == len(BAD) + len(READABLE_AND_BAD)
    others = [row for row in bad if row["reason"] != "cannot be decoded"]
    assert sorted(row["key"] for row in others) == ["d", "e"]
    assert not any("_undecoded" in row["values"] for row in others)
    for row in bad:
        if row not in others:
            told = json.loads(row["values"])
            i = told["offset"] - 100
            payload = told["payload"]
            assert (b64decode(payload) if told["base64"] else payload and payload.encode()) == (values[i] or payload)
            assert (told["topic"], told["partition"], payload is None) == ("vans", i % 3, values[i] is None)
            assert row["detail"] == f"topic vans, partition {i % 3}, offset {100 + i}"


def test_ids_are_the_same_in_whatever_order_and_partition_rows_come(spark: SparkSession) -> None:
    rows = [(i % 7, "near" if i % 2 else None, i % 3 / 3) for i in range(60)]  # many of them equal
    frame = spark.createDataFrame(rows, "left_key long, name string, probability double")
    once, again = (
        sorted((row["key"], row["value"]) for row in encoded(part, "c0ffee", 5, None).collect())
        for part in (frame.repartition(3), frame.orderBy(F.desc("left_key")).coalesce(1))
    )
    assert once == again
    told = [json.loads(value) for _, value in once]
    assert len({row["message_id"] for row in told}) == len(rows)
    assert {row["message_id"] for row in told} == {key for key, _ in once}
    assert sorted(str((r["left_key"], r.get("name"), r["probability"])) for r in told) == sorted(map(str, rows))
    assert {row["batch_id"] for row in told} == {5}
    other = {row["key"] for row in encoded(frame, "c0ffee", 6, None).collect()}
    assert not other & {key for key, _ in once}


def test_messages_go_by_the_column_of_the_users_choice(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(1, "x"), (2, "y")], "left_key long, name string")
    assert sorted(row["key"] for row in encoded(frame, "q", 0, "left_key").collect()) == ["1", "2"]


@pytest.mark.parametrize(
    ("schema", "kind", "error", "told"),
    [
        ("id STRNG x", "json", ap.BadArgument, "not a schema of json messages"),
        ('{"type": "string"}', "avro", ap.SessionError, "no reader of Avro.*spark-avro"),
    ],
)
def test_schemas_that_cannot_be_used(
    spark: SparkSession, schema: str, kind: str, error: type[Exception], told: str
) -> None:
    with pytest.raises(error, match=told):
        ap.decode_messages(messages(spark, [b"{}"]), schema, kind)


def test_frames_that_are_no_messages(spark: SparkSession) -> None:
    with pytest.raises(ap.BadArgument, match="no column 'topic', which messages have"):
        ap.decode_messages(spark.range(1), SCHEMA)


@pytest.mark.parametrize(
    ("text", "error", "told"),
    [
        (
            "TimeoutException: Timed out waiting for a node assignment. Call: x",
            StorageError,
            "Kafka did not answer: Timed",
        ),
        ("TimeoutException: Topic pairs not present in metadata after 60000 ms.", StorageError, "no row is lost"),
        (
            "TimeoutException: Expiring 7 record(s) for pairs-0:120000 ms has passed",
            StorageError,
            "did not answer: Expir",
        ),
        ("errors.UnknownTopicOrPartitionException: This server does not host", BadInput, "Kafka has no such topic"),
    ],
)
def test_a_broker_that_is_away_is_named(text: str, error: type[Exception], told: str) -> None:
    problem = failures._from_outside(RuntimeError(f"Job aborted.\norg.apache.kafka.common.errors.{text}"))
    assert isinstance(problem, error)
    assert told in str(problem)


def test_tables_that_cannot_be_read_or_written_are_named() -> None:
    """As Spark and Delta 4.4 say it."""
    changed = (
        "[STREAM_FAILED] Query [id = 6b9] terminated with exception: [DELTA_SOURCE_TABLE_IGNORE_CHANGES] Detected a "
        'data update (for example DELETE (Map(predicate -> "[\\"((mmsi#13697L % 7) = 1)\\"]"))) in the source table at '
        "version 6. This is currently not supported. If this is going to happen regularly and you are okay to skip "
        "changes, set the option 'skipChangeCommits' to 'true'. If you would like the data update to be reflected, "
        "please restart this query with a fresh checkpoint directory. The source table can be found at path "
        "file:/lake/ships.v2. SQLSTATE: XXKST"
    )
    found = failures._from_outside(RuntimeError(changed))
    assert isinstance(found, BadInput)
    assert str(found).startswith("In version 6 of the Delta table /lake/ships.v2 rows were changed or deleted")
    text = "[REQUIRES_SINGLE_PART_NAMESPACE] spark_catalog requires a single-part namespace, but got identifier "
    found = failures._from_outside(RuntimeError(f"{text}`lake`.`db`.`x`. SQLSTATE: 42K05"))
    assert isinstance(found, ap.SessionError)
    assert str(found).startswith("Spark has no catalog 'lake', in which the table `lake`.`db`.`x` would be.")
    found = failures._from_outside(RuntimeError("Failed to find data source: avro. Avro is built-in but external"))
    assert isinstance(found, ap.SessionError)
    assert "org.apache.spark:spark-avro_2.13:VERSION" in str(found)
    missing = "[SCHEMA_NOT_FOUND] The schema `spark_catalog`.`lake` cannot be found. Verify the spelling"
    found = failures._from_outside(RuntimeError(missing))
    assert isinstance(found, ap.BadArgument)
    assert "of the schema `spark_catalog`.`lake`, which is not in the catalog" in str(found)


def test_times_are_whole_and_the_same_text_wherever_they_are_text(spark: SparkSession, tmp_path: Path) -> None:
    texts = ["2026-05-04T09:00:30.123456Z", "2026-05-04T09:00:30.000000Z", "1969-12-31T23:59:59.999999Z"]
    times = [datetime.fromisoformat(text) for text in texts]
    rows = pa.table(
        {
            "id": ["a", "b", "c"],
            "at": pa.array(times, pa.timestamp("us", "Europe/Paris")),
            "local": pa.array([time.replace(tzinfo=None) for time in times], pa.timestamp("us")),
        }
    )
    wanted = [{"id": name, "at": text, "local": text[:-1]} for name, text in zip("abc", texts, strict=True)]
    frame = spark.createDataFrame(
        [(i, time, time.replace(tzinfo=None)) for i, time in zip("abc", times, strict=True)],
        "id string, at timestamp, local timestamp_ntz",
    )
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        for kind in ("json", "csv"):
            options = {"header": True} if kind == "csv" else {}
            FolderSink(kind, str(tmp_path / f"local-{kind}"), "run", options).write(0, rows)
            place = {"path": str(tmp_path / f"spark-{kind}")}
            sink_of((kind, place | options), "sink", "c0ffee").write(frame, 0, lambda: True, lambda: 3)
            own = {"path": str(tmp_path / f"own-{kind}"), "timestampformat": "yyyy", "timestampNTZFormat": "yy"}
            sink_of((kind, own | options), "sink", "c0ffee").write(frame, 0, lambda: True, lambda: 3)
        messages = [json.loads(row["value"]) for row in encoded(frame, "c0ffee", 1, "id").collect()]
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(zone))

    def read(folder: str) -> list[dict[str, str]]:
        files = [file.read_text() for file in (tmp_path / folder).glob("batch-*")]
        if folder.endswith("json"):
            found = [json.loads(line) for text in files for line in text.splitlines()]
        else:
            found = [row for text in files for row in DictReader(StringIO(text))]
        return sorted(found, key=lambda row: str(row["id"]))

    posted = [json.loads(body) for _, body in events_of(rows, "job")]
    for found in (read("local-json"), read("spark-json"), read("local-csv"), read("spark-csv"), messages, posted):
        known = [{name: row[name] for name in ("id", "at", "local")} for row in found]
        assert sorted(known, key=lambda row: str(row["id"])) == wanted
    for kind in ("json", "csv"):
        assert [(row["at"], row["local"]) for row in read(f"own-{kind}")] == [*[("2026", "26")] * 2, ("1969", "69")]
    assert for_csv(rows.slice(0, 0)).num_rows == 0
    assert for_csv(pa.table({"at": pa.array([None, 1], pa.timestamp("s"))}))["at"].to_pylist() == [
        None,
        "1970-01-01T00:00:01.000000",
    ]


#: Columns by their types, on Spark and in process, each with a value; those after the first eight go into JSON alone.
VALUES: list[tuple[str, pa.DataType, Any]] = [
    ("string", pa.string(), ' "a" \\"b\\\\ \u00e9, '),
    ("binary", pa.binary(), b"\xff\x00a"),
    ("float", pa.float32(), 0.1),
    ("float", pa.float32(), float("-inf")),
    ("double", pa.float64(), float("nan")),
    ("decimal(20,4)", pa.decimal128(20, 4), Decimal("1.5")),
    ("decimal(38,18)", pa.decimal128(38, 18), Decimal("1E-18")),
    ("date", pa.date32(), date(1, 1, 1)),
    ("array<float>", pa.list_(pa.float32()), [0.1, float("nan"), None]),
    ("struct<a: binary, b: decimal(5,2)>", pa.struct({"a": pa.binary(), "b": pa.decimal128(5, 2)}), {"a": b"\xff"}),
    ("map<int, date>", pa.map_(pa.int32(), pa.date32()), {1: date(2024, 1, 2), 2: None}),
    (
        "map<timestamp, double>",
        pa.map_(pa.timestamp("us", "UTC"), pa.float64()),
        {datetime(2024, 1, 2, tzinfo=UTC): 1.0},
    ),
]


def test_values_are_written_the_same_on_both_engines(spark: SparkSession, tmp_path: Path) -> None:
    schema = ", ".join(f"c{i} {kind}" for i, (kind, _, _) in enumerate(VALUES))
    frame = spark.createDataFrame([tuple(value for _, _, value in VALUES), (None,) * len(VALUES)], schema)
    columns = {}
    for i, (_, kind, value) in enumerate(VALUES):
        columns[f"c{i}"] = pa.array([[*value.items()] if pa.types.is_map(kind) else value, None], kind)
    rows = pa.table(columns)
    flat = rows.column_names[:8]
    found: dict[str, list[Any]] = {}
    for kind in ("json", "csv"):
        own = rows if kind == "json" else rows.select(flat)
        options = {"header": True} if kind == "csv" else {}
        FolderSink(kind, str(tmp_path / f"local-{kind}"), "run", options).write(0, own)
        place = {"path": str(tmp_path / f"spark-{kind}")}
        sink = sink_of((kind, place | options), "sink", "c0ffee")
        sink.write(frame.select(own.column_names).coalesce(1), 0, lambda: True, lambda: 2)
        for engine in ("local", "spark"):
            (file,) = (tmp_path / f"{engine}-{kind}").glob("batch-*")
            text = file.read_text()
            found[f"{engine}-{kind}"] = (
                [json.loads(line, parse_float=str, parse_constant=pytest.fail) for line in text.splitlines()]
                if kind == "json"
                else [*DictReader(StringIO(text))]
            )
    assert found["local-json"] == found["spark-json"]
    assert found["local-csv"] == found["spark-csv"]
    written, nothing = found["local-csv"]
    assert (written["c0"], written["c1"], nothing) == (VALUES[0][2], "[FF 00 61]", dict.fromkeys(flat, ""))
    assert found["local-json"][1] == {}
    posted = [json.loads(body, parse_float=str) for _, body in events_of(rows, "job")]
    assert [{name: one[name] for name in one if name != "message_id"} for one in posted] == found["local-json"]
    (file,) = (tmp_path / "spark-csv").glob("batch-*")
    again = read_files([str(file)], Form("csv", header=True), pa.schema({"c0": pa.string()}), "job").table
    assert again is not None
    assert again["c0"].to_pylist() == [VALUES[0][2], None]


def test_options_of_csv_count_before_ours() -> None:
    assert _as_text("csv", {"Escape": "!", "quote": "'", "TimestampFormat": "yyyy"}) == {
        "ignoreLeadingWhiteSpace": False,
        "ignoreTrailingWhiteSpace": False,
        "Escape": "!",
        "quote": "'",
        "TimestampFormat": "yyyy",
    }
    assert _as_text("csv", {"quote": "'"})["escape"] == "'"
    assert _as_text("parquet", {}) == {}


def test_what_csv_has_no_form_for_is_named(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"column c is list<item: double>, for which CSV has no form. .* 'json'"):
        FolderSink("csv", str(tmp_path / "out"), "run").write(0, pa.table({"c": [[1.0]]}))


def test_times_within_others_are_the_same_text(spark: SparkSession, tmp_path: Path) -> None:
    at = datetime(1969, 12, 31, 23, 59, 59, 250_000, UTC)
    kind = pa.struct({"at": pa.timestamp("us", "UTC"), "local": pa.list_(pa.timestamp("us"))})
    rows = pa.table({"c": pa.array([{"at": at, "local": [at.replace(tzinfo=None)]}], kind)})
    wanted = {"at": "1969-12-31T23:59:59.250000Z", "local": ["1969-12-31T23:59:59.250000"]}
    columns = "c STRUCT<at: TIMESTAMP, local: ARRAY<TIMESTAMP_NTZ>>"
    frame = spark.createDataFrame([((at, [at.replace(tzinfo=None)]),)], columns)
    (message,) = encoded(frame, "c0ffee", 1, None).collect()
    ((_, posted),) = events_of(rows, "job")
    FolderSink("json", str(tmp_path), "run").write(0, rows)
    (file,) = tmp_path.glob("batch-*")
    assert [json.loads(text)["c"] for text in (message["value"], posted, file.read_text())] == [wanted] * 3
