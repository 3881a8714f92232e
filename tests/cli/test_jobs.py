"""Job files: what is right runs as the calls it stands for, what is wrong is told in its place."""

from __future__ import annotations

import os
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import appulse as ap
from appulse import jobs
from appulse.errors import JobError
from appulse.jobs.files import files_at
from appulse.jobs.planning import plan_job
from appulse.jobs.resident import Resident

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parents[2]
JOB = """\
checkpoint = "checkpoint"

[defaults]
format = "parquet"
key = "id"
time = "time"
value = { model = "Gaussian", columns = ["x", "y"], sigma = 1.0 }

[sources.near]
path = "near"
max_files_per_trigger = 1

[sources.far]
path = "far"
max_files_per_trigger = 1
lateness = "5 seconds"

[similarity_join]
epsilon = 5.0
probability = 0.5
window = "10 seconds"

[sink]
format = "parquet"
path = "pairs"

[rejects]
format = "json"
path = "rejects"
"""


def rows(seed: int, n: int = 120) -> pd.DataFrame:
    chance = np.random.default_rng(seed)
    frame = pd.DataFrame({"id": np.arange(n) + 1000 * seed, "time": np.arange(n, dtype=float)})
    frame[["x", "y"]] = chance.uniform(0, 20, (n, 2))
    frame.loc[7, "x"] = np.nan
    return frame


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """A job of two streams of three files each."""
    for seed, name in enumerate(("near", "far"), 1):
        (tmp_path / name).mkdir()
        for part in range(3):
            path = tmp_path / name / f"{part}.parquet"
            rows(seed)[part * 40 : part * 40 + 40].to_parquet(path)
            os.utime(path, (1_700_000_000 + part, 1_700_000_000 + part))  # Spark reads in the order of these
    file = tmp_path / "job.toml"
    file.write_text(JOB)
    return file


def in_process(window: Any = None) -> pd.DataFrame:
    value = ap.Gaussian("x", "y", sigma=1.0)
    streams = [ap.Stream(rows(i), key="id", time="time", value=value, name=n) for i, n in ((1, "near"), (2, "far"))]
    answers = ap.similarity_join(*streams, epsilon=5.0, probability=0.5, window=window or ap.TimeWindow(10))
    return in_order(answers.to_pandas())


def in_order(answers: pd.DataFrame) -> pd.DataFrame:
    return answers.sort_values(["left_key", "right_key"], ignore_index=True)


def wrong(file: Path, old: str, new: str) -> list[str]:
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new, 1))
    return [str(problem) for problem in jobs.validate(file)]


def test_a_job_is_right_and_knows_its_places(job: Path) -> None:
    assert jobs.validate(job) == []
    checked = jobs.load(job)
    assert checked.checkpoint == str(job.parent / "checkpoint")
    assert checked.sink == ("parquet", {"path": str(job.parent / "pairs")})
    assert checked.missing() == []


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (
            'path = "near"',
            'path = "near\\u0000"',
            "sources.near.path: is 'near\\x00', wanted a path, which has no NUL.",
        ),
        (
            'path = "near"',
            'path = "~nobody-of-this-name"',
            "sources.near.path: is '~nobody-of-this-name', and there is no",
        ),
        ('path = "near"', 'path = "half.parquet"', "sources.near.path: {0}/half.parquet cannot be read as Parquet: "),
        ('path = "pairs"', 'path = "\\u0000"', "sink.path: is '\\x00', wanted a path, which has no NUL."),
    ],
)
def test_odd_paths_and_files_half_written_are_told(job: Path, old: str, new: str, told: str) -> None:
    (job.parent / "half.parquet").write_bytes(b"PAR1")
    (problem,) = wrong(job, old, new)
    assert problem.startswith(told.format(job.parent))


@pytest.mark.parametrize("engine", ["spark", "local"])
@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ('path = "rejects"', 'path = "pairs"', "rejects.path: {0}/pairs is the folder of sink.path. "),
        ('path = "rejects"', 'path = "file://{0}/pairs/bad/"', "lies in {0}/pairs, the folder of sink.path. "),
        ('path = "pairs"', 'path = "checkpoint/pairs"', "lies in {0}/checkpoint, the folder of checkpoint. "),
        ('path = "pairs"', 'path = "near"', "sink.path: {0}/near is the folder of sources.near.path. "),
        ('path = "near"', 'path = "p*"', "sink.path: {0}/pairs lies in {0}/p*, the folder of sources.near.path. "),
    ],
)
def test_folders_that_are_not_apart_are_refused(job: Path, engine: str, old: str, new: str, expected: str) -> None:
    job.write_text(f'engine = "{engine}"\n{job.read_text()}')
    (problem,) = wrong(job, old, new.format(job.parent))
    assert expected.format(job.parent) in problem


