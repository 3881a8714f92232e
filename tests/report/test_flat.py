"""Degrees as kilometres on a flat map: the azimuthal equidistant projection of another library."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pyproj
import pytest
from typer.testing import CliRunner

import appulse as ap
from appulse.cli import app
from appulse.errors import BadArgument
from appulse.model.positions import EARTHS, centred, degrees_of
from appulse.report.field_page import phenomena_page
from appulse.report.flat import flattened

PLACE = ap.Position("lat", "lon")


def field(middle: tuple[float, float]) -> tuple[pa.Table, pa.Table, pa.Table]:
    """Readings of sensors around a place, where they are, and the regions of equal values."""
    chance, n = np.random.default_rng(3), 40
    locations = pa.table(
        {
            "sensor": [f"s{i}" for i in range(n)],
            "lat": np.clip(middle[0] + chance.normal(0.0, 2.0, n), -90.0, 90.0),
            "lon": middle[1] + chance.normal(0.0, 3.0, n),
        }
    )
    readings = pa.table(
        {
            "sensor": np.tile(locations["sensor"].to_pylist(), 6),
            "t": np.repeat(np.arange(6.0), n),
            "v": chance.integers(0, 2, 6 * n),
        }
    )
    stream = ap.Stream(readings, key="sensor", time="t", value="v")
    events = ap.phenomena(stream, strength=1, span=2, min_sensors=2, locations=locations, place=PLACE, reach=120_000.0)
    return events, readings, locations


@pytest.mark.parametrize("middle", [(39.0, -96.0), (-17.0, 179.5), (88.0, 10.0)])
def test_places_are_where_another_library_has_them(middle: tuple[float, float]) -> None:
    """Also over the 180th meridian and around a pole; nulls stay nulls."""
    events, _, locations = field(middle)
    flat, sites = flattened(events, locations, PLACE)
    assert sites.column_names == ["sensor", "km east", "km north"]
    earth = EARTHS["wgs84"]
    lat, lon = degrees_of(
        centred(locations["lat"].to_numpy(), locations["lon"].to_numpy(), earth).mean(axis=0)[None], earth
    )[0]
    # The middle lies within the Earth, and its degrees are those of the place above it.
    plane = pyproj.Proj(proj="aeqd", lat_0=lat, lon_0=lon, ellps="WGS84")

    def expected(degrees: list[float]) -> list[float]:
        return [metres / 1000.0 for metres in plane(degrees[0], degrees[1])]

    at = np.column_stack([sites["km east"], sites["km north"]])
    given = zip(locations["lon"].to_pylist(), locations["lat"].to_pylist(), strict=True)
    np.testing.assert_allclose(at, [expected(list(one)) for one in given], atol=1e-3)
    assert len(flat) > 10
    for mine, degrees in zip(flat["centroid"].to_pylist(), events["centroid"].to_pylist(), strict=True):
        np.testing.assert_allclose(mine, expected(degrees), atol=1e-3)
    for mine, degrees in zip(flat["hull"].to_pylist(), events["hull"].to_pylist(), strict=True):
        np.testing.assert_allclose(mine, [expected(corner) for corner in degrees], atol=1e-3)
    for mine, metres in zip(flat["velocity"].to_pylist(), events["velocity"].to_pylist(), strict=True):
        assert mine is None if metres is None else np.allclose(np.multiply(mine, 1000.0), metres)
    assert events["velocity"].null_count < len(events)


def test_a_page_takes_degrees() -> None:
    events, readings, locations = field((39.0, -96.0))
    page = phenomena_page(events, readings, locations, place=PLACE, time="t", unit="m")
    assert "km east" in page
    assert re.search(r">\d+ km</text>", page)  # the scale
    with pytest.raises(BadArgument, match="The locations have no column 'latitude'"):
        phenomena_page(events, readings, locations, place=ap.Position("latitude", "lon"))
    with pytest.raises(BadArgument, match="takes columns of latitude and longitude"):
        phenomena_page(events, readings, locations, place=ap.Position("lat", "lon", earth="sky"))


def test_a_folder_of_phenomena_takes_degrees(tmp_path: Path) -> None:
    tables = field((-17.0, 179.5))
    for name, table in zip(("events", "readings", "locations"), tables, strict=True):
        pq.write_table(table, tmp_path / f"{name}.parquet")
    wrote = CliRunner().invoke(app, ["report", str(tmp_path), "--place", "lat,lon", "--time", "t", "--json"])
    assert wrote.exit_code == 0, wrote.output
    page = Path(json.loads(wrote.stdout)["page"]).read_text(encoding="utf-8")
    assert page == phenomena_page(*tables, place=PLACE, time="t", title=tmp_path.name)
    wrong = CliRunner().invoke(app, ["report", str(tmp_path), "--place", "latitude,lon"])
    assert wrong.exit_code
    assert "The locations have no column 'latitude'" in " ".join(wrong.output.split())
