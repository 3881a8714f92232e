"""Weather with its real gaps, as in `examples/weather_with_holes.py`: more pairs, about as often true as they say."""

from __future__ import annotations

import re
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from appulse.cli.demos import weather
from appulse.errors import JobError

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def example() -> Any:
    try:
        weather.read()
    except JobError as error:
        pytest.skip(str(error))
    sys.path.insert(0, str(ROOT / "examples"))
    try:
        return import_module("weather_with_holes")
    finally:
        sys.path.pop(0)


def test_pairs_that_gaps_hid_are_found_and_come_true(
    example: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    picture = tmp_path / "weather.png"
    monkeypatch.setattr(sys, "argv", ["weather_with_holes", "--months", "1", "--out", str(picture)])
    tables: list[Any] = []
    drawn = example.draw

    def draw(*given: Any) -> None:
        tables.extend(given)
        drawn(*given)

    monkeypatch.setattr(example, "draw", draw)
    example.main()
    told = capsys.readouterr().out
    numbers = re.search(r"left out: ([\d,]+) pairs; filled: ([\d,]+) expected", told)
    assert numbers is not None
    left_out, filled = (int(number.replace(",", "")) for number in numbers.groups())
    assert 1.1 * left_out < filled < 1.5 * left_out
    assert picture.stat().st_size > 50_000
    reports, whole, found, judged, _ = tables
    # Pairs without holes are those of the complete reports, to the last one.
    assert not example.holed(whole).any()
    same = found[~example.holed(found)][example.KEYS]
    assert set(same.itertuples(index=False)) == set(whole[example.KEYS].itertuples(index=False))
    assert reports["pressure"].isna().sum() > 150
    # What was taken out: as many pairs came true as was said, within an eighth, and each bin within a quarter.
    assert judged["pairs"].sum() > 300
    expected, happened = ((judged[name] * judged["pairs"]).sum() for name in ("predicted", "happened"))
    assert abs(expected - happened) < happened / 8
    many = judged[judged["pairs"] > 40]
    assert ((many["predicted"] - many["happened"]).abs() < 0.25).all()


def test_gaps_are_taken_out_as_they_come(example: Any) -> None:
    reports = weather.read()
    masked = example.taken_out(reports)
    was, now = (frame["pressure"].isna() for frame in (reports, masked))
    assert (now | ~was).all()
    assert 0.7 * was.sum() < (now & ~was).sum() <= was.sum()
    assert masked.drop(columns="pressure").equals(reports.drop(columns="pressure"))