def test_what_is_in_folders_of_a_pattern_may_have_their_names_as_columns(job: Path) -> None:
    text = job.read_text().replace('path = "near"', 'path = "near/*"\nschema = "id long, time double, x double"', 1)
    job.write_text(text)
    assert any("has no column 'y'" in str(problem) for problem in jobs.validate(job))
    (job.parent / "near" / "a" / "y=1").mkdir(parents=True)
    assert jobs.validate(job) == []


@pytest.mark.parametrize(
    ("engine", "old", "new", "expected"),
    [
        ("spark", 'path = "near"', 'path = "near"\nschema = "id long, time double, x double"', "has no column 'y'"),
        *(
            (
                engine,
                'path = "near"',
                'path = "near"\nschema = "id long, time DECIMALL(10, 2)"',
                "near.schema: columns can",
            )
            for engine in ("local", "spark")
        ),
        ("spark", 'path = "near"', 'path = "near"\nschema = "id long, time INTERVAL DAY"', ""),  # Spark knows more
        ("spark", 'path = "near"', 'path = "s3a://b/near"\nschema = "id long"', ""),  # may be in folders day=1
        *(
            ("spark", 'path = "near"', f'path = "near"\noptions = {{{{ {name} = "x" }}}}\nschema = "id long"', "")
            for name in ("basePath", "mergeSchema")  # adds columns
        ),
        (
            "spark",
            "[rejects]",
            "[[alerts]]\n{0}only={{ left_kye = 1 }}\n[rejects]",
            "alerts.0.only: only= names 'left_k",
        ),
        ("local", "[rejects]", "[[alerts]]\n{0}only={{ left_kye = 1 }}\n[rejects]", "Did you mean 'left_key'?"),
        ("spark", "[rejects]", "[[alerts]]\n{0}only={{ left_key = 1 }}\n[rejects]", ""),
        (
            "spark",
            'model = "Gaussian"',
            'model = "Incomplete"',
            "imputer: The imputer of stream 'near' lets a row",
        ),
        ("local", 'model = "Gaussian"', 'model = "Incomplete"', ""),
    ],
)
def test_what_the_file_shows_is_reported_before_a_run(
    job: Path, engine: str, old: str, new: str, expected: str
) -> None:
    text = job.read_text().replace(old, new.format('format = "webhook"\nurl = "http://x"\n'), 1)
    if "Incomplete" in new:
        text += '[imputer]\nkind = "LastValueImputer"\n'
    job.write_text(f'engine = "{engine}"\n{text}')
    problems = "; ".join(map(str, jobs.validate(job)))
    assert expected in problems
    assert bool(expected) == bool(problems), problems


@pytest.mark.parametrize("engine", ["spark", "local"])
def test_another_checkpoint_is_to_be_apart_too(job: Path, engine: str) -> None:
    text = job.read_text().replace('"5 seconds"', '"0 seconds"')
    job.write_text(f'engine = "{engine}"\n{text}')
    checked, inside = jobs.load(job), str(job.parent / "pairs" / "checkpoint")
    run = partial(Resident, checked) if engine == "local" else partial(jobs.run, checked, None)  # type: ignore[arg-type]
    with pytest.raises(JobError, match=r"contains .*pairs/checkpoint, the folder of checkpoint"):
        run(checkpoint=inside)


def test_defaults_that_are_no_table_are_told_beside_what_else_is_wrong(job: Path) -> None:
    text = job.read_text()
    job.write_text("defaults = 5\n" + text[: text.index("[defaults]")] + text[text.index("[sources.near]") :])
    told = [str(problem) for problem in jobs.validate(job)]
    assert told[0] == "defaults: is 5 (a number), wanted a table."
    assert "sources.near.key: is missing, and has no default." in told


