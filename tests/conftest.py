"""What tests share: one Spark session a process, started when the first asks, Hypothesis profiles, and real data."""

from __future__ import annotations

import atexit
import gc
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

import appulse
from examples.data_folder import data_at

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession

# A change is judged by the same examples every time; new ones are looked for by `make test-long`, which takes "long".
settings.register_profile(
    "quick", deadline=None, derandomize=True, max_examples=40, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile(
    "long", deadline=None, max_examples=1000, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("quick")


HIDDEN = "without data"
_TESTS = Path(__file__).parent
_ON_SPARK = "on spark"

# The session of the tests plans hundreds of queries over few rows each, and most of its time went into compiling what
# runs once: Java by the second compiler, and a class for each stage of a plan; the small code cache that goes with one
# compiler was swept again and again. Jobs that tests start as a process, by
# the command line or to be killed, have the settings of a user's session.
FEW_ROWS: dict[str, str | bool] = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m",
    "spark.sql.lightweightPlanChangeValidation": False,
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.codegen.wholeStage": False,
    # As other readers expect times: what a test wrote is read without Spark.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "data: looks for real data; passes or skips where there is none")


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Iterator[None]:
    """Collect without the garbage collector, which would look through all modules dozens of times, and find nothing.

    What there is by then lives as long as the process: later collections pass over it.
    """
    gc.disable()
    try:
        _import_tests(session.config)
        return (yield)
    finally:
        gc.freeze()
        atexit.register(gc.unfreeze)  # extensions report on stderr what the interpreter leaves as it ends
        gc.enable()


def _import_tests(config: pytest.Config) -> None:
    """Have each of several processes import all tests from another one on: what one has compiled, the others load."""
    worker: dict[str, Any] = getattr(config, "workerinput", {})
    if not worker or config.args_source is not pytest.Config.ArgsSource.TESTPATHS:
        return
    files = sorted(_TESTS.rglob("test_*.py"))
    first = len(files) * int(worker["workerid"].removeprefix("gw")) // worker["workercount"]
    for file in files[first:] + files[:first]:
        with suppress(Exception, pytest.skip.Exception):  # which the collection meets again, and reports
            import_module(".".join(file.relative_to(_TESTS.parent).with_suffix("").parts))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each test that looks for data a second time, as on a machine without it, and name those of Spark.

    The scheduler of several processes sees names alone, no marks.
    """
    looks = "data" in metafunc.fixturenames or any(metafunc.definition.iter_markers("data"))
    if looks and data_at().is_dir():
        metafunc.fixturenames.append("place")
        metafunc.parametrize("place", ["data", HIDDEN])
    if "spark" in metafunc.fixturenames:
        metafunc.fixturenames.append("engine")
        metafunc.parametrize("engine", [_ON_SPARK])


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark what uses the session as `spark`, and what uses data as `data`."""
    for name in ("spark", "data"):
        if name in getattr(item, "fixturenames", ()):
            item.add_marker(name)


def pytest_collection_finish() -> None:
    """Import all of appulse: Hypothesis draws from the constants of what is imported, which must not be left to chance.

    Otherwise the examples of a test would depend on the tests that its process ran before.
    """
    for module in walk_packages(appulse.__path__, "appulse."):
        if not module.name.endswith("__main__"):
            import_module(module.name)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Two JVMs for all tests of Spark: they go to two processes, the longest part first; the others take turns."""
    scheduling = import_module("xdist.scheduler").LoadScopeScheduling(config, log)
    scheduling._split_scope = _scope
    return scheduling


def _scope(nodeid: str) -> str:
    """What goes to one process: a half of the tests of Spark, by file, or any other test.

    Those of the project go by file: what they compile, which the set-up did not, is compiled once.
    """
    file = nodeid.partition("::")[0]
    if _ON_SPARK in nodeid:
        return f"{_ON_SPARK} {len(file) % 2}"  # a hash that happens to cut evenly
    return file if file.startswith("tests/project/") else nodeid


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Hide the data from all tests but those marked `data`: so no other can come to need it."""
    drawn = getattr(item, "callspec", None)
    with pytest.MonkeyPatch.context() as patch:
        if item.get_closest_marker("data") is None or (drawn is not None and drawn.params.get("place") == HIDDEN):
            patch.setenv("APPULSE_DATA", "")
        return (yield)


@pytest.fixture
def data() -> Callable[[str], Path]:
    """Where a file of the data is; the test skips if it is not there."""

    def found(path: str) -> Path:
        place = data_at(path)
        if not place.exists():
            pytest.skip(f"there is no {place}")
        return place

    return found


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The one Spark session of the run: two cores, and all it writes in a scratch folder."""
    from appulse.engines.spark.file_sink import FileSink
    from appulse.engines.spark.session import session

    FileSink.counts_always = True  # as on a cluster: what each batch reports is held against its files
    scratch = tmp_path_factory.mktemp("spark")
    places = {"spark.local.dir": str(scratch / "local"), "spark.sql.warehouse.dir": str(scratch / "warehouse")}
    settings: dict[str, Any] = {**FEW_ROWS, **places}
    made = session(2, **settings)
    # Hadoop writes a second file, of checksums, beside each.
    jvm: Any = made._jvm
    jvm.org.apache.hadoop.fs.FileSystem.getLocal(made._jsc.hadoopConfiguration()).setWriteChecksum(False)
    yield made
    made.stop()
