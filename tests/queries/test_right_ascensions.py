"""Conditions on places on the sky, whose right ascensions run from 0 to 360 degrees, and regions beside them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
import shapely
from scipy.special import ndtri

import appulse as ap

if TYPE_CHECKING:
    from numpy.typing import NDArray

_PLACES = (0.0, 0.0001, 0.0006, 100.0, 179.9995, 180.0, 180.0003, 205.0, 359.9993, -0.0004, -155.0)
_SIGMA, _STEPS = 2.0, 400  # arc seconds
_RANGES: dict[str, tuple[float, float]] = {
    "ra BETWEEN 204.9999 AND 210": (204.9999, 210.0),
    "ra < 180": (-1.0, 180.0),
    "ra >= 359.9995": (359.9995, 361.0),
    "ra BETWEEN 179.9999 AND 180.0004": (179.9999, 180.0004),
    "NOT ra < 0.0003": (0.0003, 361.0),
    "ra >= 0": (-1.0, 361.0),
}
_REGIONS = {"at 205": (204.9999, 206.0), "at 180": (179.9996, 180.0004), "at 0": (-0.0005, 0.0005)}


def _possible() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Equally likely places of each row, (rows, places)."""
    one = ndtri((np.arange(_STEPS) + 0.5) / _STEPS) * _SIGMA / 3600.0
    east, north = (part.ravel() for part in np.meshgrid(one / np.cos(np.radians(20.0)), one))
    ra = np.remainder(np.array(_PLACES)[:, None] + east, 360.0)
    return ra, np.broadcast_to(20.0 + north, ra.shape)


def _within(ra: NDArray[np.float64], low: float, high: float) -> Any:
    return np.logical_or.reduce([(ra + turn >= low) & (ra + turn <= high) for turn in (-360.0, 0.0)])


@pytest.mark.parametrize("region", [None, *_REGIONS])
@pytest.mark.parametrize("text", [None, *_RANGES])
@pytest.mark.parametrize("north", [False, True])
def test_what_holds_of_a_star_is_its_share_of_possible_places(
    region: str | None, text: str | None, north: bool
) -> None:
    """Near 0 and near 180 degrees, too, whether its right ascension is given from 0 or from -180 on."""
    if region is None and text is None:
        return
    n = len(_PLACES)
    columns = {"id": np.arange(n), "t": np.zeros(n), "dec": np.full(n, 20.0), "ra": _PLACES, "seen": np.ones(n)}
    stars = ap.Stream(pa.table(columns), key="id", time="t", value=ap.Position("dec", "ra", sigma=_SIGMA, earth="sky"))
    asked = {"query": [1], "condition": [" AND ".join(["seen > 0", *([text] if text else []), *["dec > 20"] * north])]}
    ra, dec = _possible()
    holds = (dec > 20.0) | (not north)
    if text is not None:
        low, high = _RANGES[text]
        holds = holds & (ra >= low) & (ra <= high)
    if region is not None:
        west, east = _REGIONS[region]
        asked["region"] = [shapely.box(west, 19, east, 21).wkt]
        holds = holds & _within(ra, west, east)
    found = ap.match_queries(stars, pa.table(asked), probability=1e-6)
    chances = dict(zip(found["key"].to_pylist(), found["probability"].to_pylist(), strict=True))
    assert [chances.get(i, 0.0) for i in range(n)] == pytest.approx(holds.mean(axis=1), abs=6e-3)


@pytest.mark.parametrize("sigma", [0.0, 0.5])
@pytest.mark.parametrize("ra", [200.0, -160.0, 359.9999])
@pytest.mark.parametrize("turn", [-360.0, 0.0, 360.0])
def test_regions_hold_a_star_whatever_turn_either_is_given_in(sigma: float, ra: float, turn: float) -> None:
    """Alone, and within conditions that are asked of places one by one."""
    west = (ra + 180.0) % 360.0 - 180.0 + turn - 0.5
    wkt, centre = shapely.box(west, 19, west + 1.0, 21).wkt, f"POINT ({west + 0.5} 20)"
    row = pa.table({"id": [1], "t": [0], "dec": [20.0], "ra": [ra]})
    stars = ap.Stream(row, key="id", time="t", value=ap.Position("dec", "ra", sigma=sigma, earth="sky"))
    texts = {
        f"ST_Within(ra, dec, '{wkt}')": True,
        f"NOT ST_Within(ra, dec, '{wkt}')": False,
        f"ST_Within(ra, dec, '{wkt}') OR t > 5": True,
        f"ST_DWithin(ra, dec, '{centre}', 60) AND dec < 21": True,
        f"NOT ST_DWithin(ra, dec, '{centre}', 60)": False,
    }
    asked = ap.match_queries(stars, pa.table({"query": list(texts), "condition": list(texts)}), probability=0.5)
    assert set(asked["query"].to_pylist()) == {text for text, holds in texts.items() if holds}
    for region, radius in ((wkt, None), (centre, 60.0)):
        fence = pa.table({"query": [1], "region": [region], "radius": pa.array([radius], pa.float64())})
        assert len(ap.match_queries(stars, fence, probability=0.5)) == 1