def test_patterns_name_files_and_what_cannot_be_looked_at_is_missing(job: Path) -> None:
    (job.parent / "loop").symlink_to("loop")
    for path, there in (
        ("n*r", True),
        ("ne**", True),
        ("near/0.*", True),
        ("loop", False),
        ("n" * 300, False),
        ("[", False),
    ):
        text = JOB.replace('path = "near"', f'path = "{path}"')
        job.write_text(text)
        assert jobs.validate(job) == []
        missing = [problem.where for problem in jobs.load(job).missing()]
        assert missing == ([] if there else ["sources.near.path"]), path


def test_paths_may_be_absolute_at_home_or_elsewhere(job: Path) -> None:
    checked = jobs.load(job)
    assert checked.place("/data/x") == "/data/x"
    assert checked.place("~/x") == str(Path.home() / "x")
    assert checked.place("s3a://bucket/$HOME") == "s3a://bucket/$HOME"
    assert checked.place("$HOME/x") == str(job.parent / "$HOME" / "x")


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("checkpoint =", "chekpoint =", "chekpoint: unknown key. Did you mean 'checkpoint'?"),
        ("lateness =", "latness =", "sources.far.latness: unknown key. Did you mean 'lateness'?"),
        ("\nkey =", "\nkeyy =", "defaults.keyy: unknown key. Did you mean 'key'?"),
        ("sigma =", "sigme =", "defaults.value.sigme: unknown key. Did you mean 'sigma'?"),
        ("epsilon =", "epsilom =", "similarity_join.epsilom: unknown key. Did you mean 'epsilon'?"),
        ('"Gaussian"', '"Gausian"', "defaults.value.model: is 'Gausian'. Did you mean 'Gaussian'?"),
        ('model = "Gaussian", ', "", "defaults.value.model: is missing. Known: Exact, Samples, Gaussian, Ball, Pos"),
        ('format = "parquet"', 'format = "parket"', "defaults.format: is 'parket' (text). Did you mean 'parquet'?"),
        ("epsilon = 5.0", 'epsilon = "5"', "similarity_join.epsilon: is '5' (text), wanted a number."),
        ("epsilon = 5.0", "epsilon = -1", "similarity_join.epsilon: is -1 (a number), wanted at least 0."),
        ("probability = 0.5", "probability = 1.5", "similarity_join.probability: is 1.5 (a number), wanted at most 1."),
        (
            "trigger = 1",
            "trigger = true",
            "max_files_per_trigger: is True (a truth value), wanted a whole number.",
        ),
        ('path = "near"', "path = 7", "sources.near.path: is 7 (a number), wanted text."),
        ('path = "near"', "", "sources.near.path: is missing, and has no default."),
        ("sigma = 1.0", "sigma = -1.0", "defaults.value: Gaussian(sigma=-1.0): give a finite number, at least 0"),
        ('"10 seconds"', '"10 secnds"', "similarity_join.window: the duration '10 secnds': it has the unknown unit"),
        ('"10 seconds"', "{ time = 1, per_stream = { nar = 2 } }", "names 'nar', which is not a stream. Did you mean"),
        ('"10 seconds"', "{ cuont = 5 }", "similarity_join.window.cuont: unknown key. Did you mean 'count'?"),
        ('"10 seconds"', "{ count = 0 }", "similarity_join.window.count: is 0 (a number), wanted at least 1."),
        ('"10 seconds"', "{ count = 2.5 }", "similarity_join.window.count: is 2.5 (a number), wanted a whole number."),
        ('"10 seconds"', "{ time = 1, count = 5 }", "similarity_join.window: names time and count. Give one of: time,"),
        ('"10 seconds"', "{}", "similarity_join.window: names no kind of window. Give one of: time, count, un"),
        ('"10 seconds"', "{ uncertain_count = 5 }", "an uncertain count window has a confidence"),
        ('"10 seconds"', "{ count = 5, confidence = 0.9 }", "confidence is for windows uncertain_count and delta"),
        ('"10 seconds"', "{ count = 5, max_rows = 9 }", "method and max_rows are for uncertain_count"),
        ('"10 seconds"', "{ count = 5, per_stream = { near = 2 } }", "per_stream is for windows of time"),
        ('"10 seconds"', '{ delta = "x" }', "similarity_join.window: a delta window has a column and a bound"),
        ('"10 seconds"', '{ delta = "x", bound = -1 }', "window.bound: is -1 (a number), wanted at least 0."),
        ('"10 seconds"', '{ delta = "km", bound = 1 }', "Stream 'near' has no column 'km'."),
        (
            '"10 seconds"',
            "{ tumbling = 1.5 }",
            "similarity_join.window: TumblingWindow(length=1.5): give a whole number",
        ),
        ("epsilon = 5.0", 'epsilon = 5.0\nemit = "change"', "emit: is 'change' (text). Did you mean 'changes'?"),
        ("lateness =", "idle_aftr =", "sources.far.idle_aftr: unknown key. Did you mean 'idle_after'?"),
        ("lateness =", "order = 'arival'\nlateness =", "far.order: is 'arival' (text). Did you mean 'arrival'?"),
        (
            "lateness =",
            "order = 'arrival'\nlateness =",
            "order differs over the streams: {'near': 'time'",
        ),
        ('["x", "y"]', '["x", "z"]', "Stream 'near' has no column 'z'."),
        ("[rejects]", "[self_join]\nepsilon = 1\n[rejects]", "self_join.window: is missing"),
        ("checkpoint", "checkpoint = ", "cannot be read as TOML"),
    ],
)
def test_what_is_wrong_is_told_in_its_place(job: Path, old: str, new: str, told: str) -> None:
    problems = wrong(job, old, new)
    assert any(told in problem for problem in problems), problems
    with pytest.raises(JobError) as raised:
        jobs.load(job)
    assert all(problem in str(raised.value) for problem in problems)


