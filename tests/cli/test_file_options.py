"""Options of files: those that count, on both engines; others are errors, not without effect in silence."""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from appulse import jobs
from appulse.cli import app
from appulse.errors import JobError
from appulse.jobs.file_options import _SPARK
from appulse.jobs.resident import Resident
from tests.cli.test_broken_lines import lines, write

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA = 'schema = "id STRING, at {kind}, x DOUBLE, y DOUBLE"'
#: By a pattern: texts with the times that they are; None: not as the pattern says.
TIMES: dict[str, dict[str, str | None]] = {
    "dd/MM/yyyy HH:mm:ss": {
        "05/03/2024 01:02:03": "2024-03-05T01:02:03Z",
        "29/02/2024 23:59:59": "2024-02-29T23:59:59Z",
        "29/02/2023 01:02:03": None,
        "5/3/2024 01:02:03": None,
        "05/03/2024 24:00:00": None,
        "05/03/2024 01:02:03.5": None,
        "2024-03-05 01:02:03": None,
        "2024-03-05T01:02:03Z": None,
    },
    "d.M.yy H:m": {"5.3.24 1:2": "2024-03-05T01:02:00Z", "15.12.99 11:12": "2099-12-15T11:12:00Z"},
    "dd MMM yyyy hh:mm a": {
        "05 Mar 2024 12:02 AM": "2024-03-05T00:02:00Z",
        "05 may 2024 01:02 pm": "2024-05-05T13:02:00Z",
        "05 Mar 2024 13:02 PM": None,
    },
    "yyyy-MM-dd''HH:mm:ss[.SSS]": {
        "2024-03-05'01:02:03.25": "2024-03-05T01:02:03.250Z",
        "2024-03-05'01:02:03": "2024-03-05T01:02:03Z",
    },
    "yyyy-MM-dd'T'HH:mmX": {
        "2024-03-05T01:02Z": "2024-03-05T01:02:00Z",
        "2024-03-05T01:02-0230": "2024-03-05T03:32:00Z",
        "2024-03-05T01:02+02:00": None,
    },
    "yyyy-MM-dd'T'HH:mmXXX": {"2024-03-05T01:02+02:00": "2024-03-04T23:02:00Z", "2024-03-05T01:02+02": None},
    "yyyy-MM-dd HH:mmZ": {"2024-03-05 01:02+0200": "2024-03-04T23:02:00Z", "2024-03-05 01:02Z": None},
}


def ran(job: Any, engine: str, request: Any) -> None:
    if engine == "local":
        Resident(job).run(drain=True)
    else:
        jobs.run(job, request.getfixturevalue("spark"), drain=True).awaitTermination()


def read(time: str) -> datetime:
    return datetime.fromisoformat(time)


@pytest.mark.spark
@pytest.mark.parametrize("pattern", TIMES)
@pytest.mark.parametrize("engine", ["local", "spark"])
def test_times_are_read_by_a_pattern(tmp_path: Path, request: Any, engine: str, pattern: str) -> None:
    data = "".join(f'k{i},"{text}",0,0\n' for i, text in enumerate(TIMES[pattern]))
    more = f'{SCHEMA.format(kind="TIMESTAMP")}\noptions = {{ timestampFormat = "{pattern}" }}'
    ran(write(tmp_path, "csv", {"a.csv": data.encode()}, more, engine=engine), engine, request)
    good = {f"k{i}": read(time) for i, time in enumerate(TIMES[pattern].values()) if time is not None}
    assert {row["key"]: read(row["time"]) for row in lines(tmp_path / "out")} == good
    assert len(lines(tmp_path / "bad")) == len(TIMES[pattern]) - len(good)


@pytest.mark.spark
@pytest.mark.parametrize("engine", ["local", "spark"])
def test_dates_are_read_by_a_pattern(tmp_path: Path, request: Any, engine: str) -> None:
    schema = 'schema = "id STRING, at DOUBLE, x DOUBLE, y DOUBLE, born DATE"'
    data = b"a,1,0,0,05/03/2024\nb,2,0,0,2024-03-05\nc,3,0,0,\n"
    more = f'{schema}\ncarry = ["born"]\noptions = {{ dateFormat = "dd/MM/yyyy" }}'
    ran(write(tmp_path, "csv", {"a.csv": data}, more, engine=engine), engine, request)
    found = {row["key"]: row.get("born") for row in lines(tmp_path / "out")}
    assert found == {"a": "2024-03-05", "c": None}
    assert len(lines(tmp_path / "bad")) == 1


