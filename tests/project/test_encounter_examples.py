"""Tracks, quakes, stars, echoes and motes, as in the examples of these names: what they say, on data and on twins."""

from __future__ import annotations

import re
import runpy
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def _said(name: str, picture: Path | None = None, *more: str) -> str:
    """What an example prints, run here as a program: a process of its own would import all that is imported."""
    pictured = [] if picture is None else ["--picture", str(picture)]
    printed = StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(printed):
        patch.setattr("sys.argv", [name, *pictured, *more])
        patch.syspath_prepend(EXAMPLES)
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    assert picture is None or picture.stat().st_size > 10_000
    return printed.getvalue()


@pytest.mark.data
def test_alarms_of_aircraft_fall_with_the_threshold(tmp_path: Path) -> None:
    said = _said("aircraft.py", tmp_path / "alarms.png")
    (plain,) = re.findall(r"alarms for (\d+) pairs", said)
    counts = [int(count) for count in re.findall(r"or more: +(\d+) pairs", said)]
    assert counts == sorted(counts, reverse=True)
    assert 0 < counts[0] <= int(plain) * 1.1
    if "twin" not in said:
        assert (int(plain), counts[0], counts[5:]) == (157, 156, [0, 0, 0])


@pytest.mark.data
def test_crossings_find_most_sectors_that_sparse_reports_miss() -> None:
    said = _said("sectors.py")
    passed, known, crossed, right = (
        int(n.replace(",", "")) for n in re.findall(r"([\d,]+) (?:pairs|of them|more|by all)", said)
    )
    assert right > 0.9 * crossed
    assert right > 0.7 * (passed - known)


@pytest.mark.data
def test_ships_under_way_meet_in_three_ways(tmp_path: Path) -> None:
    said = _said("ships.py", tmp_path / "encounters.png")
    counts = {kind: int(count) for kind, count in re.findall(r"  ([a-z-]+) +(\d+), closest", said)}
    assert set(counts) == {"head-on", "crossing", "overtaking"}
    (total,) = re.findall(r"in (\d+) encounters", said)
    assert sum(counts.values()) == int(total)


@pytest.mark.data
def test_aircraft_over_fires_are_found_between_their_readings(tmp_path: Path) -> None:
    said = _said("fires.py", tmp_path / "closest.png")
    (known,) = re.findall(r"as they are: (\d+) pairs", said)
    (found,) = re.findall(r"probability 0.25 or more: (\d+) pairs, (\d+) of those", said)
    assert found[1] == known
    assert int(found[0]) >= int(known)
    if "twin" not in said:
        assert (int(known), int(found[0])) == (7, 8)


@pytest.mark.data
def test_people_who_walk_together_are_found_better_than_by_the_plain_rule(tmp_path: Path) -> None:
    said = _said("walkers.py", tmp_path / "groups.png")
    found = {(scene, way): float(f) for scene, way, f in re.findall(r"(\w+) +(plain|encounters) .+ F ([0-9.]+)", said)}
    assert len(found) == 4
    for scene in ("eth", "hotel"):
        assert found[scene, "encounters"] > found[scene, "plain"] + 0.02


@pytest.mark.data
def test_a_jam_appears_in_the_canal(tmp_path: Path) -> None:
    said = _said("suez.py", tmp_path / "jam.png", "--page", str(tmp_path / "jam.html"))
    assert re.findall(r"A jam in the canal: phenomenon \d+ appears at 23 March", said)
    assert (tmp_path / "jam.html").stat().st_size > 20_000


@pytest.mark.data
def test_a_commute_leaves_its_usual_route(tmp_path: Path) -> None:
    said = _said("commute.py", tmp_path / "off.png")
    found = [
        (int(trip), metres) for trip, metres in re.findall(r"Trip (\d+) is off the usual route for ([0-9,]+) m", said)
    ]
    assert found[0] == ((6, "787") if "twin" in said else (9, "1,006"))
    assert len(found) == (1 if "twin" in said else 11)
    assert (tmp_path / "off.png").stat().st_size > 20_000


