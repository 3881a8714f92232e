"""Alarms that carry a confidence, as in `examples/false_detections.py`: they come true as often as they say."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest

from examples.reliability import draw_reliability, reliability

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

ROOT = Path(__file__).resolve().parents[2]
ERRORS = 4  # standard errors a point may be off


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(ROOT / "examples")
    return import_module("false_detections")


def _check(example: Any, rows: pd.DataFrame, count: int, least: int) -> None:
    """Points of the diagram near the diagonal, totals right, alarms of the last five fixes as in the worlds."""
    near = example.candidates(rows)
    happened = example.worlds(rows, near, count)
    found = example.alarms(rows)
    assert len(found) >= least
    points = reliability(*example.matched(found, near, happened))
    assert len(points) >= 8
    assert ((points["frequency"] - points["predicted"]).abs() <= ERRORS * points["error"]).all()
    # What is below the least probability is lost, and next to nothing.
    told = happened[:, example.places(found, near)]
    assert happened.sum() - told.sum() <= example.LEAST * happened.sum()
    total = told.sum(axis=1)
    assert abs(found["probability"].sum() - total.mean()) <= ERRORS * total.std() / np.sqrt(count)
    # Who takes every fix as true promises too much.
    blind = reliability(*example.matched(example.without_trust(rows), near, happened))
    assert blind["predicted"].iloc[-1] - blind["frequency"].iloc[-1] > 0.05


def _check_outside(example: Any, rows: pd.DataFrame, count: int) -> None:
    told = example.outside_city(rows)
    happened = _outside_worlds(example, rows, told, count)
    wide = reliability(told["alarm"].to_numpy(), happened)
    points = 1 / 64  # a filter reads a Gaussian by 64 points
    assert ((wide["frequency"] - wide["predicted"]).abs() <= ERRORS * wide["error"] + points).all()


def _outside_worlds(example: Any, rows: pd.DataFrame, told: pd.DataFrame, count: int) -> NDArray[np.bool_]:
    """In which worlds at least so many of the last five fixes of the cab exist outside the city."""
    numbers = pd.MultiIndex.from_arrays([rows["cab"], rows.groupby("cab").cumcount()])
    last = [
        numbers.get_indexer(pd.MultiIndex.from_arrays([told["cab"], told["time"] - back]))
        for back in range(example.LAST)
    ]
    chance = np.random.default_rng(3)
    happened = np.zeros((count, len(told)), bool)
    for world in happened:
        north = rows["latitude"].to_numpy() + chance.normal(0, example.GPS / example.DEGREE, len(rows))
        outside = (chance.random(len(rows)) < rows["real"].to_numpy()) & (north < example.LINE)
        world[:] = np.append(outside, False)[np.stack(last)].sum(axis=0) >= example.ENOUGH
    return happened


def test_generated_cabs_alarms_come_true_as_often_as_they_say(example: Any) -> None:
    rows = example.twin(days=1)
    _check(example, rows, 400, 500)
    _check_outside(example, rows, 400)


def test_cabs_alarms_come_true_as_often_as_they_say(example: Any, data: Callable[[str], Path]) -> None:
    fixes = example.prepare_cabs.read(data(example.prepare_cabs.TRACKS))
    rows = example.trust(fixes[fixes["time"] < fixes["time"].min() + pd.Timedelta("7D")])
    _check(example, rows, 400, 500)


def test_false_fixes_of_the_twin_are_trusted_less(example: Any) -> None:
    rows = example.twin(days=1)
    trust = rows.groupby("false")["real"].mean()
    assert trust[False] > 0.8
    assert trust[True] < 0.4


def test_the_example_says_and_draws(
    example: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "new" / "reliability.svg"
    asked = ["--tracks", str(tmp_path / "none"), "--worlds", "50", "--picture", str(file)]
    monkeypatch.setattr("sys.argv", ["false_detections.py", *asked])
    rows = example.twin(days=1)
    monkeypatch.setattr(example, "twin", lambda: rows)
    example.main()
    said = capsys.readouterr().out
    assert "a generated twin" in said
    assert "fixes of trust 0.5 and more taken as true" in said
    assert file.read_text().startswith("<?xml")


def test_reliability_counts_by_bins() -> None:
    happened = np.array([[True, False, True], [True, False, False]])
    points = reliability(np.array([1.0, 0.05, 0.95]), happened)
    assert points["count"].tolist() == [1, 2]
    assert points["predicted"].tolist() == pytest.approx([0.05, 0.975])
    assert points["frequency"].tolist() == pytest.approx([0.0, 0.75])
    assert points["error"].tolist() == pytest.approx([0.0, 0.25])


def test_a_diagram_is_the_same_whenever_it_is_drawn(tmp_path: Path) -> None:
    points = pd.DataFrame({"predicted": [0.1, 0.9], "frequency": [0.1, 0.8], "error": 0.01, "count": [3, 4]})
    drawn = []
    for folder in (tmp_path / "a", tmp_path / "b"):
        folder.mkdir()
        draw_reliability({"all": points}, folder / "x.svg", finding="As said", what="of 7")
        drawn.append((folder / "x.svg").read_bytes())
    assert drawn[0] == drawn[1]