@pytest.mark.parametrize(
    ("given", "window"),
    [
        ('"10 seconds"', ap.TimeWindow("10 seconds")),
        ("2.5", ap.TimeWindow(2.5)),
        ("{ time = 10, per_stream = { near = '3 seconds' } }", ap.TimeWindow(10, {"near": "3 seconds"})),
        ("{ length = 10 }", ap.TimeWindow(10)),
        ("{ count = 1000 }", ap.CountWindow(1000)),
        ('{ delta = "x", bound = 100.0 }', ap.DeltaWindow("x", 100.0)),
        ("{ tumbling = 100 }", ap.TumblingWindow(100)),
        ("{ uncertain_count = 5, confidence = 0.9 }", ap.UncertainCountWindow(5, 0.9)),
        (
            '{ uncertain_count = 5, confidence = 1, method = "normal", max_rows = 50 }',
            ap.UncertainCountWindow(5, 1.0, "normal", 50),
        ),
        ('{ delta = "x", bound = 1, confidence = 0.5 }', ap.DeltaWindow("x", 1.0, 0.5)),
        ('{ tumbling = "1 minute" }', ap.TumblingWindow("1 minute")),
    ],
)
def test_every_window_has_its_words(job: Path, given: str, window: object) -> None:
    assert wrong(job, '"10 seconds"', given) == []
    assert jobs.load(job).table.join.window.build() == window


def test_everything_wrong_is_told_at_once(job: Path) -> None:
    wrong(job, "checkpoint =", "chekpoint =")
    wrong(job, "lateness =", "latness =")
    problems = wrong(job, "epsilon = 5.0", 'epsilon = "5"')
    assert [problem.split(":")[0] for problem in problems] == [
        "sources.far.latness",
        "similarity_join.epsilon",
        "chekpoint",
    ]


def test_one_operator_with_as_many_sources_as_it_pairs(job: Path) -> None:
    assert wrong(job, "[similarity_join]", "[self_join]") == [
        "[self_join] pairs one source with itself, and there are 2. Name one source."
    ]
    assert wrong(job, "[self_join]", "[sink.x]")[-1].startswith("sink.x: unknown key")


def test_missing_files_are_told_and_no_fault_of_the_job(job: Path) -> None:
    assert wrong(job, 'path = "near"', 'path = "nowhere"') == []
    assert str(jobs.load(job).missing()[0]).startswith("sources.near.path: there are no files at ")
    assert "there is no file" in str(jobs.validate(job.parent / "none.toml")[0])


