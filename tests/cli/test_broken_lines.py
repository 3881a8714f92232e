"""Files with lines that are no rows: these are rejects, and the other lines are rows all the same, on both engines."""

from __future__ import annotations

import gzip
import json
import os
import threading
import time
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import appulse as ap
from appulse import jobs
from appulse.cli import app
from appulse.connect import files as line_files
from appulse.engines import decoding
from appulse.errors import BadArgument, JobError
from appulse.jobs.resident import Resident

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

SCHEMA = 'schema = "id STRING, at DOUBLE, x DOUBLE, y DOUBLE"'
HEADER = "options = { header = true }"
JOB = """\
engine = "{engine}"
checkpoint = "checkpoint"
[sources.vans]
format = "{form}"
path = "in"
{more}
key = "id"
time = "at"
value = {{ model = "Exact", columns = ["x", "y"] }}
[match_queries]
probability = 0.5
conditions = {{ all = "x > -1" }}
[sink]
format = "{sink}"
path = "out"
[rejects]
format = "json"
path = "bad"
"""
CSV = {
    "a.csv": b'id,at,x,y\na,1,0,0\nb,2,1,x1\nc,3\nd,4,1,1,5,6\ne,,1,1\n\n  \nf,6,1,1\n"g ""q""",7,1,1\n'
    b'J\xf6rg,8.0,1.0,1.0\nJ\xc3\xb6rg,9,1,1\nu,"2,1,1\n"k, l",10,1,1\n,11,1,1\nm,12,1,NA\nn,13,1,1',
    "b.csv": b"",
    "c.csv": b"id,at,x,y\r\no,14,1,1\r\np,15\r\n",
    "d.csv": b"id,at,x,y\n",
}
BROKEN_CSV = ["b,2,1,x1", "c,3", "d,4,1,1,5,6", "J\ufffdrg,8.0,1.0,1.0", 'u,"2,1,1', "m,12,1,NA", "p,15"]
CSV_KEYS = ["Jörg", "a", "f", 'g "q"', "k, l", "n", "o"]
JSON = {
    "a.json": b'{"id":"a","at":1,"x":0,"y":0}\n{"id":"b","at":2,"x":1\n{"id":"c","at":"3","x":1,"y":1}\n[1,2]\n\n \t\n'
    b'null\n{"id":"f","at":6,"x":1,"y":1,"z":[{"q":1}]}\n{"id":"J\xf6","at":7,"x":0,"y":0}\n'
    b'{"id":"J\xc3\xb6rg","at":8,"x":0,"y":0}\n5\n{"at":9,"x":1,"y":1}\n'
    b'{"id":5,"at":11,"x":1,"y":1}\n{"id":{"a":[1.5,true]},"at":12,"x":1,"y":1}\n',
    "b.json": b"",
    "c.json": b'null\n{"id":"g","at":10,"x":1,"y":1}\n',
    "d.json": b"null",
}
BROKEN_JSON = [
    '{"id":"b","at":2,"x":1',
    '{"id":"c","at":"3","x":1,"y":1}',
    "[1,2]",
    "null",
    '{"id":"J\ufffd","at":7,"x":0,"y":0}',
    "5",
    "null",
    "null",
]
JSON_KEYS = ["5", "Jörg", "a", "f", "g", '{"a":[1.5,true]}']
CASES = {
    "csv": (CSV, f"{SCHEMA}\n{HEADER}", CSV_KEYS, BROKEN_CSV),
    "json": (JSON, SCHEMA, JSON_KEYS, BROKEN_JSON),
}


def write(folder: Path, form: str, files: Mapping[str, bytes], more: str, **settings: str) -> Any:
    (folder / "in").mkdir(parents=True)
    for i, (name, data) in enumerate(files.items()):
        (folder / "in" / name).write_bytes(data)
        os.utime(folder / "in" / name, (1_700_000_000 + i, 1_700_000_000 + i))
    text = JOB.format(**{"engine": "local", "form": form, "more": more, "sink": "json", **settings})
    (folder / "job.toml").write_text(text, encoding="utf-8")
    return jobs.load(folder / "job.toml")


def lines(folder: Path) -> list[dict[str, Any]]:
    found = sorted(folder.glob("*.json"))
    return [json.loads(line) for file in found for line in file.read_text(encoding="utf-8").splitlines()]


def rejects(folder: Path) -> list[tuple[str, str, str]]:
    return sorted((row["stream"], row["reason"], row["values"]) for row in lines(folder / "bad"))


def wanted(broken: list[str]) -> list[tuple[str, str]]:
    return sorted(("cannot be decoded", line) for line in broken)


