"""Maps of what lies on both sides of the 180th meridian."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import appulse as ap
from appulse.connect.page_server import Feed, PageServer
from appulse.report.encounters_page import encounters_page
from appulse.report.fences_page import fences_page
from appulse.report.join_page import join_page
from appulse.report.live import Shown
from appulse.report.live_page import live_page
from appulse.report.meridian import MapMiddle, longitude_middle, near
from tests.helpers.pages import close_once_read, drawn, read, shown_by, titled, with_script

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


#: Has the title of the live page say where lines are drawn, the last ones of each.
FOLLOWED = """<script>
const lines = new Map(), own = L.Polyline.prototype.setLatLngs;
L.Polyline.prototype.setLatLngs = function (places) {
  lines.set(this, places);
  document.title = JSON.stringify([...lines.values()].filter((line) => line.length));
  return own.call(this, places);
};
</script><script>"""
SHIPS = ap.Stream(None, key="ship", time="at", value=ap.Position("lat", "lon"), name="ships")


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
    file.write_text(with_script(join_page(pairs()), NOTED), "utf-8")
    texts = titled(drawn(file, ""))
    said, ups = zip(*((text, y) for text, x, y in texts if x == 100), strict=True)
    assert len(set(said)) == len(said) > 1
    assert "-0" not in said
    assert min(np.abs(np.diff(ups))) > 22  # the height of a letter


def test_a_map_turns_only_where_most_have_gone_far() -> None:
    middle = MapMiddle()
    assert middle.follow(np.array([])) == 0.0
    assert middle.follow(np.array([10.0, 20.0])) == 0.0
    assert abs(middle.follow(np.array(LONGITUDES))) == pytest.approx(180.0, abs=1e-3)
    turned = middle.longitude
    assert middle.follow(np.array([150.0])) == turned
    assert middle.follow(np.array([0.0, 90.0, 180.0, 270.0])) == turned  # all around
    assert middle.follow(np.array([-120.0])) == pytest.approx(-120.0)


def test_a_live_map_has_things_of_both_sides_beside_each_other() -> None:
    things = [[0, f"s{i}", lon, -17.0, 0.0] for i, lon in enumerate(LONGITUDES)]
    found = Shown("job", "encounters", [SHIPS]).boxes(things)
    west, _, east, _ = found["all"]
    assert west < abs(found["middle"]) < east
    assert east - west < 0.001
    plane = ap.Stream(None, key="k", time="t", value=ap.Exact("x", "y"), name="plane")
    found = Shown("job", "encounters", [plane]).boxes(things)
    assert found["all"] == [-179.9999, -17.0, 179.9999, -17.0]
    assert found["middle"] is None


def test_a_live_map_has_fences_of_both_sides_beside_each_other() -> None:
    regions = [f"POLYGON(({w} -20, {e} -20, {e} -10, {w} -10, {w} -20))" for w, e in ((175, 180), (-180, -170))]
    regions.append("POLYGON((170 0, 190 0, 190 5, 170 5, 170 0))")
    shown = Shown("job", "fence events", [SHIPS], pa.table({"query": [*"abc"], "region": regions}))
    rings = [fence["rings"][0] for fence in shown.hello["fences"]]
    ends = [[round(of([x for x, _ in ring])) for of in (min, max)] for ring in rings]
    west = ends[0][0]
    assert ends == [[west, west + 5], [west + 5, west + 15], [west - 5, west + 15]]
    far = shown.boxes([[0, "a", -179.5, -17.0, 0.0]])
    assert far["all"][2] - far["all"][0] == pytest.approx(20.0)


def test_a_live_map_has_regions_of_both_sides_beside_each_other() -> None:
    places = pa.table({"id": [*"abc"], "lat": [-17.0, -17.0, -16.0], "lon": [179.9, -179.9, -179.9]})
    shown = Shown("job", "phenomena", [], None, (places, "id", ap.Position("lat", "lon")))
    corners = [[179.9, -17.0], [-179.9, -17.0], [-179.9, -16.0]]
    region = pa.table({"phenomenon": [1], "event": ["appears"], "value": [1.0], "hull": [corners]})
    (event,) = shown.message({}, region)["events"]
    sensors = [place for _, *place in shown.hello["sensors"]]
    assert np.array(event["hull"]) == pytest.approx(np.array(sensors))
    assert np.ptp(sensors, axis=0) == pytest.approx([0.2, 1.0])


def test_a_browser_draws_tracks_over_the_meridian(tmp_path: Path) -> None:
    """Also of a thing that goes over the edge of the map, at the other side of the Earth."""
    shown = Shown("job", "encounters", [SHIPS])
    said: list[Any] = [{"type": "hello", "title": "ships", "jobs": [shown.hello]}]
    for step in range(4):
        places = [179.99 + step * 0.01, -179.98 - step * 0.01, 0.02 - step * 0.01]
        things = [[0, f"s{i}", (lon + 180.0) % 360.0 - 180.0, -17.0, 0.0] for i, lon in enumerate(places)]
        step_said = shown.message({}) | {"type": "step", "job": 0, "things": things, "boxes": shown.boxes(things)}
        said.append(step_said | {"figures": []})
    feed = Feed(lambda: said)
    with PageServer(with_script(live_page("ships"), FOLLOWED), feed) as server:
        close_once_read(feed)
        lines = titled(shown_by(server.address, tmp_path))
    across = [np.array(line)[:, 1] for line in lines if len(line) == 4]
    assert len(across) == 3
    assert max(np.abs(np.diff(line)).max() for line in across) == pytest.approx(0.01)
    assert abs(across[0][-1] - across[1][-1]) < 0.1


def far_apart() -> tuple[pa.Table, ap.Stream[Any]]:
    """Two ships that meet at the meridian, and so many at Greenwich that the middle of all is there."""
    n = 40
    ships = [(f"far {i}", 50.0 + i, np.full(n, i - 2.5)) for i in range(6)]
    ships += [("a", -17.0, 179.995 + np.arange(n) * 2.5e-4), ("b", -17.0002, 180.0055 - np.arange(n) * 2.5e-4)]
    parts = [
        pa.table({"ship": [name] * n, "time": np.arange(n) * 10.0, "lat": [lat] * n, "lon": (lon + 180) % 360 - 180})
        for name, lat, lon in ships
    ]
    table = pa.concat_tables(parts).sort_by("time")
    stream = ap.Stream(
        table, key="ship", time="time", value=ap.Position("lat", "lon", sigma=3.0), motion=ap.Straight(60)
    )
    return table, stream


def widths(page: str, kind: str) -> list[float]:
    """How wide the lines of a kind are in the picture."""
    lines = [match[1] for match in re.finditer(f'<path class="{kind}"[^>]* d="([^"]+)"', page)]
    return [float(np.ptp([float(x) for x in re.findall(r"[ML]([-\d.]+) ", line)])) for line in lines]


def test_tracks_over_the_edge_of_a_map_are_in_one_piece(tmp_path: Path) -> None:
    table, stream = far_apart()
    page = encounters_page(ap.encounters(stream, epsilon=100.0, probability=0.5), table)
    west, _, east, _ = read(page).data["box"]
    assert east - west < 2000.0
    (tmp_path / "page.html").write_text(page, "utf-8")
    for moment in ("", "1"):
        found = drawn(tmp_path / "page.html", moment)
        assert len(widths(found, "track")) == 2
        for kind in ("track", "meeting", "past"):
            assert max(widths(found, kind), default=0.0) < 5000.0


def test_fences_over_the_edge_of_a_map_are_in_one_piece(tmp_path: Path) -> None:
    table, stream = far_apart()
    corners = "179.998 -17.01, 180.002 -17.01, 180.002 -16.99, 179.998 -16.99, 179.998 -17.01"
    fences = pa.table(
        {"query": ["reef", "atoll", "all"], "radius": [None, 300.0, None]}
        | {"region": [f"POLYGON(({corners}))", "POINT(180 -17)", "POLYGON((-5 40, 5 40, 5 60, -5 60, -5 40))"]}
    )
    page = fences_page(ap.fence_events(stream, fences), fences, table)
    for rings in read(page).data["regions"]:
        assert max(np.ptp([x for x, _ in ring]) for ring in rings) < 2e6
    number = next(i for i, one in enumerate(read(page).data["happenings"], 1) if one["facts"][1] == "reef")
    (tmp_path / "page.html").write_text(page, "utf-8")
    found = drawn(tmp_path / "page.html", str(number))
    assert 50.0 < min(widths(found, "fence inside")) < 760.0
    assert max(widths(found, "track")) < 5000.0
