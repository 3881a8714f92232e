"""Job files with something wrong in them, at random: it is reported as a `Problem`, and nothing else is raised."""

from __future__ import annotations

import json
import math
from copy import deepcopy
from datetime import UTC, date, datetime, time
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import appulse as ap
from appulse import jobs
from appulse.errors import JobError
from appulse.imputation.dependencies import to_toml

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

Job = dict[str, Any]

MUTANTS = 300  # of each kind of job
RULES = [ap.DifferentialDependency({"a": 0.1}, "b", 1.0, 0.9)]
SQL = "-- close\nnear.a - far.a BETWEEN -1 AND 1\n-- in order\nnear.a < far.a WITHIN 2 SECONDS\n"

ROWS = {"format": "parquet", "path": "rows", "key": "id", "time": "at"}
EXACT = ROWS | {"value": {"model": "Exact", "columns": ["a", "b"]}}
GAUSSIAN = ROWS | {"value": {"model": "Gaussian", "columns": ["a", "b"], "sigma": 0.5}, "lateness": "5 seconds"}
BALL = ROWS | {"value": {"model": "Ball", "columns": ["a"], "radius": "b", "samples": 8}, "where": "a > 0.5"}
SAMPLES = ROWS | {"value": {"model": "Samples", "column": "s", "names": ["a"]}, "existence": "p"}
HOLES = ROWS | {"value": {"model": "Incomplete", "columns": ["a", "b"]}, "partition_by": ["room"]}
JOIN = {"epsilon": 0.5, "probability": 0.5, "window": "10 seconds"}
HISTORY = {"format": "parquet", "path": "rows"}
READINGS = ROWS | {"key": "room", "value": "a", "lateness": "1 minute"}
ENDS = {
    "sink": {"format": "parquet", "path": "pairs", "options": {"compression": "zstd"}},
    "rejects": {"format": "json", "path": "rejects"},
    "checkpoint": "checkpoint",
}
OTHER_ENDS = {
    "sink": {"format": "kafka", "servers": "host:9092", "topic": "pairs", "key": "left_key"},
    "rejects": {"format": "jdbc", "url": "jdbc:postgresql://host/base", "table": "rejects", "options": {"user": "me"}},
    "checkpoint": "checkpoint",
}
JOBS: dict[str, Job] = {
    "join": {
        "defaults": {"format": "parquet", "key": "id", "time": "at", "value": GAUSSIAN["value"]},
        "sources": {"near": {"path": "rows", "max_files_per_trigger": 1}, "far": {"path": "rows", "unit": "ms"}},
        "similarity_join": JOIN | {"window": {"time": 10, "per_stream": {"near": "1 minute"}}},
        "partitions": 4,
        "sample": 100,
    },
    "count": {"sources": {"near": SAMPLES, "far": BALL}, "similarity_join": JOIN | {"window": {"count": 5}}},
    "self_join": {"sources": {"near": EXACT}, "self_join": JOIN | {"different": "room", "emit": "changes"}},
    "text": {
        "sources": {
            "near": EXACT | {"format": "csv", "path": "table.csv", "schema": "id INT, at LONG, a DOUBLE, b DOUBLE"}
        },
        "self_join": JOIN,
        "prepare": "python prepare.py",
    },
    "aggregate": {
        "sources": {"near": EXACT | {"existence": "p"}},
        "window_aggregate": {
            "aggregates": {"a": ["sum", "count"]},
            "window": {"uncertain_count": 5, "confidence": 0.9, "method": "normal"},
            "distribution": True,
        },
    },
    "match": {
        "sources": {"near": EXACT},
        "match_queries": {"conditions": {"low": "a < 1", "both": "a > 0 AND b > 0.5"}, "probability": 0.5},
    },
    "match_two": {
        "sources": {"near": EXACT, "far": EXACT},
        "match_queries": {
            "path": "rules.sql",
            "window": "10 seconds",
            "aggregate": {"n": "count", "most": ["sum", "near.a"]},
        },
    },
    "changes": {"sources": {"near": EXACT}, "match_queries": {"changes": {"format": "parquet", "path": "queries"}}},
    "topics": {
        "sources": {
            "near": EXACT | {"format": "delta"},
            "far": {
                "format": "kafka",
                "servers": "host:9092",
                "topics": ["far", "farther"],
                "schema": "id INT, at LONG, a DOUBLE, b DOUBLE",
                "message": "json",
                "max_messages_per_trigger": 1000,
                "key": "id",
                "time": "at",
                "value": EXACT["value"],
                "options": {"startingOffsets": "latest"},
            },
        },
        "similarity_join": JOIN,
    },
    "imputer": {
        "sources": {"near": HOLES, "far": HOLES},
        "similarity_join": JOIN,
        "imputer": {"repository": HISTORY, "rules": "rules.toml", "joint": True, "marginal": 16},
    },
    "imputers": {
        "sources": {"near": HOLES, "far": HOLES, "third": HOLES},
        "similarity_join": JOIN,
        "imputers": {
            "near": {"kind": "NearestImputer", "repository": HISTORY, "k": 3},
            "far": {
                "repository": HISTORY,
                "dependency": [{"determinants": {"a": 0.1}, "dependent": "b", "tolerance": 1.0, "confidence": 0.9}],
            },
            "third": {"kind": "SavedImputer", "path": "saved"},
        },
    },
    "sensor_join": {
        "sources": {"near": READINGS | {"carry": "id"}},
        "sensor_join": {"within": 0.2, "window": "20 seconds"},
    },
    "phenomena": {
        "sources": {"near": READINGS},
        "phenomena": {
            "within": 0.2,
            "strength": 2,
            "span": "15 seconds",
            "reach": 1.5,
            "locations": {"format": "parquet", "path": "places"},
        },
    },
}