def test_a_stream_per_cab_gives_the_pairs_of_one_stream_joined_with_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "examples")
    prepare = import_module("prepare_cabs")
    fixes = prepare.twin(days=2)
    table = jobs.load(ROOT / "examples" / "cabs.toml").table
    cabs = {cab: track.reset_index(drop=True) for cab, track in fixes.groupby("cab")}
    several = ap.similarity_join(
        *(source.stream(cabs[name], name) for name, source in table.sources.items()), **table.join.settings()
    )
    settings = {name: table.join.settings()[name] for name in ("epsilon", "probability", "window")}
    one = ap.self_join(table.sources["abboip"].stream(fixes, None), different="cab", **settings)
    assert unordered(several.to_pandas()) == unordered(one.to_pandas())
    assert len(one) > 100


def unordered(answers: pd.DataFrame) -> dict[tuple[int, int], float]:
    keys = np.sort(answers[["left_key", "right_key"]].to_numpy(), axis=1)
    return {(int(a), int(b)): round(p, 12) for (a, b), p in zip(keys, answers["probability"], strict=True)}


def test_a_batch_job_answers_as_the_call_does(job: Path, spark: SparkSession) -> None:
    answers = in_order(jobs.build(jobs.load(job), spark, streaming=False).toPandas())
    pd.testing.assert_frame_equal(answers, in_process())


def test_a_batch_job_counts_rows_and_tells_changes(job: Path, spark: SparkSession) -> None:
    wrong(job, '"10 seconds"', '{ delta = "time", bound = 4 }\nemit = "changes"')
    wrong(job, "checkpoint =", "sample = 50\ncheckpoint =")
    found = jobs.build(jobs.load(job), spark, streaming=False).toPandas()
    streams = [
        ap.Stream(rows(i), key="id", time="time", value=ap.Gaussian("x", "y", sigma=1.0), name=name)
        for i, name in ((1, "near"), (2, "far"))
    ]
    window = ap.DeltaWindow("time", 4)
    expected = ap.similarity_join(*streams, epsilon=5.0, probability=0.5, window=window, emit="changes").to_pandas()
    assert set(expected["change"]) == {1, -1}
    order = ["change", "left_key", "right_key"]
    found, expected = (table.sort_values(order, ignore_index=True) for table in (found, expected))
    pd.testing.assert_frame_equal(found, expected)


def test_a_job_has_the_options_of_its_call(job: Path) -> None:
    assert jobs.load(job).table.options() == ap.Options()
    wrong(job, "checkpoint =", "partitions = 3\nmax_output = 70\ncheckpoint =")
    assert jobs.load(job).table.options() == ap.Options(partitions=3, max_output=70)
    wrong(job, "max_output = 70", "max_output = 0")
    with pytest.raises(ap.JobError, match="max_output"):
        jobs.load(job)


def test_a_stream_in_files_of_text_needs_no_schema(job: Path, spark: SparkSession) -> None:
    for seed, name in enumerate(("near", "far"), 1):
        rows(seed).to_csv(job.parent / name / "rows.csv", index=False)
    wrong(job, 'format = "parquet"', 'format = "csv"\noptions = { header = true, pathGlobFilter = "*.csv" }')
    wrong(job, "checkpoint =", "sample = 50\ncheckpoint =")
    answers = jobs.build(jobs.load(job), spark, streaming=False)
    pd.testing.assert_frame_equal(in_order(answers.toPandas()), in_process(), check_dtype=False)  # Spark infers int
    assert jobs.build(jobs.load(job), spark).isStreaming
    wrong(job, "header = true, ", "")
    with pytest.raises(JobError, match=r"CSV files of source 'near' have no names.* header = true"):
        jobs.build(jobs.load(job), spark)


def test_a_source_may_be_one_file(job: Path, spark: SparkSession) -> None:
    """Others beside it are not read; and times that Spark does not know are an error that says so."""
    for seed, name in enumerate(("near", "far"), 1):
        rows(seed).to_parquet(job.parent / name / "[all].parquet")
        wrong(job, f'path = "{name}"', f'path = "{name}/[all].parquet"')
    answers = jobs.build(jobs.load(job), spark, streaming=False)
    pd.testing.assert_frame_equal(in_order(answers.toPandas()), in_process())
    assert jobs.build(jobs.load(job), spark).isStreaming
    nanos = pa.table({"id": [1], "time": pa.array([1], pa.timestamp("ns")), "x": [0.0], "y": [0.0]})
    for name in ("near", "far"):
        pq.write_table(nanos, job.parent / name / "[all].parquet")
    with pytest.raises(ap.BadInput, match=r"times in nanoseconds.*coerce_timestamps='us'"):
        jobs.build(jobs.load(job), spark, streaming=False)


