"""Alerts and notices, variable stars and days like today, as in the examples: against all pairs."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray
    from pyspark.sql import SparkSession

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], dict[str, Any]]:
    """What a script defines."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    return lambda name: runpy.run_path(str(EXAMPLES / name))


def apart(one: pd.DataFrame, other: pd.DataFrame) -> NDArray[np.float64]:
    """Arc seconds between every two places, by the haversine."""
    (lat, lon), (lat_, lon_) = (np.radians(rows[["dec", "ra"]].to_numpy()).T for rows in (one, other))
    half = (
        np.sin((lat[:, None] - lat_) / 2) ** 2
        + np.cos(lat)[:, None] * np.cos(lat_) * np.sin((lon[:, None] - lon_) / 2) ** 2
    )
    arcs: NDArray[np.float64] = np.degrees(2.0 * np.arcsin(np.sqrt(half))) * 3600.0
    return arcs


def pairs_of(found: pd.DataFrame) -> set[tuple[str, str]]:
    return set(zip(found["left_key"], found["right_key"], strict=True))


def in_circles(alerts: pd.DataFrame, notices: pd.DataFrame) -> set[tuple[str, str]]:
    """Notices and alerts by all pairs; keys of two types come out as texts."""
    near = apart(notices, alerts) <= notices["radius"].to_numpy()[:, None]
    after = alerts["began"].to_numpy() - notices["trigger"].to_numpy()[:, None]
    near &= (after >= pd.Timedelta(0)) & (after <= pd.Timedelta("1 day"))
    i, j = np.nonzero(near)
    return set(zip(notices["notice"].to_numpy()[i], alerts["candid"].astype(str).to_numpy()[j], strict=True))


def test_generated_alerts_lie_in_the_circles_of_notices(example: Callable[[str], dict[str, Any]]) -> None:
    module = example("alerts.py")
    alerts, notices = module["twin"]()
    found = pairs_of(module["coincidences"](alerts, notices).to_pandas())
    assert found == in_circles(alerts, notices)
    assert len(found) > 100
    assert any(notice.startswith("2 ") for notice, _ in found)  # around the pole


def test_two_streams_on_spark_have_the_same_pairs(
    example: Callable[[str], dict[str, Any]], spark: SparkSession, tmp_path: Path
) -> None:
    module = example("alerts.py")
    alerts, notices = (rows.head(60) for rows in module["twin"]())
    found = pairs_of(module["on_spark"](spark, alerts, notices, tmp_path))
    assert found == in_circles(alerts, notices)
    assert len(found) > 10


def test_finks_alerts_lie_in_the_circles_of_notices(
    example: Callable[[str], dict[str, Any]], data: Callable[[str], Path]
) -> None:
    """All of them are among the pairs of Fink's join by cells, which has 24 more."""
    module = example("alerts.py")
    folder = data(f"sky/{module['ALERTS']}").parent
    alerts, notices = module["read"](folder)
    found = module["coincidences"](alerts, notices).to_pandas()
    assert len(found) == 176
    assert pairs_of(found) == in_circles(alerts, notices)
    cells = pd.read_parquet(folder / module["CELLS"])
    assert "200 pairs, 176 of them within the circle and 24 outside; it misses 0" in module["against_cells"](
        found, cells
    )


def test_generated_variables_are_the_stars_that_they_are(example: Callable[[str], dict[str, Any]]) -> None:
    module = example("variables.py")
    variables, gaia = module["twin"]()
    found = module["matched"](variables, gaia).set_index("left_key")
    away = apart(variables, gaia)
    nearest = away.argmin(axis=1)
    near = away.min(axis=1) <= module["NEAR"]
    assert found.index.tolist() == np.flatnonzero(near).tolist()
    assert found["right_key"].tolist() == nearest[near].tolist()
    assert (found["right_key"] == variables["star"][found.index]).mean() > 0.99


def test_variables_have_the_colours_of_their_kinds(
    example: Callable[[str], dict[str, Any]], data: Callable[[str], Path]
) -> None:
    module = example("variables.py")
    variables, gaia = module["read"](data("sky/gcvs.parquet"), data("sky/gaia.parquet"))
    found = module["matched"](variables, gaia)
    assert len(found) == 10_899
    colour = found.groupby("left_kind")["right_colour"].median()
    assert colour["M"] > 5.0
    assert 5.0 > colour["SRB"] > 3.0
    assert 1.0 > colour["RRAB"] > colour["EA"] > 0.2


def most_similar(days: pd.DataFrame, k: int, limit: float) -> set[tuple[int, int, int]]:
    """Each day's nearest in its history by all pairs, and their ranks."""
    rows = np.stack(days["shape"].to_list())
    unit = rows / np.linalg.norm(rows, axis=1)[:, None]
    away, found = 1.0 - unit @ unit.T, set()
    for day in range(len(days)):
        past = np.flatnonzero((days["history"] <= days["date"][day]).to_numpy() & (away[day] <= limit))
        best = past[np.argsort(away[day, past], kind="stable")][:k]
        found |= {(day, int(other), rank + 1) for rank, other in enumerate(best)}
    return found


def test_generated_days_find_those_most_like_them(example: Callable[[str], dict[str, Any]]) -> None:
    module = example("shapes.py")
    days = module["shapes"](module["twin"]())
    found = module["similar"](days)
    assert set(zip(found["left_key"], found["right_key"], found["rank"], strict=True)) == most_similar(
        days, module["K"], module["APART"]
    )
    best = found.loc[found["distance"].idxmin()]
    assert best["left_key"] - best["right_key"] == 400 - module["DAYS"] - 5 - 100


def test_days_of_the_market_find_those_most_like_them(
    example: Callable[[str], dict[str, Any]], data: Callable[[str], Path]
) -> None:
    module = example("shapes.py")
    days = module["shapes"](module["read"](data(module["PRICES"])))
    found = module["similar"](days)
    assert set(zip(found["left_key"], found["right_key"], found["rank"], strict=True)) == most_similar(
        days, module["K"], module["APART"]
    )


@pytest.mark.parametrize("name", ["alerts.py", "variables.py", "shapes.py"])
def test_scripts_run_where_the_data_is_not_at_hand(
    name: str,
    example: Callable[[str], dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    option = {"alerts.py": "--data", "variables.py": "--gcvs", "shapes.py": "--prices"}[name]
    monkeypatch.setattr("sys.argv", [name, option, "none"])
    example(name)["main"]()
    assert "generated" in capsys.readouterr().out