WORDS = [
    "",
    "x",
    "a",
    "near",
    "room",
    "s",
    "parquet",
    "Exact",
    "10 seconds",
    "-5 days",
    "9e99 years",
    "a > ",
    "\0",
    "é'\"",
]
NUMBERS = [0, -1, 1, 3, 0.5, -0.0, 1e308, 10**30, -(2**63), math.inf, math.nan]
OTHERS: list[Any] = [True, False, [], ["a"], [["a"]], [1, 2], {}, {"a": 1}, {"time": 5}, date(2024, 2, 29), time(1)]
MOMENT = datetime(2024, 2, 29, tzinfo=UTC)
PATHS = [
    *("half", "half/0.parquet", "empty", "word.parquet", "half.csv", "half.json", "half.sql", "half.toml", "bad.csv"),
    *("rows/*", "rows/0.parquet", "r*", "**", "**a", "a**b/[", "[", "{rows,half}", "places", "queries", "nowhere"),
    *("", " ", ".", "..", "/", "~", "~nobody-of-this-name/x", "loop", "a\0b", "n" * 300, "d/" * 3000, "\n", "é"),
    *("://", "file://rows", "s3a://bucket/\0", "/dev/null", "rules.sql/x", "../" * 80, "rules.sql", "table.csv"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the jobs read, and files that were only half written."""
    folder = tmp_path_factory.mktemp("jobs")
    n = 20
    rows = pa.table(
        {
            "id": np.arange(n),
            "at": np.arange(n),
            "a": np.linspace(0, 2, n),
            "b": np.linspace(1, 0, n),
            "p": np.full(n, 0.5),
            "room": pa.array(list("abcd") * 5),
            "s": pa.array([[0.0, 1.0]] * n),
        }
    )
    for name in ("rows", "half", "empty", "places", "queries", "saved"):
        (folder / name).mkdir()
    pq.write_table(rows, folder / "rows" / "0.parquet")
    places = pa.table({"room": list("abcd"), "x": np.arange(4.0), "y": np.arange(4.0)})
    pq.write_table(places, folder / "places" / "0.parquet")
    pq.write_table(
        pa.table({"query": ["q"], "condition": ["a < 1"], "change": ["add"]}), folder / "queries" / "0.parquet"
    )
    pyarrow.csv.write_csv(rows.drop(["s"]), folder / "table.csv")
    (folder / "rules.sql").write_text(SQL)
    (folder / "rules.toml").write_text(to_toml(RULES))
    whole = (folder / "rows" / "0.parquet").read_bytes()
    (folder / "half" / "0.parquet").write_bytes(whole[: len(whole) // 2])
    (folder / "word.parquet").write_bytes(b"PAR1")
    (folder / "half.csv").write_bytes((folder / "table.csv").read_bytes()[:-7])
    (folder / "bad.csv").write_bytes(b'query,condition\nq,"a <\xff 1\n')
    (folder / "half.json").write_text('{"id": 1, "at": 5}\n{"id": 2, "a')
    (folder / "half.sql").write_bytes(SQL.encode() + b"\xc3")
    (folder / "half.toml").write_text(to_toml(RULES)[:-9])
    (folder / "loop").symlink_to("loop")
    return folder


def written(value: Any) -> str:
    """A value in TOML."""
    match value:
        case bool():
            return str(value).lower()
        case str():
            return json.dumps(value)
        case dict():
            return f"{{{', '.join(f'{json.dumps(name)} = {written(inner)}' for name, inner in value.items())}}}"
        case list():
            return f"[{', '.join(map(written, value))}]"
        case date() | time():
            return value.isoformat()
        case _:
            return repr(value)


def file_of(job: Job) -> bytes:
    return "".join(f"{json.dumps(name)} = {written(value)}\n" for name, value in job.items()).encode()


def mutated(job: Job, chance: np.random.Generator) -> Job:
    """The job with one to three keys or values that are others, gone, twice or somewhere else."""
    job = deepcopy(job)
    for _ in range(chance.integers(1, 4)):
        spots = list(_spots(job))
        if not spots:
            break
        holder, key = spots[chance.integers(len(spots))]
        other, theirs = spots[chance.integers(len(spots))]
        match chance.integers(6):
            case 0:
                del holder[key]
            case 1 if isinstance(holder, dict):
                value = holder.pop(key)
                holder[_one(chance, [f"{key}x", "", "a\0", str(theirs)])] = value
            case 2:
                holder[key] = deepcopy(other[theirs])
            case 3:
                holder[key] = _one(chance, [[holder[key]], {"a": holder[key]}, str(holder[key])])
            case _:
                paths = key in ("path", "rules", "checkpoint") and chance.random() < 0.8
                holder[key] = _one(chance, PATHS if paths else [*WORDS, *NUMBERS, *OTHERS, MOMENT])
    return job


def _spots(holder: Any) -> Iterator[tuple[Any, Any]]:
    """Every key of every table, and every place of every list."""
    inside = holder.items() if isinstance(holder, dict) else enumerate(holder) if isinstance(holder, list) else ()
    for key, value in inside:
        yield holder, key
        yield from _spots(value)


def _one(chance: np.random.Generator, several: list[Any]) -> Any:
    return deepcopy(several[chance.integers(len(several))])


def scratched(text: bytes, chance: np.random.Generator) -> bytes:
    """The file with some bytes changed, cut off or said twice."""
    at, to = sorted(chance.integers(len(text), size=2).tolist())
    match chance.integers(4):
        case 0:
            return text[:at]
        case 1:
            return text[:at] + text[to:]
        case 2:
            return text[:to] + text[at:]
        case _:
            return text[:at] + bytes([_one(chance, list(b'\0\xff"=[]{}.,\n#0'))]) + text[at + 1 :]


def reported(file: Path) -> list[jobs.Problem]:
    """What is wrong with a job, all of which can be written; what is right is loaded as `appulse run` does."""
    problems = jobs.validate(file)
    assert all(isinstance(problem, jobs.Problem) and problem.what for problem in problems)
    if problems:
        with pytest.raises(JobError):
            jobs.load(file)
    else:
        job = jobs.load(file)
        places = [job.checkpoint, job.sink, job.rejects, [str(problem) for problem in job.missing()]]
        assert len(places) == 4
    return problems


@pytest.mark.parametrize("kind", JOBS)
def test_what_is_wrong_with_a_job_is_reported(kind: str, folder: Path) -> None:
    file = folder / f"{kind}.toml"
    job = JOBS[kind] | (OTHER_ENDS if kind == "topics" else ENDS)
    file.write_bytes(file_of(job))
    assert reported(file) == []
    chance = np.random.default_rng(len(kind))
    wrong = 0
    for number in range(MUTANTS):
        text = scratched(file_of(job), chance) if number % 10 == 0 else file_of(mutated(job, chance))
        file.write_bytes(text)
        try:
            wrong += bool(reported(file))
        except Exception as error:
            raise AssertionError(f"{text!r} ends in {type(error).__name__}: {error}") from error
    assert MUTANTS / 3 < wrong < MUTANTS


def test_a_job_of_brackets_is_reported(tmp_path: Path) -> None:
    """Deeper than the parser of TOML goes."""
    file = tmp_path / "job.toml"
    file.write_text("a = " + "[" * 5000)
    assert "cannot be read as TOML" in str(reported(file)[0])
    assert "cannot be read as TOML" in str(jobs.validate(f"{file}\0")[0])