AGGREGATE = """\
[sources.near]
format = "parquet"
path = "near"
max_files_per_trigger = 1
key = "id"
time = "time"
value = { model = "Gaussian", columns = ["x", "y"], sigma = 1.0 }
where = ["x > 5 OR id < 1050", "y < 18"]

[window_aggregate]
aggregates = { x = ["sum", "max"], y = "count" }
window = { uncertain_count = 2, confidence = 0.9 }
distribution = true

[sink]
format = "parquet"
path = "loads"

[rejects]
format = "json"
path = "rejects"
"""


@pytest.fixture
def aggregate_job(job: Path) -> Path:
    """A job that filters a stream and aggregates it."""
    job.write_text(AGGREGATE)
    return job


def loads() -> pd.DataFrame:
    stream = ap.Stream(rows(1), key="id", time="time", value=ap.Gaussian("x", "y", sigma=1.0))
    for condition in ("x > 5 OR id < 1050", "y < 18"):
        stream = ap.filter(stream, condition)
    window = ap.UncertainCountWindow(2, confidence=0.9)
    answers = ap.window_aggregate(stream, {"x": ["sum", "max"], "y": "count"}, window=window, distribution=True)
    frame: pd.DataFrame = answers.to_pandas()
    return frame


def test_a_filtered_aggregate_is_the_calls_it_stands_for(aggregate_job: Path, spark: SparkSession) -> None:
    """As a batch, and as a stream in three micro-batches that is drained."""
    assert jobs.validate(aggregate_job) == []
    checked = jobs.load(aggregate_job)
    assert checked.table.operator == "window_aggregate"
    expected = loads()
    plain = [name for name in expected.columns if not name.endswith("distribution")]
    jobs.run(checked, spark, drain=True, checkpoint=str(aggregate_job.parent / "checkpoint")).awaitTermination()
    batch = jobs.build(checked, spark, streaming=False).toPandas()
    streamed = spark.read.parquet(str(aggregate_job.parent / "loads")).toPandas()
    for answers in (batch, streamed):
        found = answers.sort_values("time", ignore_index=True)
        pd.testing.assert_frame_equal(found[plain], expected[plain])
        atoms = [[(a["value"], a["probability"]) for a in row] for row in found["x_sum_distribution"]]
        assert atoms == [[(a["value"], a["probability"]) for a in row] for row in expected["x_sum_distribution"]]
    assert len(spark.read.json(str(aggregate_job.parent / "rejects")).collect()) == 1


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("where =", "wehre =", "sources.near.wehre: unknown key. Did you mean 'where'?"),
        ('where = ["x > 5', 'where = ["x > > 5', "sources.near.where.0: "),
        ('where = ["x > 5 OR id < 1050", "y < 18"]', "where = 7", "near.where: is 7 (a number), wanted a list."),
        ('"y < 18"', '"z < 18"', "Stream 'near' has no column 'z'."),
        ('"y < 18"', "\"id = 'a'\"", "a number cannot be compared with a text"),
        ('"max"', '"maxx"', "aggregates.x.1: is 'maxx' (text). Did you mean 'max'?"),
        ('"count" }', '"coutn" }', "aggregates.y.0: is 'coutn' (text). Did you mean 'count'?"),
        (
            '["sum", "max"]',
            '["sum", "sum"]',
            "window_aggregate.aggregates.x: is ['sum', 'sum']. Name each aggregate once",
        ),
        ('["sum", "max"]', "[]", "window_aggregate.aggregates.x: is [] (a list), wanted at least one entry."),
        ('{ x = ["sum", "max"], y = "count" }', "{}", "aggregates: is {} (a table), wanted at least one entry."),
        ("{ x =", "{ z =", "The value has no dimension 'z'."),
        ("aggregates =", "agregates =", "window_aggregate.agregates: unknown key. Did you mean 'aggregates'?"),
        ("distribution =", "single_valued =", "single_valued is for sums, without distribution and other aggregates."),
        ("{ uncertain_count = 2, confidence = 0.9 }", '"5 secnds"', "window_aggregate.window: the duration '5 secnds'"),
        (
            "[sources.near]",
            "sample = 9\n[sources.near]",
            "sample plans the tiles of a join, and [window_aggregate] has none",
        ),
        (
            "[sink]",
            "[self_join]\nepsilon = 1\nprobability = 1\nwindow = 1\n[sink]",
            "A job has one operator: give one of [",
        ),
    ],
)
def test_what_is_wrong_with_an_aggregate_is_told(aggregate_job: Path, old: str, new: str, told: str) -> None:
    problems = wrong(aggregate_job, old, new)
    assert any(told in problem for problem in problems), problems


