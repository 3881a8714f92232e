"""Pictures: the right things are counted, and something is drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd
import pytest

from appulse.cli.demos import weather
from appulse.cli.demos.picture import draw_weather
from appulse.errors import BadArgument
from appulse.lab.results import read_results
from examples.meetings import at_places, draw_meetings, meetings

if TYPE_CHECKING:
    from pathlib import Path

PNG = b"\x89PNG"


def fixes() -> pd.DataFrame:
    """Two cabs together at minutes 0, 1, 12 and 30, somewhere else each time."""
    minutes = [0, 1, 12, 30]
    time = pd.Timestamp("2008-05-17", tz="UTC") + pd.to_timedelta(minutes * 2, unit="min")
    where = {"latitude": 0.0, "longitude": [0.0, 0.0001, 0.009, 0.05] * 2}
    rows = pd.DataFrame({"cab": ["b"] * 4 + ["a"] * 4, "time": time, **where})
    return rows.rename_axis("fix")


def pairs() -> pd.DataFrame:
    """The later of two on either side, in no order."""
    return pd.DataFrame({"left_key": [3, 0, 5, 2], "right_key": [7, 4, 1, 6]})


def test_meetings_are_runs_of_pairs() -> None:
    met = meetings(pairs(), fixes(), "cab", gap="10 minutes")
    assert met[["first", "second"]].drop_duplicates().to_numpy().tolist() == [["a", "b"]]
    assert met["pairs"].tolist() == [2, 1, 1]
    assert met["longitude"].tolist() == [0.00005, 0.009, 0.05]
    assert (met["end"] - met["begin"]).dt.total_seconds().tolist() == [60, 0, 0]
    assert meetings(pairs(), fixes(), "cab", gap="11 minutes")["pairs"].tolist() == [3, 1]


def test_places_count_what_is_near() -> None:
    met = meetings(pairs(), fixes(), "cab", gap="11 minutes")
    at = at_places(met, {"rank": (0.0, 0.0), "sea": (9.0, 9.0)})
    assert at["meetings"].to_dict() == {"rank": 1, "sea": 0}
    assert at["lasting"].to_dict() == {"rank": 1, "sea": 0}


def test_meetings_are_drawn(tmp_path: Path) -> None:
    file, places = tmp_path / "met.png", {"rank": (0.0, 0.0), "corner": (0.0, 0.001)}
    met = meetings(pairs(), fixes(), "cab")
    draw_meetings(met, fixes(), places, file, finding="Two met", what="of 8", zone="America/Los_Angeles")
    assert file.read_bytes()[:4] == PNG


def test_the_demos_data_is_as_described() -> None:
    reports = weather.read()
    assert len(reports) == 26_115
    assert reports["report"].is_unique
    assert reports["time"].is_monotonic_increasing
    assert reports.isna().any(axis=1).sum() == 2_729


def test_weather_is_drawn(tmp_path: Path) -> None:
    reports = weather.read()
    hours = reports.pivot(index="time", columns="airport", values="report").dropna()
    same = pd.DataFrame({"left_stream": "Newark", "right_stream": "Kennedy", "left_time": hours.index[::2]})
    finding = draw_weather(same.assign(right_time=same["left_time"]), reports, tmp_path / "weather.png")
    assert finding.startswith("The same weather at Newark and Kennedy: ")
    assert (tmp_path / "weather.png").read_bytes()[:4] == PNG


def test_the_demos_streams_are_months(tmp_path: Path) -> None:
    assert weather.write(weather.read(), tmp_path) == 36
    files = sorted((tmp_path / "Newark").iterdir())
    assert [file.name for file in files][:2] == ["2013-01.parquet", "2013-02.parquet"]
    assert files == sorted(files, key=lambda file: file.stat().st_mtime)


def test_results_are_read_batch_after_batch(tmp_path: Path) -> None:
    for batch in (1, 0):
        part = pd.DataFrame({"n": [batch], "time": [pd.Timestamp("2013-01-01")]})
        part.to_parquet(tmp_path / f"batch-{batch:010d}-part.parquet")
    found = read_results(tmp_path)
    assert found["n"].tolist() == [0, 1]
    assert str(found["time"].dt.tz) == "UTC"
    with pytest.raises(BadArgument, match="no results"):
        read_results(tmp_path / "nothing")
    with pytest.raises(BadArgument, match="parquet, json"):
        read_results(tmp_path, "xml")
