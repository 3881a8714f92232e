"""Maps of what lies on both sides of the 180th meridian."""

from __future__ import annotations

import json
import re
from html import unescape
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import appulse as ap
from appulse.report.join_page import join_page
from appulse.report.meridian import longitude_middle, near
from tests.helpers.pages import drawn, read

if TYPE_CHECKING:
    from pathlib import Path

LONGITUDES = [179.9999, -179.9999, 179.9998, 179.9999]
#: Has the title of a page say which texts a canvas drew, and where.
NOTED = """<script>
const texts = [];
CanvasRenderingContext2D.prototype.fillText = (...drawn) => {
  texts.push(drawn);
  document.title = JSON.stringify(texts);
};
</script><script>"""


def pairs(names: tuple[str, str] = ("lon", "lat")) -> pa.Table:
    """Pairs of things within 32 m, of which one is on the other side of the meridian."""
    table = pa.table({"k": [*"abcd"], "t": [0, 1, 2, 3], names[1]: [-17.0] * 4, names[0]: LONGITUDES})
    value = ap.Position(names[1], names[0])
    stream = ap.Stream(table, key="k", time="t", value=value, carry=[*names], name="s")
    return ap.self_join(stream, epsilon=100, probability=1, window=10)


@given(st.lists(st.floats(-720, 720), min_size=1, max_size=9), st.floats(-180, 180))
def test_longitudes_are_the_same_at_most_half_a_turn_away(at: list[float], other: float) -> None:
    found = near(np.array(at), other)
    assert (np.abs(found - other) <= 180.0 + 1e-9).all()
    turns = (found - at) / 360.0
    assert turns == pytest.approx(turns.round())


def test_longitudes_have_a_middle_over_the_meridian() -> None:
    assert abs(longitude_middle(np.array([*LONGITUDES, np.nan]))) == pytest.approx(180.0, abs=1e-3)
    assert longitude_middle(np.array([10.0, 20.0])) == pytest.approx(15.0)
    assert longitude_middle(np.array([])) == 0.0


@pytest.mark.parametrize("names", [("lon", "lat"), ("longitude", "latitude")])
def test_matches_over_the_meridian_are_half_way_between_their_rows(names: tuple[str, str]) -> None:
    answers = pairs(names)
    across = read(join_page(answers)).data["across"]
    assert across[:2] == ["km east", "km north"]
    assert max(across[2]) - min(across[2]) < 0.04
    assert max(np.abs(across[3])) < 1e-9


def test_matches_by_positions_are_half_way_between_them() -> None:
    positions = pa.table({"key": [*"abcd"], "Lon": LONGITUDES, "lat": [-17.0] * 4})
    across = read(join_page(pairs(), positions=positions)).data["across"]
    assert max(across[2]) - min(across[2]) < 0.001
    positions = positions.rename_columns(["key", "x", "y"])
    assert 0 in read(join_page(pairs(), positions=positions)).data["across"][2]  # those are no degrees


def test_the_axes_of_matches_on_a_line_can_be_read(tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    page = re.sub("<meta http-equiv[^>]*>", "", join_page(pairs()))
    before, script, after = page.rpartition("<script>")
    file.write_text(before + NOTED + after if script else page, "utf-8")
    title = re.search("<title>(.*?)</title>", drawn(file, ""))
    assert title is not None
    texts: list[Any] = json.loads(unescape(title[1]))
    said, ups = zip(*((text, y) for text, x, y in texts if x == 100), strict=True)
    assert len(set(said)) == len(said) > 1
    assert "-0" not in said
    assert min(np.abs(np.diff(ups))) > 22  # the height of a letter