@pytest.mark.data
def test_gaps_are_nearer_to_bursts_than_to_independence(tmp_path: Path) -> None:
    said = _said("gaps.py", tmp_path / "gaps.svg")
    rows = [(int(rows), float(held)) for rows, held in re.findall(r" (\d+) rows have 24 .+ in ([0-9.]+)%", said)]
    (air, air_in_bursts, flights, flights_in_bursts) = rows
    for alone, bursts in ((air, air_in_bursts), (flights, flights_in_bursts)):
        assert alone[0] == 27
        assert abs(bursts[1] - 99) < abs(alone[1] - 99)
    if "twin of readings" in said:
        assert air_in_bursts[1] == pytest.approx(99, abs=0.5)
    else:
        assert (air, air_in_bursts) == ((27, 96.4), (32, 98.2))


@pytest.mark.data
def test_origins_of_a_quake_are_matched_by_their_ellipses(tmp_path: Path) -> None:
    """More pairs than fixed windows of the same size find, and no wrong one."""
    said, catalogues = _said("quakes.py", tmp_path / "origins.png").split(" have ")
    fixed = dict(re.findall(r"within (\d+) km and 60 s +([0-9.]+)% found", said))
    found = re.findall(r"probability ([0-9.]+) +([0-9.]+)% found, +([0-9.]+)% of", said)
    assert {right for _, _, right in found} == {"100.0"}
    assert float(found[-1][1]) > float(fixed["150"])
    assert [float(share) for _, share, _ in found] == sorted(float(share) for _, share, _ in found)
    if "generated twin" in said:  # whose ellipses are true
        half, most = re.findall(r"10 km beside.* ([0-9]+)% within 50%, ([0-9]+)% within 90%", said)[0]
        assert abs(int(half) - 50) <= 4
        assert abs(int(most) - 90) <= 3
    # Of two catalogues the nearest origins are more than any fixed window has.
    ways = re.findall(r"^  (\S.*?) +([0-9.]+)% found, +([0-9.]+)% of", catalogues, re.MULTILINE)
    assert {right for _, _, right in ways} == {"100.0"}
    shares = {what.split(",")[0]: float(share) for what, share, _ in ways}
    most = max(share for what, share in shares.items() if what.startswith("within"))
    assert shares["the nearest"] >= most
    assert shares["the likeliest to be within 100 km"] >= most
    assert shares["one to one by likelihood"] > 98.0


@pytest.mark.data
def test_stars_are_matched_where_their_motion_takes_them(tmp_path: Path) -> None:
    said = _said("stars.py", tmp_path / "residuals.png")
    found = [int(count.replace(",", "")) for count in re.findall(r"(?:second|likelihood): ([0-9,]+) ", said)]
    still, moved, one = found
    assert still < moved
    assert abs(one - moved) < 0.06 * moved
    if "generated" not in said:
        assert found == [76_420, 109_725, 104_795]


@pytest.mark.data
def test_echoes_of_which_the_margin_is_sure_are_right(tmp_path: Path) -> None:
    said = _said("radar.py", tmp_path / "scan.png")
    ways = {
        what.strip(): (float(found), float(right))
        for what, found, right in re.findall(
            r"^  (\D+?|.+?0\.5) +([0-9.]+)% of them found, +([0-9.]+)%", said, re.MULTILINE
        )
    }
    one, sure = ways["one to one by likelihood"], ways["the same, where it is sure"]
    assert one[1] > ways["the nearest echo"][1]
    assert sure[1] > 99.0
    if "generated" not in said:
        assert one > ways["global nearest neighbour"]


@pytest.mark.data
def test_motes_unlike_those_around_them_are_faulty() -> None:
    """Of as many faults, readings without a partner are wrong less often than those far from a median."""
    said = _said("motes.py")
    ways = {
        what.strip(): (float(found), float(right))
        for what, found, right in re.findall(r"^  (.+?)  +([0-9.]+)% of the faults, +([0-9.]+)% of", said, re.MULTILINE)
    }
    alone, median = ways["no other within 10 m, a degree as 5 m, p >= 0.9"], "over 3 degrees from the median of"
    (far,) = (shares for what, shares in ways.items() if what.startswith(median))
    assert alone[0] > far[0] - 1.0
    assert alone[1] > 50.0
    if "generated" not in said:
        assert alone[1] > 1.5 * far[1]
