"""Imputers and rules in job files: what is right runs as the calls do, what is wrong is told in its place."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import appulse as ap
from appulse import jobs
from appulse.errors import JobError
from appulse.imputation.dependencies import to_toml
from tests.cli.test_jobs import wrong

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

RULES = [
    ap.DifferentialDependency({"a": 0.1}, "b", 1.0, 0.9),
    ap.DifferentialDependency({"b": 0.1}, "a", 1.0, 0.9, where={"b": (0.0, 0.9)}),
]
JOB = """\
checkpoint = "checkpoint"

[defaults]
format = "parquet"
key = "id"
time = "at"
value = { model = "Incomplete", columns = ["a", "b"] }

[sources.near]
path = "near"

[sources.far]
path = "far"

[similarity_join]
epsilon = 0.2
probability = 0.3
window = 5

[imputer]
repository = { format = "parquet", path = "history" }
rules = "rules.toml"

[sink]
format = "parquet"
path = "pairs"
"""


def tables() -> dict[str, pa.Table]:
    chance = np.random.default_rng(3)
    found = {}
    for name, n in (("history", 200), ("near", 60), ("far", 60)):
        a = chance.random(n)
        values = np.column_stack([a, a + 0.05 * chance.normal(size=n)])
        lost = (chance.random((n, 2)) < 0.3) & (name != "history")
        columns = {column: pa.array(values[:, k], mask=lost[:, k]) for k, column in enumerate("ab")}
        found[name] = pa.table({"id": np.arange(n), "at": np.arange(n), **columns})
    return found


@pytest.fixture
def job(tmp_path: Path) -> Path:
    for name, table in tables().items():
        (tmp_path / name).mkdir()
        pq.write_table(table, tmp_path / name / "rows.parquet")
    (tmp_path / "rules.toml").write_text(to_toml(RULES))
    (tmp_path / "job.toml").write_text(JOB)
    return tmp_path / "job.toml"


def repeated(table: pa.Table) -> Counter[str]:
    rows = table.to_pylist()
    for row in rows:
        row |= {name: round(value, 9) for name, value in row.items() if isinstance(value, float)}
    return Counter(map(repr, rows))


def in_process(imputer: Any) -> pa.Table:
    value = ap.Incomplete("a", "b")
    streams = [ap.Stream(tables()[name], key="id", time="at", value=value, name=name) for name in ("near", "far")]
    return ap.similarity_join(*streams, epsilon=0.2, probability=0.3, window=ap.TimeWindow(5), imputer=imputer)


def test_rules_in_a_file_or_in_the_job_are_the_same(job: Path, spark: SparkSession) -> None:
    assert jobs.validate(job) == []
    checked = jobs.load(job)
    assert checked.missing() == []
    expected = repeated(in_process(ap.DependencyImputer(tables()["history"].select(["a", "b"]), RULES)))
    assert repeated(jobs.build(checked, spark, streaming=False).toArrow()) == expected
    assert len(expected) > 50
    written = "\n".join(to_toml([rule]).replace("[[dependency]]", "[[imputer.dependency]]") for rule in RULES)
    assert wrong(job, 'rules = "rules.toml"\n', written) == []
    (job.parent / "rules.toml").unlink()
    assert jobs.load(job).table.imputer is not None
    assert repeated(jobs.build(jobs.load(job), spark, streaming=False).toArrow()) == expected


def test_sources_may_have_imputers_of_their_own(job: Path, spark: SparkSession) -> None:
    own = (
        '[imputers.near]\nkind = "NearestImputer"\nk = 3\nrepository = { format = "parquet", path = "history" }\n'
        '[imputers.far]\nkind = "ZeroFill"\n'
    )
    begin, end = JOB.index("[imputer]"), JOB.index("[sink]")
    assert wrong(job, JOB[begin:end], own) == []
    found = jobs.build(jobs.load(job), spark, streaming=False).toArrow()
    nearest = ap.NearestImputer(tables()["history"].select(["a", "b"]), k=3)
    assert repeated(found) == repeated(in_process({"near": nearest, "far": ap.ZeroFill()}))


def test_a_saved_imputer_is_named_by_its_folder(job: Path, spark: SparkSession) -> None:
    imputer = ap.DependencyImputer(tables()["history"].select(["a", "b"]), RULES)
    imputer.save(job.parent / "versions")
    begin, end = JOB.index("[imputer]"), JOB.index("[sink]")
    assert wrong(job, JOB[begin:end], '[imputer]\nkind = "SavedImputer"\npath = "versions"\n') == []
    found = jobs.build(jobs.load(job), spark, streaming=False).toArrow()
    assert repeated(found) == repeated(in_process(imputer))


def test_rows_around_fill_the_sources_of_a_job(job: Path, spark: SparkSession) -> None:
    own = '[imputer]\nkind = "SpeedImputer"\nspeeds = { a = 0.2 }\nwait = "4 seconds"\n'
    begin, end = JOB.index("[imputer]"), JOB.index("[sink]")
    assert wrong(job, JOB[begin:end], own) == []
    found = jobs.build(jobs.load(job), spark, streaming=False).toArrow()
    assert repeated(found) == repeated(in_process(ap.SpeedImputer({"a": 0.2}, wait="4 seconds")))
    assert len(found) > 50
    assert "names an attribute 'c'" in wrong(job, "speeds = { a", "speeds = { c")[0]


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("rules =", "rule =", "imputer.rule: unknown key. Did you mean 'rules'?"),
        ("[imputer]", "[imputr]", "imputr: unknown key. Did you mean 'imputer'?"),
        ('"Incomplete"', '"Incomplet"', "defaults.value.model: is 'Incomplet'. Did you mean 'Incomplete'?"),
        ("[imputer]", '[imputer]\nkind = "Dependency"', "imputer.kind: is 'Dependency' (text). Did you mean"),
        ("[imputer]", '[imputer]\nkind = "MeanImputer"', "imputer: rules is not for a MeanImputer, which takes: repo"),
        ("[imputer]", '[imputer]\nkind = "SavedImputer"', "imputer: repository is not for a SavedImputer"),
        ("[imputer]", "[imputer]\nk = 3", "imputer: k is not for a DependencyImputer"),
        ("[imputer]", "[imputer]\nmarginal = 0", "imputer.marginal: is 0 (a number), wanted at least 1."),
        ('rules = "rules.toml"', "", "imputer: give rules, a file"),
        ('rules = "rules.toml"', 'rules = "none.toml"', "imputer: Dependencies cannot be read"),
        ('repository = { format = "parquet", path = "history" }', "", "imputer: a DependencyImputer needs repository"),
        ('path = "history" }', 'path = "history", x = 1 }', "imputer.repository.x: unknown key."),
        ("[imputer]", "[imputers.nea]", "[imputers.nea] names no source. Did you mean 'near'?"),
        ("[imputer]", "[imputers.near]", "Values of stream 'far' are Incomplete, and nothing fills them."),
        ("[sink]", '[imputers.near]\nkind = "ZeroFill"\n[sink]', "Give [imputer], for all sources, or [imputers.NAME]"),
        ('["a", "b"]', '["a", "at", "b", "c"]', "has no column 'c'"),
        (
            'rules = "rules.toml"',
            '[[imputer.dependency]]\ndeterminants = { a = 0.1 }\ndependent = "b"\ntoleranse = 1',
            "imputer.dependency.0.toleranse: unknown key. Did you mean 'tolerance'?",
        ),
        (
            'rules = "rules.toml"',
            '[[imputer.dependency]]\ndeterminants = { a = 0.1 }\ndependent = "a"\ntolerance = 1',
            "imputer.dependency.0: A DifferentialDependency fills 'a' from itself.",
        ),
        (
            'rules = "rules.toml"',
            '[[imputer.dependency]]\ndeterminants = { z = 0.1 }\ndependent = "a"\ntolerance = 1',
            "names 'z'",
        ),
    ],
)
def test_what_is_wrong_is_told_in_its_place(job: Path, old: str, new: str, told: str) -> None:
    problems = wrong(job, old, new)
    assert any(told in problem for problem in problems), problems
    with pytest.raises(JobError):
        jobs.load(job)


def test_a_repository_without_files_is_told_and_no_fault_of_the_job(job: Path) -> None:
    assert wrong(job, 'path = "history"', 'path = "nowhere"') == []
    assert str(jobs.load(job).missing()[0]).startswith("imputer.repository.path: there are no files at ")


def test_aggregates_fill_nothing(job: Path) -> None:
    wrong(job, '[sources.far]\npath = "far"\n', "")
    found = wrong(
        job,
        "[similarity_join]\nepsilon = 0.2\nprobability = 0.3\n",
        '[window_aggregate]\naggregates = { a = "sum" }\n',
    )
    assert found == ["[imputer] fills the sources of a join, and [window_aggregate] is none."]
