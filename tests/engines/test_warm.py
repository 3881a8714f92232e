"""What `warm` runs is all that the first batch of a join with holes needs: nothing is compiled in it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from numba.core.registry import CPUDispatcher

import appulse as ap
from appulse.engines import warm
from appulse.engines.warm import _aggregate, _fence, _impute, _lay_out, _meet, small_table
from appulse.imputation.versions import SavedImputer

if TYPE_CHECKING:
    from pathlib import Path


def compiled() -> dict[str, int]:
    """Of every kernel that has been loaded, for how many kinds of arguments."""
    kernels: dict[str, Any] = {
        f"{module.__name__}.{name}": value
        for module in list(sys.modules.values())
        if getattr(module, "__name__", "").startswith("appulse.kernels")
        for name, value in vars(module).items()
        if isinstance(value, CPUDispatcher)
    }
    return {name: len(kernel.signatures) for name, kernel in kernels.items()}


@pytest.mark.parametrize("window", [ap.TimeWindow(3), ap.CountWindow(5)], ids=["time", "count"])
def test_nothing_is_compiled_in_the_first_batch(window: Any, tmp_path: Path) -> None:
    for part in (_impute, _lay_out):
        part(small_table())
    before = compiled()
    assert before["appulse.kernels.neighbours.fill"] > 0
    chance = np.random.default_rng(0)
    known = chance.random((300, 4))
    rules = [ap.DifferentialDependency({"a": 0.2, "b": 0.2}, name, 9.0) for name in "cd"]
    imputer = ap.DependencyImputer(pa.table(dict(zip("abcd", known.T, strict=True))), rules)
    imputer.save(tmp_path)
    sides = []
    for _ in range(2):
        values = chance.random((60, 4))
        lost = chance.random((60, 1)) < 0.5
        lost = lost & (np.arange(4) == chance.integers(0, 4, (60, 1)))  # one hole a row
        columns = {name: pa.array(values[:, i], mask=lost[:, i]) for i, name in enumerate("abcd")}
        table = pa.table({"id": np.arange(60), "at": np.arange(60), **columns})
        sides.append(ap.Stream(table, key="id", time="at", value=ap.Incomplete(*"abcd")))
    settings: dict[str, Any] = {"epsilon": 0.4, "probability": 0.3, "window": window}
    for one in (imputer, SavedImputer(tmp_path)):
        assert len(ap.similarity_join(*sides, imputer=one, **settings)) > 0
    after = compiled()
    assert {name: count for name, count in after.items() if count > before.get(name, 0)} == {}


def test_nothing_is_compiled_in_a_push_of_aggregates() -> None:
    for part in (_aggregate, _lay_out):
        part(small_table())
    before = compiled()
    assert before["appulse.kernels.ordered_values.slide_quantiles"] > 0
    asked = {"x": ["sum", "mean", "count", "min", "max", "std", "median", "p90"]}
    call = ap.WindowAggregate(ap.Stream(None, key="id", time="t", value="x"), asked, window=ap.TimeWindow(50))
    for begin, n in ((0, 90), (90, 3), (93, 7)):
        at = np.arange(begin, begin + n)
        assert len(call.push(pa.table({"id": at, "t": at * 1.0, "x": at % 7.0}))) > 0
    after = compiled()
    assert {name: count for name, count in after.items() if count > before.get(name, 0)} == {}


@pytest.mark.parametrize("emit", ["closed", "changes"])
def test_nothing_is_compiled_in_pushes_of_encounters(emit: str) -> None:
    """Many things at once and few, which are looked for among those held in several ways."""
    for part in (_meet, _lay_out):
        part(small_table())
    before = compiled()
    assert before["appulse.kernels.leg_sweep.sweep"] > 0
    stream = ap.Stream(None, key="id", time="t", value=ap.Position("lat", "lon", sigma=3.0), motion=ap.Straight(20))
    call = ap.Encounters(stream, epsilon=50.0, probability=0.5, gap=5, emit=emit)
    found = 0
    for step, n in enumerate((800, 800, 20, 20, 2, 1, 1, 800, 3)):
        at = np.arange(n)
        places = {"lat": 50.0 + at * 2e-4, "lon": 7.0 + at % 2 * 1e-4}
        found += len(call.push(pa.table({"id": [f"bus {i}" for i in at], "t": np.full(n, step), **places})))
    found += len(call.drain())
    assert found > 100
    after = compiled()
    assert {name: count for name, count in after.items() if count > before.get(name, 0)} == {}


def test_nothing_is_compiled_for_fences_of_a_file() -> None:
    """Their polygons are WKB."""
    shapely = pytest.importorskip("shapely")
    for part in (_fence, _lay_out):
        part(small_table())
    before = compiled()
    zones = [shapely.to_wkb(shapely.box(i, 0, i + 1, 1)) for i in range(30)]
    fences = pa.table({"query": np.arange(30), "region": zones})
    readings = pa.table({"id": ["a"] * 60, "t": np.arange(60), "x": np.arange(60) / 2, "y": np.full(60, 0.5)})
    stream = ap.Stream(readings, key="id", time="t", value=ap.Gaussian("x", "y", sigma=0.1))
    assert len(ap.fence_events(stream, fences, leave=0.4)) > 30
    after = compiled()
    assert {name: count for name, count in after.items() if count > before.get(name, 0)} == {}


def test_a_part_that_cannot_be_compiled_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """It runs in a process of its own."""
    monkeypatch.setattr(warm, "available_cores", lambda: 1)
    monkeypatch.setattr(warm, "_PARTS", (len,))
    warm.compile_all()
    monkeypatch.setattr(warm, "_PARTS", (len, int))
    with pytest.raises(TypeError, match="Table"):
        warm.compile_all()
