from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pyspark
import pytest

from appulse.engines.spark.gateway import spark_home
from appulse.engines.spark.plans import know_classes
from appulse.errors import BadArgument, SessionError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession

PROVIDER = "spark.sql.streaming.stateStore.providerClass"
POLICY = "spark.sql.streaming.multipleWatermarkPolicy"


def run(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run code in a Python of its own, which starts a session of its own."""
    lines = ["import os, sys", "from appulse.engines.spark.session import check_session, session", code]
    return subprocess.run(
        [sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=False, cwd=folder
    )


@pytest.mark.every_version
def test_our_session_has_what_we_ask_of_others(spark: SparkSession) -> None:
    from appulse.engines.spark.session import check_session

    assert check_session(spark) == []
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"
    assert spark.sparkContext.master == "local[2,4]"
    assert spark.sparkContext.pythonExec == sys.executable


@pytest.mark.every_version
def test_stateful_query_runs(spark: SparkSession) -> None:
    from appulse.engines.spark.probe import run_probe

    run_probe(spark)


def test_python_processes_import_the_installed_pyspark(spark: SparkSession) -> None:
    """And not an archive of its sources, which each of them would compile."""
    imported = spark.range(1).mapInArrow(_where_pyspark_is, "path string").distinct().collect()
    assert [row.path for row in imported] == [pyspark.__file__]


def _where_pyspark_is(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for _ in batches:
        yield pa.record_batch({"path": [pyspark.__file__]})


def test_a_home_of_their_own_is_left_to_users(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    assert spark_home() is None
    monkeypatch.delenv("SPARK_HOME")
    home = spark_home()
    assert home is not None
    assert (home / "jars").resolve() == Path(pyspark.__file__).parent / "jars"
    assert not (home / "python").exists()


def test_asking_again_gives_the_running_session(spark: SparkSession) -> None:
    from appulse.engines.spark.session import session

    assert session() is spark
    assert session(2, **{POLICY: "min"}) is spark


def test_asking_for_another_session_is_an_error_that_names_the_setting(spark: SparkSession) -> None:
    from appulse.engines.spark.session import session

    with pytest.raises(SessionError, match=r"spark\.master=local\[2,4\] where local\[3,4\]"):
        session(3)
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"


@pytest.mark.parametrize(("setting", "value"), [(PROVIDER, "org.example.HDFSBackedProvider"), (POLICY, "max")])
def test_session_that_lacks_what_we_need_is_an_error(spark: SparkSession, setting: str, value: str) -> None:
    from appulse.engines.spark.session import check_session

    users = spark.newSession()
    users.conf.set(setting, value)
    with pytest.raises(SessionError) as caught:
        check_session(users)
    assert setting in str(caught.value)
    assert value in str(caught.value)
    assert users.conf.get(setting) == value


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled", "false"),
        ("spark.sql.execution.arrow.maxRecordsPerBatch", "1000"),
        ("spark.sql.shuffle.partitions", "200"),
    ],
)
def test_session_that_could_be_faster_gets_advice(spark: SparkSession, setting: str, value: str) -> None:
    from appulse.engines.spark.session import check_session

    users = spark.newSession()
    users.conf.set(setting, value)
    (advice,) = check_session(users)
    assert advice.startswith(setting)
    assert users.conf.get(setting) == value


@pytest.mark.parametrize("cores", [0, -1, True, 1.5])
def test_number_of_cores_is_checked(cores: int) -> None:
    from appulse.engines.spark.session import session

    with pytest.raises(BadArgument, match="cores must be"):
        session(cores)


def test_settings_go_by_their_full_names() -> None:
    from appulse.engines.spark.session import session

    with pytest.raises(BadArgument, match="'driver_memory' is not a Spark setting"):
        session(driver_memory="8g")


def test_remote_spark_is_not_ours_to_start(monkeypatch: pytest.MonkeyPatch) -> None:
    from appulse.engines.spark.session import session

    monkeypatch.setenv("SPARK_REMOTE", "sc://somewhere")
    with pytest.raises(SessionError, match="Unset it"):
        session()


@pytest.mark.every_version
@pytest.mark.spark
def test_session_is_quiet_tidy_and_can_be_had_twice(tmp_path: Path) -> None:
    code = """
    before = dict(os.environ)
    from appulse.engines.spark.probe import run_probe
    few_rows = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"}
    for memory in ("1g", "1g"):
        spark = session(1, **few_rows, **{"spark.driver.memory": memory, "spark.ui.enabled": False})
        run_probe(spark)
        assert spark.conf.get("spark.driver.memory") == "1g"
        assert spark.conf.get("spark.sql.ui.retainedExecutions") == "50"
        assert check_session(spark) == []
        spark.stop()
    added = {name for name in os.environ.keys() | before if os.environ.get(name) != before.get(name)}
    assert added <= {"SPARK_AUTH_SOCKET_TIMEOUT", "SPARK_BUFFER_SIZE"}, added  # PySpark itself sets these two
    """
    ran = run(code.replace("\n    ", "\n"), tmp_path)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.every_version
def test_what_a_worker_prints_reaches_our_stderr(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    def loud(frames: Any) -> Any:
        print("heard from afar", flush=True)  # noqa: T201 - what it is about
        yield from frames

    spark.range(1).mapInArrow(loud, "id long").collect()
    heard, end = "", time.monotonic() + 60  # it comes by way of the JVM
    while "heard from afar" not in heard and time.monotonic() < end:
        heard += capsys.readouterr().err
        time.sleep(0.01)
    assert "heard from afar" in heard


def test_java_that_does_not_start_is_quoted(tmp_path: Path) -> None:
    ran = run("""session(1, **{"spark.driver.extraJavaOptions": "-XX:-BytecodeVerificationRemote"})""", tmp_path)
    assert ran.returncode == 1
    assert "appulse.errors.SessionError: Java" in ran.stderr
    assert "Could not create the Java Virtual Machine" in ran.stderr.partition("its last words:")[2]


def test_foreign_spark_home_is_refused(tmp_path: Path) -> None:
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / "spark-core_2.13-3.5.1.jar").touch()
    ran = run(f"os.environ['SPARK_HOME'] = {str(tmp_path)!r}; session()", tmp_path)
    assert "holds Spark 3.5.1" in ran.stderr
    assert "Unset SPARK_HOME" in ran.stderr


class Asked(Exception):
    """What a session would have been started with."""


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, str | None]]:
    """The settings, and the interpreter of the workers, of a session that is not started."""
    from pyspark import SparkContext

    from appulse.engines.spark import session as made

    def started(conf: Any) -> None:
        raise Asked(dict(conf.getAll()) | {"python": os.environ.get("PYSPARK_PYTHON")})

    monkeypatch.setattr(made, "start_jvm", started)
    monkeypatch.setattr(made, "is_running", lambda: False)
    monkeypatch.setattr(SparkContext, "_gateway", None)
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)

    def settings(**given: Any) -> dict[str, str | None]:
        with pytest.raises(Asked) as raised:
            made.session(**given)
        found: dict[str, str | None] = raised.value.args[0]
        return found

    return settings


def test_a_session_on_a_cluster_takes_nothing_from_this_machine(asked: Callable[..., dict[str, str | None]]) -> None:
    here = asked()
    assert (here["python"], here["spark.driver.host"]) == (sys.executable, "127.0.0.1")
    there = asked(**{"spark.master": "spark://host:7077"})
    assert there["python"] is None
    assert not {"spark.driver.host", "spark.driver.bindAddress", "spark.sql.shuffle.partitions"} & set(there)
    assert "checkpointFileManagerClass" not in " ".join(there)
    assert there["spark.sql.streaming.stateStore.providerClass"] == here["spark.sql.streaming.stateStore.providerClass"]
    named = asked(**{"spark.master": "yarn", "spark.pyspark.python": "env/bin/python", "spark.driver.host": "me"})
    assert (named["python"], named["spark.driver.host"]) == ("env/bin/python", "me")


def test_cores_are_those_of_this_machine() -> None:
    from appulse.engines.spark.session import session

    with pytest.raises(BadArgument, match=r"spark\.cores\.max"):
        session(2, **{"spark.master": "spark://host:7077"})


def test_java_classes_are_looked_up_once(spark: SparkSession) -> None:
    know_classes(spark)
    jvm: Any = spark._jvm
    for name in ("functions", "PythonUtils", "org.apache.spark.sql.classic.SparkSession"):
        assert getattr(jvm, name) is getattr(jvm, name)
    assert spark.range(3).selectExpr("sum(id) AS n").collect()[0].n == 3


def test_a_session_of_spark_connect_has_no_java_classes() -> None:
    know_classes(cast("SparkSession", object()))