def undecoded(folder: Path) -> list[tuple[str, str]]:
    return sorted((reason, values) for _, reason, values in rejects(folder) if reason == "cannot be decoded")


@pytest.mark.parametrize("form", CASES)
def test_broken_lines_are_rejects(tmp_path: Path, form: str) -> None:
    files, more, keys, broken = CASES[form]
    job = write(tmp_path, form, files, more)
    resident = Resident(job)
    resident.run(drain=True)
    assert sorted(row["key"] for row in lines(tmp_path / "out")) == sorted(keys)
    assert undecoded(tmp_path) == wanted(broken)
    bad = lines(tmp_path / "bad")
    assert len(bad) == len(broken) + 1 + (form == "csv")  # no key; in CSV one without a time, too
    assert all(row["detail"].startswith(f"a.{form}, line ") for row in bad if row["values"] == broken[0])
    if form == "csv":
        assert any("column 'y': CSV conversion error to double: invalid value 'x1'" in row["detail"] for row in bad)
    Resident(job).run(drain=True)  # it goes on from its checkpoint
    assert lines(tmp_path / "bad") == bad


@pytest.mark.spark
@pytest.mark.parametrize("form", CASES)
def test_broken_lines_are_the_same_rejects_on_spark(tmp_path: Path, spark: Any, form: str) -> None:
    files, more, keys, broken = CASES[form]
    Resident(write(tmp_path / "local", form, files, more)).run(drain=True)
    jobs.run(write(tmp_path / "spark", form, files, more, engine="spark"), spark, drain=True).awaitTermination()
    assert sorted(row["key"] for row in lines(tmp_path / "spark" / "out")) == sorted(keys)
    assert undecoded(tmp_path / "spark") == wanted(broken)
    assert rejects(tmp_path / "spark") == rejects(tmp_path / "local")
    bad = lines(tmp_path / "spark" / "bad")
    assert {row["detail"].split(":")[0] for row in bad if row["values"] in broken} == {f"a.{form}", f"c.{form}"} | (
        {"d.json"} if form == "json" else set()
    )


def test_a_text_that_is_not_utf_8_never_reaches_a_sink(tmp_path: Path) -> None:
    files = {"a.json": b'{"id":"J\xf6","at":1,"x":0,"y":0}\n{"id":"b","at":2,"x":1,"y":1}\n'}
    Resident(write(tmp_path, "json", files, SCHEMA, sink="parquet")).run(drain=True)
    found = ds.dataset(sorted((tmp_path / "out").glob("*.parquet"))).to_table()
    found.validate(full=True)
    assert found["key"].to_pylist() == ["b"]
    assert undecoded(tmp_path) == wanted(['{"id":"J\ufffd","at":1,"x":0,"y":0}'])


@pytest.mark.parametrize("form", CASES)
def test_columns_are_those_of_the_lines_that_are_rows(tmp_path: Path, form: str) -> None:
    """Without a schema."""
    files = {
        "csv": b"id,at,x,y\na,1,0,0\nb,2\nc,3,1,1\n",
        "json": b'{"id":"a","at":1,"x":0,"y":0}\nnull\n{"id":"c","at":3,"x":1,"y":1}\n',
    }
    later = {name: data.replace(b"a", b"d", 2 if name == "csv" else 1) for name, data in files.items()}
    later["csv"] = later["csv"].replace(b"id,dt", b"id,at").replace(b"\na,", b"\nd,")
    more = HEADER if form == "csv" else ""
    both = {f"0.{form}": b"", f"1.{form}": files[form], f"2.{form}": later[form]}
    Resident(write(tmp_path, form, both, more)).run(drain=True)
    assert sorted(row["key"] for row in lines(tmp_path / "out")) == ["a", "c", "c", "d"]
    assert undecoded(tmp_path) == wanted(2 * ["b,2" if form == "csv" else "null"])


def test_files_without_columns_ask_for_a_schema(tmp_path: Path) -> None:
    resident = Resident(write(tmp_path, "json", {"a.json": b"{\nnull\n"}, ""))
    with pytest.raises(BadArgument, match=r"in/a.json has no line that can be read, .* Give the schema"):
        resident.run(drain=True)


def test_nothing_but_broken_lines_are_rejects(tmp_path: Path) -> None:
    Resident(write(tmp_path, "csv", {"a.csv": b"a,1\nb\n"}, SCHEMA)).run(drain=True)
    assert undecoded(tmp_path) == wanted(["a,1", "b"])