def test_an_aggregate_is_of_one_source(aggregate_job: Path) -> None:
    source = AGGREGATE[: AGGREGATE.index("[window_aggregate]")].replace("sources.near", "sources.far")
    assert wrong(aggregate_job, "[window_aggregate]", source + "[window_aggregate]") == [
        "[window_aggregate] is of one source, and there are 2. Name one source."
    ]


def test_a_value_of_unknown_dimensions_is_told(aggregate_job: Path) -> None:
    """Spark is lazy, so rows cannot be asked; in process they are."""
    frame = pd.DataFrame({"id": [1], "time": [0.0], "s": [[[1.0, 2.0]]]})
    frame.to_parquet(aggregate_job.parent / "near" / "0.parquet")
    value = 'value = { model = "Samples", column = "s" }'
    aggregate_job.write_text(AGGREGATE.replace('where = ["x > 5 OR id < 1050", "y < 18"]', "where = 's_1 > 0'"))
    (problem,) = wrong(aggregate_job, AGGREGATE[AGGREGATE.index("value =") : AGGREGATE.index("\nwhere")], value)
    assert "do not say how many dimensions its value has" in problem


def test_a_join_of_filtered_sources_is_planned_from_filtered_rows(job: Path, spark: SparkSession) -> None:
    wrong(job, "[sources.far]\n", "[sources.far]\nwhere = 'id < 2060 AND x < 15'\n")
    wrong(job, "checkpoint =", "sample = 50\ncheckpoint =")
    value = ap.Gaussian("x", "y", sigma=1.0)
    near, far = (ap.Stream(rows(i), key="id", time="time", value=value, name=n) for i, n in ((1, "near"), (2, "far")))
    far = ap.filter(far, "id < 2060 AND x < 15")
    expected = ap.similarity_join(near, far, epsilon=5.0, probability=0.5, window=ap.TimeWindow(10))
    found = jobs.build(jobs.load(job), spark, streaming=False).toPandas()
    assert 0 < len(found) < len(in_process())
    pd.testing.assert_frame_equal(in_order(found), in_order(expected.to_pandas()))


def test_a_source_may_say_which_rows_are_withdrawn() -> None:
    from appulse.jobs.sources import SourceTable

    table = {"format": "parquet", "path": "in", "key": "k", "time": "t", "value": "x"}
    assert SourceTable.model_validate(table | {"change": "op"}).stream(None, "a").change == "op"
    assert SourceTable.model_validate(table).stream(None, "a").change is None


def test_files_in_parts_have_the_names_of_folders_as_columns_on_spark(job: Path, spark: SparkSession) -> None:
    folder = job.parent / "near"
    for i, file in enumerate(sorted(folder.iterdir())):
        part = folder / f"region={'ns'[i % 2]}"
        part.mkdir(exist_ok=True)
        file.rename(part / file.name)
    job.write_text(job.read_text().replace('path = "near"', 'path = "near"\ncarry = ["region"]'))
    assert (jobs.validate(job), jobs.load(job).missing()) == ([], [])
    answers = jobs.build(jobs.load(job), spark, streaming=False).toPandas()
    assert set(answers["left_region"]) == {"n", "s"}
    assert plan_job(jobs.load(job)).sample_rows > 0
    job.write_text('engine = "local"\n' + job.read_text())
    with pytest.raises(JobError, match="near has files in parts, as in day=1/"):
        jobs.load(job)


def test_hidden_folders_are_no_parts(tmp_path: Path) -> None:
    """As Spark has it, which takes those whose names begin with a line."""
    for name in ("day=1", "_day=1", ".day=1"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.csv").write_text("")
    assert [file.parent.name for file in files_at(str(tmp_path))] == ["_day=1", "day=1"]