@pytest.mark.parametrize(
    ("form", "options", "said"),
    [
        ("csv", 'timestampformt = "x"', r"sources.vans.options: timestampformt .* Did you mean 'timestampFormat'\?"),
        ("csv", 'comment = "#"', r"comment is not read in process .* Known in process: header, .* engine = 'spark'"),
        ("csv", "inferSchema = false", "inferSchema is False, and types are inferred in process"),
        ("csv", 'timestampFormat = "yyyy-QQ"', r"timestampFormat = 'yyyy-QQ' is not read in process: QQ is not known"),
        ("csv", 'dateFormat = "yyyy-MM-ddTHH"', "T is not known. .* y, M, d, H, h, m, s, S, a, X, Z"),
        ("csv", 'dateFormat = "yyyy [MM"', r"a \[ in it has no \]"),
        ("csv", 'dateFormat = "yyyy yyyy"', "y is in it twice"),
        ("json", 'timestampFormat = "yyyy"', "timestampFormat is not read in process of files of json"),
        ("parquet", "header = true", "header is not read in process of files of parquet. Leave it out"),
        ("orc", 'maxFileAge = "7d"', r"maxFileAge is not .* of orc. Leave it out. Or set engine = 'spark'"),
    ],
)
def test_options_without_effect_in_process_are_errors(tmp_path: Path, form: str, options: str, said: str) -> None:
    with pytest.raises(JobError, match=said):
        write(tmp_path, form, {}, f"{SCHEMA.format(kind='TIMESTAMP')}\noptions = {{ {options} }}")


def test_a_pattern_wants_a_schema_in_process(tmp_path: Path) -> None:
    with pytest.raises(JobError, match="timestampFormat is for columns whose type a schema says"):
        write(tmp_path, "csv", {}, 'options = { header = true, timestampFormat = "yyyy" }')


def test_options_of_sinks_without_effect_in_process_are_errors(tmp_path: Path) -> None:
    job = write(tmp_path, "csv", {}, SCHEMA.format(kind="TIMESTAMP"), sink="csv")
    text = job.file.read_text(encoding="utf-8")
    for options, said in (
        ("header = true", None),
        ('header = true, sep = ";"', r"sink.options: sep has no effect on files of csv in process. Known .* header."),
    ):
        job.file.write_text(text.replace("[sink]", f"[sink]\noptions = {{ {options} }}"), encoding="utf-8")
        if said is None:
            jobs.load(job.file)
        else:
            with pytest.raises(JobError, match=said):
                jobs.load(job.file)
    job.file.write_text(text.replace("[rejects]", '[rejects]\noptions = { compression = "gzip" }'), encoding="utf-8")
    with pytest.raises(JobError, match=r"rejects.options: compression has no effect .* Or set engine = 'spark'"):
        jobs.load(job.file)


def test_options_without_effect_on_spark_are_errors(tmp_path: Path) -> None:
    more = SCHEMA.format(kind="TIMESTAMP") + "\noptions = {{ TimestampFormat = 'QQ', 'fs.s3a.endpoint' = 'x', {} }}"
    write(tmp_path, "csv", {}, more.format("comment = '#'"), engine="spark")
    said = r"timestampformt is not an option .* on Spark. Did you mean 'timestampFormat'\?"
    with pytest.raises(JobError, match=said):
        write(tmp_path / "more", "csv", {}, more.format("timestampformt = 'x'"), engine="spark")


@pytest.mark.spark
def test_all_options_of_spark_are_known(spark: Any) -> None:
    packages = "org.apache.spark.sql.catalyst", "org.apache.spark.sql.execution.datasources"
    names = {
        "csv": [f"{packages[0]}.csv.CSVOptions"],
        "json": [f"{packages[0]}.json.JSONOptions"],
        "parquet": [f"{packages[1]}.parquet.ParquetOptions"],
        "orc": [f"{packages[1]}.orc.OrcOptions"],
    }
    for form, known in _SPARK.items():
        for name in [*names[form], f"{packages[1]}.FileIndexOptions"]:
            kind = spark._jvm.java.lang.Class.forName(f"{name}$").getField("MODULE$").get(None)
            every = kind.getAllOptions().toSeq()
            options = {every.apply(i).lower() for i in range(every.size())}
            assert {one for one in options if "." not in one} <= set(known.lower().split())


def test_plan_and_explain_say_what_could_not_be_decoded(tmp_path: Path) -> None:
    data = b"a,05/03/2024,0,0\nb,06/03/2024,0,0\n"
    job = write(tmp_path, "csv", {"a.csv": data}, SCHEMA.format(kind="TIMESTAMP"))
    why = "2 lines could not be decoded, the first because of this: a.csv, line 1: the line does not fit"
    planned = CliRunner().invoke(app, ["plan", str(job.file)])
    assert planned.exit_code == 2
    assert f"have no rows: nothing can be tried. {why}" in planned.output.replace("\n", " ")
    explained = CliRunner().invoke(app, ["explain", str(job.file)])
    assert f"vans: {why}" in explained.output
    found = json.loads(CliRunner().invoke(app, ["explain", str(job.file), "--json"]).stdout)["undecoded"]
    assert found["vans"]["lines"] == 2
    (tmp_path / "in" / "b.csv").write_bytes(b"".join(b"c,2024-03-05 00:00:%02d,0,0\n" % i for i in range(60)))
    assert f"Note: vans: {why}" in CliRunner().invoke(app, ["plan", str(job.file)]).output