def test_a_broken_file_that_comes_later_does_not_end_a_job(tmp_path: Path) -> None:
    resident = Resident(write(tmp_path, "csv", {"a.csv": b"a,1,0,0\n"}, SCHEMA))
    stop = threading.Event()
    thread = threading.Thread(target=resident.run, args=(stop,))
    thread.start()
    end = time.monotonic() + 60
    try:
        while resident.totals["rows"] < 1 and time.monotonic() < end:
            time.sleep(0.01)
        (tmp_path / "in" / ".b").write_bytes(b"b,2\nc,3,1,1\n")
        (tmp_path / "in" / ".b").rename(tmp_path / "in" / "b.csv")
        while resident.totals["rows"] < 3 and time.monotonic() < end:
            time.sleep(0.01)
    finally:
        stop.set()
        thread.join(60)
    assert sorted(row["key"] for row in lines(tmp_path / "out")) == ["a", "c"]
    assert undecoded(tmp_path) == wanted(["b,2"])


def test_the_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    job = write(tmp_path, "parquet", {}, "")
    table = pa.table({"id": ["a"], "at": [1.0], "x": [0.0], "y": [0.0]})
    for name in "abc":
        pq.write_table(table, tmp_path / "in" / f"{name}.parquet")
    whole = (tmp_path / "in" / "b.parquet").read_bytes()
    (tmp_path / "in" / "b.parquet").write_bytes(whole[:200])
    with pytest.raises(BadArgument, match=r"sources.vans.path: \S+/in/b.parquet cannot be read: "):
        Resident(job).run(drain=True)


@pytest.mark.spark
@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("form", CASES)
def test_folders_with_parts_have_broken_lines_too(tmp_path: Path, spark: Any, form: str, *, known: bool) -> None:
    data = {"csv": b"id,at,x,y\na,1,0,0\nb\n", "json": b'{"id":"a","at":1,"x":0,"y":0}\nb\n'}[form]
    schema = SCHEMA.replace('y DOUBLE"', 'y DOUBLE, day STRING"') if known else ""
    write(tmp_path, form, {}, f'{schema}\n{HEADER if form == "csv" else ""}\ncarry = ["day"]', engine="spark")
    for day in ("01", "02"):
        (tmp_path / "in" / f"day={day}").mkdir()
        (tmp_path / "in" / f"day={day}" / f"a.{form}").write_bytes(data)
    jobs.run(jobs.load(tmp_path / "job.toml"), spark, drain=True).awaitTermination()
    assert sorted(row["day"] for row in lines(tmp_path / "out")) == (["01", "02"] if known else [1, 2])
    assert undecoded(tmp_path) == wanted(["b", "b"])


@pytest.mark.spark
@pytest.mark.parametrize("form", CASES)
def test_folders_with_parts_may_come_later(tmp_path: Path, spark: Any, form: str) -> None:
    data = {"csv": b"a,1,0,0\nb\n", "json": b'{"id":"a","at":1,"x":0,"y":0}\nb\n'}[form]
    schema = SCHEMA.replace('y DOUBLE"', 'y DOUBLE, day INT"')
    job = write(tmp_path, form, {}, f'{schema}\ncarry = ["day"]', engine="spark")
    query = jobs.run(job, spark)
    try:
        (tmp_path / "day=5").mkdir()
        (tmp_path / "day=5" / f"a.{form}").write_bytes(data)
        (tmp_path / "day=5").rename(tmp_path / "in" / "day=5")
        query.processAllAvailable()
    finally:
        query.stop()
    assert [(row["key"], row["day"]) for row in lines(tmp_path / "out")] == [("a", 5)]
    assert undecoded(tmp_path) == wanted(["b"])


OPTIONS = {
    "a line may go on": (b'id,at,x,y\n"a\nb",1,0,0\nc,2\n', "header = true, multiLine = true", ["a\nb"], ["c,2"]),
    "or not": (b'id,at,x,y\n"a\nb",1,0,0\nc,2,1,1\n', "header = true", ['b"', "c"], ['"a']),
    "an encoding": (b"id,at,x,y\nJ\xf6,1,0,0\nc\n", "header = true, encoding = 'ISO-8859-1'", ["Jö"], ["c"]),
    "other marks": (b"'a;''b''';1;0;0\nc;2;NA;1\n", 'sep = ";", quote = "\'", nullValue = "NA"', ["a;'b'"], []),
    "no value": (b"NA,1,0,0\nb,2,NA,1\nc,3,1,1\n", "nullValue = 'NA'", ["c"], []),
    "no value in other letters": (
        "\u00f8,1,0,0\nb,2,\u00f8,1\n\u00f8\u00f8,3,1,1\n".encode(),
        "nullValue = '\u00f8'",
        ["\u00f8\u00f8"],
        [],
    ),
    "a tab": (b"a\t1\t0\t0\n", "sep = '\\t'", ["a"], []),
    "an escape": (b'"a \\"b\\"",1,0,0\n', "escape = '\\'", ['a "b"'], []),
}


