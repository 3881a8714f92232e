from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from appulse.engines.spark import doctor
from appulse.engines.spark.doctor import Finding, examine
from appulse.errors import SessionError

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


def finding(name: str) -> Finding:
    """The one finding of that name."""
    (found,) = (each for each in examine() if each.name == name)
    return found


def test_this_machine_is_well() -> None:
    findings = examine()
    assert [each for each in findings if each.state == "wrong"] == []
    assert len({each.name for each in findings}) == len(findings)
    assert all(each.found for each in findings)
    assert all(bool(each.remedy) == (each.state != "ok") for each in findings)


def test_looking_imports_nothing_heavy() -> None:
    code = (
        "import sys; from appulse.engines.spark.doctor import examine; examine(); "
        "print(sorted({'numba', 'pandas', 'pyarrow', 'pyspark'} & set(sys.modules)))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"


def test_deep_look_runs_a_query_and_leaves_a_running_session_be(spark: SparkSession) -> None:
    query = examine(deep=True)[-1]
    assert (query.name, query.state) == ("stateful query", "ok")
    assert spark.range(3).count() == 3


def test_bytecode_that_is_never_kept_is_advice(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setattr(doctor, "cache_from_source", lambda _: str(tmp_path / "init.pyc"))
    assert finding("bytecode").state == "advice"
    (tmp_path / "init.pyc").touch()
    assert finding("bytecode").state == "ok"


@pytest.mark.parametrize(
    ("version", "state"),
    [
        (None, "wrong"),
        ("2.1.4", "wrong"),
        ("2.2", "ok"),
        ("2.3.3", "ok"),
        ("2.10.0rc1", "ok"),
        ("3.0.0", "wrong"),
        ("3", "wrong"),
    ],
)
def test_versions_of_packages(monkeypatch: pytest.MonkeyPatch, version: str | None, state: str) -> None:
    monkeypatch.setattr(doctor, "installed", {"pandas": version, "pyspark": "4.3.0"}.get)
    found = finding("pandas")
    assert found.state == state
    assert (found.remedy == 'pip install "pandas>=2.2,<3"') == (state == "wrong")


def test_no_java(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> None:
        raise SessionError("no Java 17 or later to run Spark with")

    monkeypatch.setattr(doctor, "find_java", none)
    found = finding("Java")
    assert found.state == "wrong"
    assert "no Java 17" in found.remedy


def test_java_passed_over_is_advice(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    found = finding("Java")
    assert found.state == "advice"
    assert str(tmp_path) in found.remedy


def test_cache_folder_that_cannot_be_made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    found = finding("cache folder")
    assert found.state == "wrong"
    assert "XDG_CACHE_HOME" in found.remedy


def test_spark_home_of_another_version(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / "spark-core_2.13-3.5.1.jar").touch()
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    found = finding("SPARK_HOME")
    assert (found.state, found.found) == ("wrong", str(tmp_path))
    assert "holds Spark 3.5.1" in found.remedy


@pytest.mark.parametrize(("python", "state"), [("/usr/bin/nothing", "advice"), (sys.executable, "ok")])
def test_python_of_workers(monkeypatch: pytest.MonkeyPatch, python: str, state: str) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", python)
    assert finding("PYSPARK_PYTHON").state == state


def test_scarce_cores_and_memory_are_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "available_cores", lambda: 1)
    monkeypatch.setattr(doctor, "available_memory", lambda: 2**30)
    assert (finding("cores").state, finding("memory").state) == ("advice", "advice")
