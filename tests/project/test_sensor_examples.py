"""The examples on phenomena: their generated twins say what was put into them, real data what is known of it."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa
import pytest

from appulse.report.flat import flattened

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"


def example(name: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    return runpy.run_path(str(EXAMPLES / name))


def told(events: Any) -> Any:
    """Events without those that something disappears, by time, with how many sensors there are."""
    frame = events.to_pandas().query("event != 'disappears'").set_index("time")
    x, y = (frame["centroid"].map(lambda place, c=c: place[c]) for c in (0, 1))
    return frame.assign(n=frame["sensors"].map(len), x=x, y=y)


def test_a_lab_warms_up_from_its_corner(monkeypatch: pytest.MonkeyPatch) -> None:
    """One region at 17 degrees gives way to one at 24, which begins at the corner; both keep their numbers."""
    module = example("lab_sunrise.py", monkeypatch)
    found = told(module["regions"](*module["twin"]()))
    whole = found[found["n"] == 52]
    assert whole["value"].round().tolist() == [17.0, 24.0]
    cold, warm = (found[found["phenomenon"] == number] for number in whole["phenomenon"])
    assert cold["n"].is_monotonic_decreasing
    assert warm["n"].iloc[0] < 15
    assert warm["x"].iloc[0] > 33.0
    assert warm["y"].iloc[0] < 8.0
    assert abs(warm["x"].iloc[-1] - 20.0) < 2.0


def test_a_front_goes_from_north_west_to_south_east(monkeypatch: pytest.MonkeyPatch) -> None:
    module = example("cold_front.py", monkeypatch)
    wide, cities = module["twin"](pd.Timestamp("2016-12-06"))
    found = module["fronts"](module["daily"](wide), cities)
    cold = told(flattened(found, pa.Table.from_pandas(cities), module["PLACE"])[0])
    cold = cold[cold["value"] < -0.75 / 3600]
    front = cold[cold["phenomenon"] == cold["phenomenon"].mode()[0]]
    assert front["n"].max() >= 8
    hours = (front.index[-1] - front.index[0]) / pd.Timedelta(hours=1)
    gone = ((front["x"].iloc[-1] - front["x"].iloc[0]) - (front["y"].iloc[-1] - front["y"].iloc[0])) / 2**0.5
    assert gone / hours == pytest.approx(50.0, rel=0.25)
    assert next(iter(module["names"](found).values())) == "-1.0 to -0.5 K/h"


@pytest.mark.parametrize("name", ["lab_sunrise.py", "cold_front.py"])
def test_pages_are_written_where_the_data_is_not_at_hand(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    module, page = example(name, monkeypatch), tmp_path / "out" / "page.html"
    monkeypatch.setattr(sys, "argv", [name, "--data", str(tmp_path / "none"), "--out", str(page)])
    module["main"]()
    assert "generated twin" in capsys.readouterr().out
    assert "<svg" in page.read_text("utf-8")


def test_the_front_of_december_2016(monkeypatch: pytest.MonkeyPatch, data: Callable[[str], Path]) -> None:
    """Cold air came over the plains on the 18th, and to the east coast on the 19th."""
    module = example("cold_front.py", monkeypatch)
    wide, cities = module["read"](data(module["DATA"]))
    days = wide[wide["time"].between("2016-12-16", "2016-12-20")]
    found = told(module["fronts"](module["daily"](days), cities))
    fast = found[found["value"] < -0.75 / 3600].sort_index()
    assert fast.loc["2016-12-18", "x"].mean() < fast.loc["2016-12-19 10:00":"2016-12-19 15:00", "x"].mean() - 6.0
    assert fast.loc["2016-12-19 19:00":, "x"].min() > -78.0