@pytest.mark.spark
@pytest.mark.parametrize("case", OPTIONS)
@pytest.mark.parametrize("engine", ["local", "spark"])
def test_options_count_on_both_engines(tmp_path: Path, request: Any, engine: str, case: str) -> None:
    data, options, keys, broken = OPTIONS[case]
    job = write(tmp_path, "csv", {"a.csv": data}, f"{SCHEMA}\noptions = {{ {options} }}", engine=engine)
    if engine == "local":
        Resident(job).run(drain=True)
    else:
        jobs.run(job, request.getfixturevalue("spark"), drain=True).awaitTermination()
    assert sorted(row["key"] for row in lines(tmp_path / "out")) == sorted(keys)
    assert undecoded(tmp_path) == wanted(broken)


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
@pytest.mark.parametrize("form", CASES)
def test_only_lines_near_broken_ones_are_taken_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str, end: bytes
) -> None:
    row = {"csv": "k{0},{0},0,0", "json": '{{"id":"k{0}","at":{0},"x":0,"y":0}}'}[form]
    every = [row.format(i).encode() for i in range(20_000)]
    broken = {3: b"b,3", 9_000: b"b,2", 9_001: b"", 9_002: b"b,4", 19_999: b"b,1"}
    data = [broken.get(i, one) for i, one in enumerate(every)]
    names = [b"", b"y,x,at,id"] if form == "csv" else []
    seen: list[int] = []
    fitting = decoding.fitting

    def counted(some: Any, *rest: Any) -> Any:
        seen.append(len(some))
        return fitting(some, *rest)

    monkeypatch.setattr(line_files if form == "csv" else decoding, "fitting", counted)
    more = f"{SCHEMA}\n{HEADER}" if form == "csv" else SCHEMA
    Resident(write(tmp_path, form, {f"a.{form}": end.join([*names, *data])}, more)).run(drain=True)
    assert len(lines(tmp_path / "out")) == len(every) - len(broken)
    places = {row["detail"].split(":")[0] for row in lines(tmp_path / "bad")}
    assert places == {f"a.{form}, line {i + 1 + len(names)}" for i, text in broken.items() if text}
    assert 0 < sum(seen) < len(every) / 4


def test_a_separator_of_several_characters_asks_for_spark(tmp_path: Path) -> None:
    job = write(tmp_path, "csv", {"a.csv": b"a||1||0||0\n"}, f"{SCHEMA}\noptions = {{ sep = '||' }}")
    with pytest.raises(JobError, match=r"have the separator '\|\|'.* set engine = 'spark'"):
        Resident(job).run(drain=True)


def test_compressed_files_have_broken_lines_too(tmp_path: Path) -> None:
    Resident(write(tmp_path, "csv", {"a.csv.gz": gzip.compress(b"a,1,0,0\nb\n")}, SCHEMA)).run(drain=True)
    assert [row["key"] for row in lines(tmp_path / "out")] == ["a"]
    assert undecoded(tmp_path) == wanted(["b"])


@pytest.mark.parametrize("form", CASES)
@pytest.mark.parametrize("command", ["explain", "plan"])
def test_what_looks_at_files_before_a_run_passes_over_broken_lines(tmp_path: Path, command: str, form: str) -> None:
    files, more, keys, _ = CASES[form]
    job = write(tmp_path, form, files, more)
    ran = CliRunner().invoke(app, [command, str(job.file), "--json"])
    assert ran.exit_code == 0, ran.output
    if command == "explain":
        found = json.loads(ran.stdout)
        assert (found["rows"], found["rejects"]) == ({"vans": len(keys) + 1 + (form == "csv")}, 1 + (form == "csv"))


def test_plan_has_no_rows_of_files_without_any(tmp_path: Path) -> None:
    job = write(tmp_path, "json", {"a.json": b"", "b.json": b"null\n"}, "")
    ran = CliRunner().invoke(app, ["plan", str(job.file)])
    assert (ran.exit_code, "its files have no column 'at'" in ran.output) == (2, True)


def test_a_recording_is_utf_8(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(b'{"id":"J\xf6","at":1}\n')
    with pytest.raises(BadArgument, match=r"a.json cannot be read: "):
        ap.replay(tmp_path / "a.json", time="at")
