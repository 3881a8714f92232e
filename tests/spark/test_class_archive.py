"""Archives of classes: taken where they are, left out where they are not, and named errors where Java writes none."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import psutil
import pytest

from appulse.engines.spark import class_archive
from appulse.engines.spark.gateway import JAVA_OPTIONS, Archives
from appulse.engines.spark.java import Java, find_java
from appulse.errors import SessionError

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Archives:
    """Where the archives of some Java go, in an environment without any."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    return Archives.of(Java(tmp_path, "21.0.8", "PATH"))


def test_a_session_goes_without_until_both_are_there(found: Archives) -> None:
    found.java.parent.mkdir(parents=True)
    assert found.option == ""
    found.java.touch()
    assert found.option == ""
    found.spark.touch()
    assert found.option.startswith(f'"-XX:SharedArchiveFile={found.java}:{found.spark}" ')


def test_every_java_has_its_own(found: Archives, tmp_path: Path) -> None:
    assert Archives.of(Java(tmp_path, "21.0.9", "PATH")).spark != found.spark


@pytest.mark.parametrize(("program", "said"), [("exit 3", "exit code 3"), ("echo no room; exit 1", "no room")])
def test_a_java_that_writes_none_is_an_error(
    found: Archives, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, program: str, said: str
) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\n{program}\n")
    java.chmod(0o755)
    monkeypatch.setattr(class_archive, "find_java", lambda: Java(tmp_path, "21.0.8", "PATH"))
    with pytest.raises(SessionError, match=f"{said}.*start without"):
        class_archive.archive_classes()
    assert found.option == ""


def test_a_path_that_java_would_cut_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "a:b"))
    with pytest.raises(SessionError, match="cannot read archives"):
        class_archive.archive_classes()


def test_the_session_maps_what_the_set_up_archived(spark: SparkSession) -> None:
    option = Archives.of(find_java()).option
    if not option:
        pytest.skip("no classes are archived here: appulse warm")
    assert option in spark.sparkContext.getConf().get(JAVA_OPTIONS, "")
    mapped = [
        part.path
        for process in psutil.Process().children(recursive=True)
        if process.name() == "java"
        for part in process.memory_maps()
    ]
    assert str(Archives.of(find_java()).spark) in mapped
